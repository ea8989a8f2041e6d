package transport

import (
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// Inspection is what an engine is about, for whoever looks into a running
// device. PSNs are 24 bits; what a service or state does not have is 0.
type Inspection struct {
	NextPSN     uint32 // the next to be sent
	UnackedPSN  uint32 // the oldest not acknowledged; of UC and UD, not left
	HighestPSN  uint32 // after the highest that was ever sent
	ExpectedPSN uint32 // the next to be received
	MSN         uint32 // messages completed as responder

	InFlight int // packets sent and not acknowledged
	Window   int // packets that may be, 0 without a bound
	Reads    int // READs and atomics that are unanswered

	Requests int  // send requests taken from the ring and not complete
	Posted   bool // there are more in the ring
	Receives int  // receive requests of the queue pair's own ring

	// Credits says how many more SENDs the peer has receive requests for;
	// CreditsBind, whether that matters (verbs.QPAttr.FlowControl).
	Credits     int
	CreditsBind bool

	RetriesLeft    int
	RNRRetriesLeft int // 7 is for ever
	RNRWait        bool
	Deadline       int64 // when the timer fires, math.MaxInt64 never
	RTT            int64 // nanoseconds, the longest of late; 0 not measured

	Stall Stall        // what keeps it from sending now
	Ended trace.Reason // why it is in SQE or ERR
}

// Stall is what keeps a queue pair from sending a request that it has.
type Stall uint8

const (
	StallNone    Stall = iota // nothing does, or it has none
	StallWindow               // the congestion window is full
	StallCredits              // the peer has no receive request
	StallRNR                  // the peer has asked for time
	StallPacing               // a rate is to be kept
	NumStalls
)

func (s Stall) String() string {
	if s < NumStalls {
		return [...]string{"none", "window", "credits", "rnr", "pacing"}[s]
	}
	return "unknown"
}

// Inspect says what the queue pair is about.
func (u *Unreliable) Inspect(int64) Inspection {
	i := Inspection{
		Requests: int(u.tail - u.head), Deadline: u.Deadline(),
		Receives: Receives(&u.Cfg),
	}
	if s := u.Attrs.State; s >= verbs.StateRTS {
		i.NextPSN, i.UnackedPSN, i.HighestPSN = u.Next.Uint32(), u.left.Uint32(), u.Next.Uint32()
		i.InFlight = max(0, u.Next.Diff(u.left))
		i.Posted = !u.broken && u.Cfg.SQ.Pending()
	}
	if s := u.Attrs.State; s == verbs.StateSQE || s == verbs.StateErr {
		i.Ended = u.Ended
	}
	return i
}

// Each returns the counters one by one, always in the same order.
func (s *Stats) Each() [17]*uint64 {
	return [...]*uint64{
		&s.SentRequests, &s.SentResponses, &s.RcvdRequests, &s.RcvdResponses, &s.SentBytes, &s.RcvdBytes, &s.Repeated,
		&s.AcksSent, &s.AcksCoalesced, &s.Sends, &s.Recvs, &s.Completed, &s.Lost,
		&s.WindowWait, &s.CreditWait, &s.RNRWait, &s.PacingWait,
	}
}

// Capacity returns what the queue pair has room for.
func (u *Unreliable) Capacity() verbs.QPCap { return u.Cfg.Cap }

// Receives returns how many receive requests the queue pair's own ring has, 0
// with a shared one.
func Receives(c *Config) int {
	if own := c.OwnRQ(); own != nil {
		return own.Len()
	}
	return 0
}
