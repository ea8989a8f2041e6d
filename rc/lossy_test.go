package rc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// chooser decides a lossy run: a random source, or the octets of a fuzzer.
type chooser interface {
	// IntN returns a number below n; n-1 is always the uneventful choice.
	IntN(n int) int
}

// schedule chooses by octets, and the uneventful once they are used up.
type schedule []byte

func (s *schedule) IntN(n int) int {
	v := 0
	for k := 1; k < n; k *= 256 {
		if len(*s) == 0 {
			return n - 1
		}
		v = v<<8 | int((*s)[0])
		*s = (*s)[1:]
	}
	return v % n
}

// lossy is a run of mixed operations over a wire that loses, repeats and
// reorders, and links that take less than they are offered.
type lossy struct {
	*pair
	c       chooser
	loss    int // in 200
	ops     []verbs.SendWR
	checks  []func() bool // for each operation: is its effect there?
	recvs   []verbs.RecvWR
	posted  int // of recvs
	adds    int
	drops   int
	written int
}

const (
	lossyMem    = 1 << 19
	lossySource = 1 << 16 // below it neither side's memory changes
)

func newLossy(t testing.TB, c chooser) *lossy {
	l := &lossy{c: c, written: lossySource + 64}
	mtu := []verbs.MTU{4096, 1024, 256}[c.IntN(3)]
	depth := []int{1, 2, 4, 16}[c.IntN(4)]
	psn := 0xffffff - uint32(c.IntN(256))
	l.loss = []int{20, 10, 2, 0}[c.IntN(4)]
	l.pair = newPair(t, mtu, lossyMem, psn, func(a, b *verbs.QPAttr) {
		a.MaxRdAtomic, b.MaxDestRdAtomic = depth, depth
		b.MinRNRTimer = 1
	})
	fill(l.a.mem[:lossySource], 3)
	fill(l.b.mem[:lossySource], 4)
	l.fate = func(_ *side, _ *bth.Packet) (int, int) {
		switch f := c.IntN(200); {
		case f < l.loss:
			l.drops++
			return 0, 0
		case f < l.loss+4:
			return 2, c.IntN(4)
		case f < l.loss+10:
			return 1, c.IntN(8)
		}
		return 1, 0
	}
	l.take = func(n int) int {
		if c.IntN(8) != 0 {
			return n
		}
		return c.IntN(n + 1)
	}
	l.tick = l.postRecvs
	return l
}

// postRecvs posts the receive requests that were held back.
func (l *lossy) postRecvs() {
	for ; l.posted < len(l.recvs); l.posted++ {
		l.b.recv(l.recvs[l.posted])
	}
}

// add makes one operation of a random kind and length.
func (l *lossy) add() {
	n := l.c.IntN(20000)
	if l.c.IntN(3) == 0 {
		n = l.c.IntN(600)
	}
	src := l.c.IntN(lossySource - n)
	w := verbs.SendWR{
		ID: uint64(len(l.ops)), Flags: verbs.SendSignaled, RKey: l.b.reg.Key, Imm: uint32(n),
		SGL: []verbs.SGE{l.a.sge(src, n/2), l.a.sge(src+n/2, n-n/2)},
	}
	if l.c.IntN(4) == 0 {
		w.Flags |= verbs.SendFence
	}
	at := l.written
	w.RemoteAddr = l.b.reg.IOVA + uint64(at)
	moved := func() bool { return bytes.Equal(l.b.mem[at:at+n], l.a.mem[src:src+n]) }
	switch l.c.IntN(6) {
	case 0:
		w.Opcode = verbs.WRSendImm
		l.recvs = append(l.recvs, verbs.RecvWR{ID: uint64(n), SGL: []verbs.SGE{l.b.sge(at, n/3), l.b.sge(at+n/3, n-n/3)}})
		l.written += n
	case 1:
		w.Opcode = verbs.WRSend
		if w.Flags |= verbs.SendInline; n > 256 {
			n = 256
		}
		w.Inline = append([]byte{}, l.a.mem[src:src+n]...)
		l.recvs = append(l.recvs, verbs.RecvWR{ID: uint64(n), SGL: []verbs.SGE{l.b.sge(at, n)}})
		l.written += n
	case 2:
		w.Opcode = verbs.WRWriteImm
		l.recvs = append(l.recvs, verbs.RecvWR{ID: uint64(n)})
		l.written += n
	case 3:
		w.Opcode = verbs.WRRead
		w.RemoteAddr = l.b.reg.IOVA + uint64(src)
		w.SGL = []verbs.SGE{l.a.sge(at, n/4), l.a.sge(at+n/4, n-n/4)}
		moved = func() bool { return bytes.Equal(l.a.mem[at:at+n], l.b.mem[src:src+n]) }
		l.written += n
	case 4:
		w.Opcode, w.CompareAdd, w.RemoteAddr = verbs.WRFetchAdd, 1, l.b.reg.IOVA+lossySource
		result := lossyMem - 8 - 8*l.adds
		w.SGL = []verbs.SGE{l.a.sge(result, 8)}
		nth := uint64(l.adds)
		moved = func() bool { return binary.NativeEndian.Uint64(l.a.mem[result:]) == nth }
		l.adds++
	default:
		w.Opcode = verbs.WRWrite
		l.written += n
	}
	if l.c.IntN(2) == 0 {
		l.postRecvs()
	}
	l.ops = append(l.ops, w)
	l.checks = append(l.checks, moved)
	if err := l.a.send(w); err != nil {
		l.t.Fatal(err)
	}
}

