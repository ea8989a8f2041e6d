package decode

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/wire"
)

// pseudo returns what the invariant CRC covers before the BTH, with ones for
// every field that may change on the way. IBA 7.8.1, Annexes A16.5 and
// A17.3.3:
//
//	RoCEv2              8 octets of ones, IP, UDP
//	RoCE v1             8 octets of ones, GRH
//	InfiniBand          LRH with the virtual lane masked
//	InfiniBand with GRH 8 octets of ones, GRH
//
// lrh is the header of a native packet, else nil; net is the IP header or GRH;
// udp is the UDP header.
func pseudo(lrh, net, udp []byte) []byte {
	b := bytes.Repeat([]byte{0xff}, lrhLen)
	if lrh != nil && net == nil {
		copy(b, lrh)
		b[0] |= 0xf0 // VL
		return b
	}
	b = append(b, net...)
	switch h := b[lrhLen:]; h[0] >> 4 {
	case 4:
		h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff // class, TTL, checksum
	default:
		h[0] |= 0x0f // class and flow label
		h[1], h[2], h[3], h[7] = 0xff, 0xff, 0xff, 0xff
	}
	if udp != nil {
		b = append(b, udp[:6]...)
		b = append(b, 0xff, 0xff)
	}
	return b
}

// icrc returns the four octets that must end pkt, BTH to ICRC, and those that
// do.
//
// Preconditions: pkt holds a BTH and an ICRC.
func icrc(pseudo, pkt []byte) (want, got [bth.ICRCLen]byte) {
	body := pkt[:len(pkt)-bth.ICRCLen]
	c := crc32.ChecksumIEEE(pseudo)
	c = crc32.Update(c, crc32.IEEETable, body[:4])
	c = crc32.Update(c, crc32.IEEETable, []byte{0xff}) // FECN, BECN, reserved
	c = crc32.Update(c, crc32.IEEETable, body[5:])
	binary.LittleEndian.PutUint32(want[:], c)
	return want, [bth.ICRCLen]byte(pkt[len(body):])
}

// udpChecksumOK verifies the UDP checksum of a datagram with its IP header.
// RFC 768, RFC 8200 section 8.1.
func udpChecksumOK(ip, udp []byte) bool {
	return sum(udp, uint32(pseudoSum(ip, len(udp)))) == 0xffff
}

// pseudoSum is the sum over the pseudo header of a datagram of n octets. A
// sender that leaves the rest to its hardware puts it where the checksum will
// be.
func pseudoSum(ip []byte, n int) uint16 {
	addrs := ip[12:20]
	if ip[0]>>4 == 6 {
		addrs = ip[8:40]
	}
	return sum(addrs, uint32(wire.ProtoUDP+n))
}

// sum adds the 16-bit words of b to s with end-around carry. RFC 1071.
func sum(b []byte, s uint32) uint16 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(be.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
