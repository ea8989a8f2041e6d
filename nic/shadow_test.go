package nic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

// elsewhere is a NIC as one in another process: it does not see the memory of
// slices that are registered, but works on a shadow of each.
type elsewhere struct{ *NIC }

const toPeers = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

func (e elsewhere) RegMR(r verbs.MRReq) (verbs.MRInfo, error) {
	if r.Mem == nil {
		return e.NIC.RegMR(r)
	}
	if r.Access&toPeers != 0 {
		return verbs.MRInfo{}, errors.New("peers reach what AllocMR makes")
	}
	own := r.Mem
	if r.DefaultIOVA {
		r.IOVA, r.DefaultIOVA = uint64(uintptr(unsafe.Pointer(&own[0]))), false
	}
	r.Mem = make([]byte, len(own))
	info, err := e.NIC.RegMR(r)
	info.Mem, info.Shadow = own, info.Mem
	return info, err
}

// remote has a node's program hold its device from another process.
func (x *node) remote() {
	x.t.Helper()
	x.ctx = verbs.NewContext(elsewhere{x.nic})
	var err error
	x.pd, err = x.ctx.AllocPD()
	require.NoError(x.t, err)
	x.cq = x.newCQ(verbs.CQConfig{Depth: 1024})
	x.mr, err = x.pd.AllocMR(memLen, verbs.AccessAll)
	require.NoError(x.t, err)
}

// slice registers n octets of heap memory.
func (x *node) slice(n int) *verbs.MR {
	x.t.Helper()
	m, err := x.pd.RegMR(make([]byte, n), verbs.AccessLocalWrite)
	require.NoError(x.t, err)
	return m
}

// remotePair is two such nodes.
func remotePair(t testing.TB, shards int) (a, b *node) {
	a, b = pair(t, shards)
	a.remote()
	b.remote()
	return a, b
}

// TestShadowOperations: every operation of a connection, from and into slices
// that neither NIC sees.
func TestShadowOperations(t *testing.T) {
	for _, shards := range []int{1, 2} {
		for _, n := range []int{0, 1, 600, 5000, 200000} {
			t.Run(fmt.Sprint(shards, n), func(t *testing.T) {
				a, b := remotePair(t, shards)
				qa, qb := a.newQP(a.cq), b.newQP(b.cq)
				connect(t, a, b, qa, qb)
				from, to, back := a.slice(n+100), b.slice(n+100), a.slice(2*n+100)
				pattern(from.Bytes(), 1)
				recv(t, qb, verbs.RecvWR{ID: 1, SGL: []verbs.SGE{to.SGE(3, n/3), to.SGE(3+n/3, n-n/3+2)}}, verbs.RecvWR{ID: 2, SGL: []verbs.SGE{to.SGE(0, 100)}})
				far := func(w verbs.SendWR, off int) verbs.SendWR {
					w.Flags, w.RemoteAddr, w.RKey = verbs.SendSignaled, b.mr.Addr()+uint64(off), b.mr.RKey()
					return w
				}
				post(t, qa, far(verbs.SendWR{Opcode: verbs.WRSendImm, SGL: []verbs.SGE{from.SGE(5, n)}}, 0), far(verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{from.SGE(7, n/2), from.SGE(7+n/2, n-n/2)}}, 0))
				good(t, a.cq, 2)
				require.EqualValues(t, n, good(t, b.cq, 1)[0].ByteLen)
				require.Equal(t, from.Bytes()[5:5+n], to.Bytes()[3:3+n])
				require.Equal(t, make([]byte, 97), to.Bytes()[3+n:])
				require.True(t, bytes.Equal(from.Bytes()[7:7+n], b.mr.Bytes()[:n]))

				before := bytes.Clone(to.Bytes())
				b.mr.SetUint64(memLen-8, 41)
				post(t, qa, far(verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{back.SGE(8, n)}}, 0), far(verbs.SendWR{Opcode: verbs.WRFetchAdd, CompareAdd: 1, SGL: []verbs.SGE{back.SGE(0, 8)}}, memLen-8))
				good(t, a.cq, 2)
				require.Equal(t, from.Bytes()[7:7+n], back.Bytes()[8:8+n])
				require.Equal(t, make([]byte, n+92), back.Bytes()[8+n:])
				require.EqualValues(t, 41, back.Uint64(0))
				post(t, qa, far(verbs.SendWR{Opcode: verbs.WRCmpSwap, CompareAdd: 42, Swap: 7, SGL: []verbs.SGE{back.SGE(0, 8)}}, memLen-8), far(verbs.SendWR{Opcode: verbs.WRWriteImm, Imm: 9, SGL: []verbs.SGE{from.SGE(1, n)}}, 0))
				good(t, a.cq, 2)
				require.EqualValues(t, 42, back.Uint64(0))
				require.EqualValues(t, 7, b.mr.Uint64(memLen-8))
				require.Equal(t, verbs.WCRecvWriteImm, good(t, b.cq, 1)[0].Opcode)
				require.True(t, bytes.Equal(from.Bytes()[1:1+n], b.mr.Bytes()[:n]))
				require.Equal(t, before, to.Bytes(), "a WRITE takes a receive request and puts nothing there")
			})
		}
	}
}

