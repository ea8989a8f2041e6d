package nic

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

const windowRights = verbs.AccessRemoteRead | verbs.AccessRemoteWrite

// bindable is a region of n octets to which windows may be bound, without
// remote rights of its own.
func (x *node) bindable(n int) *verbs.MR {
	x.t.Helper()
	m, err := x.pd.AllocMR(n, verbs.AccessLocalWrite|verbs.AccessMWBind)
	require.NoError(x.t, err)
	return m
}

func (x *node) window(typ verbs.MWType) *verbs.MW {
	x.t.Helper()
	w, err := x.pd.AllocMW(typ)
	require.NoError(x.t, err)
	return w
}

// bind2 is a request that binds a window of type 2 to all of a region.
func bind2(w *verbs.MW, m *verbs.MR) verbs.SendWR {
	b := w.Bind(m, m.Addr(), uint64(len(m.Bytes())), windowRights)
	w.SetRKey(b.NewKey)
	return verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, Bind: b}
}

// through is a WRITE of 8 octets of x's to the beginning of a region of the
// peer's by a key.
func (x *node) through(to *verbs.MR, key uint32) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{x.mr.SGE(0, 8)}, RemoteAddr: to.Addr(), RKey: key}
}

// TestWindows: the life of windows of both types as programs see it: bound,
// used, bound anew, invalidated from here and from there, freed; what hangs on
// them cannot be destroyed, and says why.
func TestWindows(t *testing.T) {
	a, b := pair(t, 1)
	qa, qb := a.newQP(a.cq), b.newQP(b.cq)
	connect(t, a, b, qa, qb)
	pattern(a.mr.Bytes(), 1)
	m := b.bindable(4096)
	one, two := b.window(verbs.MWType1), b.window(verbs.MWType2)

	require.NoError(t, qb.BindMW(one, verbs.MWBind{ID: 5, Flags: verbs.SendSignaled, MR: m, Addr: m.Addr(), Length: 64, Access: windowRights}))
	wc := good(t, b.cq, 1)[0]
	require.Equal(t, verbs.WC{ID: 5, Opcode: verbs.WCBindMW, QPN: qb.QPN()}, wc)
	post(t, qa, a.through(m, one.RKey()))
	good(t, a.cq, 1)
	require.Equal(t, a.mr.Bytes()[:8], m.Bytes()[:8])

	post(t, qb, bind2(two, m))
	good(t, b.cq, 1)
	w := a.through(m, two.RKey())
	w.Opcode, w.SGL = verbs.WRRead, []verbs.SGE{a.mr.SGE(64, 8)}
	post(t, qa, w)
	good(t, a.cq, 1)
	require.Equal(t, m.Bytes()[:8], a.mr.Bytes()[64:72])

	err := m.Deregister()
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "memory windows are bound to the region")
	require.ErrorContains(t, err, "unbind, invalidate or deallocate them first")
	err = b.pd.Destroy()
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "2 memory regions, 2 memory windows")

	// The peer invalidates one, its own end the other; then the region may go.
	recv(t, qb, verbs.RecvWR{ID: 6, SGL: []verbs.SGE{b.mr.SGE(0, 64)}})
	post(t, qa, verbs.SendWR{Opcode: verbs.WRSendInv, Imm: two.RKey(), SGL: []verbs.SGE{a.mr.SGE(0, 5)}, Flags: verbs.SendSignaled})
	good(t, a.cq, 1)
	wc = good(t, b.cq, 1)[0]
	require.Equal(t, verbs.WC{ID: 6, Opcode: verbs.WCRecv, Flags: verbs.WCWithInv, Imm: two.RKey(), ByteLen: 5, QPN: qb.QPN(), SrcQP: qa.QPN()}, wc)
	require.ErrorIs(t, m.Deregister(), ErrInUse)
	require.NoError(t, qb.BindMW(one, verbs.MWBind{Flags: verbs.SendSignaled}))
	post(t, qb, bind2(two, m), verbs.SendWR{ID: 8, Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled | verbs.SendFence, Imm: two.RKey()})
	wcs := good(t, b.cq, 3)
	require.Equal(t, verbs.WC{ID: 8, Opcode: verbs.WCLocalInv, QPN: qb.QPN()}, wcs[2])
	require.NoError(t, m.Deregister())

	post(t, qa, a.through(m, two.RKey()))
	wc = wait(t, a.cq, 1)[0]
	require.Equal(t, verbs.WCRemAccessErr, wc.Status)
	require.NoError(t, one.Dealloc())
	require.ErrorIs(t, one.Dealloc(), verbs.ErrClosed)
	require.NoError(t, two.Dealloc())
	require.Zero(t, b.nic.mws.live)
}

// TestWindowsOfQueuePairs: windows do not hold queue pairs, nor outlive them.
func TestWindowsOfQueuePairs(t *testing.T) {
	a, b := pair(t, 1)
	qa, qb := a.newQP(a.cq), b.newQP(b.cq)
	connect(t, a, b, qa, qb)
	m, w := b.bindable(64), b.window(verbs.MWType2)
	post(t, qb, bind2(w, m))
	good(t, b.cq, 1)
	require.NoError(t, qb.Destroy())
	qa, qb = a.newQP(a.cq), b.newQP(b.cq)
	connect(t, a, b, qa, qb)
	post(t, qa, a.through(m, w.RKey()))
	require.Equal(t, verbs.WCRemAccessErr, wait(t, a.cq, 1)[0].Status)
	require.ErrorIs(t, m.Deregister(), ErrInUse, "it is bound still")
	require.NoError(t, w.Dealloc())
	require.NoError(t, m.Deregister())
}

