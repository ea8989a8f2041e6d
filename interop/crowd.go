package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gorxe/gorxe/verbs"
)

// crowd returns n worlds with a connection each, over the same regions.
func (w *world) crowd(n int) ([]*world, error) {
	var out []*world
	for range n {
		if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
			return nil, err
		}
		c, req, rsp := *w, *w.req, *w.rsp
		c.req, c.rsp = &req, &rsp
		out = append(out, &c)
	}
	return out, nil
}

// reversed is w seen from its other end.
func (w *world) reversed() *world {
	c := *w
	c.req, c.rsp = w.rsp, w.req
	return &c
}

// all waits for n successful completions, whatever their order.
func (e *end) all(n int) error {
	wc, err := e.take(n)
	if err != nil {
		return err
	}
	for i := range wc {
		if err := wc[i].Err(); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return nil
}

// bothWays has 16 connections carry WRITEs, READs and SENDs of both ends at the
// same time, each to and from its own part of the regions.
func (w *world) bothWays() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	const n, part, slot = 16, regionSize / 16, regionSize / 16 / 8
	cs, err := w.crowd(n)
	if err != nil {
		return err
	}
	// Of the eight slots of a part, each end reads from three of its own that
	// nobody writes to, and has three others written to.
	type move struct {
		c        *world
		op       verbs.WROpcode
		off, len int
		from, to int // slots
	}
	var moves []move
	for i, c := range cs {
		for _, d := range []*world{c, c.reversed()} {
			for k, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRRead, verbs.WRSend} {
				moves = append(moves, move{d, op, i * part, 1 + w.rng.IntN(slot), k, 3 + k})
			}
		}
	}
	received := map[*end]int{}
	for i, t := range moves {
		if t.op == verbs.WRSend {
			received[t.c.rsp]++
			if err := t.c.postRecv(work{id: uint64(i), off: t.off + t.to*slot, len: slot}); err != nil {
				return err
			}
		}
	}
	for i, t := range moves {
		here, there := t.from, t.to
		if t.op == verbs.WRRead {
			here, there = t.to, t.from
		}
		if err := t.c.post(work{id: uint64(i), op: t.op, off: t.off + here*slot, len: t.len, remote: t.c.rsp.mem.Addr() + uint64(t.off+there*slot), rkey: t.c.rsp.mem.RKey()}); err != nil {
			return err
		}
		src, dst := m.req, m.rsp
		if (t.op == verbs.WRRead) == (t.c.req.name == w.req.name) {
			src, dst = dst, src
		}
		copy(dst[t.off+t.to*slot:], src[t.off+t.from*slot:t.off+t.from*slot+t.len])
	}
	for _, e := range []*end{w.req, w.rsp} {
		if err := e.all(n * 4); err != nil {
			return err
		}
	}
	if err := w.req.check(m.req, 0, regionSize); err != nil {
		return err
	}
	return w.rsp.check(m.rsp, 0, regionSize)
}

// sum has four connections add to a word at each end at the same time: every
// addition finds another value, and together they make the sum.
func (w *world) sum() error {
	if err := w.setUp(1 << 16); err != nil {
		return err
	}
	const qps, each, step = 4, 125, 0x100000001
	w.tune = func(e *end, o *verbs.ConnectOptions) {
		o.MaxRdAtomic, o.MaxDestRdAtomic = 16, 16
	}
	cs, err := w.crowd(qps)
	if err != nil {
		return err
	}
	zero := make([]byte, 1<<16)
	for _, e := range []*end{w.req, w.rsp} {
		if err := e.fill(zero); err != nil {
			return err
		}
	}
	for k, c := range cs {
		for _, d := range []*world{c, c.reversed()} {
			var adds []work
			for i := range each {
				adds = append(adds, work{id: uint64(i), op: verbs.WRFetchAdd, off: 64 + 8*(i*qps+k), len: 8, add: step, remote: d.rsp.mem.Addr(), rkey: d.rsp.mem.RKey()})
			}
			if err := d.post(adds...); err != nil {
				return err
			}
		}
	}
	for _, e := range []*end{w.req, w.rsp} {
		if err := e.all(qps * each); err != nil {
			return err
		}
	}
	for _, e := range []*end{w.req, w.rsp} {
		b, err := e.mem.Read(0, 64+8*qps*each)
		if err != nil {
			return err
		}
		if v := binary.NativeEndian.Uint64(b); v != qps*each*step {
			return fmt.Errorf("%s: the sum is %#x, not %#x", e.name, v, uint64(qps*each*step))
		}
		var found []uint64
		for b = b[64:]; len(b) > 0; b = b[8:] {
			found = append(found, binary.NativeEndian.Uint64(b))
		}
		slices.Sort(found)
		for i, v := range found {
			if v != uint64(i)*step {
				return fmt.Errorf("%s: the %d additions found %#x where %#x was to be expected", e.name, len(found), v, uint64(i)*step)
			}
		}
	}
	return nil
}

