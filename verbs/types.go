package verbs

import (
	"fmt"
	"net/netip"
)

// QPType is the transport service of a queue pair; values as ibv_qp_type.
type QPType uint8

const (
	RC QPType = 2 // reliable connection
	UC QPType = 3 // unreliable connection
	UD QPType = 4 // unreliable datagram
)

func (t QPType) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	}
	return fmt.Sprintf("QPType(%d)", uint8(t))
}

// MTU is a path MTU in octets of payload: 256, 512, 1024, 2048 or 4096.
type MTU int

// Valid reports whether m is one of the five path MTUs.
func (m MTU) Valid() bool { return m.Enum() != 0 }

// Enum returns the value of ibv_mtu, 1 to 5, or 0.
func (m MTU) Enum() int {
	switch m {
	case 256:
		return 1
	case 512:
		return 2
	case 1024:
		return 3
	case 2048:
		return 4
	case 4096:
		return 5
	}
	return 0
}

// Access is a set of permissions of a memory region or queue pair; values as
// ibv_access_flags.
type Access uint32

const (
	AccessLocalWrite   Access = 1 << 0 // receives, READ and atomic results may land here
	AccessRemoteWrite  Access = 1 << 1 // peers may WRITE
	AccessRemoteRead   Access = 1 << 2 // peers may READ
	AccessRemoteAtomic Access = 1 << 3 // peers may FetchAdd and CmpSwap
	AccessMWBind       Access = 1 << 4 // memory windows may be bound to it
	AccessZeroBased    Access = 1 << 5 // of a type 2 window: peers count addresses from its first octet

	// AccessAll is everything but what has to do with windows.
	AccessAll = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
)

// WROpcode is the operation of a send work request; values as ibv_wr_opcode.
type WROpcode uint8

const (
	WRWrite    WROpcode = 0
	WRWriteImm WROpcode = 1
	WRSend     WROpcode = 2
	WRSendImm  WROpcode = 3
	WRRead     WROpcode = 4
	WRCmpSwap  WROpcode = 5
	WRFetchAdd WROpcode = 6
	WRLocalInv WROpcode = 7 // invalidates a key of this end; sends nothing
	WRBindMW   WROpcode = 8 // binds a memory window; sends nothing
	WRSendInv  WROpcode = 9
)

func (o WROpcode) String() string {
	switch o {
	case WRWrite:
		return "RDMA_WRITE"
	case WRWriteImm:
		return "RDMA_WRITE_WITH_IMM"
	case WRSend:
		return "SEND"
	case WRSendImm:
		return "SEND_WITH_IMM"
	case WRRead:
		return "RDMA_READ"
	case WRCmpSwap:
		return "ATOMIC_CMP_AND_SWP"
	case WRFetchAdd:
		return "ATOMIC_FETCH_AND_ADD"
	case WRLocalInv:
		return "LOCAL_INV"
	case WRBindMW:
		return "BIND_MW"
	case WRSendInv:
		return "SEND_WITH_INV"
	}
	return fmt.Sprintf("WROpcode(%d)", uint8(o))
}

// SendFlags modify a send work request; values as ibv_send_flags.
type SendFlags uint8

const (
	SendFence     SendFlags = 1 << 0 // wait for earlier READs and atomics
	SendSignaled  SendFlags = 1 << 1 // complete with a CQE even on success
	SendSolicited SendFlags = 1 << 2 // raise a solicited event at the receiver
	SendInline    SendFlags = 1 << 3 // copy the data when posted
)

// WCStatus is the outcome of a work request; values as ibv_wc_status.
type WCStatus uint8

const (
	WCSuccess        WCStatus = 0
	WCLocLenErr      WCStatus = 1
	WCLocQPOpErr     WCStatus = 2
	WCLocProtErr     WCStatus = 4
	WCWRFlushErr     WCStatus = 5
	WCMWBindErr      WCStatus = 6
	WCBadRespErr     WCStatus = 7
	WCLocAccessErr   WCStatus = 8
	WCRemInvReqErr   WCStatus = 9
	WCRemAccessErr   WCStatus = 10
	WCRemOpErr       WCStatus = 11
	WCRetryExcErr    WCStatus = 12
	WCRNRRetryExcErr WCStatus = 13
	WCFatalErr       WCStatus = 19
	WCGeneralErr     WCStatus = 21
)