// verify: every request completes once, in order; a successful one did what it
// says, once; only lost packets may end the connection, and then with the
// status for that, and flushes behind it. What was written lies where it
// belongs and nowhere else.
func (l *lossy) verify() error {
	done := 0
	for i, w := range l.a.wcs {
		switch {
		case w.ID != uint64(i):
			return fmt.Errorf("completion %d is of request %d", i, w.ID)
		case w.Status == verbs.WCSuccess && done == i:
			done++
		case w.Status == verbs.WCRetryExcErr && done == i && l.drops > 7:
		case w.Status == verbs.WCWRFlushErr && done < i:
		default:
			return fmt.Errorf("completion %d: %+v", i, w)
		}
	}
	takes := 0
	for i := range done {
		if !l.checks[i]() {
			return fmt.Errorf("request %d, %v: the data differ", i, l.ops[i].Opcode)
		}
		switch l.ops[i].Opcode {
		case verbs.WRSend, verbs.WRSendImm, verbs.WRWriteImm:
			takes++
		}
	}
	if n := len(l.b.wcs); n < takes || n > len(l.recvs) || done == len(l.ops) && n != takes {
		return fmt.Errorf("%d receive completions for %d", n, takes)
	}
	for i, w := range l.b.wcs {
		if w.Status != verbs.WCSuccess || int(w.ID) != int(w.ByteLen) || w.ByteLen != uint32(l.recvs[i].ID) {
			return fmt.Errorf("receive completion %d: %+v", i, w)
		}
	}
	if v := binary.NativeEndian.Uint64(l.b.mem[lossySource:]); done == len(l.ops) && v != uint64(l.adds) {
		return fmt.Errorf("%d additions were made of %d", v, l.adds)
	}
	want := make([]byte, lossySource)
	for _, s := range []*side{l.a, l.b} {
		if fill(want, map[*side]uint64{l.a: 3, l.b: 4}[s]); !bytes.Equal(want, s.mem[:lossySource]) {
			return fmt.Errorf("%s: memory that nobody writes changed", s.name)
		}
	}
	for i, v := range l.b.mem[l.written:] {
		if v != 0 {
			return fmt.Errorf("octet %d beyond everything written is %d", i, v)
		}
	}
	return nil
}

func (l *lossy) play(n int) error {
	for range n {
		if l.written+20000 > lossyMem-8*64 {
			break
		}
		l.add()
		if l.c.IntN(4) == 0 {
			l.pump()
		}
	}
	l.postRecvs()
	l.run(l.a.want(len(l.ops)))
	if len(l.a.wcs) != len(l.ops) {
		return fmt.Errorf("%d completions of %d", len(l.a.wcs), len(l.ops))
	}
	l.pump()
	return l.verify()
}

func TestLossy(t *testing.T) {
	var seen trace.Counts
	for seed := range uint64(250) {
		l := newLossy(t, rand.New(rand.NewPCG(seed, 99)))
		if err := l.play(40); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range seen {
			seen[i] += l.a.qp.Counts()[i] + l.b.qp.Counts()[i]
		}
	}
	// The runs were worth something.
	for _, r := range []trace.Reason{
		trace.RetryTimeout, trace.RetrySequence, trace.RetryImplied, trace.RetryRNR, trace.RetryLink, trace.NoteSequenceNAK, trace.NoteRNRNAK,
		trace.NoteDuplicate, trace.DropOutOfOrder, trace.DropGhostAck, trace.DropResponse,
	} {
		if seen[r] == 0 {
			t.Errorf("%v never happened", r)
		}
	}
}

// FuzzLossy plays schedules: octets decide operations, loss, repetition,
// reordering and short sends.
func FuzzLossy(f *testing.F) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 5))
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := schedule(b[:min(len(b), 4096)])
		l := newLossy(t, &s)
		if err := l.play(1 + s.IntN(20)); err != nil {
			t.Fatal(err)
		}
	})
}
