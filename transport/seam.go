package transport

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// CompSink takes completions: the NIC's side of a completion queue.
type CompSink interface {
	Push(w *verbs.WC, solicited bool)
}

// RecvSource gives receive requests: a queue pair's own ring, or an SRQ.
type RecvSource interface {
	// Fetch takes the next request; ok is false when there is none, n is -1
	// when it is malformed.
	Fetch(sgl []verbs.SGE) (id verbs.RecvID, n int, ok bool)
}

// Config is what a queue pair of any service is made of. It is not changed
// later.
type Config struct {
	QPN            bth.QPN
	PD             mr.PD
	Cap            verbs.QPCap
	SigAll         bool
	SQ             *verbs.SendRing
	RQ             RecvSource
	SendCQ, RecvCQ CompSink
	MRs            *mr.Table
	Recorder       *trace.Recorder
}

// OwnRQ returns the receive ring when it is the queue pair's own, or nil.
func (c *Config) OwnRQ() *verbs.RecvRing {
	r, _ := c.RQ.(*verbs.RecvRing)
	return r
}

// Stats are the counters of a queue pair that are not reasons. Octets are
// payload.
type Stats struct {
	SentRequests  uint64 // request packets, repeats included
	SentResponses uint64 // response packets
	RcvdRequests  uint64
	RcvdResponses uint64
	SentBytes     uint64
	RcvdBytes     uint64
	Repeated      uint64 // request packets sent again
	AcksSent      uint64
	AcksCoalesced uint64 // ACK requests answered by a later ACK
	Sends         uint64 // SEND messages begun
	Recvs         uint64 // receive completions
	Completed     uint64 // send work requests finished well
	Lost          uint64 // UC: packets that never came, by the PSNs that are missing
	WindowWait    uint64 // nanoseconds that a request waited for room in the window
	CreditWait    uint64 // for a receive request of the peer
	RNRWait       uint64 // because the peer asked for time
	PacingWait    uint64 // because a rate was to be kept; counted by the device
}

// Events is a set of asynchronous events.
type Events uint8

const (
	EventFatal   Events = 1 << iota // local error moved the queue pair to ERR
	EventAccess                     // a peer's request broke an access rule
	EventReqErr                     // a peer's request was invalid
	EventCommEst                    // first packet in RTR
	EventDrained                    // SQD: nothing in flight any more
	EventLastWQE                    // ERR: no receive request will be taken any more
	EventGap                        // a packet is missing, and the peer is told; no asynchronous event
)
