package server_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// victim is a client whose numbers another knows, all of them.
func victim(t *testing.T, x *arena) *rawQP {
	v := x.raw(t).queuePair(verbs.UD, nil)
	fill(v.mem, 5)
	v.up(verbs.UD, verbs.Endpoint{})
	return v
}

func unharmed(t *testing.T, v *rawQP) {
	t.Helper()
	want := make([]byte, len(v.mem))
	fill(want, 5)
	require.True(t, bytes.Equal(want, v.mem), "another client wrote into the victim's memory")
	require.Equal(t, verbs.StateRTS, v.state())
}

func foreignLKey(t *testing.T, x *arena) {
	v := victim(t, x)
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRRead, verbs.WRFetchAdd} {
		q := x.raw(t).queuePair(verbs.RC, nil)
		q.up(verbs.RC, verbs.Endpoint{QPN: 5})
		q.post(2, sendWQE(op, 9, 0, 8, v.mr.LKey))
		id, st, _ := q.completion()
		require.EqualValues(t, 9, id)
		require.Equal(t, verbs.WCLocProtErr, st, "%v", op)
		require.Equal(t, verbs.StateErr, q.state())
	}
	unharmed(t, v)
}

// loop returns two connected queue pairs of one client.
func loop(t *testing.T, x *arena) (a, b *rawQP) {
	r := x.raw(t)
	a, b = r.queuePair(verbs.RC, nil), r.queuePair(verbs.RC, nil)
	for _, q := range [][2]*rawQP{{a, b}, {b, a}} {
		to := q[1].qp
		q[0].upTo(verbs.RC, verbs.Endpoint{QPN: to.QPN, PSN: to.PSN, GID: verbs.GIDOf(servedAddr)})
	}
	return a, b
}

func foreignRKey(t *testing.T, x *arena) {
	v := victim(t, x)
	for _, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRRead, verbs.WRFetchAdd} {
		for _, key := range []uint32{v.mr.RKey, x.a.mr.RKey()} {
			a, _ := loop(t, x)
			w := sendWQE(op, 1, 0, 8, a.mr.LKey)
			binary.LittleEndian.PutUint64(w[16:], x.a.mr.Addr())
			if key == v.mr.RKey {
				binary.LittleEndian.PutUint64(w[16:], 0)
			}
			binary.LittleEndian.PutUint32(w[24:], key)
			a.post(2, w)
			_, st, _ := a.completion()
			require.Equal(t, verbs.WCRemAccessErr, st, "%v", op)
			require.Equal(t, make([]byte, 8), a.mem[:8])
		}
	}
	unharmed(t, v)
}

func foreignAH(t *testing.T, x *arena) {
	v := victim(t, x)
	var ah, own control.HandleReply
	av := control.AV{DGID: verbs.GIDOf(peerAddr)}
	v.r.must(control.OpCreateAH, &control.CreateAHReq{PD: v.pd, AV: av}, &ah)
	q := x.raw(t).queuePair(verbs.UD, nil)
	q.up(verbs.UD, verbs.Endpoint{})
	q.r.must(control.OpCreateAH, &control.CreateAHReq{PD: q.pd, AV: av}, &own)
	for _, c := range []struct {
		ah   uint32
		want verbs.WCStatus
	}{{own.Handle, verbs.WCSuccess}, {ah.Handle, verbs.WCLocQPOpErr}} {
		w := sendWQE(verbs.WRSend, 1, 0, 8, q.mr.LKey)
		binary.LittleEndian.PutUint32(w[48:], 5)
		binary.LittleEndian.PutUint32(w[56:], c.ah)
		q.post(2, w)
		_, st, _ := q.completion()
		require.Equal(t, c.want, st)
	}
	unharmed(t, v)
}

