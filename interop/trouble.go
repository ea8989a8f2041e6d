package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// states checks the states of both queue pairs.
func (w *world) states(req, rsp verbs.QPState) error {
	for _, s := range []struct {
		e    *end
		want verbs.QPState
	}{{w.req, req}, {w.rsp, rsp}} {
		st, err := s.e.qp.State()
		if err != nil {
			return err
		}
		if st != s.want {
			return fmt.Errorf("%s: queue pair is in %v, not %v", s.e.name, st, s.want)
		}
	}
	return nil
}

// fails waits for a completion with a status, then flushed ones, all in order.
func (e *end) fails(status verbs.WCStatus, ids ...uint64) error {
	wc, err := e.take(len(ids))
	if err != nil {
		return err
	}
	for i := range wc {
		want := verbs.WCWRFlushErr
		if i == 0 {
			want = status
		}
		if wc[i].ID != ids[i] || wc[i].Status != want {
			return fmt.Errorf("%s: completion %d is of request %d with %v, not of %d with %v", e.name, i, wc[i].ID, wc[i].Status, ids[i], want)
		}
	}
	return nil
}

// works moves a little both ways.
func (w *world) works() error {
	m, err := w.filled()
	if err != nil {
		return err
	}
	for _, d := range []*world{w, w.reversed()} {
		n := &models{m.req, m.rsp}
		if d.req.name != w.req.name {
			n = &models{m.rsp, m.req}
		}
		var ts []transfer
		for i, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRRead, verbs.WRSend} {
			ts = append(ts, transfer{id: uint64(100 + i), op: op, len: 20000, reqOff: i << 16, rspOff: i<<16 + 1<<15})
		}
		if err := d.move(n, ts); err != nil {
			return err
		}
	}
	return nil
}

// notReady sends before a receive request is there: the responder says so, and
// takes the message once there is one, over and over.
func (w *world) notReady() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	id := uint64(0)
	for _, timer := range []uint8{1, 12, 20} {
		w.tune = func(_ *end, o *verbs.ConnectOptions) { o.MinRNRTimer = timer }
		if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
			return err
		}
		for _, n := range []int{0, 100, 20 * int(w.mtu), 200000} {
			for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRWriteImm, verbs.WRSendImm} {
				id++
				off := int(id) * 1000
				if err := w.post(work{id: id, op: op, off: off, len: n, imm: uint32(id), remote: w.rsp.mem.Addr() + uint64(2*off), rkey: w.rsp.mem.RKey()}); err != nil {
					return err
				}
				if wc, err := w.req.side.poll(1, 15*time.Millisecond); err != nil || len(wc) > 0 {
					return fmt.Errorf("%v completes without a receive request: %+v, %w", op, wc, err)
				}
				if err := w.postRecv(work{id: id, off: 2 * off, len: n}); err != nil {
					return err
				}
				if _, err := w.req.done(id); err != nil {
					return err
				}
				if _, err := w.rsp.done(id); err != nil {
					return err
				}
				copy(m.rsp[2*off:], m.req[off:off+n])
				if err := w.rsp.check(m.rsp, 2*off, n); err != nil {
					return fmt.Errorf("timer %d, %v of %d octets: %w", timer, op, n, err)
				}
			}
		}
	}
	return nil
}

