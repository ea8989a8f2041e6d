package nic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

// TestNoAllocations: posting, sending, receiving, acknowledging and polling
// allocate nothing, whatever the operation, once everything has its size.
func TestNoAllocations(t *testing.T) {
	for _, c := range []mem.Config{{}, {Single: true}, {HideIDs: true}, {Shards: 2}} {
		as, bs, err := mem.Pair(c, c)
		require.NoError(t, err)
		var now int64
		manual := func(c *Config) { c.Manual, c.Clock = true, func() int64 { return now } }
		a, b := open(t, as, there, manual), open(t, bs, here, manual)
		defer a.close()
		defer b.close()
		qa, qb := a.newQP(a.cq), b.newQP(b.cq)
		connect(t, a, b, qa, qb)
		self, self2 := a.newQP(a.cq), a.newQP(a.cq)
		connect(t, a, a, self, self2)

		remote := func(op verbs.WROpcode, n int) verbs.SendWR {
			return verbs.SendWR{Opcode: op, SGL: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled}
		}
		wrs := []verbs.SendWR{
			remote(verbs.WRWrite, 200000), remote(verbs.WRWrite, 8), remote(verbs.WRSend, 30000), remote(verbs.WRSend, 3),
			remote(verbs.WRWriteImm, 300), remote(verbs.WRRead, 100000), remote(verbs.WRFetchAdd, 8), remote(verbs.WRCmpSwap, 8),
			{Opcode: verbs.WRSend, Inline: []byte("inline"), Flags: verbs.SendSignaled | verbs.SendInline},
		}
		rwr := []verbs.RecvWR{{SGL: []verbs.SGE{b.mr.SGE(200000, 30000)}}}
		local := []verbs.SendWR{{Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 50000)}, RemoteAddr: a.mr.Addr() + 400000, RKey: a.mr.RKey(), Flags: verbs.SendSignaled}}
		var wc [16]verbs.WC
		round := func() {
			for range 4 {
				_, _ = qb.PostRecv(rwr)
			}
			_, _ = qa.PostSend(wrs)
			_, _ = self.PostSend(local)
			for left := len(wrs) + len(local); left > 0; now += 1000 {
				for i := range as {
					a.nic.Step(i, now)
					b.nic.Step(i, now)
				}
				n := a.cq.Poll(wc[:])
				for i := range wc[:n] {
					if wc[i].Status != verbs.WCSuccess {
						t.Fatal(wc[i].Err())
					}
				}
				left -= n
				b.cq.Poll(wc[:])
			}
		}
		round()
		require.Zero(t, testing.AllocsPerRun(100, round))
	}
}

// TestNoAllocationsDatagrams: neither do datagrams, to one or to a group, over
// several shards, into a queue pair's own requests or shared ones.
func TestNoAllocationsDatagrams(t *testing.T) {
	for _, c := range []mem.Config{{}, {Single: true}, {HideIDs: true}, {Shards: 2}} {
		as, bs, err := mem.Pair(c, c)
		require.NoError(t, err)
		var now int64
		manual := func(c *Config) { c.Manual, c.Clock = true, func() int64 { return now } }
		a, b := open(t, as, there, manual), open(t, bs, here, manual)
		defer a.close()
		defer b.close()
		qa := a.datagrams(verbs.QPConfig{})
		srq, err := b.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 512})
		require.NoError(t, err)
		far := b.newCQ(verbs.CQConfig{Vector: len(bs) - 1})
		cqs := []*verbs.CQ{a.newCQ(verbs.CQConfig{}), b.cq, b.cq, far, far}
		qs := []*verbs.QP{
			a.datagrams(verbs.QPConfig{SendCQ: a.cq, RecvCQ: cqs[0]}),
			b.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{SRQ: srq, SendCQ: b.cq, RecvCQ: b.cq}),
			b.datagrams(verbs.QPConfig{SendCQ: far, RecvCQ: far}), b.datagrams(verbs.QPConfig{SRQ: srq, SendCQ: far, RecvCQ: far}),
		}
		var wrs []verbs.SendWR
		for _, q := range qs {
			require.NoError(t, q.AttachMulticast(verbs.GIDOf(group)))
			to := b
			if q == qs[0] {
				to = a
			}
			for _, n := range []int{0, 64, 2000} {
				wrs = append(wrs, a.to(0, a.ah(to.addr), q.QPN(), n))
			}
		}
		wrs = append(wrs, a.to(0, a.ah(group), 0xffffff, 100), a.to(0, a.ah(group), 0xffffff, 1000))
		room := []verbs.RecvWR{{SGL: []verbs.SGE{b.mr.SGE(4096, 40), b.mr.SGE(8192, 2100)}}}
		here := []verbs.RecvWR{{SGL: []verbs.SGE{a.mr.SGE(4096, 2140)}}}
		const each = 5 // three of its own and two of the group
		var wc [32]verbs.WC
		poll := func(cq *verbs.CQ) int {
			n := cq.Poll(wc[:])
			for i := range wc[:n] {
				if wc[i].Status != verbs.WCSuccess {
					t.Fatal(wc[i].Err())
				}
			}
			return n
		}
		round := func() {
			for range each {
				_, _ = qs[0].PostRecv(here)
				_, _ = qs[1].PostRecv(room)
				_, _ = qs[3].PostRecv(room)
				_, _ = srq.PostRecv(room)
				_, _ = srq.PostRecv(room)
			}
			_, _ = qa.PostSend(wrs)
			left := len(wrs) + each*len(qs)
			for turns := 0; left > 0 && turns < 1000; turns++ {
				now += 1000
				for i := range as {
					a.nic.Step(i, now)
					b.nic.Step(i, now)
				}
				left -= poll(a.cq) + poll(cqs[0]) + poll(b.cq) + poll(far)
			}
			if left != 0 {
				t.Fatalf("%d completions are missing", left)
			}
		}
		round()
		require.Zero(t, testing.AllocsPerRun(50, round))
	}
}

