package wire

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// middles fills a burst with the middle packets of a long WRITE, and returns it and
// what a socket would give of it.
func middles(pay, segs int) (*Burst, *Datagram) {
	f := &Flow{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), SrcPort: 0xc000, TTL: 64}
	b := NewBurst()
	b.Reset(f, 0, 0)
	data := make([]byte, pay)
	for i := range segs {
		bth.PutBTH(b.Begin(bth.MakePSN(uint32(i)), bth.RCWriteMiddle, bth.BTHLen, pay), bth.RCWriteMiddle, 0, false, false, 77, bth.MakePSN(uint32(i)))
		b.Ref(data)
		b.End()
	}
	b.Seal(IDCount)
	d := &Datagram{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, TTL: 64, SegLen: b.SegLen()}
	for i := range segs {
		d.Payload = b.AppendSegment(d.Payload, i)
	}
	return b, d
}

// The shapes of a super-packet: of path MTU 4096, of 1024, of small messages.
var shapes = []struct{ pay, segs int }{{4096, 15}, {1024, 62}, {64, 128}}

// BenchmarkFill is gathering a super-packet: headers into scratch, payload by
// reference. Times are of a packet.
func BenchmarkFill(b *testing.B) {
	for _, s := range shapes {
		b.Run(strconv.Itoa(s.pay), func(b *testing.B) {
			w, _ := middles(s.pay, s.segs)
			f, data := w.Flow, make([]byte, s.pay)
			b.ReportAllocs()
			for b.Loop() {
				w.Reset(f, 0, 0)
				for range s.segs {
					w.Begin(bth.PSN{}, bth.RCWriteMiddle, bth.BTHLen, s.pay)
					w.Ref(data)
					w.End()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*s.segs), "ns/pkt")
		})
	}
}

// BenchmarkSeal is the ICRC of a super-packet to be sent.
func BenchmarkSeal(b *testing.B) {
	for _, s := range shapes {
		b.Run(strconv.Itoa(s.pay), func(b *testing.B) {
			w, _ := middles(s.pay, s.segs)
			b.SetBytes(int64(w.Bytes()))
			b.ReportAllocs()
			for b.Loop() {
				w.Seal(IDCount)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*s.segs), "ns/pkt")
		})
	}
}

// BenchmarkVerify is the check of one that was received: as a merged run, and as
// single datagrams whose identification is to be solved for.
func BenchmarkVerify(b *testing.B) {
	for _, s := range shapes {
		_, d := middles(s.pay, s.segs)
		singles := make([]Datagram, s.segs)
		for i := range singles {
			singles[i] = *d
			singles[i].SegLen, singles[i].Payload = 0, d.Segment(i)
		}
		check := func(b *testing.B, examine func(v *Verifier, i int) trace.Reason) {
			v := NewVerifier()
			b.SetBytes(int64(len(d.Payload)))
			b.ReportAllocs()
			for b.Loop() {
				for i := range s.segs {
					if r := examine(v, i); r != trace.None {
						b.Fatal(r)
					}
					v.Confirm()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*s.segs), "ns/pkt")
		}
		b.Run(strconv.Itoa(s.pay)+"/merged", func(b *testing.B) {
			check(b, func(v *Verifier, i int) trace.Reason { return v.Examine(0, d, i) })
		})
		b.Run(strconv.Itoa(s.pay)+"/single", func(b *testing.B) {
			check(b, func(v *Verifier, i int) trace.Reason { return v.Examine(0, &singles[i], 0) })
		})
	}
}
