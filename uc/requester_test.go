package uc

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// TestPackets: the packets of each operation and length.
func TestPackets(t *testing.T) {
	for _, c := range []struct {
		op   verbs.WROpcode
		n    int
		want string
	}{
		{verbs.WRSend, 0, "SEND_ONLY 0/0"},
		{verbs.WRSend, 256, "SEND_ONLY 0/256"},
		{verbs.WRSendImm, 1, "SEND_ONLY_IMM 0/1"},
		{verbs.WRSend, 257, "SEND_FIRST 0/256, SEND_LAST 1/1"},
		{verbs.WRSendImm, 700, "SEND_FIRST 0/256, SEND_MIDDLE 1/256, SEND_LAST_IMM 2/188"},
		{verbs.WRWrite, 0, "WRITE_ONLY 0/0"},
		{verbs.WRWriteImm, 0, "WRITE_ONLY_IMM 0/0"},
		{verbs.WRWrite, 512, "WRITE_FIRST 0/256, WRITE_LAST 1/256"},
		{verbs.WRWriteImm, 700, "WRITE_FIRST 0/256, WRITE_MIDDLE 1/256, WRITE_LAST_IMM 2/188"},
	} {
		rule(t, func(r *raw) {
			r.Post(verbs.SendWR{
				ID: 9, Opcode: c.op, Flags: verbs.SendSignaled | verbs.SendSolicited, Imm: 77, RemoteAddr: 7000, RKey: 99,
				SGL: []verbs.SGE{r.SGE(100, c.n/3), r.SGE(0, 0), r.SGE(5000, c.n-c.n/3)},
			})
			r.WantSent(c.want)
			r.WantDone("9 ok")
			var got []byte
			for i, p := range r.Pkts {
				last := i == len(r.Pkts)-1
				if p.SE != (last && c.op != verbs.WRWrite) || p.DestQP != 0x12 || !p.MigReq || p.PKey != 0xffff || last && p.Info().Has(bth.HasImm) && p.Imm != 77 {
					t.Errorf("packet %d: %+v", i, p)
				}
				if p.Info().Op == bth.OpWrite && i == 0 && (p.VA != 7000 || p.RKey != 99 || int(p.DMALen) != c.n) {
					t.Errorf("RETH: %+v", p)
				}
				got = append(got, p.Payload...)
			}
			if want := append(bytes.Clone(r.Mem[100:100+c.n/3]), r.Mem[5000:5000+c.n-c.n/3]...); !bytes.Equal(got, want) {
				t.Error("wrong data")
			}
			sends := uint64(1)
			if c.op == verbs.WRWrite || c.op == verbs.WRWriteImm {
				sends = 0
			}
			if s := r.qp.Stats(); s.SentRequests != uint64(len(r.Pkts)) || s.SentBytes != uint64(c.n) || s.Sends != sends || s.Completed != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestManySGEs: 32 entries, some empty, over packets; and inline data over
// packets.
func TestManySGEs(t *testing.T) {
	rule(t, func(r *raw) {
		var sgl []verbs.SGE
		var want []byte
		for i := range 32 {
			n := i % 4 * 13
			sgl = append(sgl, r.SGE(1000+i*100, n))
			want = append(want, r.Mem[1000+i*100:][:n]...)
		}
		inline := enginetest.Bytes(300, 5)
		r.Post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend, SGL: sgl}, verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: inline})
		r.WantSent("SEND_FIRST 0/256, SEND_MIDDLE 1/256, SEND_LAST 2/112", "SEND_FIRST 3/256, SEND_LAST 4/44")
		var got []byte
		for _, p := range r.Pkts {
			got = append(got, p.Payload...)
		}
		if !bytes.Equal(got, append(want, inline...)) {
			t.Error("wrong data")
		}
		r.WantDone("2 ok") // 1 was not signaled
	})
}

// TestSignaling: unsignaled requests complete silently, but not with SigAll.
func TestSignaling(t *testing.T) {
	for _, all := range []bool{false, true} {
		r := newRaw(t, 3, func(c *transport.Config, _ *verbs.QPAttr) { c.SigAll = all })
		for i := range 4 {
			f := verbs.SendFlags(0)
			if i == 2 {
				f = verbs.SendSignaled
			}
			r.Post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, Flags: f})
		}
		r.Sent()
		r.WantDone(map[bool]string{false: "2 ok", true: "0 ok, 1 ok, 2 ok, 3 ok"}[all])
		if r.qp.Stats().Completed != 4 {
			t.Error(r.qp.Stats().Completed)
		}
	}
}

