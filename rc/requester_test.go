package rc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// What leaves for each operation at path MTU 256: opcode by position, one PSN
// per packet or per response packet, AckReq on the last.
func TestSegmentation(t *testing.T) {
	for _, c := range []struct {
		op   verbs.WROpcode
		n    int
		want string
	}{
		{verbs.WRSend, 0, "SEND_ONLY 0/0!"},
		{verbs.WRSend, 256, "SEND_ONLY 0/256!"},
		{verbs.WRSend, 257, "SEND_FIRST 0/256, SEND_LAST 1/1!"},
		{verbs.WRSend, 600, "SEND_FIRST 0/256, SEND_MIDDLE 1/256, SEND_LAST 2/88!"},
		{verbs.WRSendImm, 3, "SEND_ONLY_IMM 0/3!"},
		{verbs.WRSendImm, 512, "SEND_FIRST 0/256, SEND_LAST_IMM 1/256!"},
		{verbs.WRSendInv, 8, "SEND_ONLY_INV 0/8!"},
		{verbs.WRSendInv, 258, "SEND_FIRST 0/256, SEND_LAST_INV 1/2!"},
		{verbs.WRWrite, 0, "WRITE_ONLY 0/0!"},
		{verbs.WRWrite, 255, "WRITE_ONLY 0/255!"},
		{verbs.WRWrite, 769, "WRITE_FIRST 0/256, WRITE_MIDDLE 1/256, WRITE_MIDDLE 2/256, WRITE_LAST 3/1!"},
		{verbs.WRWriteImm, 0, "WRITE_ONLY_IMM 0/0!"},
		{verbs.WRWriteImm, 300, "WRITE_FIRST 0/256, WRITE_LAST_IMM 1/44!"},
		{verbs.WRRead, 0, "READ_REQ 0@7000+0!"},
		{verbs.WRRead, 600, "READ_REQ 0@7000+600!"},
		{verbs.WRCmpSwap, 8, "CMP_SWAP 0!"},
		{verbs.WRFetchAdd, 8, "FETCH_ADD 0!"},
	} {
		t.Run(fmt.Sprintf("%v/%d", c.op, c.n), func(t *testing.T) {
			rule(t, func(r *raw) {
				r.postWR(verbs.SendWR{ID: 1, Opcode: c.op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.sge(0, c.n)}, RemoteAddr: 7000, RKey: 77, Imm: 0x01020304, CompareAdd: 5, Swap: 6})
				r.post(2, verbs.WRSend, 0)
				pkts := max(1, (c.n+255)/256)
				r.wantSent(c.want, fmt.Sprintf("SEND_ONLY %d/0!", pkts))
				for i, p := range r.pkts {
					if !p.MigReq || p.PKey != 0xffff || p.DestQP != 0x12 || p.SE || p.TVer != 0 || p.PSN != r.psn(i) && i < len(r.pkts)-1 {
						t.Fatalf("packet %d: %+v", i, p)
					}
				}
				first := r.pkts[0]
				if ext := first.Info().Ext; ext&bth.ExtRETH != 0 && (first.VA != 7000 || first.RKey != 77 || int(first.DMALen) != c.n) {
					t.Fatalf("RETH: %+v", first)
				} else if ext&bth.ExtAtomicETH != 0 {
					swap, cmp := uint64(5), uint64(0)
					if c.op == verbs.WRCmpSwap {
						swap, cmp = 6, 5
					}
					if first.VA != 7000 || first.RKey != 77 || first.SwapAdd != swap || first.Compare != cmp {
						t.Fatalf("AtomicETH: %+v", first)
					}
				}
				last := r.pkts[len(r.pkts)-2]
				if last.Info().Has(bth.HasImm) && last.Imm != 0x01020304 || last.Info().Has(bth.HasInv) && last.Inv != 0x01020304 {
					t.Fatalf("immediate: %+v", last)
				}
				if r.unanswered() == 0 {
					r.ack(pkts - 1)
					r.wantDone("1 ok")
				}
			})
		})
	}
}

