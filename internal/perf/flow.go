package perf

import (
	"errors"
	"fmt"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// A work request's ID: number of the message, direction, queue pair.
const (
	idFlow   = 1<<15 - 1 // index of the flow, or of the inbox
	idRecv   = 1 << 15
	idNotice = 1 << 16 // a word of a check, not a message
	idShift  = 17
)

// flow is one queue pair and what goes over it in a run.
type flow struct {
	qp    *verbs.QP
	index int
	dest  oob.Dest // the peer's
	ah    *verbs.AH

	depth        uint64 // sends outstanding at most
	posted, done uint64 // sends of this run
	recvd        uint64 // messages that arrived in this run
	from, to     ring   // in this end's memory, and the peer's
	lkey         uint32
	wrs          []verbs.SendWR // a post list
	sges         []verbs.SGE

	in    *inbox
	check flowCheck
}

// inbox is where receives are posted: a queue pair, or the SRQ of all.
type inbox struct {
	post         func([]verbs.RecvWR) (int, error)
	depth        uint64 // receives outstanding at most
	armed, taken uint64 // receives posted, and used up, since the beginning
	limit        uint64 // armed at the end of this run
	ring         ring
	wr           [1]verbs.RecvWR
	sge          [1]verbs.SGE
}

// prepare makes a flow ready for a run of messages of r.size octets.
func (r *run) prepare(f *flow) {
	c := r.cfg
	f.posted, f.done, f.recvd = 0, 0, 0
	f.from = r.ring(r.mr.Addr()+r.layout.from(f.index), c.TxDepth, false)
	f.to = r.remoteRing(f)
	f.depth = uint64(c.TxDepth)
	if c.Check {
		f.depth = min(f.depth, f.from.slots)
		if writes(c.Kind) || atomics(c.Kind) {
			f.depth = min(f.depth, f.to.slots)
		}
	}
	for j := range f.wrs {
		f.sges[j] = verbs.SGE{Length: uint32(r.size), LKey: f.lkey}
		w := &f.wrs[j]
		*w = verbs.SendWR{Opcode: r.opcode(), SGL: f.sges[j : j+1], RKey: f.dest.RKey}
		if c.CmpSwap {
			w.CompareAdd, w.Swap = 0, 0
		} else if atomics(c.Kind) {
			w.CompareAdd = 1
		}
		if r.inline() {
			w.Flags, w.SGL = verbs.SendInline, nil
		}
		if f.ah != nil {
			w.AH, w.RemoteQPN, w.RemoteQKey = f.ah.Handle(), f.dest.QPN, qkey
		}
	}
	r.prepareCheck(f)
}

// remoteRing is where messages lie in the peer's memory: as in this end's, but
// for a check in as many slots as both have.
func (r *run) remoteRing(f *flow) ring {
	g := r.ring(f.dest.VAddr, r.cfg.TxDepth, false)
	if r.cfg.Check && !r.cfg.messages() {
		l, longest := r.layout, r.stride(r.layout, uint64(r.cfg.Size), true)
		depth := min(r.cfg.TxDepth, r.peerDepth)
		part := max(roundUp(max(longest, l.cycle), l.line), longest*l.checkSlots(longest, depth))
		g.slots = max(1, min(l.checkSlots(g.stride, depth), part/g.stride))
	}
	return g
}

func (r *run) opcode() verbs.WROpcode {
	switch k := r.cfg.Kind; {
	case k.Send() && r.cfg.Check:
		return verbs.WRSendImm // tells which message it is
	case k.Send():
		return verbs.WRSend
	case reads(k):
		return verbs.WRRead
	case atomics(k) && r.cfg.CmpSwap:
		return verbs.WRCmpSwap
	case atomics(k):
		return verbs.WRFetchAdd
	case r.cfg.WriteImm:
		return verbs.WRWriteImm
	}
	return verbs.WRWrite
}

// inline reports whether messages of this run are copied when they are posted.
func (r *run) inline() bool {
	return r.size <= uint64(r.cfg.Inline) && !reads(r.cfg.Kind) && !atomics(r.cfg.Kind)
}

// send posts the flow's next list of n messages.
func (r *run) send(f *flow, n int) error {
	for j := range f.wrs[:n] {
		k := f.posted + uint64(j)
		w := &f.wrs[j]
		w.ID = k<<idShift | uint64(f.index)
		at := f.from.at(k)
		f.sges[j].Addr = at
		w.RemoteAddr = f.to.at(k)
		w.Flags &^= verbs.SendSignaled
		if r.signaled(k) {
			w.Flags |= verbs.SendSignaled
		}
		if r.cfg.Check {
			r.fill(f, w, k)
		}
		if w.Flags&verbs.SendInline != 0 {
			off := at - r.mr.Addr()
			w.Inline = r.mem[off : off+r.size]
		}
	}
	if _, err := f.qp.PostSend(f.wrs[:n]); err != nil {
		return fmt.Errorf("couldn't post send %d on queue pair %d: %w", f.posted, f.index, err)
	}
	f.posted += uint64(n)
	return nil
}

// signaled reports whether message k of a queue pair has a completion: each of
// -Q, the last, and the last of a round.
func (r *run) signaled(k uint64) bool {
	return (k+1)%r.cqMod == 0 || !r.cfg.timed() && k == r.iters-1 || r.rounds.on && k+1 == r.roundEnd()
}

// arm posts receives, as many as the inbox may have and the run still needs.
func (r *run) arm(in *inbox) error {
	for in.armed-in.taken < in.depth && (r.cfg.timed() || in.armed < in.limit) {
		in.wr[0].ID = in.armed<<idShift | in.wr[0].ID&idFlow | idRecv
		in.sge[0].Addr = in.ring.at(in.armed)
		if _, err := in.post(in.wr[:]); err != nil {
			return fmt.Errorf("couldn't post receive %d: %w", in.armed, err)
		}
		in.armed++
	}
	return nil
}

// wait takes completions, at least one: polling, or asleep with -e. It is where
// a run finds that it is over (errOver) or that somebody ends it.
func (r *run) wait() error {
	n := r.cq.Poll(r.wcs[:])
	for i := 0; n == 0; i++ {
		if i >= idlePolls || r.cfg.Events || r.ended.Load() {
			var err error
			if n, err = r.cq.Wait(r.ctx, r.wcs[:]); err != nil {
				return r.cause(err)
			}
			break
		}
		n = r.cq.Poll(r.wcs[:])
	}
	for i := range r.wcs[:n] {
		if err := r.complete(&r.wcs[i]); err != nil {
			return err
		}
	}
	r.moved.Store(r.sent + r.arrived)
	if r.ended.Load() {
		return r.cause(r.ctx.Err())
	}
	return nil
}

// idlePolls is after how many polls without a completion the device's own
// policy for waiting takes over.
const idlePolls = 64

// complete accounts for a completion.
func (r *run) complete(w *verbs.WC) error {
	if w.Status != verbs.WCSuccess {
		return r.failure(w)
	}
	if w.ID&idNotice != 0 {
		return r.notice(w)
	}
	if w.ID&idRecv != 0 {
		return r.receive(w)
	}
	f := &r.flows[w.ID&idFlow]
	was := f.done
	f.done = w.ID>>idShift + 1
	r.sent += f.done - was
	if r.peak != nil {
		r.peak.completed[r.sent-1] = r.now()
	}
	if r.clock.sampling() {
		r.counted += f.done - was
	}
	if r.cfg.Check {
		return r.checkSent(f, was)
	}
	return nil
}

// receive accounts for a message that arrived.
func (r *run) receive(w *verbs.WC) error {
	f := &r.flows[w.ID&idFlow]
	if r.srq != nil {
		f = &r.flows[r.byQPN[w.QPN]]
	}
	if err := r.checkLength(w); err != nil {
		return err
	}
	if r.arrived == 0 {
		r.firstArrival()
	}
	f.recvd++
	f.in.taken++
	r.arrived++
	if r.cfg.lossy() {
		r.lastAt = r.now()
	}
	if r.clock.sampling() {
		r.counted++
	}
	if r.cfg.Check {
		if err := r.checkArrived(f, w); err != nil {
			return err
		}
	}
	return r.arm(f.in)
}

func (r *run) checkLength(w *verbs.WC) error {
	n := uint64(w.ByteLen)
	if r.cfg.Transport == verbs.UD {
		n -= grh
	}
	if n != r.size {
		return fmt.Errorf("the peer sends messages of %d octets, this side expects %d: give both the same -s, -a and -n", n, r.size)
	}
	return nil
}

// errOver is the end of a timed run.
var errOver = errors.New("perf: the time is over")
