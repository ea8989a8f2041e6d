package relay

import (
	"fmt"
	"time"

	"github.com/gorxe/gorxe/link/fault"
)

// Config says what is relayed, and how.
type Config struct {
	A, B   string      // interfaces
	AB, BA Line        // from A to B, and from B to A
	Rules  fault.Rules // tx is from A to B, rx from B to A
	Seed   uint64      // of rules and marks

	// Realtime has this process run before others: packets leave on time also where
	// those have all processors. It needs CAP_SYS_NICE.
	Realtime bool

	Every   time.Duration // between reports; 0: only the last
	Report  func(*Report) // called by one goroutine at a time
	Log     func(line string)
	Capture Capture // of what goes out; nil for none
}

// Capture is told of each frame that went out: RoCEv2 packet by packet, other frames
// as they were, super-packets and unfinished checksums included. The frame is borrowed
// for the call. Errors are its own affair.
type Capture interface {
	Frame(at time.Time, to string, frame []byte)
}

// Check returns an error that names what is wrong, its range and its unit.
func (c *Config) Check() error {
	if err := c.AB.Check(); err != nil {
		return fmt.Errorf("from %s to %s: %w", c.A, c.B, err)
	}
	if err := c.BA.Check(); err != nil {
		return fmt.Errorf("from %s to %s: %w", c.B, c.A, err)
	}
	if c.Every < 0 || c.Every > 0 && c.Every < 10*time.Millisecond {
		return fmt.Errorf("report of %v: it takes an interval of 10ms or more, or 0 for none but the last", c.Every)
	}
	return nil
}

// Report is what happened in a time.
type Report struct {
	At    time.Duration     // since the start
	Span  time.Duration     // that it is about: up to At
	Last  bool              // it is about all of the time
	Ways  [2]WayReport      // from A to B, and back
	Rules []fault.RuleStats // since the start
}

// Late is by how many nanoseconds packets left after they should have, for want of a
// processor, in the mean and at most. They are not later for it that follow: the line
// goes by when they should have.
type Late struct {
	Mean float64 `json:"mean"`
	Max  int64   `json:"max"`
}

// WayReport is what happened in one direction.
type WayReport struct {
	Counts
	Rate  float64 `json:"bits_per_second"` // of RoCEv2, IP packets
	Queue Queue   `json:"queue"`           // of the bottleneck
	Late  Late    `json:"late"`
}

func newWayReport(c Counts, q Queue, l Late, span time.Duration) WayReport {
	r := WayReport{Counts: c, Queue: q, Late: l}
	if span > 0 {
		r.Rate = float64(c.Octets) * 8 / span.Seconds()
	}
	return r
}
