package layers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/wire"
)

// maxPad is what a pad count can say.
const maxPad = 3

// maxDatagram is what may follow an IP header without options.
const maxDatagram = 0xffff - wire.IPv4Len

// ICRC is the end of a packet: up to three octets of pad and the invariant
// CRC. IBA 7.8.1, 9.2.4; Annexes A16.5 and A17.3.3.
type ICRC struct {
	inet.BaseLayer
	Pad   []byte // usually zeros; FixLengths leaves it to the BTH
	Value uint32 // as a CRC-32 is written: the octet that is sent first is the lowest

	covered []byte // as decoded, BTH to pad
}

// ErrNoICRC says that a packet has no ICRC that could be verified.
var ErrNoICRC = errors.New("layers: the packet has no ICRC layer: it is not RoCE, or the frame was cut short")

// ICRCError is a wrong ICRC.
type ICRCError struct {
	Value    uint32 // in the packet
	Computed uint32 // from the packet
}

func (e *ICRCError) Error() string {
	return fmt.Sprintf("layers: ICRC %#08x, where %#08x is right: the packet was damaged, or changed on its way", e.Value, e.Computed)
}

// LayerType implements gopacket.Layer.
func (c *ICRC) LayerType() gopacket.LayerType { return LayerTypeICRC }

// CanDecode implements gopacket.DecodingLayer.
func (c *ICRC) CanDecode() gopacket.LayerClass { return LayerTypeICRC }

// NextLayerType implements gopacket.DecodingLayer; nothing follows.
func (c *ICRC) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// DecodeFromBytes implements gopacket.DecodingLayer. The data are pad and ICRC.
func (c *ICRC) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	pad := len(data) - bth.ICRCLen
	switch {
	case pad < 0:
		return tooShort(LayerTypeICRC, len(data), bth.ICRCLen, df)
	case pad > maxPad:
		return fmt.Errorf("layers: %d octets of pad before the ICRC, where at most %d can be", pad, maxPad)
	}
	c.BaseLayer = inet.BaseLayer{Contents: data}
	c.Pad, c.Value = data[:pad:pad], binary.LittleEndian.Uint32(data[pad:])
	return nil
}

// SerializeTo implements gopacket.SerializableLayer. It writes Value as it is,
// and the BTH, which is serialised after it, computes it if asked to.
func (c *ICRC) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	pad := c.Pad
	switch {
	case opts.FixLengths:
		pad = nil
	case len(pad) > maxPad:
		return fmt.Errorf("layers: %d octets of pad, where at most %d can be", len(pad), maxPad)
	}
	out, err := b.PrependBytes(len(pad) + bth.ICRCLen)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(out[copy(out, pad):], c.Value)
	return nil
}

// Verify recomputes the ICRC of a packet that was decoded. The layers below
// the BTH, decoded from the same packet, are named as for
// BTH.SetLayersForChecksum. A wrong ICRC is an *ICRCError; ErrNoICRC is for a
// layer that was not decoded behind a BTH.
func (c *ICRC) Verify(below ...gopacket.Layer) error {
	if c == nil || len(c.covered) < bth.BTHLen {
		return ErrNoICRC
	}
	h, err := headersOf(below, len(c.covered)+bth.ICRCLen, decoded)
	if err != nil {
		return err
	}
	if want := h.icrc(c.covered); want != c.Value {
		return &ICRCError{Value: c.Value, Computed: want}
	}
	return nil
}

// VerifyICRC recomputes the ICRC of a decoded packet: nil when it is right, an
// *ICRCError when it is wrong, ErrNoICRC when there is none. In a tunnel it is
// that of the innermost packet.
func VerifyICRC(p gopacket.Packet) error {
	var below []gopacket.Layer
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *inet.IPv4, *inet.IPv6, *LRH:
			below = []gopacket.Layer{l}
		case *inet.UDP:
			below = append(below, l)
		case *GRH:
			if len(below) != 1 || below[0].LayerType() != LayerTypeLRH {
				below = nil
			}
			below = append(below, l)
		case *ICRC:
			return l.Verify(below...)
		}
	}
	return ErrNoICRC
}

// headers are the octets below a BTH that its ICRC covers, in wire order: an IP
// header and a UDP header, a GRH, an LRH, or an LRH and a GRH.
type headers struct{ lrh, net, udp []byte }

var errBelow = errors.New("layers: the ICRC covers an IPv4 or IPv6 layer and a UDP layer, or a GRH, or an LRH with or without a GRH: " +
	"name those that the packet has, from the outside in")

