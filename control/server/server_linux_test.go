package server_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// site is a daemon's inside: a device on a network in memory, served, and the device
// at the other end, which is the test's own.
type site struct {
	t      testing.TB
	served *nic.NIC
	peer   *verbs.Context
	server *server.Server
	hub    *server.Hub
	socket string
}

func newSite(t testing.TB, pair gorxe.PairConfig, cfg server.Config) *site {
	t.Helper()
	a, b := gorxe.NewPair(pair)
	s := &site{t: t, served: a.Provider().(*nic.NIC), peer: b, socket: filepath.Join(t.TempDir(), "verbs.sock")}
	cfg.NIC = s.served
	var err error
	s.server, err = server.New(cfg)
	require.NoError(t, err)
	s.hub = server.NewHub(cfg.Logger, s.server)
	ln, err := server.Listen(s.socket, 0o600, -1)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.hub.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(t, s.hub.Close(ctx))
		assert.NoError(t, <-served)
		for r, n := range s.server.Held() {
			assert.Zero(t, n, "%s are held still", r)
		}
		assert.NoError(t, a.Close())
		assert.NoError(t, b.Close())
	})
	return s
}

// attach returns the served device as a program of its own would have it.
func (s *site) attach() *verbs.Context {
	s.t.Helper()
	c, err := control.Dial(s.t.Context(), s.socket, control.Want{})
	require.NoError(s.t, err)
	ctx := verbs.NewContext(c)
	s.t.Cleanup(func() { assert.NoError(s.t, ctx.Close()) })
	return ctx
}

// end is one end of a connection.
type end struct {
	t   testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
	qp  *verbs.QP

	// fence tells the race detector, which does not see what synchronises through
	// shared memory, that the devices have stepped.
	fence func()
}

func newEnd(t testing.TB, ctx *verbs.Context, typ verbs.QPType, size int) *end {
	t.Helper()
	e := &end{t: t, ctx: ctx, fence: func() {}}
	var err error
	e.pd, err = ctx.AllocPD()
	require.NoError(t, err)
	e.cq, err = ctx.CreateCQ(verbs.CQConfig{Depth: 64})
	require.NoError(t, err)
	e.mr, err = e.pd.AllocMR(size, verbs.AccessAll)
	require.NoError(t, err)
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: e.cq, RecvCQ: e.cq})
	require.NoError(t, err)
	return e
}

func connect(t testing.TB, a, b *end, aAddr, bAddr netip.Addr) {
	t.Helper()
	fence := func() {
		for _, e := range []*end{a, b} {
			_, err := e.ctx.Counters()
			require.NoError(t, err)
		}
	}
	a.fence, b.fence = fence, fence
	la, err := a.qp.Endpoint(bAddr)
	require.NoError(t, err)
	lb, err := b.qp.Endpoint(aAddr)
	require.NoError(t, err)
	require.NoError(t, a.qp.Connect(la, lb, verbs.ConnectOptions{}))
	require.NoError(t, b.qp.Connect(lb, la, verbs.ConnectOptions{}))
}

var (
	servedAddr = netip.MustParseAddr("192.0.2.1")
	peerAddr   = netip.MustParseAddr("192.0.2.2")
)

func (e *end) wait() verbs.WC {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	n, err := e.cq.Wait(ctx, wc[:])
	require.NoError(e.t, err)
	require.Equal(e.t, 1, n)
	require.NoError(e.t, wc[0].Err())
	e.fence()
	return wc[0]
}

func (e *end) send(wr verbs.SendWR) {
	e.t.Helper()
	wr.Flags |= verbs.SendSignaled
	e.fence()
	_, err := e.qp.PostSend([]verbs.SendWR{wr})
	require.NoError(e.t, err)
}

func (e *end) recv(off, n int) {
	e.t.Helper()
	_, err := e.qp.PostRecv([]verbs.RecvWR{{ID: 7, SGL: []verbs.SGE{e.mr.SGE(off, n)}}})
	require.NoError(e.t, err)
}

func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + seed + i>>8)
	}
}

