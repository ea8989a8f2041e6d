package nic

import (
	"testing"

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
