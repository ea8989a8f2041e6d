package nic

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a NIC on a network in memory with what a program makes of it.
type node struct {
	t    testing.TB
	nic  *NIC
	ctx  *verbs.Context
	pd   *verbs.PD
	cq   *verbs.CQ
	mr   *verbs.MR
	addr netip.Addr
}

const (
	memLen = 1 << 20
	// firstHandle is that of the first object of a kind: the node's own queue.
	firstHandle = verbs.Handle(1<<handleSlotBits | 1)
)

// gidsOf makes a GID table of addresses.
func gidsOf(addrs ...netip.Addr) (t []verbs.GIDEntry) {
	for i, a := range addrs {
		t = append(t, verbs.GIDEntry{Index: i, GID: verbs.GIDOf(a), Type: "RoCE v2", Interface: "mem"})
	}
	return t
}

// open makes a node of links. Change may adjust the configuration.
func open(t testing.TB, links []link.Link, addr netip.Addr, change func(*Config)) *node {
	t.Helper()
	control := cc.Default()
	control.WindowInitial = 0 // all of it: what is posted leaves
	cfg := Config{Links: links, GIDs: gidsOf(addr), NetDev: "mem", Seed: uint64(addr.As16()[15]) + 1, CC: &control}
	if change != nil {
		change(&cfg)
	}
	d, err := Open(cfg)
	require.NoError(t, err)
	x := &node{t: t, nic: d, ctx: verbs.NewContext(d), addr: addr}
	x.pd, err = x.ctx.AllocPD()
	require.NoError(t, err)
	x.cq = x.newCQ(verbs.CQConfig{Depth: 1024})
	x.mr, err = x.pd.AllocMR(memLen, verbs.AccessAll)
	require.NoError(t, err)
	return x
}

func (x *node) newCQ(c verbs.CQConfig) *verbs.CQ {
	x.t.Helper()
	if c.Depth == 0 {
		c.Depth = 256
	}
	cq, err := x.ctx.CreateCQ(c)
	require.NoError(x.t, err)
	return cq
}

func (x *node) newQP(cq *verbs.CQ) *verbs.QP {
	x.t.Helper()
	q, err := x.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	require.NoError(x.t, err)
	return q
}

// pair opens two nodes on a network with a number of shards.
func pair(t testing.TB, shards int) (a, b *node) {
	return pairWith(t, mem.Config{Shards: shards}, nil)
}

func pairWith(t testing.TB, c mem.Config, change func(*Config)) (a, b *node) {
	t.Helper()
	c.Addrs = nil
	as, bs, err := mem.Pair(c, c)
	require.NoError(t, err)
	a = open(t, as, netip.MustParseAddr("192.0.2.1"), change)
	b = open(t, bs, netip.MustParseAddr("192.0.2.2"), change)
	t.Cleanup(func() { a.close(); b.close() })
	return a, b
}

func (x *node) close() { require.NoError(x.t, x.ctx.Close()) }

// connect takes two queue pairs to RTS.
func connect(t testing.TB, a, b *node, qa, qb *verbs.QP) {
	t.Helper()
	connectWith(t, a, b, qa, qb, verbs.ConnectOptions{})
}

func connectWith(t testing.TB, a, b *node, qa, qb *verbs.QP, o verbs.ConnectOptions) {
	t.Helper()
	ea, err := qa.Endpoint(b.addr)
	require.NoError(t, err)
	eb, err := qb.Endpoint(a.addr)
	require.NoError(t, err)
	require.NoError(t, qa.Connect(ea, eb, o))
	require.NoError(t, qb.Connect(eb, ea, o))
}

// wait returns the next completions of a queue, at least n.
func wait(t testing.TB, cq *verbs.CQ, n int) (out []verbs.WC) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wc [16]verbs.WC
	for len(out) < n {
		k, err := cq.Wait(ctx, wc[:])
		require.NoError(t, err, "after %d of %d completions", len(out), n)
		out = append(out, wc[:k]...)
	}
	return out
}

// good waits for n completions that must be successes.
func good(t testing.TB, cq *verbs.CQ, n int) []verbs.WC {
	t.Helper()
	out := wait(t, cq, n)
	for i := range out {
		require.NoError(t, out[i].Err())
	}
	return out
}

func post(t testing.TB, q *verbs.QP, wr ...verbs.SendWR) {
	t.Helper()
	n, err := q.PostSend(wr)
	require.NoError(t, err)
	require.Equal(t, len(wr), n)
}

func recv(t testing.TB, q *verbs.QP, wr ...verbs.RecvWR) {
	t.Helper()
	n, err := q.PostRecv(wr)
	require.NoError(t, err)
	require.Equal(t, len(wr), n)
}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

func counter(t testing.TB, x *node, name string) uint64 {
	t.Helper()
	m, err := x.ctx.Counters()
	require.NoError(t, err)
	return m[name]
}
