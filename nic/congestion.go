package nic

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Both points of DCQCN that are not a queue pair's own. Notification: a packet
// that comes with a congestion mark has its queue pair send a CNP (Annex A17.9.3),
// in the step that received it and before anything else, unless the last one to the
// same pacing key was too short a time ago; then it makes none at all, and the next
// marked packet after that time does. Reaction: a CNP is handed to the queue pair's
// controller.

// ecnCE and ect0 are codepoints of the IP header's ECN field. RFC 3168.
const (
	ecnCE = 3
	ect0  = 2
)

// notifications is when CNPs were last sent, for the pacing keys that are not a
// queue pair: shards share it.
type notifications struct {
	mu   sync.Mutex
	port int64
	dest map[netip.Addr]int64
}

// maxDests bounds the destinations that are remembered; those whose time has passed
// are forgotten first, and when that does not help, all: a CNP more does no harm.
const maxDests = 4096

func (x *notifications) pass(now, gap int64, to netip.Addr) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !to.IsValid() {
		if now-x.port < gap {
			return false
		}
		x.port = now
		return true
	}
	if last, ok := x.dest[to]; ok && now-last < gap {
		return false
	}
	if len(x.dest) >= maxDests {
		for a, last := range x.dest {
			if now-last >= gap {
				delete(x.dest, a)
			}
		}
		if len(x.dest) >= maxDests {
			clear(x.dest)
		}
	}
	x.dest[to] = now
	return true
}

// left says that the CNP which passed left only now.
func (x *notifications) left(now int64, to netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !to.IsValid() {
		x.port = max(x.port, now)
	} else if last, ok := x.dest[to]; ok {
		x.dest[to] = max(last, now)
	}
}

// cnp is a queue pair's side of notification.
type cnp struct {
	flow *wire.Flow // as its own, with the type of service and priority of CNPs
	last int64      // when one was sent
	due  int64      // when the packet came that one is to be sent for
	wait bool       // in shard.cnps
}

// marked notes that a packet came with a congestion mark.
func (s *shard) marked(now int64, q *qp, p *bth.Packet) {
	q.eng.Counts()[trace.NoteMarked]++
	if q.class == bth.UD {
		return // it has no peer to slow down
	}
	if p.Info().Op == bth.OpReadResp {
		q.control.OnMark(now)
	}
	s.notifyPeer(now, q)
}

// notifyPeer has a CNP sent, if it may, and reports whether.
func (s *shard) notifyPeer(now int64, q *qp) bool {
	c := s.n.cc.Load()
	if !c.NPEnable || q.cnp.wait || q.cnp.flow == nil {
		return false
	}
	gap := int64(c.NPMinTimeBetweenCNPs) * 1000
	ok := false
	switch c.NPCNPPacing {
	case cc.PacingPort:
		ok = s.n.notified.pass(now, gap, netip.Addr{})
	case cc.PacingDestination:
		ok = s.n.notified.pass(now, gap, q.cnp.flow.Dst)
	default:
		if ok = now-q.cnp.last >= gap; ok {
			q.cnp.last = now
		}
	}
	if ok {
		q.cnp.wait, q.cnp.due = true, now
		s.cnps = append(s.cnps, q)
	}
	return ok
}

// gap notes that a queue pair reports a gap to its peer, which counts as congestion
// where the configuration says so.
func (s *shard) gap(now int64, q *qp) {
	if s.n.cc.Load().RoCESlowRestart && q.control != nil && s.notifyPeer(now, q) {
		s.note(q, trace.NoteSlowRestartCNP, trace.Tx)
	}
}

// fillCNPs puts CNPs that wait into bursts and returns how many. Those for this
// device itself do not count.
func (s *shard) fillCNPs() (n int) {
	waiting := len(s.cnps)
	i := 0
	for ; i < waiting && n < len(s.bursts); i++ {
		q, b := s.cnps[i], s.bursts[n]
		b.Reset(q.cnp.flow, 1, 0)
		b.Kind, b.QPN = wire.KindCNP, q.qpn
		p := bth.Packet{Opcode: bth.CNP, BECN: true, PKey: verbs.DefaultPKey, DestQP: bth.QPN(q.peer)}
		p.PutHeaders(b.Begin(p.PSN, bth.CNP, bth.BTHLen+bth.CNPReserved, 0))
		b.End()
		if s.isOwn(b.Flow.Dst) {
			s.hairpin(q, b)
			continue
		}
		b.Seal(s.info.IDs)
		s.owners[n] = q
		n++
	}
	s.cnps = slices.Delete(s.cnps, 0, i)
	return n
}

// sentCNP notes that a CNP left, or has it tried again.
func (s *shard) sentCNP(q *qp, left bool) {
	if !left {
		s.cnps = append(s.cnps, q)
		return
	}
	q.cnp.wait = false
	s.note(q, trace.NoteCNPSent, trace.Tx)
	now := s.n.cfg.Clock()
	d := max(0, now-q.cnp.due)
	if d > 0 { // the gap is between CNPs, not between reasons for them
		switch s.n.cc.Load().NPCNPPacing {
		case cc.PacingPort:
			s.n.notified.left(now, netip.Addr{})
		case cc.PacingDestination:
			s.n.notified.left(now, q.cnp.flow.Dst)
		default:
			q.cnp.last = now
		}
	}
	s.stats.cnpDelay += d
}