func (s WCStatus) String() string {
	switch s {
	case WCSuccess:
		return "success"
	case WCLocLenErr:
		return "local length error"
	case WCLocQPOpErr:
		return "local QP operation error"
	case WCLocProtErr:
		return "local protection error"
	case WCWRFlushErr:
		return "Work Request Flushed Error"
	case WCMWBindErr:
		return "memory management operation error"
	case WCBadRespErr:
		return "bad response error"
	case WCLocAccessErr:
		return "local access error"
	case WCRemInvReqErr:
		return "remote invalid request error"
	case WCRemAccessErr:
		return "remote access error"
	case WCRemOpErr:
		return "remote operation error"
	case WCRetryExcErr:
		return "transport retry counter exceeded"
	case WCRNRRetryExcErr:
		return "RNR retry counter exceeded"
	case WCFatalErr:
		return "fatal error"
	case WCGeneralErr:
		return "general error"
	}
	return fmt.Sprintf("WCStatus(%d)", uint8(s))
}

// VendorRetryExceeded is the vendor_err that mlx5 gives with WCRetryExcErr and
// users search for.
const VendorRetryExceeded = 129

// WCOpcode is the operation a completion is for; values as ibv_wc_opcode.
type WCOpcode uint8

const (
	WCSend         WCOpcode = 0
	WCWrite        WCOpcode = 1
	WCRead         WCOpcode = 2
	WCCmpSwap      WCOpcode = 3
	WCFetchAdd     WCOpcode = 4
	WCBindMW       WCOpcode = 5
	WCLocalInv     WCOpcode = 6
	WCRecv         WCOpcode = 1 << 7
	WCRecvWriteImm WCOpcode = WCRecv + 1
)

// WCFlags say which fields of a completion are valid; values as ibv_wc_flags.
type WCFlags uint8

const (
	WCGRH     WCFlags = 1 << 0 // the first 40 octets of the buffer are a GRH (UD)
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3 // Imm holds the key that was invalidated
)

// QPState is the state of a queue pair; values as ibv_qp_state.
type QPState uint8

const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

func (s QPState) String() string {
	if int(s) < 7 {
		return [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}[s]
	}
	return fmt.Sprintf("QPState(%d)", uint8(s))
}

// GID is a global identifier: an IPv6 address, or an IPv4 one mapped into it.
type GID [16]byte

// GIDOf returns the GID of an address.
func GIDOf(a netip.Addr) GID { return GID(a.As16()) }

// Addr returns the address of the GID: IPv4 for a mapped one, no zone.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the GID as eight groups of four hexadecimal digits.
func (g GID) String() string { return netip.AddrFrom16(g).StringExpanded() }

// GIDEntry is one row of a port's GID table.
type GIDEntry struct {
	Index     int
	GID       GID
	Type      string // "RoCE v2"
	Interface string
}

// SGE is one piece of a buffer: Length octets at Addr of the region with LKey.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is a send work request. The NIC keeps nothing of it after PostSend.
type SendWR struct {
	ID     uint64
	Opcode WROpcode
	Flags  SendFlags
	SGL    []SGE

	// Inline is the data itself when Flags has SendInline; SGL is then
	// unused.
	Inline []byte

	RemoteAddr uint64 // WRITE, READ, atomics
	RKey       uint32
	Imm        uint32 // host order; with SendInv and LocalInv the key to invalidate
	CompareAdd uint64 // atomics: value to compare with or to add
	Swap       uint64 // CmpSwap: value to store

	RemoteQPN  uint32 // UD
	RemoteQKey uint32 // UD
	AH         uint32 // UD: handle of an address vector

	Bind Bind // BindMW
}

// RecvWR is a receive work request.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

// Limits that rings are made for.
const (
	MaxSGE        = 32
	MaxInline     = 512
	MaxQPWR       = 1 << 15
	MaxCQE        = 1 << 20
	MaxMessage    = 1 << 31
	MaxRdAtomic   = 128
	MulticastQPN  = 0xffffff // RemoteQPN of what is sent to a multicast group
	DefaultPKey   = 0xffff
	LocalAckDelay = 15 // 4.096 us * 2^15
)