// unanswered counts READs and atomics outstanding.
func (s *side) unanswered() int { return len(s.qp.req.reads) }

// B55: the length of a message is the sum of its entries.
func TestUnequalEntries(t *testing.T) {
	rule(t, func(r *raw) {
		r.postWR(verbs.SendWR{ID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.sge(10, 1), r.sge(5000, 0), r.sge(100, 300), r.sge(3, 7)}})
		r.wantSent("SEND_FIRST 0/256, SEND_LAST 1/52!")
		want := append(append(append([]byte{}, r.mem[10:11]...), r.mem[100:400]...), r.mem[3:10]...)
		if got := append(append([]byte{}, r.pkts[0].Payload...), r.pkts[1].Payload...); !bytes.Equal(got, want) {
			r.t.Fatal("payload differs")
		}
	})
}

// The solicited event bit is on the last packet of a SEND or of a WRITE with
// immediate that asks for it, and nowhere else.
func TestSolicited(t *testing.T) {
	for _, c := range []struct {
		op   verbs.WROpcode
		want bool
	}{{verbs.WRSend, true}, {verbs.WRSendImm, true}, {verbs.WRWriteImm, true}, {verbs.WRWrite, false}, {verbs.WRRead, false}} {
		r := newRaw(t, 100)
		r.postWR(verbs.SendWR{Opcode: c.op, Flags: verbs.SendSolicited, SGL: []verbs.SGE{r.sge(0, 600)}})
		r.sent()
		for i, p := range r.pkts {
			if want := c.want && i == len(r.pkts)-1; p.SE != want {
				t.Errorf("%v packet %d: SE %v", c.op, i, p.SE)
			}
		}
	}
}

// IBA 10.8.3.3: a fenced request waits for READs and atomics, not for others.
func TestFence(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRWrite, 4)
		r.post(2, verbs.WRRead, 300)
		r.postWR(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendFence})
		r.post(4, verbs.WRSend, 0)
		r.wantSent("WRITE_ONLY 0/4!", "READ_REQ 1@7000+300!")
		r.resp(bth.RCReadRespFirst, 1, bytesOf(256, 1))
		r.wantSent("")
		r.resp(bth.RCReadRespLast, 2, bytesOf(44, 2))
		r.wantSent("SEND_ONLY 3/0!", "SEND_ONLY 4/0!")
		r.postWR(verbs.SendWR{ID: 5, Opcode: verbs.WRSend, Flags: verbs.SendFence})
		r.wantSent("SEND_ONLY 5/0!") // SENDs unacknowledged do not matter
		r.postWR(verbs.SendWR{ID: 6, Opcode: verbs.WRFetchAdd, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.sge(0, 8)}})
		r.postWR(verbs.SendWR{ID: 7, Opcode: verbs.WRRead, Flags: verbs.SendFence, SGL: []verbs.SGE{r.sge(0, 8)}})
		r.wantSent("FETCH_ADD 6!")
		r.atomicAck(6, 1)
		r.wantSent("READ_REQ 7@0+8!")
	})
}

// B54: inline data is taken at the post, 0 to the maximum; more is refused.
func TestInline(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 256, 300} {
		r := newRaw(t, 100)
		data := bytesOf(n, 9)
		want := append([]byte{}, data...)
		r.postWR(verbs.SendWR{ID: 1, Opcode: verbs.WRWrite, Flags: verbs.SendInline | verbs.SendSignaled, Inline: data, RemoteAddr: 7000})
		clear(data)
		r.sent()
		r.nak(0, bth.NAKSequence)
		r.sent() // from the ring once more
		var got []byte
		for _, p := range r.pkts {
			got = append(got, p.Payload...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d octets of inline data differ", n)
		}
		r.ack(len(r.pkts) - 1)
		r.wantDone("1 ok")
	}
	r := newRaw(t, 100)
	if err := r.send(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: make([]byte, 301)}); !errors.Is(err, verbs.ErrInvalidWR) {
		t.Errorf("301 octets inline: %v", err)
	}
}