// TestShadowDatagram: the GRH area of a datagram is in the program's memory too.
func TestShadowDatagram(t *testing.T) {
	a, b := remotePair(t, 1)
	qa, qb := a.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{})
	from, to := a.slice(500), b.slice(600)
	pattern(from.Bytes(), 3)
	recv(t, qb, verbs.RecvWR{ID: 1, SGL: []verbs.SGE{to.SGE(0, 10)}}, verbs.RecvWR{ID: 2, SGL: []verbs.SGE{to.SGE(10, 21), to.SGE(31, 519)}})
	for _, n := range []int{500, 400} { // the first is too long for what it meets
		post(t, qa, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{from.SGE(0, n)}, AH: a.ah(b.addr).Handle(), RemoteQPN: qb.QPN(), RemoteQKey: qkey})
		good(t, a.cq, 1)
	}
	require.NoError(t, qb.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	require.Equal(t, verbs.WCWRFlushErr, wait(t, b.cq, 1)[0].Status)
	require.Equal(t, make([]byte, 600), to.Bytes(), "of what was dropped")

	qb = b.datagrams(verbs.QPConfig{})
	recv(t, qb, verbs.RecvWR{ID: 3, SGL: []verbs.SGE{to.SGE(10, 21), to.SGE(31, 519)}})
	post(t, qa, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{from.SGE(0, 500)}, AH: a.ah(b.addr).Handle(), RemoteQPN: qb.QPN(), RemoteQKey: qkey})
	var wc verbs.WC
	for wc.ID != 3 {
		wc = wait(t, b.cq, 1)[0]
	}
	require.NoError(t, wc.Err())
	require.EqualValues(t, 540, wc.ByteLen)
	require.Equal(t, from.Bytes(), to.Bytes()[50:550])
	av, err := b.ctx.AVFrom(&wc, to.Bytes()[10:])
	require.NoError(t, err)
	require.Equal(t, a.addr, av.DGID.Addr())
}

// TestShadowSharedQueue: a short message of one queue pair passes a long one of
// another, whose request was taken first.
func TestShadowSharedQueue(t *testing.T) {
	synctest.Test(t, shadowSharedQueue)
}

func shadowSharedQueue(t *testing.T) {
	as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(t, err)
	as = fault.WrapAll(as, fault.Config{Rules: fault.MustParse("tx drop opcode=RC_SEND_LAST seen=1")})
	a, b := open(t, as, there, nil), open(t, bs, here, nil)
	defer a.close()
	defer b.close()
	a.remote()
	b.remote()
	srq, err := b.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 64, MaxSGE: 1})
	require.NoError(t, err)
	const room = 200000
	to, from := b.slice(2*room), a.slice(room)
	pattern(from.Bytes(), 3)
	var qs []*verbs.QP
	for range 2 {
		qa := a.newQP(a.cq)
		qb, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq})
		require.NoError(t, err)
		connectWith(t, a, b, qa, qb, verbs.ConnectOptions{Timeout: 12}) // 17 ms
		qs = append(qs, qa)
	}
	for round := range 5 {
		clear(to.Bytes())
		for i := range 2 {
			_, err := srq.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{to.SGE(i*room, room)}}})
			require.NoError(t, err)
		}
		post(t, qs[0], verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{from.SGE(0, room)}})
		post(t, qs[1], verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{from.SGE(round, 30)}})
		wcs := good(t, b.cq, 2)
		good(t, a.cq, 2)
		for _, w := range wcs {
			got := to.Bytes()[w.ID*room:][:room]
			if w.ByteLen == room {
				require.True(t, bytes.Equal(from.Bytes(), got))
			} else {
				require.Equal(t, from.Bytes()[round:round+30], got[:30])
				require.Equal(t, make([]byte, 100), got[30:130])
			}
		}
		require.EqualValues(t, 30, wcs[0].ByteLen, "the end of the long one is lost at first")
		require.EqualValues(t, 1, wcs[0].ID)
	}
}

