package tap

import (
	"encoding/binary"
	"net/netip"

	"github.com/gorxe/gorxe/wire"
)

// assumedTTL is shown where the link cannot see the TTL.
const assumedTTL = 64

// appendFrame appends segment i of d as a frame: with the layer 2 header that
// was seen, or one made up. id and flags are those of the segment.
func appendFrame(b []byte, d *wire.Datagram, i int, id, flags uint16) []byte {
	if d.L2 != nil {
		b = append(b, d.L2...)
	} else {
		b = appendEthernet(b, d)
	}
	pkt := d.Segment(i)
	ttl := d.TTL
	if ttl == 0 {
		ttl = assumedTTL
	}
	at := len(b)
	if d.Src.Is4() {
		b = append(b, make([]byte, wire.IPv4Len+wire.UDPLen)...)
		h := wire.IPv4(b[at:])
		h[0] = 0x45
		h.SetTOS(d.TOS)
		h.SetTotalLen(wire.IPv4Len + wire.UDPLen + len(pkt))
		h.SetID(id)
		h.SetFlagsOffset(flags)
		h.SetTTL(ttl)
		h.SetProtocol(wire.ProtoUDP)
		h.SetSrc(d.Src.As4())
		h.SetDst(d.Dst.As4())
		h.SetChecksum()
		at += wire.IPv4Len
	} else {
		b = append(b, make([]byte, wire.IPv6Len+wire.UDPLen)...)
		h := wire.IPv6(b[at:])
		h.SetClassFlow(d.TOS, 0)
		h.SetPayloadLen(wire.UDPLen + len(pkt))
		h.SetNextHeader(wire.ProtoUDP)
		h.SetHopLimit(ttl)
		h.SetSrc(d.Src.As16())
		h.SetDst(d.Dst.As16())
		at += wire.IPv6Len
	}
	u := wire.UDP(b[at:])
	u.SetSrcPort(d.SrcPort)
	u.SetDstPort(wire.Port)
	u.SetLength(wire.UDPLen + len(pkt))
	b = append(b, pkt...)
	wire.UDP(b[at:]).SetChecksum(udpChecksum(d.Src, d.Dst, b[at:]))
	return b
}

func appendEthernet(b []byte, d *wire.Datagram) []byte {
	b = appendMAC(appendMAC(b, d.Dst), d.Src)
	if d.Src.Is4() {
		return binary.BigEndian.AppendUint16(b, wire.EtherTypeIPv4)
	}
	return binary.BigEndian.AppendUint16(b, wire.EtherTypeIPv6)
}

// appendMAC makes up a locally administered address from the end of an IP
// address; a group's is the one that belongs to it (RFC 1112 section 6.4,
// RFC 2464 section 7).
func appendMAC(b []byte, a netip.Addr) []byte {
	ip := a.AsSlice()
	switch {
	case a.IsMulticast() && a.Is4():
		return append(b, 1, 0, 0x5e, ip[1]&0x7f, ip[2], ip[3])
	case a.IsMulticast():
		return append(append(b, 0x33, 0x33), ip[12:]...)
	}
	return append(append(b, 2, 0), ip[len(ip)-4:]...)
}

// udpChecksum computes the checksum of a UDP datagram whose checksum field is
// 0. RFC 768, RFC 8200 clause 8.1.
func udpChecksum(src, dst netip.Addr, udp []byte) uint16 {
	sum := uint64(wire.ProtoUDP) + uint64(len(udp))
	add := func(p []byte) {
		for ; len(p) >= 2; p = p[2:] {
			sum += uint64(p[0])<<8 | uint64(p[1])
		}
		if len(p) == 1 {
			sum += uint64(p[0]) << 8
		}
	}
	add(src.AsSlice())
	add(dst.AsSlice())
	add(udp)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if c := ^uint16(sum); c != 0 {
		return c
	}
	return 0xffff
}
