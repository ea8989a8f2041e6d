package server_test

import (
	"encoding/binary"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// raw is a client that says what it likes: messages and octets in memory, with no
// library between it and the daemon.
type raw struct {
	t     *testing.T
	conn  *control.Conn
	hello control.HelloReply
	bells []byte
	tag   uint32
}

// connect opens the socket and says nothing.
func (s *site) connect(t *testing.T) *raw {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.socket, Net: "unixpacket"})
	require.NoError(t, err)
	r := &raw{t: t, conn: control.NewConn(c)}
	t.Cleanup(func() { _ = c.Close() })
	return r
}

// raw returns a client that has said hello.
func (s *site) raw(t *testing.T) *raw {
	t.Helper()
	r := s.connect(t)
	h := control.Hello{Magic: control.Magic, Major: control.VersionMajor}
	fds := r.must(control.OpHello, &h, &r.hello)
	r.bells = r.mapped(fds, r.hello.BellBytes)
	return r
}

// write writes octets as one message, with descriptors.
func (r *raw) write(b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = sys.Rights(fds...)
	}
	_ = r.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _, err := r.conn.WriteMsgUnix(b, oob, nil)
	return err
}

// message builds a message.
func (r *raw) message(op control.Op, body any) []byte {
	r.tag++
	b := control.Append(nil, &control.Header{Op: op, Tag: r.tag})
	if body != nil {
		b = control.Append(b, body)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	return b
}

// answer reads the next message that is no event. Its body is the caller's.
func (r *raw) answer() (m control.Message, err error) {
	_ = r.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		m = control.Message{}
		if err = r.conn.Receive(&m); err != nil || m.Op != control.OpEvent {
			m.Body = append([]byte(nil), m.Body...)
			return m, err
		}
		m.Close()
	}
}

// call asks for something and returns the answer's status, and its text or body.
func (r *raw) call(op control.Op, body any) (control.Status, []byte, []int) {
	r.t.Helper()
	require.NoError(r.t, r.write(r.message(op, body)))
	m, err := r.answer()
	require.NoError(r.t, err)
	require.Equal(r.t, op|control.OpReply, m.Op)
	require.Equal(r.t, r.tag, m.Tag)
	return m.Status, m.Body, m.FDs
}

// must is call for what must go well; out is filled in from the answer.
func (r *raw) must(op control.Op, body, out any) []int {
	r.t.Helper()
	st, b, fds := r.call(op, body)
	require.Equal(r.t, control.OK, st, "%s", b)
	if out != nil {
		_, err := control.Decode(b, out)
		require.NoError(r.t, err)
	}
	return fds
}

// refused asks for something that must fail with a status and words.
func (r *raw) refused(st control.Status, words string, op control.Op, body any) {
	r.t.Helper()
	got, text, fds := r.call(op, body)
	sys.CloseFDs(fds...)
	require.Equal(r.t, st, got, "%s", text)
	require.Contains(r.t, string(text), words)
}

// cutOff says something that must end the connection, answered with BadMessage if
// there is an answer.
func (r *raw) cutOff(b []byte, fds ...int) {
	r.t.Helper()
	require.NoError(r.t, r.write(b, fds...))
	for {
		m, err := r.answer()
		if err != nil {
			require.NotErrorIs(r.t, err, os.ErrDeadlineExceeded, "the daemon did not hang up")
			return
		}
		require.Equal(r.t, control.BadMessage, m.Status, "%s", m.Body)
	}
}

// mapped maps shared memory until the test ends.
func (r *raw) mapped(fds []int, n uint64) []byte {
	r.t.Helper()
	require.Len(r.t, fds, 1)
	mem, err := sys.MapShared(fds[0], int(n))
	sys.CloseFDs(fds...)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { sys.Unmap(mem) })
	return mem
}

func (r *raw) destroy(k verbs.ObjectKind, h uint32) {
	r.t.Helper()
	r.must(control.OpDestroy, &control.HandleReq{Handle: h, Kind: uint32(k)}, nil)
}

// rawQP is what a program makes to use a queue pair.
type rawQP struct {
	r      *raw
	pd, cq uint32
	mr     control.RegMRReply
	qp     control.CreateQPReply
	mem    []byte // of mr, whose IOVA is 0
	cqRing []byte
	sq, rq []byte
}

const rawMR = 64 << 10

func (r *raw) pd() uint32 {
	r.t.Helper()
	var h control.HandleReply
	r.must(control.OpAllocPD, nil, &h)
	return h.Handle
}

func (r *raw) createCQ(depth uint32) (uint32, []byte) {
	r.t.Helper()
	var ring control.RingReply
	fds := r.must(control.OpCreateCQ, &control.CreateCQReq{Depth: depth}, &ring)
	return ring.Handle, r.mapped(fds, ring.MapBytes)[:ring.RingBytes]
}

// queuePair makes one with everything that it needs.
func (r *raw) queuePair(typ verbs.QPType, change func(*control.CreateQPReq)) *rawQP {
	r.t.Helper()
	q := &rawQP{r: r, pd: r.pd()}
	q.cq, q.cqRing = r.createCQ(64)
	q.mem = r.mapped(r.must(control.OpRegMR, &control.RegMRReq{PD: q.pd, Access: uint32(verbs.AccessAll), Len: rawMR}, &q.mr), rawMR)
	req := control.CreateQPReq{PD: q.pd, SendCQ: q.cq, RecvCQ: q.cq, Type: uint32(typ), MaxSendWR: 16, MaxRecvWR: 16}
	if change != nil {
		change(&req)
	}
	fds := r.must(control.OpCreateQP, &req, &q.qp)
	mem := r.mapped(fds, q.qp.MapBytes)
	q.sq = mem[:q.qp.SendBytes]
	q.rq = mem[q.qp.RecvAt : q.qp.RecvAt+q.qp.RecvBytes]
	return q
}