// Every operation of RC, between an attached program and a device of its own, both
// ways, with the data looked at.
func TestAttachedRC(t *testing.T) {
	s := newSite(t, gorxe.PairConfig{}, server.Config{})
	const size = 256 << 10
	a := newEnd(t, s.attach(), verbs.RC, size)
	b := newEnd(t, s.peer, verbs.RC, size)
	connect(t, a, b, servedAddr, peerAddr)
	for i, x := range [][2]*end{{a, b}, {b, a}} {
		from, to := x[0], x[1]
		name := fmt.Sprintf("way %d", i)
		fill(from.mr.Bytes(), i)
		clear(to.mr.Bytes())
		to.recv(0, 5000)
		from.send(verbs.SendWR{ID: 1, Opcode: verbs.WRSendImm, Imm: 42, SGL: []verbs.SGE{from.mr.SGE(0, 5000)}})
		from.wait()
		wc := to.wait()
		require.Equal(t, uint32(5000), wc.ByteLen, name)
		require.Equal(t, uint32(42), wc.Imm)
		require.True(t, bytes.Equal(from.mr.Bytes()[:5000], to.mr.Bytes()[:5000]), name)

		from.send(verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{from.mr.SGE(0, size)}, RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()})
		from.wait()
		require.True(t, bytes.Equal(from.mr.Bytes(), to.mr.Bytes()), name)

		fill(to.mr.Bytes(), 99)
		from.send(verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{from.mr.SGE(0, size)}, RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()})
		from.wait()
		require.True(t, bytes.Equal(from.mr.Bytes(), to.mr.Bytes()), name)

		to.mr.SetUint64(8, 1000)
		from.send(verbs.SendWR{Opcode: verbs.WRFetchAdd, CompareAdd: 5, SGL: []verbs.SGE{from.mr.SGE(16, 8)}, RemoteAddr: to.mr.Addr() + 8, RKey: to.mr.RKey()})
		from.wait()
		require.EqualValues(t, 1000, from.mr.Uint64(16), name)
		require.EqualValues(t, 1005, to.mr.Uint64(8), name)

		to.recv(0, 64)
		from.send(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("inline")})
		from.wait()
		to.wait()
		require.Equal(t, "inline", string(to.mr.Bytes()[:6]), name)
	}
}

// What a program asks of an attached device it is told as of one of its own.
func TestAttachedQueries(t *testing.T) {
	s := newSite(t, gorxe.PairConfig{}, server.Config{})
	ctx := s.attach()
	want, err := s.served.QueryDevice()
	require.NoError(t, err)
	got, err := ctx.Device()
	require.NoError(t, err)
	limits, _ := s.server.Limits()
	want.MaxQP, want.MaxCQ, want.MaxMR, want.MaxMW, want.MaxPD, want.MaxSRQ, want.MaxAH = limits.QPs, limits.CQs, limits.MRs, limits.MWs, limits.PDs, limits.SRQs, limits.AHs
	want.MaxMRSize = uint64(limits.Bytes)
	assert.Contains(t, got.Daemon, s.socket)
	got.Daemon = ""
	assert.Equal(t, want, got)
	wantPort, err := s.served.QueryPort()
	require.NoError(t, err)
	port, err := ctx.Port()
	require.NoError(t, err)
	assert.Equal(t, wantPort, port)
	wantGIDs, err := s.served.GIDs()
	require.NoError(t, err)
	gids, err := ctx.GIDs()
	require.NoError(t, err)
	assert.Equal(t, wantGIDs, gids)
	g, err := ctx.ChooseGID(netip.MustParseAddr("2001:db8::7"))
	require.NoError(t, err)
	assert.Equal(t, 1, g.Index)
	n, err := ctx.Counters()
	require.NoError(t, err)
	assert.Contains(t, n, "local_ack_timeout_err")

	e := newEnd(t, ctx, verbs.RC, 4096)
	a, err := e.qp.Query()
	require.NoError(t, err)
	assert.Equal(t, verbs.StateReset, a.State)
	st, err := e.qp.Stats()
	require.NoError(t, err)
	assert.Contains(t, st, "completed")
}
