package nic

import (
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/wire"
)

// How a rate is kept: after a burst a queue pair's pacer says when the next may
// leave, and until then the queue pair waits in a heap that each step looks at,
// with the others of its shard. ACKs, NAKs and CNPs never wait there. Nothing is
// set up for each packet, and a queue pair without a rate never comes here.

// rate returns how fast a queue pair may send now, in bits a second, 0 as fast as
// can be: the lowest of its static rate, its own limit, and its controller's.
func (q *qp) rate(now int64) int64 {
	if q.control == nil {
		return q.limit
	}
	return cc.Slower(q.limit, q.control.Rate(now))
}

// line notes that a queue pair has something to send, and may send it now or has
// to wait for its time. It may be both: with an ACK before a WRITE.
func (s *shard) line(now int64, q *qp) {
	if q.queued || !q.eng.Ready(now) {
		return
	}
	switch {
	case q.paced == 0 && q.pacer.Next() <= now:
		q.pacer.Idle(now)
	case q.eng.Urgent():
	default:
		s.pace(now, q)
		return
	}
	q.queued = true
	s.ready.push(q)
}

// pace has a queue pair wait for its time, unless it does.
func (s *shard) pace(now int64, q *qp) {
	if q.paced == 0 {
		q.pacedAt = now
		s.paced.push(q)
	}
}

// paceDeadline returns when the first may send, or never; now, so that nobody sleeps
// until then, when that is behind its schedule: who sleeps while others want the
// processor is late again.
func (s *shard) paceDeadline(now int64) int64 {
	if len(s.paced) > 0 && !s.n.cfg.Manual && s.paced[0].q.pacer.Behind() {
		return now
	}
	return s.paced.next()
}

// unpace gives those whose time has come their turn.
func (s *shard) unpace(now int64) {
	for s.paced.next() <= now {
		q := s.paced.pop()
		s.countPacing(now, q)
		if !q.queued && q.eng.Ready(now) {
			q.queued = true
			s.ready.push(q)
		}
	}
}

// repace has a queue pair whose rate was another until now wait as long as the new
// one asks for. That is not nothing: who sets rates again and again would have none.
func (s *shard) repace(now int64, q *qp, before int64) {
	if q.paced != 0 {
		s.countPacing(now, q)
		s.paced.remove(q)
	}
	q.pacer.Change(now, before, q.rate(now))
	s.touch(q)
}

func (s *shard) countPacing(now int64, q *qp) {
	if d := now - q.pacedAt; d > 0 { // the last step may be longer ago than the last count
		q.eng.Stats().PacingWait += uint64(d)
		q.pacedAt = now
	}
}

// charge has a burst count against the rate.
func (q *qp) charge(now int64, b *wire.Burst) {
	fixed := cc.Slower(b.Flow.Rate, q.limit)
	if r := cc.Slower(fixed, q.rate(now)); r == 0 {
		return
	} else if r == fixed {
		q.pacer.Sent(now, b.IPBytes(), r, cc.LateLimit)
	} else {
		q.pacer.Sent(now, b.IPBytes(), r, cc.LateControl)
	}
}

// left tells pacer and controller how many segments of a burst really left.
func (q *qp) left(now int64, b *wire.Burst, sent int) {
	octets := b.IPBytes()
	if sent < b.Len() {
		octets = sent * b.Flow.HeaderLen()
		for i := range b.Segs[:sent] {
			octets += b.Segs[i].Len
		}
		if r := cc.Slower(b.Flow.Rate, q.rate(now)); r != 0 {
			q.pacer.Unsent(now, b.IPBytes()-octets, r)
		}
	}
	if q.control != nil && octets > 0 {
		q.control.OnSent(now, octets)
	}
}

// pacedHeap orders queue pairs by when they may send. qp.paced is the place in it,
// from 1.
type pacedHeap []pacedItem

type pacedItem struct {
	at int64
	q  *qp
}

// next returns when the first may send, or never.
func (h pacedHeap) next() int64 {
	if len(h) == 0 {
		return never
	}
	return h[0].at
}

func (h *pacedHeap) push(q *qp) {
	*h = append(*h, pacedItem{q.pacer.Next(), q})
	h.up(len(*h) - 1)
}

func (h *pacedHeap) pop() *qp {
	q := (*h)[0].q
	h.remove(q)
	return q
}

func (h *pacedHeap) remove(q *qp) {
	i, last := int(q.paced)-1, len(*h)-1
	q.paced = 0
	moved := (*h)[last]
	(*h)[last] = pacedItem{}
	*h = (*h)[:last]
	if i == last {
		return
	}
	(*h)[i] = moved
	h.up(i)
	h.down(int(moved.q.paced) - 1)
}

func (h pacedHeap) up(i int) {
	for x := h[i]; ; {
		up := (i - 1) / 2
		if i == 0 || h[up].at <= x.at {
			h.set(i, x)
			return
		}
		h.set(i, h[up])
		i = up
	}
}

func (h pacedHeap) down(i int) {
	for x := h[i]; ; {
		c := 2*i + 1
		if c+1 < len(h) && h[c+1].at < h[c].at {
			c++
		}
		if c >= len(h) || x.at <= h[c].at {
			h.set(i, x)
			return
		}
		h.set(i, h[c])
		i = c
	}
}

func (h pacedHeap) set(i int, x pacedItem) {
	h[i] = x
	x.q.paced = uint32(i) + 1
}
