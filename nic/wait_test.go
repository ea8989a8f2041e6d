package nic

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// bubble runs f in a synctest bubble with two connected nodes, whose waiters are
// woken by the background, and then such as look after the shard themselves; rules
// are the faults of the first one's link.
func bubble(t *testing.T, rules string, f func(t *testing.T, a, b *node, qa, qb *verbs.QP)) {
	for name, lease := range map[string]time.Duration{"woken": 0, "attending": DefaultSpin} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
				require.NoError(t, err)
				if rules != "" {
					as = fault.WrapAll(as, fault.Config{Rules: fault.MustParse(rules), Seed: 1})
				}
				leased := func(c *Config) { c.Lease = lease }
				a, b := open(t, as, there, leased), open(t, bs, here, leased)
				defer a.close()
				defer b.close()
				qa, qb := a.newQP(a.cq), b.newQP(b.cq)
				connect(t, a, b, qa, qb)
				f(t, a, b, qa, qb)
			})
		})
	}
}

// TestWakesSleeper: a waiter that sleeps, or many on as many queues, is woken by a
// packet, by what another thread's step completes, and after its fellows have left;
// time that passes in the link counts.
func TestWakesSleeper(t *testing.T) {
	bubble(t, "", func(t *testing.T, a, b *node, qa, qb *verbs.QP) {
		other := b.newCQ(verbs.CQConfig{})
		self, self2 := b.newQP(other), b.newQP(b.cq)
		connect(t, b, b, self, self2)
		far, near := a.newQP(a.cq), b.newQP(other)
		connect(t, a, b, far, near)
		got := make(chan string, 2)
		sleeper := func(name string, cq *verbs.CQ) {
			go func() {
				var wc [1]verbs.WC
				_, err := cq.Wait(t.Context(), wc[:])
				if err == nil {
					err = wc[0].Err()
				}
				if err != nil {
					name = err.Error()
				}
				got <- name
			}()
			synctest.Wait()
		}
		room := verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 64)}}
		send := verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{b.mr.SGE(64, 8)}}
		theirs := verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{a.mr.SGE(64, 8)}}
		prompt := func(want string, f func()) {
			t.Helper()
			start := time.Now()
			f()
			require.Equal(t, want, <-got)
			require.Less(t, time.Since(start), 2*DefaultSpin, want)
		}
		for range 3 {
			for _, q := range []*verbs.QP{qb, self2, near} {
				recv(t, q, room)
			}
			time.Sleep(time.Second)
			sleeper("first", b.cq)
			sleeper("second", other)
			time.Sleep(time.Second)
			prompt("first", func() { post(t, self, send) }) // who posts steps
			time.Sleep(time.Second)
			prompt("second", func() { post(t, far, theirs) })
			sleeper("first", b.cq)
			sleeper("second", other)
			prompt("second", func() { recv(t, near, room); post(t, far, theirs) })
			prompt("first", func() { post(t, qa, theirs) })
		}
	})
}

func writeTo(a, b *node, n int) verbs.SendWR {
	return verbs.SendWR{ID: 5, Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled}
}

// TestTimeout: a lost packet is sent again after the timeout and not before,
// on the bubble's clock. Between T and 4T is what the specification allows.
//
// = test IBA C9-141
func TestTimeout(t *testing.T) {
	bubble(t, "tx drop opcode=RC_WRITE_ONLY first=1", func(t *testing.T, a, b *node, qa, _ *verbs.QP) {
		start := time.Now()
		post(t, qa, writeTo(a, b, 100))
		good(t, a.cq, 1)
		const unit = 4096 * time.Nanosecond << 14
		require.GreaterOrEqual(t, time.Since(start), unit)
		require.LessOrEqual(t, time.Since(start), 4*unit)
		require.Equal(t, uint64(1), counter(t, a, "local_ack_timeout_err"))
	})
}

