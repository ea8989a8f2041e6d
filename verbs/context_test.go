package verbs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestCreate: what a program asks for reaches the provider, and errors of the
// provider reach the program.
func TestCreate(t *testing.T) {
	f := &fake{events: make(chan AsyncEvent, 1)}
	ctx := NewContext(f)
	require.Same(t, f, ctx.Provider())
	d, err := ctx.Device()
	require.NoError(t, err)
	require.Equal(t, "fake0", d.Name)
	p, err := ctx.Port()
	require.NoError(t, err)
	require.EqualValues(t, 1024, p.ActiveMTU)
	n, err := ctx.Counters()
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"x": 1}, n)
	f.events <- AsyncEvent{Type: EventPortErr}
	require.Equal(t, EventPortErr, (<-ctx.Events()).Type)

	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	for _, depth := range []int{-1, MaxCQE + 1, math.MaxInt, math.MinInt} {
		_, err := ctx.CreateCQ(CQConfig{Depth: depth})
		require.EqualError(t, err, fmt.Sprintf("verbs: completion queue depth %d is not in 1..1048576", depth))
	}
	a, err := ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	b, err := ctx.CreateCQ(CQConfig{Depth: 5, Vector: 3})
	require.NoError(t, err)
	q, err := pd.CreateQP(QPConfig{SendCQ: a, RecvCQ: b, SignalAll: true})
	require.NoError(t, err)
	require.Equal(t, RC, q.Type())
	require.EqualValues(t, 0x123, q.QPN())
	require.Equal(t, QPCap{128, 128, 4, 4, 64}, q.Cap())
	_, err = pd.CreateQP(QPConfig{SendCQ: b, RecvCQ: a, Type: UD})
	require.NoError(t, err)
	require.Equal(t, []string{"AllocPD", "CreateCQ 256 0", "CreateCQ 5 3", "CreateQP 11 1 2 RC true", "CreateQP 11 2 1 UD false"}, f.log)

	f.log = nil
	for _, cfg := range []QPConfig{{SendCQ: a}, {RecvCQ: a}} {
		_, err = pd.CreateQP(cfg)
		require.ErrorContains(t, err, "needs SendCQ and RecvCQ")
	}
	_, err = pd.CreateQP(QPConfig{SendCQ: a, RecvCQ: a, Cap: QPCap{MaxInline: 513}})
	require.ErrorContains(t, err, "MaxInline is 513")
	other, err := NewContext(&fake{}).CreateCQ(CQConfig{})
	require.NoError(t, err)
	for _, cfg := range []QPConfig{{SendCQ: a, RecvCQ: other}, {SendCQ: other, RecvCQ: a}} {
		_, err = pd.CreateQP(cfg)
		require.ErrorContains(t, err, "of another device")
	}
	require.Empty(t, f.log, "the provider was asked")

	f.err = errors.New("no more")
	_, err = ctx.AllocPD()
	require.Equal(t, f.err, err)
	_, err = ctx.CreateCQ(CQConfig{})
	require.Equal(t, f.err, err)
	_, err = pd.CreateQP(QPConfig{SendCQ: a, RecvCQ: a})
	require.Equal(t, f.err, err)
	_, err = pd.AllocMR(1, 0)
	require.Equal(t, f.err, err)
	_, err = ctx.ChooseGID(netip.IPv6Loopback())
	require.Equal(t, f.err, err)
	_, err = q.Endpoint(netip.IPv6Loopback())
	require.Equal(t, f.err, err)
	for _, err := range []error{q.Destroy(), a.Destroy(), pd.Destroy()} {
		require.Equal(t, f.err, err)
	}
}