// escape tries all keys near one's own, and the others' own, as everything that a
// key may be.
func escape(t *testing.T, x *arena) {
	v := victim(t, x)
	r := x.raw(t)
	pd := r.pd()
	var mr control.RegMRReply
	fresh := r.mapped(r.must(control.OpRegMR, &control.RegMRReq{PD: pd, Len: 1 << 20, Access: uint32(verbs.AccessAll)}, &mr), 1<<20)
	require.Equal(t, make([]byte, len(fresh)), fresh, "somebody's data is in new memory")
	fill(fresh, 5) // as the victim has: it may be read, by whoever is let
	rng := rand.New(rand.NewPCG(1, 1))
	keys := []uint32{v.mr.LKey, v.mr.RKey, x.a.mr.LKey(), x.a.mr.RKey(), 0, 1<<32 - 1}
	for range 10 {
		keys = append(keys, rng.Uint32(), v.mr.LKey^1<<rng.IntN(32))
	}
	for _, key := range keys {
		a, b := loop(t, x)
		require.NotEqual(t, key, a.mr.LKey)
		require.NotEqual(t, key, b.mr.LKey)
		w := sendWQE(verbs.WRRead, 1, 0, 64, a.mr.LKey)
		binary.LittleEndian.PutUint32(w[24:], key)
		a.post(2, w)
		_, st, _ := a.completion()
		require.Equal(t, verbs.WCRemAccessErr, st, "key %#x", key)
		a, b = loop(t, x)
		// As the target of a receive.
		binary.LittleEndian.PutUint32(b.rq[atUnits:], 1)
		binary.LittleEndian.PutUint32(b.rq[atUnits+16+8:], 64)
		binary.LittleEndian.PutUint32(b.rq[atUnits+16+12:], key)
		word(b.rq, atProducer).Store(2)
		a.post(2, sendWQE(verbs.WRSend, 1, 0, 64, a.mr.LKey))
		_, st, _ = b.completion()
		require.Equal(t, verbs.WCLocProtErr, st, "key %#x", key)
		require.Equal(t, make([]byte, 64), b.mem[:64])
		// And as the region of a window.
		a, _ = loop(t, x)
		var mw control.AllocMWReply
		a.r.must(control.OpAllocMW, &control.AllocMWReq{PD: a.pd, Type: 2}, &mw)
		bind := make([]byte, 64)
		bind[0], bind[1], bind[3] = byte(verbs.WRBindMW), byte(verbs.SendSignaled), 1
		binary.LittleEndian.PutUint32(bind[24:], mw.RKey)
		binary.LittleEndian.PutUint32(bind[28:], mw.RKey+1)
		binary.LittleEndian.PutUint64(bind[32:], 64)
		binary.LittleEndian.PutUint32(bind[40:], key)
		a.post(1, bind)
		_, st, _ = a.completion()
		require.Equal(t, verbs.WCMWBindErr, st, "key %#x", key)
	}
	unharmed(t, v)
}

func doorbells(t *testing.T, x *arena) {
	v := victim(t, x)
	r := x.raw(t)
	q := r.queuePair(verbs.RC, nil)
	blocks, ok := verbs.BellBlocks(r.bells, 1)
	require.True(t, ok)
	words := words64(r.bells[verbs.BellBlockLen-(640+4096*8)+64 : verbs.BellBlockLen])
	x.while(300*time.Millisecond, func() {
		for i := range words {
			words[i].Store(^uint64(0))
		}
		blocks[0].Asleep.Store(7)
	})
	x.while(100*time.Millisecond, func() { // summaries that lie
		for i := range words[:72] {
			words[i].Store(^uint64(0))
		}
	})
	for i := range words {
		words[i].Store(0)
	}
	require.Equal(t, verbs.StateReset, q.state())
	unharmed(t, v)
}

