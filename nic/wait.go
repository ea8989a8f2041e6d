package nic

import (
	"context"
	"math/bits"

	"github.com/gorxe/gorxe/verbs"
)

// Doorbell says that work was posted to a queue pair, and steps its shard if
// nobody else does.
//
//gorxe:hot
func (n *NIC) Doorbell(h verbs.Handle) {
	if q := n.qps.get(h); q != nil {
		q.s.bells.Ring(q.index)
		q.s.post()
	}
}

// Progress steps the shards that feed a completion queue. When nothing moved
// it yields, since whoever calls it in a loop waits for somebody else.
//
//gorxe:hot
func (n *NIC) Progress(h verbs.Handle) {
	if c := n.cqs.get(h); c == nil || n.cfg.Manual {
		return
	} else if n.progress(c) {
		n.busy()
	} else {
		n.yield()
	}
}

func (n *NIC) progress(c *cq) (moved bool) {
	feeders := c.feeders.Load()
	for i := 0; feeders != 0; i, feeders = i+1, feeders>>1 {
		if feeders&1 != 0 {
			moved = n.shards[i].drive(byPoller) || moved
		}
	}
	return moved
}

// WaitCQ returns nil when the queue may have completions, or the error of ctx
// or of the device. It polls for Config.Spin, then sleeps in the link, or leaves
// the shards to whoever does and is woken.
func (n *NIC) WaitCQ(ctx context.Context, h verbs.Handle, q *verbs.CompQueue, solicited bool) error {
	c := n.cqs.get(h)
	if c == nil {
		return n.missing("completion queue", h)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.spin(ctx, c, q) {
		return nil
	}
	c.enter(solicited)
	defer c.leave(q, solicited)
	q.Arm(solicited)
	if !q.Empty() {
		return nil
	}
	feeders := c.feeders.Load()
	if bits.OnesCount32(feeders) == 1 && n.shards[bits.TrailingZeros32(feeders)].attend(ctx, c) {
		switch {
		case n.end.Load() != nil:
			return n.Err()
		case c.destroyed():
			return noObject("completion queue", h)
		}
		return ctx.Err()
	}
	for f := feeders; f != 0 && !n.cfg.Manual; f &= f - 1 {
		s := n.shards[bits.TrailingZeros32(f)]
		s.bg.sleepers.Add(1)
		defer s.bg.sleepers.Add(-1)
		s.kick()
	}
	select {
	case <-c.token:
		return nil
	case <-c.gone:
		return noObject("completion queue", h)
	case <-ctx.Done():
		return ctx.Err()
	case <-n.gone:
		return n.Err()
	}
}

// spin polls for a while and reports whether there is a completion.
func (n *NIC) spin(ctx context.Context, c *cq, q *verbs.CompQueue) bool {
	if n.cfg.Spin == 0 {
		return !q.Empty()
	}
	for end := n.cfg.Clock() + int64(n.cfg.Spin); n.end.Load() == nil && ctx.Err() == nil; {
		moved := n.progress(c)
		if !q.Empty() {
			return true
		}
		if n.cfg.Clock() > end {
			return false
		}
		if moved {
			n.busy()
		} else {
			n.yield()
		}
	}
	return false
}

// missing is the error for a handle without object: the device's end, if that
// is why.
func (n *NIC) missing(kind string, h verbs.Handle) error {
	if err := n.Err(); err != nil {
		return err
	}
	return noObject(kind, h)
}
