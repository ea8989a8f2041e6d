package decode

import (
	"encoding/hex"
	"fmt"
	"net/netip"
)

// CM is a message of the connection manager: one of *ConnReq, *ConnRep,
// *ConnRTU, *ConnRej, *ConnMRA, *ConnDReq, *ConnDRep, *SIDRReq, *SIDRRep. Its
// String is one line for people. IBA 12.6.
type CM interface{ String() string }

// Attributes of the CM class. IBA 12.6.
const (
	attrREQ     = 0x10
	attrMRA     = 0x11
	attrREJ     = 0x12
	attrREP     = 0x13
	attrRTU     = 0x14
	attrDREQ    = 0x15
	attrDREP    = 0x16
	attrSIDRREQ = 0x17
	attrSIDRREP = 0x18
	attrLAP     = 0x19
	attrAPR     = 0x1a
)

var cmNames = map[uint16]string{
	attrREQ: "REQ", attrMRA: "MRA", attrREJ: "REJ", attrREP: "REP", attrRTU: "RTU", attrDREQ: "DREQ", attrDREP: "DREP",
	attrSIDRREQ: "SIDR_REQ", attrSIDRREP: "SIDR_REP", attrLAP: "LAP", attrAPR: "APR",
}

// CMPath is the primary or alternate path of a REQ.
type CMPath struct {
	LocalLID        uint16 `json:"local_lid"`
	RemoteLID       uint16 `json:"remote_lid"`
	LocalGID        string `json:"local_gid"`
	RemoteGID       string `json:"remote_gid"`
	FlowLabel       uint32 `json:"flow_label"`
	PacketRate      uint8  `json:"packet_rate"`
	TrafficClass    uint8  `json:"traffic_class"`
	HopLimit        uint8  `json:"hop_limit"`
	SL              uint8  `json:"sl"`
	SubnetLocal     bool   `json:"subnet_local"`
	LocalAckTimeout uint8  `json:"local_ack_timeout"`
}

// IPCM is the header that the IP connection manager (librdmacm) puts first in
// a REQ's private data. IBA Annex A11.
type IPCM struct {
	Version   uint8  `json:"version"`
	IPVersion uint8  `json:"ip_version"`
	SrcPort   uint16 `json:"src_port"`
	DstPort   uint16 `json:"dst_port"` // from the service ID
	Src       string `json:"src"`
	Dst       string `json:"dst"`
}

// ConnReq asks for a connection.
type ConnReq struct {
	Message                 string  `json:"message"`
	LocalCommID             uint32  `json:"local_comm_id"`
	ServiceID               uint64  `json:"service_id"`
	LocalCAGUID             string  `json:"local_ca_guid"`
	LocalQKey               uint32  `json:"local_qkey"`
	LocalQPN                uint32  `json:"local_qpn"`
	ResponderResources      uint8   `json:"responder_resources"`
	LocalEECN               uint32  `json:"local_eecn"`
	InitiatorDepth          uint8   `json:"initiator_depth"`
	RemoteEECN              uint32  `json:"remote_eecn"`
	RemoteCMResponseTimeout uint8   `json:"remote_cm_response_timeout"`
	TransportService        uint8   `json:"transport_service"` // 0 RC, 1 UC, 2 RD, 3 see ExtendedTransport
	EndToEndFlowControl     bool    `json:"end_to_end_flow_control"`
	StartingPSN             uint32  `json:"starting_psn"`
	LocalCMResponseTimeout  uint8   `json:"local_cm_response_timeout"`
	RetryCount              uint8   `json:"retry_count"`
	PKey                    uint16  `json:"pkey"`
	PathMTU                 int     `json:"path_mtu"` // octets
	RDCExists               bool    `json:"rdc_exists"`
	RNRRetryCount           uint8   `json:"rnr_retry_count"`
	MaxCMRetries            uint8   `json:"max_cm_retries"`
	SRQ                     bool    `json:"srq"`
	ExtendedTransport       uint8   `json:"extended_transport"`
	Primary                 CMPath  `json:"primary"`
	Alternate               *CMPath `json:"alternate,omitempty"`
	IPCM                    *IPCM   `json:"ip_cm,omitempty"`
	PrivateData             string  `json:"private_data"` // hexadecimal, after the IPCM header
}

