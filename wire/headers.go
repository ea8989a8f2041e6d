package wire

import "encoding/binary"

// Header lengths, protocol numbers and ports.
const (
	EthernetLen = 14
	VLANLen     = 4
	IPv4Len     = 20 // without options
	IPv6Len     = 40
	UDPLen      = 8

	EtherTypeIPv4 = 0x0800
	EtherTypeIPv6 = 0x86dd
	EtherTypeVLAN = 0x8100
	EtherTypeQinQ = 0x88a8

	ProtoUDP = 17

	// Port is the UDP destination port of RoCEv2 (Annex A17.3.1.1; IANA).
	Port = 4791

	// FlagDF is the don't-fragment bit of the IPv4 flags and fragment offset.
	FlagDF = 0x4000
)

// ECN codepoints: the low two bits of the traffic class. RFC 3168.
const (
	ECNNotECT = 0
	ECNECT1   = 1
	ECNECT0   = 2
	ECNCE     = 3
)

var be = binary.BigEndian

// Ethernet is a view of an Ethernet header, 14 octets or more.
type Ethernet []byte

func (h Ethernet) Dst() []byte           { return h[0:6] }
func (h Ethernet) Src() []byte           { return h[6:12] }
func (h Ethernet) EtherType() uint16     { return be.Uint16(h[12:]) }
func (h Ethernet) SetDst(mac [6]byte)    { copy(h[0:6], mac[:]) }
func (h Ethernet) SetSrc(mac [6]byte)    { copy(h[6:12], mac[:]) }
func (h Ethernet) SetEtherType(t uint16) { be.PutUint16(h[12:], t) }

// VLAN is a view of an 802.1Q tag: the four octets after the addresses of the
// Ethernet header, without the tag protocol identifier, with the EtherType
// that follows it.
type VLAN []byte

func (h VLAN) TCI() uint16           { return be.Uint16(h) }
func (h VLAN) PCP() uint8            { return h[0] >> 5 }
func (h VLAN) VID() uint16           { return be.Uint16(h) & 0x0fff }
func (h VLAN) EtherType() uint16     { return be.Uint16(h[2:]) }
func (h VLAN) SetTCI(v uint16)       { be.PutUint16(h, v) }
func (h VLAN) SetEtherType(t uint16) { be.PutUint16(h[2:], t) }

// IPv4 is a view of an IPv4 header, 20 octets or more. RFC 791.
type IPv4 []byte

func (h IPv4) Version() uint8          { return h[0] >> 4 }
func (h IPv4) HeaderLen() int          { return int(h[0]&0x0f) * 4 }
func (h IPv4) TOS() uint8              { return h[1] }
func (h IPv4) TotalLen() int           { return int(be.Uint16(h[2:])) }
func (h IPv4) ID() uint16              { return be.Uint16(h[4:]) }
func (h IPv4) FlagsOffset() uint16     { return be.Uint16(h[6:]) }
func (h IPv4) TTL() uint8              { return h[8] }
func (h IPv4) Protocol() uint8         { return h[9] }
func (h IPv4) Checksum() uint16        { return be.Uint16(h[10:]) }
func (h IPv4) Src() [4]byte            { return [4]byte(h[12:16]) }
func (h IPv4) Dst() [4]byte            { return [4]byte(h[16:20]) }
func (h IPv4) SetTOS(v uint8)          { h[1] = v }
func (h IPv4) SetTotalLen(n int)       { be.PutUint16(h[2:], uint16(n)) }
func (h IPv4) SetID(v uint16)          { be.PutUint16(h[4:], v) }
func (h IPv4) SetFlagsOffset(v uint16) { be.PutUint16(h[6:], v) }
func (h IPv4) SetTTL(v uint8)          { h[8] = v }
func (h IPv4) SetProtocol(v uint8)     { h[9] = v }
func (h IPv4) SetSrc(a [4]byte)        { copy(h[12:16], a[:]) }
func (h IPv4) SetDst(a [4]byte)        { copy(h[16:20], a[:]) }

// SetChecksum computes and stores the header checksum.
func (h IPv4) SetChecksum() {
	h[10], h[11] = 0, 0
	be.PutUint16(h[10:], ^ipSum(h[:h.HeaderLen()]))
}

// ChecksumOK reports whether the header checksum is right.
func (h IPv4) ChecksumOK() bool { return ipSum(h[:h.HeaderLen()]) == 0xffff }

// ipSum is the one's complement sum of 16-bit words. RFC 1071.
func ipSum(b []byte) uint16 {
	var s uint32
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(be.Uint16(b))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// IPv6 is a view of an IPv6 header, 40 octets or more. RFC 8200.
type IPv6 []byte

func (h IPv6) Version() uint8        { return h[0] >> 4 }
func (h IPv6) TrafficClass() uint8   { return h[0]<<4 | h[1]>>4 }
func (h IPv6) FlowLabel() uint32     { return be.Uint32(h) & 0xfffff }
func (h IPv6) PayloadLen() int       { return int(be.Uint16(h[4:])) }
func (h IPv6) NextHeader() uint8     { return h[6] }
func (h IPv6) HopLimit() uint8       { return h[7] }
func (h IPv6) Src() [16]byte         { return [16]byte(h[8:24]) }
func (h IPv6) Dst() [16]byte         { return [16]byte(h[24:40]) }
func (h IPv6) SetPayloadLen(n int)   { be.PutUint16(h[4:], uint16(n)) }
func (h IPv6) SetNextHeader(v uint8) { h[6] = v }
func (h IPv6) SetHopLimit(v uint8)   { h[7] = v }
func (h IPv6) SetSrc(a [16]byte)     { copy(h[8:24], a[:]) }
func (h IPv6) SetDst(a [16]byte)     { copy(h[24:40], a[:]) }

// SetClassFlow stores version 6, the traffic class and the flow label.
func (h IPv6) SetClassFlow(class uint8, flow uint32) {
	be.PutUint32(h, 6<<28|uint32(class)<<20|flow&0xfffff)
}

// UDP is a view of a UDP header, 8 octets or more. RFC 768.
type UDP []byte

func (h UDP) SrcPort() uint16      { return be.Uint16(h) }
func (h UDP) DstPort() uint16      { return be.Uint16(h[2:]) }
func (h UDP) Length() int          { return int(be.Uint16(h[4:])) }
func (h UDP) Checksum() uint16     { return be.Uint16(h[6:]) }
func (h UDP) SetSrcPort(v uint16)  { be.PutUint16(h, v) }
func (h UDP) SetDstPort(v uint16)  { be.PutUint16(h[2:], v) }
func (h UDP) SetLength(n int)      { be.PutUint16(h[4:], uint16(n)) }
func (h UDP) SetChecksum(v uint16) { be.PutUint16(h[6:], v) }
