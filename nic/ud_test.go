package nic

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

// to returns a signaled datagram of some octets to a queue pair at an address.
func (x *node) to(id uint64, a *verbs.AH, qpn uint32, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{x.mr.SGE(0, n)}, AH: a.Handle(), RemoteQPN: qpn, RemoteQKey: qkey}
}

// polled returns the IDs of what completed well, as text.
func (b *bench) polled(cq *verbs.CQ) string {
	b.t.Helper()
	var wc [64]verbs.WC
	var ids []uint64
	for _, w := range wc[:cq.Poll(wc[:])] {
		require.NoError(b.t, w.Err())
		ids = append(ids, w.ID)
	}
	return fmt.Sprint(ids)
}

// TestMixedDestinations: a queue pair that sends to a peer and to this device
// in turn keeps its order, also when the link takes nothing for a while: no
// request completes before it left, and each is sent once.
func TestMixedDestinations(t *testing.T) {
	b := newBench(t, 1, nil)
	rcq := b.newCQ(verbs.CQConfig{})
	q, to := b.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{SendCQ: b.cq, RecvCQ: rcq})
	b.step()
	for i := range 8 {
		recv(t, to, verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(4096, 2048)}})
	}
	out, own := b.ah(there), b.ah(here)
	wrs := []verbs.SendWR{b.to(0, out, 5, 1000), b.to(1, own, to.QPN(), 100), b.to(2, out, 5, 1000), b.to(3, own, to.QPN(), 100), b.to(4, own, to.QPN(), 50)}
	b.links[0].room = 0
	post(t, q, wrs...)
	b.step()
	require.Equal(t, "[]", b.polled(b.cq), "completed before it left")
	require.Equal(t, "[]", b.polled(rcq), "overtaken")
	b.links[0].room = 1
	b.step()
	require.Equal(t, "[0 1]", b.polled(b.cq))
	b.links[0].room = -1
	b.step()
	require.Equal(t, "[2 3 4]", b.polled(b.cq))
	require.Equal(t, "[0 1 2]", b.polled(rcq))
	out2 := b.links[0].took()
	require.Len(t, out2, 2)
	require.Equal(t, 2, out2[1].PSN.Diff(out2[0].PSN))
	post(t, q, wrs...)
	b.step()
	require.Equal(t, "[0 1 2 3 4]", b.polled(b.cq))
	require.Equal(t, "[3 4 5]", b.polled(rcq))
	st, err := q.Stats()
	require.NoError(t, err)
	require.EqualValues(t, 10, st["rdma_sends"])
	require.EqualValues(t, 10, st["sent_requests"])
}

var _ = netip.Addr{}
