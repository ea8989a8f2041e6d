package uc

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// target is a queue pair that is sent anything, and whose rings may hold
// anything. Its region lies in the middle of an arena of which nothing else may
// change.
type target struct {
	*raw
	arena []byte
	id    uint64
}

const (
	fence  = 4096 // octets of the arena on either side of the region
	inside = 4096
)

func newTarget(t testing.TB, base uint32) *target {
	r := unconnected(t, 0x11, 64, verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxInline: 64}, nil)
	x := &target{raw: r, arena: enginetest.Bytes(inside+2*fence, 1)}
	x.Reg = x.Region(mr.Region{PD: 1, IOVA: enginetest.Region, Mem: x.arena[fence : fence+inside], Access: verbs.AccessAll})
	x.Base = bth.MakePSN(base)
	x.connect(attr(256, 0x12, base, base))
	return x
}

// tend connects anew after an error, and posts receives.
func (x *target) tend() {
	x.Done = x.Done[:0]
	switch x.qp.State() {
	case verbs.StateErr:
		x.Modify(verbs.StateReset, 0, verbs.QPAttr{}, nil)
		x.ResetRings()
		x.connect(attr(256, 0x12, x.Base.Uint32(), x.Base.Uint32()))
	case verbs.StateSQE:
		x.Modify(verbs.StateRTS, 0, verbs.QPAttr{}, nil)
	}
	for range 3 {
		x.id++
		if x.RQ.Put(&verbs.RecvWR{ID: x.id, SGL: []verbs.SGE{x.SGE(100, 100), x.SGE(2000, 200)}}) == nil {
			x.RQ.Publish()
		}
	}
}

// choosePacket makes a packet that is nearly right.
func (x *target) choosePacket(c enginetest.Chooser) bth.Packet {
	op := bth.Opcode(c.IntN(256))
	if c.IntN(8) > 0 {
		op = sendFirst | bth.Opcode(c.IntN(int(bth.RCWriteOnlyImm)+1))
	}
	if !op.Valid() {
		op = sendOnly
	}
	n := []int{0, 1, 4, 8, 44, 255, 257, 512, c.IntN(1200), 256, 256, 256}[c.IntN(12)]
	p := x.packet(op, 0, n)
	p.PSN = x.qp.resp.epsn.Add([]int{-1, -2, -late, -late - 1, 1, 2, 9, c.IntN(1 << 24), 0, 0, 0, 0, 0, 0, 0, 0}[c.IntN(16)])
	p.VA += uint64([]int{1, -1, -300, inside - 255, inside, c.IntN(2 * inside), 8, 0, 0, 0}[c.IntN(10)])
	p.DMALen = []uint32{0, 1, 300, 700, inside, inside + 1, 1 << 31, 1<<32 - 1, uint32(n), uint32(n), uint32(n), 600}[c.IntN(12)]
	if c.IntN(16) == 0 {
		p.RKey ^= 1 << c.IntN(32)
	}
	if c.IntN(16) == 0 {
		p.Pad = uint8(c.IntN(4))
	}
	if !p.Info().Has(bth.HasPayload) {
		p.Payload, p.Pad = nil, 0
	}
	return p
}

// bombard sends a target n packets of choice.
func bombard(t testing.TB, c enginetest.Chooser, n int) *target {
	x := newTarget(t, 0xfffff0)
	x.tend()
	b := wire.NewBurst()
	for range n {
		p := x.choosePacket(c)
		before := total(x.qp) + x.qp.Stats().Recvs
		x.In(p)
		if x.qp.Fill(0, b) {
			t.Fatalf("%v was answered", p.Opcode)
		}
		if len(x.Done) > 1 && x.qp.State() != verbs.StateErr {
			t.Fatalf("%v completed %d receives", p.Opcode, len(x.Done))
		}
		// In the middle of a message nothing shows; otherwise there is a reason
		// or a completion, but for a WRITE without immediate data.
		if total(x.qp)+x.qp.Stats().Recvs == before && x.qp.resp.op == bth.OpNone && p.Info().Op != bth.OpWrite {
			t.Fatalf("%+v left no trace", p)
		}
		if c.IntN(12) == 0 || x.qp.State() == verbs.StateErr {
			x.tend()
		}
		x.Done = x.Done[:0]
	}
	x.intact()
	return x
}

func total(q *QP) (n uint64) {
	for _, v := range q.Counts() {
		n += v
	}
	return n
}

// intact fails the test if memory outside the region changed.
func (x *target) intact() {
	x.T.Helper()
	want := enginetest.Bytes(len(x.arena), 1)
	if !bytes.Equal(x.arena[:fence], want[:fence]) || !bytes.Equal(x.arena[fence+inside:], want[fence+inside:]) {
		x.T.Fatal("memory outside the region changed")
	}
}

func TestAnySequence(t *testing.T) {
	var seen trace.Counts
	for seed := range uint64(60) {
		x := bombard(t, rand.New(rand.NewPCG(seed, 7)), 300)
		for i, n := range x.qp.Counts() {
			seen[i] += n
		}
	}
	for _, r := range []trace.Reason{
		trace.DropClass, trace.DropDuplicate, trace.DropOutOfOrder, trace.DropMessage, trace.DropNoRecv, trace.DropTooLong,
		trace.FailAccess, trace.FailReqLength, trace.FailOpcodeSeq,
	} {
		if seen[r] == 0 {
			t.Errorf("%v never happened", r)
		}
	}
}

// FuzzResponder bombards a queue pair with packets of the fuzzer's choice.
func FuzzResponder(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(enginetest.Bytes(600, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := enginetest.Schedule(b[:min(len(b), 4096)])
		bombard(t, &s, len(s)/12)
	})
}

// scribble writes over rings of which some octets are right, and has the queue
// pair send and receive from them.
func scribble(t testing.TB, c enginetest.Chooser, n int) *target {
	x := newTarget(t, 0xfffff0)
	x.tend()
	for range n {
		if x.SQ.Put(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{x.SGE(0, 300), x.SGE(7, 0)}}) == nil {
			x.SQ.Publish()
		}
		for range c.IntN(3) {
			ring := [][]byte{x.SendMem, x.RecvMem}[c.IntN(2)]
			at := []int{c.IntN(len(ring)), 192 + c.IntN(64), 192 + c.IntN(64)}[c.IntN(3)]
			ring[at] = []byte{byte(c.IntN(256)), 0, 1, 0xff, ring[at]}[c.IntN(5)]
		}
		x.QP.Doorbell(0)
		x.Sent()
		x.In(x.packet(sendOnly, x.qp.resp.epsn.Diff(x.Base), 100))
		if c.IntN(4) == 0 || x.qp.State() == verbs.StateErr || x.qp.State() == verbs.StateSQE {
			x.tend()
		}
		x.Done = x.Done[:0]
	}
	x.intact()
	return x
}

func TestAnyRing(t *testing.T) {
	var seen trace.Counts
	for seed := range uint64(100) {
		x := scribble(t, rand.New(rand.NewPCG(seed, 8)), 100)
		for i, n := range x.qp.Counts() {
			seen[i] += n
		}
	}
	for _, r := range []trace.Reason{trace.FailLocalQPOp, trace.FailLocalProt, trace.FailFlushed} {
		if seen[r] == 0 {
			t.Errorf("%v never happened", r)
		}
	}
}

// FuzzRings has a queue pair work on rings of the fuzzer's choice.
func FuzzRings(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(enginetest.Bytes(300, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := enginetest.Schedule(b[:min(len(b), 2048)])
		scribble(t, &s, len(s)/8)
	})
}