// TestRetryExceeded: with nobody listening the request fails after 1 + retry
// timeouts, with the status and vendor error users search for.
func TestRetryExceeded(t *testing.T) {
	bubble(t, "tx drop", func(t *testing.T, a, b *node, qa, _ *verbs.QP) {
		start := time.Now()
		post(t, qa, writeTo(a, b, 100), writeTo(a, b, 100))
		c := wait(t, a.cq, 2)
		require.Equal(t, verbs.WCRetryExcErr, c[0].Status)
		require.Equal(t, uint32(verbs.VendorRetryExceeded), c[0].VendorErr)
		require.Equal(t, trace.FailRetryExceeded, c[0].Reason)
		require.Equal(t, verbs.WCWRFlushErr, c[1].Status)
		const unit = 4096 * time.Nanosecond << 14
		require.GreaterOrEqual(t, time.Since(start), 8*unit)
		require.LessOrEqual(t, time.Since(start), 32*unit)
		require.Empty(t, a.ctx.Events(), "the completion says it already")
	})
}

// TestWaitEnds: a wait ends with its context, with the device, and with the
// queue.
func TestWaitEnds(t *testing.T) {
	bubble(t, "", func(t *testing.T, a, _ *node, _, _ *verbs.QP) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		start := time.Now()
		var wc [4]verbs.WC
		_, err := a.cq.Wait(ctx, wc[:])
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
		_, err = a.cq.Wait(ctx, wc[:])
		require.ErrorIs(t, err, context.DeadlineExceeded, "a context that was over before")

		lone := a.newCQ(verbs.CQConfig{})
		ends := make(chan error, 3)
		waitOn := func(cq *verbs.CQ) {
			go func() {
				_, err := cq.Wait(context.Background(), make([]verbs.WC, 1))
				ends <- err
			}()
		}
		waitOn(lone)
		synctest.Wait()
		require.NoError(t, lone.Destroy())
		require.ErrorIs(t, <-ends, verbs.ErrClosed)

		waitOn(a.cq)
		waitOn(a.cq)
		synctest.Wait()
		require.NoError(t, a.ctx.Close())
		require.ErrorIs(t, <-ends, verbs.ErrClosed)
		require.ErrorIs(t, <-ends, verbs.ErrClosed)
	})
}

// TestManyWaiters: no completion stays in a queue while somebody waits for it.
func TestManyWaiters(t *testing.T) {
	bubble(t, "", func(t *testing.T, a, b *node, qa, _ *verbs.QP) {
		const waiters = 8
		got := make(chan verbs.WC, waiters)
		for range waiters {
			go func() {
				var wc [1]verbs.WC
				if n, _ := a.cq.Wait(context.Background(), wc[:]); n == 1 {
					got <- wc[0]
				}
			}()
		}
		synctest.Wait()
		for range waiters / 2 {
			post(t, qa, writeTo(a, b, 10))
		}
		time.Sleep(3 * maxNap) // the other end may be napping
		require.Len(t, got, waiters/2)
		wr := writeTo(a, b, 10)
		post(t, qa, wr, wr, wr, wr)
		time.Sleep(3 * maxNap)
		require.Len(t, got, waiters)
	})
}

