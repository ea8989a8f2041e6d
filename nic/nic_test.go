package nic

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

// everyOp runs each RC operation once between two connected queue pairs and
// compares the memory.
func everyOp(t *testing.T, a, b *node, qa, qb *verbs.QP, ca, cb *verbs.CQ) {
	t.Helper()
	ma, mb := a.mr.Bytes(), b.mr.Bytes()
	pattern(ma, 3)
	clear(mb)

	recv(t, qb, verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 100000)}}, verbs.RecvWR{ID: 2, SGL: []verbs.SGE{b.mr.SGE(200000, 10)}},
		verbs.RecvWR{ID: 3})
	post(t, qa,
		verbs.SendWR{ID: 10, Opcode: verbs.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, 60000), a.mr.SGE(60000, 40000)}, Flags: verbs.SendSignaled},
		verbs.SendWR{ID: 11, Opcode: verbs.WRSendImm, Imm: 0xdeadbeef, Inline: []byte("inline"), Flags: verbs.SendSignaled | verbs.SendInline},
		verbs.SendWR{ID: 12, Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(1, 300001)}, RemoteAddr: b.mr.Addr() + 300000, RKey: b.mr.RKey(), Flags: verbs.SendSignaled},
		verbs.SendWR{ID: 13, Opcode: verbs.WRWriteImm, Imm: 7, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled},
	)
	wa, wb := good(t, ca, 4), good(t, cb, 3)
	for i, c := range wa {
		require.Equal(t, uint64(10+i), c.ID)
	}
	require.Equal(t, uint32(100000), wb[0].ByteLen)
	require.Equal(t, ma[:100000], mb[:100000])
	require.Equal(t, uint32(0xdeadbeef), wb[1].Imm)
	require.Equal(t, "inline", string(mb[200000:200006]))
	require.Equal(t, verbs.WCRecvWriteImm, wb[2].Opcode)
	require.Equal(t, ma[1:300002], mb[300000:600001])

	binary.NativeEndian.PutUint64(mb[700000:], 0x0102030405060708)
	post(t, qa,
		verbs.SendWR{ID: 20, Opcode: verbs.WRRead, SGL: []verbs.SGE{a.mr.SGE(500000, 150001)}, RemoteAddr: b.mr.Addr() + 300000, RKey: b.mr.RKey(), Flags: verbs.SendSignaled},
		verbs.SendWR{ID: 21, Opcode: verbs.WRFetchAdd, CompareAdd: 1, SGL: []verbs.SGE{a.mr.SGE(800000, 8)}, RemoteAddr: b.mr.Addr() + 700000, RKey: b.mr.RKey(), Flags: verbs.SendSignaled},
		verbs.SendWR{ID: 22, Opcode: verbs.WRCmpSwap, CompareAdd: 0x0102030405060709, Swap: 42, SGL: []verbs.SGE{a.mr.SGE(800008, 8)}, RemoteAddr: b.mr.Addr() + 700000, RKey: b.mr.RKey(), Flags: verbs.SendSignaled},
	)
	good(t, ca, 3)
	require.Equal(t, mb[300000:450001], ma[500000:650001])
	require.Equal(t, uint64(0x0102030405060708), a.mr.Uint64(800000))
	require.Equal(t, uint64(0x0102030405060709), a.mr.Uint64(800008))
	require.Equal(t, uint64(42), b.mr.Uint64(700000))
}

// TestOperations runs every operation over every way packets can come: whole
// bursts, single packets, hidden identifications, and any number of shards.
func TestOperations(t *testing.T) {
	for _, c := range []mem.Config{
		{Shards: 1}, {Shards: 2}, {Shards: 4}, {Shards: 1, Single: true}, {Shards: 2, HideIDs: true, Single: true}, {Shards: 1, MTU: 1500},
	} {
		t.Run(fmt.Sprintf("shards=%d single=%v hidden=%v mtu=%d", c.Shards, c.Single, c.HideIDs, c.MTU), func(t *testing.T) {
			a, b := pairWith(t, c, nil)
			for v := range c.Shards {
				ca, cb := a.newCQ(verbs.CQConfig{Vector: v}), b.newCQ(verbs.CQConfig{Vector: c.Shards - 1 - v})
				qa, qb := a.newQP(ca), b.newQP(cb)
				connect(t, a, b, qa, qb)
				everyOp(t, a, b, qa, qb, ca, cb)
				everyOp(t, b, a, qb, qa, cb, ca)
			}
		})
	}
}

// TestHairpin connects queue pairs of one device with each other, on one
// shard and across two.
func TestHairpin(t *testing.T) {
	for _, shards := range []int{1, 2} {
		a, _ := pair(t, shards)
		ca, cb := a.newCQ(verbs.CQConfig{}), a.newCQ(verbs.CQConfig{Vector: shards - 1})
		qa, qb := a.newQP(ca), a.newQP(cb)
		connect(t, a, a, qa, qb)
		pattern(a.mr.Bytes(), 1)
		post(t, qa, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 500000)}, RemoteAddr: a.mr.Addr() + 500000, RKey: a.mr.RKey(), Flags: verbs.SendSignaled})
		good(t, ca, 1)
		require.Equal(t, a.mr.Bytes()[:500000], a.mr.Bytes()[500000:1000000])
		post(t, qb, verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{a.mr.SGE(600001, 400000)}, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey(), Flags: verbs.SendSignaled})
		good(t, cb, 1)
		require.Positive(t, counter(t, a, "hairpin_pkts"))
		require.Zero(t, counter(t, a, "sent_pkts"))
	}
}

// TestHairpinFull: when the other shard does not keep up, what its inbox has
// no room for waits; nothing is lost or sent twice.
func TestHairpinFull(t *testing.T) {
	b := newBench(t, 2, nil)
	var qs []*verbs.QP
	far := b.newCQ(verbs.CQConfig{Vector: 1, Depth: 1024})
	for range 20 {
		q, peer := b.newQP(b.cq), b.newQP(far)
		connect(t, b.node, b.node, q, peer)
		qs = append(qs, q)
	}
	b.step()
	for _, q := range qs {
		post(t, q, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 500000)}, RemoteAddr: b.mr.Addr() + 500000, RKey: b.mr.RKey(), Flags: verbs.SendSignaled})
	}
	for i := 0; b.nic.Step(0, b.now) <= b.now && i < 100; i++ { // shard 1 stands still
	}
	require.Positive(t, counter(t, b.node, "link_short_send"), "the inbox never was full")
	var wc [64]verbs.WC
	done := 0
	for i := 0; done < len(qs); i++ {
		require.Less(t, i, 1000)
		b.step()
		n := b.cq.Poll(wc[:])
		for _, c := range wc[:n] {
			require.NoError(t, c.Err())
		}
		done += n
	}
	require.Zero(t, counter(t, b.node, "repeated_requests"))
	require.Zero(t, counter(t, b.node, "rx_overflow"))
	require.Zero(t, counter(t, b.node, "duplicate_request"))
}
