package verbs

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// shaded is a QP over a fake whose regions are shadowed, one of 1000 octets at
// address 5000 and one of 100 at 9000, and a region that is not. The test is the
// NIC.
type shaded struct {
	t        require.TestingT
	f        *fake
	pd       *PD
	q        *QP
	cq       *CQ
	mr       *MR // the first
	mem, far []byte
	sh, shf  []byte // their shadows
	other    SGE    // of the region without
}

func shade(t testing.TB, cfg QPConfig) *shaded {
	f, q, cq := open(t, cfg, StateRTS)
	f.shadows, f.bell = [][]byte{}, func() {}
	s := &shaded{t: t, f: f, pd: q.pd, q: q, cq: cq, mem: make([]byte, 1000), far: make([]byte, 100)}
	var err error
	s.mr, err = s.pd.RegMRIOVA(s.mem, 5000, AccessLocalWrite)
	require.NoError(t, err)
	_, err = s.pd.RegMRIOVA(s.far, 9000, AccessLocalWrite)
	require.NoError(t, err)
	s.sh, s.shf = f.shadows[0], f.shadows[1]
	m, err := s.pd.AllocMR(64, AccessAll)
	require.NoError(t, err)
	s.other = m.SGE(0, 3)
	f.log = nil
	return s
}

func (s *shaded) sge(off, n int) SGE { return s.mr.SGE(off, n) }
func (s *shaded) farSGE(off, n int) SGE {
	return SGE{Addr: 9000 + uint64(off), Length: uint32(n), LKey: 101}
}

func (s *shaded) post(w ...SendWR) {
	n, err := s.q.PostSend(w)
	require.NoError(s.t, err)
	require.Len(s.t, w, n)
}

func (s *shaded) postRecv(w ...RecvWR) {
	n, err := s.q.PostRecv(w)
	require.NoError(s.t, err)
	require.Len(s.t, w, n)
}

// fetch has the NIC take the next send request.
func (s *shaded) fetch() *SendWQE {
	more, ok := s.f.sq.Fetch(&s.f.wqe, s.f.sgl[:])
	require.True(s.t, more && ok)
	return &s.f.wqe
}

// finish has it complete the next send request.
func (s *shaded) finish(st WCStatus) {
	w := s.fetch()
	s.f.sq.Retire(w)
	if st == WCSuccess && w.Flags&SendSignaled == 0 {
		return
	}
	op, ok := map[WROpcode]WCOpcode{WRRead: WCRead, WRCmpSwap: WCCmpSwap, WRFetchAdd: WCFetchAdd, WRWrite: WCWrite}[w.Opcode]
	require.True(s.t, ok || w.Opcode == WRSend)
	wc := WC{Opcode: op, Status: st, QPN: s.q.QPN()}
	w.Name(&wc)
	require.True(s.t, s.f.cqs[0].Push(&wc))
}

// take has it take the next receive request of a queue.
func (s *shaded) take(r *RecvRing) RecvID {
	id, _, ok := r.Fetch(s.f.sgl[:])
	require.True(s.t, ok)
	return id
}

// arrive has it complete a receive request with n octets.
func (s *shaded) arrive(id RecvID, wc WC) {
	wc.QPN = s.q.QPN()
	id.Name(&wc)
	require.True(s.t, s.f.cqs[0].Push(&wc))
}

// poll returns the numbers of what has completed.
func (s *shaded) poll() (ids []uint64) {
	var wc [3]WC
	for {
		n := s.cq.Poll(wc[:])
		if n == 0 {
			return ids
		}
		for _, w := range wc[:n] {
			require.Zero(s.t, w.cookie)
			ids = append(ids, w.ID)
		}
	}
}

// set fills b with values from v on, changed says which octets of b are not 0.
func set(b []byte, v byte) {
	for i := range b {
		b[i] = v + byte(i)
	}
}

func changed(b []byte) (at []int) {
	for i, v := range b {
		if v != 0 {
			at = append(at, i)
		}
	}
	return at
}

func upTo(from, to int) (at []int) {
	for i := from; i < to; i++ {
		at = append(at, i)
	}
	return at
}

