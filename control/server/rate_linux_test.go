package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/verbs"
)

// TestAttachedRates: the rate limit and the static rate of an attached program
// bound what it sends, change at once, and are told back, as of a device of its own.
func TestAttachedRates(t *testing.T) {
	s := newSite(t, gorxe.PairConfig{}, server.Config{})
	const size = 100_000
	a, b := newEnd(t, s.attach(), verbs.RC, size), newEnd(t, s.peer, verbs.RC, size)
	la, err := a.qp.Endpoint(peerAddr)
	require.NoError(t, err)
	lb, err := b.qp.Endpoint(servedAddr)
	require.NoError(t, err)
	require.ErrorContains(t, a.qp.Connect(la, lb, verbs.ConnectOptions{StaticRate: 99}), "static rate 99 means nothing")
	require.NoError(t, a.qp.Modify(&verbs.QPAttr{}, verbs.AttrState)) // RESET
	require.NoError(t, a.qp.Connect(la, lb, verbs.ConnectOptions{StaticRate: 5, RateLimit: 10_000}))
	require.NoError(t, b.qp.Connect(lb, la, verbs.ConnectOptions{}))
	a.fence = func() {
		_, err := s.served.Counters()
		require.NoError(t, err)
	}

	limit := func() int64 {
		d, err := s.served.QP(a.qp.QPN())
		require.NoError(t, err)
		return d.Limit
	}
	require.EqualValues(t, 10_000_000, limit())
	attr, err := a.qp.Query()
	require.NoError(t, err)
	require.EqualValues(t, 10_000, attr.RateLimit)
	require.EqualValues(t, 5, attr.AV.StaticRate)

	// 100 kB at 10 Mb/s are 80 ms.
	write := verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, size)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	start := time.Now()
	a.send(write)
	a.wait()
	require.Greater(t, time.Since(start), 70*time.Millisecond)
	st, err := a.qp.Stats()
	require.NoError(t, err)
	require.Greater(t, st["pacing_wait"], uint64(time.Millisecond))

	require.NoError(t, a.qp.SetRateLimit(0))
	require.EqualValues(t, 5_000_000_000, limit(), "the static rate is left")
	a.send(write)
	a.wait()

	ctx := s.attach()
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	_, err = pd.CreateAH(verbs.AV{DGID: lb.GID, StaticRate: 1})
	require.ErrorContains(t, err, "static rate 1 means nothing")
	_, err = pd.CreateAH(verbs.AV{DGID: lb.GID, StaticRate: 2})
	require.NoError(t, err)
}