// TestWindowErrors: what there is not is refused with a word of it.
func TestWindowErrors(t *testing.T) {
	a, _ := pair(t, 1)
	pd, err := a.nic.AllocPD()
	require.NoError(t, err)
	_, err = a.nic.AllocMW(verbs.MWReq{PD: pd, Type: 3})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = a.nic.AllocMW(verbs.MWReq{PD: pd + 1, Type: 1})
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.ErrorContains(t, err, "protection domain")
	d, err := a.ctx.Device()
	require.NoError(t, err)
	require.Equal(t, MaxMW, d.MaxMW)

	qa, qb := a.newQP(a.cq), a.newQP(a.cq)
	connect(t, a, a, qa, qb)
	w := a.window(verbs.MWType2)
	b := bind2(w, a.mr) // which may not be bound to
	post(t, qa, b)
	wc := wait(t, a.cq, 1)[0]
	require.Equal(t, verbs.WCMWBindErr, wc.Status)
	require.ErrorContains(t, wc.Err(), "memory management operation error (status 6, vendor_err 0): a work request binds or invalidates")
	require.EqualValues(t, 1, counter(t, a, "memory_management"))
	a.close()
	_, err = a.nic.AllocMW(verbs.MWReq{PD: pd, Type: 1})
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// TestWindowsAcrossShards: queue pairs of two shards bind one window of type 1 in
// turns while peers write through its keys and it is freed in the end: nothing but
// what the key was for is written.
func TestWindowsAcrossShards(t *testing.T) {
	a, b := pairWith(t, mem.Config{Shards: 2}, nil)
	far := b.newCQ(verbs.CQConfig{Vector: 1})
	cqs := []*verbs.CQ{b.cq, far}
	var qas, qbs []*verbs.QP
	for i := range 2 {
		qas, qbs = append(qas, a.newQP(a.cq)), append(qbs, b.newQP(cqs[i]))
		connect(t, a, b, qas[i], qbs[i])
	}
	m := b.bindable(4096)
	w := b.window(verbs.MWType1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	for i := range 200 {
		off := uint64(i%2) * 2048
		q := i / 2 % 2
		require.NoError(t, qbs[q].BindMW(w, verbs.MWBind{Flags: verbs.SendSignaled, MR: m, Addr: m.Addr() + off, Length: 2048, Access: windowRights}))
		_, err := cqs[q].Wait(ctx, wc[:])
		require.NoError(t, err)
		require.NoError(t, wc[0].Err())
		a.mr.Bytes()[0] = byte(i)
		for k := range qas {
			post(t, qas[k], verbs.SendWR{
				Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(0, 1)},
				RemoteAddr: m.Addr() + off + uint64(k), RKey: w.RKey(),
			})
		}
		good(t, a.cq, 2)
		require.Equal(t, []byte{byte(i), byte(i)}, m.Bytes()[off:off+2])
	}
	require.NoError(t, w.Dealloc())
	require.NoError(t, m.Deregister())
}

// TestNoAllocationsWindows: binding, using and invalidating a window allocates
// nothing.
func TestNoAllocationsWindows(t *testing.T) {
	a, b := pair(t, 1)
	qa, qb := a.newQP(a.cq), b.newQP(b.cq)
	connect(t, a, b, qa, qb)
	m, one, two := b.bindable(4096), b.window(verbs.MWType1), b.window(verbs.MWType2)
	binds, uses := make([]verbs.SendWR, 1), make([]verbs.SendWR, 2)
	room := []verbs.RecvWR{{SGL: []verbs.SGE{b.mr.SGE(0, 64)}}}
	var wc [4]verbs.WC
	poll := func(cq *verbs.CQ, want int) {
		for n := 0; n < want; {
			k := cq.Poll(wc[:])
			for i := range wc[:k] {
				if wc[i].Status != verbs.WCSuccess {
					t.Fatal(wc[i].Err())
				}
			}
			n += k
			a.cq.Poll(nil)
		}
	}
	round := func() {
		if err := qb.BindMW(one, verbs.MWBind{Flags: verbs.SendSignaled, MR: m, Addr: m.Addr(), Length: 64, Access: windowRights}); err != nil {
			t.Fatal(err)
		}
		binds[0] = bind2(two, m)
		_, _ = qb.PostSend(binds)
		_, _ = qb.PostRecv(room)
		poll(b.cq, 2)
		uses[0] = verbs.SendWR{Opcode: verbs.WRWrite, SGL: uses[0].SGL, RemoteAddr: m.Addr(), RKey: one.RKey()}
		uses[1] = verbs.SendWR{Opcode: verbs.WRSendInv, Flags: verbs.SendSignaled, Imm: two.RKey()}
		_, _ = qa.PostSend(uses)
		poll(a.cq, 1)
		poll(b.cq, 1)
	}
	uses[0].SGL = []verbs.SGE{a.mr.SGE(0, 64)}
	round()
	require.Zero(t, testing.AllocsPerRun(100, round))
}

// TestWindowHoldsDomain: a domain with nothing but a window is in use.
func TestWindowHoldsDomain(t *testing.T) {
	a, _ := pair(t, 1)
	pd, err := a.ctx.AllocPD()
	require.NoError(t, err)
	w, err := pd.AllocMW(verbs.MWType1)
	require.NoError(t, err)
	require.ErrorIs(t, pd.Destroy(), ErrInUse)
	require.NoError(t, w.Dealloc())
	require.NoError(t, pd.Destroy())
}
