package nic

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// maxShardQPs is how many queue pairs a shard holds.
const maxShardQPs = verbs.MaxBells

// Budgets of a step: what it does at most before it looks at the other things
// again. All are small enough that a step takes well under a millisecond.
const (
	rxBatch  = 8 // datagrams in a Recv; of 64 KiB each with receive offload
	rxRounds = 4 // Recv calls in a step
	txRounds = 4 // Send calls in a step

	// rxMany is how many packets at once tell that more are coming: they are
	// looked for before anything is sent, and are acknowledged together.
	rxMany = 8
	// rxPause is how long, in nanoseconds, steps of programs that only post do
	// not look at the link.
	rxPause = 100_000

	// failBudget is how many work requests are flushed in one go when completion
	// queues overflow, and up to one queue pair's more.
	failBudget = 4096
)

// shard is one link and the queue pairs that use it. Whoever holds mu steps
// it; the atomics are for everybody else.
type shard struct {
	n     *NIC
	index int
	link  link.Link
	info  link.Info
	judge judge // the link, or nil

	bells verbs.Bells
	inbox inbox
	bg    background
	looks atomic.Int32 // at clients' doorbells that go on without mu

	mu    sync.Mutex // all below
	dead  bool
	now   int64 // of the step
	qps   []*qp // by local index
	spare []uint32

	wheel wheel
	dirty []*qp // to settle
	ready sched // have something to send
	paced pacedHeap
	cnps  []*qp // have a CNP to send
	rung  []uint32
	due   []*qp
	lost  []*cq // overflown, to report
	// failing are queue pairs of overflown queues, to fail.
	failing []*qp
	woken   []*cq // to notify
	full    bool  // the link took less than it was offered

	big      bool  // so was what the last look at the link gave
	received int64 // when a step last looked at the link
	patient  []*qp // whose ACK waits for an answer, in a step
	waiting  bool  // there were such when the last step ended

	verify *wire.Verifier
	ds     [rxBatch]wire.Datagram
	pkt    bth.Packet
	grh    [verbs.GRHLen]byte
	last   *qp // whose packet was the last

	bursts []*wire.Burst
	owners []*qp
	far    netip.Addr // one that is not the device's

	rec    *trace.Recorder
	counts trace.Counts // of packets that belong to no queue pair, and of destroyed ones
	stats  shardStats
	retire qpTotals
	logged int64 // when the last error was logged
}

func newShard(n *NIC, index int, l link.Link) *shard {
	info := l.Info()
	s := &shard{n: n, index: index, link: l, info: info, verify: wire.NewVerifier(), rec: trace.NewRecorder(n.cfg.Recorder)}
	s.judge, _ = l.(judge)
	for range max(1, info.MaxBursts) {
		s.bursts = append(s.bursts, wire.NewBurst())
	}
	s.owners = make([]*qp, len(s.bursts))
	s.bg.init()
	return s
}

// pending reports whether something waits for a step that is not a packet or
// a timer.
func (s *shard) pending() bool { return s.bells.Rung() || s.inbox.filled.Load() || s.clientsRang() }

// step does what there is to do at time now, within its budgets, and returns
// when the next step is due: now when there is more to do. The receive batch
// is handled before anything is sent, so that ACKs coalesce. A program that has
// posted is not kept waiting for that: it will look for completions by itself.
// The caller holds mu; when step panics it has been released.
//
//gorxe:hot
func (s *shard) step(now int64, by stepper) (deadline int64) {
	ok := false
	defer func() {
		if !ok {
			s.crash(recover())
		}
	}()
	if s.dead || s.n.end.Load() != nil {
		ok = true
		return never
	}
	s.now = now
	s.wheelTo(now)
	s.doorbells(now)
	more := false
	if by != byPoster || now-s.received >= rxPause {
		s.received = now
		more = s.receive(now, by)
	}
	s.letters(now, by)
	s.settle(now)
	s.unpace(now)
	more = s.transmit(now, by) || more
	s.stats.waitFor(now, s.full)
	s.resume()
	s.settle(now)
	s.notify()
	deadline = min(s.wheel.deadline(), s.paceDeadline(now))
	if more || s.ready.len()+len(s.cnps) > 0 && !s.full || len(s.failing) > 0 {
		deadline = min(deadline, now)
	}
	s.bg.deadline.Store(deadline)
	ok = true
	return deadline
}

func (s *shard) doorbells(now int64) {
	if s.bells.Rung() {
		s.rung = s.bells.Take(s.rung[:0], verbs.MaxBells)
		for _, i := range s.rung {
			if int(i) < len(s.qps) && s.qps[i] != nil {
				s.doorbell(now, s.qps[i])
			}
		}
	}
	s.clientBells(now)
}

func (s *shard) doorbell(now int64, q *qp) {
	q.answered(now)
	q.eng.Doorbell(now)
	s.touch(q)
}

// wheelTo moves time. An engine whose deadline has moved on since its timer
// was armed is only armed again.
func (s *shard) wheelTo(now int64) {
	s.due = s.wheel.advance(now, s.due[:0])
	for _, q := range s.due {
		if q.eng.Deadline() <= now {
			q.eng.HandleTimer(now)
		}
		s.touch(q)
	}
}

