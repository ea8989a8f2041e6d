package nic

import (
	"fmt"
	"sync/atomic"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/rc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/uc"
	"github.com/gorxe/gorxe/ud"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

const (
	shardBits   = 4
	shardMask   = 1<<shardBits - 1
	qpnSlotBits = 20
)

// engine is a transport's half of a queue pair: what a shard calls, with its
// lock held.
type engine interface {
	datapath
	Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) error
	Attr() verbs.QPAttr
	Fail(now int64, why trace.Reason)
	TakeEvents() transport.Events
	Counts() *trace.Counts
	Stats() *transport.Stats
}

type datapath interface {
	State() verbs.QPState
	Flow() *wire.Flow
	HandlePacket(now int64, p *bth.Packet)
	HandleTimer(now int64)
	Doorbell(now int64)
	Ready(now int64) bool
	// Patient reports whether all that is ready may wait for the program's answer
	// to what came last.
	Patient(now int64) bool
	// Urgent reports whether something is ready that no pacer holds back: what
	// Fill gives a burst that asks for that.
	Urgent() bool
	Fill(now int64, b *wire.Burst) bool
	// Sent says how many segments of a filled burst left; calls come in the
	// order of Fill, but that the latest may go back whole before the others.
	Sent(b *wire.Burst, sent int)
	Deadline() int64
}

// qp is a queue pair: an engine and its place in a shard. What can change is
// under the shard's lock.
type qp struct {
	h     verbs.Handle
	slot  uint32
	qpn   bth.QPN
	class bth.Class
	s     *shard
	index uint32 // among the shard's: its doorbell bit
	eng   engine
	timer timer

	client     *Client // nil: the process itself
	pd         *pd
	send, recv *cq
	srq        *srq          // or nil
	qkey       atomic.Uint32 // UD; other shards read it

	dirty  bool // in shard.dirty
	queued bool // in shard.ready
	credit int  // see sched

	// Of rates; see pace.go and congestion.go.
	control   cc.Controller // of RC and UC, or nil
	algorithm string        // its
	limit     int64         // bits a second, 0 none
	pacer     cc.Pacer
	paced     uint32 // place in shard.paced, from 1, or 0
	pacedAt   int64  // since when
	peer      uint32 // queue pair number
	cnp       cnp

	failing bool // in shard.failing
	depth   int  // of both queues, in work requests
	dead    bool

	// Of the messages that arrive; see answer.go.
	tookAt     int64 // when the last did
	unanswered bool  // has posted nothing since
	waited     bool  // the last step left an ACK for this one
	prompt     uint8 // messages in a row that it answered at once
}

// byQPN returns the queue pair with a number, or nil.
func (n *NIC) byQPN(q bth.QPN) *qp {
	if p := n.qps.at(n.qpnPerm.Unmap(uint32(q) >> shardBits)); p != nil && p.qpn == q {
		return p
	}
	return nil
}

func destQPN(b *wire.Burst) bth.QPN { return bth.BTH(b.Vec()[0]).DestQP() }

// CreateQP creates a queue pair in state RESET, on the shard of its send
// completion queue.
func (n *NIC) CreateQP(r verbs.QPReq) (verbs.QPInfo, error) {
	sqLen, rqLen, err := QPRingBytes(&r)
	if err != nil {
		return verbs.QPInfo{}, err
	}
	var rq []byte
	if rqLen > 0 {
		rq = verbs.NewRingBytes(rqLen)
	}
	info, _, err := n.createQP(nil, r, verbs.NewRingBytes(sqLen), rq)
	return info, err
}

