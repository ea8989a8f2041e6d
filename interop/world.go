package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/interop/peer"
	"github.com/gorxe/gorxe/verbs"
)

// Sizes of the regions that procedures work in: the larger half of a message's
// offset and the longest message.
const (
	maxMessage = 1 << 20
	regionSize = 2 * maxMessage
)

// completionWait is how long a completion may take. An emulated guest moves a
// few megabytes a second when the machine is busy.
const completionWait = 30 * time.Second

// end is one end of a connection.
type end struct {
	name  string // "requester" or "responder"
	side  side
	mem   memory
	qp    queue
	srq   shared // of the queue pairs that connect makes, or nil
	later bool   // they are connected to RTR only
	addr  netip.Addr
	self  verbs.Endpoint
}

// world is what a procedure works in: two ends, and what is random.
type world struct {
	ctx      context.Context
	req, rsp *end
	raw      *raw         // instead of the requester, where packets are made by hand
	typ      verbs.QPType // of the queue pairs that connect makes
	mtu      verbs.MTU
	timeout  uint8                             // of the queue pairs, as a code
	tune     func(*end, *verbs.ConnectOptions) // of the next connections, or nil
	rng      *rand.Rand
	lost     func() (toGuest, fromGuest uint64, err error) // faults: packets lost so far
	restart  func(*end) error                              // ends everything of an end, and begins anew
	silence  time.Duration                                 // how long nothing must happen for nothing to follow
	group    verbs.GID                                     // a multicast group that is this case's alone
	guest    int                                           // the guest's number
	host     int                                           // ours
	another  func() (*peer.Endpoint, error)                // another endpoint in the guest of its own
	jam      jam                                           // of a case of congestion
	note     string                                        // what a procedure wants said of its success
	wire     []claim                                       // what it says of the packets
}

// setUp registers the regions of both ends.
func (w *world) setUp(size int) error { return w.regions(size, verbs.AccessAll) }

func (w *world) regions(size int, a verbs.Access) error {
	for _, e := range []*end{w.req, w.rsp} {
		if e == nil {
			continue
		}
		m, err := e.side.regMR(size, a)
		if err != nil {
			return fmt.Errorf("%s: region: %w", e.name, err)
		}
		e.mem = m
	}
	return nil
}

// connect makes a new connection, with the given first PSN both ways.
func (w *world) connect(psn uint32) error {
	for _, p := range [][2]*end{{w.req, w.rsp}, {w.rsp, w.req}} {
		var err error
		if p[0].qp, err = p[0].side.createQP(w.typ, p[0].srq); err != nil {
			return fmt.Errorf("%s: queue pair: %w", p[0].name, err)
		}
		if p[0].self, err = p[0].qp.local(p[1].addr, psn); err != nil {
			return fmt.Errorf("%s: %w", p[0].name, err)
		}
	}
	o := verbs.DefaultConnectOptions()
	o.PathMTU, o.Timeout, o.MaxRdAtomic, o.MaxDestRdAtomic = w.mtu, w.timeout, 4, 4
	for _, p := range [][2]*end{{w.rsp, w.req}, {w.req, w.rsp}} {
		connect := p[0].qp.Connect
		if p[0].later {
			connect = p[0].qp.listen
		}
		if err := connect(p[0].self, p[1].self, w.tuned(p[0], o)); err != nil {
			return fmt.Errorf("%s: connect: %w", p[0].name, err)
		}
	}
	return nil
}

func (w *world) tuned(e *end, o verbs.ConnectOptions) verbs.ConnectOptions {
	if w.tune != nil {
		w.tune(e, &o)
	}
	return o
}

// ready is setUp and connect with random PSNs.
func (w *world) ready(size int) error {
	if err := w.setUp(size); err != nil {
		return err
	}
	return w.connect(w.rng.Uint32() & 0xffffff)
}

// bytes returns n random octets.
func (w *world) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

// length draws the length of a message, 1 octet to a megabyte: a third of them
// are short, a third have each order of magnitude as often as any other, a
// third are evenly spread.
func (w *world) length() int {
	switch w.rng.IntN(3) {
	case 0:
		return 1 + w.rng.IntN(64)
	case 1:
		n := 1 << w.rng.IntN(20)
		return n + w.rng.IntN(n)
	default:
		return 1 + w.rng.IntN(maxMessage)
	}
}

// post posts send requests at the requester, together.
func (w *world) post(rs ...work) error {
	var l []*work
	for _, r := range rs {
		r.mem = w.req.mem
		l = append(l, &r)
	}
	if err := w.req.qp.send(l...); err != nil {
		return fmt.Errorf("%s: post %v %d: %w", w.req.name, rs[0].op, rs[0].id, err)
	}
	return nil
}

// postRecv posts a receive request at the responder.
func (w *world) postRecv(r work) error {
	r.mem = w.rsp.mem
	if err := w.rsp.qp.recv(&r); err != nil {
		return fmt.Errorf("responder: post receive %d: %w", r.id, err)
	}
	return nil
}

// take waits for n completions and returns them.
func (e *end) take(n int) ([]verbs.WC, error) {
	wc, err := e.side.poll(n, completionWait)
	if err != nil {
		return nil, fmt.Errorf("%s: poll: %w", e.name, err)
	}
	if len(wc) < n {
		st, _ := e.qp.State()
		return nil, fmt.Errorf("%s: %d of %d completions in %v; the queue pair is in %v", e.name, len(wc), n, completionWait, st)
	}
	return wc, nil
}

// done waits for successful completions with these ids, in this order, and
// returns them.
func (e *end) done(ids ...uint64) ([]verbs.WC, error) {
	wc, err := e.take(len(ids))
	if err != nil {
		return nil, err
	}
	for i := range wc {
		if err := wc[i].Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if wc[i].ID != ids[i] {
			return nil, fmt.Errorf("%s: completion %d is of request %d, not %d", e.name, i, wc[i].ID, ids[i])
		}
	}
	return wc, nil
}

// idle checks that no completion is there.
func (e *end) idle() error {
	wc, err := e.side.poll(1, 0)
	if err == nil && len(wc) > 0 {
		err = fmt.Errorf("a completion that nobody waits for: %+v", wc[0])
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// fill puts b at the start of an end's region.
func (e *end) fill(b []byte) error {
	if err := e.mem.Write(0, b); err != nil {
		return fmt.Errorf("%s: write memory: %w", e.name, err)
	}
	return nil
}

// guard is how far around a message memory is compared too.
const guard = 64

// check compares the region with what it should be, model, at
// [off, off+n) and a little around.
func (e *end) check(model []byte, off, n int) error {
	lo, hi := max(off-guard, 0), min(off+n+guard, len(model))
	got, err := e.mem.Read(lo, hi-lo)
	if err != nil {
		return fmt.Errorf("%s: read memory: %w", e.name, err)
	}
	if bytes.Equal(got, model[lo:hi]) {
		return nil
	}
	bad, first := 0, -1
	for i := range got {
		if got[i] != model[lo+i] {
			if bad++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Errorf("%s: %d of the %d octets at %d are wrong, the first %d into the message: %#02x, not %#02x",
		e.name, bad, hi-lo, off, lo+first-off, got[first], model[lo+first])
}