// What is sent from a shadowed region is in its shadow when the NIC hears of the
// request, those octets alone and of these operations alone.
func TestShadowSend(t *testing.T) {
	for op, copied := range map[WROpcode]bool{
		WRSend: true, WRSendImm: true, WRSendInv: true, WRWrite: true, WRWriteImm: true, WRRead: false, WRCmpSwap: false, WRFetchAdd: false,
	} {
		s := shade(t, QPConfig{})
		set(s.mem, 1)
		set(s.far, 7)
		s.mem[255], s.mem[511], s.mem[767] = 9, 9, 9
		s.post(SendWR{Opcode: op, SGL: []SGE{s.sge(10, 5), s.other, s.farSGE(98, 2), s.sge(997, 3)}})
		if !copied {
			require.Empty(t, changed(s.sh), op)
			continue
		}
		require.Equal(t, append(upTo(10, 15), 997, 998, 999), changed(s.sh), op)
		require.Equal(t, s.mem[10:15], s.sh[10:15])
		require.Equal(t, s.far[98:], s.shf[98:])
		require.Equal(t, []int{98, 99}, changed(s.shf))
		require.Zero(t, s.fetch().Cookie, "nothing to be told of it")
	}
}

// Nothing is copied for a request that was not taken, has its data with it, or
// names what is not in its region; that is for the NIC to refuse.
func TestShadowSendNothing(t *testing.T) {
	s := shade(t, QPConfig{Cap: QPCap{MaxSendWR: 7, MaxSendSGE: 2}})
	set(s.mem, 1)
	wild := []SGE{{Addr: 4999, Length: 3, LKey: 100}, {Addr: 5998, Length: 3, LKey: 100}, {Addr: 6001, Length: 0, LKey: 100}, {Addr: 1<<64 - 1, Length: 1<<32 - 1, LKey: 100}, {Addr: 5000, Length: 3, LKey: 102}, {Addr: 5500, LKey: 100}, {Addr: 6000, LKey: 100}}
	for i, e := range wild {
		op := []WROpcode{WRSend, WRRead}[i%2]
		s.post(SendWR{Opcode: op, SGL: []SGE{e}})
	}
	_, err := s.q.PostSend([]SendWR{{Opcode: WRSend, SGL: []SGE{s.sge(0, 9)}}})
	require.ErrorIs(t, err, ErrQueueFull)
	_, err = s.q.PostSend([]SendWR{{Opcode: WRRead, SGL: []SGE{s.sge(0, 9)}}})
	require.ErrorIs(t, err, ErrQueueFull)
	for range wild {
		s.finish(WCSuccess)
	}
	_, err = s.q.PostSend([]SendWR{{Opcode: WRSend, SGL: []SGE{s.sge(0, 9), s.sge(0, 9), s.sge(0, 9)}}})
	require.ErrorIs(t, err, ErrInvalidWR)
	_, err = s.q.PostSend([]SendWR{{Opcode: WRRead, SGL: []SGE{s.sge(0, 9), s.sge(0, 9), s.sge(0, 9)}}})
	require.ErrorIs(t, err, ErrInvalidWR)
	s.post(SendWR{Opcode: WRSend, Flags: SendInline, Inline: []byte("abc"), SGL: []SGE{s.sge(0, 9)}})
	require.Empty(t, changed(s.sh))
	require.Zero(t, s.fetch().Cookie)

	full := shade(t, QPConfig{Cap: QPCap{MaxRecvWR: 1}})
	for i, want := range []error{nil, ErrQueueFull, ErrQueueFull} {
		_, err = full.q.PostRecv([]RecvWR{{SGL: []SGE{full.sge(i, 1)}}})
		require.ErrorIs(t, err, want)
		require.Equal(t, 1, len(full.q.recvs.slots)-len(full.q.recvs.free))
	}

	for _, e := range wild {
		s.postRecv(RecvWR{SGL: []SGE{e}})
		s.arrive(s.take(s.f.rq), WC{Opcode: WCRecv, ByteLen: 1 << 31}) // as no NIC would
	}
	set(s.sh, 1)
	before := slices.Clone(s.mem)
	require.Len(t, s.poll(), len(wild))
	require.Equal(t, before, s.mem)
}