// TestSentInParts: a request is complete when its last packet has left, and not
// before; what a link did not take is sent next, from there, with its own PSN.
func TestSentInParts(t *testing.T) {
	rule(t, func(r *raw) {
		r.send(1, verbs.WRSend, 600) // 0 1 2
		r.send(2, verbs.WRSend, 10)  // 3
		r.send(3, verbs.WRWrite, 300)
		r.send(4, verbs.WRSend, 20) // 6
		bs := r.Bursts(9, 2)
		var all []*bth.Packet
		for _, b := range bs {
			all = append(all, r.Parse(b, b.Len())...)
		}
		if got := r.Texts(all); got != "SEND_FIRST 0/256, SEND_MIDDLE 1/256, SEND_LAST 2/88, SEND_ONLY 3/10, WRITE_FIRST 4/256, WRITE_LAST 5/44, SEND_ONLY 6/20" {
			t.Fatal(got)
		}
		r.WantDone("") // nothing has left
		r.qp.Sent(bs[0], 2)
		r.WantDone("")
		r.qp.Sent(bs[1], 1)
		r.WantDone("1 ok")
		for _, b := range bs[2:] {
			r.qp.Sent(b, 0)
		}
		bs = r.Bursts(1, 2)
		if got := r.Texts(r.Parse(bs[0], bs[0].Len())); got != "SEND_ONLY 3/10" {
			t.Fatal(got)
		}
		r.qp.Sent(bs[0], 0)
		r.WantDone("")
		r.WantSent("SEND_ONLY 3/10", "WRITE_FIRST 4/256", "WRITE_LAST 5/44", "SEND_ONLY 6/20")
		r.WantDone("2 ok, 3 ok, 4 ok")
		if s := r.qp.Stats(); s.SentRequests != 7 || s.SentBytes != 930 || s.Sends != 3 || s.Completed != 4 {
			t.Errorf("%+v", s)
		}
		if got := r.qp.Attr().SQPSN; got != r.Base.Add(7).Uint32() {
			t.Errorf("SQPSN %#x", got)
		}
	})
}

// TestLatestGoesBackFirst: the NIC may give a burst back whole before older
// ones are sent.
func TestLatestGoesBackFirst(t *testing.T) {
	rule(t, func(r *raw) {
		r.send(1, verbs.WRSend, 600)
		r.send(2, verbs.WRSend, 10)
		bs := r.Bursts(2, 2)
		r.qp.Sent(bs[1], 0)
		r.WantDone("")
		r.qp.Sent(bs[0], 1)
		r.WantSent("SEND_MIDDLE 1/256", "SEND_LAST 2/88", "SEND_ONLY 3/10")
		r.WantDone("1 ok, 2 ok")
	})
}

// badRequests break a local rule.
var badRequests = []struct {
	name string
	wr   func(r *raw) verbs.SendWR
	sent string // packets of it before it fails
	want string
	why  trace.Reason
}{
	{"wrong key", func(r *raw) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: r.Reg.IOVA, Length: 5, LKey: r.Reg.Key ^ 1}}}
	}, "", "LOC_PROT", trace.FailLocalProt},
	{"beyond its region", func(r *raw) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{r.SGE(len(r.Mem)-4, 5)}}
	}, "", "LOC_PROT", trace.FailLocalProt},
	{"wrong key of its second packet", func(r *raw) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{r.SGE(0, 256), {Addr: r.Reg.IOVA, Length: 5, LKey: 0}}}
	}, "SEND_FIRST 1/256", "LOC_PROT", trace.FailLocalProt},
	{"of another domain", func(r *raw) verbs.SendWR {
		g := r.Region(mr.Region{PD: 2, IOVA: 1 << 32, Mem: r.Mem, Access: verbs.AccessAll})
		return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: 1 << 32, Length: 5, LKey: g.Key}}}
	}, "", "LOC_PROT", trace.FailLocalProt},
	{"READ", func(r *raw) verbs.SendWR { return verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{r.SGE(0, 5)}} }, "", "LOC_QP_OP", trace.FailLocalQPOp},
	{"SEND with invalidate", func(r *raw) verbs.SendWR { return verbs.SendWR{Opcode: verbs.WRSendInv} }, "", "LOC_QP_OP", trace.FailLocalQPOp},
	{"no opcode", func(r *raw) verbs.SendWR { return verbs.SendWR{Opcode: 99} }, "", "LOC_QP_OP", trace.FailLocalQPOp},
	{"longer than 2^31", func(r *raw) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{r.SGE(0, 1<<31), r.SGE(0, 1)}}
	}, "", "LOC_LEN", trace.FailLocalLen},
}

