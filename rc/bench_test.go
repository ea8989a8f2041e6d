package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

func large(a *verbs.QPAttr) { a.PathMTU = 4096 }

// BenchmarkRequester is the requester's part of a WRITE of 64 packets: its work
// request fetched, its packets put into bursts, the ACK and the completion. Times
// are of a packet.
func BenchmarkRequester(b *testing.B) {
	const n = 64
	r := newRawMem(b, 100, n*4096, large)
	wr := verbs.SendWR{Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.sge(0, n*4096)}}
	ack := bth.Packet{Opcode: bth.RCAck, Syndrome: bth.AckUnlimited}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.send(wr); err != nil {
			b.Fatal(err)
		}
		for {
			r.burst.Reset(nil, 0, 0)
			if !r.qp.Fill(r.now, r.burst) {
				break
			}
		}
		ack.PSN = r.qp.req.next.Add(-1)
		r.qp.HandlePacket(r.now, &ack)
		r.wcs = r.wcs[:0]
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/pkt")
}

// BenchmarkResponder is the responder's part of one: its packets parsed, checked
// and placed, and the ACK. The copy is most of it.
func BenchmarkResponder(b *testing.B) {
	const n = 64
	r := newRawMem(b, 100, n*4096, large)
	data := make([]byte, 28+4096+4)
	var p bth.Packet
	b.ReportAllocs()
	for b.Loop() {
		for i := range n {
			h := bth.Packet{Opcode: bth.RCWriteMiddle, PKey: 0xffff, PSN: r.qp.resp.epsn}
			switch i {
			case 0:
				h.Opcode, h.VA, h.RKey, h.DMALen = bth.RCWriteFirst, r.reg.IOVA, r.reg.Key, n*4096
			case n - 1:
				h.Opcode, h.AckReq = bth.RCWriteLast, true
			}
			k := h.PutHeaders(data) + 4096 + bth.ICRCLen
			if bth.Parse(data[:k], &p) != trace.None {
				b.Fatal("not a packet")
			}
			r.qp.HandlePacket(r.now, &p)
		}
		r.burst.Reset(nil, 0, 0)
		if !r.qp.Fill(r.now, r.burst) {
			b.Fatal("no ACK")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/pkt")
}
