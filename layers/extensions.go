package layers

import (
	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
)

// Every extension header keeps the BTH it was decoded behind, whose opcode says
// what follows it; on its own it is followed by payload.

// RDETH is the reliable datagram header: 4 octets. IBA 9.3.1.
type RDETH struct {
	inet.BaseLayer
	Resv8     uint8
	EEContext uint32 // 24 bits

	head *BTH
}

func (h *RDETH) walk(f fields) fields {
	reserved(&f, &h.Resv8, 8)
	number(&f, &h.EEContext, 24)
	return f
}

// LayerType implements gopacket.Layer.
func (h *RDETH) LayerType() gopacket.LayerType { return LayerTypeRDETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *RDETH) CanDecode() gopacket.LayerClass { return LayerTypeRDETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *RDETH) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtRDETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *RDETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.RDETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *RDETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.RDETHLen, b)
}

// XRCETH is the extended reliable connection header: 4 octets. Annex A14.
type XRCETH struct {
	inet.BaseLayer
	Resv8 uint8
	SRQ   uint32 // number of the shared receive queue, 24 bits

	head *BTH
}

func (h *XRCETH) walk(f fields) fields {
	reserved(&f, &h.Resv8, 8)
	number(&f, &h.SRQ, 24)
	return f
}

// LayerType implements gopacket.Layer.
func (h *XRCETH) LayerType() gopacket.LayerType { return LayerTypeXRCETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *XRCETH) CanDecode() gopacket.LayerClass { return LayerTypeXRCETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *XRCETH) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtXRCETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *XRCETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.XRCETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *XRCETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.XRCETHLen, b)
}

// DETH is the datagram header: 8 octets. IBA 9.3.2.
type DETH struct {
	inet.BaseLayer
	QKey  uint32
	Resv8 uint8
	SrcQP bth.QPN // 24 bits

	head *BTH
}

func (h *DETH) walk(f fields) fields {
	number(&f, &h.QKey, 32)
	reserved(&f, &h.Resv8, 8)
	number(&f, &h.SrcQP, 24)
	return f
}

// LayerType implements gopacket.Layer.
func (h *DETH) LayerType() gopacket.LayerType { return LayerTypeDETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *DETH) CanDecode() gopacket.LayerClass { return LayerTypeDETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *DETH) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtDETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *DETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.DETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *DETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.DETHLen, b)
}

// FETH is the flush header: 4 octets. Annex A19.
type FETH struct {
	inet.BaseLayer
	Resv26      uint32
	Selectivity uint8 // 0: the range of the RETH, 1: the memory region
	Placement   uint8 // bit 0: global visibility, bit 1: persistence

	head *BTH
}

func (h *FETH) walk(f fields) fields {
	reserved(&f, &h.Resv26, 26)
	number(&f, &h.Selectivity, 2)
	number(&f, &h.Placement, 4)
	return f
}

// LayerType implements gopacket.Layer.
func (h *FETH) LayerType() gopacket.LayerType { return LayerTypeFETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *FETH) CanDecode() gopacket.LayerClass { return LayerTypeFETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *FETH) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtFETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *FETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.FETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *FETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.FETHLen, b)
}

// RETH is the RDMA header: 16 octets. IBA 9.3.3.
type RETH struct {
	inet.BaseLayer
	VA     uint64
	RKey   uint32
	DMALen uint32 // octets of the whole message

	head *BTH
}

func (h *RETH) walk(f fields) fields {
	number(&f, &h.VA, 64)
	number(&f, &h.RKey, 32)
	number(&f, &h.DMALen, 32)
	return f
}

// LayerType implements gopacket.Layer.
func (h *RETH) LayerType() gopacket.LayerType { return LayerTypeRETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *RETH) CanDecode() gopacket.LayerClass { return LayerTypeRETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *RETH) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtRETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *RETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.RETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *RETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.RETHLen, b)
}

