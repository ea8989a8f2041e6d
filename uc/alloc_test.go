package uc

import (
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// carrier moves packets from one queue pair to another without an allocation
// and without sealing them.
type carrier struct {
	a, b  *raw
	buf   []byte
	pkt   bth.Packet
	burst *wire.Burst
	moved int
}

func newCarrier(t testing.TB, mtu verbs.MTU) *carrier {
	c := &carrier{buf: make([]byte, 0, 8192), burst: wire.NewBurst()}
	c.a, c.b = unconnected(t, 0x11, 2<<20, verbs.QPCap{}, nil), unconnected(t, 0x12, 2<<20, verbs.QPCap{}, nil)
	c.a.connect(attr(mtu, 0x12, 0xfffff0, 5))
	c.b.connect(attr(mtu, 0x11, 5, 0xfffff0))
	for _, r := range []*raw{c.a, c.b} {
		r.Done = make([]verbs.WC, 0, 64)
	}
	return c
}

// move carries everything there is to carry, but what loses says.
func (c *carrier) move(loses func(p *bth.Packet) bool) {
	for {
		c.burst.Reset(nil, 0, 0)
		if !c.a.qp.Fill(0, c.burst) {
			return
		}
		for k := range c.burst.Segs {
			c.buf = c.burst.AppendSegment(c.buf[:0], k)
			if why := bth.Parse(c.buf, &c.pkt); why != trace.None {
				c.a.T.Fatal(why)
			}
			if loses == nil || !loses(&c.pkt) {
				c.b.qp.HandlePacket(0, &c.pkt)
			}
			c.moved++
		}
		c.a.qp.Sent(c.burst, c.burst.Len())
	}
}

func (c *carrier) post(w *verbs.SendWR, r *verbs.RecvWR) {
	if r != nil {
		_ = c.b.RQ.Put(r)
		c.b.RQ.Publish()
	}
	_ = c.a.SQ.Put(w)
	c.a.SQ.Publish()
}

// cycle posts a request and sees it done.
func (c *carrier) cycle(w *verbs.SendWR, r *verbs.RecvWR) {
	c.post(w, r)
	c.move(nil)
	if len(c.a.Done) != 1 || c.a.Done[0].Status != verbs.WCSuccess || r != nil && (len(c.b.Done) != 1 || c.b.Done[0].Status != verbs.WCSuccess) {
		c.a.T.Fatalf("%+v %+v", c.a.Done, c.b.Done)
	}
	c.a.Done, c.b.Done = c.a.Done[:0], c.b.Done[:0]
}

func (c *carrier) request(op verbs.WROpcode, n int) *verbs.SendWR {
	return &verbs.SendWR{
		Opcode: op, Flags: verbs.SendSignaled, RemoteAddr: c.b.Reg.IOVA, RKey: c.b.Reg.Key,
		SGL: []verbs.SGE{c.a.SGE(0, n/3), c.a.SGE(n, n-n/3)},
	}
}

// TestNoAllocations: nothing is allocated per packet or per request, on either
// side, also when packets are lost and requests fail.
func TestNoAllocations(t *testing.T) {
	for _, n := range []int{0, 64, 100000} {
		c := newCarrier(t, 1024)
		recv := &verbs.RecvWR{SGL: []verbs.SGE{c.b.SGE(0, 50000), c.b.SGE(60000, 60000)}}
		for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendImm, verbs.WRWrite, verbs.WRWriteImm} {
			w, r := c.request(op, n), recv
			if op == verbs.WRWrite {
				r = nil
			}
			t.Run(fmt.Sprintf("%v/%d", op, n), func(t *testing.T) {
				if a := testing.AllocsPerRun(20, func() { c.cycle(w, r) }); a != 0 {
					t.Errorf("%v allocations", a)
				}
			})
		}
	}
	t.Run("loss", func(t *testing.T) {
		c := newCarrier(t, 1024)
		w := c.request(verbs.WRSend, 50000)
		r := &verbs.RecvWR{SGL: []verbs.SGE{c.b.SGE(0, 60000)}}
		third := func(p *bth.Packet) bool { return p.PSN.Uint32()%7 == 3 }
		if a := testing.AllocsPerRun(20, func() {
			c.post(w, r)
			c.move(third)
			c.a.Done, c.b.Done = c.a.Done[:0], c.b.Done[:0]
		}); a != 0 {
			t.Errorf("%v allocations", a)
		}
		if c.b.qp.Stats().Lost == 0 {
			t.Error("nothing was lost")
		}
	})
	t.Run("errors", func(t *testing.T) {
		c := newCarrier(t, 1024)
		bad := verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Length: 5}}}
		if n := testing.AllocsPerRun(20, func() {
			c.post(&bad, nil)
			c.move(nil)
			c.a.Done = c.a.Done[:0]
			if c.a.qp.State() != verbs.StateSQE {
				t.Fatal(c.a.qp.State())
			}
			c.a.qp.Enter(0, verbs.StateRTS)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// BenchmarkPair is the cost of both engines for a packet, without ICRC and
// link.
func BenchmarkPair(b *testing.B) {
	for _, x := range []struct {
		name string
		op   verbs.WROpcode
		mtu  verbs.MTU
		n    int
	}{{"WRITE-1MiB-4096", verbs.WRWrite, 4096, 1 << 20}, {"SEND-1MiB-1024", verbs.WRSend, 1024, 1 << 20}, {"SEND-64", verbs.WRSend, 4096, 64}} {
		b.Run(x.name, func(b *testing.B) {
			c := newCarrier(b, x.mtu)
			w := c.request(x.op, x.n)
			w.SGL = []verbs.SGE{c.a.SGE(0, x.n)}
			var r *verbs.RecvWR
			if x.op == verbs.WRSend {
				r = &verbs.RecvWR{SGL: []verbs.SGE{c.b.SGE(0, 1<<20)}}
			}
			b.SetBytes(int64(x.n))
			b.ReportAllocs()
			for b.Loop() {
				c.cycle(w, r)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(c.moved), "ns/pkt")
		})
	}
}
