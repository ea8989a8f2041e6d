package nic

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// TestInUse: nothing is destroyed while something else is made of it.
func TestInUse(t *testing.T) {
	a, _ := pair(t, 1)
	q := a.newQP(a.cq)
	err := a.pd.Destroy()
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "1 memory regions, 0 memory windows, 1 queue pairs, 0 shared")
	require.ErrorIs(t, a.cq.Destroy(), ErrInUse)
	require.NoError(t, q.Destroy())
	require.ErrorIs(t, q.Destroy(), verbs.ErrClosed)
	require.NoError(t, a.cq.Destroy())
	require.ErrorIs(t, a.cq.Destroy(), verbs.ErrClosed)
	require.ErrorIs(t, a.pd.Destroy(), ErrInUse)
	require.NoError(t, a.mr.Deregister())
	require.ErrorIs(t, a.mr.Deregister(), verbs.ErrClosed)
	a.mr.Bytes()[0] = 1 // memory of the device's making outlives the region
	require.NoError(t, a.pd.Destroy())
	require.ErrorIs(t, a.pd.Destroy(), verbs.ErrClosed)
}

// TestCreateFails: a creation that fails at any of its steps leaves nothing
// behind, and the next one works (syzbot found the kernel's wanting there).
func TestCreateFails(t *testing.T) {
	a, _ := pair(t, 2)
	n := a.nic
	cq, err := n.CreateCQ(verbs.CQConfig{Depth: 16})
	require.NoError(t, err)
	pd, err := n.AllocPD()
	require.NoError(t, err)
	before := n.qps.live
	for _, r := range []verbs.QPReq{
		{Type: 7, PD: pd, SendCQ: cq.Handle, RecvCQ: cq.Handle},
		{Type: verbs.UC, PD: pd, SendCQ: cq.Handle, RecvCQ: cq.Handle, SRQ: 1},
		{Type: verbs.RC, PD: pd, SendCQ: cq.Handle, RecvCQ: cq.Handle, SRQ: 1},
		{Type: verbs.RC, PD: pd + 1, SendCQ: cq.Handle, RecvCQ: cq.Handle},
		{Type: verbs.RC, PD: pd, SendCQ: cq.Handle + 1, RecvCQ: cq.Handle},
		{Type: verbs.RC, PD: pd, SendCQ: cq.Handle, RecvCQ: 0},
		{Type: verbs.RC, PD: pd, SendCQ: cq.Handle, RecvCQ: cq.Handle, Cap: verbs.QPCap{MaxSendWR: verbs.MaxQPWR + 1}},
	} {
		_, err := n.CreateQP(r)
		require.Error(t, err)
		if r.Type != verbs.RC && r.Type != verbs.UD {
			require.ErrorIs(t, err, verbs.ErrNotSupported)
		}
	}
	require.Equal(t, before, n.qps.live)
	for _, c := range []verbs.CQConfig{{Depth: 0}, {Depth: verbs.MaxCQE + 1}, {Depth: 1, Vector: 2}, {Depth: 1, Vector: -1}} {
		_, err := n.CreateCQ(c)
		require.Error(t, err)
	}
	_, err = n.RegMR(verbs.MRReq{PD: pd, Mem: make([]byte, 10), IOVA: ^uint64(0) - 5})
	require.ErrorContains(t, err, "wraps")
	_, err = n.RegMR(verbs.MRReq{PD: pd + 1, Mem: make([]byte, 10)})
	require.ErrorIs(t, err, verbs.ErrClosed)
	if runtime.GOOS == "linux" {
		for _, size := range []int{1 << 46, math.MaxInt} { // more than there can be
			_, err = n.RegMR(verbs.MRReq{PD: pd, Len: size})
			require.ErrorIs(t, err, syscall.ENOMEM)
		}
	}
	require.ErrorIs(t, n.Destroy(99, 1), verbs.ErrNotSupported)
	require.NoError(t, n.Destroy(verbs.KindPD, pd), "a failed creation holds the domain")
	require.NoError(t, n.Destroy(verbs.KindCQ, cq.Handle), "a failed creation holds the queue")
}

