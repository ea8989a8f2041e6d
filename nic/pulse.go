package nic

import (
	"context"
	"fmt"
	"time"
)

// Pulse returns nil when the background of a shard makes a whole step after the
// call, as one that works does within microseconds: nobody holds the shard's lock
// for good, its link lets go of who sleeps in it, and its goroutine runs. Otherwise
// the error is that of the device, or says for how long nothing moved when ctx was
// over. It is for watchdogs; a NIC that callers step (Config.Lease) lets its
// background nap, which Pulse ends.
func (n *NIC) Pulse(ctx context.Context, shard int) error {
	if n.cfg.Manual {
		return n.Err()
	}
	s := n.shards[shard]
	began, before := time.Now(), s.bg.steps.Load()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if err := n.Err(); err != nil {
			return err
		}
		if s.bg.steps.Load() != before {
			return nil
		}
		s.kick() // again: it may have been about to sleep
		select {
		case <-tick.C:
		case <-n.gone:
		case <-ctx.Done():
			return fmt.Errorf("nic: shard %d of %s has not moved for %v: %w", shard, n.cfg.Name, time.Since(began).Round(time.Millisecond), ctx.Err())
		}
	}
}