// createQP creates a queue pair of a client over the memory of its rings.
func (n *NIC) createQP(client *Client, r verbs.QPReq, sqMem, rqMem []byte) (verbs.QPInfo, *qp, error) {
	class, ok := map[verbs.QPType]bth.Class{verbs.RC: bth.RC, verbs.UC: bth.UC, verbs.UD: bth.UD}[r.Type]
	switch {
	case !ok:
		return verbs.QPInfo{}, nil, fmt.Errorf("nic: %v queue pairs: %w: there are RC, UC and UD", r.Type, verbs.ErrNotSupported)
	case r.Type == verbs.UC && r.SRQ != 0:
		return verbs.QPInfo{}, nil, fmt.Errorf("nic: a UC queue pair with a shared receive queue: %w: RC and UD may have one", verbs.ErrNotSupported)
	}
	c, err := r.Cap.WithDefaults()
	if err != nil {
		return verbs.QPInfo{}, nil, err
	}
	sq, ok := verbs.NewSendRing(sqMem)
	var rq *verbs.RecvRing
	if ok && r.SRQ == 0 {
		rq, ok = verbs.NewRecvRing(rqMem, c.MaxRecvSGE)
	}
	if !ok {
		return verbs.QPInfo{}, nil, fmt.Errorf("nic: memory of %d and %d octets for work queue rings has a wrong size or alignment", len(sqMem), len(rqMem))
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return verbs.QPInfo{}, nil, err
	}
	q := &qp{class: class, client: client, pd: n.pds.get(r.PD), send: n.cqs.get(r.SendCQ), recv: n.cqs.get(r.RecvCQ), srq: n.srqs.get(r.SRQ)}
	switch {
	case q.pd == nil:
		return verbs.QPInfo{}, nil, noObject("protection domain", r.PD)
	case q.send == nil:
		return verbs.QPInfo{}, nil, noObject("completion queue", r.SendCQ)
	case q.recv == nil:
		return verbs.QPInfo{}, nil, noObject("completion queue", r.RecvCQ)
	case r.SRQ != 0 && q.srq == nil:
		return verbs.QPInfo{}, nil, noObject("shared receive queue", r.SRQ)
	case q.srq != nil && q.srq.pd != q.pd:
		return verbs.QPInfo{}, nil, fmt.Errorf("nic: shared receive queue %#x is of another protection domain", uint32(r.SRQ))
	}
	q.depth = c.MaxSendWR + c.MaxRecvWR
	q.s = n.shards[q.send.home]
	if n.shardQPs[q.s.index] >= maxShardQPs {
		return verbs.QPInfo{}, nil, fmt.Errorf("%w: %d queue pairs on shard %d; spread them over completion queues of other vectors", ErrLimit, maxShardQPs, q.s.index)
	}
	if !n.numberQP(q) {
		return verbs.QPInfo{}, nil, fmt.Errorf("%w: %d queue pairs; destroy some", ErrLimit, MaxQP)
	}
	n.shardQPs[q.s.index]++
	q.pd.qps++
	q.send.users++
	q.recv.users++
	cfg := transport.Config{
		QPN: q.qpn, PD: q.pd.id, Cap: c, SigAll: r.SigAll, SQ: sq, RQ: rq,
		SendCQ: &sink{q.send, q.s}, RecvCQ: &sink{q.recv, q.s},
		MRs: n.regions, Recorder: q.s.rec,
	}
	if q.srq != nil {
		q.srq.users++
		cfg.RQ, cfg.Cap.MaxRecvSGE = q.srq, q.srq.maxSGE
	}
	if class != bth.UD {
		c := n.cc.Load()
		q.algorithm, q.control = c.Algorithm, cc.New(c)
	}
	switch class {
	case bth.RC:
		q.eng = rc.New(rc.Config{Config: cfg, Window: q.s.info.Window, Line: n.line(), Control: q.control})
	case bth.UC:
		q.eng = uc.New(cfg)
	default:
		q.eng = ud.New(ud.Config{Config: cfg, Addresses: addresses{q.s}, MTU: int(n.port.Load().ActiveMTU)})
	}
	if client != nil {
		client.qps.Add(1)
	}
	n.install(q)
	return verbs.QPInfo{
		Handle: q.h, QPN: uint32(q.qpn), PSN: n.rng.Uint32() & bth.PSNMask, SendRing: sqMem, RecvRing: rqMem,
		MaxDatagram: int(n.port.Load().ActiveMTU),
	}, q, nil
}

// numberQP gives a queue pair its slot and number. Numbers whose upper 20 bits
// are all 0 or all 1 are never given out: QPN 0, 1 and 0xffffff have meanings
// of their own (IBA 10.2.4.1), and those slots stay reserved.
func (n *NIC) numberQP(q *qp) (ok bool) {
	for {
		if q.slot, q.h, ok = n.qps.reserve(MaxQP); !ok {
			return false
		}
		if hi := n.qpnPerm.Map(q.slot); hi != 0 && hi != 1<<qpnSlotBits-1 {
			q.qpn = bth.QPN(hi<<shardBits | uint32(q.s.index))
			return true
		}
	}
}

// install makes a queue pair known to its shard and to everybody. When it is
// the first of its shard to use a completion or shared receive queue, all
// shards stand still: from now on the queue is locked. NIC.mu is held.
func (n *NIC) install(q *qp) {
	feeders := q.send.feeders.Load() | q.recv.feeders.Load()
	if q.srq != nil {
		feeders |= q.srq.feeders.Load()
	}
	all := feeders != 1<<q.s.index
	lock, unlock := q.s.mu.Lock, q.s.unlock
	if all {
		lock, unlock = n.lockAll, n.unlockAll
	}
	lock()
	q.send.feed(q.s)
	q.recv.feed(q.s)
	if q.srq != nil {
		q.srq.feed(q.s)
	}
	s := q.s
	if k := len(s.spare); k > 0 {
		q.index, s.spare = s.spare[k-1], s.spare[:k-1]
		s.qps[q.index] = q
	} else {
		q.index = uint32(len(s.qps))
		s.qps = append(s.qps, q)
	}
	q.timer.q = q
	n.qps.put(q.slot, q.h, q)
	unlock()
}

