package script

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Setup is what a Subject is to be made of.
type Setup struct {
	Type     verbs.QPType
	QPN      bth.QPN
	Cap      verbs.QPCap
	SharedRQ bool // receive requests come from a shared queue
	Window   int  // packets in flight; 0 is the engine's choice
	MTU      int  // of a UD queue pair, octets

	// PD is the queue pair's protection domain and MRs holds its regions, and
	// those of others. The script takes regions out of it while it runs.
	PD  mr.PD
	MRs *mr.Table

	// Flow is where the queue pair's packets go.
	Flow *wire.Flow
}

// Maker makes a queue pair in state RESET.
type Maker func(s *Setup) (Subject, error)

// Subject is one queue pair under test. Time is nanoseconds on the script's
// clock, which begins at 0 and never goes back.
type Subject interface {
	// Modify changes attributes and state, as verbs.QP.Modify. The address
	// vector is the Setup's Flow.
	Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask) error
	PostSend(now int64, w *verbs.SendWR) error
	PostRecv(now int64, w *verbs.RecvWR) error

	// Receive takes a datagram: BTH to ICRC, borrowed for the call. Addresses
	// and ICRC are right.
	Receive(now int64, datagram []byte)

	// Transmit returns what leaves now, BTH to ICRC: all there is, or the first
	// limit datagrams of it, if limit is not negative.
	Transmit(now int64, limit int) [][]byte

	// Timer runs the timers that are due and returns when the next is, or
	// math.MaxInt64.
	Timer(now int64) (deadline int64)

	// Observe returns what happened since the last call.
	Observe() Observation
}

// Observation is what a program sees of its queue pair.
type Observation struct {
	State  verbs.QPState
	Send   []Completion // since the last Observe
	Recv   []Completion
	Events []verbs.EventType
	Counts trace.Counts // since the queue pair was made
}

// Completion is a completion and whether it wakes who waits for solicited
// ones.
type Completion struct {
	verbs.WC
	Solicited bool
}
