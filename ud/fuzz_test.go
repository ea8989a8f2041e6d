package ud

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
)

// target is a queue pair that is sent anything, and whose rings may hold
// anything. Its region lies in the middle of an arena of which nothing else may
// change.
type target struct {
	*raw
	arena []byte
}

const (
	fence  = 2048 // octets of the arena on either side of the region
	inside = 2048
)

func newTarget(t testing.TB) *target {
	x := &target{raw: newRaw(t), arena: enginetest.Bytes(inside+2*fence, 1)}
	x.Reg = x.Region(mr.Region{PD: 1, IOVA: enginetest.Region, Mem: x.arena[fence : fence+inside], Access: verbs.AccessAll})
	return x
}

// tend works again after an error, and posts.
func (x *target) tend(c enginetest.Chooser) {
	switch x.qp.State() {
	case verbs.StateErr:
		x.Modify(verbs.StateReset, 0, verbs.QPAttr{}, nil)
		x.ResetRings()
		x.activate()
	case verbs.StateSQE:
		x.Modify(verbs.StateRTS, 0, verbs.QPAttr{}, nil)
	}
	if w := x.wr(1, uint32(c.IntN(4)), c.IntN(mtu+20)); x.SQ.Put(&w) == nil {
		x.SQ.Publish()
	}
	n := c.IntN(inside)
	if x.RQ.Put(&verbs.RecvWR{SGL: []verbs.SGE{x.SGE(0, n/3), x.SGE(n/3, n-n/3)}}) == nil {
		x.RQ.Publish()
	}
	x.Done = x.Done[:0]
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

// bombard sends a target n packets of choice: each is a completion or a reason.
func bombard(t testing.TB, c enginetest.Chooser, n int) *target {
	x := newTarget(t)
	for range n {
		p := x.datagram(c.IntN(1<<24), []int{c.IntN(1200), c.IntN(64), mtu, mtu + 1}[c.IntN(4)])
		if c.IntN(16) == 0 {
			p.Pad = uint8(c.IntN(4))
		}
		if c.IntN(16) == 0 {
			p.Opcode = bth.Opcode(c.IntN(256))
		}
		if c.IntN(32) == 0 {
			p.GRH = p.GRH[:c.IntN(40)]
		}
		if !p.Opcode.Valid() {
			continue
		}
		before := total(x.qp) + x.qp.Stats().Recvs
		x.In(p)
		if total(x.qp)+x.qp.Stats().Recvs == before {
			t.Fatalf("%+v left no trace", p)
		}
		if c.IntN(2) == 0 {
			x.tend(c)
			x.Sent()
		}
	}
	x.intact()
	return x
}

// scribble writes over rings of which some octets are right, and has the queue
// pair send and receive from them.
func scribble(t testing.TB, c enginetest.Chooser, n int) *target {
	x := newTarget(t)
	for range n {
		x.tend(c)
		for range c.IntN(3) {
			ring := [][]byte{x.SendMem, x.RecvMem}[c.IntN(2)]
			at := []int{c.IntN(len(ring)), 192 + c.IntN(64), 192 + c.IntN(64)}[c.IntN(3)]
			ring[at] = []byte{byte(c.IntN(256)), 0, 1, 0xff, ring[at]}[c.IntN(5)]
		}
		x.QP.Doorbell(0)
		x.Sent()
		x.In(x.datagram(0, 100))
	}
	x.intact()
	return x
}

func TestAnything(t *testing.T) {
	var seen trace.Counts
	add := func(x *target) {
		for i, n := range x.qp.Counts() {
			seen[i] += n
		}
		seen[trace.None] += x.qp.Stats().Recvs
	}
	for seed := range uint64(60) {
		add(bombard(t, rand.New(rand.NewPCG(seed, 7)), 300))
		add(scribble(t, rand.New(rand.NewPCG(seed, 8)), 100))
	}
	for _, r := range []trace.Reason{
		trace.None, trace.DropClass, trace.DropNoRecv, trace.DropTooLong, trace.DropLength, trace.FailLocalQPOp, trace.FailLocalProt, trace.FailFlushed,
	} {
		if seen[r] == 0 {
			t.Errorf("%v never happened", r)
		}
	}
}

// FuzzPackets bombards a queue pair with packets of the fuzzer's choice.
func FuzzPackets(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(enginetest.Bytes(300, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := enginetest.Schedule(b[:min(len(b), 2048)])
		bombard(t, &s, len(s)/6)
	})
}

// FuzzRings has a queue pair work on rings of the fuzzer's choice.
func FuzzRings(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(enginetest.Bytes(300, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := enginetest.Schedule(b[:min(len(b), 2048)])
		scribble(t, &s, len(s)/10)
	})
}
