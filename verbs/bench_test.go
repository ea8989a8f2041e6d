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