// forgetCNP takes back what a queue pair was to send to a peer that it has no more.
func (s *shard) forgetCNP(q *qp) {
	if q.cnp.wait {
		s.cnps = slices.DeleteFunc(s.cnps, func(x *qp) bool { return x == q })
	}
	q.cnp = cnp{}
}

// note counts and records what happened to a queue pair.
func (s *shard) note(q *qp, r trace.Reason, d trace.Dir) {
	q.eng.Counts()[r]++
	s.rec.Record(trace.Event{Time: s.now, QPN: uint32(q.qpn), Reason: r, Dir: d, Opcode: uint8(bth.CNP)})
}

// react hands a CNP that is for a queue pair to its controller.
func (s *shard) react(now int64, q *qp, p *bth.Packet) trace.Reason {
	if q.control == nil || !s.n.cc.Load().Reacts() {
		return s.drop(q, trace.DropCNP, p)
	}
	s.stats.rcvdPkts++
	s.note(q, trace.NoteCNP, trace.Rx)
	q.control.OnCNP(now)
	return trace.NoteCNP
}

// begin gives a queue pair that was connected what it needs for both points.
func (s *shard) begin(now int64, q *qp, m verbs.AttrMask) {
	a := q.eng.Attr()
	q.peer = a.DestQPN
	if a.State == verbs.StateReset {
		s.forgetCNP(q)
	}
	if f := q.eng.Flow(); f != nil && q.control != nil && m&verbs.AttrAV != 0 {
		if q.cnp.flow == nil {
			q.cnp.last = longAgo
		}
		q.cnp.flow = new(wire.Flow)
		s.classify(q, f, a.AV.TrafficClass)
	}
	if m&verbs.AttrState != 0 && a.State == verbs.StateRTR && q.control != nil {
		q.control.Start(now, cc.Path{MTU: int(a.PathMTU), Limit: s.info.Window, Line: s.n.line()})
	}
	limit := int64(a.RateLimit) * 1000
	if f := q.eng.Flow(); f != nil {
		limit = cc.Slower(limit, f.Rate)
	}
	switch before := q.rate(now); {
	case a.State <= verbs.StateInit:
		before = 0 // what it waited for was of another connection
		fallthrough
	case limit != q.limit:
		q.limit = limit
		s.repace(now, q, before)
	}
}

// classify gives flows their types of service: a queue pair that heeds congestion
// says so by ECT(0), unless its traffic class has an ECN field of its own, and its
// CNPs have a class and a priority of their own.
func (s *shard) classify(q *qp, f *wire.Flow, class uint8) {
	c := s.n.cc.Load()
	if f.TOS = class; class&3 == 0 && c.Reacts() {
		f.TOS |= ect0
	}
	*q.cnp.flow = wire.Flow{
		Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, TTL: f.TTL, Scope: f.Scope,
		TOS: uint8(c.NPCNPDSCP)<<2 | ect0, Priority: min(uint8(c.NPCNPPrio), s.n.cfg.MaxSL),
	}
}

// line returns the bits a second of the interface, 0 when it does not say.
func (n *NIC) line() int64 { return int64(n.port.Load().SpeedMbit) * 1e6 }

// CC returns the device's congestion control.
func (n *NIC) CC() cc.Config { return *n.cc.Load() }

// SetCC changes the device's congestion control, of all its queue pairs, at once.
// Where the algorithm changes they begin afresh under the new one. The error is
// cc.Config.Check's, and nothing is changed then.
func (n *NIC) SetCC(c cc.Config) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("nic: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return err
	}
	n.cc.Store(&c)
	for _, s := range n.shards {
		now := n.cfg.Clock()
		s.each(func(q *qp) { s.configure(now, q, &c) })
	}
	return nil
}

// configure has a queue pair go by another configuration.
func (s *shard) configure(now int64, q *qp, c *cc.Config) {
	if q.control == nil {
		return
	}
	before := q.rate(now)
	if q.algorithm == c.Algorithm {
		q.control.Configure(now, c)
	} else {
		q.algorithm, q.control = c.Algorithm, cc.New(c)
		q.control.Start(now, cc.Path{MTU: int(q.eng.Attr().PathMTU), Limit: s.info.Window, Line: s.n.line()})
		if e, ok := q.eng.(interface{ SetControl(int64, cc.Controller) }); ok {
			e.SetControl(now, q.control)
		}
	}
	if f := q.eng.Flow(); f != nil && q.cnp.flow != nil {
		s.classify(q, f, q.eng.Attr().AV.TrafficClass)
	}
	s.repace(now, q, before)
	s.bells.Ring(q.index) // a step looks after it
}
