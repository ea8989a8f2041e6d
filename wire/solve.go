package wire

import "github.com/gorxe/gorxe/bth"

// SolveID returns the IPv4 identification for which the ICRC of segment i of d
// holds, with the flags that go with it: FlagDF, or 0 if only that fits. It is
// for those who show a packet whose header was hidden; whether to believe it
// is a Verifier's business. ok is false when there is none, for IPv6, and for
// what is too short to be a packet.
func SolveID(d *Datagram, i int) (id, flags uint16, ok bool) {
	pkt := d.Segment(i)
	if !d.Src.Is4() || len(pkt) < bth.BTHLen+bth.ICRCLen {
		return 0, 0, false
	}
	body := pkt[:len(pkt)-bth.ICRCLen]
	for _, flags := range [...]uint16{FlagDF, 0} {
		s := prefixState(d.Src, d.Dst, d.SrcPort, len(pkt), flags)
		diff := packetState(s, body) ^ storedICRC(pkt)
		if id, ok := idBasis.solve(crcUnshift(diff, len(body))); ok {
			return id, flags, true
		}
	}
	return 0, 0, false
}
