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

// bindable is a region to which windows may be bound, of n octets at 0x900000.
func (s *side) bindable(n int) *mr.Region {
	s.t.Helper()
	g, err := s.mrs.Register(mr.Region{PD: 1, IOVA: 0x900000, Mem: make([]byte, n), Access: verbs.AccessLocalWrite | verbs.AccessMWBind})
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

func (s *side) window(typ verbs.MWType) *mr.Window {
	s.t.Helper()
	w, err := s.mrs.AllocWindow(1, typ)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// bindWR binds all of g to the window whose key is k now.
func bindWR(id uint64, k uint32, g *mr.Region) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{
		Key: k, NewKey: verbs.NextRKey(k), LKey: g.Key, Addr: g.IOVA, Length: uint64(len(g.Mem)), Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
	}}
}

func invWR(id uint64, k uint32) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, Imm: k}
}

// A window of type 2 is that of the queue pair which bound it: on another of the
// same domain peers cannot use it, nor it or they invalidate it (2B). One of type 1
// is anybody's of the domain.
func TestWindowOfAnother(t *testing.T) {
	type turn struct {
		name string
		do   func(r *raw, key uint32)
		done string
		sent string
	}
	write := func(r *raw, key uint32) {
		p := r.packet(bth.RCWriteOnly, 0, bytesOf(8, 1))
		p.VA, p.RKey = 0x900000, key
		r.in(p)
	}
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		for _, c := range []turn{
			{"WRITE", write, "r5 FLUSH", "NAK62 0"},
			{"LOCAL_INV", func(r *raw, key uint32) { r.postWR(invWR(7, key)); r.sent() }, "7 MW_BIND, r5 FLUSH", ""},
			{"SEND with invalidate", func(r *raw, key uint32) {
				p := r.packet(bth.RCSendOnlyInv, 0, bytesOf(4, 1))
				p.Inv = key
				r.in(p)
			}, "r5 REM_INV", "ACK 0"},
		} {
			t.Run(fmt.Sprintf("type %d/%s", typ, c.name), func(t *testing.T) {
				mine, other := newRaw(t, 100), newRaw(t, 100)
				cfg := other.qp.cfg
				cfg.MRs = mine.mrs
				attr := other.qp.Attr()
				other.qp, other.mrs, other.reg = New(cfg), mine.mrs, mine.reg
				other.connect(attr)
				other.postRecv(5, 0, 8)

				g, w := mine.bindable(64), mine.window(typ)
				mine.postWR(bindWR(1, w.Key(), g))
				mine.wantSent("")
				mine.wantDone("1 ok")
				if typ == verbs.MWType1 && c.name == "WRITE" {
					write(other, w.Key())
					other.wantSent("ACK 0")
					return
				}
				c.do(other, w.Key())
				other.wantDone(c.done)
				other.wantSent(c.sent)
				other.wantState(verbs.StateErr)
				write(mine, w.Key())
				mine.wantSent("ACK 0")
			})
		}
	}
}

// A window does not outlive its queue pair in the hands of the next.
func TestWindowOfAnEnded(t *testing.T) {
	r := newRaw(t, 100)
	g, w := r.bindable(64), r.window(verbs.MWType2)
	r.postWR(bindWR(1, w.Key(), g))
	r.wantSent("")
	r.wantDone("1 ok")
	attr := r.qp.Attr()
	r.qp.cfg.SQ.Reset()
	r.sq.Reset()
	r.qp = New(r.qp.cfg) // the same number, domain and memory
	r.connect(attr)
	p := r.packet(bth.RCWriteOnly, 0, bytesOf(8, 1))
	p.VA, p.RKey = g.IOVA, w.Key()
	r.in(p)
	r.wantSent("NAK62 0")
}