// touch remembers that a queue pair's engine was called.
func (s *shard) touch(q *qp) {
	if !q.dirty {
		q.dirty = true
		s.dirty = append(s.dirty, q)
	}
}

// settle looks after every engine that was called since the last time: what it
// has to send, when it wants to be called, and what happened to it.
func (s *shard) settle(now int64) {
	for some := true; len(s.dirty)+len(s.lost) > 0 || some && len(s.failing) > 0; {
		for _, c := range s.lost {
			s.report(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c.h})
			s.overflow(c)
			s.tellFeeders(c)
		}
		clear(s.lost)
		s.lost = s.lost[:0]
		if some { // once
			s.failSome(now)
			some = false
		}
		for i, q := range s.dirty {
			s.dirty[i] = nil
			q.dirty = false
			if !q.dead {
				s.settleQP(now, q)
			}
		}
		s.dirty = s.dirty[:0]
	}
}

func (s *shard) settleQP(now int64, q *qp) {
	if e := q.eng.TakeEvents(); e != 0 {
		if e&transport.EventGap != 0 {
			s.gap(now, q)
		}
		s.reportQP(q, e)
	}
	s.line(now, q)
	if d := q.eng.Deadline(); d != never && (!q.timer.armed || d < q.timer.at) {
		s.wheel.arm(&q.timer, d)
	}
}

// tellFeeders has the other shards fail their queue pairs that use an
// overflown completion queue.
func (s *shard) tellFeeders(c *cq) {
	for i, x := range s.n.shards {
		if x != s && c.feeders.Load()>>i&1 != 0 {
			x.inbox.fail(c)
			x.kick()
		}
	}
}

// forget takes a completion queue off what the next step would look at: a call may
// have put it there.
func (s *shard) forget(c *cq) {
	is := func(x *cq) bool { return x == c }
	s.mu.Lock()
	s.woken = slices.DeleteFunc(s.woken, is)
	s.lost = slices.DeleteFunc(s.lost, is)
	s.unlock()
}

// notify wakes those who wait for completions.
func (s *shard) notify() {
	for i, c := range s.woken {
		c.notify()
		s.woken[i] = nil
	}
	s.woken = s.woken[:0]
}

// overflow has every queue pair of this shard that uses a completion queue fail. IBA
// 11.6.3.2.
func (s *shard) overflow(c *cq) {
	for _, q := range s.qps {
		if q != nil && (q.send == c || q.recv == c) && !q.failing {
			q.failing = true
			s.failing = append(s.failing, q)
		}
	}
}

// failSome fails those queue pairs, which flushes them, but few at a time: one client
// may have many, full of requests.
func (s *shard) failSome(now int64) {
	for left := failBudget; left > 0 && len(s.failing) > 0; {
		q := s.failing[0]
		s.failing[0], s.failing = nil, s.failing[1:]
		q.failing = false
		if q.dead {
			continue
		}
		q.eng.Fail(now, trace.FailCQOverflow)
		s.touch(q)
		left -= q.depth
	}
}

// drop counts and records a received packet that goes no further. q is nil
// when it belongs to no queue pair. It returns the reason.
func (s *shard) drop(q *qp, r trace.Reason, p *bth.Packet) trace.Reason {
	e := trace.Event{Time: s.now, Reason: r, Dir: trace.Rx}
	if p != nil {
		e.QPN, e.PSN, e.Opcode = uint32(p.DestQP), p.PSN.Uint32(), uint8(p.Opcode)
	}
	s.rec.Record(e)
	if p != nil && p.Opcode == bth.CNP && r != trace.DropCNP && r != trace.DropStray {
		s.stats.cnpIgnored++
	}
	if q != nil {
		q.eng.Counts()[r]++
	} else {
		s.counts[r]++
	}
	return r
}

// crash ends the device after a broken invariant of ours: it leaves no lock
// behind, and the panic goes on with what happened last.
func (s *shard) crash(cause any) {
	err := fmt.Errorf("%w: %v", ErrFailed, cause)
	s.dead = true
	text := dump(s.rec.Events())
	s.mu.Unlock()
	s.n.stop(err)
	s.n.event(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
	panic(fmt.Sprintf("nic: %v\nshard %d, last events:\n%s", cause, s.index, text))
}

// dump shows the last events, one a line.
func dump(ev []trace.Event) string {
	var b strings.Builder
	for _, e := range ev[max(0, len(ev)-64):] {
		op := ""
		if e.Dir != trace.Local {
			op = bth.Opcode(e.Opcode).String()
		}
		fmt.Fprintf(&b, "%12.6f ms qp %#06x %v %s psn %d %v arg %d\n", float64(e.Time)/1e6, e.QPN, e.Dir, op, e.PSN, e.Reason, e.Arg)
	}
	return b.String()
}

// complain logs an error that nobody else is told of, at most once a second.
func (s *shard) complain(what string, err error) {
	if s.logged != 0 && s.now-s.logged < 1e9 {
		return
	}
	s.logged = max(s.now, 1)
	s.n.cfg.Logger.Error(what, "device", s.n.cfg.Name, "shard", s.index, "err", err)
}
