package server_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/verbs"
)

// shadowSite is a site with an attached end, which keeps its data in slices, and
// one that has its device itself.
func shadowSite(t *testing.T) (far, near *end) {
	s := newSite(t, gorxe.PairConfig{Seed: 1}, server.Config{})
	far, near = newEnd(t, s.attach(), verbs.RC, 1<<16), newEnd(t, s.peer, verbs.RC, 1<<16)
	connect(t, far, near, servedAddr, peerAddr)
	return far, near
}

func (e *end) slice(n int) *verbs.MR {
	e.t.Helper()
	m, err := e.pd.RegMR(make([]byte, n), verbs.AccessLocalWrite)
	require.NoError(e.t, err)
	return m
}

func (e *end) post(sge verbs.SGE) {
	e.t.Helper()
	_, err := e.qp.PostRecv([]verbs.RecvWR{{ID: 7, SGL: []verbs.SGE{sge}}})
	require.NoError(e.t, err)
}

// TestSlices: a slice that an attached program registers is as good as the device's
// own memory for what the program asks for; for peers it is refused.
func TestSlices(t *testing.T) {
	far, near := shadowSite(t)
	_, err := far.pd.RegMR(make([]byte, 8), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.ErrorContains(t, err, "AllocMR")
	m := far.slice(20000)
	for i := range m.Bytes() {
		m.Bytes()[i] = byte(i % 251)
	}
	near.post(near.mr.SGE(0, 9000))
	far.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{m.SGE(1, 4000), m.SGE(9000, 5000)}})
	far.wait()
	near.wait()
	require.Equal(t, m.Bytes()[1:4001], near.mr.Bytes()[:4000])
	require.Equal(t, m.Bytes()[9000:14000], near.mr.Bytes()[4000:9000])

	clear(m.Bytes())
	far.post(m.SGE(10, 9000))
	near.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{near.mr.SGE(0, 8000)}})
	near.wait()
	require.EqualValues(t, 8000, far.wait().ByteLen)
	require.Equal(t, near.mr.Bytes()[:8000], m.Bytes()[10:8010])
	require.Equal(t, make([]byte, 11990), m.Bytes()[8010:])

	near.mr.SetUint64(16000, 41)
	w := verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{m.SGE(10000, 9000)}, RemoteAddr: near.mr.Addr(), RKey: near.mr.RKey()}
	_, err = far.qp.PostSend([]verbs.SendWR{w})
	require.NoError(t, err)
	w.Opcode, w.CompareAdd, w.SGL, w.RemoteAddr = verbs.WRFetchAdd, 1, []verbs.SGE{m.SGE(0, 8)}, w.RemoteAddr+16000
	far.send(w)
	far.wait()
	require.Equal(t, near.mr.Bytes()[:9000], m.Bytes()[10000:19000])
	require.EqualValues(t, 41, m.Uint64(0))
	require.NoError(t, m.Deregister())
}

// TestSlicesEnd: what is deregistered, reset, destroyed or closed while requests are
// outstanding or completed is left alone from then on: its memory is unmapped.
func TestSlicesEnd(t *testing.T) {
	far, near := shadowSite(t)
	gone, m := far.slice(100), far.slice(100)
	far.post(gone.SGE(0, 10))
	far.post(m.SGE(0, 10))
	far.post(m.SGE(10, 10))
	copy(near.mr.Bytes(), "0123456789")
	for range 2 {
		near.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{near.mr.SGE(0, 10)}})
		near.wait()
	}
	require.NoError(t, gone.Deregister())
	require.NoError(t, far.qp.Destroy())
	require.Equal(t, "0123456789", string(m.Bytes()[:10]), "it had arrived")
	require.NoError(t, m.Deregister())
	clear(m.Bytes())
	far.wait()
	far.wait()
	require.Equal(t, make([]byte, 100), gone.Bytes())
	require.Equal(t, make([]byte, 100), m.Bytes())
	require.NoError(t, far.cq.Destroy())
	require.Zero(t, far.cq.Poll(make([]verbs.WC, 1)))
}

// TestSlicesConcurrently: threads poll, post and deregister at once. A slice has all of
// what a READ brought or nothing, and stays as it is once it is deregistered.
func TestSlicesConcurrently(t *testing.T) {
	far, near := shadowSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var wc [4]verbs.WC
			for {
				if _, err := far.cq.Wait(ctx, wc[:]); err != nil {
					return
				}
			}
		})
	}
	for i := range 1000 {
		near.mr.Bytes()[i] = byte(i%255) + 1
	}
	near.fence()
	none, all := make([]byte, 1000), near.mr.Bytes()[:1000]
	var regions []*verbs.MR
	var left [][]byte
	read := verbs.SendWR{Opcode: verbs.WRRead, Flags: verbs.SendSignaled, RemoteAddr: near.mr.Addr(), RKey: near.mr.RKey()}
	for range 300 {
		m := far.slice(1000)
		read.SGL = []verbs.SGE{m.SGE(0, 1000)}
		if _, err := far.qp.PostSend([]verbs.SendWR{read, read}); err != nil {
			require.ErrorIs(t, err, verbs.ErrQueueFull)
		}
		var deregistering sync.WaitGroup
		deregistering.Go(func() { assert.NoError(t, m.Deregister()) })
		if a, err := far.qp.Query(); err == nil && a.State == verbs.StateErr { // the region went first
			for _, e := range []*end{far, near} {
				require.NoError(t, e.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
			}
			connect(t, far, near, servedAddr, peerAddr)
		}
		deregistering.Wait()
		regions, left = append(regions, m), append(left, bytes.Clone(m.Bytes()))
	}
	cancel()
	wg.Wait()
	for i, m := range regions {
		require.Contains(t, [][]byte{none, all}, m.Bytes())
		require.Equal(t, left[i], m.Bytes())
	}
}