// TestShortRings: an object whose ring the provider made too short is
// destroyed again.
func TestShortRings(t *testing.T) {
	f := &fake{short: "comp"}
	ctx := NewContext(f)
	pd, _ := ctx.AllocPD()
	cq, err := ctx.CreateCQ(CQConfig{})
	require.NoError(t, err, "a shorter ring is still one")
	for _, ring := range []string{"send", "recv"} {
		f.log, f.short = nil, ring
		q, err := pd.CreateQP(QPConfig{SendCQ: cq, RecvCQ: cq})
		require.ErrorContains(t, err, "ring of 1 units")
		require.Nil(t, q)
		require.Equal(t, "Destroy 4 41", f.log[1])
	}
}

// TestDestroy: each object is destroyed as what it is, and a queue pair that is
// gone takes nothing.
func TestDestroy(t *testing.T) {
	f, q, cq := open(t, QPConfig{}, StateRTS)
	mr, err := q.pd.AllocMR(8, 0)
	require.NoError(t, err)
	f.log = nil
	f.err = errors.New("busy")
	require.Equal(t, f.err, q.Destroy())
	f.err = nil
	_, err = q.PostSend([]SendWR{{Opcode: WRSend}})
	require.NoError(t, err, "it was not destroyed")
	require.NoError(t, q.Destroy())
	require.NoError(t, mr.Deregister())
	require.NoError(t, cq.Destroy())
	require.NoError(t, q.pd.Destroy())
	require.Equal(t, []string{"Destroy 4 41", "Destroy 4 41", "Destroy 2 21", "Destroy 3 1", "Destroy 1 11"}, f.log)
	n, err := q.PostSend([]SendWR{{Opcode: WRSend}})
	require.Zero(t, n)
	require.ErrorIs(t, err, ErrClosed)
	n, err = q.PostRecv(make([]RecvWR, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, 1, f.bells)
}

// TestClose: the provider is closed once, and posting to a device that was
// closed is refused.
func TestClose(t *testing.T) {
	f, q, cq := open(t, QPConfig{}, StateRTS)
	f.wait = func(context.Context, *CompQueue, bool) error { return ErrClosed }
	f.err = errors.New("it is stuck")
	require.Equal(t, f.err, q.pd.ctx.Close())
	require.NoError(t, q.pd.ctx.Close())
	require.Equal(t, []string{"Close"}, f.log)
	n, err := q.PostSend([]SendWR{{Opcode: WRSend}})
	require.Zero(t, n)
	require.ErrorIs(t, err, ErrClosed)
	n, err = q.PostRecv(make([]RecvWR, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, f.bells)
	require.Zero(t, cq.Poll(make([]WC, 1)))
	_, err = cq.Wait(t.Context(), make([]WC, 1))
	require.ErrorIs(t, err, ErrClosed)
}

// TestMR: regions as asked for; an address or length is not cut off without
// the NIC noticing.
func TestMR(t *testing.T) {
	f := &fake{}
	pd, err := NewContext(f).AllocPD()
	require.NoError(t, err)
	mem := make([]byte, 100)
	mr, err := pd.RegMR(mem, AccessLocalWrite|AccessRemoteWrite)
	require.NoError(t, err)
	require.Equal(t, MRReq{PD: 11, Mem: mem, Len: 100, Access: 3, DefaultIOVA: true}, f.mr)
	require.Equal(t, []any{uint64(0x1000), uint32(31), uint32(32)}, []any{mr.Addr(), mr.LKey(), mr.RKey()})
	require.Same(t, &mem[0], &mr.Bytes()[0])
	require.Equal(t, SGE{0x1000 + 7, 5, 31}, mr.SGE(7, 5))
	mr, err = pd.RegMRIOVA(mem, 0xffff_0000_0000_0000, 0)
	require.NoError(t, err)
	require.Equal(t, MRReq{PD: 11, Mem: mem, Len: 100, IOVA: 0xffff_0000_0000_0000}, f.mr)
	require.Equal(t, SGE{0xffff_0000_0000_0040, 0, 31}, mr.SGE(64, 0))
	mr, err = pd.AllocMR(4096, AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, MRReq{PD: 11, Len: 4096, Access: 4, DefaultIOVA: true}, f.mr)
	require.Len(t, mr.Bytes(), 4096)

	f.log = nil
	for _, n := range []int{0, -1, math.MinInt} {
		_, err = pd.AllocMR(n, 0)
		require.EqualError(t, err, fmt.Sprintf("verbs: AllocMR of %d octets", n))
	}
	for a := range AccessAll + 1 {
		_, err := pd.AllocMR(8, a)
		bad := a&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && a&AccessLocalWrite == 0
		require.Equal(t, bad, err != nil, a)
		if bad {
			require.ErrorContains(t, err, "need local write access too")
		}
	}
	require.Len(t, f.log, 10)
}

// TestSGELength: a length that no entry can hold is not made a short one.
func TestSGELength(t *testing.T) {
	pd, err := NewContext(&fake{}).AllocPD()
	require.NoError(t, err)
	mr, err := pd.AllocMR(64, 0)
	require.NoError(t, err)
	for _, n := range []int{math.MaxUint32, math.MaxUint32 + 1, math.MaxUint32 + 9, math.MaxInt, -1, math.MinInt} {
		require.EqualValues(t, uint32(math.MaxUint32), mr.SGE(0, n).Length, n)
	}
	require.EqualValues(t, math.MaxUint32-1, mr.SGE(0, math.MaxUint32-1).Length)
	require.Greater(t, uint64(math.MaxUint32), uint64(MaxMessage), "the NIC refuses it")
}

// TestUint64: atomic words of a region, at aligned addresses within it only.
func TestUint64(t *testing.T) {
	pd, err := NewContext(&fake{}).AllocPD()
	require.NoError(t, err)
	words := make([]uint64, 8)
	all := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 64)
	mr, err := pd.RegMR(all[:48], AccessLocalWrite) // its capacity is more
	require.NoError(t, err)
	for off := 0; off <= 40; off += 8 {
		mr.SetUint64(off, 0x0102030405060708*uint64(off/8+1))
		require.Equal(t, 0x0102030405060708*uint64(off/8+1), mr.Uint64(off))
		require.Equal(t, words[off/8], mr.Uint64(off), "host order")
	}
	for off := 1; off < 8; off++ {
		require.PanicsWithValue(t, "verbs: atomic word is not aligned to 8 octets", func() { mr.Uint64(off) })
		require.PanicsWithValue(t, "verbs: atomic word is not aligned to 8 octets", func() { mr.SetUint64(off, 1) })
	}
	for _, off := range []int{-8, -1, 41, 48, 56, math.MaxInt - 7, math.MinInt} {
		require.Panics(t, func() { mr.Uint64(off) }, off)
		require.Panics(t, func() { mr.SetUint64(off, 1) }, off)
	}
	require.Zero(t, words[6]|words[7])
	mr, err = pd.RegMR(all[:44], AccessLocalWrite)
	require.NoError(t, err)
	require.Panics(t, func() { mr.Uint64(40) }, "half of it lies beyond")
	// The address counts, not the offset.
	mr, err = pd.RegMR(all[4:], AccessLocalWrite)
	require.NoError(t, err)
	require.Equal(t, words[1], mr.Uint64(4))
	require.Panics(t, func() { mr.Uint64(8) })
}

// TestWait: what there is comes at once; otherwise the provider waits, and
// completions win over its error, an overflow over waiting.
func TestWait(t *testing.T) {
	f, _, cq := open(t, QPConfig{}, StateRTS)
	var wc [2]WC
	f.wait = func(context.Context, *CompQueue, bool) error { panic("waited") }
	_, err := cq.Wait(t.Context(), nil)
	require.ErrorContains(t, err, "needs room")
	require.Zero(t, cq.Poll(nil))
	f.cqs[0].Push(&WC{ID: 1})
	n, err := cq.Wait(t.Context(), wc[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Zero(t, f.progress, "the NIC was driven although there was a completion")

	calls := 0
	f.wait = func(ctx context.Context, q *CompQueue, solicited bool) error {
		require.Same(t, cq.q, q)
		require.True(t, solicited)
		if calls++; calls == 3 { // the first two are for nothing
			f.cqs[0].Push(&WC{ID: 2})
			f.cqs[0].Push(&WC{ID: 3})
			f.cqs[0].Push(&WC{ID: 4})
		}
		return nil
	}
	n, err = cq.WaitSolicited(t.Context(), wc[:])
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 3, calls)
	require.EqualValues(t, 3, wc[1].ID)
	require.Equal(t, 1, cq.Poll(wc[:]))

	end := errors.New("the end")
	f.wait = func(context.Context, *CompQueue, bool) error { f.cqs[0].Push(&WC{ID: 5}); return end }
	n, err = cq.Wait(t.Context(), wc[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	f.wait = func(_ context.Context, _ *CompQueue, solicited bool) error {
		require.False(t, solicited)
		return end
	}
	n, err = cq.Wait(t.Context(), wc[:])
	require.Equal(t, end, err)
	require.Zero(t, n)

	for range 257 {
		f.cqs[0].Push(&WC{})
	}
	for got := 0; got < 256; got += n {
		n, err = cq.Wait(t.Context(), wc[:])
		require.NoError(t, err, "what fitted is not lost")
	}
	_, err = cq.Wait(t.Context(), wc[:])
	require.ErrorContains(t, err, "completion queue overflown")
}

// TestConcurrent: several goroutines post and poll while another carries out.
// Every request completes once; those of one poster in order.
func TestConcurrent(t *testing.T) {
	const posters, each = 3, 2000
	f, q, cq := open(t, QPConfig{Cap: QPCap{MaxSendWR: 7, MaxSendSGE: 5, MaxRecvWR: 5}}, StateRTS)
	bell := make(chan struct{}, 1)
	f.bell = func() {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	// The fake's own counters are not for concurrent use.
	p := &quiet{f}
	q.pd.ctx.p = p
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		recv := make([]SGE, 4)
		for {
			select {
			case <-bell:
			case <-stop:
				return
			}
			for !f.carryOut() {
				runtime.Gosched()
			}
			for {
				if _, _, ok := f.rq.Fetch(recv); !ok {
					break
				}
			}
		}
	}()
	var wg sync.WaitGroup
	for i := range posters {
		wg.Go(func() {
			for k := 0; k < each; {
				wr := []SendWR{{ID: uint64(i<<32 | k), Opcode: WRSend, SGL: sges(k % 6)}, {ID: uint64(i<<32 | k + 1), Opcode: WRSend, Flags: SendInline, Inline: octets(k % 65)}}
				n, err := q.PostSend(wr[:min(2, each-k)])
				if k += n; err != nil && !errors.Is(err, ErrQueueFull) {
					t.Error(err)
					return
				}
				if _, err := q.PostRecv([]RecvWR{{ID: 1}}); err != nil && !errors.Is(err, ErrQueueFull) {
					t.Error(err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	var next [posters]int
	wc := make([]WC, 5)
	for got := 0; got < posters*each && !t.Failed(); {
		n := cq.Poll(wc)
		if n == 0 {
			runtime.Gosched()
		}
		for _, w := range wc[:n] {
			i, k := w.ID>>32, int(uint32(w.ID))
			if w.Status != WCSuccess || next[i] != k {
				t.Fatalf("%+v, want request %d of %d", w, next[i], i)
			}
			next[i]++
		}
		got += n
	}
	wg.Wait()
	close(stop)
	<-done
	require.Zero(t, cq.Poll(wc))
	require.False(t, cq.q.Overflown())
}

// quiet is a fake that counts nothing.
type quiet struct{ *fake }

func (q *quiet) Doorbell(Handle) { q.bell() }
func (q *quiet) Progress(Handle) {}