// As many octets as a receive completion counts are in the program's memory when
// it is polled, over the entries in order: none if it failed or tells of a WRITE.
// The program sees nothing of cookies.
func TestShadowReceive(t *testing.T) {
	for _, c := range []struct {
		wc       WC
		mem, far []int
	}{
		{WC{Opcode: WCRecv}, nil, nil},
		{WC{Opcode: WCRecv, ByteLen: 4}, upTo(10, 14), nil},
		{WC{Opcode: WCRecv, ByteLen: 7, Flags: WCGRH | WCWithImm}, upTo(10, 15), nil},
		{WC{Opcode: WCRecv, ByteLen: 9, Flags: WCWithInv}, upTo(10, 15), upTo(98, 99)},
		{WC{Opcode: WCRecv, ByteLen: 100}, append(upTo(10, 15), 997, 998, 999), upTo(98, 100)},
		{WC{Opcode: WCRecvWriteImm, ByteLen: 100}, nil, nil},
		{WC{Opcode: WCRecv, ByteLen: 100, Status: WCWRFlushErr}, nil, nil},
		{WC{Opcode: WCRecv, ByteLen: 100, Status: WCLocLenErr}, nil, nil},
	} {
		s := shade(t, QPConfig{Cap: QPCap{MaxRecvSGE: 4}})
		s.postRecv(RecvWR{ID: 7, SGL: []SGE{s.sge(10, 5), s.other, s.farSGE(98, 2), s.sge(997, 3)}}, RecvWR{ID: 8, SGL: []SGE{s.other}})
		set(s.sh, 0x80)
		set(s.shf, 0x80)
		s.sh[128], s.sh[384] = 1, 1
		id := s.take(s.f.rq)
		require.NotZero(t, id.Cookie)
		require.Zero(t, s.take(s.f.rq).Cookie, "of one without a shadow")
		require.Empty(t, changed(s.mem))
		s.arrive(id, c.wc)
		require.Equal(t, []uint64{7}, s.poll())
		require.Equal(t, c.mem, changed(s.mem), c.wc)
		require.Equal(t, c.far, changed(s.far), c.wc)
		for _, i := range c.mem {
			require.Equal(t, s.sh[i], s.mem[i])
		}
		require.Len(t, s.q.recvs.free, len(s.q.recvs.slots))
		// The same once more, as from a NIC that repeats itself.
		clear(s.mem)
		s.arrive(id, WC{Opcode: WCRecv, ByteLen: 9})
		s.arrive(RecvID{Cookie: 1 << 31}, WC{Opcode: WCRecv, ByteLen: 9})
		require.Len(t, s.poll(), 2)
		require.Empty(t, changed(s.mem))
		require.Len(t, s.q.recvs.free, len(s.q.recvs.slots))
	}
}

// What a READ or an atomic brings is in the program's memory when a completion
// that covers it is polled, and not of those that failed.
func TestShadowRead(t *testing.T) {
	s := shade(t, QPConfig{})
	set(s.sh[:100], 1)
	read := func(i int, f SendFlags) SendWR {
		return SendWR{ID: uint64(i), Opcode: []WROpcode{WRRead, WRCmpSwap, WRFetchAdd}[i%3], Flags: f, SGL: []SGE{s.sge(i*8, 8)}}
	}
	s.post(SendWR{ID: 9, Opcode: WRSend, Flags: SendSignaled}, read(0, 0), read(1, SendSignaled), SendWR{Opcode: WRSend}, read(2, 0), SendWR{ID: 5, Opcode: WRWrite, Flags: SendSignaled, SGL: []SGE{s.other}}, read(3, SendSignaled), read(4, SendSignaled))
	s.finish(WCSuccess)
	require.Equal(t, []uint64{9}, s.poll())
	s.finish(WCSuccess)
	require.Empty(t, s.poll())
	require.Empty(t, changed(s.mem), "before a completion covers it")
	s.finish(WCSuccess)
	require.Equal(t, []uint64{1}, s.poll())
	require.Equal(t, upTo(0, 16), changed(s.mem))
	s.finish(WCSuccess)
	s.finish(WCSuccess)
	require.Empty(t, s.poll())
	require.Equal(t, upTo(0, 16), changed(s.mem))
	s.finish(WCSuccess)
	require.Equal(t, []uint64{5}, s.poll())
	require.Equal(t, upTo(0, 24), changed(s.mem), "by a request of another kind behind it")
	s.finish(WCRemAccessErr)
	s.finish(WCWRFlushErr)
	require.Equal(t, []uint64{3, 4}, s.poll())
	require.Equal(t, upTo(0, 24), changed(s.mem), "one that failed")
	require.Equal(t, s.sh[:24], s.mem[:24])

	require.Zero(t, s.q.sends.n)
	s.post(SendWR{Opcode: WRSend}, SendWR{Opcode: WRRead, SGL: []SGE{s.other}}, read(5, 0), SendWR{ID: 6, Opcode: WRSend}, read(7, SendSignaled))
	require.Zero(t, s.fetch().Cookie, "nothing is outstanding")
	require.Zero(t, s.fetch().Cookie, "a READ to elsewhere")
	require.NotZero(t, s.fetch().Cookie)
	s.finish(WCRNRRetryExcErr) // of the SEND
	s.finish(WCWRFlushErr)
	require.Equal(t, []uint64{6, 7}, s.poll())
	require.Equal(t, append(upTo(0, 24), upTo(40, 48)...), changed(s.mem), "the READ before the one that failed went well")
}