func (q *rawQP) modify(a verbs.QPAttr, m verbs.AttrMask) {
	q.r.t.Helper()
	q.r.must(control.OpModifyQP, &control.ModifyQPReq{Handle: q.qp.Handle, Mask: uint32(m), Attr: control.FromQPAttr(&a)}, nil)
}

// up takes the queue pair to RTS; dest is a queue pair of the peer's, or one that
// there is not.
func (q *rawQP) up(typ verbs.QPType, dest verbs.Endpoint) {
	q.r.t.Helper()
	dest.GID = verbs.GIDOf(peerAddr)
	q.upTo(typ, dest)
}

func (q *rawQP) upTo(typ verbs.QPType, dest verbs.Endpoint) {
	q.r.t.Helper()
	init, initMask := verbs.QPAttr{State: verbs.StateInit, Port: 1, Access: verbs.AccessAll, QKey: 1}, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort
	rtr, rtrMask := verbs.QPAttr{State: verbs.StateRTR, PathMTU: 1024, DestQPN: dest.QPN, RQPSN: dest.PSN, MaxDestRdAtomic: 4, AV: verbs.AV{DGID: dest.GID}}, verbs.AttrState
	rts, rtsMask := verbs.QPAttr{State: verbs.StateRTS, SQPSN: q.qp.PSN, Timeout: 14, RetryCnt: 1, RNRRetry: 1, MaxRdAtomic: 4}, verbs.AttrState|verbs.AttrSQPSN
	switch typ {
	case verbs.UD:
		initMask |= verbs.AttrQKey
	case verbs.UC:
		initMask |= verbs.AttrAccess
		rtrMask |= verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN
	default:
		initMask |= verbs.AttrAccess
		rtrMask |= verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
		rtsMask |= verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic
	}
	q.modify(init, initMask)
	q.modify(rtr, rtrMask)
	q.modify(rts, rtsMask)
}

// word returns a control word of a ring.
func word(ring []byte, at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&ring[at])) }

// words64 returns memory as words that may be written while the device looks.
func words64(mem []byte) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&mem[0])), len(mem)/8)
}

// Octets of a ring; docs/rings.md.
const (
	atProducer, atConsumer, atFlags, atNotes, atUnits = 0, 64, 128, 132, 192
)

// ring rings the queue pair's doorbell.
func (q *rawQP) ring() { q.r.ring(q.qp.Shard, q.qp.Bell) }

func (r *raw) ring(shard, bell uint32) {
	blocks, _ := verbs.BellBlocks(r.bells, int(r.hello.Shards))
	b := blocks[shard]
	b.Bells.Ring(bell)
	if b.Asleep.CompareAndSwap(1, 0) {
		_ = r.write(r.message(control.OpWake, &control.WakeReq{Shard: shard}))
	}
}

// post writes a request's octets at the producer index, publishes units of it, and
// rings.
func (q *rawQP) post(units uint32, octets []byte) {
	p := word(q.sq, atProducer)
	n := uint32(len(q.sq)-atUnits) / 64
	for i := 0; i < len(octets); i += 64 {
		copy(q.sq[atUnits+(p.Load()+uint32(i)/64)%n*64:], octets[i:min(len(octets), i+64)])
	}
	p.Add(units)
	q.ring()
}

// sendWQE returns the octets of a request with one entry: docs/rings.md.
func sendWQE(op verbs.WROpcode, id uint64, addr uint64, n, lkey uint32) []byte {
	b := make([]byte, 128)
	b[0], b[1], b[2], b[3] = byte(op), byte(verbs.SendSignaled), 1, 2
	binary.LittleEndian.PutUint64(b[8:], id)
	binary.LittleEndian.PutUint64(b[64:], addr)
	binary.LittleEndian.PutUint32(b[72:], n)
	binary.LittleEndian.PutUint32(b[76:], lkey)
	return b
}

// completion waits for the next completion.
func (q *rawQP) completion() (id uint64, st verbs.WCStatus, op verbs.WCOpcode) {
	q.r.t.Helper()
	prod, cons := word(q.cqRing, atProducer), word(q.cqRing, atConsumer)
	require.Eventually(q.r.t, func() bool { return prod.Load() != cons.Load() }, 10*time.Second, 50*time.Microsecond, "no completion")
	n := uint32(len(q.cqRing)-atUnits) / 64
	e := q.cqRing[atUnits+cons.Load()%n*64:]
	cons.Add(1)
	return binary.LittleEndian.Uint64(e), verbs.WCStatus(e[8]), verbs.WCOpcode(e[9])
}

// state asks for the queue pair's state.
func (q *rawQP) state() verbs.QPState {
	q.r.t.Helper()
	var a control.QPAttr
	q.r.must(control.OpQueryQP, &control.HandleReq{Handle: q.qp.Handle}, &a)
	return verbs.QPState(a.State)
}
