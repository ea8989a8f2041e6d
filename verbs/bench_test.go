package verbs

import "testing"

// BenchmarkSendRing is a send request's way through its ring: put, published,
// fetched, retired.
func BenchmarkSendRing(b *testing.B) {
	c, _ := QPCap{}.WithDefaults()
	mem := NewRingMem(c.MaxSendWR * SendUnits(c.MaxSendSGE, c.MaxInline))
	q, err := NewSendQueue(mem, c)
	r, ok := NewSendRing(mem)
	if err != nil || !ok {
		b.Fatal(err)
	}
	w := SendWR{Opcode: WRSend, SGL: sges(1)}
	var e SendWQE
	var sgl [1]SGE
	b.ReportAllocs()
	for b.Loop() {
		if q.Put(&w) != nil {
			b.Fatal("full")
		}
		q.Publish()
		if more, ok := r.Fetch(&e, sgl[:]); !more || !ok {
			b.Fatal("nothing there")
		}
		r.Retire(&e)
	}
}

// BenchmarkRecvRing is a receive request's.
func BenchmarkRecvRing(b *testing.B) {
	mem := NewRingMem(64 * RecvUnits(1))
	q, err := NewRecvQueue(mem, 64, 1)
	r, ok := NewRecvRing(mem, 1)
	if err != nil || !ok {
		b.Fatal(err)
	}
	w := RecvWR{SGL: sges(1)}
	var sgl [1]SGE
	b.ReportAllocs()
	for b.Loop() {
		if q.Put(&w) != nil {
			b.Fatal("full")
		}
		q.Publish()
		if _, n, ok := r.Fetch(sgl[:]); n != 1 || !ok {
			b.Fatal("nothing there")
		}
	}
}

// BenchmarkCompRing is a completion's.
func BenchmarkCompRing(b *testing.B) {
	mem := NewRingMem(64)
	r, ok := NewCompRing(mem)
	q, err := NewCompQueue(mem)
	if err != nil || !ok {
		b.Fatal(err)
	}
	w := WC{ID: 1}
	var wc [1]WC
	b.ReportAllocs()
	for b.Loop() {
		if !r.Push(&w) || q.Take(wc[:]) != 1 {
			b.Fatal("lost")
		}
	}
}

// BenchmarkPostPoll is a send request's way through a program's calls: posted,
// completed by a device that does nothing else, polled.
func BenchmarkPostPoll(b *testing.B) {
	_, q, cq := open(b, QPConfig{}, StateRTS)
	w := []SendWR{{Opcode: WRSend, Flags: SendSignaled, SGL: sges(1)}}
	var wc [1]WC
	b.ReportAllocs()
	for b.Loop() {
		if _, err := q.PostSend(w); err != nil || cq.Poll(wc[:]) != 1 {
			b.Fatal("lost", err)
		}
	}
}

// BenchmarkPostPollShadowed is that of requests of 4096 octets in a region that the
// device does not see.
func BenchmarkPostPollShadowed(b *testing.B) {
	for name, op := range map[string]WROpcode{"send": WRSend, "read": WRRead} {
		b.Run(name, func(b *testing.B) {
			f, q, cq := open(b, QPConfig{}, StateRTS)
			f.shadows = [][]byte{}
			mr, err := q.pd.RegMR(make([]byte, 4096), AccessLocalWrite)
			if err != nil {
				b.Fatal(err)
			}
			f.bell = func() {
				if more, ok := f.sq.Fetch(&f.wqe, f.sgl[:]); !more || !ok {
					b.Fatal("nothing there")
				}
				f.sq.Retire(&f.wqe)
				f.wc = WC{QPN: q.info.QPN, Opcode: WCRead}
				f.wqe.Name(&f.wc)
				f.cqs[0].Push(&f.wc)
			}
			w := []SendWR{{Opcode: op, Flags: SendSignaled, SGL: []SGE{mr.SGE(0, 4096)}}}
			var wc [1]WC
			b.SetBytes(4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := q.PostSend(w); err != nil || cq.Poll(wc[:]) != 1 {
					b.Fatal("lost", err)
				}
			}
		})
	}
}
