package wire

import (
	"net/netip"

	"github.com/gorxe/gorxe/trace"
)

// Datagram is one received UDP datagram to the RoCEv2 port, or a run of equal
// ones that the kernel merged (GRO). Payload is borrowed until the next Recv
// of the link it came from.
type Datagram struct {
	Src, Dst netip.Addr // IPv4 as 4 octets, never 4-in-6; no zone
	SrcPort  uint16
	TOS      uint8 // traffic class: DSCP and ECN
	TTL      uint8 // hop limit; 0 when the link cannot see it

	FlowLabel uint32 // of IPv6; 0 when the link cannot see it

	// ID and Flags are the IPv4 identification and the flags and fragment
	// offset of the first segment; valid when IDKnown. A later segment's ID
	// is one higher each, or the same where datagrams with DF were merged.
	ID      uint16
	Flags   uint16
	IDKnown bool

	// SegLen is the UDP payload length of each segment but the last, which
	// may be shorter; 0 when Payload is a single packet.
	SegLen int

	// Payload runs from the BTH to the ICRC, segment after segment.
	Payload []byte

	// L2 is what precedes the IP header when the link sees frames: Ethernet
	// and tags; nil from a socket.
	L2 []byte
}

// Segments returns how many packets the payload holds.
func (d *Datagram) Segments() int {
	if d.SegLen <= 0 || len(d.Payload) <= d.SegLen {
		return 1
	}
	return (len(d.Payload) + d.SegLen - 1) / d.SegLen
}

// Segment returns packet i, 0 <= i < Segments().
func (d *Datagram) Segment(i int) []byte {
	if d.SegLen <= 0 {
		return d.Payload
	}
	off := i * d.SegLen
	return d.Payload[off:min(off+d.SegLen, len(d.Payload)):min(off+d.SegLen, len(d.Payload))]
}

// ParseFrame fills d from an Ethernet frame, with any number of VLAN tags up
// to two. It returns trace.None or why the frame is not a RoCEv2 packet.
// Payload and L2 alias the frame.
//
//gorxe:hot
func ParseFrame(frame []byte, d *Datagram) trace.Reason {
	if len(frame) < EthernetLen {
		return trace.DropShort
	}
	off, et := EthernetLen, Ethernet(frame).EtherType()
	for range 2 {
		if et != EtherTypeVLAN && et != EtherTypeQinQ {
			break
		}
		if len(frame) < off+VLANLen {
			return trace.DropShort
		}
		et = VLAN(frame[off:]).EtherType()
		off += VLANLen
	}
	if et != EtherTypeIPv4 && et != EtherTypeIPv6 {
		return trace.DropNotIP
	}
	r := ParseIP(frame[off:], d)
	d.L2 = frame[:off:off]
	return r
}

// ParseIP fills d from a packet that begins with its IP header. Octets beyond
// the IP length are ignored. IPv4 options and IPv6 extension headers are not
// RoCEv2 (Annex A17.3.1) and refused.
//
//gorxe:hot
func ParseIP(b []byte, d *Datagram) trace.Reason {
	if len(b) < 1 {
		return trace.DropShort
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(b, d)
	case 6:
		return parseIPv6(b, d)
	}
	return trace.DropNotIP
}

func parseIPv4(b []byte, d *Datagram) trace.Reason {
	if len(b) < IPv4Len {
		return trace.DropShort
	}
	h := IPv4(b)
	total := h.TotalLen()
	switch {
	case h.HeaderLen() != IPv4Len:
		return trace.DropNotIP
	case total > len(b) || total < IPv4Len:
		return trace.DropShort
	case !h.ChecksumOK():
		return trace.DropIPChecksum
	case h.FlagsOffset()&0x3fff != 0: // more fragments, or an offset
		return trace.DropFragment
	case h.Protocol() != ProtoUDP:
		return trace.DropNotRoCE
	}
	*d = Datagram{
		Src: netip.AddrFrom4(h.Src()), Dst: netip.AddrFrom4(h.Dst()), TOS: h.TOS(), TTL: h.TTL(),
		ID: h.ID(), Flags: h.FlagsOffset(), IDKnown: true,
	}
	return parseUDP(b[IPv4Len:total:total], d)
}

func parseIPv6(b []byte, d *Datagram) trace.Reason {
	if len(b) < IPv6Len {
		return trace.DropShort
	}
	h := IPv6(b)
	end := IPv6Len + h.PayloadLen()
	switch {
	case end > len(b):
		return trace.DropShort
	case h.NextHeader() == 44:
		return trace.DropFragment
	case h.NextHeader() != ProtoUDP:
		return trace.DropNotRoCE
	}
	*d = Datagram{Src: netip.AddrFrom16(h.Src()), Dst: netip.AddrFrom16(h.Dst()), TOS: h.TrafficClass(), TTL: h.HopLimit(), FlowLabel: h.FlowLabel()}
	return parseUDP(b[IPv6Len:end:end], d)
}

func parseUDP(b []byte, d *Datagram) trace.Reason {
	if len(b) < UDPLen {
		return trace.DropShort
	}
	h := UDP(b)
	if h.DstPort() != Port {
		return trace.DropNotRoCE
	}
	if n := h.Length(); n != len(b) {
		return trace.DropUDPLen
	}
	d.SrcPort, d.Payload = h.SrcPort(), b[UDPLen:]
	return trace.None
}
