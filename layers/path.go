package layers

import (
	"net/netip"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
)

// CMPath is a path between two ports, as a REQ (44 octets) or a LAP describes
// it. The local port is the sender's. In RoCE the LIDs mean nothing.
type CMPath struct {
	LocalLID        uint16
	RemoteLID       uint16
	LocalGID        netip.Addr
	RemoteGID       netip.Addr
	FlowLabel       uint32 // 20 bits
	PacketRate      uint8  // 6 bits, IBA 9.11.1
	TrafficClass    uint8
	HopLimit        uint8
	SL              uint8 // service level, 4 bits
	SubnetLocal     bool
	LocalAckTimeout uint8    // 4.096 us * 2^n
	Resv            [4]uint8 // in wire order: 6, 3 and 3 bits of a REQ; 4, 2, 3 and 3 of a LAP
}

func (p *CMPath) walkGIDs(f fields) fields {
	number(&f, &p.LocalLID, 16)
	number(&f, &p.RemoteLID, 16)
	f.gid(&p.LocalGID)
	f.gid(&p.RemoteGID)
	number(&f, &p.FlowLabel, 20)
	return f
}

// walkREQ is the path's layout in a REQ. IBA table 106.
func (p *CMPath) walkREQ(f fields) fields {
	f = p.walkGIDs(f)
	reserved(&f, &p.Resv[0], 6)
	number(&f, &p.PacketRate, 6)
	number(&f, &p.TrafficClass, 8)
	number(&f, &p.HopLimit, 8)
	number(&f, &p.SL, 4)
	f.flag(&p.SubnetLocal)
	reserved(&f, &p.Resv[1], 3)
	number(&f, &p.LocalAckTimeout, 5)
	reserved(&f, &p.Resv[2], 3)
	return f
}

// walkLAP is the path's layout in a LAP. IBA table 115.
func (p *CMPath) walkLAP(f fields) fields {
	f = p.walkGIDs(f)
	reserved(&f, &p.Resv[0], 4)
	number(&f, &p.TrafficClass, 8)
	number(&f, &p.HopLimit, 8)
	reserved(&f, &p.Resv[1], 2)
	number(&f, &p.PacketRate, 6)
	number(&f, &p.SL, 4)
	f.flag(&p.SubnetLocal)
	reserved(&f, &p.Resv[2], 3)
	number(&f, &p.LocalAckTimeout, 5)
	reserved(&f, &p.Resv[3], 3)
	return f
}

// CMLAP (LAP) proposes another alternate path. IBA 12.8.1.
type CMLAP struct {
	inet.BaseLayer
	LocalCommID             uint32
	RemoteCommID            uint32
	Resv32                  [2]uint32
	RemoteQPN               bth.QPN
	RemoteCMResponseTimeout uint8 // 4.096 us * 2^n
	Resv3                   uint8
	Alternate               CMPath
	PrivateData             []byte // up to 168 octets
}

func (m *CMLAP) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	number(&f, &m.RemoteCommID, 32)
	reserved(&f, &m.Resv32[0], 32)
	number(&f, &m.RemoteQPN, 24)
	number(&f, &m.RemoteCMResponseTimeout, 5)
	reserved(&f, &m.Resv3, 3)
	reserved(&f, &m.Resv32[1], 32)
	f = m.Alternate.walkLAP(f)
	f.octets(&m.PrivateData, 168)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMLAP) LayerType() gopacket.LayerType { return LayerTypeCMLAP }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMLAP) CanDecode() gopacket.LayerClass { return LayerTypeCMLAP }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMLAP) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMLAP) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMLAP) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}

// CMAPR (APR) answers a LAP. IBA 12.8.2.
type CMAPR struct {
	inet.BaseLayer
	LocalCommID          uint32
	RemoteCommID         uint32
	AdditionalInfoLength uint8
	Status               uint8 // 0: the path is loaded
	Resv16               uint16
	AdditionalInfo       []byte // 72 octets
	PrivateData          []byte // up to 148 octets
}

func (m *CMAPR) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	number(&f, &m.RemoteCommID, 32)
	number(&f, &m.AdditionalInfoLength, 8)
	number(&f, &m.Status, 8)
	reserved(&f, &m.Resv16, 16)
	f.octets(&m.AdditionalInfo, 72)
	f.octets(&m.PrivateData, 148)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMAPR) LayerType() gopacket.LayerType { return LayerTypeCMAPR }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMAPR) CanDecode() gopacket.LayerClass { return LayerTypeCMAPR }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMAPR) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMAPR) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMAPR) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}