// AtomicETH is the header of an atomic request: 28 octets. IBA 9.3.4.
type AtomicETH struct {
	inet.BaseLayer
	VA      uint64
	RKey    uint32
	SwapAdd uint64 // what to store (CMP_SWAP) or to add (FETCH_ADD)
	Compare uint64 // of CMP_SWAP

	head *BTH
}

func (h *AtomicETH) walk(f fields) fields {
	number(&f, &h.VA, 64)
	number(&f, &h.RKey, 32)
	number(&f, &h.SwapAdd, 64)
	number(&f, &h.Compare, 64)
	return f
}

// LayerType implements gopacket.Layer.
func (h *AtomicETH) LayerType() gopacket.LayerType { return LayerTypeAtomicETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *AtomicETH) CanDecode() gopacket.LayerClass { return LayerTypeAtomicETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *AtomicETH) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtAtomicETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *AtomicETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.AtomicETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *AtomicETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.AtomicETHLen, b)
}

// AETH is the acknowledge header: 4 octets. IBA 9.3.5.
type AETH struct {
	inet.BaseLayer
	Syndrome bth.Syndrome
	MSN      uint32 // message sequence number, 24 bits

	head *BTH
}

func (h *AETH) walk(f fields) fields {
	number(&f, &h.Syndrome, 8)
	number(&f, &h.MSN, 24)
	return f
}

// LayerType implements gopacket.Layer.
func (h *AETH) LayerType() gopacket.LayerType { return LayerTypeAETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *AETH) CanDecode() gopacket.LayerClass { return LayerTypeAETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *AETH) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtAETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *AETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.AETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *AETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.AETHLen, b)
}

// AtomicAckETH is the answer to an atomic request: 8 octets. IBA 9.3.5.3.
type AtomicAckETH struct {
	inet.BaseLayer
	Orig uint64 // what stood there before

	head *BTH
}

func (h *AtomicAckETH) walk(f fields) fields {
	number(&f, &h.Orig, 64)
	return f
}

// LayerType implements gopacket.Layer.
func (h *AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *AtomicAckETH) CanDecode() gopacket.LayerClass { return LayerTypeAtomicAckETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *AtomicAckETH) NextLayerType() gopacket.LayerType {
	return h.head.nextAfter(bth.ExtAtomicAckETH)
}

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *AtomicAckETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.AtomicAckETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *AtomicAckETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.AtomicAckETHLen, b)
}

// ImmDt is immediate data: 4 octets. IBA 9.3.6.
type ImmDt struct {
	inet.BaseLayer
	Imm uint32 // big-endian on the wire

	head *BTH
}

func (h *ImmDt) walk(f fields) fields {
	number(&f, &h.Imm, 32)
	return f
}

// LayerType implements gopacket.Layer.
func (h *ImmDt) LayerType() gopacket.LayerType { return LayerTypeImmDt }

// CanDecode implements gopacket.DecodingLayer.
func (h *ImmDt) CanDecode() gopacket.LayerClass { return LayerTypeImmDt }

// NextLayerType implements gopacket.DecodingLayer.
func (h *ImmDt) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtImmDt) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *ImmDt) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.ImmDtLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *ImmDt) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.ImmDtLen, b)
}

// IETH is the invalidate header: 4 octets. IBA 9.3.7.
type IETH struct {
	inet.BaseLayer
	RKey uint32 // of the region or window to invalidate

	head *BTH
}

func (h *IETH) walk(f fields) fields {
	number(&f, &h.RKey, 32)
	return f
}

// LayerType implements gopacket.Layer.
func (h *IETH) LayerType() gopacket.LayerType { return LayerTypeIETH }

// CanDecode implements gopacket.DecodingLayer.
func (h *IETH) CanDecode() gopacket.LayerClass { return LayerTypeIETH }

// NextLayerType implements gopacket.DecodingLayer.
func (h *IETH) NextLayerType() gopacket.LayerType { return h.head.nextAfter(bth.ExtIETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (h *IETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(h, &h.BaseLayer, bth.IETHLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (h *IETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(h, bth.IETHLen, b)
}