// ConnRep accepts a connection.
type ConnRep struct {
	Message             string `json:"message"`
	LocalCommID         uint32 `json:"local_comm_id"`
	RemoteCommID        uint32 `json:"remote_comm_id"`
	LocalQKey           uint32 `json:"local_qkey"`
	LocalQPN            uint32 `json:"local_qpn"`
	LocalEECN           uint32 `json:"local_eecn"`
	StartingPSN         uint32 `json:"starting_psn"`
	ResponderResources  uint8  `json:"responder_resources"`
	InitiatorDepth      uint8  `json:"initiator_depth"`
	TargetAckDelay      uint8  `json:"target_ack_delay"`
	FailoverAccepted    uint8  `json:"failover_accepted"`
	EndToEndFlowControl bool   `json:"end_to_end_flow_control"`
	RNRRetryCount       uint8  `json:"rnr_retry_count"`
	SRQ                 bool   `json:"srq"`
	LocalCAGUID         string `json:"local_ca_guid"`
	PrivateData         string `json:"private_data"`
}

// ConnRTU says the connection is ready to use; ConnDRep that it is gone.
type (
	ConnRTU struct {
		Message      string `json:"message"`
		LocalCommID  uint32 `json:"local_comm_id"`
		RemoteCommID uint32 `json:"remote_comm_id"`
		PrivateData  string `json:"private_data"`
	}
	ConnDRep ConnRTU
)

// ConnDReq asks to end a connection.
type ConnDReq struct {
	Message      string `json:"message"`
	LocalCommID  uint32 `json:"local_comm_id"`
	RemoteCommID uint32 `json:"remote_comm_id"`
	RemoteQPN    uint32 `json:"remote_qpn"`
	PrivateData  string `json:"private_data"`
}

// ConnRej refuses a connection.
type ConnRej struct {
	Message      string `json:"message"`
	LocalCommID  uint32 `json:"local_comm_id"`
	RemoteCommID uint32 `json:"remote_comm_id"`
	Rejected     uint8  `json:"rejected"` // 0 REQ, 1 REP, 2 no message
	Reason       uint16 `json:"reason"`
	ReasonText   string `json:"reason_text"`
	Info         string `json:"info"` // additional reject information, hexadecimal
	PrivateData  string `json:"private_data"`
}

// ConnMRA says that an answer will take longer.
type ConnMRA struct {
	Message        string `json:"message"`
	LocalCommID    uint32 `json:"local_comm_id"`
	RemoteCommID   uint32 `json:"remote_comm_id"`
	Acknowledged   uint8  `json:"acknowledged"` // 0 REQ, 1 REP, 2 LAP
	ServiceTimeout uint8  `json:"service_timeout"`
	PrivateData    string `json:"private_data"`
}

// SIDRReq asks which UD queue pair gives a service; SIDRRep answers.
type (
	SIDRReq struct {
		Message     string `json:"message"`
		RequestID   uint32 `json:"request_id"`
		PKey        uint16 `json:"pkey"`
		ServiceID   uint64 `json:"service_id"`
		PrivateData string `json:"private_data"`
	}
	SIDRRep struct {
		Message     string `json:"message"`
		RequestID   uint32 `json:"request_id"`
		Status      uint8  `json:"status"`
		QPN         uint32 `json:"qpn"`
		ServiceID   uint64 `json:"service_id"`
		QKey        uint32 `json:"qkey"`
		PrivateData string `json:"private_data"`
	}
)

// cmLen is the data of a CM message after the common header.
const cmLen = 256 - madLen

