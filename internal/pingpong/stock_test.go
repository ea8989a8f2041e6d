package pingpong

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

// stockSRQ is a peer that does what rdma-core's srq_pingpong does: it writes 256
// addresses, those beyond its queue pairs zeros, has one buffer for all of them,
// and goes on sending until so many sends have completed, which is more than
// were asked for.
type stockSRQ struct {
	t           *testing.T
	size, iters int
	cq          *verbs.CQ
	srq         *verbs.SRQ
	qps         []*fake // each with a queue pair and an address
	mr          *verbs.MR
	surplus     int // messages sent beyond iters
}

func newStockSRQ(t *testing.T, qps, size, iters int) *stockSRQ {
	t.Helper()
	dev := device(t, addr())
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	s := &stockSRQ{t: t, size: size, iters: iters}
	s.mr, err = pd.AllocMR(size, verbs.AccessLocalWrite)
	require.NoError(t, err)
	s.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: 2*qps + qps})
	require.NoError(t, err)
	s.srq, err = pd.CreateSRQ(verbs.SRQConfig{MaxWR: 2 * qps, MaxSGE: 1})
	require.NoError(t, err)
	for range qps {
		f := &fake{t: t, size: size, mtu: 1024, wait: patient, cq: s.cq, mr: s.mr}
		f.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, SRQ: s.srq, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
		require.NoError(t, err)
		f.me, err = f.qp.Endpoint(netip.MustParseAddr("127.0.0.1"))
		require.NoError(t, err)
		s.qps = append(s.qps, f)
	}
	for range 2 * qps {
		s.recv()
	}
	return s
}

func (s *stockSRQ) recv() {
	_, err := s.srq.PostRecv([]verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{s.mr.SGE(0, s.size)}}})
	require.NoError(s.t, err)
}

// addresses is what the original writes.
func (s *stockSRQ) addresses() string {
	var b strings.Builder
	for _, f := range s.qps {
		b.WriteString(f.address())
	}
	for range 256 - len(s.qps) {
		b.WriteString(zeros)
	}
	return b.String()
}

const zeros = "0000:000000:000000:" + noGID + "\x00"

// up connects to as many addresses as there are queue pairs.
func (s *stockSRQ) up(msgs string) {
	s.t.Helper()
	require.Len(s.t, msgs, 256*52)
	for i, f := range s.qps {
		if m := msgs[52*i:][:52]; m != zeros {
			f.up(m, 0)
		}
	}
}

// ours starts a run of ours in the given role; the connection is over when it
// returns.
func (s *stockSRQ) ours(cfg Config, client bool) *end {
	s.t.Helper()
	cfg.Device = device(s.t, addr())
	if client {
		l := listen(s.t)
		cfg.Peer, cfg.Port = "127.0.0.1", portOf(l)
		e := start(s.t, s.t.Context(), cfg)
		c := accept(s.t, l)
		defer c.Close()
		s.up(read(s.t, c, 256*52))
		write(s.t, c, s.addresses())
		require.Equal(s.t, "done\x00", read(s.t, c, 5))
		return e
	}
	e := start(s.t, s.t.Context(), cfg)
	c := connect(s.t, e.port)
	defer c.Close()
	write(s.t, c, s.addresses())
	s.up(read(s.t, c, 256*52))
	write(s.t, c, "done\x00")
	return e
}

// play is the original's loop, in the role that is not ours.
func (s *stockSRQ) play(ourClient bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), soon)
	defer cancel()
	pending, posts := map[uint32]int{}, 0
	post := func(f *fake) {
		f.send()
		posts++
		pending[f.qp.QPN()] = 3
	}
	of := map[uint32]*fake{}
	for _, f := range s.qps {
		of[f.qp.QPN()] = f
		pending[f.qp.QPN()] = 1
		if !ourClient {
			post(f)
		}
	}
	for got, sent := 0, 0; got < s.iters || sent < s.iters; {
		var wc [8]verbs.WC
		n, err := s.cq.Wait(ctx, wc[:])
		require.NoError(s.t, err)
		for _, w := range wc[:n] {
			require.NoError(s.t, w.Err())
			if w.ID == 2 {
				sent++
			} else {
				got++
				s.recv()
			}
			pending[w.QPN] &^= int(w.ID)
			if sent < s.iters && pending[w.QPN] == 0 {
				post(of[w.QPN])
			}
		}
	}
	s.surplus = posts - s.iters
}

// TestStockSRQ: both roles of srq against the original's habits.
func TestStockSRQ(t *testing.T) {
	var surplus atomic.Int64 // of all: a small run may happen to have none
	t.Cleanup(func() {
		require.Positive(t, surplus.Load(), "the original sends more than it was asked for")
	})
	for _, role := range roles {
		for _, check := range []bool{false, true} {
			for _, qps := range []int{1, 2, 16, 256} {
				t.Run(fmt.Sprint(role.name, qps, check), func(t *testing.T) {
					t.Parallel()
					cfg := configOf(SRQ)
					cfg.NumQP, cfg.RxDepth, cfg.Check, cfg.Iters = qps, max(qps, 8), check, 3*qps+5
					if qps > 16 {
						cfg.Size = 64
					}
					s := newStockSRQ(t, qps, cfg.Size, cfg.Iters)
					if check {
						marked(0, s.mr.Bytes())
					}
					e := s.ours(cfg, role.client)
					s.play(role.client)
					require.NoError(t, e.wait())
					require.NotContains(t, e.out.String(), "invalid")
					surplus.Add(int64(s.surplus))
				})
			}
		}
	}
}

// TestFewerQPs: a client with fewer queue pairs than its server has peers for
// all of them, one with more has not.
func TestFewerQPs(t *testing.T) {
	for _, role := range roles {
		t.Run(role.name, func(t *testing.T) {
			cfg := configOf(SRQ)
			cfg.NumQP, cfg.RxDepth = 5, 32
			ours, theirs := 5, 9
			if !role.client {
				cfg.NumQP, ours, theirs = 9, 9, 5
			}
			s := newStockSRQ(t, theirs, cfg.Size, cfg.Iters)
			e := s.ours(cfg, role.client)
			if role.client {
				s.qps = s.qps[:ours]
			}
			s.play(role.client)
			require.NoError(t, e.wait())
		})
	}
	server := configOf(SRQ)
	server.NumQP, server.Device, server.Timeout = 3, device(t, addr()), soon
	e := start(t, t.Context(), server)
	client := configOf(SRQ)
	client.NumQP, client.Device, client.Peer, client.Port = 4, device(t, addr()), "127.0.0.1", e.port
	c := start(t, t.Context(), client)
	require.ErrorContains(t, e.wait(), "this side has 3 queue pairs, the peer 4: give both the same -q")
	require.ErrorContains(t, c.wait(), "no address from the peer: it closed the connection after 0 of 13312 octets")
}