func badProducer(t *testing.T, x *arena) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		q := x.raw(t).queuePair(typ, nil)
		q.up(typ, verbs.Endpoint{QPN: 5})
		units := uint32(len(q.sq)-atUnits) / 64
		q.post(units+1, nil)
		_, st, _ := q.completion()
		require.Equal(t, verbs.WCLocQPOpErr, st, "%v", typ)
		require.Equal(t, verbs.StateErr, q.state())
	}
	// Of a receive ring: the next message finds no request there.
	a, b := loop(t, x)
	word(b.rq, atProducer).Store(1 << 30)
	a.post(2, sendWQE(verbs.WRSend, 1, 0, 8, a.mr.LKey))
	_, st, op := b.completion()
	require.Equal(t, verbs.WCLocQPOpErr, st)
	require.Equal(t, verbs.WCRecv, op)
	_, st, _ = a.completion()
	require.Equal(t, verbs.WCRemOpErr, st)
}

func badRequests(t *testing.T, x *arena) {
	for name, change := range map[string]func(w []byte){
		"no units":           func(w []byte) { w[3] = 0 },
		"a unit too many":    func(w []byte) { w[3] = 3 },
		"255 units":          func(w []byte) { w[3] = 255 },
		"255 entries":        func(w []byte) { w[2] = 255 },
		"5 entries":          func(w []byte) { w[2], w[3] = 5, 3 },
		"inline and entries": func(w []byte) { w[1] |= byte(verbs.SendInline) },
		"inline of 4 GiB":    func(w []byte) { w[1], w[2] = 10, 0; binary.LittleEndian.PutUint32(w[4:], 1<<32-1) },
		"inline of 513":      func(w []byte) { w[1], w[2], w[3] = 10, 0, 10; binary.LittleEndian.PutUint32(w[4:], 513) },
		"a length of none":   func(w []byte) { binary.LittleEndian.PutUint32(w[4:], 1) },
		"no such operation":  func(w []byte) { w[0] = 99 },
	} {
		q := x.raw(t).queuePair(verbs.RC, nil)
		q.up(verbs.RC, verbs.Endpoint{QPN: 5})
		w := sendWQE(verbs.WRSend, 1, 0, 8, q.mr.LKey)
		change(w)
		q.post(12, w)
		_, st, _ := q.completion()
		require.Equal(t, verbs.WCLocQPOpErr, st, name)
		require.Equal(t, verbs.StateErr, q.state(), name)
	}
}

// flicker changes the key and address of a request all the time: what arrives at the
// other end is of its own memory, or nothing does.
func flicker(t *testing.T, x *arena) {
	v := victim(t, x)
	for range 50 {
		a, b := loop(t, x)
		for i := range a.mem {
			a.mem[i] = 0xaa
		}
		binary.LittleEndian.PutUint32(b.rq[atUnits:], 1)
		binary.LittleEndian.PutUint32(b.rq[atUnits+16+8:], rawMR)
		binary.LittleEndian.PutUint32(b.rq[atUnits+16+12:], b.mr.LKey)
		word(b.rq, atProducer).Store(2)
		entry := words64(a.sq[atUnits+64 : atUnits+80])
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !stop.Load() {
				entry[1].Store(uint64(v.mr.LKey)<<32 | 64)
				entry[1].Store(uint64(a.mr.LKey)<<32 | 4096)
				entry[1].Store(uint64(a.mr.LKey)<<32 | 1<<31)
			}
		}()
		a.post(2, sendWQE(verbs.WRSend, 1, 0, 4096, a.mr.LKey))
		_, st, _ := a.completion()
		stop.Store(true)
		<-done
		// A mix of two lengths may be more than a message can have.
		require.Contains(t, []verbs.WCStatus{verbs.WCSuccess, verbs.WCLocLenErr, verbs.WCLocProtErr, verbs.WCRemInvReqErr}, st)
		if st == verbs.WCSuccess {
			// The device may have read a mix of what was written, octet by octet.
			n := binary.LittleEndian.Uint32(b.cqRing[atUnits+16:])
			require.LessOrEqual(t, n, uint32(rawMR))
			require.True(t, bytes.Equal(a.mem[:n], b.mem[:n]))
			require.Equal(t, make([]byte, rawMR-n), b.mem[n:])
		}
		require.NotContains(t, string(b.mem), string(v.mem[:16]))
	}
	unharmed(t, v)
}

