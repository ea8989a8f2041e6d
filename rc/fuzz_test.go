package rc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// target is a queue pair that is sent anything. Its region lies in the middle
// of an arena of which nothing else may change, and it has requests
// outstanding, so that responses have something to hit.
type target struct {
	*raw
	arena   []byte
	allowed int // packets that what came in may be answered with
	id      uint64
}

const (
	fence  = 4096 // octets of the arena on either side of the region
	inside = 4096
)

func newTarget(t testing.TB, base uint32) *target {
	x := &target{raw: newRawMem(t, base, 64), arena: make([]byte, inside+2*fence)}
	if err := x.mrs.Deregister(x.reg.Key); err != nil {
		t.Fatal(err)
	}
	fill(x.arena, 1)
	var err error
	if x.reg, err = x.mrs.Register(mr.Region{PD: 1, IOVA: 0x10000, Mem: x.arena[fence : fence+inside], Access: verbs.AccessAll}); err != nil {
		t.Fatal(err)
	}
	x.work()
	return x
}

// work posts requests, and connects anew after an error.
func (x *target) work() {
	if x.qp.State() == verbs.StateErr {
		if err := x.qp.Modify(x.now, &verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState, nil); err != nil {
			x.t.Fatal(err)
		}
		x.sq.Reset()
		x.rq.Reset()
		x.connect(upAttr(x.raw))
	}
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRead, verbs.WRFetchAdd, verbs.WRWrite} {
		n := 700
		if op == verbs.WRFetchAdd {
			n = 8
		}
		x.id++
		if x.send(verbs.SendWR{ID: x.id, Opcode: op, SGL: []verbs.SGE{x.sge(0, n)}, RemoteAddr: 7000, RKey: 77}) != nil {
			break
		}
		if x.rq.Put(&verbs.RecvWR{ID: x.id, SGL: []verbs.SGE{x.sge(100, 300), x.sge(2000, 300)}}) == nil {
			x.rq.Publish()
		}
	}
	x.sent()
	x.allowed = 0
	x.wcs = x.wcs[:0]
}

// hit delivers a packet and takes the answers.
func (x *target) hit(p *bth.Packet) {
	x.allowed += 2 // an ACK and a NAK
	if p.Info().Op == bth.OpReadReq {
		x.allowed += inside / 256
	}
	p.Payload = append([]byte(nil), p.Payload...)
	x.qp.HandlePacket(x.now, p)
	fill(p.Payload, 9) // it was borrowed for the call
	x.drain()
}

func (x *target) drain() {
	x.sent()
	for _, p := range x.pkts {
		if p.Info().Has(bth.Response) {
			x.allowed--
		}
	}
	if x.allowed < 0 {
		x.t.Fatalf("more answers than what came in calls for: %s", x.texts())
	}
	if x.qp.State() == verbs.StateErr || len(x.wcs) > 32 {
		x.work()
	}
}

// intact fails the test if memory outside the region changed.
func (x *target) intact() {
	x.t.Helper()
	want := make([]byte, len(x.arena))
	fill(want, 1)
	for i := range want {
		if (i < fence || i >= fence+inside) && want[i] != x.arena[i] {
			x.t.Fatalf("octet %d of the arena, outside the region, changed", i-fence)
		}
	}
}

// Every opcode at every length from 0 to 64 and around its headers and the
// path MTU, with headers of zeros, of ones and that mean something, at the
// expected PSN, before and behind it: no panic, answers in bounds, memory
// outside the region untouched. B01, B02, B03.
func TestAnyPacket(t *testing.T) {
	x := newTarget(t, 0xfffff0)
	lengths := map[int]bool{}
	for n := range 65 {
		lengths[n] = true
	}
	for op := range 256 {
		h := bth.Opcode(op).Info().HdrLen
		for _, d := range []int{255, 256, 257, 512} {
			lengths[h+d+bth.ICRCLen] = true
		}
		for n := range lengths {
			for k := range 6 {
				b := make([]byte, n)
				for i := range b {
					b[i] = byte(0xff * (k & 1))
				}
				p := bth.Packet{
					Opcode: bth.Opcode(op), PSN: x.qp.resp.epsn.Add(k/2 - 1), AckReq: true, DestQP: 0x11, Pad: uint8(k) & 3,
					VA: x.reg.IOVA + uint64(k*1000), RKey: x.reg.Key, DMALen: uint32(max(0, n-h-bth.ICRCLen)), Syndrome: bth.Syndrome(k * 50),
				}
				if p.Info().Has(bth.Response) {
					p.PSN = x.qp.req.una.Add(k / 2)
				}
				if h > 0 && n >= h {
					if k < 4 {
						p.PutHeaders(b)
					} else {
						p.PutHeaders(make([]byte, h))
						copy(b[:bth.BTHLen], header12(&p))
					}
				} else if n > 0 {
					b[0] = byte(op)
				}
				var got bth.Packet
				if why := bth.Parse(b, &got); why != trace.None {
					if why == trace.DropShort && n >= h+bth.ICRCLen+3 && n >= bth.BTHLen+bth.ICRCLen || !why.IsDrop() {
						t.Fatalf("opcode %#x, %d octets: %v", op, n, why)
					}
					continue
				}
				x.hit(&got)
			}
		}
		for _, d := range []int{255, 256, 257, 512} {
			delete(lengths, h+d+bth.ICRCLen)
		}
	}
	x.intact()
}