// Any number of READs may be outstanding, from any place of the track on.
func TestShadowReadsOutstanding(t *testing.T) {
	s := shade(t, QPConfig{Cap: QPCap{MaxSendWR: 100}})
	set(s.sh, 1)
	s.sh[255] = 1
	read := func(i int) {
		s.post(SendWR{ID: uint64(i), Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(i, 1)}})
	}
	for i := range 5 {
		read(i)
	}
	for i := range 290 {
		if read(i + 5); i%4 != 0 { // a fourth of them stays
			s.finish(WCSuccess)
			s.poll()
		}
	}
	for s.q.sends.n > 0 {
		s.finish(WCSuccess)
		s.poll()
	}
	require.Equal(t, s.sh[:295], s.mem[:295])
	require.Equal(t, 295, len(changed(s.mem)))
}

// The cookies of a send queue pass 2^32, and are not 0.
func TestShadowCookieWraps(t *testing.T) {
	s := shade(t, QPConfig{})
	s.q.sends.seq = 1<<32 - 3
	set(s.sh, 1)
	for i := range 5 {
		s.post(SendWR{ID: uint64(i), Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(i, 1)}})
	}
	for i := range 5 {
		s.finish(WCSuccess)
		require.Equal(t, []uint64{uint64(i)}, s.poll())
		require.Equal(t, upTo(0, i+1), changed(s.mem))
	}
	require.EqualValues(t, 3, s.q.sends.seq)
}

// A program may post READs for ever and have none signaled, or poll none: what
// is kept of them has a bound, and the data come.
func TestShadowReadsNeverPolled(t *testing.T) {
	s := shade(t, QPConfig{Cap: QPCap{MaxSendWR: 4}})
	s.sh[3] = 1
	for i := range 200 {
		var f SendFlags
		if i%3 == 0 {
			f = SendSignaled
		}
		s.post(SendWR{ID: uint64(i), Opcode: WRRead, Flags: f, SGL: []SGE{s.sge(i, 1)}})
		s.sh[i] = byte(i%255) + 1
		if i == 150 {
			s.finish(WCRemAccessErr)
			continue
		}
		s.finish(WCSuccess)
		require.LessOrEqual(t, s.q.sends.n, 4)
		require.LessOrEqual(t, len(s.q.sends.ring), 5)
	}
	s.poll()
	require.LessOrEqual(t, s.q.sends.n, 1)
	s.post(SendWR{Opcode: WRSend, Flags: SendSignaled})
	s.finish(WCSuccess)
	s.poll()
	want := slices.Clone(s.sh[:200])
	want[150] = 0
	require.Equal(t, want, s.mem[:200])
}

// TestNoAllocationsShadowed: copying allocates nothing either.
func TestNoAllocationsShadowed(t *testing.T) {
	s := shade(t, QPConfig{Cap: QPCap{MaxSendWR: 8, MaxRecvWR: 8}})
	send := []SendWR{
		{Opcode: WRSend, SGL: []SGE{s.sge(0, 500), s.farSGE(0, 100)}},
		{Opcode: WRRead, SGL: []SGE{s.sge(500, 200), s.farSGE(0, 100)}},
		{Opcode: WRRead, Flags: SendSignaled, SGL: []SGE{s.sge(500, 200)}},
	}
	recv := []RecvWR{{SGL: []SGE{s.sge(700, 100)}}, {SGL: []SGE{s.sge(800, 100), s.other}}}
	wc := make([]WC, 8)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = s.q.PostSend(send)
		_, _ = s.q.PostRecv(recv)
		for range send {
			w := &s.f.wqe
			_, _ = s.f.sq.Fetch(w, s.f.sgl[:])
			s.f.sq.Retire(w)
			if w.Flags&SendSignaled != 0 {
				s.f.wc = WC{Opcode: WCRead, QPN: s.q.info.QPN}
				w.Name(&s.f.wc)
				s.f.cqs[0].Push(&s.f.wc)
			}
		}
		for range recv {
			id, _, _ := s.f.rq.Fetch(s.f.sgl[:])
			s.f.wc = WC{Opcode: WCRecv, QPN: s.q.info.QPN, ByteLen: 90}
			id.Name(&s.f.wc)
			s.f.cqs[0].Push(&s.f.wc)
		}
		if n := s.cq.Poll(wc); n != 3 || wc[2].ByteLen != 90 {
			t.Fatal(n, wc[:n])
		}
	}))
}
