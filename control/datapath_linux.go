package control

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// spin is how long a wait polls before it sleeps.
const spin = 50 * time.Microsecond

// lookAgain is how long a wait sleeps at most before it looks whether the queue or the
// device has ended. Whoever ends them wakes it, but its word is zeros by then, and may
// become by the waking what it was: who was about to sleep would not notice.
const lookAgain = time.Second

// Doorbell implements verbs.Datapath: the daemon's loop sees the bit, unless it
// sleeps.
//
//gorxe:hot
func (c *Client) Doorbell(h verbs.Handle) {
	shard, bell := BellOf(h)
	if shard >= len(c.bells) {
		return
	}
	b := c.bells[shard]
	b.Bells.Ring(bell)
	if b.Asleep.Load() != 0 && b.Asleep.CompareAndSwap(1, 0) {
		_ = c.conn.Send(OpWake, OK, 0, &WakeReq{Shard: uint32(shard)}, nil, 0)
	}
}

// Progress implements verbs.Datapath. The daemon makes progress; who polls lets it.
//
//gorxe:hot
func (c *Client) Progress(verbs.Handle) { sys.Yield() }

// WaitCQ implements verbs.Datapath.
func (c *Client) WaitCQ(ctx context.Context, h verbs.Handle, q *verbs.CompQueue, solicited bool) error {
	c.mu.Lock()
	m := c.objects[object{verbs.KindCQ, h}]
	c.mu.Unlock()
	if m == nil {
		return c.noCQ(h)
	}
	m.gate.RLock()
	defer m.gate.RUnlock()
	if m.gone {
		return c.noCQ(h)
	}
	for end := time.Now().Add(spin); ; sys.Yield() {
		switch {
		case !q.Empty():
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case c.Err() != nil:
			return c.Err()
		}
		if time.Now().After(end) {
			break
		}
	}
	w := q.Notifications()
	if !c.enter(object{verbs.KindCQ, h}, w) {
		return c.noCQ(h)
	}
	defer c.leave(w)
	over := func() bool { return ctx.Err() != nil || c.Err() != nil || m.ending.Load() }
	seen := w.Load()
	q.Arm(solicited)
	if !q.Empty() {
		return nil
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { c.poke(w) })()
	}
	for w.Load() == seen && !over() {
		sys.FutexWait(w, seen, lookAgain)
	}
	if !q.Empty() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.Err()
}

func (c *Client) noCQ(h verbs.Handle) error {
	if err := c.Err(); err != nil {
		return err
	}
	return fmt.Errorf("control: no completion queue has handle %#x: it was destroyed: %w", uint32(h), verbs.ErrClosed)
}

// enter notes that somebody waits on a word, unless its queue is gone.
func (c *Client) enter(o object, w *atomic.Uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects[o] == nil {
		return false
	}
	c.waiters[w]++
	return true
}

func (c *Client) leave(w *atomic.Uint32) {
	c.mu.Lock()
	if c.waiters[w]--; c.waiters[w] == 0 {
		delete(c.waiters, w)
	}
	c.mu.Unlock()
}

// poke wakes who waits on a word, while anybody does: afterwards its memory may be
// gone.
func (c *Client) poke(w *atomic.Uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiters[w] > 0 {
		w.Add(1)
		sys.FutexWake(w)
	}
}

// word returns the notification word of a completion ring's memory.
func word(mem []byte) *atomic.Uint32 {
	const at = 132
	if len(mem) < at+4 {
		return nil
	}
	return (*atomic.Uint32)(unsafe.Pointer(&mem[at]))
}
