package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/gorxe/gorxe/link/fault"
)

// Defaults of Config.
const (
	DefaultLatency = 2 * time.Microsecond
	DefaultMTU     = 4200
	maxHeld        = 4096 // packets that faults hold, for each node and direction
	never          = math.MaxInt64
)

// Config describes a network. Its zero value is a good one. Latency, Rate and Queue
// are those of a network without switches.
type Config struct {
	// Seed decides everything that is left to chance.
	Seed uint64
	// Latency is from port to port. (2 us)
	Latency time.Duration
	// Rate is what the line from each node carries, in bits a second, BTH to
	// ICRC. (No limit.)
	Rate int64
	// Queue is how many octets wait for the line from each node at most: a
	// port whose queue is full takes no more packets until half of it is sent,
	// as a socket whose send buffer is full. It needs a Rate. (No limit.)
	Queue int
	// Faults are rules that each node's traffic is broken by; tx is what it
	// sends, rx what it receives.
	Faults string
	// MTU is of every interface. (4200)
	MTU int
	// Single delivers every packet by itself, as without receive offload.
	Single bool
	// HideIDs delivers without the IPv4 header, as a UDP socket does.
	HideIDs bool
}

// Sim is a simulated network. It is not safe for concurrent use.
type Sim struct {
	cfg    Config
	rules  fault.Rules
	now    int64
	events heap
	net    network
	nodes  []*Node
	// switches are those of a network whose nodes do not reach each other by themselves.
	switches []*Switch

	// Events counts what was handled, a measure of work done.
	Events uint64
}

// New returns a network without nodes. The error is about Faults.
func New(cfg Config) (*Sim, error) {
	if cfg.Latency == 0 {
		cfg.Latency = DefaultLatency
	}
	if cfg.MTU == 0 {
		cfg.MTU = DefaultMTU
	}
	if cfg.Queue < 0 || cfg.Queue > 0 && cfg.Rate == 0 {
		return nil, fmt.Errorf("sim: a Queue of %d octets with a Rate of %d; a queue needs a line with a rate", cfg.Queue, cfg.Rate)
	}
	rules, err := fault.Parse(cfg.Faults)
	if err != nil {
		return nil, fmt.Errorf("sim: faults: %w", err)
	}
	s := &Sim{cfg: cfg, rules: rules}
	s.net.init(s)
	return s, nil
}

// Now returns the time since the start.
func (s *Sim) Now() time.Duration { return time.Duration(s.now) }

// After calls f when d has passed.
func (s *Sim) After(d time.Duration, f func()) {
	e := s.events.get(0)
	e.kind, e.call = evCall, f
	s.events.push(s.now+int64(d), e)
}

// Run handles everything that happens up to a time, and arrives there.
func (s *Sim) Run(until time.Duration) {
	for s.events.next() <= int64(until) {
		s.one()
	}
	s.now = max(s.now, int64(until))
}

// RunUntil runs until done returns true, which it is asked after each event,
// or the limit or the end of all events is reached. It reports whether done
// did.
func (s *Sim) RunUntil(done func() bool, limit time.Duration) bool {
	for !done() {
		if at := s.events.next(); at == never || at > int64(limit) {
			return false
		}
		s.one()
	}
	return true
}

// Quiet reports whether nothing will happen any more.
func (s *Sim) Quiet() bool { return s.events.next() == never }

// Close closes every node.
func (s *Sim) Close() {
	for _, n := range s.nodes {
		_ = n.Ctx.Close()
	}
}

// one handles the next event.
func (s *Sim) one() {
	at, e := s.events.pop()
	s.now = at
	s.Events++
	switch e.kind {
	case evArrive:
		e.lane.node.arrive(e)
		return // its datagram, and so the event, is lent to the lane
	case evStep:
		e.lane.step(at)
	case evRelease:
		e.lane.node.release(e.way)
	case evCall:
		e.call()
	case evHop:
		e.port.sw.receive(e.port, e)
		return // it is in a queue now
	case evFree:
		e.port.free()
	case evPause:
		e.port.pause(e.way == 1)
	}
	s.events.put(e)
}

// Nodes returns all nodes, in the order in which they were added.
func (s *Sim) Nodes() []*Node { return s.nodes }

// Switches returns all switches, in the order in which they were added.
func (s *Sim) Switches() []*Switch { return s.switches }
