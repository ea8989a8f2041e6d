package layers

import (
	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
)

// cmLen is a message of the connection manager behind its MAD header; every
// message fills it, the last of it with private data.
const cmLen = 232

// CMReq (REQ) asks for a connection. IBA 12.6.5. IPCM decodes the header that
// librdmacm puts first in its private data.
type CMReq struct {
	inet.BaseLayer
	LocalCommID             uint32
	Resv32                  [2]uint32
	ServiceID               uint64
	LocalCAGUID             GUID
	LocalQKey               uint32
	LocalQPN                bth.QPN
	ResponderResources      uint8 // READs and atomics it takes at once
	LocalEECN               uint32
	InitiatorDepth          uint8 // READs and atomics it sends at once
	RemoteEECN              uint32
	RemoteCMResponseTimeout uint8 // 4.096 us * 2^n
	TransportService        uint8 // 0: RC, 1: UC, 2: RD, 3: see ExtendedTransport
	EndToEndFlowControl     bool
	StartingPSN             bth.PSN
	LocalCMResponseTimeout  uint8 // 4.096 us * 2^n
	RetryCount              uint8
	PKey                    uint16
	PathMTU                 uint8 // 1 to 5: 256 to 4096 octets
	RDCExists               bool
	RNRRetryCount           uint8
	MaxCMRetries            uint8
	SRQ                     bool
	ExtendedTransport       uint8 // 1: XRC
	Primary                 CMPath
	Alternate               CMPath
	PrivateData             []byte // up to 92 octets
}

func (m *CMReq) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	reserved(&f, &m.Resv32[0], 32)
	number(&f, &m.ServiceID, 64)
	number(&f, &m.LocalCAGUID, 64)
	reserved(&f, &m.Resv32[1], 32)
	number(&f, &m.LocalQKey, 32)
	number(&f, &m.LocalQPN, 24)
	number(&f, &m.ResponderResources, 8)
	number(&f, &m.LocalEECN, 24)
	number(&f, &m.InitiatorDepth, 8)
	number(&f, &m.RemoteEECN, 24)
	number(&f, &m.RemoteCMResponseTimeout, 5)
	number(&f, &m.TransportService, 2)
	f.flag(&m.EndToEndFlowControl)
	f.psn(&m.StartingPSN)
	number(&f, &m.LocalCMResponseTimeout, 5)
	number(&f, &m.RetryCount, 3)
	number(&f, &m.PKey, 16)
	number(&f, &m.PathMTU, 4)
	f.flag(&m.RDCExists)
	number(&f, &m.RNRRetryCount, 3)
	number(&f, &m.MaxCMRetries, 4)
	f.flag(&m.SRQ)
	number(&f, &m.ExtendedTransport, 3)
	f = m.Primary.walkREQ(f)
	f = m.Alternate.walkREQ(f)
	f.octets(&m.PrivateData, 92)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMReq) LayerType() gopacket.LayerType { return LayerTypeCMReq }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMReq) CanDecode() gopacket.LayerClass { return LayerTypeCMReq }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMReq) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMReq) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMReq) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}

// CMMRA (MRA) says that an answer will take longer. IBA 12.6.6.
type CMMRA struct {
	inet.BaseLayer
	LocalCommID    uint32
	RemoteCommID   uint32
	MessageMRAed   uint8 // 0: REQ, 1: REP, 2: LAP
	Resv6          uint8
	ServiceTimeout uint8 // 4.096 us * 2^n
	Resv3          uint8
	PrivateData    []byte // up to 222 octets
}

func (m *CMMRA) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	number(&f, &m.RemoteCommID, 32)
	number(&f, &m.MessageMRAed, 2)
	reserved(&f, &m.Resv6, 6)
	number(&f, &m.ServiceTimeout, 5)
	reserved(&f, &m.Resv3, 3)
	f.octets(&m.PrivateData, 222)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMMRA) LayerType() gopacket.LayerType { return LayerTypeCMMRA }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMMRA) CanDecode() gopacket.LayerClass { return LayerTypeCMMRA }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMMRA) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMMRA) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMMRA) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}

// CMRej (REJ) refuses a connection. IBA 12.6.7.
type CMRej struct {
	inet.BaseLayer
	LocalCommID      uint32
	RemoteCommID     uint32
	MessageRejected  uint8 // 0: REQ, 1: REP, 2: none of them
	Resv6            uint8
	RejectInfoLength uint8 // octets of AdditionalInfo that mean something
	Resv1            uint8
	Reason           uint16 // IBA 12.6.7.2
	AdditionalInfo   []byte // 72 octets
	PrivateData      []byte // up to 148 octets
}