// TestShadowUnsignaled: READs without completions, more than the queue holds,
// are in the program's memory when a later request's completion is polled.
func TestShadowUnsignaled(t *testing.T) {
	a, b := remotePair(t, 1)
	qa, qb := a.newQP(a.cq), b.newQP(b.cq)
	connect(t, a, b, qa, qb)
	pattern(b.mr.Bytes(), 5)
	const each, n = 100, 700
	back := a.slice(each * n)
	for i := range n {
		for {
			_, err := qa.PostSend([]verbs.SendWR{{Opcode: verbs.WRRead, SGL: []verbs.SGE{back.SGE(i*each, each)}, RemoteAddr: b.mr.Addr() + uint64(i*each), RKey: b.mr.RKey()}})
			if err == nil {
				break
			}
			require.ErrorIs(t, err, verbs.ErrQueueFull)
			a.cq.Poll(make([]verbs.WC, 1))
		}
	}
	for {
		_, err := qa.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline}})
		if err == nil {
			break
		}
		require.ErrorIs(t, err, verbs.ErrQueueFull)
		a.cq.Poll(make([]verbs.WC, 1))
	}
	recv(t, qb, verbs.RecvWR{})
	good(t, a.cq, 1)
	require.True(t, bytes.Equal(b.mr.Bytes()[:each*n], back.Bytes()))
}

// TestShadowErrors: what a peer refuses and what is flushed leaves the program's
// memory alone; a queue pair that was reset works again.
func TestShadowErrors(t *testing.T) {
	a, b := remotePair(t, 1)
	qa, qb := a.newQP(a.cq), b.newQP(b.cq)
	pattern(b.mr.Bytes(), 5)
	from, to := b.slice(5000), a.slice(5000)
	pattern(from.Bytes(), 6)
	read := func(id uint64, off, n int, rkey uint32) verbs.SendWR {
		return verbs.SendWR{ID: id, Opcode: verbs.WRRead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{to.SGE(off, n)}, RemoteAddr: b.mr.Addr(), RKey: rkey}
	}
	reset := func() {
		for _, q := range []*verbs.QP{qa, qb} {
			require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
		}
		clear(to.Bytes())
	}
	for round := range 3 {
		connect(t, a, b, qa, qb)
		recv(t, qa, verbs.RecvWR{ID: 1, SGL: []verbs.SGE{to.SGE(0, 100)}}, verbs.RecvWR{ID: 2, SGL: []verbs.SGE{to.SGE(100, 100)}})
		post(t, qb, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{from.SGE(0, 90)}, Flags: verbs.SendSignaled})
		good(t, b.cq, 1) // it has arrived, and completed there
		if round == 1 {
			reset() // before anybody polls it
			require.EqualValues(t, 1, good(t, a.cq, 1)[0].ID)
			require.Equal(t, make([]byte, 5000), to.Bytes(), "what came before clear has not come again")
			continue
		}
		require.EqualValues(t, 1, good(t, a.cq, 1)[0].ID)
		want := make([]byte, 5000)
		copy(want, from.Bytes()[:90])
		require.Equal(t, want, to.Bytes())
		post(t, qa, read(3, 200, 100, b.mr.RKey()), read(4, 300, 3000, b.mr.RKey()+1), read(5, 4000, 100, b.mr.RKey()))
		wcs := wait(t, a.cq, 4)
		require.Equal(t, "[3 0][4 10][5 5][2 5]", func() (s string) {
			for _, w := range wcs {
				s += fmt.Sprint([]uint64{w.ID, uint64(w.Status)})
			}
			return s
		}())
		copy(want[200:300], b.mr.Bytes())
		require.Equal(t, want, to.Bytes())
		reset()
	}
	require.NoError(t, qa.Destroy())
	require.NoError(t, to.Deregister())
}