// TestWaitSolicited sleeps over completions that nobody asked to hear of, and
// then returns them too; failures always wake.
func TestWaitSolicited(t *testing.T) {
	bubble(t, "", func(t *testing.T, a, b *node, qa, qb *verbs.QP) {
		for i := range 3 {
			recv(t, qb, verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
		}
		got := make(chan int, 1)
		waitFor := func() {
			go func() {
				n, err := b.cq.WaitSolicited(context.Background(), make([]verbs.WC, 8))
				if err == nil {
					got <- n
				}
			}()
			synctest.Wait()
		}
		waitFor()
		send := verbs.SendWR{Opcode: verbs.WRSend, Inline: []byte("x"), Flags: verbs.SendInline}
		post(t, qa, send)
		synctest.Wait()
		require.Empty(t, got)
		send.Flags |= verbs.SendSolicited
		post(t, qa, send)
		synctest.Wait()
		require.Equal(t, 2, <-got)

		waitFor()
		require.NoError(t, qb.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		require.Equal(t, 1, <-got)
	})
}

// TestLease: while a caller steps a shard the background leaves arrivals to
// it, and takes over when the lease has lapsed.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLink()
		const lease = 10 * time.Millisecond
		b := &bench{links: []*fakeLink{l}}
		b.node = open(t, []link.Link{l}, here, func(c *Config) { c.Lease = lease })
		defer b.close()
		b.qp = b.newQP(b.cq)
		local := verbs.Endpoint{QPN: b.qp.QPN(), PSN: ourPSN}
		require.NoError(t, b.qp.Connect(local, verbs.Endpoint{QPN: peerQPN, PSN: peerPSN, GID: verbs.GIDOf(there)}, verbs.ConnectOptions{}))
		recv(t, b.qp, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 64)}}, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
		time.Sleep(2 * lease)

		b.nic.Progress(firstHandle)        // a caller steps: the lease begins
		l.arrive(datagram(b.request(), 8)) // ends the background's sleep in the link
		synctest.Wait()
		require.Empty(t, l.took(), "the background did not respect the lease")
		time.Sleep(lease / 2)
		require.Empty(t, l.took())
		time.Sleep(lease)
		require.Len(t, l.took(), 1, "nobody took over")

		// A waiter ends the lease at once.
		p := b.request()
		p.PSN = p.PSN.Add(1)
		b.nic.Progress(firstHandle)
		l.arrive(datagram(p, 8))
		synctest.Wait()
		require.Empty(t, l.took())
		b.nic.shards[0].kick()
		synctest.Wait()
		require.Len(t, l.took(), 1)
	})
}

// TestCallersAlone: with the background kept away by a lease, posting and
// polling in the caller's thread is enough.
func TestCallersAlone(t *testing.T) {
	as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(t, err)
	long := func(c *Config) { c.Lease = time.Hour }
	a, b := open(t, as, there, long), open(t, bs, here, long)
	defer a.close()
	defer b.close()
	qa, qb := a.newQP(a.cq), b.newQP(b.cq)
	connect(t, a, b, qa, qb)
	var wc [4]verbs.WC
	for range 100 {
		post(t, qa, writeTo(a, b, 50000))
		for n := 0; n == 0; n = a.cq.Poll(wc[:]) {
			b.cq.Poll(wc[:])
		}
		require.NoError(t, wc[0].Err())
	}
}

// TestShortSend: what a link does not take goes later, in order, once.
func TestShortSend(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	l := b.links[0]
	l.room = 0
	post(t, b.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 30*4096)}, RemoteAddr: 1, RKey: 1})
	var psns []int
	for i := 0; len(psns) < 30; i++ {
		require.Less(t, i, 100)
		require.Greater(t, b.nic.Step(0, b.now), b.now, "a full link must not make the NIC spin")
		for _, p := range l.took() {
			psns = append(psns, p.PSN.Diff(bth.MakePSN(ourPSN)))
		}
		l.room = i % 5
	}
	for i, p := range psns {
		require.Equal(t, i, p)
	}
	require.Zero(t, counter(t, b.node, "repeated_requests"))
	require.Positive(t, counter(t, b.node, "link_short_send"))
	require.Equal(t, uint64(30), counter(t, b.node, "sent_pkts"))
}

// TestSendErrors: an error of the system is counted and logged, and the
// packets come again by the timer.
func TestSendErrors(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	l := b.links[0]
	l.err = errors.New("no route")
	post(t, b.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 8)}, RemoteAddr: 1, RKey: 1})
	b.now = b.step()
	require.Equal(t, uint64(1), counter(t, b.node, "send_err"))
	require.Positive(t, counter(t, b.node, "link_downed"))
	l.err = nil
	for range 10 {
		d := b.step()
		if len(l.took()) == 1 {
			return
		}
		b.now = d
	}
	t.Fatal("never sent again")
}
