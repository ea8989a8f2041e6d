package layers

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"
)

const (
	lrhLen = 8
	grhLen = 40

	nextHeaderBTH = 0x1b // of a GRH. IBA 8.3

	// What the next header field of an LRH says. IBA 7.7.5.
	lnhBTH = 2
	lnhGRH = 3
)

// GRH is the global route header of RoCE v1 and of routed InfiniBand: 40
// octets, laid out like an IPv6 header. IBA 8.3, Annex A16.4. It is a
// gopacket.NetworkLayer. What follows PayLen octets is not its payload.
type GRH struct {
	inet.BaseLayer
	IPVer        uint8 // 6
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	PayLen       uint16 // octets, BTH to ICRC
	NextHeader   uint8  // 0x1b: BTH
	HopLimit     uint8
	SGID, DGID   netip.Addr
}

func (h *GRH) walk(f fields) fields {
	number(&f, &h.IPVer, 4)
	number(&f, &h.TrafficClass, 8)
	number(&f, &h.FlowLabel, 20)
	number(&f, &h.PayLen, 16)
	number(&f, &h.NextHeader, 8)
	number(&f, &h.HopLimit, 8)
	f.gid(&h.SGID)
	f.gid(&h.DGID)
	return f
}

// LayerType implements gopacket.Layer.
func (h *GRH) LayerType() gopacket.LayerType { return LayerTypeGRH }

// CanDecode implements gopacket.DecodingLayer.
func (h *GRH) CanDecode() gopacket.LayerClass { return LayerTypeGRH }

// NetworkFlow implements gopacket.NetworkLayer, with IPv6 endpoints.
func (h *GRH) NetworkFlow() gopacket.Flow {
	src, dst := h.SGID.As16(), h.DGID.As16()
	return gopacket.NewFlow(inet.EndpointIPv6, src[:], dst[:])
}

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *GRH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := decode(h, &h.BaseLayer, grhLen, data, df); err != nil {
		return err
	}
	h.Payload = limit(h.Payload, int(h.PayLen), df)
	return nil
}

// NextLayerType implements gopacket.DecodingLayer.
func (h *GRH) NextLayerType() gopacket.LayerType {
	if h.NextHeader == nextHeaderBTH {
		return LayerTypeBTH
	}
	return gopacket.LayerTypePayload
}

// SerializeTo implements gopacket.SerializableLayer; FixLengths sets PayLen.
func (h *GRH) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	if opts.FixLengths {
		if err := h.fixLength(len(b.Bytes())); err != nil {
			return err
		}
	}
	return encode(h, grhLen, b)
}

// fixLength is for n octets behind the GRH.
func (h *GRH) fixLength(n int) error {
	if n > 0xffff {
		return fmt.Errorf("layers: %d octets do not fit behind a GRH", n)
	}
	h.PayLen = uint16(n)
	return nil
}

// limit cuts b to n octets, and says so if it has fewer.
func limit(b []byte, n int, df gopacket.DecodeFeedback) []byte {
	if n > len(b) {
		df.SetTruncated()
		return b
	}
	return b[:n:n]
}

// LRH is the local route header of native InfiniBand: 8 octets. IBA 7.7. It is
// a gopacket.LinkLayer.
type LRH struct {
	inet.BaseLayer
	VL     uint8 // virtual lane, 4 bits
	LVer   uint8 // 4 bits
	SL     uint8 // service level, 4 bits
	Resv2  uint8
	LNH    uint8 // 2: BTH, 3: GRH
	DLID   uint16
	Resv5  uint8
	PktLen uint16 // 4-octet words, LRH to ICRC; 11 bits
	SLID   uint16

	// Trailer is what the frame holds after PktLen words: the variant CRC, if
	// it was captured. It is neither verified nor computed.
	Trailer []byte
}

func (h *LRH) walk(f fields) fields {
	number(&f, &h.VL, 4)
	number(&f, &h.LVer, 4)
	number(&f, &h.SL, 4)
	reserved(&f, &h.Resv2, 2)
	number(&f, &h.LNH, 2)
	number(&f, &h.DLID, 16)
	reserved(&f, &h.Resv5, 5)
	number(&f, &h.PktLen, 11)
	number(&f, &h.SLID, 16)
	return f
}

// EndpointLID is the endpoint type of LinkFlow: a local identifier, two octets.
var EndpointLID = gopacket.RegisterEndpointType(FirstLayerType, gopacket.EndpointTypeMetadata{
	Name:      "LID",
	Formatter: func(b []byte) string { return fmt.Sprintf("LID %d", binary.BigEndian.Uint16(b)) },
})

// LayerType implements gopacket.Layer.
func (h *LRH) LayerType() gopacket.LayerType { return LayerTypeLRH }

// CanDecode implements gopacket.DecodingLayer.
func (h *LRH) CanDecode() gopacket.LayerClass { return LayerTypeLRH }

// LinkFlow implements gopacket.LinkLayer.
func (h *LRH) LinkFlow() gopacket.Flow {
	var src, dst [2]byte
	binary.BigEndian.PutUint16(src[:], h.SLID)
	binary.BigEndian.PutUint16(dst[:], h.DLID)
	return gopacket.NewFlow(EndpointLID, src[:], dst[:])
}

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *LRH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := decode(h, &h.BaseLayer, lrhLen, data, df); err != nil {
		return err
	}
	n := int(h.PktLen) * 4
	if n < lrhLen {
		return fmt.Errorf("layers: an LRH that says its packet has %d octets, fewer than the LRH itself", n)
	}
	rest := h.Payload
	h.Payload = limit(rest, n-lrhLen, df)
	h.Trailer = rest[len(h.Payload):]
	return nil
}

// NextLayerType implements gopacket.DecodingLayer.
func (h *LRH) NextLayerType() gopacket.LayerType {
	switch h.LNH {
	case lnhBTH:
		return LayerTypeBTH
	case lnhGRH:
		return LayerTypeGRH
	}
	return gopacket.LayerTypePayload
}

// SerializeTo implements gopacket.SerializableLayer. It puts the LRH before
// the packet and Trailer after it; FixLengths sets PktLen.
func (h *LRH) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	if opts.FixLengths {
		if err := h.fixLength(len(b.Bytes())); err != nil {
			return err
		}
	}
	out, err := b.AppendBytes(len(h.Trailer))
	if err != nil {
		return err
	}
	copy(out, h.Trailer)
	return encode(h, lrhLen, b)
}

// fixLength is for n octets behind the LRH.
func (h *LRH) fixLength(n int) error {
	words := (lrhLen + n) / 4
	if n%4 != 0 || words >= 1<<11 {
		return fmt.Errorf("layers: %d octets do not fit behind an LRH, which counts words of four up to %d", n, 1<<11-1)
	}
	h.PktLen = uint16(words)
	return nil
}
