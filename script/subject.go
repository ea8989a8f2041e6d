package script

import (
	"errors"
	"net/netip"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Setup is what a Subject is to be made of. The Maker fills in what it alone
// knows: numbers and keys.
type Setup struct {
	Type     verbs.QPType
	QPN      bth.QPN // the script's; a Maker that gives another says so here
	Cap      verbs.QPCap
	SharedRQ bool // receive requests come from a shared queue
	Window   int  // packets in flight; 0 is the Maker's choice
	MTU      int  // of a UD queue pair, octets
	Device   bool // the script is about a whole device: partitions, keys, states of posting
	Bare     bool // it is about an engine alone: what a device refuses before

	CQE int // completions that its queues hold at least; 0 is as many as come

	Regions []*Region
	Windows []*Window
	Groups  []netip.Addr // multicast groups that a UD queue pair is attached to

	CC cc.Config // congestion control, of a device

	// SetLimit arms the limit of a shared receive queue; the Maker's, nil where
	// there is no such thing.
	SetLimit func(n int) error
	// SetCC changes the congestion control; a device's Maker's.
	SetCC func(cc.Config) error

	// Flow is where the queue pair's packets go, and come from.
	Flow *wire.Flow
}

// Region is memory that is to be registered.
type Region struct {
	Name    string
	Mem     []byte
	IOVA    uint64
	Access  verbs.Access
	Foreign bool // of another protection domain than the queue pair's

	// The Maker's: the key, and how to deregister the region.
	Key      uint32
	Withdraw func() error
}

// ErrOther is what a Maker of engines returns for a script about a device, and
// one of devices for a script about an engine.
var ErrOther = errors.New("script: it is about the other kind of subject: a whole device (rxe script --nic), or an engine alone")

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

	// Receive takes a datagram, borrowed for the call. The last four octets of
	// its payload are the bits in which the ICRC is to be wrong: who checks one
	// adds (xor) the right one.
	Receive(now int64, d *wire.Datagram)

	// Transmit returns what leaves now: all there is, or the first limit datagrams
	// of it, if limit is not negative.
	Transmit(now int64, limit int) []Out

	// Timer runs the timers that are due and returns when the next is, or
	// math.MaxInt64.
	Timer(now int64) (deadline int64)

	// Observe returns what happened since the last call.
	Observe() Observation
}

// Out is a datagram that leaves.
type Out struct {
	TOS    uint8  // of its IP header: DSCP and ECN
	Octets []byte // BTH to ICRC
}

// Observation is what a program sees of its queue pair.
type Observation struct {
	State  verbs.QPState
	Send   []Completion // since the last Observe
	Recv   []Completion
	Events []verbs.EventType

	// Count returns how often something happened since the queue pair was
	// made; known is false for what the Subject does not count, or not apart
	// from other things. It is valid until the next Observe.
	Count func(trace.Reason) (n uint64, known bool)
}

// Completion is a completion and whether it wakes who waits for solicited
// ones.
type Completion struct {
	verbs.WC
	Solicited bool
	Polled    bool // by a program that did not wait: Solicited is not known
}