// parseCM decodes the data of a CM datagram; nil for a message it does not
// know, or one cut short. Offsets: IBA tables 99 to 117.
func parseCM(attr uint16, b []byte) CM {
	if len(b) < cmLen {
		return nil
	}
	b = b[:cmLen]
	msg, local, remote := cmNames[attr], be.Uint32(b), be.Uint32(b[4:])
	switch attr {
	case attrREQ:
		return parseConnReq(b)
	case attrREP:
		return &ConnRep{
			Message: msg, LocalCommID: local, RemoteCommID: remote, LocalQKey: be.Uint32(b[8:]), LocalQPN: get24(b[12:]),
			LocalEECN: get24(b[16:]), StartingPSN: get24(b[20:]), ResponderResources: b[24], InitiatorDepth: b[25],
			TargetAckDelay: b[26] >> 3, FailoverAccepted: b[26] >> 1 & 3, EndToEndFlowControl: b[26]&1 != 0,
			RNRRetryCount: b[27] >> 5, SRQ: b[27]&0x10 != 0, LocalCAGUID: guid(b[28:]), PrivateData: hex.EncodeToString(b[36:]),
		}
	case attrRTU:
		return &ConnRTU{Message: msg, LocalCommID: local, RemoteCommID: remote, PrivateData: hex.EncodeToString(b[8:])}
	case attrDREP:
		return &ConnDRep{Message: msg, LocalCommID: local, RemoteCommID: remote, PrivateData: hex.EncodeToString(b[8:])}
	case attrDREQ:
		return &ConnDReq{
			Message: msg, LocalCommID: local, RemoteCommID: remote, RemoteQPN: get24(b[8:]), PrivateData: hex.EncodeToString(b[12:]),
		}
	case attrREJ:
		reason := be.Uint16(b[10:])
		return &ConnRej{
			Message: msg, LocalCommID: local, RemoteCommID: remote, Rejected: b[8] >> 6, Reason: reason, ReasonText: rejectText(reason),
			Info: hex.EncodeToString(b[12:][:min(int(b[9]>>1), 72)]), PrivateData: hex.EncodeToString(b[84:]),
		}
	case attrMRA:
		return &ConnMRA{
			Message: msg, LocalCommID: local, RemoteCommID: remote, Acknowledged: b[8] >> 6, ServiceTimeout: b[9] >> 3,
			PrivateData: hex.EncodeToString(b[10:]),
		}
	case attrSIDRREQ:
		return &SIDRReq{
			Message: msg, RequestID: local, PKey: be.Uint16(b[4:]), ServiceID: be.Uint64(b[8:]), PrivateData: hex.EncodeToString(b[16:]),
		}
	case attrSIDRREP:
		return &SIDRRep{
			Message: msg, RequestID: local, Status: b[4], QPN: get24(b[8:]), ServiceID: be.Uint64(b[12:]), QKey: be.Uint32(b[20:]),
			PrivateData: hex.EncodeToString(b[96:]),
		}
	}
	return nil
}

func parseConnReq(b []byte) *ConnReq {
	r := &ConnReq{
		Message: cmNames[attrREQ], LocalCommID: be.Uint32(b), ServiceID: be.Uint64(b[8:]), LocalCAGUID: guid(b[16:]),
		LocalQKey: be.Uint32(b[28:]), LocalQPN: get24(b[32:]), ResponderResources: b[35], LocalEECN: get24(b[36:]),
		InitiatorDepth: b[39], RemoteEECN: get24(b[40:]), RemoteCMResponseTimeout: b[43] >> 3, TransportService: b[43] >> 1 & 3,
		EndToEndFlowControl: b[43]&1 != 0, StartingPSN: get24(b[44:]), LocalCMResponseTimeout: b[47] >> 3, RetryCount: b[47] & 7,
		PKey: be.Uint16(b[48:]), RDCExists: b[50]&8 != 0, RNRRetryCount: b[50] & 7, MaxCMRetries: b[51] >> 4, SRQ: b[51]&8 != 0,
		ExtendedTransport: b[51] & 7, Primary: cmPath(b[52:]),
	}
	if mtu := b[50] >> 4; mtu >= 1 && mtu <= 5 {
		r.PathMTU = 128 << mtu
	}
	if a := cmPath(b[96:]); a.LocalGID != "::" || a.RemoteGID != "::" {
		r.Alternate = &a
	}
	private := b[140:]
	// Service IDs 0x00000000_01ppPPPP belong to the IP connection manager.
	if r.ServiceID>>24 == 1 && private[0]>>4 == 0 && (private[1]>>4 == 4 || private[1]>>4 == 6) {
		r.IPCM = &IPCM{
			Version: private[0], IPVersion: private[1] >> 4, SrcPort: be.Uint16(private[2:]), DstPort: uint16(r.ServiceID),
			Src: ipcmAddr(private[1]>>4, private[4:20]), Dst: ipcmAddr(private[1]>>4, private[20:36]),
		}
		private = private[36:]
	}
	r.PrivateData = hex.EncodeToString(private)
	return r
}

// cmPath decodes the 44 octets of a path in a REQ.
func cmPath(b []byte) CMPath {
	return CMPath{
		LocalLID: be.Uint16(b), RemoteLID: be.Uint16(b[2:]), LocalGID: gid(b[4:]), RemoteGID: gid(b[20:]),
		FlowLabel: be.Uint32(b[36:]) >> 12, PacketRate: b[39] & 0x3f, TrafficClass: b[40], HopLimit: b[41],
		SL: b[42] >> 4, SubnetLocal: b[42]&8 != 0, LocalAckTimeout: b[43] >> 3,
	}
}

