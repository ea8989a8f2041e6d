package verbs

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a reset or destroyed queue pair has completed goes to the program all the
// same; what it had not is forgotten, and its number may be another's at once.
func TestShadowReset(t *testing.T) {
	for _, end := range []string{"reset", "destroy"} {
		s := shade(t, QPConfig{Cap: QPCap{MaxRecvSGE: 1}})
		set(s.sh, 1)
		s.post(SendWR{ID: 1, Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(0, 1)}}, SendWR{ID: 2, Opcode: WRRead, SGL: []SGE{s.sge(1, 1)}})
		s.postRecv(RecvWR{ID: 3, SGL: []SGE{s.sge(2, 1)}}, RecvWR{ID: 4, SGL: []SGE{s.sge(3, 1)}}, RecvWR{ID: 5, SGL: []SGE{s.sge(4, 1)}})
		s.finish(WCSuccess)
		s.arrive(s.take(s.f.rq), WC{Opcode: WCRecv, ByteLen: 1})
		stale := s.take(s.f.rq)
		if end == "reset" {
			require.NoError(t, s.q.Modify(&QPAttr{State: StateReset}, AttrState))
			require.NoError(t, s.q.Modify(&QPAttr{State: StateRTS}, AttrState))
		} else {
			require.NoError(t, s.q.Destroy())
			require.Empty(t, s.pd.ctx.bounce.qps)
		}
		require.Equal(t, []int{0, 2}, changed(s.mem), end)
		require.Zero(t, s.q.sends.n)
		require.Len(t, s.q.recvs.free, len(s.q.recvs.slots))
		if end == "destroy" { // another with its number
			var err error
			s.q, err = s.pd.CreateQP(QPConfig{SendCQ: s.cq, RecvCQ: s.cq})
			require.NoError(t, err)
			require.NoError(t, s.q.Modify(&QPAttr{State: StateRTS}, AttrState))
		}
		clear(s.mem)
		s.post(SendWR{ID: 11, Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(10, 1)}})
		s.postRecv(RecvWR{ID: 13, SGL: []SGE{s.sge(12, 1)}})
		require.Equal(t, []uint64{1, 3}, s.poll(), "they stay in the queue")
		require.Empty(t, changed(s.mem), end)
		s.arrive(s.take(s.f.rq), WC{Opcode: WCRecv, ByteLen: 1})
		s.finish(WCSuccess)
		require.Equal(t, []uint64{13, 11}, s.poll())
		require.Equal(t, []int{10, 12}, changed(s.mem), end)
		s.arrive(stale, WC{Opcode: WCRecv, ByteLen: 1}) // as no NIC would
		s.poll()
	}
	s := shade(t, QPConfig{})
	s.post(SendWR{Opcode: WRRead, SGL: []SGE{s.sge(0, 1)}})
	s.f.err = errors.New("no")
	require.Error(t, s.q.Modify(&QPAttr{State: StateReset}, AttrState))
	require.Error(t, s.q.Destroy())
	require.Equal(t, 1, s.q.sends.n, "it is as it was")
	require.NotNil(t, s.pd.ctx.bounce.qp(s.q.QPN()))
}

// Requests of a shared queue complete in any order, and what a queue pair that
// is destroyed had taken is not kept for ever.
func TestShadowSharedQueue(t *testing.T) {
	f := &fake{shadows: [][]byte{}}
	ctx := NewContext(f)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	s := &shaded{t: t, f: f, pd: pd, mem: make([]byte, 100)}
	s.mr, err = pd.RegMRIOVA(s.mem, 5000, AccessLocalWrite)
	require.NoError(t, err)
	s.sh = f.shadows[0]
	s.cq, err = ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	srq, err := pd.CreateSRQ(SRQConfig{MaxWR: 100, MaxSGE: 2})
	require.NoError(t, err)
	s.q, err = pd.CreateQP(QPConfig{SendCQ: s.cq, RecvCQ: s.cq, SRQ: srq})
	require.NoError(t, err)
	require.NoError(t, s.q.Modify(&QPAttr{State: StateRTS}, AttrState))

	set(s.sh, 1)
	var ids []RecvID
	for i := range 50 {
		_, err := srq.PostRecv([]RecvWR{{ID: uint64(i), SGL: []SGE{s.sge(2*i, 1), s.sge(2*i+1, 1)}}})
		require.NoError(t, err)
		if i < 40 {
			ids = append(ids, s.take(f.srq))
		}
	}
	for i := len(ids) - 1; i >= 3; i -= 2 {
		s.arrive(ids[i], WC{Opcode: WCRecv, ByteLen: 1})
		require.Equal(t, []uint64{uint64(i)}, s.poll())
		require.NotZero(t, s.mem[2*i])
		require.Zero(t, s.mem[2*i+1])
	}
	require.Len(t, changed(s.mem), 19)
	s.arrive(ids[0], WC{Opcode: WCRecv, ByteLen: 2})
	require.NoError(t, s.q.Destroy())
	require.Equal(t, upTo(0, 2), changed(s.mem[:6]))
	used := func() (n int) { return len(srq.recvs.slots) - len(srq.recvs.free) }
	require.Equal(t, 10, used(), "those that wait in the ring")
	require.Equal(t, []uint64{0}, s.poll())

	// They serve the next.
	s.q, err = pd.CreateQP(QPConfig{SendCQ: s.cq, RecvCQ: s.cq, SRQ: srq})
	require.NoError(t, err)
	s.arrive(s.take(f.srq), WC{Opcode: WCRecv, ByteLen: 2})
	require.Equal(t, []uint64{40}, s.poll())
	require.Equal(t, s.sh[80:82], s.mem[80:82])
	require.Equal(t, 9, used())
	require.NoError(t, s.q.Destroy())
	require.NoError(t, srq.Destroy())
	require.Zero(t, used())
	_, err = srq.PostRecv([]RecvWR{{SGL: []SGE{s.sge(0, 1)}}})
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, used())
}

