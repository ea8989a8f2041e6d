package wire

import (
	"encoding/binary"
	"net/netip"

	"github.com/gorxe/gorxe/bth"
)

// The pseudo header of the invariant CRC: eight octets of ones in the place
// of the InfiniBand local route header, then the IP and UDP headers with every
// field that may change on the way set to ones (traffic class, TTL or hop
// limit, IPv6 flow label, both checksums). Annex A17.3.3.
const (
	prefix4 = 8 + IPv4Len + UDPLen
	prefix6 = 8 + IPv6Len + UDPLen
)

// prefixState returns the CRC state after the pseudo header of a packet whose
// UDP payload has n octets. For IPv4 the identification is 0 and the flags
// are flags; idState adds another identification.
func prefixState(src, dst netip.Addr, sport uint16, n int, flags uint16) uint32 {
	var b [prefix6]byte
	for i := range 8 {
		b[i] = 0xff
	}
	var udp []byte
	size := prefix6
	if src.Is4() {
		size = prefix4
		ip := b[8:]
		ip[0], ip[1] = 0x45, 0xff
		be.PutUint16(ip[2:], uint16(IPv4Len+UDPLen+n))
		be.PutUint16(ip[6:], flags)
		ip[8], ip[9], ip[10], ip[11] = 0xff, ProtoUDP, 0xff, 0xff
		s, d := src.As4(), dst.As4()
		copy(ip[12:], s[:])
		copy(ip[16:], d[:])
		udp = ip[IPv4Len:]
	} else {
		ip := b[8:]
		ip[0], ip[1], ip[2], ip[3] = 0x6f, 0xff, 0xff, 0xff
		be.PutUint16(ip[4:], uint16(UDPLen+n))
		ip[6], ip[7] = ProtoUDP, 0xff
		s, d := src.As16(), dst.As16()
		copy(ip[8:], s[:])
		copy(ip[24:], d[:])
		udp = ip[IPv6Len:]
	}
	be.PutUint16(udp, sport)
	be.PutUint16(udp[2:], Port)
	be.PutUint16(udp[4:], uint16(UDPLen+n))
	udp[6], udp[7] = 0xff, 0xff
	return crcShort(0xffffffff, b[:size])
}

// idState is what an IPv4 identification adds to the state after the pseudo
// header. The identification's two octets are followed by 22 more of it, so
// the tables are those of 23 and 22 trailing zero octets.
func idState(id uint16) uint32 { return idHi[id>>8] ^ idLo[id&0xff] }

var idHi, idLo = makeIDTables()

func makeIDTables() (hi, lo [256]uint32) {
	for b := range 256 {
		v := crcSlice[0][b]
		for range prefix4 - 8 - 6 { // octets after the low one
			v = crcSlice[0][byte(v)] ^ v>>8
		}
		lo[b] = v
		hi[b] = crcSlice[0][byte(v)] ^ v>>8
	}
	return hi, lo
}

// packetState advances a pseudo-header state over a whole packet, BTH to pad.
func packetState(s uint32, pkt []byte) uint32 {
	return crcLong(crcBTH(s, pkt), pkt[bth.BTHLen:])
}

// storedICRC reads the ICRC at the end of a packet as the state it must equal.
// It is stored low octet first, inverted.
func storedICRC(pkt []byte) uint32 {
	return ^binary.LittleEndian.Uint32(pkt[len(pkt)-bth.ICRCLen:])
}

// ICRC returns the invariant CRC of packet pkt (BTH to pad, without the ICRC)
// sent as UDP payload from src to dst. For IPv4, id is the identification and
// the don't-fragment bit is set when df is.
//
// Preconditions: len(pkt) >= bth.BTHLen; both addresses are of one family.
func ICRC(pkt []byte, src, dst netip.AddrPort, id uint16, df bool) uint32 {
	var flags uint16
	if df {
		flags = FlagDF
	}
	s := prefixState(src.Addr(), dst.Addr(), src.Port(), len(pkt)+bth.ICRCLen, flags)
	if src.Addr().Is4() {
		s ^= idState(id)
	}
	return ^packetState(s, pkt)
}
