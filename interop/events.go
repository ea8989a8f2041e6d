package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// occasion is what raises an asynchronous event at the responder.
type occasion struct {
	name string
	run  func(*world) error
	want verbs.EventType
	rxe  bool // rxe raises it too
}

var occasions = []occasion{
	{"first message in RTR", (*world).firstMessage, verbs.EventCommEst, false},
	{"send queue drained", func(w *world) error { return w.rsp.qp.MoveTo(verbs.StateSQD) }, verbs.EventSQDrained, true},
	{"error with a shared receive queue", (*world).errWithSRQ, verbs.EventLastWQE, true},
	{"shared receive queue below its limit", (*world).belowLimit, verbs.EventSRQLimit, true},
	{"completion queue overrun", (*world).overrun, verbs.EventCQErr, true},
}

// events brings about what has an asynchronous event and is no refused request,
// at each end in turn.
func (w *world) events() error {
	if err := w.setUp(regionOctets); err != nil {
		return err
	}
	var errs []error
	for _, d := range []*world{w, w.reversed()} {
		for i := range occasions {
			if err := d.occurs(&occasions[i]); err != nil {
				errs = append(errs, fmt.Errorf("%s, at the %s: %w", occasions[i].name, d.rsp.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (w *world) occurs(o *occasion) error {
	w.tune, w.rsp.srq, w.rsp.later = nil, nil, o.want == verbs.EventCommEst
	defer func() { w.rsp.srq, w.rsp.later = nil, false }()
	if o.want == verbs.EventLastWQE || o.want == verbs.EventSRQLimit {
		if err := w.share(); err != nil {
			return err
		}
	}
	if o.want == verbs.EventCQErr {
		w.tune = func(_ *end, c *verbs.ConnectOptions) { c.Timeout, c.RetryCnt = 12, 1 }
		if err := w.rsp.side.useCQ(shallow); err != nil {
			return err
		}
		defer func() { _ = w.rsp.side.useCQ(256) }()
	}
	if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
		return err
	}
	if _, err := w.rsp.side.events(); err != nil {
		return err
	}
	if err := o.run(w); err != nil {
		return err
	}
	var got, want []verbs.EventType
	if _, kernel := w.rsp.side.(kernel); !kernel || o.rxe {
		want = []verbs.EventType{o.want}
	}
	for begin := time.Now(); time.Since(begin) < w.silence; time.Sleep(time.Millisecond) {
		es, err := w.rsp.side.events()
		if err != nil {
			return err
		}
		for _, e := range es {
			got = append(got, e.Type)
		}
		if slices.Contains(got, o.want) {
			break
		}
	}
	if !slices.Contains(got, o.want) && len(want) > 0 || len(want) == 0 && len(got) > 0 {
		return fmt.Errorf("events are %v, not %v", got, want)
	}
	return nil
}

// A completion queue that is to overrun is shallow; devices make it deeper than
// they are asked to.
const shallow, plenty = 7, 100

// tiny sends empty messages, as many as there are ids, and takes what the
// requester completes with.
func (w *world) tiny(n int, recv func(work) error) error {
	var ids []uint64
	for i := range n {
		r := work{id: uint64(i)}
		if err := recv(r); err != nil {
			return err
		}
		r.op = verbs.WRSend
		if err := w.post(r); err != nil {
			return err
		}
		ids = append(ids, r.id)
	}
	_, err := w.req.done(ids...)
	return err
}

func (w *world) firstMessage() error {
	if err := w.tiny(1, w.postRecv); err != nil {
		return err
	}
	_, err := w.rsp.done(0)
	return err
}

func (w *world) errWithSRQ() error { return w.rsp.qp.MoveTo(verbs.StateErr) }

func (w *world) belowLimit() error {
	for i := range 4 {
		if err := w.postShared(work{id: uint64(i)}); err != nil {
			return err
		}
	}
	if err := w.rsp.srq.SetLimit(4); err != nil {
		return err
	}
	if err := w.tiny(1, w.postShared); err != nil {
		return err
	}
	if err := w.tiny(1, func(work) error { return nil }); err != nil {
		return err
	}
	_, err := w.rsp.done(0, 1)
	return err
}

// overrun has more complete at the responder than its completion queue holds.
func (w *world) overrun() error {
	for i := range plenty {
		if err := w.postRecv(work{id: uint64(i)}); err != nil {
			return err
		}
	}
	for i := range plenty {
		if err := w.post(work{id: uint64(i), op: verbs.WRSend}); err != nil {
			return err
		}
	}
	_, err := w.req.take(plenty)
	return err
}
