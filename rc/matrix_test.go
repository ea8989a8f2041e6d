package rc

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// B32, B33: each packet of a message lost, once and twice, requests and
// answers, around the wrap of the PSNs. One loss that shows in a gap costs one
// restart; what is left shows in a timeout. The message arrives once.
func TestDropMatrix(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRWriteImm, verbs.WRRead, verbs.WRFetchAdd} {
		for _, n := range []int{8, 256 * 5, 256*65 - 3} {
			if op == verbs.WRFetchAdd && n != 8 {
				continue
			}
			for _, answers := range []bool{false, true} {
				for drop := range 66 {
					for times := 1; times <= 2; times++ {
						name := fmt.Sprintf("%v/%d/answers=%v/%d/%d", op, n, answers, drop, times)
						if !dropOne(t, name, op, n, dropRule{answers, drop, times}) {
							break
						}
					}
				}
			}
		}
	}
}

// dropRule: the packet with the nth PSN is lost, in that direction, so often.
type dropRule struct {
	answers bool
	nth     int
	times   int
}

// dropOne runs one message, and the next one behind it, under a rule. It
// reports whether there was something to drop.
func dropOne(t *testing.T, name string, op verbs.WROpcode, n int, rule dropRule) bool {
	const start = 0xffffe0
	p := newPair(t, 256, 1<<17, start)
	fill(p.a.mem[:n], 1)
	fill(p.b.mem[:n], 2)
	dropped := 0
	p.fate = func(from *side, pk *bth.Packet) (int, int) {
		if (from == p.b) == rule.answers && pk.PSN == bth.MakePSN(uint32(start+rule.nth)) && dropped < rule.times {
			dropped++
			return 0, 0
		}
		return 1, 0
	}
	p.b.recv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{p.b.sge(1<<16, n)}})
	p.b.recv(verbs.RecvWR{ID: 2})
	w := verbs.SendWR{ID: 1, Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.sge(0, n)}, RemoteAddr: p.b.reg.IOVA + 1<<16, RKey: p.b.reg.Key, CompareAdd: 1}
	want, got := p.a.mem[:n], p.b.mem[1<<16:1<<16+n]
	if op == verbs.WRRead {
		w.SGL, w.RemoteAddr = []verbs.SGE{p.a.sge(1<<16, n)}, p.b.reg.IOVA
		want, got = p.b.mem[:n], p.a.mem[1<<16:1<<16+n]
	}
	if op == verbs.WRFetchAdd {
		want = []byte{}
		got = got[:0]
	}
	for _, w := range []verbs.SendWR{w, {ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}} {
		if err := p.a.send(w); err != nil {
			t.Fatal(err)
		}
	}
	if !p.run(p.a.want(2)) || p.a.wcs[0].ID != 1 || p.a.wcs[1].ID != 2 || p.a.wcs[0].Status|p.a.wcs[1].Status != 0 {
		t.Fatalf("%s: %+v", name, p.a.wcs)
	}
	if !bytes.Equal(want, got) {
		t.Fatalf("%s: data differ", name)
	}
	if op == verbs.WRFetchAdd && p.b.mem[1<<16]+p.b.mem[1<<16+7] != 1 {
		t.Fatalf("%s: added % x", name, p.b.mem[1<<16:1<<16+8])
	}
	c := p.a.qp.Counts()
	gaps, timeouts := c[trace.RetrySequence]+c[trace.RetryImplied], c[trace.RetryTimeout]
	if int(gaps+timeouts) > dropped || gaps > 1 {
		t.Fatalf("%s: %d losses, %d restarts for gaps, %d timeouts", name, dropped, gaps, timeouts)
	}
	return dropped == rule.times
}

// B78: path MTUs that differ end in an error that says so, never in a hang;
// messages that fit the smaller one in a single packet work.
func TestMTUMismatch(t *testing.T) {
	mtus := []verbs.MTU{256, 512, 1024, 2048, 4096}
	for _, ma := range mtus {
		for _, mb := range mtus {
			for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRRead} {
				for _, n := range []int{200, 5000} {
					p := newPair(t, ma, 1<<16, 0xfffffe, func(_, b *verbs.QPAttr) { b.PathMTU = mb })
					p.b.recv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{p.b.sge(0, 8192)}})
					w := verbs.SendWR{ID: 1, Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.sge(0, n)}, RemoteAddr: p.b.reg.IOVA, RKey: p.b.reg.Key}
					if err := p.a.send(w); err != nil {
						t.Fatal(err)
					}
					if !p.run(p.a.want(1)) {
						t.Fatalf("%v %d: MTU %d to %d hangs", op, n, ma, mb)
					}
					want := verbs.WCSuccess
					switch {
					case ma == mb || n == 200:
					case op == verbs.WRRead:
						want = verbs.WCLocLenErr
					default:
						want = verbs.WCRemInvReqErr
					}
					if p.a.wcs[0].Status != want {
						t.Errorf("%v %d: MTU %d to %d: %v, want %v", op, n, ma, mb, p.a.wcs[0].Status, want)
					}
				}
			}
		}
	}
}