// TestClosed: after Close every call says so, and Close may be called again.
func TestClosed(t *testing.T) {
	a, _ := pair(t, 1)
	q := a.newQP(a.cq)
	n := a.nic
	require.NoError(t, n.Close())
	require.NoError(t, n.Close())
	calls := map[string]func() error{
		"AllocPD":     func() error { _, err := a.ctx.AllocPD(); return err },
		"RegMR":       func() error { _, err := a.pd.AllocMR(10, 0); return err },
		"CreateCQ":    func() error { _, err := a.ctx.CreateCQ(verbs.CQConfig{}); return err },
		"CreateQP":    func() error { _, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq}); return err },
		"Modify":      func() error { return q.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState) },
		"Device":      func() error { _, err := a.ctx.Device(); return err },
		"Port":        func() error { _, err := a.ctx.Port(); return err },
		"GIDs":        func() error { _, err := a.ctx.GIDs(); return err },
		"Counters":    func() error { _, err := a.ctx.Counters(); return err },
		"Wait":        func() error { _, err := a.cq.Wait(context.Background(), make([]verbs.WC, 1)); return err },
		"WaitUnknown": func() error { return n.WaitCQ(context.Background(), 77, nil, false) },
		"Err":         n.Err,
	}
	for name, f := range calls {
		require.ErrorIs(t, f(), verbs.ErrClosed, name)
	}
	require.Zero(t, a.cq.Poll(make([]verbs.WC, 1)))
	_, open := <-a.ctx.Events()
	require.False(t, open)
	require.NoError(t, q.Destroy(), "objects can still be let go of")
	n.Doorbell(1)
}

// TestDestroyPendingTimer: a queue pair that goes while its retransmit timer
// runs is never heard of again.
func TestDestroyPendingTimer(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	post(t, b.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 8)}, RemoteAddr: 1, RKey: 1})
	d := b.step()
	require.Less(t, d, int64(never), "no timer runs")
	require.Len(t, b.links[0].took(), 1)
	require.NoError(t, b.qp.Destroy())
	b.now = d + 1e9
	require.Equal(t, int64(never), b.step())
	require.Empty(t, b.links[0].took())
	require.Zero(t, b.cq.Poll(make([]verbs.WC, 1)))

	// The same with the packet still to be sent.
	b.qp = b.newQP(b.cq)
	b.connect()
	post(t, b.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 8)}, RemoteAddr: 1, RKey: 1})
	require.NoError(t, b.qp.Destroy())
	b.step()
	require.Empty(t, b.links[0].took())
}

// TestOverflow: a completion queue that overflows fails the queue pairs that
// use it, on every shard, with events, and its reader is told.
func TestOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		as, bs, err := mem.Pair(mem.Config{Shards: 2}, mem.Config{Shards: 2})
		require.NoError(t, err)
		a, b := open(t, as, there, nil), open(t, bs, here, nil)
		defer a.close()
		defer b.close()
		small := a.newCQ(verbs.CQConfig{Depth: 4})
		other := a.newCQ(verbs.CQConfig{Vector: 1})
		qa, qb := a.newQP(small), b.newQP(b.cq)
		// A queue pair of the other shard that receives into the small queue.
		far, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: other, RecvCQ: small})
		require.NoError(t, err)
		require.Equal(t, uint32(1), far.QPN()&0xf)
		farB := b.newQP(b.cq)
		connect(t, a, b, qa, qb)
		connect(t, a, b, far, farB)
		for range 5 {
			post(t, qa, writeTo(a, b, 8))
		}
		synctest.Wait()
		for _, q := range []*verbs.QP{qa, far} {
			at, err := q.Query()
			require.NoError(t, err)
			require.Equal(t, verbs.StateErr, at.State)
		}
		got := map[verbs.EventType]int{}
		for len(a.ctx.Events()) > 0 {
			got[(<-a.ctx.Events()).Type]++
		}
		require.Equal(t, 1, got[verbs.EventCQErr])
		require.Equal(t, 2, got[verbs.EventQPFatal])
		var wc [8]verbs.WC
		n, err := small.Wait(context.Background(), wc[:])
		require.NoError(t, err)
		require.Equal(t, 4, n)
		_, err = small.Wait(context.Background(), wc[:])
		require.ErrorContains(t, err, "overflown")
		require.Positive(t, counter(t, a, "cq_overflow"))
	})
}