// Success without the signaled flag is silent; it still frees its place.
func TestUnsignaled(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 1000 {
			r.postWR(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend})
			r.wantSent(fmt.Sprintf("SEND_ONLY %d/0!", i))
			r.ack(i)
		}
		r.wantDone("")
		r.postWR(verbs.SendWR{ID: 5, Opcode: verbs.WRSend})
		r.sent()
		r.nak(1000, bth.NAKRemoteOperational)
		r.wantDone("5 REM_OP")
	})
}

// B47: no more READs and atomics at once than max_rd_atomic; a long READ is
// asked for in parts, each of which counts.
func TestMaxRdAtomic(t *testing.T) {
	depth := func(n int) func(a *verbs.QPAttr) { return func(a *verbs.QPAttr) { a.MaxRdAtomic = n } }
	rule(t, func(r *raw) {
		r.post(1, verbs.WRRead, 8)
		r.post(2, verbs.WRFetchAdd, 8)
		r.post(3, verbs.WRRead, 8)
		r.post(4, verbs.WRSend, 0)
		r.wantSent("READ_REQ 0@7000+8!", "FETCH_ADD 1!") // 4 keeps its place behind 3
		r.resp(bth.RCReadRespOnly, 0, bytesOf(8, 1))
		r.wantSent("READ_REQ 2@7000+8!", "SEND_ONLY 3/0!")
		// Everything anew from 1: the depth holds in the repetition too.
		r.expire()
		r.wantSent("FETCH_ADD 1!", "READ_REQ 2@7000+8!", "SEND_ONLY 3/0!")
		r.atomicAck(1, 0)
		r.resp(bth.RCReadRespOnly, 2, bytesOf(8, 1))
		r.ack(3)
		r.wantDone("1 ok, 2 ok, 3 ok, 4 ok")
	}, depth(2))
	rule(t, func(r *raw) {
		r.post(1, verbs.WRRead, 256*100)
		r.wantSent("READ_REQ 0@7000+16384!")
		for i := range 63 {
			r.resp(bth.RCReadRespMiddle, i, bytesOf(256, byte(i)))
			r.wantSent("")
		}
		r.resp(bth.RCReadRespLast, 63, bytesOf(256, 63))
		r.wantSent("READ_REQ 64@23384+9216!")
	}, depth(1))
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 0)
		r.post(2, verbs.WRRead, 8)
		r.wantSent("SEND_ONLY 0/0!")
		r.ack(0)
		r.sent()
		r.wantDone("1 ok, 2 LOC_QP_OP")
	}, depth(0))
}

// The window bounds what is in flight, and asks for ACKs before it closes.
func TestWindow(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRWrite, 256*200)
		r.sent()
		if len(r.pkts) != 128 {
			r.t.Fatalf("%d packets in flight", len(r.pkts))
		}
		for i, p := range r.pkts {
			if p.AckReq != (i%32 == 31) {
				r.t.Fatalf("packet %d: AckReq %v", i, p.AckReq)
			}
		}
		r.wantSent("")
		r.ack(31)
		r.sent()
		if len(r.pkts) != 32 || r.pkts[0].PSN != r.psn(128) {
			r.t.Fatalf("%d packets after an ACK", len(r.pkts))
		}
		r.wantDone("")
	})
}

// control is a congestion controller in the test's hands.
type control struct {
	cc.Fixed
	window, acked, losses int
}

func (c *control) Window(int64) int              { return c.window }
func (c *control) OnAck(_ int64, n int, _ int64) { c.acked += n }
func (c *control) OnLoss(int64, cc.Loss) cc.Reaction {
	c.losses++
	return cc.TakenForLoss
}

