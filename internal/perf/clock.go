package perf

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// clock measures a run. A timed run has a margin at either end that does not
// count:
//
//	start ---margin--- sampling ------ sampled ---margin--- over
type clock struct {
	on atomic.Bool // what completes counts

	mu         sync.Mutex
	begin, end time.Duration
	begun      bool
	ended      bool
	timers     []*time.Timer
}

func (c *clock) sampling() bool { return c.on.Load() }

// elapsed is how long has been measured at now.
func (c *clock) elapsed(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.begun:
		return 0
	case c.ended:
		now = c.end
	}
	return now - c.begin
}

func (c *clock) restart(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin, c.begun, c.ended = now, true, false
}

func (c *clock) stop(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun && !c.ended {
		c.end, c.ended = now, true
	}
}

// after does f when d has passed, unless reset comes first.
func (c *clock) after(d time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, time.AfterFunc(d, f))
}

func (c *clock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		t.Stop()
	}
	c.timers = nil
	c.begun, c.ended = false, false
	c.on.Store(false)
}

// startClock starts to measure: at once, or when the first margin of a timed
// run is over.
func (r *run) startClock() {
	c := r.cfg
	switch {
	case c.Infinite:
		r.clock.restart(r.now())
		r.clock.on.Store(true)
		r.tick()
	case c.timed():
		r.clock.after(c.Margin, func() {
			r.clock.restart(r.now())
			r.clock.on.Store(true)
		})
		r.clock.after(c.Duration-c.Margin, func() {
			r.clock.on.Store(false)
			r.clock.stop(r.now())
		})
		end := r.end
		r.clock.after(c.Duration, func() { end(errOver) })
	default:
		r.clock.restart(r.now())
	}
}

// tick asks for a row every Duration.
func (r *run) tick() {
	r.clock.after(r.cfg.Duration, func() {
		r.second.Store(true)
		r.tick()
	})
}

func (r *run) stopClock() { r.clock.stop(r.now()) }

// cause is why a wait ended: what ended the run's context, if that did.
func (r *run) cause(err error) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	return err
}