// TestShadowConcurrently: several goroutines post, several poll the same queues,
// regions come and go meanwhile, and no octet is lost.
func TestShadowConcurrently(t *testing.T) {
	const flows, rounds, n = 4, 60, 3000
	a, b := remotePair(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cqs := []*verbs.CQ{b.cq, b.newCQ(verbs.CQConfig{Vector: 1})}
	var all [flows]*shadowFlow
	byQPN := map[uint32]*shadowFlow{}
	for i := range all {
		acq := a.newCQ(verbs.CQConfig{Vector: i % 2})
		f := &shadowFlow{
			ctx: ctx, a: a, b: b, acq: acq, qa: a.newQP(acq), qb: b.newQP(cqs[i%2]), n: n, off: uint64(i * n),
			done: make(chan verbs.WC, 4), rng: rand.New(rand.NewPCG(1, uint64(i))),
		}
		connect(t, a, b, f.qa, f.qb)
		all[i], byQPN[f.qb.QPN()] = f, f
	}
	var flowing, polling sync.WaitGroup
	for i := range 4 {
		polling.Go(func() {
			var wc [3]verbs.WC
			for {
				k, err := cqs[i%2].Wait(ctx, wc[:])
				if err != nil {
					return
				}
				for _, w := range wc[:k] {
					byQPN[w.QPN].done <- w
				}
			}
		})
	}
	for i, f := range all {
		flowing.Go(func() {
			for round := range rounds {
				if err := f.round(i*rounds + round); err != nil {
					t.Errorf("flow %d, round %d: %v", i, round, err)
					return
				}
			}
		})
	}
	flowing.Wait()
	cancel()
	polling.Wait()
}

// shadowFlow is a stream from a to b, whose completions at b others poll.
type shadowFlow struct {
	ctx    context.Context
	a, b   *node
	acq    *verbs.CQ // of qa
	qa, qb *verbs.QP
	n      int    // octets of a message at most
	off    uint64 // of its part of a's memory
	done   chan verbs.WC
	rng    *rand.Rand
}

// next waits for a completion at b.
func (f *shadowFlow) next() (verbs.WC, error) {
	select {
	case w := <-f.done:
		return w, w.Err()
	case <-f.ctx.Done():
		return verbs.WC{}, f.ctx.Err()
	}
}

// round sends a message from one slice to another, writes it back to where peers
// may read it, and reads it in two parts to where it was.
func (f *shadowFlow) round(seed int) error {
	from, err1 := f.a.pd.RegMR(make([]byte, f.n), verbs.AccessLocalWrite)
	to, err2 := f.b.pd.RegMR(make([]byte, 2*f.n), verbs.AccessLocalWrite)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	pattern(from.Bytes(), seed)
	k, at := 1+f.rng.IntN(f.n), f.rng.IntN(f.n)
	want, got := from.Bytes()[:k], to.Bytes()[at:][:k]
	if _, err := f.qb.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{to.SGE(at, f.n)}}}); err != nil {
		return err
	}
	if _, err := f.qa.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{from.SGE(0, k)}}}); err != nil {
		return err
	}
	var sent [1]verbs.WC
	if _, err := f.acq.Wait(f.ctx, sent[:]); err != nil {
		return err
	}
	w, err := f.next()
	if err := errors.Join(sent[0].Err(), err); err != nil {
		return err
	}
	if int(w.ByteLen) != k || !bytes.Equal(want, got) {
		return errors.New("data received differ")
	}
	far := verbs.SendWR{Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{to.SGE(at, k)}, RemoteAddr: f.a.mr.Addr() + f.off, RKey: f.a.mr.RKey()}
	if _, err := f.qb.PostSend([]verbs.SendWR{far}); err != nil {
		return err
	}
	if _, err := f.next(); err != nil {
		return err
	}
	clear(got)
	first := far
	first.Opcode, first.Flags, first.SGL = verbs.WRRead, 0, []verbs.SGE{to.SGE(at, k/2)}
	far.Opcode, far.SGL, far.RemoteAddr = verbs.WRRead, []verbs.SGE{to.SGE(at+k/2, k-k/2)}, far.RemoteAddr+uint64(k/2)
	if _, err := f.qb.PostSend([]verbs.SendWR{first, far}); err != nil {
		return err
	}
	if _, err := f.next(); err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return errors.New("data read differ")
	}
	return errors.Join(to.Deregister(), from.Deregister())
}
