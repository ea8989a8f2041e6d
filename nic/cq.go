package nic

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// cq is a completion queue. Its completions come from the shards of the queue
// pairs that use it; only when those are two or more is it locked.
type cq struct {
	h    verbs.Handle
	slot uint32
	home int // shard of queue pairs that send to it
	ring *verbs.CompRing

	feeders atomic.Uint32 // bit per shard
	shared  bool          // written with every feeder's shard locked
	mu      sync.Mutex    // guards ring and lost when shared
	lost    bool          // overflown

	word      *atomic.Uint32 // of a client's queue: counts notifications
	waiters   atomic.Int32
	plain     atomic.Int32          // of them, those for any completion, not only a solicited one
	attending atomic.Pointer[shard] // where one of them sleeps in the link
	token     chan struct{}         // wakes a waiter
	gone      chan struct{}         // closed when destroyed
	users     int                   // queue pairs, twice when they use it for both; under NIC.mu
}

// notify wakes one waiter, who wakes the next, or all of another process.
func (c *cq) notify() {
	if c.word != nil {
		c.word.Add(1)
		sys.FutexWake(c.word)
		return
	}
	select {
	case c.token <- struct{}{}:
	default:
	}
	if s := c.attending.Load(); s != nil && s.bg.asleep.Load() {
		s.link.Wake()
	}
}

// destroyed reports whether the queue is gone.
func (c *cq) destroyed() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// enter begins a wait for any completion, or a solicited one.
func (c *cq) enter(solicited bool) {
	c.waiters.Add(1)
	if !solicited {
		c.plain.Add(1)
	}
}

// leave ends one. What woke this waiter may not be all there is, and the queue
// does not notify of the rest: the others look too.
func (c *cq) leave(q *verbs.CompQueue, solicited bool) {
	if !solicited {
		c.plain.Add(-1)
	}
	if c.waiters.Add(-1) == 0 {
		return
	}
	q.Arm(c.plain.Load() == 0)
	if !q.Empty() {
		c.notify()
	}
}

// sink is a completion queue as the queue pairs of one shard see it: an
// transport.CompSink.
type sink struct {
	c *cq
	s *shard
}

// Push adds a completion and remembers whom to tell at the end of the step.
//
//gorxe:hot
func (k *sink) Push(w *verbs.WC, solicited bool) {
	c := k.c
	if c.shared {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	if !c.ring.Push(w) && !c.lost {
		c.lost = true
		k.s.lost = append(k.s.lost, c)
	}
	if c.ring.Disarm(solicited || w.Status != verbs.WCSuccess) {
		k.s.woken = append(k.s.woken, c)
	}
}

// CreateCQ creates a completion queue. Its Vector is the shard that queue
// pairs with this send queue will be on.
func (n *NIC) CreateCQ(cfg verbs.CQConfig) (verbs.CQInfo, error) {
	return n.createCQ(cfg, nil)
}

// createCQ creates a completion queue whose ring is in a client's memory, or with
// none the process's own.
func (n *NIC) createCQ(cfg verbs.CQConfig, mem []byte) (verbs.CQInfo, error) {
	if cfg.Depth < 1 || cfg.Depth > verbs.MaxCQE {
		return verbs.CQInfo{}, fmt.Errorf("nic: completion queue depth %d is not in 1..%d", cfg.Depth, verbs.MaxCQE)
	}
	if cfg.Vector < 0 || cfg.Vector >= len(n.shards) {
		return verbs.CQInfo{}, fmt.Errorf("nic: completion vector %d is not in 0..%d, the device's shards", cfg.Vector, len(n.shards)-1)
	}
	foreign := mem != nil
	if !foreign {
		mem = verbs.NewRingMem(cfg.Depth)
	}
	ring, ok := verbs.NewCompRing(mem)
	if !ok {
		return verbs.CQInfo{}, fmt.Errorf("nic: memory of %d octets for a completion ring has a wrong size or alignment", len(mem))
	}
	c := &cq{ring: ring, token: make(chan struct{}, 1), gone: make(chan struct{})}
	if foreign {
		c.word = ring.Notifications()
	}
	c.feeders.Store(1 << cfg.Vector)

	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return verbs.CQInfo{}, err
	}
	slot, h, ok := n.cqs.reserve(MaxCQ)
	if !ok {
		return verbs.CQInfo{}, fmt.Errorf("%w: %d completion queues; destroy some, or share them between queue pairs", ErrLimit, MaxCQ)
	}
	c.slot, c.h, c.home = slot, h, cfg.Vector
	n.cqs.put(slot, h, c)
	return verbs.CQInfo{Handle: h, Ring: mem}, nil
}

// feed makes a shard one of those whose queue pairs use the queue. It is
// called with NIC.mu and the shard's lock held, those of all shards when the
// queue was another's so far.
func (c *cq) feed(s *shard) {
	if f := c.feeders.Load(); f != 1<<s.index {
		c.shared = true
		c.feeders.Store(f | 1<<s.index)
	}
}

func (n *NIC) destroyCQ(h verbs.Handle) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.cqs.get(h)
	switch {
	case c == nil:
		return n.missing("completion queue", h)
	case c.users > 0:
		return fmt.Errorf("%w: completion queue %#x: destroy the queue pairs that use it first", ErrInUse, uint32(h))
	}
	n.cqs.release(c.slot)
	close(c.gone)
	for i, s := range n.shards {
		if c.feeders.Load()>>i&1 != 0 {
			if c.word != nil { // a client's: its memory may go
				s.forget(c)
			}
			s.wake() // a waiter may sleep there
		}
	}
	return nil
}
