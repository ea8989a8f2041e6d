package layers

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
)

// BTH is the base transport header: 12 octets. IBA 9.2. Its payload ends
// before the pad and ICRC, which are its Trailer.
type BTH struct {
	inet.BaseLayer
	Opcode     bth.Opcode
	SE         bool // solicited event
	MigReq     bool
	PadCount   uint8 // octets between payload and ICRC, 0 to 3
	TVer       uint8 // transport version, 4 bits
	PKey       uint16
	FECN, BECN bool
	Resv6      uint8   // 6 bits; the ICRC does not cover them
	DestQP     bth.QPN // 24 bits
	AckReq     bool
	Resv7      uint8 // 7 bits
	PSN        bth.PSN

	trailer ICRC
	below   []gopacket.Layer
}

func (b *BTH) walk(f fields) fields {
	number(&f, &b.Opcode, 8)
	f.flag(&b.SE)
	f.flag(&b.MigReq)
	number(&f, &b.PadCount, 2)
	number(&f, &b.TVer, 4)
	number(&f, &b.PKey, 16)
	f.flag(&b.FECN)
	f.flag(&b.BECN)
	reserved(&f, &b.Resv6, 6)
	number(&f, &b.DestQP, 24)
	f.flag(&b.AckReq)
	reserved(&f, &b.Resv7, 7)
	f.psn(&b.PSN)
	return f
}

// LayerType implements gopacket.Layer.
func (b *BTH) LayerType() gopacket.LayerType { return LayerTypeBTH }

// CanDecode implements gopacket.DecodingLayer.
func (b *BTH) CanDecode() gopacket.LayerClass { return LayerTypeBTH }

// DecodeFromBytes implements gopacket.DecodingLayer. The data run from the BTH
// to the end of the ICRC, or, if a layer below has found the packet truncated,
// to wherever they end.
func (b *BTH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	b.trailer = ICRC{}
	if err := decode(b, &b.BaseLayer, bth.BTHLen, data, df); err != nil {
		return err
	}
	if truncated(df) {
		return nil
	}
	end := len(data) - bth.ICRCLen - int(b.PadCount)
	if end < bth.BTHLen {
		return tooShort(LayerTypeICRC, len(b.Payload), bth.ICRCLen+int(b.PadCount), df)
	}
	b.Payload = data[bth.BTHLen:end:end]
	if end < b.Opcode.Info().HdrLen {
		df.SetTruncated() // a DecodingLayerParser whose octets have run out does not ask for the headers that lack
	}
	b.trailer.covered = data[:len(data)-bth.ICRCLen]
	return b.trailer.DecodeFromBytes(data[end:], df)
}

// truncated reports whether a layer has called SetTruncated.
func truncated(df gopacket.DecodeFeedback) bool {
	switch df := df.(type) {
	case *gopacket.DecodingLayerParser:
		return df.Truncated
	case interface {
		Metadata() *gopacket.PacketMetadata
	}: // a gopacket.Packet
		return df.Metadata().Truncated
	}
	return false
}

// NextLayerType implements gopacket.DecodingLayer: the first header that the
// opcode calls for, or what the payload is.
func (b *BTH) NextLayerType() gopacket.LayerType {
	if b.Opcode == bth.CNP {
		return LayerTypeCNP
	}
	return b.nextAfter(0)
}

// nextAfter returns the type of the layer after the extension header e, or
// after the BTH itself when e is 0. Without a BTH that is payload.
func (b *BTH) nextAfter(e bth.Ext) gopacket.LayerType {
	if b == nil {
		return gopacket.LayerTypePayload
	}
	info := b.Opcode.Info()
	ext := info.Ext
	if e != 0 {
		ext &^= 2*e - 1 // it and what precedes it
	}
	switch {
	case ext != 0:
		return LayerTypeRDETH + gopacket.LayerType(bits.TrailingZeros16(uint16(ext)))
	case info.Class == bth.UD && b.DestQP <= bth.QPNGSI:
		return LayerTypeMAD
	}
	return gopacket.LayerTypePayload
}

// Trailer returns the pad and ICRC that were decoded with the BTH; nil when the
// frame was cut short. It is part of the BTH: the next decoding overwrites it.
func (b *BTH) Trailer() *ICRC {
	if b.trailer.Contents == nil {
		return nil
	}
	return &b.trailer
}

// SetLayersForChecksum names the layers below the BTH, from the outside in,
// whose octets the ICRC covers: *layers.IPv4 or *layers.IPv6 and then
// *layers.UDP; or *GRH; or *LRH, with or without *GRH. SerializeTo needs them
// for ComputeChecksums, as the layers say at that time.
func (b *BTH) SetLayersForChecksum(below ...gopacket.Layer) error {
	if err := checkBelow(below); err != nil {
		return err
	}
	b.below = below
	return nil
}

// SerializeTo implements gopacket.SerializableLayer. FixLengths puts zeros
// between payload and ICRC up to a multiple of four octets and sets PadCount;
// ComputeChecksums overwrites the value that the ICRC layer has put at the end.
func (b *BTH) SerializeTo(buf gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	after := buf.Layers() // from the end of the packet
	sealed := len(after) > 0 && after[0] == LayerTypeICRC
	if opts.FixLengths {
		if err := b.pad(buf, sealed); err != nil {
			return err
		}
	}
	if err := encode(b, bth.BTHLen, buf); err != nil {
		return err
	}
	if !opts.ComputeChecksums {
		return nil
	}
	switch {
	case !sealed:
		return errors.New("layers: the packet has no place for its ICRC: make an ICRC the last layer")
	case b.below == nil:
		return errors.New("layers: the ICRC covers the headers below the BTH: name them with SetLayersForChecksum")
	}
	pkt := buf.Bytes()
	octets := asItIs
	if opts.FixLengths {
		octets = fixed
	}
	h, err := headersOf(b.below, len(pkt), octets)
	if err != nil {
		return err
	}
	body := len(pkt) - bth.ICRCLen
	binary.LittleEndian.PutUint32(pkt[body:], h.icrc(pkt[:body]))
	return nil
}

// pad pads the payload that is in buf, and moves the ICRC if there is one.
func (b *BTH) pad(buf gopacket.SerializeBuffer, sealed bool) error {
	n := len(buf.Bytes())
	pad := -n & 3
	if _, err := buf.AppendBytes(pad); err != nil {
		return err
	}
	end := n
	if sealed {
		end -= bth.ICRCLen
	}
	tail := buf.Bytes()[end:]
	copy(tail[pad:], tail)
	clear(tail[:pad])
	b.PadCount = uint8(pad)
	return nil
}