// header12 encodes the BTH alone.
func header12(p *bth.Packet) []byte {
	b := make([]byte, p.Info().HdrLen)
	p.PutHeaders(b)
	return b[:bth.BTHLen]
}

// choosePacket makes a packet that is nearly right.
func (x *target) choosePacket(c chooser) bth.Packet {
	op := bth.Opcode(c.IntN(256))
	if c.IntN(4) > 0 {
		op &= 0x1f
	}
	for !op.Valid() {
		op = bth.Opcode(c.IntN(0x15))
	}
	n := []int{0, 1, 4, 8, 44, 255, 257, 512, c.IntN(1200), 256, 256, 256}[c.IntN(12)]
	p := x.packet(op, 0, bytesOf(n, byte(n)))
	p.PSN = x.qp.resp.epsn
	if p.Info().Has(bth.Response) {
		p.PSN = x.qp.req.una
	}
	p.PSN = p.PSN.Add([]int{-1, -2, -9, 1, 2, 9, c.IntN(1 << 24), 0, 0, 0, 0, 0, 0, 0, 0, 0}[c.IntN(16)])
	p.VA += uint64([]int{1, -1, -300, inside - 255, inside, c.IntN(2 * inside), 8, 0, 0, 0}[c.IntN(10)])
	p.DMALen = []uint32{0, 1, 300, 700, inside, inside + 1, 1 << 31, 1<<32 - 1, uint32(n), uint32(n), uint32(n), 600}[c.IntN(12)]
	p.Syndrome = bth.Syndrome([]int{c.IntN(256), 0x60, 0x61, 0x20, 0x1f, 0x1f, 0x1f, 0x1f}[c.IntN(8)])
	p.Orig, p.SwapAdd = uint64(n), 1
	if c.IntN(16) == 0 {
		p.RKey ^= 1 << c.IntN(32)
	}
	if c.IntN(16) == 0 {
		p.Pad = uint8(c.IntN(4))
	}
	p.AckReq = c.IntN(2) > 0
	if !p.Info().Has(bth.HasPayload) && c.IntN(8) > 0 {
		p.Payload, p.Pad = nil, 0
	}
	return p
}

// bombard sends a target n packets of choice; time passes and work is posted.
func bombard(t testing.TB, c chooser, n int) *target {
	x := newTarget(t, 0xfffff0)
	for range n {
		switch c.IntN(12) {
		case 0:
			if d := x.qp.Deadline(); d != never {
				x.now = d
				x.qp.HandleTimer(d)
				x.drain()
			}
		case 1:
			left := x.allowed // work forgets what is still allowed
			x.work()
			x.allowed = left
		default:
			p := x.choosePacket(c)
			x.hit(&p)
		}
	}
	x.intact()
	return x
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
		trace.DropClass, trace.DropDuplicate, trace.DropOutOfOrder, trace.DropResponse, trace.DropGhostAck, trace.DropReservedAck,
		trace.DropLength, trace.FailInvalidReq, trace.FailLocalLen, trace.FailAccess, trace.FailOpcodeSeq, trace.FailReqLength,
		trace.RetryTimeout, trace.RetrySequence, trace.RetryImplied, trace.RetryRNR, trace.NoteDuplicate, trace.DropUnsupported,
	} {
		if seen[r] == 0 {
			t.Errorf("%v never happened", r)
		}
	}
}

// FuzzResponder bombards a queue pair with packets of the fuzzer's choice.
func FuzzResponder(f *testing.F) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 6))
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := schedule(b[:min(len(b), 4096)])
		bombard(t, &s, len(s)/12)
	})
}

// FuzzPair plays duels: octets decide what the two engines are made of, what
// their programs do, and what befalls packets.
func FuzzPair(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(duelMoves(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newDuel(t, b)
		d.play()
		d.finish()
	})
}

// duelMoves are random moves.
func duelMoves(seed uint64) []byte {
	b := make([]byte, 400)
	fill(b, seed)
	return b
}

// TestDuels plays duels of random moves.
func TestDuels(t *testing.T) {
	for seed := range uint64(1500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := newDuel(t, duelMoves(seed))
			d.play()
			d.finish()
		})
	}
}
