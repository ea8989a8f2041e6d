package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorxe/gorxe/internal/perf/report"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

const (
	// lossWait is how long nothing must have come before UC and UD messages
	// count as lost; it allows for a peer that stands still in an emulator.
	lossWait = 5 * time.Second

	// goneLimit is how long a peer that has closed the TCP connection may be
	// silent: above the time in which a transport with timeout 14 and 7 retries
	// gives up. perftest's write_lat closes when it has everything, which may
	// be before this end has.
	goneLimit = 5 * time.Second

	// aheadLimit is the same for a peer that is done with its run.
	aheadLimit = time.Second

	// lingerTime is for a peer that may have missed the last ACK, and repeats
	// its message within 4 times its timeout of 67 ms. IBA 9.7.6.1.3.
	lingerTime = 300 * time.Millisecond
)

// errQuiet ends a run over UC or UD whose last messages were lost.
var errQuiet = errors.New("perf: nothing comes any more")

// within runs f with a context that ends when the peer is gone or silent.
func (r *run) within(f func() error) error {
	r.ctx, r.end = context.WithCancelCause(r.parent)
	r.ended.Store(false)
	ctx, end := r.ctx, r.end
	stop := context.AfterFunc(ctx, func() { r.ended.Store(true) })
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.watch(ctx, end)
	}()
	err := f()
	end(nil)
	<-over
	stop()
	r.clock.reset()
	return err
}

// watch ends a run, with a cause, when the peer is silent. A requester over RC
// finds out by itself that nothing answers; nothing tells who waits for a
// message, or is answered by RNR NAKs for ever.
func (r *run) watch(ctx context.Context, end context.CancelCauseFunc) {
	c := r.cfg
	p := report.NewProgress(c.Progress, c.Progress != nil, r.expected())
	defer p.Done()
	t := time.NewTicker(max(min(c.Timeout, time.Second)/8, time.Millisecond))
	defer t.Stop()
	var gone error
	moved, last, asked := r.moved.Load(), time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now()
		if m := r.moved.Load(); m != moved {
			moved, last = m, now
		}
		if now.Sub(asked) > time.Second && gone == nil {
			gone, asked = r.conn.Alive(), now
		}
		p.Update(now, moved, moved*r.size)
		silent := now.Sub(last)
		switch {
		case gone != nil && c.Infinite:
			end(errOver) // that is how it ends
		case gone != nil && (r.blind() || silent > min(goneLimit, c.Timeout)):
			end(r.leftBy(gone, moved))
		case c.lossy() && r.takes() && (moved != 0 || r.conn.Ahead() && !c.Both) && silent > r.lossLimit():
			end(errQuiet)
		case silent > c.Timeout:
			end(r.silence(silent, moved))
		default:
			continue
		}
		return
	}
}

// await takes a step of the exchange at which the peer may arrive much later,
// since it is still measuring, and ends the test when neither the step nor a
// request to this end's memory or receives comes for Config.Timeout. TCP notices
// a host that is down, but not a program that is stopped.
func (r *run) await(step func() error) error {
	limit := r.cfg.Timeout
	if r.cfg.lossy() {
		limit += lossWait // until the peer knows that nothing comes any more
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(max(min(limit/8, time.Second), time.Millisecond))
		defer t.Stop()
		came, last := r.served(), time.Now()
		for {
			select {
			case <-over:
				return
			case now := <-t.C:
				if n := r.served(); n != came {
					came, last = n, now
				}
				if silent := now.Sub(last); silent > limit {
					r.abort(fmt.Errorf("the peer said nothing for %v, and no request came, after %d of them: is the peer stopped?", silent.Round(100*time.Millisecond), came))
					return
				}
			}
		}
	}()
	err := step()
	close(over)
	<-done
	return err
}

// served counts the packets of requests that came.
func (r *run) served() (n uint64) {
	for i := range r.flows {
		if s, err := r.flows[i].qp.Stats(); err == nil {
			n += s["rcvd_requests"]
		}
	}
	return n
}