// depths has READs and atomics of both ends outstanding, as many as different
// depths allow, among WRITEs and SENDs; then a fence makes a WRITE wait for the
// READ whose data it sends on.
func (w *world) depths() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	for _, d := range [][2]int{{1, 1}, {1, 16}, {16, 4}, {16, 16}} {
		w.tune = func(e *end, o *verbs.ConnectOptions) {
			o.MaxRdAtomic, o.MaxDestRdAtomic = d[0], d[1]
			if e.name == w.rsp.name {
				o.MaxRdAtomic, o.MaxDestRdAtomic = d[1], d[0]
			}
		}
		if err := w.deep(); err != nil {
			return fmt.Errorf("depths %d and %d: %w", d[0], d[1], err)
		}
	}
	return nil
}

func (w *world) deep() error {
	if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	const n, slot = 40, 8192 // 5 quarters: what is read, what is written, words, and received
	read, written, words, received, landed := 0, n*slot, 2*n*slot, 3*n*slot, 4*n*slot
	both := []*world{w, w.reversed()}
	for _, d := range both {
		for i := range n {
			if i%4 == 3 {
				if err := d.postRecv(work{id: uint64(i), off: received + i*slot, len: slot}); err != nil {
					return err
				}
			}
		}
	}
	old := map[string][]byte{w.req.name: slices.Clone(m.req), w.rsp.name: slices.Clone(m.rsp)}
	now := map[string][]byte{w.req.name: m.req, w.rsp.name: m.rsp}
	for _, d := range both {
		var posted []work
		for i := range n {
			r := work{id: uint64(i), off: landed + i*slot/2, len: 1 + w.rng.IntN(slot/2), rkey: d.rsp.mem.RKey()}
			mine, theirs, before := now[d.req.name], now[d.rsp.name], old[d.rsp.name]
			at := 0
			switch i % 4 {
			case 0:
				r.op, at = verbs.WRRead, read+i*slot
				copy(mine[r.off:r.off+r.len], before[at:])
			case 1:
				r.op, r.off, at = verbs.WRWrite, read+i*slot, written+i*slot
				copy(theirs[at:], old[d.req.name][r.off:r.off+r.len])
			case 2:
				r.op, r.len, r.add, at = verbs.WRFetchAdd, 8, 1+uint64(i)<<33, words
				copy(mine[r.off:r.off+8], theirs[at:])
				binary.NativeEndian.PutUint64(theirs[at:], binary.NativeEndian.Uint64(theirs[at:])+r.add)
			case 3:
				r.op, r.off = verbs.WRSend, read+i*slot
				copy(theirs[received+i*slot:], old[d.req.name][r.off:r.off+r.len])
			}
			r.remote = d.rsp.mem.Addr() + uint64(at)
			posted = append(posted, r)
		}
		if err := d.post(posted...); err != nil {
			return err
		}
	}
	for _, e := range []*end{w.req, w.rsp} {
		if err := e.all(n + n/4); err != nil {
			return err
		}
	}
	if err := w.req.check(m.req, 0, regionSize); err != nil {
		return err
	}
	if err := w.rsp.check(m.rsp, 0, regionSize); err != nil {
		return err
	}
	for _, d := range both {
		if err := d.fenced(now[d.req.name], now[d.rsp.name]); err != nil {
			return fmt.Errorf("fence: %w", err)
		}
	}
	return nil
}

// fenced reads, and writes on what it read, behind a fence.
func (w *world) fenced(mine, theirs []byte) error {
	const size, from, via, to = 50000, 1 << 20, 1<<20 + 1<<16, 1<<20 + 1<<17
	rkey := w.rsp.mem.RKey()
	if err := w.post(work{id: 1, op: verbs.WRRead, off: via, len: size, remote: w.rsp.mem.Addr() + from, rkey: rkey}); err != nil {
		return err
	}
	if err := w.post(work{id: 2, op: verbs.WRWrite, flags: verbs.SendFence, off: via, len: size, remote: w.rsp.mem.Addr() + to, rkey: rkey}); err != nil {
		return err
	}
	if _, err := w.req.done(1, 2); err != nil {
		return err
	}
	copy(mine[via:], theirs[from:from+size])
	copy(theirs[to:], theirs[from:from+size])
	if err := w.req.check(mine, via, size); err != nil {
		return err
	}
	return w.rsp.check(theirs, to, size)
}
