package ud

import (
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// carrier moves datagrams from one queue pair to another without an allocation
// and without sealing them.
type carrier struct {
	a, b  *raw
	buf   []byte
	grh   [GRHLen]byte
	pkt   bth.Packet
	burst *wire.Burst
}

func newCarrier(t testing.TB, change func(c *Config)) *carrier {
	c := &carrier{a: newRaw(t), b: newRaw(t, change), buf: make([]byte, 0, 8192), burst: wire.NewBurst()}
	for _, r := range []*raw{c.a, c.b} {
		r.Done = make([]verbs.WC, 0, 64)
	}
	return c
}

// cycle posts four datagrams and carries them.
func (c *carrier) cycle(w *verbs.SendWR, r *verbs.RecvWR) {
	for range 4 {
		_ = c.a.SQ.Put(w)
		if r != nil {
			_ = c.b.RQ.Put(r)
		}
	}
	c.a.SQ.Publish()
	c.b.RQ.Publish()
	for {
		c.burst.Reset(nil, 0, 0)
		if !c.a.qp.Fill(0, c.burst) {
			break
		}
		for k := range c.burst.Segs {
			c.buf = c.burst.AppendSegment(c.buf[:0], k)
			if why := bth.Parse(c.buf, &c.pkt); why != trace.None {
				c.a.T.Fatal(why)
			}
			c.pkt.GRH = c.grh[:]
			c.b.qp.HandlePacket(0, &c.pkt)
		}
		c.a.qp.Sent(c.burst, c.burst.Len())
	}
	if r != nil && len(c.b.Done) != 4 || len(c.a.Done) != 4 {
		c.a.T.Fatalf("%+v %+v", c.a.Done, c.b.Done)
	}
	c.a.Done, c.b.Done = c.a.Done[:0], c.b.Done[:0]
}

// TestNoAllocations: nothing is allocated per datagram, on either side, also
// when they find no receive request or are too long to be sent.
func TestNoAllocations(t *testing.T) {
	for name, change := range map[string]func(*Config){"own": func(*Config) {}, "shared": withSharedQueue} {
		for _, n := range []int{0, 64, mtu, mtu + 1} {
			for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendImm} {
				t.Run(fmt.Sprintf("%s/%v/%d", name, op, n), func(t *testing.T) {
					c := newCarrier(t, change)
					w, r := c.a.wr(1, 1, n), &verbs.RecvWR{SGL: []verbs.SGE{c.b.SGE(0, 50), c.b.SGE(100, 900)}}
					if w.Opcode = op; n > mtu {
						r = nil
					}
					if a := testing.AllocsPerRun(50, func() { c.cycle(&w, r) }); a != 0 {
						t.Errorf("%v allocations", a)
					}
				})
			}
		}
	}
	t.Run("no receive request", func(t *testing.T) {
		c := newCarrier(t, func(*Config) {})
		w := c.a.wr(1, 1, 64)
		if a := testing.AllocsPerRun(50, func() { c.cycle(&w, nil) }); a != 0 {
			t.Errorf("%v allocations", a)
		}
		if c.b.qp.Counts()[trace.DropNoRecv] == 0 {
			t.Error("nothing was dropped")
		}
	})
}

// BenchmarkPair is the cost of both engines for a datagram, without ICRC and
// link.
func BenchmarkPair(b *testing.B) {
	for _, n := range []int{64, mtu} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCarrier(b, func(*Config) {})
			w, r := c.a.wr(1, 1, n), &verbs.RecvWR{SGL: []verbs.SGE{c.b.SGE(0, 1000)}}
			b.SetBytes(int64(4 * n))
			b.ReportAllocs()
			for b.Loop() {
				c.cycle(&w, r)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4, "ns/datagram")
		})
	}
}