// neverReady sends where no receive request comes: after the retries that were
// agreed, no sooner, the requester gives up; the responder can go on.
func (w *world) neverReady() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	for _, c := range []struct {
		retries uint8
		timer   uint8
		least   time.Duration
	}{{0, 1, 0}, {2, 20, 20480 * time.Microsecond}, {2, 12, 1280 * time.Microsecond}, {6, 1, 0}} {
		w.tune = func(_ *end, o *verbs.ConnectOptions) { o.RNRRetry, o.MinRNRTimer = c.retries, c.timer }
		if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
			return err
		}
		begin := time.Now()
		for i, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRSend, verbs.WRSend, verbs.WRRead} {
			if err := w.post(work{id: uint64(i), op: op, len: 3000, remote: w.rsp.mem.Addr(), rkey: w.rsp.mem.RKey()}); err != nil {
				return err
			}
		}
		if _, err := w.req.done(0); err != nil {
			return err
		}
		if err := w.req.fails(verbs.WCRNRRetryExcErr, 1, 2, 3); err != nil {
			return err
		}
		if d := time.Since(begin); d < c.least {
			return fmt.Errorf("requester: %d retries with timer %d took only %v", c.retries, c.timer, d)
		}
		if err := w.states(verbs.StateErr, verbs.StateRTS); err != nil {
			return err
		}
		if err := w.rsp.idle(); err != nil {
			return err
		}
	}
	return nil
}

// vanishes takes the responder's queue pair away in the middle of a long
// transfer: the requester gives up within its retries, what follows is flushed,
// and a new connection with the same PSNs works.
func (w *world) vanishes() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	for i, vanish := range []func(queue) error{
		queue.Destroy,
		func(q queue) error { return q.MoveTo(verbs.StateErr) },
		func(q queue) error { return q.MoveTo(verbs.StateReset) },
	} {
		for _, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRRead} {
			if err := w.vanish(op, vanish); err != nil {
				return fmt.Errorf("way %d, %v: %w", i, op, err)
			}
		}
	}
	return nil
}

// restarts ends the responder's device in the middle of a transfer and opens it
// again: the same end for the requester.
func (w *world) restarts() error {
	for _, op := range []verbs.WROpcode{verbs.WRRead, verbs.WRWrite} {
		if err := w.setUp(regionSize); err != nil {
			return err
		}
		if err := w.vanish(op, func(queue) error { return w.restart(w.rsp) }); err != nil {
			return fmt.Errorf("%v: %w", op, err)
		}
	}
	return nil
}

func (w *world) vanish(op verbs.WROpcode, vanish func(queue) error) error {
	psn := w.rng.Uint32() & 0xffffff
	w.tune = func(_ *end, o *verbs.ConnectOptions) { o.Timeout, o.RetryCnt = 14, 2 }
	if err := w.connect(psn); err != nil {
		return err
	}
	// What is posted before may all be done in time; what is posted afterwards
	// cannot be.
	const n, late = 30, 2
	post := func(from, to int) error {
		for i := from; i < to; i++ {
			if err := w.post(work{id: uint64(i), op: op, len: regionSize, remote: w.rsp.mem.Addr(), rkey: w.rsp.mem.RKey()}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := post(0, n); err != nil {
		return err
	}
	if _, err := w.req.done(0); err != nil {
		return err
	}
	begin := time.Now()
	if err := vanish(w.rsp.qp); err != nil {
		return err
	}
	if err := post(n, n+late); err != nil {
		return err
	}
	wc, err := w.req.take(n + late - 1)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	failed := false
	for i := range wc {
		want := verbs.WCWRFlushErr
		if !failed {
			failed = wc[i].Status != verbs.WCSuccess
			want = verbs.WCRetryExcErr
		}
		if wc[i].ID != uint64(i+1) || failed && wc[i].Status != want {
			return fmt.Errorf("requester: completion %d is of request %d with %v, not %v", i, wc[i].ID, wc[i].Status, want)
		}
	}
	if !failed {
		return errors.New("everything was done, though the responder had vanished")
	}
	w.note = fmt.Sprintf("gave up in %v", took.Round(time.Millisecond))
	if limit := 3 * time.Second; took > limit {
		return fmt.Errorf("requester: gave up after %v", took)
	}
	if st, err := w.req.qp.State(); err != nil || st != verbs.StateErr {
		return fmt.Errorf("requester: queue pair is in %v, %w", st, err)
	}
	if err := w.rsp.idle(); err != nil {
		return err
	}
	w.tune = nil
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	if err := w.connect(psn); err != nil {
		return err
	}
	return w.works()
}
