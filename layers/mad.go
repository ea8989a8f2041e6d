package layers

import (
	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
)

// madLen is the common header of a management datagram.
const madLen = 24

// The class of the connection manager, and the version of it that has the
// layouts below. IBA 13.4.4, 12.6.
const (
	ClassCM        = 0x07
	ClassVersionCM = 2
)

// The messages of the connection manager as attribute numbers. IBA 12.6.
const (
	AttrREQ uint16 = iota + 0x10
	AttrMRA
	AttrREJ
	AttrREP
	AttrRTU
	AttrDREQ
	AttrDREP
	AttrSIDRREQ
	AttrSIDRREP
	AttrLAP
	AttrAPR
)

// MAD is the common header of a management datagram, the payload of a UD packet
// to queue pair 0 or 1: 24 octets. IBA 13.4.2. What follows it fills the
// datagram up to 256 octets.
type MAD struct {
	inet.BaseLayer
	BaseVersion       uint8
	Class             uint8
	ClassVersion      uint8
	Method            uint8 // with the response bit, 0x80
	Status            uint16
	ClassSpecific     uint16
	TransactionID     uint64
	AttributeID       uint16
	Resv16            uint16
	AttributeModifier uint32
}

func (m *MAD) walk(f fields) fields {
	number(&f, &m.BaseVersion, 8)
	number(&f, &m.Class, 8)
	number(&f, &m.ClassVersion, 8)
	number(&f, &m.Method, 8)
	number(&f, &m.Status, 16)
	number(&f, &m.ClassSpecific, 16)
	number(&f, &m.TransactionID, 64)
	number(&f, &m.AttributeID, 16)
	reserved(&f, &m.Resv16, 16)
	number(&f, &m.AttributeModifier, 32)
	return f
}

// LayerType implements gopacket.Layer.
func (m *MAD) LayerType() gopacket.LayerType { return LayerTypeMAD }

// CanDecode implements gopacket.DecodingLayer.
func (m *MAD) CanDecode() gopacket.LayerClass { return LayerTypeMAD }

// NextLayerType implements gopacket.DecodingLayer: a message of the connection
// manager, or payload.
func (m *MAD) NextLayerType() gopacket.LayerType {
	if m.Class == ClassCM && m.ClassVersion == ClassVersionCM && m.AttributeID >= AttrREQ && m.AttributeID <= AttrAPR {
		return LayerTypeCMReq + gopacket.LayerType(m.AttributeID-AttrREQ)
	}
	return gopacket.LayerTypePayload
}

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *MAD) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, madLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *MAD) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, madLen, b)
}

// CNP is what follows the BTH of a congestion notification packet: 16 reserved
// octets. Annex A17.9.3.
type CNP struct {
	inet.BaseLayer
	Reserved []byte // zeros when shorter
}

func (c *CNP) walk(f fields) fields {
	f.octets(&c.Reserved, bth.CNPReserved)
	return f
}

// LayerType implements gopacket.Layer.
func (c *CNP) LayerType() gopacket.LayerType { return LayerTypeCNP }

// CanDecode implements gopacket.DecodingLayer.
func (c *CNP) CanDecode() gopacket.LayerClass { return LayerTypeCNP }

// NextLayerType implements gopacket.DecodingLayer.
func (c *CNP) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (c *CNP) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(c, &c.BaseLayer, bth.CNPReserved, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (c *CNP) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(c, bth.CNPReserved, b)
}