// TestOverflowSpreads: the flush of a queue pair whose completion queue
// overflowed may overflow another one, whose queue pairs then fail too.
func TestOverflowSpreads(t *testing.T) {
	b := newBench(t, 1, nil)
	first, second := b.newCQ(verbs.CQConfig{Depth: 1}), b.newCQ(verbs.CQConfig{Depth: 1})
	qp := func(send, recv *verbs.CQ) *verbs.QP {
		q, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: send, RecvCQ: recv})
		require.NoError(t, err)
		b.connectQP(q)
		return q
	}
	feeds, uses := qp(first, second), qp(b.cq, second)
	for range 2 {
		recv(t, feeds, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 8)}})
		post(t, feeds, verbs.SendWR{Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{b.mr.SGE(0, 8)}})
	}
	b.step()
	ack := bth.Packet{Opcode: bth.RCAck, MigReq: true, PKey: 0xffff, DestQP: bth.QPN(feeds.QPN()), PSN: bth.MakePSN(ourPSN + 1), Syndrome: bth.AckUnlimited}
	b.links[0].arrive(datagram(ack, 0)) // for both
	b.step()
	for _, q := range []*verbs.QP{feeds, uses} {
		at, err := q.Query()
		require.NoError(t, err)
		require.Equal(t, verbs.StateErr, at.State)
	}
	got := map[verbs.EventType]int{}
	for len(b.ctx.Events()) > 0 {
		got[(<-b.ctx.Events()).Type]++
	}
	require.Equal(t, 2, got[verbs.EventCQErr])
}

// panicLink breaks the NIC from inside.
type panicLink struct{ *fakeLink }

func (l *panicLink) Send([]*wire.Burst) (int, error) { panic("broken invariant") }

// TestCrash: a panic inside a step goes up with what happened last, and the
// device is dead but leaves nothing locked.
func TestCrash(t *testing.T) {
	l := &panicLink{newFakeLink()}
	b := &bench{links: []*fakeLink{l.fakeLink}}
	b.node = open(t, []link.Link{l}, here, func(c *Config) { c.Manual = true })
	b.qp = b.newQP(b.cq)
	b.connect()
	post(t, b.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 8)}, RemoteAddr: 1, RKey: 1})
	func() {
		defer func() {
			text, _ := recover().(string)
			require.Contains(t, text, "broken invariant")
			require.True(t, strings.Contains(text, trace.NoteState.String()), text)
		}()
		b.nic.Step(0, b.now)
		t.Error("no panic")
	}()
	require.ErrorIs(t, b.nic.Err(), ErrFailed)
	_, err := b.ctx.AllocPD()
	require.ErrorIs(t, err, ErrFailed)
	_, err = b.cq.Wait(context.Background(), make([]verbs.WC, 1))
	require.ErrorIs(t, err, ErrFailed)
	require.Equal(t, int64(never), b.nic.Step(0, b.now))
	require.Equal(t, verbs.EventDeviceFatal, (<-b.ctx.Events()).Type)
	b.close()
	require.ErrorIs(t, b.nic.Err(), ErrFailed)
}

