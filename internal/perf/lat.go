package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorxe/gorxe/internal/perf/report"
)

// latency is one run of a latency tool. The samples are the times from one
// posting to the next.
func (r *run) latency() (*report.Samples, error) {
	k := r.cfg.Kind
	room := int(r.iters)
	if r.cfg.timed() {
		room = 0
	}
	s := report.NewSamples(r.size, room, k.Send() || writes(k))
	turn := r.trip // READ, atomics
	switch {
	case r.cfg.messages():
		turn = r.exchange
	case writes(k):
		turn = r.volley
	}
	if r.waits = r.cfg.messages() && !r.first(); !r.waits {
		r.startClock()
	}
	last := r.now()
	r.stamp = func() {
		now := r.now()
		if r.flows[0].posted > 0 && (!r.cfg.timed() || r.clock.sampling()) {
			s.Add(now - last)
		}
		last = now
	}
	var err error
	for k := uint64(0); err == nil && (r.cfg.timed() || k < r.iters); k++ {
		err = turn(k)
		if r.ended.Load() && err == nil {
			err = r.cause(r.ctx.Err())
		}
	}
	r.stopClock()
	switch {
	case errors.Is(err, errOver):
		err = nil
	case errors.Is(err, errQuiet):
		err = fmt.Errorf("nothing comes any more %s: a message was lost, and %v does not repeat what is lost", r.progress(r.sent+r.arrived), r.cfg.Transport)
	}
	return s, err
}

// post sends the one message that may be under way.
func (r *run) post() error {
	r.stamp()
	if err := r.send(&r.flows[0], 1); err != nil {
		return err
	}
	r.posted++
	return nil
}

// trip is one READ or atomic.
func (r *run) trip(k uint64) error {
	if err := r.post(); err != nil {
		return err
	}
	return r.until(func() bool { return r.flows[0].done > k })
}

// first reports whether this end sends first: perftest's client of SEND does,
// and its server of WRITE, with and without immediate data.
func (r *run) first() bool { return r.cfg.server() == writes(r.cfg.Kind) }

// exchange is one message each way that takes a receive request.
func (r *run) exchange(k uint64) error {
	f := &r.flows[0]
	arrived := func() bool { return f.recvd > k }
	if !r.first() {
		if err := r.until(arrived); err != nil {
			return err
		}
	}
	if err := r.post(); err != nil {
		return err
	}
	if err := r.until(func() bool { return f.done > k }); err != nil {
		return err
	}
	if !r.first() {
		return nil
	}
	return r.until(arrived)
}

func (r *run) until(done func() bool) error {
	for !done() {
		if err := r.wait(); err != nil {
			return err
		}
	}
	return nil
}

// volley is one WRITE each way. Nothing tells the target
// of a WRITE that it is there but its last octet, the number of the message,
// which is written last.
func (r *run) volley(k uint64) error {
	f := &r.flows[0]
	if !r.first() {
		if err := r.watchOctet(f, k); err != nil {
			return err
		}
	}
	last := f.from.at(k) - r.mr.Addr() + r.size - 1
	r.mem[last] = byte(k + 1)
	if err := r.post(); err != nil {
		return err
	}
	if err := r.until(func() bool { return f.done > k }); err != nil {
		return err
	}
	if r.first() {
		return r.watchOctet(f, k)
	}
	return nil
}

// watchOctet polls the last octet of message k in this end's memory. Polling
// the completion queue is what moves the device meanwhile.
func (r *run) watchOctet(f *flow, k uint64) error {
	off := r.layout.into(f.index) + r.size - 1
	for i := 0; load(r.mem, off) != byte(k+1); i++ {
		if err := r.glance(i >= patience); err != nil {
			return err
		}
	}
	f.recvd++
	r.arrived++
	r.moved.Store(r.sent + r.arrived)
	if r.cfg.Check {
		return r.checkWritten(f, k)
	}
	return nil
}

// After patience polls, a tenth of a second or so, one that polls memory leaves
// the device to itself and looks every nap.
const (
	patience = 1 << 17
	nap      = time.Millisecond
)

// glance takes the completions that there are, asleep for a nap if told to.
func (r *run) glance(asleep bool) error {
	var n int
	if asleep {
		ctx, cancel := context.WithTimeout(r.ctx, nap)
		k, err := r.cq.Wait(ctx, r.wcs[:])
		cancel()
		if n = k; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return r.cause(err)
		}
	} else {
		n = r.cq.Poll(r.wcs[:])
	}
	for i := range r.wcs[:n] {
		if err := r.complete(&r.wcs[i]); err != nil {
			return err
		}
	}
	if r.ended.Load() {
		return r.cause(r.ctx.Err())
	}
	return nil
}

// load reads an octet that the device may be writing. The race detector is not
// told: memory is all that the two have in common here.
//
//go:norace
//go:noinline
func load(mem []byte, off uint64) byte { return mem[off] }
