package verbs

import (
	"fmt"
	"strings"
)

// QPCap is the capacity of a queue pair. Zero fields mean the defaults in
// parentheses.
type QPCap struct {
	MaxSendWR  int // (128)
	MaxRecvWR  int // (128)
	MaxSendSGE int // (4)
	MaxRecvSGE int // (4)
	MaxInline  int // octets (64)
}

// WithDefaults returns c with its zero fields filled in, and an error for a
// field beyond the limits.
func (c QPCap) WithDefaults() (QPCap, error) {
	set := func(v *int, def, limit int, name string) error {
		if *v == 0 {
			*v = def
		}
		if *v < 0 || *v > limit {
			return fmt.Errorf("verbs: QPCap.%s is %d, the limit is %d", name, *v, limit)
		}
		return nil
	}
	for _, f := range []struct {
		v          *int
		def, limit int
		name       string
	}{
		{&c.MaxSendWR, 128, MaxQPWR, "MaxSendWR"},
		{&c.MaxRecvWR, 128, MaxQPWR, "MaxRecvWR"},
		{&c.MaxSendSGE, 4, MaxSGE, "MaxSendSGE"},
		{&c.MaxRecvSGE, 4, MaxSGE, "MaxRecvSGE"},
		{&c.MaxInline, 64, MaxInline, "MaxInline"},
	} {
		if err := set(f.v, f.def, f.limit, f.name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// AV is an address vector: where a connection or a datagram goes.
type AV struct {
	DGID         GID
	SGIDIndex    int
	TrafficClass uint8
	HopLimit     uint8 // 0 means 64
	// SL is the service level, 0 to 7: the priority of the packets at the
	// sending interface, and by a VLAN interface's egress-qos-map the PCP. 0
	// leaves it to the system.
	SL        uint8
	FlowLabel uint32
	// StaticRate bounds the rate of packets to this destination.
	StaticRate Rate
}

// Rate is a static rate of an address vector; values as ibv_rate. IBA 9.11.1.
type Rate uint8

// rates are what the codes mean, in Mb/s, as rdma-core's ibv_rate_to_mbps has it.
var rates = [...]int{
	2: 2500, 5: 5000, 3: 10000, 6: 20000, 4: 30000, 7: 40000, 8: 60000, 9: 80000, 10: 120000,
	11: 14062, 12: 56250, 13: 112500, 14: 168750, 15: 25781, 16: 103125, 17: 206250, 18: 309375,
	19: 28125, 20: 53125, 21: 425000, 22: 637500, 23: 850000, 24: 1275000,
}

// Mbps returns how many Mb/s a rate is, 0 without a limit; ok is false for a code
// that means nothing.
func (r Rate) Mbps() (mbps int, ok bool) {
	if r == 0 {
		return 0, true
	}
	if int(r) < len(rates) {
		mbps = rates[r]
	}
	return mbps, mbps != 0
}

// QPAttr is the set of attributes of a queue pair that Modify changes and
// Query returns.
type QPAttr struct {
	State           QPState
	CurState        QPState
	PathMTU         MTU
	DestQPN         uint32
	RQPSN           uint32 // first PSN expected
	SQPSN           uint32 // first PSN sent
	Access          Access
	AV              AV
	PKeyIndex       int
	Port            int
	QKey            uint32
	MaxRdAtomic     int   // READs and atomics outstanding as requester
	MaxDestRdAtomic int   // and as responder
	MinRNRTimer     uint8 // code 0..31 that RNR NAKs carry; 0 is 655.36 ms
	Timeout         uint8 // 4.096 us * 2^Timeout; 0 never
	RetryCnt        uint8 // 0..7, literally
	RNRRetry        uint8 // 0..6, 7 is infinite
	// FlowControl makes end-to-end credits bind, both ways: ACKs tell how many
	// receive requests there are, and a SEND waits for one (IBA 9.7.7.2).
	// Both ends must have it; the connection manager's REQ and REP carry it.
	FlowControl bool
	// RateLimit bounds the rate of requests and READ responses, in kb/s of IP
	// packets as ibv_modify_qp_rate_limit(3) has it; 0 is no limit.
	RateLimit uint32
}

// AttrMask says which attributes a Modify sets; values as ibv_qp_attr_mask.
type AttrMask uint32

const (
	AttrState           AttrMask = 1 << 0
	AttrAccess          AttrMask = 1 << 3
	AttrPKeyIndex       AttrMask = 1 << 4
	AttrPort            AttrMask = 1 << 5
	AttrQKey            AttrMask = 1 << 6
	AttrAV              AttrMask = 1 << 7
	AttrPathMTU         AttrMask = 1 << 8
	AttrTimeout         AttrMask = 1 << 9
	AttrRetryCnt        AttrMask = 1 << 10
	AttrRNRRetry        AttrMask = 1 << 11
	AttrRQPSN           AttrMask = 1 << 12
	AttrMaxRdAtomic     AttrMask = 1 << 13
	AttrMinRNRTimer     AttrMask = 1 << 15
	AttrSQPSN           AttrMask = 1 << 16
	AttrMaxDestRdAtomic AttrMask = 1 << 17
	AttrDestQPN         AttrMask = 1 << 20
	AttrRateLimit       AttrMask = 1 << 25
	// AttrFlowControl is this library's own, not of ibv_qp_attr_mask.
	AttrFlowControl AttrMask = 1 << 30
)

var attrNames = []struct {
	m    AttrMask
	name string
}{
	{AttrState, "State"},
	{AttrAccess, "Access"},
	{AttrPKeyIndex, "PKeyIndex"},
	{AttrPort, "Port"},
	{AttrQKey, "QKey"},
	{AttrAV, "AV"},
	{AttrPathMTU, "PathMTU"},
	{AttrTimeout, "Timeout"},
	{AttrRetryCnt, "RetryCnt"},
	{AttrRNRRetry, "RNRRetry"},
	{AttrRQPSN, "RQPSN"},
	{AttrMaxRdAtomic, "MaxRdAtomic"},
	{AttrMinRNRTimer, "MinRNRTimer"},
	{AttrSQPSN, "SQPSN"},
	{AttrMaxDestRdAtomic, "MaxDestRdAtomic"},
	{AttrDestQPN, "DestQPN"},
	{AttrRateLimit, "RateLimit"},
	{AttrFlowControl, "FlowControl"},
}

func (m AttrMask) String() string {
	var s []string
	for _, a := range attrNames {
		if m&a.m != 0 {
			s = append(s, a.name)
		}
	}
	for _, a := range attrNames {
		m &^= a.m
	}
	if m != 0 {
		s = append(s, fmt.Sprintf("%#x", uint32(m)))
	}
	return strings.Join(s, "|")
}

// transition is one row of the state table: what must and what may be set.
type transition struct {
	from, to QPState
	types    []QPType
	need     AttrMask
	may      AttrMask
}

// transitions is IBA table 91 for the services there are. Any state may go to
// RESET and to ERR.
//
//	RESET --> INIT --> RTR --> RTS <--> SQD
//	  ^                         | ^
//	  |                         v | (UC, UD)
//	  +---- any      any -> ERR SQE
var transitions = []transition{
	{StateReset, StateInit, []QPType{RC, UC}, AttrPKeyIndex | AttrPort | AttrAccess, 0},
	{StateReset, StateInit, []QPType{UD}, AttrPKeyIndex | AttrPort | AttrQKey, 0},
	{StateInit, StateInit, []QPType{RC, UC}, 0, AttrPKeyIndex | AttrPort | AttrAccess},
	{StateInit, StateInit, []QPType{UD}, 0, AttrPKeyIndex | AttrPort | AttrQKey},
	{StateInit, StateRTR, []QPType{RC}, AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer, AttrAccess | AttrPKeyIndex | AttrFlowControl | AttrRateLimit},
	{StateInit, StateRTR, []QPType{UC}, AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN, AttrAccess | AttrPKeyIndex | AttrRateLimit},
	{StateInit, StateRTR, []QPType{UD}, 0, AttrPKeyIndex | AttrQKey | AttrRateLimit},
	{StateRTR, StateRTS, []QPType{RC}, AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrSQPSN | AttrMaxRdAtomic, AttrAccess | AttrMinRNRTimer | AttrRateLimit},
	{StateRTR, StateRTS, []QPType{UC}, AttrSQPSN, AttrAccess | AttrRateLimit},
	{StateRTR, StateRTS, []QPType{UD}, AttrSQPSN, AttrQKey | AttrRateLimit},
	{StateRTS, StateRTS, []QPType{RC}, 0, AttrAccess | AttrMinRNRTimer | AttrRateLimit},
	{StateRTS, StateRTS, []QPType{UC}, 0, AttrAccess | AttrRateLimit},
	{StateRTS, StateRTS, []QPType{UD}, 0, AttrQKey | AttrRateLimit},
	{StateRTS, StateSQD, []QPType{RC, UC, UD}, 0, 0},
	{StateSQD, StateRTS, []QPType{RC}, 0, AttrAccess | AttrMinRNRTimer | AttrRateLimit},
	{StateSQD, StateRTS, []QPType{UC}, 0, AttrAccess | AttrRateLimit},
	{StateSQD, StateRTS, []QPType{UD}, 0, AttrQKey | AttrRateLimit},
	{StateSQD, StateSQD, []QPType{RC}, 0, AttrAV | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic | AttrMaxDestRdAtomic | AttrAccess | AttrMinRNRTimer | AttrPKeyIndex | AttrRateLimit},
	{StateSQD, StateSQD, []QPType{UC}, 0, AttrAV | AttrAccess | AttrPKeyIndex | AttrRateLimit},
	{StateSQD, StateSQD, []QPType{UD}, 0, AttrPKeyIndex | AttrQKey | AttrRateLimit},
	{StateSQE, StateRTS, []QPType{UC}, 0, AttrAccess | AttrRateLimit},
	{StateSQE, StateRTS, []QPType{UD}, 0, AttrQKey | AttrRateLimit},
}

// CheckTransition says whether a queue pair of type t may go from one state
// to another with these attributes, and what is missing or too much. Without
// AttrState it stays where it is; to change nothing at all is always allowed.
func CheckTransition(t QPType, from, to QPState, mask AttrMask) error {
	set := mask&AttrState != 0
	mask &^= AttrState
	if !set {
		if to = from; mask == 0 {
			return nil
		}
	}
	if set && (to == StateReset || to == StateErr) {
		if mask != 0 {
			return fmt.Errorf("%w: going to %v takes no attribute but State, not %v", ErrState, to, mask)
		}
		return nil
	}
	for _, r := range transitions {
		if r.from != from || r.to != to || !contains(r.types, t) {
			continue
		}
		if miss := r.need &^ mask; miss != 0 {
			return fmt.Errorf("%w: %v QP from %v to %v needs %v as well", ErrState, t, from, to, miss)
		}
		if extra := mask &^ (r.need | r.may); extra != 0 {
			return fmt.Errorf("%w: %v QP from %v to %v does not take %v", ErrState, t, from, to, extra)
		}
		return nil
	}
	if !set {
		return fmt.Errorf("%w: in %v a %v QP takes no %v", ErrState, from, t, mask)
	}
	return fmt.Errorf("%w: a %v QP does not go from %v to %v (RESET, INIT, RTR, RTS is the way up)", ErrState, t, from, to)
}

func contains(s []QPType, t QPType) bool {
	for _, x := range s {
		if x == t {
			return true
		}
	}
	return false
}

// DeviceAttr is what ibv_query_device tells, as far as it has a meaning here.
type DeviceAttr struct {
	Name          string
	FWVer         string
	NodeGUID      uint64
	MaxMRSize     uint64
	VendorID      uint32
	MaxQP         int
	MaxQPWR       int
	MaxSGE        int
	MaxCQ         int
	MaxCQE        int
	MaxMR         int
	MaxMW         int
	MaxPD         int
	MaxQPRdAtom   int
	MaxInitRdAtom int
	MaxSRQ        int
	MaxSRQWR      int
	MaxAH         int
	MaxMcastGrp   int // multicast groups of the device
	MaxMcastQP    int // queue pairs attached to one group
	LocalAckDelay int
	PhysPorts     int
	Shards        int
	AtomicHCA     bool
	Link          string // "udp", "packet", "mem"
	ICRC          string // strength of the check of received packets, in words
	Missing       []string
	// Daemon says which process has the device, and by which socket this program
	// uses it; empty when it is embedded in this one.
	Daemon string
}

// PortAttr is what ibv_query_port tells.
type PortAttr struct {
	State      string // "PORT_ACTIVE (4)"
	Active     bool
	MaxMTU     MTU
	ActiveMTU  MTU
	GIDTblLen  int
	PKeyTblLen int
	LinkLayer  string
	NetDev     string
	NetMTU     int
	SpeedMbit  int // 0 unknown
}

// EventType is a kind of asynchronous event; values as ibv_event_type.
type EventType uint8

const (
	EventCQErr       EventType = 0
	EventQPFatal     EventType = 1
	EventQPReqErr    EventType = 2
	EventQPAccessErr EventType = 3
	EventCommEst     EventType = 4
	EventSQDrained   EventType = 5
	EventDeviceFatal EventType = 8
	EventPortActive  EventType = 9
	EventPortErr     EventType = 10
	EventSRQErr      EventType = 14
	EventSRQLimit    EventType = 15
	EventLastWQE     EventType = 16
	EventGIDChange   EventType = 18
)

func (t EventType) String() string {
	switch t {
	case EventCQErr:
		return "CQ error"
	case EventQPFatal:
		return "QP fatal"
	case EventQPReqErr:
		return "QP invalid request"
	case EventQPAccessErr:
		return "QP access error"
	case EventCommEst:
		return "communication established"
	case EventSQDrained:
		return "send queue drained"
	case EventDeviceFatal:
		return "device fatal"
	case EventPortActive:
		return "port active"
	case EventPortErr:
		return "port error"
	case EventSRQErr:
		return "SRQ error"
	case EventSRQLimit:
		return "SRQ limit reached"
	case EventLastWQE:
		return "last WQE reached"
	case EventGIDChange:
		return "GID table change"
	}
	return fmt.Sprintf("EventType(%d)", uint8(t))
}

// AsyncEvent is an asynchronous event of a device.
type AsyncEvent struct {
	Type EventType
	QPN  uint32 // of queue pair events
	CQ   Handle // of completion queue events
	SRQ  Handle // of shared receive queue events
}