// checkBelow reports whether these are layers that a BTH can lie on.
func checkBelow(below []gopacket.Layer) error {
	shape := ""
	for _, l := range below {
		switch l.(type) {
		case *inet.IPv4, *inet.IPv6:
			shape += "ip "
		case *inet.UDP:
			shape += "udp "
		case *GRH:
			shape += "grh "
		case *LRH:
			shape += "lrh "
		default:
			return errBelow
		}
	}
	switch shape {
	case "ip udp ", "grh ", "lrh ", "lrh grh ":
		return nil
	}
	return errBelow
}

// headersOf collects the octets of the layers below a BTH. It asks for each of
// them with how many octets follow it up to the ICRC; n follow the last.
func headersOf(below []gopacket.Layer, n int, octets func(gopacket.Layer, int) ([]byte, error)) (h headers, err error) {
	if err := checkBelow(below); err != nil {
		return h, err
	}
	for _, l := range slices.Backward(below) {
		b, err := octets(l, n)
		if err != nil {
			return h, err
		}
		n += len(b)
		least := 0
		switch l.(type) {
		case *inet.IPv4:
			h.net, least = b, wire.IPv4Len
		case *inet.IPv6:
			h.net, least = b, wire.IPv6Len
		case *inet.UDP:
			h.udp, least = b, wire.UDPLen
		case *GRH:
			h.net, least = b, grhLen
		case *LRH:
			h.lrh, least = b, lrhLen
		}
		if len(b) < least {
			return h, fmt.Errorf("layers: the %v layer holds %d octets of header; was it decoded?", l.LayerType(), len(b))
		}
	}
	return h, nil
}

// decoded returns the octets that a layer was decoded from.
func decoded(l gopacket.Layer, _ int) ([]byte, error) { return l.LayerContents(), nil }

// icrc computes the ICRC of a packet, BTH to pad: the CRC-32 of Ethernet over
// the headers below and the packet, with ones for all that may change on the
// way. IBA 7.8.1, Annexes A16.5 and A17.3.3.
func (h headers) icrc(pkt []byte) uint32 {
	ones := [lrhLen]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	b := append([]byte(nil), ones[:]...) // in the place of an LRH
	if h.net == nil {
		copy(b, h.lrh)
		b[0] |= 0xf0 // virtual lane
	}
	b = append(b, h.net...)
	if h.net != nil {
		maskNetwork(b[lrhLen:])
	}
	if h.udp != nil {
		b = append(b, h.udp...)
		copy(b[len(b)-2:], ones[:]) // checksum
	}
	b = append(b, pkt[:4]...)
	b = append(b, 0xff) // FECN, BECN, Resv6
	return crc32.Update(crc32.ChecksumIEEE(b), crc32.IEEETable, pkt[5:])
}

// maskNetwork puts ones for class, hop limit, and flow label or checksum.
func maskNetwork(h []byte) {
	if h[0]>>4 == 4 {
		h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff
		return
	}
	h[0] |= 0x0f
	h[1], h[2], h[3], h[7] = 0xff, 0xff, 0xff, 0xff
}

// fixed returns the header that a layer is going to have when it is serialised
// with FixLengths before n octets.
func fixed(l gopacket.Layer, n int) ([]byte, error) { return written(l, n, true) }

// asItIs is the same without FixLengths.
func asItIs(l gopacket.Layer, n int) ([]byte, error) { return written(l, n, false) }

// written serialises the header alone. A packet that no length field can hold,
// or that is not RoCE, is an error.
func written(l gopacket.Layer, n int, fix bool) ([]byte, error) {
	if fix && n > maxDatagram {
		return nil, fmt.Errorf("layers: a packet of %d octets fits in no datagram", n)
	}
	var s gopacket.SerializableLayer
	switch l := l.(type) { // a copy, for the layer's own turn comes later
	case *inet.IPv4:
		c := *l
		if len(c.Options) > 0 {
			return nil, errors.New("layers: a RoCEv2 packet has no IPv4 options (Annex A17.3.1): remove them")
		}
		if fix {
			c.IHL, c.Length = wire.IPv4Len/4, uint16(wire.IPv4Len+n)
		}
		s = &c
	case *inet.IPv6:
		c := *l
		if c.HopByHop != nil {
			return nil, errors.New("layers: a RoCEv2 packet has no IPv6 extension headers (Annex A17.3.1): remove them")
		}
		if fix {
			c.Length = uint16(n)
		}
		s = &c
	case *inet.UDP:
		c := *l
		if fix {
			c.Length = uint16(wire.UDPLen + n)
		}
		s = &c
	case *GRH:
		c := *l
		if fix {
			if err := c.fixLength(n); err != nil {
				return nil, err
			}
		}
		s = &c
	case *LRH:
		c := *l
		c.Trailer = nil
		if fix {
			if err := c.fixLength(n); err != nil {
				return nil, err
			}
		}
		s = &c
	}
	b := gopacket.NewSerializeBuffer()
	if err := s.SerializeTo(b, gopacket.SerializeOptions{}); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