// When Deregister has returned nothing is copied any more, in either direction,
// through this region and what has its key next.
func TestShadowDeregister(t *testing.T) {
	s := shade(t, QPConfig{})
	set(s.sh, 1)
	set(s.shf, 1)
	s.post(SendWR{ID: 1, Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(0, 1), s.farSGE(0, 1)}}, SendWR{ID: 2, Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(1, 1)}})
	s.postRecv(RecvWR{ID: 3, SGL: []SGE{s.sge(2, 2), s.farSGE(2, 2)}})
	s.finish(WCSuccess)
	require.NoError(t, s.mr.Deregister())
	require.Len(t, s.pd.ctx.bounce.regions, 1)
	s.f.err = errors.New("no such region")
	require.ErrorIs(t, s.mr.Deregister(), s.f.err)
	s.f.err = nil
	again := make([]byte, 1000)
	s.f.shadows = s.f.shadows[:0]
	next, err := s.pd.RegMRIOVA(again, 5000, AccessLocalWrite)
	require.NoError(t, err)
	require.Equal(t, s.mr.LKey(), next.LKey())
	set(s.f.shadows[0], 1)

	s.finish(WCSuccess)
	s.arrive(s.take(s.f.rq), WC{Opcode: WCRecv, ByteLen: 3})
	require.Equal(t, []uint64{1, 2, 3}, s.poll())
	require.Empty(t, changed(s.mem))
	require.Empty(t, changed(again))
	require.Equal(t, []int{0, 2}, changed(s.far), "of the region that is left")
	require.NoError(t, next.Deregister())
	clear(s.f.shadows[0])
	set(again, 1)
	s.post(SendWR{Opcode: WRSend, SGL: []SGE{{Addr: 5000, Length: 3, LKey: 100}}})
	require.Empty(t, changed(s.f.shadows[0]))
}

// What has completed when the device is closed, and is polled later, has its data.
func TestShadowClose(t *testing.T) {
	s := shade(t, QPConfig{})
	set(s.sh, 1)
	s.postRecv(RecvWR{ID: 3, SGL: []SGE{s.sge(2, 2)}})
	s.arrive(s.take(s.f.rq), WC{Opcode: WCRecv, ByteLen: 2})
	require.NoError(t, s.pd.ctx.Close())
	require.Equal(t, []uint64{3}, s.poll())
	require.Equal(t, []int{2, 3}, changed(s.mem))
}

// It copies nothing from the time on that the device is told: the shadow may be
// gone before the call returns.
func TestShadowDeregisterAtOnce(t *testing.T) {
	s := shade(t, QPConfig{})
	s.postRecv(RecvWR{ID: 3, SGL: []SGE{s.sge(2, 2)}})
	set(s.sh, 1)
	s.arrive(s.take(s.f.rq), WC{Opcode: WCRecv, ByteLen: 2})
	s.f.destroying = func() {
		require.Equal(t, []uint64{3}, s.poll())
		require.Empty(t, changed(s.mem))
	}
	require.NoError(t, s.mr.Deregister())
}

// Deregister that fails changes nothing.
func TestShadowDeregisterFails(t *testing.T) {
	s := shade(t, QPConfig{})
	s.postRecv(RecvWR{ID: 3, SGL: []SGE{s.sge(2, 2)}})
	s.f.err = errors.New("in use")
	require.ErrorIs(t, s.mr.Deregister(), s.f.err)
	set(s.sh, 1)
	s.arrive(s.take(s.f.rq), WC{Opcode: WCRecv, ByteLen: 2})
	s.poll()
	require.Equal(t, []int{2, 3}, changed(s.mem))
}

