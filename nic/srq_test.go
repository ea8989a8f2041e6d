package nic

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// newSRQ makes a shared receive queue with n requests of 2000 octets posted.
func (x *node) newSRQ(n int) *verbs.SRQ {
	x.t.Helper()
	s, err := x.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 64})
	require.NoError(x.t, err)
	x.fillSRQ(s, n)
	return s
}

func (x *node) fillSRQ(s *verbs.SRQ, n int) {
	x.t.Helper()
	for i := range n {
		k, err := s.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{x.mr.SGE(0, 2000)}}})
		require.NoError(x.t, err)
		require.Equal(x.t, 1, k)
	}
}

// events returns the types of the events that wait.
func (x *node) events() (out []verbs.EventType) {
	for {
		select {
		case e := <-x.ctx.Events():
			out = append(out, e.Type)
		default:
			return out
		}
	}
}

// withSRQ makes a datagram queue pair with a shared receive queue.
func (b *bench) withSRQ(s *verbs.SRQ, cq *verbs.CQ) *verbs.QP {
	b.t.Helper()
	q := b.datagrams(verbs.QPConfig{SRQ: s, SendCQ: cq, RecvCQ: cq})
	b.step()
	return q
}

// TestSRQLimit: the event is told of once, when fewer are left than the limit,
// at once if that is so already; then the limit is disarmed. (pyverbs: of 10, at
// limit 7, the fourth tells.)
func TestSRQLimit(t *testing.T) {
	b := newBench(t, 1, nil)
	s := b.newSRQ(10)
	q := b.withSRQ(s, b.cq)
	limit := func(want int) {
		t.Helper()
		n, err := s.Limit()
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	take := func() {
		b.links[0].arrive(b.from(there, here, toUD(q), 8))
		b.step()
	}
	b.events()
	limit(0)
	require.NoError(t, s.SetLimit(7))
	limit(7)
	for range 3 {
		take()
		require.Empty(t, b.events())
	}
	take()
	require.Equal(t, []verbs.EventType{verbs.EventSRQLimit}, b.events())
	limit(0)
	take()
	require.Empty(t, b.events())
	require.NoError(t, s.SetLimit(6)) // five are left
	require.Equal(t, []verbs.EventType{verbs.EventSRQLimit}, b.events())
	require.NoError(t, s.SetLimit(5))
	require.Empty(t, b.events())
	require.NoError(t, s.SetLimit(0))
	take()
	require.Empty(t, b.events())
	require.ErrorContains(t, s.SetLimit(65), "range is 0..64")
	require.ErrorContains(t, s.SetLimit(-1), "range is 0..64")
}

// TestSRQDestroy: order, and calls on what is gone.
func TestSRQDestroy(t *testing.T) {
	b := newBench(t, 1, nil)
	s := b.newSRQ(3)
	q := b.withSRQ(s, b.cq)
	require.ErrorContains(t, b.pd.Destroy(), "1 shared receive queues")
	require.ErrorIs(t, s.Destroy(), ErrInUse)
	_, err := s.PostRecv([]verbs.RecvWR{{}})
	require.NoError(t, err, "a queue that was not destroyed")
	require.NoError(t, q.Destroy())
	require.NoError(t, s.Destroy())
	require.ErrorIs(t, s.Destroy(), verbs.ErrClosed)
	_, err = s.PostRecv([]verbs.RecvWR{{}})
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.ErrorIs(t, s.SetLimit(1), verbs.ErrClosed)
	_, err = s.Limit()
	require.ErrorIs(t, err, verbs.ErrClosed)
	_, err = b.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: b.cq, RecvCQ: b.cq, SRQ: s})
	require.ErrorIs(t, err, verbs.ErrClosed)

	pd, err := b.ctx.AllocPD()
	require.NoError(t, err)
	foreign, err := pd.CreateSRQ(verbs.SRQConfig{})
	require.NoError(t, err)
	_, err = b.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: foreign})
	require.ErrorContains(t, err, "protection domain")
	_, err = b.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: b.newSRQ(0)})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	for _, c := range []verbs.SRQConfig{{MaxWR: -1}, {MaxWR: verbs.MaxSRQWR + 1}, {MaxSGE: -1}, {MaxSGE: verbs.MaxSGE + 1}} {
		_, err := b.pd.CreateSRQ(c)
		require.ErrorContains(t, err, "range is")
	}
	for _, r := range []verbs.SRQReq{{}, {MaxWR: 1, MaxSGE: 99}, {MaxWR: 1 << 20, MaxSGE: 1}} {
		_, err := b.nic.CreateSRQ(r)
		require.Error(t, err)
	}
	largest, err := b.pd.CreateSRQ(verbs.SRQConfig{MaxWR: verbs.MaxSRQWR, MaxSGE: verbs.MaxSGE})
	require.NoError(t, err)
	require.NoError(t, largest.Destroy())
}