// takes reports whether messages arrive at this end.
func (r *run) takes() bool {
	c := r.cfg
	return c.messages() && (c.server() || c.Both || c.Kind.Latency())
}

// blind reports whether this end only sends, and without acknowledgements: that
// it goes on says nothing of the peer.
func (r *run) blind() bool { return r.cfg.lossy() && !r.cfg.Kind.Latency() && !r.takes() }

func (r *run) lossLimit() time.Duration {
	if r.conn.Ahead() {
		return min(aheadLimit, r.cfg.Timeout)
	}
	return min(lossWait, r.cfg.Timeout)
}

// expected is how many completions a run has, 0 if a clock ends it.
func (r *run) expected() uint64 {
	if r.cfg.timed() {
		return 0
	}
	n := r.iters * uint64(len(r.flows))
	if r.cfg.Both || r.cfg.Kind.Latency() && (r.takes() || writes(r.cfg.Kind)) {
		n *= 2
	}
	return n
}

// progress says in words how far a run is.
func (r *run) progress(moved uint64) string {
	if n := r.expected(); n > 0 {
		return fmt.Sprintf("after %d of %d messages", moved, n)
	}
	return fmt.Sprintf("after %d messages", moved)
}

func (r *run) leftBy(gone error, moved uint64) error {
	return fmt.Errorf("%s: %w", r.progress(moved), gone)
}

func (r *run) silence(d time.Duration, moved uint64) error {
	d = d.Round(100 * time.Millisecond)
	if s, err := r.flows[0].qp.Stats(); err == nil && s["rcvd_rnr_err"] > 0 {
		return fmt.Errorf("the peer has had no receive for our messages for %v (RNR NAK), %s: is it stopped, or been given a smaller -n?", d, r.progress(moved))
	}
	why := "the same tool, -n, -s, -q and -D on both sides?"
	if r.cfg.Faults != "" {
		why = "the fault rules of this side break traffic on purpose: " + r.cfg.Faults
	}
	return fmt.Errorf("nothing came from the peer for %v, %s: %s", d, r.progress(moved), why)
}

// failure is the error of a failed request, with what the reason alone cannot
// know: the parameters that commonly differ between the two ends.
func (r *run) failure(w *verbs.WC) error {
	err := w.Err()
	var s *verbs.StatusError
	if r.cfg.Faults != "" && w.Status == verbs.WCRetryExcErr && errors.As(err, &s) {
		s.Reason = trace.None // it looks for the cause in the network
	}
	return fmt.Errorf("%w\n  after %d sent and %d received\n  check: %s", err, r.sent, r.arrived, r.hint(w))
}

func (r *run) hint(w *verbs.WC) string {
	if r.cfg.Faults != "" {
		return "the fault rules of this side break traffic on purpose: " + r.cfg.Faults
	}
	switch w.Status {
	case verbs.WCRetryExcErr:
		return fmt.Sprintf("does the peer still run, is %v its address on this network, by a GID of RoCE v2 (-x on both sides), does UDP port 4791 pass, do packets of path MTU %d (-m)?",
			r.flows[0].dest.GID.Addr(), r.peer.MTU)
	case verbs.WCLocLenErr, verbs.WCRemInvReqErr, verbs.WCRemAccessErr, verbs.WCWRFlushErr:
		return "the same tool, -s, -a, -n, -q and -o on both sides?"
	}
	return "what does the peer print?"
}

// linger keeps the device alive after the last message of a pair whose tool has
// no step after it, if packets were lost: the peer may have missed an ACK.
func (r *run) linger() {
	if !writes(r.cfg.Kind) || !r.cfg.Kind.Latency() || r.cfg.lossy() {
		return
	}
	s, err := r.flows[0].qp.Stats()
	if err != nil || s["repeated_requests"]+s["duplicate_request"]+s["out_of_sequence"] == 0 {
		return
	}
	select {
	case <-time.After(lingerTime):
	case <-r.parent.Done():
	}
}
