package admin

import (
	"net/netip"
	"time"
)

// Version is that of the paths and types.
const Version = "v1"

// Daemon is the answer to GET /v1.
type Daemon struct {
	API     string    `json:"api"` // Version
	Program string    `json:"program"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
	Devices []string  `json:"devices"`
}

// DeviceInfo describes a device and its port.
type DeviceInfo struct {
	Name      string   `json:"name"`
	NodeGUID  string   `json:"node_guid"`
	NetDev    string   `json:"net_dev"`
	NetMTU    int      `json:"net_mtu"`
	ActiveMTU int      `json:"active_mtu"` // path MTU, octets
	SpeedMbit int      `json:"speed_mbit"` // 0 unknown
	State     string   `json:"state"`      // as ibv_devinfo: "PORT_ACTIVE (4)"
	Active    bool     `json:"active"`
	Error     string   `json:"error,omitempty"` // why the device is no more
	Link      string   `json:"link"`
	ICRC      string   `json:"icrc"` // strength of the check
	Shards    int      `json:"shards"`
	QPs       int      `json:"qps"`
	Clients   int      `json:"clients"`
	Captures  int      `json:"captures"` // going on
	GIDs      []GID    `json:"gids"`
	Missing   []string `json:"missing"` // what it does without, a sentence each
}

// GID is an entry of the GID table.
type GID struct {
	Index   int        `json:"index"`
	GID     string     `json:"gid"`
	Address netip.Addr `json:"address"`
	Type    string     `json:"type"`
}

// Counters are a port's, which of a device with one port are the device's.
type Counters struct {
	Device string                 `json:"device"`
	Port   int                    `json:"port"`
	Time   time.Time              `json:"time"`
	Values map[string]uint64      `json:"counters"`
	About  map[string]CounterInfo `json:"about,omitempty"` // with ?explain=1
}

// CounterInfo says what a counter counts.
type CounterInfo struct {
	Unit string `json:"unit"` // "packets", "octets", "words", "ns", ...
	Kind string `json:"kind"` // "port", "queue pair", "device", or of reasons "drop", "failure", "retry", "note"
	Text string `json:"text"` // one sentence
}

// QP is a queue pair in a list.
type QP struct {
	QPN       uint32     `json:"qpn"`
	Type      string     `json:"type"`  // RC, UC, UD
	State     string     `json:"state"` // RESET to ERR
	Shard     int        `json:"shard"`
	Local     netip.Addr `json:"local"` // "" before it is connected, and of UD
	Peer      netip.Addr `json:"peer"`
	SrcPort   uint16     `json:"src_port"`
	DestQPN   uint32     `json:"dest_qpn"`
	ClientID  uint32     `json:"client_id"` // 0: the daemon itself
	PID       int        `json:"pid"`       // of the client, 0 unknown
	Command   string     `json:"command"`
	SendDepth int        `json:"send_depth"` // work requests it has room for
	RecvDepth int        `json:"recv_depth"`
	SRQ       bool       `json:"srq"`
	Requests  int        `json:"requests"`  // send requests under way
	InFlight  int        `json:"in_flight"` // packets not acknowledged
	Rate      int64      `json:"rate"`      // bits/s of IP packets that it may send now, 0 as many as can

	SentPackets     uint64 `json:"sent_packets"` // requests and responses
	RcvdPackets     uint64 `json:"rcvd_packets"`
	SentPayload     uint64 `json:"sent_payload"` // octets
	RcvdPayload     uint64 `json:"rcvd_payload"`
	RepeatedPackets uint64 `json:"repeated_packets"`
	Drops           uint64 `json:"drops"`
}

// QPDetail is all there is to say of a queue pair.
type QPDetail struct {
	QP

	PathMTU     int      `json:"path_mtu"`
	GIDIndex    int      `json:"gid_index"`
	Access      []string `json:"access"` // remote_write, remote_read, remote_atomic
	QKey        uint32   `json:"qkey,omitempty"`
	MaxSendSGE  int      `json:"max_send_sge"`
	MaxRecvSGE  int      `json:"max_recv_sge"`
	MaxInline   int      `json:"max_inline"`
	MaxRdAtomic int      `json:"max_rd_atomic"`
	MaxDestRd   int      `json:"max_dest_rd_atomic"`

	NextPSN     uint32 `json:"next_psn"`
	UnackedPSN  uint32 `json:"unacked_psn"`
	HighestPSN  uint32 `json:"highest_psn"`
	ExpectedPSN uint32 `json:"expected_psn"`
	MSN         uint32 `json:"msn"`

	Window      int    `json:"window"` // packets that may be in flight, 0 without a bound
	Reads       int    `json:"reads"`  // READs and atomics unanswered
	Posted      bool   `json:"posted"` // send requests wait in the ring
	Receives    int    `json:"receives"`
	Credits     int    `json:"credits"` // receive requests the peer is known to have
	CreditsBind bool   `json:"credits_bind"`
	Stall       string `json:"stall"` // none, window, credits, rnr, pacing

	Algorithm  string  `json:"algorithm"`   // of congestion control, "" of UD
	RateLimit  int64   `json:"rate_limit"`  // bits/s that the program bound it to, 0 none
	CCRate     int64   `json:"cc_rate"`     // bits/s by congestion control, 0 as many as can
	TargetRate int64   `json:"target_rate"` // of DCQCN: what that recovers to
	Alpha      float64 `json:"alpha"`       // of DCQCN: 0 to 1
	Limited    bool    `json:"limited"`     // congestion control holds the rate below the line's

	Timeout        int   `json:"timeout"`    // 4.096 us * 2^timeout, 0 never
	TimeoutNanos   int64 `json:"timeout_ns"` // 0 never
	RetryCount     int   `json:"retry_cnt"`
	RetriesLeft    int   `json:"retries_left"`
	RNRRetry       int   `json:"rnr_retry"` // 7 for ever
	RNRRetriesLeft int   `json:"rnr_retries_left"`
	RNRWait        bool  `json:"rnr_wait"`
	TimerNanos     int64 `json:"timer_ns"` // until the timer fires, -1 when it does not run
	RTTNanos       int64 `json:"rtt_ns"`   // the longest of late, 0 not measured

	// Ended is why the queue pair is in SQE or ERR, Last what happened to it last
	// that is not good, while the recorder holds it.
	Ended *Reason `json:"ended,omitempty"`
	Last  *Event  `json:"last,omitempty"`

	Counters map[string]uint64 `json:"counters"`
}

// Reason is why a packet was dropped, a request failed or repeated.
type Reason struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Event is one that the recorder holds.
type Event struct {
	Time   time.Time `json:"time"`
	QPN    uint32    `json:"qpn"`
	Dir    string    `json:"dir"`    // "tx", "rx", or "local": no packet
	Opcode string    `json:"opcode"` // of the packet
	PSN    uint32    `json:"psn"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	Arg    uint32    `json:"arg"` // depends on the reason
	State  string    `json:"state,omitempty"`
}