func ipcmAddr(version uint8, b []byte) string {
	if version == 4 {
		return netip.AddrFrom4([4]byte(b[12:])).String()
	}
	return gid(b)
}

func gid(b []byte) string   { return netip.AddrFrom16([16]byte(b)).String() }
func get24(b []byte) uint32 { return be.Uint32(b) >> 8 }

// guid writes a GUID as the tools of rdma-core do: 0250:56ff:fea7:7d03.
func guid(b []byte) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", be.Uint16(b), be.Uint16(b[2:]), be.Uint16(b[4:]), be.Uint16(b[6:]))
}

// rejectReasons are the codes of a REJ. IBA 12.6.7.2.
var rejectReasons = [...]string{
	1: "no QP available", 2: "no EEC available", 3: "no resources", 4: "timeout", 5: "unsupported request", 6: "invalid communication ID",
	7: "invalid communication instance", 8: "invalid service ID: nobody listens", 9: "invalid transport type", 10: "stale connection",
	11: "RDC does not exist", 12: "primary GID rejected", 13: "primary LID rejected", 14: "invalid primary SL",
	15: "invalid primary traffic class", 16: "invalid primary hop limit", 17: "invalid primary packet rate", 18: "alternate GID rejected",
	19: "alternate LID rejected", 20: "invalid alternate SL", 21: "invalid alternate traffic class", 22: "invalid alternate hop limit",
	23: "invalid alternate packet rate", 24: "port and CM redirection", 25: "port redirection", 26: "invalid path MTU",
	27: "insufficient responder resources", 28: "rejected by the application", 29: "RNR retry count rejected",
	30: "duplicate communication ID", 31: "invalid class version", 32: "invalid primary flow label", 33: "invalid alternate flow label",
	35: "vendor option not supported",
}

func rejectText(r uint16) string {
	if int(r) < len(rejectReasons) && rejectReasons[r] != "" {
		return rejectReasons[r]
	}
	return fmt.Sprintf("reason %d", r)
}

func (r *ConnReq) String() string {
	s := fmt.Sprintf("REQ id 0x%08x service 0x%x qpn 0x%06x psn %d mtu %d retry %d rnr %d rd %d/%d timeout %d",
		r.LocalCommID, r.ServiceID, r.LocalQPN, r.StartingPSN, r.PathMTU, r.RetryCount, r.RNRRetryCount,
		r.ResponderResources, r.InitiatorDepth, r.Primary.LocalAckTimeout)
	if i := r.IPCM; i != nil {
		s += fmt.Sprintf(" ip %s > %s", netip.AddrPortFrom(netip.MustParseAddr(i.Src), i.SrcPort), netip.AddrPortFrom(netip.MustParseAddr(i.Dst), i.DstPort))
	}
	return s
}

func (r *ConnRep) String() string {
	return fmt.Sprintf("REP id 0x%08x for 0x%08x qpn 0x%06x psn %d rnr %d rd %d/%d",
		r.LocalCommID, r.RemoteCommID, r.LocalQPN, r.StartingPSN, r.RNRRetryCount, r.ResponderResources, r.InitiatorDepth)
}

func (r *ConnRTU) String() string {
	return fmt.Sprintf("RTU id 0x%08x for 0x%08x", r.LocalCommID, r.RemoteCommID)
}

func (r *ConnDRep) String() string {
	return fmt.Sprintf("DREP id 0x%08x for 0x%08x", r.LocalCommID, r.RemoteCommID)
}

func (r *ConnDReq) String() string {
	return fmt.Sprintf("DREQ id 0x%08x for 0x%08x qpn 0x%06x", r.LocalCommID, r.RemoteCommID, r.RemoteQPN)
}

func (r *ConnRej) String() string {
	return fmt.Sprintf("REJ id 0x%08x for 0x%08x reason %d (%s)", r.LocalCommID, r.RemoteCommID, r.Reason, r.ReasonText)
}

func (r *ConnMRA) String() string {
	return fmt.Sprintf("MRA id 0x%08x for 0x%08x service timeout %d", r.LocalCommID, r.RemoteCommID, r.ServiceTimeout)
}

func (r *SIDRReq) String() string {
	return fmt.Sprintf("SIDR_REQ id 0x%08x service 0x%x", r.RequestID, r.ServiceID)
}

func (r *SIDRRep) String() string {
	return fmt.Sprintf("SIDR_REP id 0x%08x status %d qpn 0x%06x qkey 0x%08x", r.RequestID, r.Status, r.QPN, r.QKey)
}
