package transport

import (
	"strconv"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// BenchmarkPlace is the copy of a packet's payload to where a WRITE goes, its key
// looked up, in a region that fits a processor's cache and in one that does not.
func BenchmarkPlace(b *testing.B) {
	for _, region := range []int{1 << 20, 64 << 20} {
		b.Run(strconv.Itoa(region>>20)+"MiB", func(b *testing.B) {
			t := mr.NewTable(1)
			r, err := t.Register(mr.Region{PD: 1, Mem: make([]byte, region), IOVA: 4096, Access: verbs.AccessAll})
			if err != nil {
				b.Fatal(err)
			}
			var m Memory
			m.Init(&Config{MRs: t, PD: 1, Cap: verbs.QPCap{MaxSendSGE: 1, MaxRecvSGE: 1}})
			p := bth.Packet{Opcode: bth.RCWriteMiddle, Payload: make([]byte, 4096)}
			w := WriteCursor{RKey: r.Key}
			b.SetBytes(4096)
			b.ReportAllocs()
			for b.Loop() {
				if w.Left < 4096 {
					w.VA, w.Left = r.IOVA, region
				}
				if why := w.Place(&m, &p); why != trace.None {
					b.Fatal(why)
				}
			}
		})
	}
}