// ClientInfo is a process that uses a device.
type ClientInfo struct {
	ID      uint32         `json:"id"` // of the attachment, unlike the PID never used again
	PID     int            `json:"pid"`
	UID     int            `json:"uid"`
	GID     int            `json:"gid"`
	Command string         `json:"command"`
	Device  string         `json:"device"`
	Since   time.Time      `json:"since"`
	Objects map[string]int `json:"objects"` // by kind: pd, mr, mw, cq, qp, srq, ah
	Bytes   int64          `json:"bytes"`   // of memory that it has from the daemon
}

// Limits bound what clients may have.
type Limits struct {
	PerClient LimitSet `json:"per_client"`
	Device    LimitSet `json:"device"`
}

// LimitSet is one set of limits; 0 is the default.
type LimitSet struct {
	QPs     int   `json:"qps"`
	CQs     int   `json:"cqs"`
	MRs     int   `json:"mrs"`
	MWs     int   `json:"mws"`
	PDs     int   `json:"pds"`
	SRQs    int   `json:"srqs"`
	AHs     int   `json:"ahs"`
	CQEs    int   `json:"cqes"`
	Groups  int   `json:"groups"` // attachments to multicast groups
	Clients int   `json:"clients"`
	Bytes   int64 `json:"bytes"`
}

// CC is the congestion control of a device.
type CC struct {
	Device     string        `json:"device"`
	Parameters []CCParameter `json:"parameters"` // in the order to show them in
	Profiles   []string      `json:"profiles"`   // sets of parameters, as "profile" takes them
}

// CCParameter is one parameter, and what it may be: a number from Low to High, or
// one of a list. 0 and 1 without a unit are off and on.
type CCParameter struct {
	Name    string   `json:"name"`
	Value   string   `json:"value"`
	Default string   `json:"default"`
	Unit    string   `json:"unit"`
	Low     int      `json:"low"`
	High    int      `json:"high"`
	Of      []string `json:"of,omitempty"`
	Help    string   `json:"help"`
}

// Get returns the value of a parameter, "" when there is none of that name.
func (c *CC) Get(name string) string {
	for i := range c.Parameters {
		if c.Parameters[i].Name == name {
			return c.Parameters[i].Value
		}
	}
	return ""
}

// ReloadResult says what became of a configuration file that was read again.
type ReloadResult struct {
	Changed []string `json:"changed"` // took effect
	Restart []string `json:"restart"` // differs, and takes effect at the next start
}

// CaptureOptions bound a capture.
type CaptureOptions struct {
	SnapLen int    // octets of a frame that are kept, 0 all
	Count   uint64 // frames after which it ends, 0 none
}

// CaptureSummary is the end of a capture.
type CaptureSummary struct {
	Captured uint64 // frames written
	Dropped  uint64 // frames that the reader was too slow for
}