// TestSendErrors: a request that breaks a local rule completes with its error
// once everything before it is done, what follows is flushed, the queue pair is
// in SQE and still receives; back in RTS it works again.
func TestSendErrors(t *testing.T) {
	for _, c := range badRequests {
		t.Run(c.name, func(t *testing.T) {
			rule(t, func(r *raw) {
				r.recv(50, 0, 600)
				r.send(1, verbs.WRSend, 5)
				bad := c.wr(r)
				bad.ID = 2
				r.Post(bad)
				r.send(3, verbs.WRSend, 5)
				r.send(4, verbs.WRWrite, 500)
				want := []string{"SEND_ONLY 0/5"}
				next := 1
				if c.sent != "" {
					want, next = append(want, c.sent), 2
				}

				b := r.Bursts(3, 0)
				r.WantDone("") // not before the first has left
				r.WantState(verbs.StateRTS)
				var got []string
				for _, x := range b {
					got = append(got, r.Texts(r.Parse(x, x.Len())))
				}
				if g, w := strings.Join(got, ", "), strings.Join(want, ", "); g != w {
					t.Fatalf("sent %s, want %s", g, w)
				}
				for _, x := range b {
					r.qp.Sent(x, x.Len())
				}
				r.WantSent()
				r.WantDone("1 ok, 2 " + c.want + ", 3 FLUSH, 4 FLUSH")
				r.WantState(verbs.StateSQE)
				r.WantCounts(enginetest.Counts{c.why: 1, trace.FailFlushed: 2})
				if e := r.qp.TakeEvents(); e != 0 {
					t.Errorf("events %v", e)
				}

				r.send(5, verbs.WRSend, 5)
				r.WantSent()
				r.WantDone("5 FLUSH")
				r.In(r.packet(sendOnly, 0, 5))
				r.WantDone("r50 ok/5")
				if err := r.SQ.Put(&verbs.SendWR{ID: 6, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}); err != nil {
					t.Fatal(err)
				}
				r.SQ.Publish() // its doorbell has yet to ring
				r.Modify(verbs.StateRTS, 0, verbs.QPAttr{}, nil)
				r.WantDone("6 FLUSH")
				r.send(7, verbs.WRSend, 300)
				r.WantSent(text("SEND_FIRST", next, 256), text("SEND_LAST", next+1, 44))
				r.WantDone("7 ok")
			})
		})
	}
}

func text(op string, psn, n int) string { return fmt.Sprintf("%s %d/%d", op, psn, n) }

// TestSendErrorWaits: a request whose later packet breaks a rule is not complete
// before the earlier ones, in a burst already, have left or come back.
func TestSendErrorWaits(t *testing.T) {
	for _, sent := range []int{0, 1} {
		rule(t, func(r *raw) {
			r.Post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend, SGL: []verbs.SGE{r.SGE(0, 256), {Length: 9}}})
			r.send(2, verbs.WRSend, 9)
			b := r.Bursts(3, 1)
			if len(b) != 1 {
				t.Fatalf("%d bursts", len(b))
			}
			r.WantDone("")
			r.qp.Sent(b[0], sent)
			r.WantSent()
			r.WantDone("1 LOC_PROT, 2 FLUSH")
			r.Modify(verbs.StateRTS, 0, verbs.QPAttr{}, nil)
			r.send(3, verbs.WRSend, 9)
			r.WantSent(text("SEND_ONLY", sent, 9))
		})
	}
}

// TestBrokenRing: a ring whose producer's index makes no sense ends the queue
// pair, in whatever state it is found.
func TestBrokenRing(t *testing.T) {
	for _, sqe := range []bool{false, true} {
		rule(t, func(r *raw) {
			r.recv(50, 0, 600)
			if sqe {
				r.Post(verbs.SendWR{ID: 1, Opcode: verbs.WRRead})
				r.WantSent()
				r.WantDone("1 LOC_QP_OP")
				r.WantState(verbs.StateSQE)
			} else {
				r.send(1, verbs.WRSend, 5)
				r.WantSent("SEND_ONLY 0/5")
				r.WantDone("1 ok")
			}
			r.SendMem[2] = 0x77
			r.QP.Doorbell(0)
			r.WantSent()
			r.WantState(verbs.StateErr)
			if e := r.qp.TakeEvents(); e != transport.EventFatal|transport.EventLastWQE {
				t.Errorf("events %v", e)
			}
			if n := len(r.Done); n != 2 || r.Done[0].Status == verbs.WCSuccess || r.Done[1].ID != 50 {
				t.Errorf("%+v", r.Done)
			}
			r.Modify(verbs.StateReset, 0, verbs.QPAttr{}, nil)
			r.ResetRings()
			r.connect(attr(256, 0x12, r.Base.Uint32(), r.Base.Uint32()))
			r.Done = nil
			r.send(2, verbs.WRSend, 5)
			r.WantSent("SEND_ONLY 0/5")
			r.WantDone("2 ok")
		})
	}
}