func (n *NIC) lockAll() {
	for _, s := range n.shards {
		s.mu.Lock()
	}
}

func (n *NIC) unlockAll() {
	for _, s := range n.shards {
		s.mu.Unlock()
	}
	for _, s := range n.shards {
		if s.pending() {
			s.post()
		}
	}
}

// destroyQP frees a queue pair. It falls silent; completions that are in its
// queues stay there.
func (n *NIC) destroyQP(h verbs.Handle) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.qps.get(h)
	if q == nil {
		return n.missing("queue pair", h)
	}
	s := q.s
	if err := n.detachAll(q); err != nil {
		// The queue pair is gone all the same: that is what was asked for.
		n.cfg.Logger.Error("destroy queue pair", "device", n.cfg.Name, "qpn", uint32(q.qpn), "err", err)
	}
	s.lockSent()
	q.dead = true
	s.wheel.remove(&q.timer)
	if q.paced != 0 {
		s.countPacing(n.cfg.Clock(), q)
		s.paced.remove(q)
	}
	s.forgetCNP(q)
	if s.last == q {
		s.last = nil
	}
	s.qps[q.index] = nil
	s.spare = append(s.spare, q.index)
	s.retire.add(q)
	n.qps.release(q.slot)
	s.unlock()
	if q.client != nil {
		q.client.qps.Add(-1)
	}
	n.shardQPs[s.index]--
	q.pd.qps--
	q.send.users--
	q.recv.users--
	if q.srq != nil {
		q.srq.users--
	}
	return nil
}

// ModifyQP changes attributes of a queue pair, and its state.
func (n *NIC) ModifyQP(h verbs.Handle, a *verbs.QPAttr, m verbs.AttrMask) error {
	q := n.qps.get(h)
	if q == nil {
		return n.missing("queue pair", h)
	}
	q.s.lockSent()
	defer q.s.unlock()
	if err := n.Err(); err != nil {
		return err
	}
	if q.dead {
		return noObject("queue pair", h)
	}
	if err := n.checkAttr(a, m); err != nil {
		return err
	}
	var flow *wire.Flow
	if m&verbs.AttrAV != 0 {
		var err error
		if flow, err = n.flow(q, a, m); err != nil {
			return err
		}
	}
	now := n.cfg.Clock()
	if err := q.eng.Modify(now, a, m, flow); err != nil {
		return err
	}
	switch {
	case m&verbs.AttrQKey != 0:
		q.qkey.Store(a.QKey)
	case m&verbs.AttrState != 0 && a.State == verbs.StateReset:
		q.qkey.Store(0)
	}
	q.s.begin(now, q, m)
	q.s.bells.Ring(q.index) // a step looks after it
	return nil
}

// QueryQP returns a queue pair's attributes and counters.
func (n *NIC) QueryQP(h verbs.Handle) (verbs.QPAttr, verbs.QPStats, error) {
	q := n.qps.get(h)
	if q == nil {
		return verbs.QPAttr{}, nil, n.missing("queue pair", h)
	}
	q.s.mu.Lock()
	defer q.s.unlock()
	if q.dead {
		return verbs.QPAttr{}, nil, n.missing("queue pair", h)
	}
	var t qpTotals
	t.add(q)
	return q.eng.Attr(), verbs.QPStats(t.named()), nil
}

// reportQP turns an engine's events into asynchronous events of the device.
// LAST_WQE_REACHED is for queue pairs with a shared receive queue only (IBA
// 11.6.3.5).
func (s *shard) reportQP(q *qp, e transport.Events) {
	if q.srq == nil {
		e &^= transport.EventLastWQE
	}
	for _, x := range [...]struct {
		bit transport.Events
		typ verbs.EventType
	}{
		{transport.EventFatal, verbs.EventQPFatal},
		{transport.EventAccess, verbs.EventQPAccessErr},
		{transport.EventReqErr, verbs.EventQPReqErr},
		{transport.EventCommEst, verbs.EventCommEst},
		{transport.EventDrained, verbs.EventSQDrained},
		{transport.EventLastWQE, verbs.EventLastWQE},
	} {
		if e&x.bit != 0 {
			s.report(verbs.AsyncEvent{Type: x.typ, QPN: uint32(q.qpn)})
		}
	}
}