// A controller's window holds from the next packet on. One that shrinks below
// what is in flight does not stop everything until the timeout: something in
// flight always asks for an ACK. It hears of each packet and each loss once.
func TestControlledWindow(t *testing.T) {
	rule(t, func(r *raw) {
		c := &control{window: 100}
		r.qp.control = c
		r.post(1, verbs.WRWrite, 256*200)
		if n := r.bursts(1, 20)[0].Len() + r.bursts(1, 20)[0].Len(); n != 22 {
			r.t.Fatal(n) // WRITE_FIRST is longer and makes a burst with one more
		}
		c.window = 4
		r.wantSent("WRITE_MIDDLE 22/256!")
		r.wantSent("")
		r.ack(22)
		r.wantSent("WRITE_MIDDLE 23/256!", "WRITE_MIDDLE 24/256!", "WRITE_MIDDLE 25/256!", "WRITE_MIDDLE 26/256!")
		c.window = 1
		r.wantSent("")
		r.nak(24, bth.NAKSequence)
		r.nak(24, bth.NAKSequence)
		r.wantSent("WRITE_MIDDLE 24/256!")
		r.ack(24)
		c.window = 0 // as 1
		r.wantSent("WRITE_MIDDLE 25/256!")
		if c.acked != 25 || c.losses != 1 {
			r.t.Fatalf("%+v", c)
		}
	})
}

// B42: a request that breaks a local rule fails in its turn, after those
// before it; those behind it are flushed. Nothing of it is sent.
func TestLocalErrors(t *testing.T) {
	for _, c := range []struct {
		name, want string
		w          func(r *raw) verbs.SendWR
	}{
		{"wrong lkey", "LOC_PROT", func(r *raw) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: r.reg.IOVA, Length: 4, LKey: r.reg.Key ^ 1}}}
		}},
		{"second entry's lkey", "LOC_PROT", func(r *raw) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{r.sge(0, 4), {Addr: r.reg.IOVA, Length: 4, LKey: 0}}}
		}},
		{"past the region", "LOC_PROT", func(r *raw) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{r.sge(len(r.mem)-3, 4)}}
		}},
		{"wrapping address", "LOC_PROT", func(r *raw) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: ^uint64(0) - 1, Length: 4, LKey: r.reg.Key}}}
		}},
		{"another domain", "LOC_PROT", func(r *raw) verbs.SendWR {
			g, _ := r.mrs.Register(mr.Region{PD: 2, IOVA: r.reg.IOVA, Mem: r.mem, Access: verbs.AccessAll})
			return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: g.IOVA, Length: 4, LKey: g.Key}}}
		}},
		{"READ without local write", "LOC_PROT", func(r *raw) verbs.SendWR {
			g, _ := r.mrs.Register(mr.Region{PD: 1, IOVA: r.reg.IOVA, Mem: r.mem, Access: verbs.AccessRemoteRead})
			return verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{{Addr: g.IOVA, Length: 4, LKey: g.Key}}}
		}},
		{"atomic without local write", "LOC_PROT", func(r *raw) verbs.SendWR {
			g, _ := r.mrs.Register(mr.Region{PD: 1, IOVA: r.reg.IOVA, Mem: r.mem})
			return verbs.SendWR{Opcode: verbs.WRFetchAdd, SGL: []verbs.SGE{{Addr: g.IOVA, Length: 8, LKey: g.Key}}}
		}},
		{"atomic of 4 octets", "LOC_LEN", func(r *raw) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRFetchAdd, SGL: []verbs.SGE{r.sge(0, 4)}}
		}},
		{"2^31+1 octets (B46)", "LOC_LEN", func(r *raw) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{{Addr: r.reg.IOVA, Length: 1 << 31, LKey: r.reg.Key}, r.sge(0, 1)}}
		}},
		{"2^32 octets (B46)", "LOC_LEN", func(r *raw) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{{Addr: r.reg.IOVA, Length: 1 << 31, LKey: r.reg.Key}, {Addr: r.reg.IOVA, Length: 1 << 31, LKey: r.reg.Key}}}
		}},
		{"unknown operation", "LOC_QP_OP", func(r *raw) verbs.SendWR { return verbs.SendWR{Opcode: 99} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule(t, func(r *raw) {
				r.post(1, verbs.WRSend, 300)
				bad := c.w(r)
				bad.ID = 2
				r.postWR(bad)
				r.post(3, verbs.WRSend, 4)
				r.postRecv(9, 0, 8)
				r.wantSent("SEND_FIRST 0/256, SEND_LAST 1/44!")
				r.wantDone("")
				r.wantState(verbs.StateRTS)
				r.expire() // a loss meanwhile changes nothing
				r.wantSent("SEND_FIRST 0/256, SEND_LAST 1/44!")
				r.ack(1)
				r.sent()
				r.wantDone("1 ok, 2 " + c.want + ", 3 FLUSH, r9 FLUSH")
				r.wantState(verbs.StateErr)
				r.wantSent("")
			})
		})
	}
}

