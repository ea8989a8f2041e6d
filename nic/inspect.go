package nic

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// inspectBatch is how many queue pairs are looked at in one hold of a shard's
// lock, and inspectSlots how many places for them, empty ones included: a look
// at a device with very many keeps its packets waiting for some 20 us at a time.
const (
	inspectBatch = 64
	inspectSlots = 4096
)

// QPInfo is a queue pair as a list of them shows it.
type QPInfo struct {
	QPN    uint32
	Handle verbs.Handle
	Type   verbs.QPType
	State  verbs.QPState
	Shard  int
	// ClientID is the number of the client that made it, 0 of the program that
	// the device is in.
	ClientID uint32

	// Local and Peer are the ends of a connection, invalid before it has an
	// address vector, and of UD; DestQPN is the peer's queue pair.
	Local, Peer netip.Addr
	SrcPort     uint16 // UDP source port
	DestQPN     uint32

	SendDepth int  // send requests that it has room for
	RecvDepth int  // receive requests, 0 with a shared receive queue
	SRQ       bool // it has a shared receive queue
	Requests  int  // send requests under way
	InFlight  int  // packets sent and not acknowledged
	// Rate is how many bits a second of IP packets it may send now, 0 as many as
	// can: the lowest of what limits it, congestion control among it.
	Rate int64

	Stats transport.Stats
	Drops uint64 // received packets that went no further than the queue pair
}

// QPDetail is all there is to say of a queue pair.
type QPDetail struct {
	QPInfo
	Cap        verbs.QPCap
	Attr       verbs.QPAttr
	Inspection transport.Inspection
	CC         cc.State          // of UD all 0
	Algorithm  string            // of congestion control, of UD ""
	Limit      int64             // bits a second that it is bound to by the program, 0 none
	Counters   map[string]uint64 // by the names of verbs.QPStats
	// Now is the device's clock, which trace events and
	// Inspection.Deadline are read on.
	Now int64
	// Last is the last failure, retransmission or drop of this queue pair that
	// the recorder still holds, with reason trace.None if it holds none.
	Last trace.Event
}

// QPs lists the queue pairs, shard by shard. One that is created or destroyed
// meanwhile may be in the list or not. It takes time in proportion to their
// number, but holds no shard longer than for a few dozen of them.
func (n *NIC) QPs() ([]QPInfo, error) {
	if err := n.Err(); err != nil {
		return nil, err
	}
	out := make([]QPInfo, 0, n.CountQPs()+inspectBatch) // not while a shard waits
	for _, s := range n.shards {
		now := n.cfg.Clock()
		s.each(func(q *qp) {
			q.countStall(now)
			out = append(out, QPInfo{})
			q.inspect(&out[len(out)-1], now)
		})
	}
	return out, nil
}

// QP describes the queue pair with a number. The error wraps verbs.ErrClosed
// when there is none.
func (n *NIC) QP(qpn uint32) (QPDetail, error) {
	if err := n.Err(); err != nil {
		return QPDetail{}, err
	}
	var q *qp
	if qpn <= bth.QPNMask {
		q = n.byQPN(bth.QPN(qpn))
	}
	if q == nil {
		return QPDetail{}, noQPN(qpn)
	}
	q.s.mu.Lock()
	defer q.s.unlock()
	if q.dead {
		return QPDetail{}, noQPN(qpn)
	}
	d := QPDetail{Attr: q.eng.Attr(), Now: n.cfg.Clock()}
	q.countStall(d.Now)
	d.Inspection = q.inspect(&d.QPInfo, d.Now)
	if c, ok := q.eng.(interface{ Capacity() verbs.QPCap }); ok {
		d.Cap = c.Capacity()
	}
	if d.Limit, d.Algorithm = q.limit, q.algorithm; q.control != nil {
		d.CC = q.control.State(d.Now)
	}
	var t qpTotals
	t.add(q)
	d.Counters = t.named()
	for _, e := range q.s.rec.Events() {
		if e.QPN == qpn && e.Reason != trace.NoteState && e.Reason != trace.RetryLink {
			d.Last = e
		}
	}
	return d, nil
}