func (m *CMRej) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	number(&f, &m.RemoteCommID, 32)
	number(&f, &m.MessageRejected, 2)
	reserved(&f, &m.Resv6, 6)
	number(&f, &m.RejectInfoLength, 7)
	reserved(&f, &m.Resv1, 1)
	number(&f, &m.Reason, 16)
	f.octets(&m.AdditionalInfo, 72)
	f.octets(&m.PrivateData, 148)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMRej) LayerType() gopacket.LayerType { return LayerTypeCMRej }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMRej) CanDecode() gopacket.LayerClass { return LayerTypeCMRej }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMRej) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMRej) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMRej) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}

// CMRep (REP) accepts a connection. IBA 12.6.8.
type CMRep struct {
	inet.BaseLayer
	LocalCommID         uint32
	RemoteCommID        uint32
	LocalQKey           uint32
	LocalQPN            bth.QPN
	Resv8               [3]uint8
	LocalEECN           uint32
	StartingPSN         bth.PSN
	ResponderResources  uint8
	InitiatorDepth      uint8
	TargetAckDelay      uint8 // 4.096 us * 2^n
	FailoverAccepted    uint8
	EndToEndFlowControl bool
	RNRRetryCount       uint8
	SRQ                 bool
	Resv4               uint8
	LocalCAGUID         GUID
	PrivateData         []byte // up to 196 octets
}

func (m *CMRep) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	number(&f, &m.RemoteCommID, 32)
	number(&f, &m.LocalQKey, 32)
	number(&f, &m.LocalQPN, 24)
	reserved(&f, &m.Resv8[0], 8)
	number(&f, &m.LocalEECN, 24)
	reserved(&f, &m.Resv8[1], 8)
	f.psn(&m.StartingPSN)
	reserved(&f, &m.Resv8[2], 8)
	number(&f, &m.ResponderResources, 8)
	number(&f, &m.InitiatorDepth, 8)
	number(&f, &m.TargetAckDelay, 5)
	number(&f, &m.FailoverAccepted, 2)
	f.flag(&m.EndToEndFlowControl)
	number(&f, &m.RNRRetryCount, 3)
	f.flag(&m.SRQ)
	reserved(&f, &m.Resv4, 4)
	number(&f, &m.LocalCAGUID, 64)
	f.octets(&m.PrivateData, 196)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMRep) LayerType() gopacket.LayerType { return LayerTypeCMRep }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMRep) CanDecode() gopacket.LayerClass { return LayerTypeCMRep }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMRep) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMRep) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMRep) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}

// CMRTU (RTU) says that a connection is ready to use. IBA 12.6.9.
type CMRTU struct {
	inet.BaseLayer
	LocalCommID  uint32
	RemoteCommID uint32
	PrivateData  []byte // up to 224 octets
}

func (m *CMRTU) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	number(&f, &m.RemoteCommID, 32)
	f.octets(&m.PrivateData, 224)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMRTU) LayerType() gopacket.LayerType { return LayerTypeCMRTU }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMRTU) CanDecode() gopacket.LayerClass { return LayerTypeCMRTU }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMRTU) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMRTU) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMRTU) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}

// CMDReq (DREQ) asks to end a connection. IBA 12.6.10.
type CMDReq struct {
	inet.BaseLayer
	LocalCommID  uint32
	RemoteCommID uint32
	RemoteQPN    bth.QPN // of the receiver of the message
	Resv8        uint8
	PrivateData  []byte // up to 220 octets
}

func (m *CMDReq) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	number(&f, &m.RemoteCommID, 32)
	number(&f, &m.RemoteQPN, 24)
	reserved(&f, &m.Resv8, 8)
	f.octets(&m.PrivateData, 220)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMDReq) LayerType() gopacket.LayerType { return LayerTypeCMDReq }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMDReq) CanDecode() gopacket.LayerClass { return LayerTypeCMDReq }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMDReq) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMDReq) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMDReq) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}

// CMDRep (DREP) says that a connection has ended. IBA 12.6.11.
type CMDRep struct {
	inet.BaseLayer
	LocalCommID  uint32
	RemoteCommID uint32
	PrivateData  []byte // up to 224 octets
}

func (m *CMDRep) walk(f fields) fields {
	number(&f, &m.LocalCommID, 32)
	number(&f, &m.RemoteCommID, 32)
	f.octets(&m.PrivateData, 224)
	return f
}

// LayerType implements gopacket.Layer.
func (m *CMDRep) LayerType() gopacket.LayerType { return LayerTypeCMDRep }

// CanDecode implements gopacket.DecodingLayer.
func (m *CMDRep) CanDecode() gopacket.LayerClass { return LayerTypeCMDRep }

// NextLayerType implements gopacket.DecodingLayer.
func (m *CMDRep) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *CMDRep) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return decode(m, &m.BaseLayer, cmLen, data, df)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *CMDRep) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return encode(m, cmLen, b)
}