func badConsumer(t *testing.T, x *arena) {
	r := x.raw(t)
	q := r.queuePair(verbs.RC, nil)
	q.up(verbs.RC, verbs.Endpoint{QPN: 5})
	word(q.cqRing, atConsumer).Store(1 << 31)
	q.post(2, sendWQE(verbs.WRSend, 1, 0, 8, 1))
	for {
		var m control.Message
		_ = r.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		require.NoError(t, r.conn.Receive(&m))
		var e control.Event
		_, err := control.Decode(m.Body, &e)
		require.NoError(t, err)
		if verbs.EventType(e.Type) == verbs.EventCQErr {
			require.Equal(t, q.cq, e.CQ)
			break
		}
	}
	require.Equal(t, verbs.StateErr, q.state())
	require.NotZero(t, word(q.cqRing, atFlags).Load()&4)
}

// endlessPosting posts as fast as the device consumes, where that goes on for as
// long as there is something. The rings are long, so that the index that it stores is
// never behind the device's.
func endlessPosting(t *testing.T, x *arena) {
	long := func(q *control.CreateQPReq) { q.MaxSendWR, q.MaxRecvWR = 8192, 8192 }
	follow := func(ring []byte) func() {
		prod, cons := word(ring, atProducer), word(ring, atConsumer)
		most := uint32(len(ring)-atUnits) / 64
		return func() { prod.Store(cons.Load() + most) }
	}
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		q := x.raw(t).queuePair(typ, long)
		q.up(typ, verbs.Endpoint{QPN: 5})
		for i := atUnits; i < len(q.sq); i += 64 { // requests of one unit
			q.sq[i+3] = 1
		}
		q.modify(verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
		for _, more := range []func(){follow(q.sq), follow(q.rq)} {
			x.while(100*time.Millisecond, func() {
				for range 1000 {
					more()
				}
				q.ring()
			})
		}
	}
	// Local operations, which send nothing.
	q := x.raw(t).queuePair(verbs.RC, long)
	q.up(verbs.RC, verbs.Endpoint{QPN: 5})
	var mw control.AllocMWReply
	q.r.must(control.OpAllocMW, &control.AllocMWReq{PD: q.pd, Type: 1}, &mw)
	for i := atUnits; i < len(q.sq); i += 64 { // bind it to nothing
		q.sq[i], q.sq[i+3] = byte(verbs.WRBindMW), 1
		binary.LittleEndian.PutUint32(q.sq[i+24:], mw.RKey)
		binary.LittleEndian.PutUint32(q.sq[i+28:], mw.RKey)
	}
	sq := follow(q.sq)
	x.while(200*time.Millisecond, func() {
		for range 1000 {
			sq()
		}
		q.ring()
	})
	// Datagrams that are too long, which are skipped.
	d := x.raw(t).queuePair(verbs.UD, long)
	d.up(verbs.UD, verbs.Endpoint{})
	var ah control.HandleReply
	d.r.must(control.OpCreateAH, &control.CreateAHReq{PD: d.pd, AV: control.AV{DGID: verbs.GIDOf(peerAddr)}}, &ah)
	for i := atUnits; i < len(d.sq); i += 128 {
		copy(d.sq[i:], sendWQE(verbs.WRSend, 1, 0, rawMR, d.mr.LKey))
		binary.LittleEndian.PutUint32(d.sq[i+56:], ah.Handle)
	}
	sq = follow(d.sq)
	x.while(200*time.Millisecond, func() {
		for range 1000 {
			sq()
		}
		d.ring()
	})
}

func randomRings(t *testing.T, x *arena) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		q := x.raw(t).queuePair(typ, nil)
		q.up(typ, verbs.Endpoint{QPN: 5})
		x.while(100*time.Millisecond, func() {
			for _, ring := range [][]byte{q.sq, q.rq, q.cqRing} {
				w := words64(ring)
				for range 16 {
					w[rng.IntN(len(w))].Store(rng.Uint64() >> rng.IntN(64))
				}
			}
			q.ring()
		})
	}
}

