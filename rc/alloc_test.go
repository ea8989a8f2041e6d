package rc

import (
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// carrier moves packets between the sides of a pair without an allocation and
// without sealing them.
type carrier struct {
	*pair
	buf    []byte
	pkt    bth.Packet
	burst  *wire.Burst
	bursts int
	moved  int
}

func newCarrier(t testing.TB, mtu verbs.MTU) *carrier {
	p := newPair(t, mtu, 2<<20, 0xfffff0)
	for _, s := range []*side{p.a, p.b} {
		s.wcs = make([]verbs.WC, 0, 1024)
	}
	return &carrier{pair: p, buf: make([]byte, 0, 8192), burst: wire.NewBurst()}
}

// move carries everything there is to carry.
func (c *carrier) move() {
	for busy := true; busy; {
		busy = false
		for i, s := range [...]*side{c.a, c.b} {
			to := [...]*side{c.b, c.a}[i]
			c.burst.Reset(nil, 0, 0)
			if !s.qp.Fill(c.now, c.burst) {
				continue
			}
			busy = true
			c.bursts++
			for k := range c.burst.Segs {
				c.buf = c.burst.AppendSegment(c.buf[:0], k)
				if why := bth.Parse(c.buf, &c.pkt); why != trace.None {
					c.t.Fatal(why)
				}
				to.qp.HandlePacket(c.now, &c.pkt)
				c.moved++
			}
		}
	}
}

// cycle posts one request of each kind of w and sees it done.
func (c *carrier) cycle(w *verbs.SendWR, r *verbs.RecvWR) {
	if r != nil {
		c.b.recv(*r)
	}
	if err := c.a.send(*w); err != nil {
		c.t.Fatal(err)
	}
	c.move()
	if len(c.a.wcs) != 1 || c.a.wcs[0].Status != verbs.WCSuccess || r != nil && len(c.b.wcs) != 1 {
		c.t.Fatalf("%+v %+v", c.a.wcs, c.b.wcs)
	}
	c.a.wcs, c.b.wcs = c.a.wcs[:0], c.b.wcs[:0]
}

// requests are one of each operation, n octets long in two pieces.
func (c *carrier) requests(n int) map[string]*verbs.SendWR {
	m := map[string]*verbs.SendWR{}
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendImm, verbs.WRWrite, verbs.WRWriteImm, verbs.WRRead, verbs.WRFetchAdd, verbs.WRCmpSwap} {
		w := &verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, RemoteAddr: c.b.reg.IOVA, RKey: c.b.reg.Key}
		w.SGL = []verbs.SGE{c.a.sge(0, n/3), c.a.sge(n, n-n/3)}
		if op == verbs.WRFetchAdd || op == verbs.WRCmpSwap {
			w.SGL = []verbs.SGE{c.a.sge(64, 8)}
		}
		m[op.String()] = w
	}
	m["inline"] = &verbs.SendWR{Opcode: verbs.WRWrite, Flags: verbs.SendSignaled | verbs.SendInline, Inline: make([]byte, min(n, 64)), RemoteAddr: c.b.reg.IOVA, RKey: c.b.reg.Key}
	return m
}

// Nothing is allocated per packet or per request, on either side, also when
// packets are lost and everything is sent again.
func TestNoAllocations(t *testing.T) {
	for _, n := range []int{0, 64, 100000} {
		c := newCarrier(t, 1024)
		recv := &verbs.RecvWR{SGL: []verbs.SGE{c.b.sge(0, 50000), c.b.sge(60000, 60000)}}
		for name, w := range c.requests(n) {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				r := recv
				switch w.Opcode {
				case verbs.WRWrite, verbs.WRRead, verbs.WRFetchAdd, verbs.WRCmpSwap:
					r = nil
				}
				if a := testing.AllocsPerRun(20, func() { c.cycle(w, r) }); a != 0 {
					t.Errorf("%v allocations", a)
				}
			})
		}
	}
	t.Run("loss", func(t *testing.T) {
		c := newCarrier(t, 1024)
		w := c.requests(50000)["RDMA_READ"]
		if a := testing.AllocsPerRun(20, func() {
			if err := c.a.send(*w); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				c.burst.Reset(nil, 0, 0)
				c.a.qp.Fill(c.now, c.burst) // lost
				c.now = c.a.qp.Deadline()
				c.a.qp.HandleTimer(c.now)
			}
			c.move()
			c.a.wcs = c.a.wcs[:0]
		}); a != 0 {
			t.Errorf("%v allocations", a)
		}
	})
}

// The cost of both engines for a packet, its ACKs and completions included:
// resolving keys, building headers, checking, one copy out of the burst (in
// the place of a link) and one into the region. No ICRC, no link.
func BenchmarkPair(b *testing.B) {
	for _, x := range []struct {
		name string
		op   string
		mtu  verbs.MTU
		n    int
	}{{"WRITE-1MiB-4096", "RDMA_WRITE", 4096, 1 << 20}, {"READ-1MiB-4096", "RDMA_READ", 4096, 1 << 20}, {"WRITE-1MiB-1024", "RDMA_WRITE", 1024, 1 << 20}, {"SEND-64", "SEND", 4096, 64}, {"FetchAdd", "ATOMIC_FETCH_AND_ADD", 4096, 8}} {
		b.Run(x.name, func(b *testing.B) {
			c := newCarrier(b, x.mtu)
			w := c.requests(x.n)[x.op]
			if w.Opcode == verbs.WRWrite || w.Opcode == verbs.WRRead {
				w.SGL = []verbs.SGE{c.a.sge(0, x.n)}
			}
			var r *verbs.RecvWR
			if w.Opcode == verbs.WRSend {
				r = &verbs.RecvWR{SGL: []verbs.SGE{c.b.sge(0, 4096)}}
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
