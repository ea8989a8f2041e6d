package wire

import "github.com/gorxe/gorxe/bth"

// FindRun finds out whether d is a single packet or a run of equal ones that
// somebody merged without a word, and returns its SegLen: 0 for a single
// packet. It tries hints first, then every length up to most, against the ICRC
// of the first packet. ok is false when none fits: the packet is damaged, or
// its segments are longer. A search takes some 400 ns for every 4 octets of
// most.
//
// The datagram's IP header must be known (IDKnown, or IPv6); to a Datagram from
// a socket SegLen is told.
func FindRun(d *Datagram, hints []int, most int) (segLen int, ok bool) {
	var id uint32
	if d.Src.Is4() {
		id = idState(d.ID)
	}
	is := func(n int) bool {
		body := d.Payload[:n-bth.ICRCLen]
		return packetState(prefixState(d.Src, d.Dst, d.SrcPort, n, d.Flags)^id, body) == storedICRC(d.Payload[:n])
	}
	const least = bth.BTHLen + bth.ICRCLen
	size := len(d.Payload)
	switch {
	case size < least:
		return 0, false
	case is(size):
		return 0, true
	}
	for _, n := range hints {
		if least <= n && n < size && is(n) {
			return n, true
		}
	}
	// The register after a packet of n octets is that of its octets, from a
	// register of zero, and the pseudo header's moved over them. The latter is
	// compared before it is moved.
	p := d.Payload[:min(size-1, most)]
	if len(p) < least {
		return 0, false
	}
	octets := crcBTH(0, p)
	for n := least; n <= len(p); n += 4 {
		if n > least {
			octets = crcShort(octets, p[n-8:n-4])
		}
		want := crcUnshift(octets^storedICRC(p[:n]), n-bth.ICRCLen)
		if want == prefixState(d.Src, d.Dst, d.SrcPort, n, d.Flags)^id {
			return n, true
		}
	}
	return 0, false
}
