package decode

import (
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

const (
	lrhLen = 8
	grhLen = 40

	protoICMP     = 1
	protoTCP      = 6
	protoFragment = 44
	protoICMPv6   = 58
	protoBTH      = 0x1b // the next header of a GRH

	lnhBTH = 2 // IBA 7.7.5
	lnhGRH = 3
)

func (p *Packet) ip(b []byte) {
	if len(b) == 0 {
		p.fail(trace.DropShort, "")
		return
	}
	switch b[0] >> 4 {
	case 4:
		p.ipv4(b)
	case 6:
		p.ipv6(b)
	default:
		p.fail(trace.DropNotIP, fmt.Sprintf("IP version %d", b[0]>>4))
	}
}

// ipv4 decodes an IPv4 packet. A wrong header checksum is recorded, and
// decoding goes on.
func (p *Packet) ipv4(b []byte) {
	if len(b) < wire.IPv4Len {
		p.fail(trace.DropShort, "")
		return
	}
	h := wire.IPv4(b)
	id, df, sum := h.ID(), h.FlagsOffset()&wire.FlagDF != 0, h.Checksum()
	p.IP = &IP{
		Version: 4, Src: netip.AddrFrom4(h.Src()).String(), Dst: netip.AddrFrom4(h.Dst()).String(), DSCP: h.TOS() >> 2,
		ECN: h.TOS() & 3, TTL: h.TTL(), Protocol: h.Protocol(), Len: h.TotalLen(), ID: &id, DF: &df, Checksum: &sum,
	}
	p.Src, p.Dst = p.IP.Src, p.IP.Dst
	n := h.HeaderLen()
	switch {
	case n != wire.IPv4Len:
		p.fail(trace.DropNotIP, fmt.Sprintf("an IPv4 header of %d octets; RoCEv2 has no IP options", n))
		return
	case h.TotalLen() < wire.IPv4Len || h.TotalLen() > len(b) && p.Captured == 0:
		p.fail(trace.DropShort, fmt.Sprintf("IPv4 length %d in %d octets", h.TotalLen(), len(b)))
		return
	}
	if !h.ChecksumOK() {
		want := wire.IPv4(append([]byte(nil), b[:n]...))
		want.SetChecksum()
		p.fail(trace.DropIPChecksum, fmt.Sprintf("0x%04x where 0x%04x is right", sum, want.Checksum()))
	}
	switch {
	case h.FlagsOffset()&0x3fff != 0:
		p.fail(trace.DropFragment, "")
		return
	case h.Protocol() != wire.ProtoUDP:
		p.notRoCE(protoName(h.Protocol()))
		return
	}
	total := h.TotalLen()
	p.udp(b[:n], b[n:min(total, len(b))], total-n)
}

func (p *Packet) ipv6(b []byte) {
	if len(b) < wire.IPv6Len {
		p.fail(trace.DropShort, "")
		return
	}
	h := wire.IPv6(b)
	flow := h.FlowLabel()
	p.IP = &IP{
		Version: 6, Src: netip.AddrFrom16(h.Src()).String(), Dst: netip.AddrFrom16(h.Dst()).String(), DSCP: h.TrafficClass() >> 2,
		ECN: h.TrafficClass() & 3, TTL: h.HopLimit(), Protocol: h.NextHeader(), Len: h.PayloadLen(), FlowLabel: &flow,
	}
	p.Src, p.Dst = p.IP.Src, p.IP.Dst
	end := wire.IPv6Len + h.PayloadLen()
	switch {
	case end > len(b) && p.Captured == 0:
		p.fail(trace.DropShort, fmt.Sprintf("IPv6 length %d in %d octets", end, len(b)))
		return
	case h.NextHeader() == protoFragment:
		p.fail(trace.DropFragment, "")
		return
	case h.NextHeader() != wire.ProtoUDP:
		p.notRoCE(protoName(h.NextHeader()))
		return
	}
	p.udp(b[:wire.IPv6Len], b[wire.IPv6Len:min(end, len(b))], h.PayloadLen())
}

// udp decodes a datagram. ip is its IP header; full is its length by that
// header, more than len(b) when the capture cut it.
func (p *Packet) udp(ip, b []byte, full int) {
	if len(b) < wire.UDPLen {
		p.fail(trace.DropShort, "")
		return
	}
	h := wire.UDP(b)
	p.UDP = &UDP{SrcPort: h.SrcPort(), DstPort: h.DstPort(), Len: h.Length(), Checksum: h.Checksum()}
	if h.DstPort() != wire.Port {
		p.notRoCE(fmt.Sprintf("UDP to port %d", h.DstPort()))
		return
	}
	p.Protocol = RoCEv2
	if h.Length() != full {
		p.fail(trace.DropUDPLen, fmt.Sprintf("UDP length %d where IP leaves %d", h.Length(), full))
		return
	}
	if full == len(b) {
		partial := h.Checksum() != 0 && h.Checksum() == pseudoSum(ip, len(b))
		switch {
		case h.Checksum() == 0 || udpChecksumOK(ip, b):
		case partial:
			p.Notes = append(p.Notes, "the UDP checksum was left to the sender's hardware")
		default:
			p.Notes = append(p.Notes, fmt.Sprintf("UDP checksum 0x%04x is wrong", h.Checksum()))
		}
		p.checkICRC(b[wire.UDPLen:], pseudo(nil, ip, b[:wire.UDPLen]))
		if p.ICRC == "bad" {
			p.run = &run{ip: ip, udp: b[:wire.UDPLen], body: b[wire.UDPLen:], partial: partial}
		}
	}
	p.transport(b[wire.UDPLen:], full-wire.UDPLen)
}

// dropReason says that the frame is of another protocol, over an earlier
// finding: what is wrong with such a frame is nobody's concern here.
func (p *Packet) notRoCE(detail string) {
	p.Reason = ""
	p.fail(trace.DropNotRoCE, detail)
}

// lrh decodes a native InfiniBand packet. The length in the header ends it;
// a variant CRC may follow. IBA 7.7.
func (p *Packet) lrh(b []byte) {
	p.Protocol = InfiniBand
	if len(b) < lrhLen {
		p.fail(trace.DropShort, "")
		return
	}
	n := int(be.Uint16(b[4:])&0x7ff) * 4
	p.LRH = &LRH{VL: b[0] >> 4, Version: b[0] & 15, SL: b[1] >> 4, LNH: b[1] & 3, DLID: be.Uint16(b[2:]), SLID: be.Uint16(b[6:]), Len: n}
	p.Src, p.Dst = fmt.Sprintf("LID %d", p.LRH.SLID), fmt.Sprintf("LID %d", p.LRH.DLID)
	if n < lrhLen || n > len(b) && p.Captured == 0 {
		p.fail(trace.DropShort, fmt.Sprintf("LRH length %d in %d octets", n, len(b)))
		return
	}
	rest, head := b[lrhLen:min(n, len(b))], b[:lrhLen]
	switch p.LRH.LNH {
	case lnhGRH:
		p.grh(head, rest)
	case lnhBTH:
		if n <= len(b) {
			p.checkICRC(rest, pseudo(head, nil, nil))
		}
		p.transport(rest, n-lrhLen)
	default:
		p.Protocol = Other
		p.fail(trace.DropNotRoCE, fmt.Sprintf("InfiniBand raw packet, next header %d", p.LRH.LNH))
	}
}

// grh decodes a global route header: of RoCE v1, or after the lrh of a native
// packet. IBA 8.3, Annex A16.4.
func (p *Packet) grh(lrh, b []byte) {
	if len(b) < grhLen {
		p.fail(trace.DropShort, "")
		return
	}
	h := wire.IPv6(b)
	p.GRH = &GRH{
		Version: h.Version(), TrafficClass: h.TrafficClass(), FlowLabel: h.FlowLabel(), Len: h.PayloadLen(), NextHeader: h.NextHeader(),
		HopLimit: h.HopLimit(), SGID: netip.AddrFrom16(h.Src()).String(), DGID: netip.AddrFrom16(h.Dst()).String(),
	}
	p.Src, p.Dst = p.GRH.SGID, p.GRH.DGID
	end := grhLen + h.PayloadLen()
	switch {
	case end > len(b) && p.Captured == 0:
		p.fail(trace.DropShort, fmt.Sprintf("GRH length %d in %d octets", end, len(b)))
		return
	case h.NextHeader() != protoBTH:
		p.Protocol = Other
		p.fail(trace.DropNotRoCE, fmt.Sprintf("GRH next header 0x%02x", h.NextHeader()))
		return
	}
	if end <= len(b) {
		p.checkICRC(b[grhLen:end], pseudo(lrh, b[:grhLen], nil))
	}
	p.transport(b[grhLen:min(end, len(b))], h.PayloadLen())
}

// checkICRC compares the last four octets of pkt, BTH to ICRC, with what they
// must be after the masked headers before the BTH.
func (p *Packet) checkICRC(pkt, pseudo []byte) {
	if len(pkt) < bth.BTHLen+bth.ICRCLen {
		return // transport says so
	}
	want, got := icrc(pseudo, pkt)
	if want == got {
		p.ICRC = "ok"
		return
	}
	p.ICRC, p.ICRCStored, p.ICRCComputed = "bad", fmt.Sprintf("%x", got), fmt.Sprintf("%x", want)
}

func protoName(n uint8) string {
	switch n {
	case protoICMP:
		return "ICMP"
	case protoTCP:
		return "TCP"
	case protoICMPv6:
		return "ICMPv6"
	}
	return fmt.Sprintf("IP protocol %d", n)
}