// Local operations and what is around them over a network that loses, repeats
// and reorders: each runs once, since a window of type 2 is neither bound nor
// invalidated twice in a row, what the peer does through a window happens while
// it is bound, and completions come in order. B29.
func TestLocalOnce(t *testing.T) {
	for seed := range uint64(150) {
		p := newPair(t, 256, 1<<16, 0xfffff0, func(a, b *verbs.QPAttr) { a.RetryCnt, b.RetryCnt = 7, 7 })
		rng := rand.New(rand.NewPCG(seed, 1))
		p.fate = func(*side, *bth.Packet) (copies, delay int) {
			switch rng.IntN(12) {
			case 0:
				return 0, 0
			case 1:
				return 2, 0
			case 2:
				return 1, rng.IntN(4)
			}
			return 1, 0
		}
		p.take = func(n int) int { return n - rng.IntN(2)*rng.IntN(n+1) }
		g := p.a.bindable(4096)
		wins := []*mr.Window{p.a.window(verbs.MWType2), p.a.window(verbs.MWType2)}
		keys := []uint32{wins[0].Key(), wins[1].Key()}
		bound := []bool{false, false}
		id := uint64(0)
		post := func(w verbs.SendWR) {
			w.ID, w.Flags = id, w.Flags|verbs.SendSignaled
			id++
			if err := p.a.send(w); err != nil {
				t.Fatal(err)
			}
		}
		for range 60 {
			fence := verbs.SendFlags(0)
			if rng.IntN(3) == 0 {
				fence = verbs.SendFence
			}
			i := rng.IntN(2)
			switch k := rng.IntN(7); k {
			case 0, 1, 2:
				w := invWR(0, keys[i])
				if !bound[i] {
					w = bindWR(0, keys[i], g)
					keys[i] = w.Bind.NewKey
				}
				bound[i] = !bound[i]
				w.Flags |= fence
				post(w)
			default:
				n := rng.IntN(900)
				w := verbs.SendWR{Flags: fence, SGL: []verbs.SGE{p.a.sge(0, n)}, RemoteAddr: p.b.reg.IOVA, RKey: p.b.reg.Key}
				w.Opcode = []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRRead, verbs.WRFetchAdd}[k-3]
				switch w.Opcode {
				case verbs.WRSend:
					p.b.recv(verbs.RecvWR{SGL: []verbs.SGE{p.b.sge(0, 1000)}})
				case verbs.WRFetchAdd:
					w.SGL = []verbs.SGE{p.a.sge(0, 8)}
				}
				post(w)
			}
			if rng.IntN(3) == 0 {
				p.pump()
			}
		}
		if !p.run(p.a.want(int(id))) {
			t.Fatalf("seed %d: stuck after %d of %d: %+v", seed, len(p.a.wcs), id, p.a.wcs)
		}
		for i, w := range p.a.wcs {
			if w.ID != uint64(i) || w.Status != verbs.WCSuccess {
				t.Fatalf("seed %d: completion %d: %+v", seed, i, w)
			}
		}
		for i, w := range wins {
			_, why := p.a.qp.mem.Remote(w.Key(), g.IOVA, 4096, verbs.AccessRemoteWrite)
			if w.Key() != keys[i] || (why == trace.None) != bound[i] {
				t.Fatalf("seed %d: window %d has key %#x, not %#x, and %v, bound %v", seed, i, w.Key(), keys[i], why, bound[i])
			}
		}
	}
}

// TestNoAllocationsLocal: binding, invalidating and having invalidated allocate
// nothing.
func TestNoAllocationsLocal(t *testing.T) {
	c := newCarrier(t, 1024)
	g, w := c.a.bindable(4096), c.a.window(verbs.MWType2)
	theirs := c.b.window(verbs.MWType2)
	gb := c.b.bindable(4096)
	recv := &verbs.RecvWR{SGL: []verbs.SGE{c.b.sge(0, 64)}}
	send := &verbs.SendWR{Opcode: verbs.WRSendInv, Flags: verbs.SendSignaled, SGL: []verbs.SGE{c.a.sge(0, 64)}}
	if n := testing.AllocsPerRun(100, func() {
		b := bindWR(1, w.Key(), g)
		c.cycle(&b, nil)
		i := invWR(2, w.Key())
		c.cycle(&i, nil)
		b = bindWR(3, theirs.Key(), gb)
		if err := c.b.send(b); err != nil {
			t.Fatal(err)
		}
		c.move()
		c.b.wcs = c.b.wcs[:0]
		send.Imm = theirs.Key()
		c.cycle(send, recv)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
