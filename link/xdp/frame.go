package xdp

import (
	"encoding/binary"
	"net/netip"

	"github.com/gorxe/gorxe/wire"
)

const (
	maxHeaders = wire.EthernetLen + wire.IPv6Len + wire.UDPLen
	defaultTTL = 64 // of a flow that leaves it to the system
)

// headers are what stands before the BTH in the frames of a flow.
type headers struct {
	b   [maxHeaders]byte
	n   int
	sum uint32 // of the IPv4 header, without identification
}

// set makes headers for segments with size octets of UDP payload. The UDP
// checksum is 0: the ICRC does its work (IBA A17.3.1.2 asks for no other).
func (h *headers) set(f *wire.Flow, src, dst [6]byte, size int) {
	eth := wire.Ethernet(h.b[:])
	eth.SetDst(dst)
	eth.SetSrc(src)
	ip := h.b[wire.EthernetLen:]
	ttl := f.TTL
	if ttl == 0 {
		ttl = defaultTTL
	}
	size += wire.UDPLen
	if f.Dst.Is4() {
		eth.SetEtherType(wire.EtherTypeIPv4)
		h.n = wire.EthernetLen + wire.IPv4Len
		v4 := wire.IPv4(ip[:wire.IPv4Len])
		v4[0] = 0x45
		v4.SetTOS(f.TOS)
		v4.SetTotalLen(wire.IPv4Len + size)
		v4.SetID(0)
		v4.SetFlagsOffset(wire.FlagDF)
		v4.SetTTL(ttl)
		v4.SetProtocol(wire.ProtoUDP)
		v4.SetSrc(f.Src.As4())
		v4.SetDst(f.Dst.As4())
		v4.SetChecksum()
		h.sum = uint32(^v4.Checksum())
	} else {
		eth.SetEtherType(wire.EtherTypeIPv6)
		h.n = wire.EthernetLen + wire.IPv6Len
		v6 := wire.IPv6(ip)
		v6.SetClassFlow(f.TOS, 0)
		v6.SetPayloadLen(size)
		v6.SetNextHeader(wire.ProtoUDP)
		v6.SetHopLimit(ttl)
		v6.SetSrc(f.Src.As16())
		v6.SetDst(f.Dst.As16())
	}
	udp := wire.UDP(h.b[h.n:])
	udp.SetSrcPort(f.SrcPort)
	udp.SetDstPort(wire.Port)
	udp.SetLength(size)
	udp.SetChecksum(0)
	h.n += wire.UDPLen
}

// number sets the IPv4 identification. RFC 1624 says how the checksum follows.
func (h *headers) number(id uint16) {
	if h.b[wire.EthernetLen]>>4 != 4 {
		return
	}
	ip := h.b[wire.EthernetLen:]
	sum := h.sum + uint32(id)
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[4:], id)
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// ipLen returns how long the IP packet of a segment is.
func ipLen(f *wire.Flow, size int) int {
	if f.Dst.Is4() {
		return wire.IPv4Len + wire.UDPLen + size
	}
	return wire.IPv6Len + wire.UDPLen + size
}

// path is what decides where a packet goes.
type path struct{ src, dst netip.Addr }
