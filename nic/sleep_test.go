package nic

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// stopLink stops whoever calls it, once, where a test says so.
type stopLink struct {
	link.Link
	recv, send, wait stop
}

type stop struct{ f atomic.Pointer[func()] }

func (s *stop) next(f func()) { s.f.Store(&f) }

func (s *stop) here() {
	if f := s.f.Swap(nil); f != nil {
		(*f)()
	}
}

func (l *stopLink) Recv(ds []wire.Datagram) (int, error) {
	l.recv.here()
	return l.Link.Recv(ds)
}

func (l *stopLink) Send(bs []*wire.Burst) (int, error) {
	l.send.here()
	return l.Link.Send(bs)
}

func (l *stopLink) Wait(d time.Duration) error {
	l.wait.here()
	return l.Link.Wait(d)
}

// stopped runs f in a bubble with two connected nodes whose waiters sleep in the
// link. The first one's link can be stopped.
func stopped(t *testing.T, rules string, f func(t *testing.T, l *stopLink, a, b *node, qa, qb *verbs.QP)) {
	synctest.Test(t, func(t *testing.T) {
		as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
		require.NoError(t, err)
		l := &stopLink{Link: fault.WrapAll(as, fault.Config{Rules: fault.MustParse(rules), Seed: 1})[0]}
		leased := func(c *Config) { c.Lease = DefaultSpin }
		a, b := open(t, []link.Link{l}, there, leased), open(t, bs, here, leased)
		defer a.close()
		defer b.close()
		qa, qb := a.newQP(a.cq), b.newQP(b.cq)
		connect(t, a, b, qa, qb)
		time.Sleep(time.Second)
		f(t, l, a, b, qa, qb)
	})
}

// waiting begins a wait; the channel gives its end.
func waiting(ctx context.Context, cq *verbs.CQ) <-chan error {
	end := make(chan error, 1)
	go func() {
		_, err := cq.Wait(ctx, make([]verbs.WC, 1))
		end <- err
	}()
	synctest.Wait()
	return end
}

// ends requires that a wait ends within a time.
func ends(t *testing.T, end <-chan error, within time.Duration) error {
	t.Helper()
	select {
	case err := <-end:
		return err
	case <-time.After(within):
		t.Fatal("still asleep")
		return nil
	}
}

// TestSleepsToDeadline: a waiter that goes to sleep while the background steps does
// not sleep beyond what that step has left to be done.
func TestSleepsToDeadline(t *testing.T) {
	stopped(t, "tx drop opcode=RC_WRITE_ONLY first=1", func(t *testing.T, l *stopLink, a, b *node, qa, _ *verbs.QP) {
		on := make(chan struct{})
		l.send.next(func() { <-on })
		s := a.nic.shards[0]
		s.mu.Lock() // as for a query, so that who posts leaves it to others
		post(t, qa, writeTo(a, b, 8))
		s.mu.Unlock()
		s.kick()
		synctest.Wait()
		end := waiting(t.Context(), a.cq)
		close(on)
		require.NoError(t, ends(t, end, time.Second), "nobody sends the lost packet again")
	})
}

// TestEndsInTime: a wait ends although the queue is destroyed, or the context ends,
// between the waiter's last look at that and its sleep; and when the device fails
// in another thread.
func TestEndsInTime(t *testing.T) {
	t.Run("queue", func(t *testing.T) {
		stopped(t, "", func(t *testing.T, l *stopLink, a, _ *node, _, _ *verbs.QP) {
			cq, on := a.newCQ(verbs.CQConfig{}), make(chan struct{})
			l.recv.next(func() { l.recv.next(func() { <-on }) }) // not when it polls, but when it attends
			end := waiting(t.Context(), cq)
			require.True(t, a.nic.shards[0].bg.driven())
			require.NoError(t, cq.Destroy())
			close(on)
			require.ErrorIs(t, ends(t, end, time.Second), verbs.ErrClosed)
		})
	})
	t.Run("context", func(t *testing.T) {
		stopped(t, "", func(t *testing.T, l *stopLink, a, _ *node, _, _ *verbs.QP) {
			up, on := make(chan struct{}), make(chan struct{})
			l.wait.next(func() { <-up }) // the background, which will take the wake
			l.Wake()
			synctest.Wait()
			l.recv.next(func() { l.recv.next(func() { <-on }) })
			ctx, cancel := context.WithCancel(t.Context())
			end := waiting(ctx, a.cq)
			require.True(t, a.nic.shards[0].bg.driven())
			cancel()
			synctest.Wait()
			close(up)
			synctest.Wait()
			close(on)
			require.ErrorIs(t, ends(t, end, time.Second), context.Canceled)
		})
	})
	t.Run("device", func(t *testing.T) {
		stopped(t, "", func(t *testing.T, l *stopLink, a, _ *node, _, _ *verbs.QP) {
			end := waiting(t.Context(), a.cq)
			l.recv.next(func() { panic("an invariant is broken") })
			require.Panics(t, func() { a.nic.Progress(firstHandle) })
			require.ErrorIs(t, ends(t, end, time.Second), ErrFailed)
		})
	})
}

// TestStops: however long a program has waited for one message after another, when
// it stops the background takes over soon enough for its peer.
func TestStops(t *testing.T) {
	stopped(t, "", func(t *testing.T, _ *stopLink, a, b *node, qa, qb *verbs.QP) {
		const messages = 3000
		served := make(chan struct{})
		go func() {
			defer close(served)
			for range messages {
				recv(t, qb, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
				good(t, b.cq, 1)
			}
		}()
		for range messages {
			time.Sleep(maxNap / 3)
			post(t, qa, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{a.mr.SGE(64, 8)}, Flags: verbs.SendSignaled})
			good(t, a.cq, 1)
		}
		<-served
		for range 8 {
			start := time.Now()
			post(t, qa, writeTo(a, b, 8))
			good(t, a.cq, 1)
			require.LessOrEqual(t, time.Since(start), maxNap)
			time.Sleep(maxNap)
		}
	})
}