// TestNoAllocationsWaiting: neither does a NIC with its own goroutines, when
// the program polls.
func TestNoAllocationsWaiting(t *testing.T) {
	a, b := pair(t, 1)
	qa, qb := a.newQP(a.cq), b.newQP(b.cq)
	connect(t, a, b, qa, qb)
	wrs := []verbs.SendWR{writeTo(a, b, 100000), writeTo(a, b, 8)}
	var wc [4]verbs.WC
	round := func() {
		_, _ = qa.PostSend(wrs)
		for n := 0; n < len(wrs); {
			k := a.cq.Poll(wc[:])
			for i := range wc[:k] {
				if wc[i].Status != verbs.WCSuccess {
					t.Fatal(wc[i].Err())
				}
			}
			n += k
		}
	}
	round()
	require.Zero(t, testing.AllocsPerRun(200, round))
}

// BenchmarkWrite is a floor: two NICs, one thread, memory to memory.
func BenchmarkWrite(b *testing.B) {
	x, y := pair(b, 1)
	qa, qb := x.newQP(x.cq), y.newQP(y.cq)
	connect(b, x, y, qa, qb)
	const size = 1 << 20
	wrs := []verbs.SendWR{writeTo(x, y, size)}
	var wc [4]verbs.WC
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = qa.PostSend(wrs)
		for n := 0; n == 0; n = x.cq.Poll(wc[:]) {
			y.cq.Poll(nil)
			y.nic.Progress(firstHandle)
		}
	}
}

// BenchmarkPingPong is the program's and the NIC's part of a short message and its
// answer: two NICs, one thread, no kernel.
func BenchmarkPingPong(b *testing.B) {
	as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(b, err)
	alone := func(c *Config) { c.Lease = time.Hour }
	x, y := open(b, as, there, alone), open(b, bs, here, alone)
	defer x.close()
	defer y.close()
	qx, qy := x.newQP(x.cq), y.newQP(y.cq)
	connect(b, x, y, qx, qy)
	wr := []verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("hi")}}
	rx, ry := []verbs.RecvWR{{SGL: []verbs.SGE{x.mr.SGE(0, 64)}}}, []verbs.RecvWR{{SGL: []verbs.SGE{y.mr.SGE(0, 64)}}}
	var wc [1]verbs.WC
	hand := func(q *verbs.QP, far *verbs.CQ) {
		if _, err := q.PostSend(wr); err != nil {
			b.Fatal(err)
		}
		for far.Poll(wc[:]) == 0 {
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = qx.PostRecv(rx)
		_, _ = qy.PostRecv(ry)
		hand(qx, y.cq)
		hand(qy, x.cq)
	}
}