func noQPN(qpn uint32) error {
	return fmt.Errorf("nic: no queue pair has number %#06x: it was destroyed, or never was: %w", qpn, verbs.ErrClosed)
}

// TraceQP returns at most the last max events that the recorder holds of one
// queue pair, oldest first; max of 0 is all of them. The error wraps
// verbs.ErrClosed when nothing is known of it: it may have been destroyed, as
// long as events of it are left.
func (n *NIC) TraceQP(qpn uint32, max int) ([]trace.Event, error) {
	if err := n.Err(); err != nil {
		return nil, err
	}
	out := []trace.Event{}
	if qpn > bth.QPNMask {
		return nil, noQPN(qpn)
	}
	for _, e := range n.Trace(int(qpn&shardMask) % len(n.shards)) {
		if e.QPN == qpn {
			out = append(out, e)
		}
	}
	if len(out) == 0 && n.byQPN(bth.QPN(qpn)) == nil {
		return nil, noQPN(qpn)
	}
	if max > 0 && len(out) > max {
		out = out[len(out)-max:]
	}
	return out, nil
}

// CountQPs returns how many queue pairs there are.
func (n *NIC) CountQPs() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.qps.live
}

// Done is closed when the device is no more; Err then says why.
func (n *NIC) Done() <-chan struct{} { return n.gone }

// Now returns the time on the clock of trace events.
func (n *NIC) Now() int64 { return n.cfg.Clock() }

// each calls f for every queue pair of the shard, with the lock held, which it
// lets go of now and then. F must not keep the queue pair.
func (s *shard) each(f func(*qp)) {
	for i := 0; ; runtime.Gosched() {
		s.mu.Lock()
		seen, end := 0, min(len(s.qps), i+inspectSlots)
		for ; i < end && seen < inspectBatch; i++ {
			if q := s.qps[i]; q != nil {
				f(q)
				seen++
			}
		}
		done := i >= len(s.qps)
		s.unlock()
		if done {
			return
		}
	}
}

// inspect fills in what a list shows, with the shard's lock held.
func (q *qp) inspect(i *QPInfo, now int64) (e transport.Inspection) {
	if x, ok := q.eng.(interface {
		Inspect(now int64) transport.Inspection
	}); ok {
		e = x.Inspect(now)
	}
	if q.paced != 0 {
		e.Stall = transport.StallPacing
	}
	a := q.eng.Attr()
	*i = QPInfo{
		QPN: uint32(q.qpn), Handle: q.h, Type: serviceOf(q.class), State: q.eng.State(), Shard: q.s.index, ClientID: q.owner(),
		DestQPN: a.DestQPN, SRQ: q.srq != nil, Requests: e.Requests, InFlight: e.InFlight, Rate: q.rate(now), Stats: *q.eng.Stats(),
	}
	if f := q.eng.Flow(); f != nil {
		i.Local, i.Peer, i.SrcPort = f.Src, f.Dst, f.SrcPort
	}
	if c, ok := q.eng.(interface{ Capacity() verbs.QPCap }); ok {
		i.SendDepth, i.RecvDepth = c.Capacity().MaxSendWR, c.Capacity().MaxRecvWR
		if i.SRQ {
			i.RecvDepth = 0
		}
	}
	for r, v := range q.eng.Counts() {
		if trace.Reason(r).IsDrop() {
			i.Drops += v
		}
	}
	return e
}

// owner is the client that a queue pair belongs to, 0 of the process itself.
func (q *qp) owner() uint32 {
	if q.client == nil {
		return 0
	}
	return q.client.id
}

// countStall makes the counters of waiting true until now.
func (q *qp) countStall(now int64) {
	if q.paced != 0 {
		q.s.countPacing(now, q)
	}
	if c, ok := q.eng.(interface{ CountStall(now int64) }); ok {
		c.CountStall(now)
	}
}

func serviceOf(c bth.Class) verbs.QPType {
	switch c {
	case bth.RC:
		return verbs.RC
	case bth.UC:
		return verbs.UC
	}
	return verbs.UD
}