// TestSRQLastWQE is report B58: LAST_WQE_REACHED once for each queue pair of a
// shared receive queue that goes to ERR, and for no other; what it did not take
// is left to others.
func TestSRQLastWQE(t *testing.T) {
	b := newBench(t, 1, nil)
	s := b.newSRQ(4)
	qs := []*verbs.QP{b.withSRQ(s, b.cq), b.withSRQ(s, b.cq), b.datagrams(verbs.QPConfig{})}
	rc, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq, SRQ: s})
	require.NoError(t, err)
	b.connectQP(rc)
	for _, q := range append(qs, rc, b.connect().qp) {
		b.events()
		for range 2 {
			require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
			b.step()
		}
		var want []verbs.EventType
		if q != qs[2] && q != b.qp {
			want = []verbs.EventType{verbs.EventLastWQE}
		}
		require.Equal(t, want, b.events())
	}
	q := b.withSRQ(s, b.cq)
	b.links[0].arrive(b.from(there, here, toUD(q), 8))
	b.step()
	require.Equal(t, "[0]", b.polled(b.cq))
}

// TestSRQEmpty: an RC queue pair that finds no request there sends an RNR NAK,
// and advertises no credits; a UD queue pair drops. When requests are posted, no
// doorbell rings, and both go on. Both may use one queue.
func TestSRQEmpty(t *testing.T) {
	b := newBench(t, 2, nil)
	s := b.newSRQ(0)
	cq1 := b.newCQ(verbs.CQConfig{Vector: 1})
	ud := b.withSRQ(s, cq1)
	q, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq, SRQ: s})
	require.NoError(t, err)
	require.NoError(t, b.qp.Destroy())
	b.qp = q
	b.connect()
	for range 2 {
		b.links[0].arrive(datagram(b.request(), 8))
		b.links[1].arrive(b.from(there, here, toUD(ud), 8))
		b.step()
		out := b.links[0].took()
		require.Len(t, out, 1)
		require.Equal(t, bth.KindRNR, out[0].Syndrome.Kind())
		require.Empty(t, b.links[1].took())
	}
	require.EqualValues(t, 2, b.counts()[trace.DropNoRecv])
	require.EqualValues(t, 4, counter(t, b.node, "out_of_buffer"))
	b.fillSRQ(s, 2)
	b.links[0].arrive(datagram(b.request(), 8))
	b.links[1].arrive(b.from(there, here, toUD(ud), 8))
	b.step()
	out := b.links[0].took()
	require.Len(t, out, 1)
	require.Equal(t, bth.AckUnlimited, out[0].Syndrome)
	require.Equal(t, "[0]", b.polled(b.cq))
	require.Equal(t, "[1]", b.polled(cq1))
}

// ringSpy is a provider that keeps the memory of the shared receive queue it
// made last.
type ringSpy struct {
	*NIC
	ring []byte
}

func (s *ringSpy) CreateSRQ(r verbs.SRQReq) (verbs.SRQInfo, error) {
	i, err := s.NIC.CreateSRQ(r)
	s.ring = i.Ring
	return i, err
}

// TestSRQHostile: a malformed request ends the queue pair that took it and no
// other; a producer's index that makes no sense ends the queue, which is told
// of once. Other queues never notice.
func TestSRQHostile(t *testing.T) {
	b := newBench(t, 1, nil)
	spy := &ringSpy{NIC: b.nic}
	ctx := verbs.NewContext(spy)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	mr, err := pd.AllocMR(4096, verbs.AccessAll)
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQConfig{Depth: 64})
	require.NoError(t, err)
	healthy := b.withSRQ(b.newSRQ(9), b.cq)
	s, err := pd.CreateSRQ(verbs.SRQConfig{MaxWR: 8, MaxSGE: 1})
	require.NoError(t, err)
	var qs []*verbs.QP
	for range 4 {
		q, err := pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: cq, RecvCQ: cq, SRQ: s})
		require.NoError(t, err)
		require.NoError(t, q.Activate(verbs.DatagramOptions{QKey: qkey}))
		qs = append(qs, q)
	}
	for i := range 3 {
		_, err := s.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{mr.SGE(0, 100)}}})
		require.NoError(t, err)
	}
	b.step()
	b.events()
	arrive := func(q *verbs.QP) {
		b.links[0].arrive(b.from(there, here, toUD(q), 8), b.from(there, here, toUD(healthy), 8))
		b.step()
		require.Len(t, b.polled(b.cq), 3, "the healthy queue pair")
	}
	status := func() (out []verbs.WCStatus) {
		var wc [16]verbs.WC
		for _, w := range wc[:cq.Poll(wc[:])] {
			out = append(out, w.Status)
		}
		return out
	}
	spy.ring[192] = 77 // entries of the first
	arrive(qs[0])
	require.Equal(t, []verbs.WCStatus{verbs.WCLocQPOpErr}, status())
	require.ElementsMatch(t, []verbs.EventType{verbs.EventQPFatal, verbs.EventLastWQE}, b.events())
	arrive(qs[1])
	require.Equal(t, []verbs.WCStatus{verbs.WCSuccess}, status())
	require.Empty(t, b.events())

	spy.ring[2] = 0x7f // the producer's index
	arrive(qs[1])
	require.Equal(t, []verbs.WCStatus{verbs.WCLocQPOpErr}, status())
	require.ElementsMatch(t, []verbs.EventType{verbs.EventSRQErr, verbs.EventQPFatal, verbs.EventLastWQE}, b.events())
	before := b.counts()[trace.DropNoRecv]
	arrive(qs[2])
	arrive(qs[3])
	require.Empty(t, status())
	require.Empty(t, b.events())
	require.Equal(t, before+2, b.counts()[trace.DropNoRecv])
	for _, q := range qs {
		require.NoError(t, q.Destroy())
	}
	require.NoError(t, s.Destroy())
}