// A key withdrawn while its message is being sent ends the message there.
func TestKeyWithdrawn(t *testing.T) {
	rule(t, func(r *raw) {
		g, err := r.mrs.Register(mr.Region{PD: 1, IOVA: 0x900000, Mem: make([]byte, 256*200)})
		if err != nil {
			r.t.Fatal(err)
		}
		r.postWR(verbs.SendWR{ID: 1, Opcode: verbs.WRWrite, SGL: []verbs.SGE{{Addr: g.IOVA, Length: 256 * 200, LKey: g.Key}}})
		if n := strings.Count(r.sent(), "WRITE"); n != 128 {
			r.t.Fatal(n)
		}
		if err := r.mrs.Deregister(g.Key); err != nil {
			r.t.Fatal(err)
		}
		r.ack(63)
		r.wantSent("")
		r.wantDone("1 LOC_PROT")
		r.wantState(verbs.StateErr)
	})
}

// Octets in the ring that are no work request end the queue, once.
func TestMalformedWQE(t *testing.T) {
	r := newRaw(t, 100)
	r.post(1, verbs.WRSend, 0)
	r.sent()
	r.ack(0)
	r.wantDone("1 ok")
	r.qp.TakeEvents()
	ring := r.sendMem[192:]
	r.post(2, verbs.WRSend, 0)
	ring[2*64+3] = 200 // units of the second request (a header and one of entries each)
	r.wantSent("")
	r.wantDone("0 LOC_QP_OP")
	r.wantState(verbs.StateErr)
	if e := r.qp.TakeEvents(); e&transport.EventFatal == 0 {
		t.Errorf("events %b", e)
	}
	r.wantSent("")
}

// 2^31 octets at path MTU 256 are 2^23 packets, the most that PSN arithmetic
// tells apart; a message behind them is acknowledged and taken back rightly.
func TestLongestMessage(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRRead, 0)
		r.post(2, verbs.WRSend, 0)
		r.sent()
		q := &r.qp.req
		// As if the head had 2^23 packets, all but the last acknowledged.
		w := q.headWQE()
		w.Opcode, w.pkts, w.Length = verbs.WRSend, 1<<23, 1<<31
		w.first = r.psn(1 - 1<<23)
		q.una = r.psn(0)
		if q.find(r.psn(1)); q.cur != q.head+1 {
			r.t.Fatalf("PSN 1 belongs to request %d", q.cur)
		}
		q.find(q.next)
		r.ack(1)
		r.wantDone("1 ok, 2 ok")
	})
}

// Counters that must not count what did not leave.
func TestUnsendCounters(t *testing.T) {
	r := newRaw(t, 100)
	r.postRecv(1, 0, 64)
	r.post(1, verbs.WRSend, 600)
	r.req(bth.RCSendOnly, 0, bytesOf(9, 1))
	r.reqTo(bth.RCReadReq, 1, make([]byte, 600), 0)
	before := *r.qp.Stats()
	for range 4 {
		r.burst.Reset(nil, 0, 0)
		if !r.qp.Fill(0, r.burst) {
			t.Fatal("nothing to send")
		}
		r.qp.Sent(r.burst, 0)
		after := *r.qp.Stats()
		after.AcksCoalesced = before.AcksCoalesced
		if after != before {
			t.Fatalf("\n%+v\n%+v", before, after)
		}
	}
	if r.qp.Counts()[trace.RetryLink] == 0 {
		t.Error("link_short_send did not count")
	}
}