func futexStorm(t *testing.T, x *arena) {
	q := x.raw(t).queuePair(verbs.RC, nil)
	q.up(verbs.RC, verbs.Endpoint{QPN: 5})
	notes, flags := word(q.cqRing, atNotes), word(q.cqRing, atFlags)
	var stop atomic.Bool
	done := make(chan struct{}, 64)
	for range cap(done) {
		go func() {
			for !stop.Load() {
				sys.FutexWait(notes, notes.Load(), time.Second)
			}
			done <- struct{}{}
		}()
	}
	q.modify(verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
	for i := atUnits; i < len(q.sq); i += 64 {
		q.sq[i+3] = 1
	}
	x.while(200*time.Millisecond, func() {
		flags.Store(1)
		word(q.cqRing, atConsumer).Store(word(q.cqRing, atProducer).Load())
		word(q.sq, atProducer).Add(1)
		q.ring()
		notes.Add(1)
		sys.FutexWake(notes)
	})
	stop.Store(true)
	for len(done) < cap(done) {
		notes.Add(1)
		sys.FutexWake(notes)
		sys.Yield()
	}
}

func memfd(t *testing.T, x *arena) {
	r := x.raw(t)
	pd := r.pd()
	q := r.queuePair(verbs.RC, nil)
	for _, c := range []struct {
		op   control.Op
		body any
		size int64
	}{
		{control.OpRegMR, &control.RegMRReq{PD: pd, Len: 8192, Access: uint32(verbs.AccessAll)}, 8192},
		{control.OpCreateCQ, &control.CreateCQReq{Depth: 64}, 8192},
		{control.OpCreateQP, &control.CreateQPReq{PD: q.pd, SendCQ: q.cq, RecvCQ: q.cq, Type: 2}, 0},
	} {
		fds := r.must(c.op, c.body, nil)
		require.Len(t, fds, 1)
		fd := fds[0]
		for _, size := range []int64{0, 4096, 1 << 30} {
			require.ErrorIs(t, unix.Ftruncate(fd, size), unix.EPERM)
		}
		require.ErrorIs(t, unix.Fallocate(fd, 0, 0, 1<<30), unix.EPERM)
		for _, seal := range []int{unix.F_SEAL_WRITE, unix.F_SEAL_FUTURE_WRITE, unix.F_SEAL_SEAL} {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
			require.ErrorIs(t, err, unix.EPERM)
		}
		st := unix.Stat_t{}
		require.NoError(t, unix.Fstat(fd, &st))
		if c.size != 0 {
			require.Equal(t, c.size, st.Size)
		}
		require.NoError(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, st.Size))
		sys.CloseFDs(fd)
	}
	// Holes in the rings of a queue pair that is at work.
	fds := r.must(control.OpCreateCQ, &control.CreateCQReq{Depth: 64}, nil)
	defer sys.CloseFDs(fds...)
	x.while(50*time.Millisecond, func() {
		_ = unix.Fallocate(fds[0], unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8192)
		q.ring()
	})
}

// keptMemory keeps what it was given and gave back: the limit of octets is one of
// the machine's memory, too.
func keptMemory(t *testing.T, x *arena) {
	r := x.raw(t)
	pd := r.pd()
	const size = 32 << 20
	for range 4 { // together twice the limit
		var mr control.RegMRReply
		fds := r.must(control.OpRegMR, &control.RegMRReq{PD: pd, Len: size}, &mr)
		defer sys.CloseFDs(fds...)
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(fds[0], &st))
		require.EqualValues(t, size/512, st.Blocks)
		mem, err := sys.MapShared(fds[0], size)
		require.NoError(t, err)
		mem[5] = 1
		r.destroy(verbs.KindMR, mr.Handle)
		require.NoError(t, unix.Fstat(fds[0], &st))
		require.Zero(t, st.Blocks, "memory that the client gave back is held")
		require.Zero(t, mem[5])
		sys.Unmap(mem)
	}
}