// TestSRQHostileRC: the same for an RC queue pair: it answers with a NAK and goes
// to ERR; the next of the queue is served.
func TestSRQHostileRC(t *testing.T) {
	b := newBench(t, 1, nil)
	spy := &ringSpy{NIC: b.nic}
	ctx := verbs.NewContext(spy)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	mr, err := pd.AllocMR(4096, verbs.AccessAll)
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQConfig{Depth: 64})
	require.NoError(t, err)
	s, err := pd.CreateSRQ(verbs.SRQConfig{MaxWR: 8, MaxSGE: 1})
	require.NoError(t, err)
	for i := range 2 {
		_, err := s.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{mr.SGE(0, 100)}}})
		require.NoError(t, err)
	}
	spy.ring[192] = 77 // entries of the first
	for _, want := range []struct {
		status   verbs.WCStatus
		syndrome bth.Syndrome
		state    verbs.QPState
	}{{verbs.WCLocQPOpErr, 0x63, verbs.StateErr}, {verbs.WCSuccess, bth.AckUnlimited, verbs.StateRTS}} {
		b.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, SRQ: s})
		require.NoError(t, err)
		b.connect()
		b.links[0].arrive(datagram(b.request(), 8))
		b.step()
		out := b.links[0].took()
		require.Len(t, out, 1)
		require.Equal(t, want.syndrome, out[0].Syndrome)
		var wc [4]verbs.WC
		require.Equal(t, 1, cq.Poll(wc[:]))
		require.Equal(t, want.status, wc[0].Status)
		require.Equal(t, want.state, b.state())
	}
	require.NotContains(t, b.events(), verbs.EventSRQErr)
}

// TestSRQUnderLoad: RC and UD queue pairs of both shards take from one queue
// while another thread posts to it and the limit is armed again and again; every
// message of every stream arrives, in its order.
func TestSRQUnderLoad(t *testing.T) {
	const each, streams, slots = 200, 4, 48
	a, b := pair(t, 2)
	srq, err := b.pd.CreateSRQ(verbs.SRQConfig{MaxWR: slots})
	require.NoError(t, err)
	rcq := b.newCQ(verbs.CQConfig{Depth: 4 * slots})
	var qa []*verbs.QP
	var wrs []verbs.SendWR
	for i := range streams {
		scq := b.newCQ(verbs.CQConfig{Vector: i % 2})
		acq := a.newCQ(verbs.CQConfig{Vector: i % 2})
		w := verbs.SendWR{Opcode: verbs.WRSendImm, Flags: verbs.SendInline | verbs.SendSignaled, Inline: []byte{byte(i)}}
		if i < 2 {
			q, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: scq, RecvCQ: rcq, SRQ: srq})
			require.NoError(t, err)
			x := a.newQP(acq)
			connectWith(t, a, b, x, q, verbs.ConnectOptions{MinRNRTimer: 1})
			qa = append(qa, x)
		} else {
			q := b.datagrams(verbs.QPConfig{SendCQ: scq, RecvCQ: rcq, SRQ: srq})
			qa = append(qa, a.datagrams(verbs.QPConfig{SendCQ: acq, RecvCQ: acq}))
			w.AH, w.RemoteQPN, w.RemoteQKey = a.ah(b.addr).Handle(), q.QPN(), qkey
		}
		wrs = append(wrs, w)
	}
	give := func(id uint64) {
		n, err := srq.PostRecv([]verbs.RecvWR{{ID: id, SGL: []verbs.SGE{b.mr.SGE(int(id)*100, 100)}}})
		if n != 1 {
			t.Error(err)
		}
	}
	for i := range uint64(slots) {
		give(i)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	armed := make(chan struct{})
	go func() {
		defer close(armed)
		for ctx.Err() == nil {
			if err := srq.SetLimit(slots / 2); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-b.ctx.Events():
			case <-ctx.Done():
			}
		}
	}()
	next := [streams]uint32{}
	for round := 0; round < each; round += 4 {
		for i, q := range qa {
			for k := range 4 {
				w := wrs[i]
				w.Imm = uint32(i)<<16 | uint32(round+k)
				post(t, q, w)
			}
		}
		for range 4 * streams {
			w := good(t, rcq, 1)
			for _, w := range w {
				i := w.Imm >> 16
				require.Equal(t, next[i], w.Imm&0xffff, "stream %d", i)
				next[i]++
				give(w.ID)
			}
			if next == [streams]uint32{uint32(round) + 4, uint32(round) + 4, uint32(round) + 4, uint32(round) + 4} {
				break
			}
		}
	}
	cancel()
	<-armed
}