// TestDrain: in SQD the message that has begun goes on, what has not waits, and
// receiving does too; then the event tells.
func TestDrain(t *testing.T) {
	rule(t, func(r *raw) {
		sqd := func() { r.Modify(verbs.StateSQD, 0, verbs.QPAttr{}, nil) }
		sqd()
		if e := r.qp.TakeEvents(); e != transport.EventDrained {
			t.Fatalf("idle: events %v", e)
		}
		r.send(1, verbs.WRSend, 600)
		r.send(2, verbs.WRSend, 10)
		r.WantSent()
		r.Modify(verbs.StateRTS, 0, verbs.QPAttr{}, nil)
		b := r.Bursts(1, 2)
		r.qp.Sent(b[0], 2)
		sqd()
		if e := r.qp.TakeEvents(); e != 0 {
			t.Fatalf("events %v", e)
		}
		b = r.Bursts(1, 2)
		r.qp.Sent(b[0], 0) // a full link
		if e := r.qp.TakeEvents(); e != 0 {
			t.Fatalf("nothing left: events %v", e)
		}
		r.WantSent("SEND_LAST 2/88")
		r.WantDone("1 ok")
		if e := r.qp.TakeEvents(); e != transport.EventDrained {
			t.Fatalf("drained: events %v", e)
		}
		r.recv(50, 0, 600)
		r.In(r.packet(sendOnly, 0, 5))
		r.WantDone("r50 ok/5")
		r.Modify(verbs.StateRTS, 0, verbs.QPAttr{}, nil)
		r.WantSent("SEND_ONLY 3/10")
		r.WantDone("2 ok")
	})
}

// TestErrorState: in ERR everything is flushed, also what is posted there; a
// message under way and one half received too.
func TestErrorState(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 3 {
			r.recv(uint64(50+i), 0, 600)
		}
		r.send(1, verbs.WRSend, 600)
		r.send(2, verbs.WRSend, 10)
		r.In(r.packet(sendFirst, 0, 256))
		b := r.Bursts(1, 2)
		r.qp.Sent(b[0], 2)
		r.Modify(verbs.StateErr, 0, verbs.QPAttr{}, nil)
		r.WantDone("1 FLUSH, 2 FLUSH, r50 FLUSH, r51 FLUSH, r52 FLUSH")
		r.send(3, verbs.WRWrite, 10)
		r.recv(53, 0, 600)
		r.WantDone("3 FLUSH, r53 FLUSH")
		r.In(r.packet(sendLast, 1, 4))
		r.WantSent()
		r.WantDone("")
		if e := r.qp.TakeEvents(); e != transport.EventLastWQE {
			t.Errorf("events %v", e)
		}
		r.qp.Fail(0, trace.FailCQOverflow) // nothing more to fail
		r.Modify(verbs.StateErr, 0, verbs.QPAttr{}, nil)
		if e := r.qp.TakeEvents(); e != 0 {
			t.Errorf("events %v", e)
		}
		r.WantCounts(enginetest.Counts{trace.FailFlushed: 7, trace.DropState: 1})

		// RESET forgets; the same queue pair works again.
		r.Modify(verbs.StateReset, 0, verbs.QPAttr{}, nil)
		r.ResetRings()
		r.connect(attr(256, 0x12, r.Base.Uint32(), r.Base.Uint32()))
		r.recv(60, 0, 600)
		r.send(61, verbs.WRSend, 4)
		r.WantSent("SEND_ONLY 0/4")
		r.In(r.packet(sendLast, 0, 4)) // not the rest of what was before
		r.In(r.packet(sendOnly, 1, 4))
		r.WantDone("61 ok, r60 ok/4")
	})
}

// TestFail: the device may end a queue pair; the reason is on every completion.
func TestFail(t *testing.T) {
	r := newRaw(t, 5)
	r.recv(50, 0, 600)
	r.send(1, verbs.WRSend, 600)
	b := r.Bursts(1, 2)
	r.qp.Fail(0, trace.FailCQOverflow)
	r.qp.Sent(b[0], 1) // it was flushed meanwhile
	for _, w := range r.Done {
		if w.Reason != trace.FailCQOverflow {
			t.Errorf("%+v", w)
		}
	}
	r.WantDone("1 FLUSH, r50 FLUSH")
	if e := r.qp.TakeEvents(); e != transport.EventFatal|transport.EventLastWQE {
		t.Errorf("events %v", e)
	}
	x := unconnected(t, 1, 64, verbs.QPCap{}, nil)
	x.qp.Fail(0, trace.FailCQOverflow)
	x.WantState(verbs.StateReset)
}

