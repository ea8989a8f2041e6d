package rc

import (
	"runtime"
	"testing"
	"weak"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/verbs"
)

// No slice of a program's memory outlives the step that used it (design.md, rule
// 3 of the seams): once a region is deregistered and its program has let go of
// it, it is collected, whatever the queue pair did with it last.
func TestMemoryIsLetGo(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(r *raw, g *mr.Region)
	}{
		{"SEND by snapshot", func(r *raw, g *mr.Region) { r.postTo(g, verbs.WRSend, 100) }},
		{"SEND by reference", func(r *raw, g *mr.Region) { r.postTo(g, verbs.WRSend, 1000) }},
		{"READ", func(r *raw, g *mr.Region) {
			r.postTo(g, verbs.WRRead, 8)
			r.resp(bth.RCReadRespOnly, 0, bytesOf(8, 1))
		}},
		{"READ request", func(r *raw, g *mr.Region) { r.postTo(g, verbs.WRRead, 8) }},
		{"atomic", func(r *raw, g *mr.Region) {
			r.postTo(g, verbs.WRFetchAdd, 8)
			r.atomicAck(0, 1)
		}},
		{"receive", func(r *raw, g *mr.Region) {
			r.recv(verbs.RecvWR{SGL: []verbs.SGE{{Addr: g.IOVA, Length: 8, LKey: g.Key}}})
			r.req(bth.RCSendOnly, 0, bytesOf(8, 1))
		}},
		{"WRITE to it", func(r *raw, g *mr.Region) {
			p := r.packet(bth.RCWriteOnly, 0, bytesOf(8, 1))
			p.VA, p.RKey = g.IOVA, g.Key
			r.in(p)
		}},
		{"READ of it", func(r *raw, g *mr.Region) {
			p := r.packet(bth.RCReadReq, 0, bytesOf(8, 1))
			p.VA, p.RKey = g.IOVA, g.Key
			r.in(p)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t, 100, func(a *verbs.QPAttr) { a.PathMTU = 4096 })
			gone := func() weak.Pointer[[1 << 16]byte] {
				mem := new([1 << 16]byte)
				g, err := r.mrs.Register(mr.Region{PD: 1, IOVA: 0x900000, Mem: mem[:], Access: verbs.AccessAll})
				if err != nil {
					t.Fatal(err)
				}
				c.do(r, g)
				r.sent()
				r.burst.Reset(nil, 0, 0)
				if err := r.mrs.Deregister(g.Key); err != nil {
					t.Fatal(err)
				}
				return weak.Make(mem)
			}()
			runtime.GC()
			runtime.GC()
			if gone.Value() != nil {
				t.Error("still referred to")
			}
			runtime.KeepAlive(r)
		})
	}
}

// postTo posts a request with n octets of a region, and sends it.
func (r *raw) postTo(g *mr.Region, op verbs.WROpcode, n int) {
	r.postWR(verbs.SendWR{Opcode: op, SGL: []verbs.SGE{{Addr: g.IOVA, Length: uint32(n), LKey: g.Key}}, RKey: 1})
	r.sent()
	r.burst.Reset(nil, 0, 0)
}
