package nic

import (
	"context"
	"time"
)

// A program that waits for completions sleeps in the link itself, in its own
// thread: what wakes it is the packet, as with a blocking socket, and nobody hands
// anything over. It has the shard's background stay in bed meanwhile. The next
// waiter of the same shard, or one whose completions come from several shards, is
// woken by whoever steps.

// maxDriven bounds the background's naps while a waiter looks after the shard. They
// exceed maxNap only by as much as that waiter has been there, and one that has
// been there longer than maxNap ends them when it leaves.
const maxDriven = time.Second

// sleep waits in the link until deadline, holding no lock but the bed. It is the
// background's, or that of a waiter for a queue. Having said that somebody is
// asleep it looks once more for what was left before that could be seen, and whether
// the wait is over: the one in bed before may have taken the wake that told of it.
func (s *shard) sleep(ctx context.Context, deadline int64, waiter *cq) error {
	b := &s.bg
	if waiter != nil {
		b.bed.Lock()
	} else if !b.bed.TryLock() {
		return nil
	}
	defer b.bed.Unlock()
	b.until.Store(deadline)
	b.asleep.Store(true)
	defer b.asleep.Store(false)
	s.tellAsleep(1)
	defer s.tellAsleep(0)
	switch {
	case s.pending() || b.deadline.Load() < deadline || s.n.end.Load() != nil,
		waiter == nil && b.driven(),
		waiter != nil && (len(waiter.token) > 0 || waiter.destroyed() || ctx.Err() != nil):
		return nil
	}
	wait := time.Duration(-1)
	if deadline != never {
		wait = time.Duration(max(0, deadline-s.n.cfg.Clock()))
	}
	return s.link.Wait(wait)
}

// attend looks after the shard until a completion queue that it feeds, and that
// is armed, notifies. It reports false when it cannot: others must wake the waiter
// then.
func (s *shard) attend(ctx context.Context, c *cq) bool {
	b := &s.bg
	began := s.n.cfg.Clock()
	if s.n.cfg.Lease == 0 || !b.since.CompareAndSwap(never, began) {
		return false
	}
	if b.asleep.Load() {
		s.link.Wake() // the background
	}
	c.attending.Store(s)
	defer func() {
		c.attending.Store(nil)
		now := s.n.cfg.Clock()
		b.caller.Store(now)
		b.since.Store(never)
		switch {
		case b.sleepers.Load() > 0:
			s.kick()
		case now-began > int64(maxNap):
			s.rouse()
		}
	}()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, s.link.Wake)()
	}
	for ctx.Err() == nil && s.n.end.Load() == nil && !c.destroyed() {
		moved := s.drive(byPoller)
		select {
		case <-c.token:
			return true
		default:
		}
		if d := b.deadline.Load(); d > s.n.cfg.Clock() {
			if s.sleep(ctx, d, c) != nil {
				return false
			}
		} else if !moved {
			s.n.yield() // somebody else steps
		}
	}
	return true // WaitCQ finds out which
}

// rouse ends the background's nap.
func (s *shard) rouse() {
	select {
	case s.bg.alarm <- struct{}{}:
	default:
	}
}
