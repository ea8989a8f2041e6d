package main

import (
	"fmt"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// claim is what a procedure says of the packets of a case, for whoever captured
// them to judge: how often a request was sent, and when.
type claim struct {
	What  string // the connection, in words
	To    uint32 // the number of the queue pair that the request goes to
	Back  uint32 // and of its own
	PSN   uint32 // of its one packet
	Least int    // sendings
	Most  int    // 0 any number

	// Timeout is the retransmission timeout T: the gap between two sendings is T
	// at least and 4T at most. 0 for none.
	Timeout time.Duration
	// RNR is the wait that the responder's RNR NAK asks for: each sending is
	// answered by one, and after it nothing is sent for so long. 0 for none.
	RNR time.Duration
	// Rough says that the sender counts time in ticks: gaps are told, not judged.
	Rough bool
}

// claims adds one about the request that the requester posts first on its newest
// queue pair.
func (w *world) claims(c claim) {
	c.To, c.Back, c.PSN = w.rsp.self.QPN, w.req.self.QPN, w.req.self.PSN
	_, c.Rough = w.req.side.(kernel)
	w.wire = append(w.wire, c)
}

// ackTimeout is the time that a timeout code stands for. IBA 9.7.6.1.3.
func ackTimeout(code uint8) time.Duration { return 4096 << code }

// silences are the retransmission timers and counts that are tried against a
// responder that is gone. rxe takes a retry_cnt of 7 for no limit.
var silences = []struct{ timeout, retries uint8 }{
	{12, 0}, {12, 1}, {12, 3}, {12, 7}, {13, 2}, {14, 3}, {15, 2}, {16, 1}, {17, 1}, {18, 1}, {0, 7},
}

// silent sends to responders that are gone: the request is sent once and
// retry_cnt times again, each after the timeout, then it fails. Without a timeout
// it is sent once, and nothing more happens.
func (w *world) silent() error {
	if err := w.setUp(regionOctets); err != nil {
		return err
	}
	_, rxe := w.req.side.(kernel)
	var qps []queue
	var ends int // of them
	var longest time.Duration
	for i, s := range silences {
		w.tune = func(_ *end, o *verbs.ConnectOptions) { o.Timeout, o.RetryCnt = s.timeout, s.retries }
		if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
			return err
		}
		qps = append(qps, w.req.qp)
		if err := w.rsp.qp.Destroy(); err != nil {
			return err
		}
		n := int(s.retries) + 1
		c := claim{What: fmt.Sprintf("timeout %d, retry_cnt %d", s.timeout, s.retries), Least: n, Most: n, Timeout: ackTimeout(s.timeout)}
		switch {
		case s.timeout == 0:
			c.Least, c.Most, c.Timeout = 1, 1, 0
		case rxe && s.retries == 7:
			c.Least, c.Most = 9, 0
		default:
			ends++
			longest = max(longest, time.Duration(n)*4*c.Timeout)
		}
		w.claims(c)
		if err := w.post(work{id: uint64(i), op: verbs.WRSend, len: 100}); err != nil {
			return err
		}
	}
	wcs, err := w.req.side.poll(ends, longest+completionWait)
	if err != nil || len(wcs) != ends {
		return fmt.Errorf("requester: %d of %d requests end, %w", len(wcs), ends, err)
	}
	for i := range wcs {
		if wcs[i].Status != verbs.WCRetryExcErr {
			return fmt.Errorf("requester: %s completes with %v", w.wire[wcs[i].ID].What, wcs[i].Status)
		}
	}
	for i, s := range silences {
		want := verbs.StateErr
		if s.timeout == 0 || rxe && s.retries == 7 {
			want = verbs.StateRTS
		}
		if st, err := qps[i].State(); err != nil || st != want {
			return fmt.Errorf("requester: %s: the queue pair is in %v, %w", w.wire[i].What, st, err)
		}
		if err := qps[i].Destroy(); err != nil {
			return err
		}
	}
	return w.req.idle()
}

// lates are the RNR counts and timers that are tried against a responder without
// receive requests.
var lates = []struct{ retries, timer uint8 }{{0, 12}, {1, 20}, {3, 16}, {6, 12}, {2, 24}, {7, 14}}

// forever is how many sendings there are to be of an rnr_retry of 7.
const forever = 16

// late sends to responders that have no receive request: the request is sent
// once and rnr_retry times again, each after the time that the responder asked
// for, then it fails; with 7 it is sent until there is one.
func (w *world) late() error {
	if err := w.setUp(regionOctets); err != nil {
		return err
	}
	before, err := w.rsp.tally("send_rnr_err", "send_rnr_err")
	if err != nil {
		return err
	}
	var last []end
	naks := uint64(forever) // in all
	for i, s := range lates {
		w.tune = func(_ *end, o *verbs.ConnectOptions) { o.RNRRetry, o.MinRNRTimer = s.retries, s.timer }
		if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
			return err
		}
		n := int(s.retries) + 1
		c := claim{What: fmt.Sprintf("rnr_retry %d, RNR timer %d", s.retries, s.timer), Least: n, Most: n, RNR: time.Duration(bth.RNRNanos(s.timer))}
		if s.retries == 7 {
			c.Least, c.Most = forever, 0
			last = []end{*w.req, *w.rsp}
		} else {
			naks += uint64(n)
		}
		w.claims(c)
		if err := w.post(work{id: uint64(i), op: verbs.WRSend, len: 100}); err != nil {
			return err
		}
	}
	wcs, err := w.req.take(len(lates) - 1)
	if err != nil {
		return err
	}
	for i := range wcs {
		if wcs[i].Status != verbs.WCRNRRetryExcErr {
			return fmt.Errorf("requester: %s completes with %v", w.wire[wcs[i].ID].What, wcs[i].Status)
		}
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err := w.req.idle(); err != nil {
			return fmt.Errorf("rnr_retry 7: %w", err)
		}
		now, err := w.rsp.tally("send_rnr_err", "send_rnr_err")
		if err != nil {
			return err
		}
		if now-before >= naks {
			break
		}
		if time.Since(begin) > completionWait {
			return fmt.Errorf("responder: %d RNR NAKs in %v, not %d", now-before, completionWait, naks)
		}
	}
	*w.req, *w.rsp = last[0], last[1]
	if err := w.postRecv(work{id: 77, len: 100}); err != nil {
		return err
	}
	if _, err := w.req.done(uint64(len(lates) - 1)); err != nil {
		return err
	}
	_, err = w.rsp.done(77)
	return err
}