// churn creates, connects, uses and destroys queue pairs and regions until
// the device is closed or n rounds are done. Every error but the device's end
// is a fault.
func churn(a, b *node, vector, n int) error {
	over := func(err error) bool { return errors.Is(err, verbs.ErrClosed) }
	for i := range n {
		err := func() error {
			ca, err := a.ctx.CreateCQ(verbs.CQConfig{Depth: 64, Vector: vector})
			if err != nil {
				return err
			}
			cb, err := b.ctx.CreateCQ(verbs.CQConfig{Depth: 64, Vector: (vector + i) % b.nic.Shards()})
			if err != nil {
				return err
			}
			qa, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: ca, RecvCQ: ca})
			if err != nil {
				return err
			}
			qb, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: cb, RecvCQ: cb})
			if err != nil {
				return err
			}
			ma, err := a.pd.AllocMR(30000, verbs.AccessAll)
			if err != nil {
				return err
			}
			ea, err := qa.Endpoint(b.addr)
			if err != nil {
				return err
			}
			eb, err := qb.Endpoint(a.addr)
			if err != nil {
				return err
			}
			if err := errors.Join(qa.Connect(ea, eb, verbs.ConnectOptions{}), qb.Connect(eb, ea, verbs.ConnectOptions{})); err != nil {
				return err
			}
			mb, err := b.pd.AllocMR(30000, verbs.AccessAll)
			if err != nil {
				return err
			}
			wr := verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{ma.SGE(0, 30000)}, RemoteAddr: mb.Addr(), RKey: mb.RKey(), Flags: verbs.SendSignaled}
			if _, err := qa.PostSend([]verbs.SendWR{wr, wr, wr}); err != nil {
				return err
			}
			if i%3 > 0 { // else it goes with everything in flight
				var wc [4]verbs.WC
				for got := 0; got < 3; {
					k, err := ca.Wait(context.Background(), wc[:])
					if err != nil {
						return err
					}
					for _, c := range wc[:k] {
						if c.Err() != nil {
							return c.Err()
						}
					}
					got += k
				}
			}
			if i%2 == 0 {
				if err := ma.Deregister(); err != nil {
					return err
				}
				clear(ma.Bytes())
			}
			err = errors.Join(qa.Destroy(), qb.Destroy(), ca.Destroy(), cb.Destroy(), mb.Deregister())
			if i%2 != 0 {
				err = errors.Join(err, ma.Deregister())
			}
			return err
		}()
		if over(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestChurn creates and destroys from many goroutines, on any number of
// shards; run it with the race detector.
func TestChurn(t *testing.T) {
	for _, shards := range []int{1, 2, 4} {
		a, b := pair(t, shards)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if err := churn(a, b, i%shards, 15); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				_, _ = a.ctx.Counters()
				_ = a.nic.Trace(0)
			}
		})
		wg.Wait()
		m, err := a.ctx.Counters()
		require.NoError(t, err)
		require.Zero(t, m["icrc_error"])
	}
}

// TestCloseUnderLoad closes either device while everything is in motion:
// clean errors, no use after close, nothing left running (goleak).
func TestCloseUnderLoad(t *testing.T) {
	for round := range 8 {
		a, b := pair(t, 1+round%2)
		var wg sync.WaitGroup
		started := make(chan struct{}, 4)
		for i := range 4 {
			wg.Go(func() {
				started <- struct{}{}
				for churn(a, b, i%a.nic.Shards(), 1) == nil && a.nic.Err() == nil && b.nic.Err() == nil {
				}
			})
		}
		for range 4 {
			<-started
		}
		first, second := a, b
		if round%4 > 1 {
			first, second = b, a
		}
		require.NoError(t, first.ctx.Close())
		require.NoError(t, second.ctx.Close())
		wg.Wait()
	}
}

// badEnd is a link that does not end well.
type badEnd struct {
	*fakeLink
	end error
}

func (l badEnd) Close() error { return errors.Join(l.end, l.fakeLink.Close()) }

// TestCloseTells: what the links say at the end, as of a capture that could
// not be written, is the device's to say.
func TestCloseTells(t *testing.T) {
	end := errors.New("no space left")
	gid := verbs.GID(netip.MustParseAddr("192.0.2.1").As16())
	n, err := Open(Config{Links: []link.Link{badEnd{newFakeLink(), end}, newFakeLink()}, GIDs: []verbs.GIDEntry{{GID: gid}}})
	require.NoError(t, err)
	require.ErrorIs(t, n.Close(), end)
	require.ErrorIs(t, n.Close(), end)
}