// TestModify: what a queue pair refuses changes nothing.
func TestModify(t *testing.T) {
	r := newRaw(t, 5)
	before := r.qp.Attr()
	flow := enginetest.Flow("192.0.2.1", "192.0.2.3")
	for _, c := range []struct {
		m    verbs.AttrMask
		a    verbs.QPAttr
		flow *wire.Flow
		want string
	}{
		{verbs.AttrState, verbs.QPAttr{State: verbs.StateInit}, nil, "does not go from"},
		{verbs.AttrState | verbs.AttrAV, verbs.QPAttr{State: verbs.StateRTS}, flow, "does not take AV"},
		{verbs.AttrState | verbs.AttrTimeout, verbs.QPAttr{State: verbs.StateRTS, Timeout: 3}, flow, "does not take Timeout"},
		{verbs.AttrQKey, verbs.QPAttr{}, nil, "does not take QKey"},
	} {
		if err := r.qp.Modify(0, &c.a, c.m, c.flow); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.m, err, c.want)
		}
		if r.qp.Attr() != before || r.qp.Flow() == flow {
			t.Errorf("%v: changed", c.m)
		}
	}
	for _, c := range []struct {
		change func(*verbs.QPAttr)
		flow   *wire.Flow
		want   string
	}{
		{func(a *verbs.QPAttr) { a.PathMTU = 1000 }, flow, "path MTU 1000"},
		{func(a *verbs.QPAttr) { a.DestQPN = 1 << 24 }, flow, "DestQPN"},
		{func(a *verbs.QPAttr) { a.RQPSN = 1 << 24 }, flow, "RQPSN"},
		{func(a *verbs.QPAttr) { a.AV.SL = 8 }, flow, "AV.SL"},
		{func(*verbs.QPAttr) {}, nil, "without a flow"},
	} {
		x := unconnected(t, 0x11, 64, verbs.QPCap{}, nil)
		a := attr(256, 0x12, 0, 0)
		x.Modify(verbs.StateInit, toInit, a, nil)
		c.change(&a)
		a.State = verbs.StateRTR
		if err := x.qp.Modify(0, &a, toRTR|verbs.AttrState, c.flow); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		x.WantState(verbs.StateInit)
	}
	// The address vector may change in SQD.
	r.Modify(verbs.StateSQD, 0, verbs.QPAttr{}, nil)
	r.Modify(verbs.StateSQD, verbs.AttrAV, verbs.QPAttr{}, flow)
	if r.qp.Flow() != flow {
		t.Error("flow")
	}
}

// TestLongest: 2^31 octets are 2^23 packets of 256, half of all PSNs: neither
// end of the message is taken for the other (B46). The test goes from its
// beginning straight to its end.
func TestLongest(t *testing.T) {
	r := unconnected(t, 0x11, 1<<26, verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 32}, nil)
	r.Base = bth.MakePSN(0xffff00)
	r.connect(attr(256, 0x12, 0xffff00, 0))
	var sgl []verbs.SGE
	for range 32 {
		sgl = append(sgl, r.SGE(0, 1<<26))
	}
	r.Post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: sgl}, verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	for _, sent := range []int{0, 1, 2} {
		b := r.Bursts(1, 2)[0]
		if got, want := r.Texts(r.Parse(b, 2)), []string{"SEND_FIRST 0/256, SEND_MIDDLE 1/256", "SEND_FIRST 0/256, SEND_MIDDLE 1/256", "SEND_MIDDLE 1/256, SEND_MIDDLE 2/256"}[sent]; got != want {
			t.Fatalf("sent %s, want %s", got, want)
		}
		r.qp.Sent(b, sent)
	}
	r.qp.Next = r.Base.Add(1<<23 - 3)
	b := r.Bursts(1, 2)[0]
	r.qp.Sent(b, 1)
	r.WantDone("")
	b = r.Bursts(1, 2)[0]
	if got := b.Segs[0].Opcode.String() + b.Segs[1].Opcode.String(); got != "UC_SEND_MIDDLEUC_SEND_LAST" {
		t.Fatal(got)
	}
	r.qp.Sent(b, 1)
	r.WantDone("")
	r.WantSent(text("SEND_LAST", 1<<23-1, 256), text("SEND_ONLY", -1<<23, 0))
	r.WantDone("1 ok, 2 ok")
}
