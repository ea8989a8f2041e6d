package layers

import (
	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
)

// CMSIDRReq (SIDR_REQ) asks which UD queue pair gives a service. IBA 12.11.
type CMSIDRReq struct {
	inet.BaseLayer
	RequestID   uint32
	PKey        uint16
	Resv16      uint16
	ServiceID   uint64
	PrivateData []byte // up to 216 octets
}

func (m *CMSIDRReq) walk(f fields) fields {
	number(&f, &m.RequestID, 32)
	number(&f, &m.PKey, 16)
	reserved(&f, &m.Resv16, 16)
	number(&f, &m.ServiceID, 64)
	f.octets(&m.PrivateData, 216)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMSIDRReq) LayerType() gopacket.LayerType { return LayerTypeCMSIDRReq }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMSIDRReq) CanDecode() gopacket.LayerClass { return LayerTypeCMSIDRReq }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMSIDRReq) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMSIDRReq) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMSIDRReq) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}

// CMSIDRRep (SIDR_REP) answers a SIDR_REQ. IBA 12.11.
type CMSIDRRep struct {
	inet.BaseLayer
	RequestID            uint32
	Status               uint8 // 0: QPN and QKey are valid
	AdditionalInfoLength uint8
	Resv16               uint16
	QPN                  bth.QPN
	Resv8                uint8
	ServiceID            uint64
	QKey                 uint32
	AdditionalInfo       []byte // 72 octets
	PrivateData          []byte // up to 136 octets
}

func (m *CMSIDRRep) walk(f fields) fields {
	number(&f, &m.RequestID, 32)
	number(&f, &m.Status, 8)
	number(&f, &m.AdditionalInfoLength, 8)
	reserved(&f, &m.Resv16, 16)
	number(&f, &m.QPN, 24)
	reserved(&f, &m.Resv8, 8)
	number(&f, &m.ServiceID, 64)
	number(&f, &m.QKey, 32)
	f.octets(&m.AdditionalInfo, 72)
	f.octets(&m.PrivateData, 136)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMSIDRRep) LayerType() gopacket.LayerType { return LayerTypeCMSIDRRep }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMSIDRRep) CanDecode() gopacket.LayerClass { return LayerTypeCMSIDRRep }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMSIDRRep) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMSIDRRep) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMSIDRRep) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}
