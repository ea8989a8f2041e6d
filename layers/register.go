package layers

import (
	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/wire"
)

// FirstLayerType is the lowest of the layer type numbers that this package
// takes, in the range gopacket leaves to applications.
const FirstLayerType = 1791

// The layer types. The extension headers stand in the order of the bits of
// bth.Ext, which is wire order, the messages of the connection manager in that
// of their attribute numbers.
const (
	LayerTypeBTH gopacket.LayerType = FirstLayerType + iota
	LayerTypeRDETH
	LayerTypeXRCETH
	LayerTypeDETH
	LayerTypeFETH
	LayerTypeRETH
	LayerTypeAtomicETH
	LayerTypeAETH
	LayerTypeAtomicAckETH
	LayerTypeImmDt
	LayerTypeIETH
	LayerTypeCNP
	LayerTypeICRC
	LayerTypeMAD
	LayerTypeCMReq
	LayerTypeCMMRA
	LayerTypeCMRej
	LayerTypeCMRep
	LayerTypeCMRTU
	LayerTypeCMDReq
	LayerTypeCMDRep
	LayerTypeCMSIDRReq
	LayerTypeCMSIDRRep
	LayerTypeCMLAP
	LayerTypeCMAPR
	LayerTypeGRH
	LayerTypeLRH
)

const (
	// EthernetTypeRoCE is the EtherType of RoCE v1. Annex A16.
	EthernetTypeRoCE inet.EthernetType = 0x8915

	// LinkTypeInfiniBand is the link type of captures whose packets begin
	// with an LRH, as tcpdump.org assigns it.
	LinkTypeInfiniBand inet.LinkType = 247
)

// decodingLayer is what every layer of this package is.
type decodingLayer interface {
	gopacket.Layer
	gopacket.DecodingLayer
	gopacket.SerializableLayer
}

// kinds has a row for each layer type.
var kinds = map[gopacket.LayerType]struct {
	name string
	make func(*BTH) decodingLayer
}{
	LayerTypeBTH:          {"BTH", func(*BTH) decodingLayer { return &BTH{} }},
	LayerTypeRDETH:        {"RDETH", func(b *BTH) decodingLayer { return &RDETH{head: b} }},
	LayerTypeXRCETH:       {"XRCETH", func(b *BTH) decodingLayer { return &XRCETH{head: b} }},
	LayerTypeDETH:         {"DETH", func(b *BTH) decodingLayer { return &DETH{head: b} }},
	LayerTypeFETH:         {"FETH", func(b *BTH) decodingLayer { return &FETH{head: b} }},
	LayerTypeRETH:         {"RETH", func(b *BTH) decodingLayer { return &RETH{head: b} }},
	LayerTypeAtomicETH:    {"AtomicETH", func(b *BTH) decodingLayer { return &AtomicETH{head: b} }},
	LayerTypeAETH:         {"AETH", func(b *BTH) decodingLayer { return &AETH{head: b} }},
	LayerTypeAtomicAckETH: {"AtomicAckETH", func(b *BTH) decodingLayer { return &AtomicAckETH{head: b} }},
	LayerTypeImmDt:        {"ImmDt", func(b *BTH) decodingLayer { return &ImmDt{head: b} }},
	LayerTypeIETH:         {"IETH", func(b *BTH) decodingLayer { return &IETH{head: b} }},
	LayerTypeCNP:          {"CNP", func(*BTH) decodingLayer { return &CNP{} }},
	LayerTypeICRC:         {"ICRC", func(*BTH) decodingLayer { return &ICRC{} }},
	LayerTypeMAD:          {"MAD", func(*BTH) decodingLayer { return &MAD{} }},
	LayerTypeCMReq:        {"CMReq", func(*BTH) decodingLayer { return &CMReq{} }},
	LayerTypeCMMRA:        {"CMMRA", func(*BTH) decodingLayer { return &CMMRA{} }},
	LayerTypeCMRej:        {"CMRej", func(*BTH) decodingLayer { return &CMRej{} }},
	LayerTypeCMRep:        {"CMRep", func(*BTH) decodingLayer { return &CMRep{} }},
	LayerTypeCMRTU:        {"CMRTU", func(*BTH) decodingLayer { return &CMRTU{} }},
	LayerTypeCMDReq:       {"CMDReq", func(*BTH) decodingLayer { return &CMDReq{} }},
	LayerTypeCMDRep:       {"CMDRep", func(*BTH) decodingLayer { return &CMDRep{} }},
	LayerTypeCMSIDRReq:    {"CMSIDRReq", func(*BTH) decodingLayer { return &CMSIDRReq{} }},
	LayerTypeCMSIDRRep:    {"CMSIDRRep", func(*BTH) decodingLayer { return &CMSIDRRep{} }},
	LayerTypeCMLAP:        {"CMLAP", func(*BTH) decodingLayer { return &CMLAP{} }},
	LayerTypeCMAPR:        {"CMAPR", func(*BTH) decodingLayer { return &CMAPR{} }},
	LayerTypeGRH:          {"GRH", func(*BTH) decodingLayer { return &GRH{} }},
	LayerTypeLRH:          {"LRH", func(*BTH) decodingLayer { return &LRH{} }},
}

func init() {
	for t, k := range kinds {
		gopacket.RegisterLayerType(int(t), gopacket.LayerTypeMetadata{Name: k.name, Decoder: gopacket.DecodeFunc(
			func(data []byte, p gopacket.PacketBuilder) error { return decodePacket(k.make(nil), data, p) },
		)})
	}
	inet.RegisterUDPPortLayerType(wire.Port, LayerTypeBTH)
	inet.EthernetTypeMetadata[EthernetTypeRoCE] = inet.EnumMetadata{DecodeWith: LayerTypeGRH, Name: "RoCE", LayerType: LayerTypeGRH}
	inet.LinkTypeMetadata[LinkTypeInfiniBand] = inet.EnumMetadata{DecodeWith: LayerTypeLRH, Name: "InfiniBand", LayerType: LayerTypeLRH}
}

// decodePacket adds l, and from a BTH on everything up to the end of the
// packet, for the trailer comes last. What precedes a BTH leads to it through
// gopacket.
func decodePacket(l decodingLayer, data []byte, p gopacket.PacketBuilder) error {
	head, _ := l.(*BTH)
	for {
		if err := l.DecodeFromBytes(data, p); err != nil {
			return err
		}
		p.AddLayer(l)
		switch l := l.(type) {
		case *GRH:
			p.SetNetworkLayer(l)
		case *LRH:
			p.SetLinkLayer(l)
		}
		next := l.NextLayerType()
		k, ours := kinds[next]
		if next == LayerTypeBTH || head == nil && !ours {
			return p.NextDecoder(next)
		}
		data = l.LayerPayload()
		if !ours {
			break
		}
		l = k.make(head)
	}
	if len(data) > 0 {
		payload := gopacket.Payload(data)
		p.AddLayer(&payload)
		p.SetApplicationLayer(&payload)
	}
	if head != nil && head.Trailer() != nil {
		p.AddLayer(head.Trailer())
	}
	return nil
}