// A slice registered twice has two shadows, and what came through one is sent
// through the other.
func TestShadowTwice(t *testing.T) {
	s := shade(t, QPConfig{})
	again, err := s.pd.RegMRIOVA(s.mem[100:], 5100, AccessLocalWrite)
	require.NoError(t, err)
	s.postRecv(RecvWR{SGL: []SGE{s.sge(100, 10)}})
	set(s.sh[100:110], 1)
	s.arrive(s.take(s.f.rq), WC{Opcode: WCRecv, ByteLen: 10})
	s.poll()
	s.post(SendWR{Opcode: WRSend, SGL: []SGE{again.SGE(0, 10)}})
	require.Equal(t, s.sh[100:110], s.f.shadows[2][:10])
	require.EqualValues(t, 1, again.Bytes()[0])
	require.EqualValues(t, 0x0807060504030201, s.mr.Uint64(100-4)>>32|s.mr.Uint64(104)<<32)
}

// A device may not give a shadow to a region that peers or windows reach, nor one
// of another length.
func TestShadowRefused(t *testing.T) {
	f := &fake{shadows: [][]byte{}}
	ctx := NewContext(f)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	for _, a := range []Access{AccessRemoteRead, AccessLocalWrite | AccessRemoteWrite, AccessLocalWrite | AccessRemoteAtomic, AccessMWBind} {
		f.log = nil
		_, err = pd.RegMR(make([]byte, 8), a)
		require.ErrorContains(t, err, "use AllocMR")
		require.Equal(t, []string{"RegMR", "Destroy 2 21"}, f.log)
	}
	require.False(t, ctx.bounce.on.Load())
	_, err = ctx.bounce.add(&MRInfo{Mem: make([]byte, 8), Shadow: make([]byte, 7)}, 0)
	require.ErrorContains(t, err, "7 octets for a memory region of 8")
	_, err = pd.RegMR([]byte{}, 0)
	require.NoError(t, err)
}

// A queue pair's end does not touch what has completed of others.
func TestShadowResetOfAnother(t *testing.T) {
	s := shade(t, QPConfig{})
	set(s.sh, 1)
	s.postRecv(RecvWR{ID: 1, SGL: []SGE{s.sge(0, 1)}})
	s.post(SendWR{ID: 2, Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(1, 1)}})
	first := s.f.sq
	s.f.qpns = 1
	other, err := s.pd.CreateQP(QPConfig{SendCQ: s.cq, RecvCQ: s.cq})
	require.NoError(t, err)
	require.NoError(t, other.Modify(&QPAttr{State: StateRTS}, AttrState))
	_, err = other.PostRecv([]RecvWR{{ID: 3, SGL: []SGE{s.sge(10, 1)}}})
	require.NoError(t, err)
	_, err = other.PostSend([]SendWR{{ID: 4, Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(11, 1)}}})
	require.NoError(t, err)
	s.arrive(RecvID{ID: 1, Cookie: 1}, WC{Opcode: WCRecv, ByteLen: 1})
	s.f.sq = first
	s.finish(WCSuccess)
	require.NoError(t, other.Destroy())
	require.Empty(t, changed(s.mem))
	require.Equal(t, []uint64{1, 2}, s.poll())
	require.Equal(t, []int{0, 1}, changed(s.mem))
}

// Once an object is destroyed its ring is not looked at any more: it may be memory
// that is no longer there.
func TestRingsGone(t *testing.T) {
	f, q, cq := open(t, QPConfig{}, StateErr)
	srq, err := q.pd.CreateSRQ(SRQConfig{})
	require.NoError(t, err)
	f.err = errors.New("in use")
	require.ErrorIs(t, cq.Destroy(), f.err)
	require.ErrorIs(t, q.Destroy(), f.err)
	require.ErrorIs(t, srq.Destroy(), f.err)
	f.err = nil
	_, err = q.PostSend([]SendWR{{ID: 1, Opcode: WRSend}})
	require.NoError(t, err)
	wc := make([]WC, 2)
	require.Equal(t, 1, cq.Poll(wc), "they are as they were")
	require.NoError(t, q.Destroy())
	require.NoError(t, srq.Destroy())
	ring := cq.q
	require.NoError(t, cq.Destroy())
	f.wait = func(_ context.Context, q *CompQueue, _ bool) error {
		require.NotSame(t, ring, q)
		return ErrClosed
	}

	ring.ring, q.sq.ring, q.rq.ring, srq.rq.ring = Ring{}, Ring{}, Ring{}, Ring{}
	require.Zero(t, cq.Poll(wc))
	_, err = cq.Wait(context.Background(), wc)
	require.ErrorIs(t, err, ErrClosed)
	_, err = q.PostSend([]SendWR{{Opcode: WRSend}})
	require.ErrorIs(t, err, ErrClosed)
	for _, w := range [][]RecvWR{nil, {{}}} {
		_, err = q.PostRecv(w)
		require.ErrorIs(t, err, ErrClosed)
		_, err = srq.PostRecv(w)
		require.ErrorIs(t, err, ErrClosed)
	}
}
