package rc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// lastMSN returns the MSN of the last packet sent.
func (r *raw) lastMSN() int {
	r.t.Helper()
	if len(r.pkts) == 0 {
		r.t.Fatal("nothing sent")
	}
	return int(r.pkts[len(r.pkts)-1].MSN)
}

// A SEND fills its receive request across its entries and completes with its
// length, immediate data and, for whoever sleeps, the solicited bit.
func TestSendReceive(t *testing.T) {
	rule(t, func(r *raw) {
		r.recv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{r.sge(1000, 300), r.sge(5001, 400)}})
		r.postRecv(2, 9000, 64)
		data := bytesOf(600, 3)
		r.req(bth.RCSendFirst, 0, data[:256])
		r.req(bth.RCSendMiddle, 1, data[256:512])
		r.wantDone("")
		r.req(bth.RCSendLast, 2, data[512:])
		r.wantDone("r1 ok/600")
		r.wantSent("ACK 2")
		if r.lastMSN() != 1 {
			r.t.Fatalf("MSN %d", r.lastMSN())
		}
		if !bytes.Equal(r.mem[1000:1300], data[:300]) || !bytes.Equal(r.mem[5001:5301], data[300:]) {
			r.t.Fatal("data differ")
		}
		p := r.packet(bth.RCSendOnlyImm, 3, data[:5])
		p.Imm, p.SE = 0x01020304, true
		r.in(p)
		if w := r.wcs[0]; w.Imm != 0x01020304 || w.Flags != verbs.WCWithImm || w.Opcode != verbs.WCRecv || !r.solicited {
			r.t.Fatalf("%+v, solicited %v", w, r.solicited)
		}
		r.wantDone("r2 ok/5")
	})
}

// A WRITE takes no receive request; with immediate it takes one at its last
// packet and reports the whole message (B59).
func TestWrite(t *testing.T) {
	rule(t, func(r *raw) {
		data := bytesOf(600, 7)
		p := r.packet(bth.RCWriteFirst, 0, data[:256])
		p.DMALen, p.VA = 600, r.reg.IOVA+3
		r.in(p)
		r.req(bth.RCWriteMiddle, 1, data[256:512])
		r.req(bth.RCWriteLast, 2, data[512:])
		r.wantDone("")
		r.wantSent("ACK 2")
		if !bytes.Equal(r.mem[3:603], data) {
			r.t.Fatal("data differ")
		}
		r.postRecv(5, 0, 0)
		p = r.packet(bth.RCWriteFirst, 3, data[:256])
		p.DMALen = 300
		r.in(p)
		p = r.packet(bth.RCWriteLastImm, 4, data[:44])
		p.Imm = 9
		r.in(p)
		if w := r.wcs[0]; w.Opcode != verbs.WCRecvWriteImm || w.Imm != 9 || w.Flags != verbs.WCWithImm {
			r.t.Fatalf("%+v", w)
		}
		r.wantDone("r5 ok/300")
		r.wantSent("ACK 4")
		if r.lastMSN() != 2 {
			r.t.Fatalf("MSN %d", r.lastMSN())
		}
	})
}

// READ: FIRST and LAST around MIDDLEs at the path MTU, AETH with the MSN on
// all but MIDDLE; the PSNs are the request's.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		n    int
		want string
	}{
		{0, "READ_RESP_ONLY 0/0"},
		{1, "READ_RESP_ONLY 0/1"},
		{256, "READ_RESP_ONLY 0/256"},
		{257, "READ_RESP_FIRST 0/256, READ_RESP_LAST 1/1"},
		{770, "READ_RESP_FIRST 0/256, READ_RESP_MIDDLE 1/256, READ_RESP_MIDDLE 2/256, READ_RESP_LAST 3/2"},
	} {
		rule(t, func(r *raw) {
			r.reqTo(bth.RCReadReq, 0, make([]byte, c.n), 5)
			r.wantSent(c.want)
			var got []byte
			for _, p := range r.pkts {
				got = append(got, p.Payload...)
				if p.Info().Ext&bth.ExtAETH != 0 && (p.MSN != 1 || p.Syndrome != bth.AckUnlimited) {
					r.t.Fatalf("%+v", p)
				}
			}
			if !bytes.Equal(got, r.mem[5:5+c.n]) {
				r.t.Fatal("data differ")
			}
			r.req(bth.RCWriteOnly, max(1, (c.n+255)/256), nil)
			r.sent()
			if r.lastMSN() != 2 {
				r.t.Fatalf("MSN %d", r.lastMSN())
			}
		})
	}
}

// B60 at the responder: operands are big-endian on the wire, memory is in host
// order.
func TestAtomics(t *testing.T) {
	const v = 0x0102030405060708
	rule(t, func(r *raw) {
		word := r.mem[64:72]
		binary.NativeEndian.PutUint64(word, v)
		op := func(o bth.Opcode, off int, compare, swapAdd uint64) {
			p := r.packet(o, off, nil)
			p.VA, p.Compare, p.SwapAdd = r.reg.IOVA+64, compare, swapAdd
			b := make([]byte, o.Info().HdrLen+bth.ICRCLen)
			p.MigReq, p.PKey, p.DestQP = true, 0xffff, 0x11
			p.PutHeaders(b)
			if why := bth.Parse(b, &p); why != trace.None {
				r.t.Fatal(why)
			}
			r.qp.HandlePacket(r.now, &p)
		}
		value := func(want uint64) {
			r.t.Helper()
			if got := binary.NativeEndian.Uint64(word); got != want {
				r.t.Fatalf("memory holds %#x, want %#x", got, want)
			}
		}
		op(bth.RCFetchAdd, 0, 0, 1)
		value(v + 1)
		r.wantSent(fmt.Sprintf("ATOMIC_ACK 0=%#x", uint64(v)))
		op(bth.RCCmpSwap, 1, v, 5) // not equal
		value(v + 1)
		r.wantSent(fmt.Sprintf("ATOMIC_ACK 1=%#x", uint64(v+1)))
		op(bth.RCCmpSwap, 2, v+1, v)
		value(v)
		op(bth.RCFetchAdd, 3, 0, ^uint64(0)) // minus one
		value(v - 1)
		r.wantSent(fmt.Sprintf("ATOMIC_ACK 2=%#x", uint64(v+1)), fmt.Sprintf("ATOMIC_ACK 3=%#x", uint64(v)))
		if r.lastMSN() != 4 {
			r.t.Fatalf("MSN %d", r.lastMSN())
		}
	})
}

// B28, B59: zero length needs no key, wherever it is legal, and takes one PSN.
func TestZeroLength(t *testing.T) {
	rule(t, func(r *raw) {
		r.postRecv(1, 0, 0)
		r.recv(verbs.RecvWR{ID: 2, SGL: []verbs.SGE{{Addr: 1, Length: 8, LKey: 0xbad}}})
		r.postRecv(3, 0, 8)
		for i, op := range []bth.Opcode{bth.RCSendOnly, bth.RCSendOnlyImm, bth.RCWriteOnly, bth.RCWriteOnlyImm, bth.RCReadReq} {
			p := r.packet(op, i, nil)
			p.VA, p.RKey = ^uint64(0), 0xbad
			r.in(p)
		}
		r.wantDone("r1 ok/0, r2 ok/0, r3 ok/0")
		r.wantSent("READ_RESP_ONLY 4/0")
		if r.lastMSN() != 5 {
			r.t.Fatalf("MSN %d", r.lastMSN())
		}
		r.wantState(verbs.StateRTS)
	})
}

// An ACK only for what asks for one; one ACK for all that wait (C9-116).
func TestAcks(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 3 {
			p := r.packet(bth.RCWriteOnly, i, bytesOf(4, 0))
			p.AckReq = i == 1
			r.in(p)
		}
		r.wantSent("ACK 1")
		r.req(bth.RCWriteOnly, 3, nil)
		r.req(bth.RCWriteOnly, 4, nil)
		r.wantSent("ACK 4")
		// Responses leave in the order of their PSNs; one of a READ is as
		// good as an ACK of what came before it.
		r.req(bth.RCWriteOnly, 5, nil)
		r.reqTo(bth.RCReadReq, 6, make([]byte, 300), 0)
		r.req(bth.RCWriteOnly, 8, nil)
		r.wantSent("READ_RESP_FIRST 6/256, READ_RESP_LAST 7/44, ACK 8")
		r.req(bth.RCWriteOnly, 9, nil)
		r.reqTo(bth.RCReadReq, 10, make([]byte, 4), 0)
		r.wantSent("READ_RESP_ONLY 10/4")
	})
}

// B32: one sequence NAK for a gap, with the expected PSN; what is beyond it is
// dropped. The expected packet ends the silence.
func TestSequenceNak(t *testing.T) {
	rule(t, func(r *raw) {
		r.req(bth.RCWriteOnly, 0, bytesOf(4, 1))
		r.sent()
		before := append([]byte{}, r.mem...)
		for _, off := range []int{2, 3, 5, 2} {
			r.reqTo(bth.RCWriteOnly, off, bytesOf(4, 9), 0)
		}
		r.wantSent("NAK60 1")
		if !bytes.Equal(before, r.mem) {
			r.t.Fatal("a packet beyond the gap was executed")
		}
		r.reqTo(bth.RCReadReq, 4, make([]byte, 4), 0)
		r.wantSent("")
		r.req(bth.RCWriteOnly, 1, nil)
		r.wantSent("ACK 1")
		r.req(bth.RCWriteOnly, 3, nil)
		r.req(bth.RCWriteOnly, 4, nil)
		r.wantSent("NAK60 2")
		// A repeat says that the requester went back: a gap again is news.
		r.req(bth.RCWriteOnly, 1, nil)
		r.req(bth.RCWriteOnly, 3, nil)
		r.wantSent("NAK60 2") // which acknowledges PSN 1 as well
		if n := r.qp.Counts()[trace.NoteSequenceNAK]; n != 3 {
			r.t.Fatalf("%d NAKs counted", n)
		}
	})
	rule(t, func(r *raw) { // a gap inside a message, and inside a READ's PSNs
		p := r.packet(bth.RCWriteFirst, 0, bytesOf(256, 1))
		p.DMALen = 600
		r.in(p)
		r.req(bth.RCWriteLast, 2, bytesOf(88, 1))
		r.wantSent("NAK60 1")
		r.req(bth.RCWriteMiddle, 1, bytesOf(256, 1))
		r.req(bth.RCWriteLast, 2, bytesOf(88, 1))
		r.wantSent("ACK 2")
		r.reqTo(bth.RCReadReq, 3, make([]byte, 600), 0)
		r.req(bth.RCWriteOnly, 7, nil)
		r.wantSent("READ_RESP_FIRST 3/256, READ_RESP_MIDDLE 4/256, READ_RESP_LAST 5/88, NAK60 6")
	})
}

// RNR: the first packet of a SEND, only the last of a WRITE with immediate,
// finds no receive request. The expected PSN stays; what follows is dropped.
func TestRNR(t *testing.T) {
	rule(t, func(r *raw) {
		data := bytesOf(300, 1)
		r.req(bth.RCSendFirst, 0, data[:256])
		r.req(bth.RCSendLast, 1, data[256:])
		r.wantSent("RNR12 0")
		r.postRecv(1, 0, 300)
		r.req(bth.RCSendLast, 1, data[256:])
		r.wantSent("") // still beyond
		r.req(bth.RCSendFirst, 0, data[:256])
		r.req(bth.RCSendLast, 1, data[256:])
		r.wantDone("r1 ok/300")
		r.wantSent("ACK 1")

		p := r.packet(bth.RCWriteFirst, 2, data[:256])
		p.DMALen = 300
		r.in(p)
		r.wantSent("ACK 2")
		r.req(bth.RCWriteLastImm, 3, data[256:])
		r.wantSent("RNR12 3")
		r.req(bth.RCWriteLastImm, 3, data[256:])
		r.wantSent("RNR12 3") // asked again, refused again
		r.postRecv(2, 0, 0)
		r.req(bth.RCWriteLastImm, 3, data[256:])
		r.wantDone("r2 ok/300")
		r.wantSent("ACK 3")
		r.req(bth.RCWriteOnlyImm, 4, nil)
		r.wantSent("RNR12 4")
		if r.lastMSN() != 2 {
			r.t.Fatalf("MSN %d", r.lastMSN())
		}
	})
	r := newRaw(t, 100, func(a *verbs.QPAttr) { a.MinRNRTimer = 0 }) // B75
	r.req(bth.RCSendOnly, 0, nil)
	r.wantSent("RNR0 0")
	r.req(bth.RCSendOnly, 0, nil)
	r.postRecv(1, 0, 0)
	r.req(bth.RCSendOnly, 0, nil) // came before the RNR NAK left
	r.wantSent("ACK 0")
}

// B47: max_dest_rd_atomic READs and atomics at once; one more is refused. An
// answered one makes room, and a repeat of it, even one the link did not take,
// does not take that away.
func TestTooManyReads(t *testing.T) {
	depth := func(n int) func(a *verbs.QPAttr) { return func(a *verbs.QPAttr) { a.MaxDestRdAtomic = n } }
	for _, n := range []int{0, 1, 4} {
		rule(t, func(r *raw) {
			for i := range n {
				r.reqTo(bth.RCReadReq, i, make([]byte, 4), 0)
			}
			r.reqTo(bth.RCReadReq, n, make([]byte, 4), 0)
			got := r.sent()
			var want string
			for i := range n {
				want += fmt.Sprintf("READ_RESP_ONLY %d/4, ", i)
			}
			if want += fmt.Sprintf("NAK61 %d", n); got != want {
				r.t.Fatalf("sent %q, want %q", got, want)
			}
			r.wantState(verbs.StateErr)
		}, depth(n))
	}
	rule(t, func(r *raw) {
		for i := range 2 {
			r.reqTo(bth.RCReadReq, i, make([]byte, 4), 0)
		}
		r.sent()
		r.reqTo(bth.RCReadReq, 0, make([]byte, 4), 0)
		r.burst.Reset(nil, 0, 0)
		r.qp.Fill(0, r.burst)
		r.qp.Sent(r.burst, 0)
		r.reqTo(bth.RCReadReq, 2, make([]byte, 4), 0)
		r.wantState(verbs.StateRTS)
		r.wantSent("READ_RESP_ONLY 2/4")
	}, depth(2))
	rule(t, func(r *raw) { // but one whose only answer did not leave counts
		r.reqTo(bth.RCReadReq, 0, make([]byte, 4), 0)
		r.burst.Reset(nil, 0, 0)
		r.qp.Fill(0, r.burst)
		r.qp.Sent(r.burst, 0)
		r.reqTo(bth.RCReadReq, 1, make([]byte, 4), 0)
		r.wantSent("READ_RESP_ONLY 0/4, NAK61 1")
	}, depth(1))
}

// B72 and the liberal side: MigReq either way, FECN, BECN, and any P_Key and
// destination, which are others' business.
func TestLiberal(t *testing.T) {
	r := newRaw(t, 100)
	p := r.packet(bth.RCWriteOnly, 0, bytesOf(4, 1))
	p.FECN, p.BECN = true, true
	r.qp.HandlePacket(0, &p)
	p.PSN, p.MigReq = r.psn(1), true
	r.qp.HandlePacket(0, &p)
	r.wantSent("ACK 1")
}

// Responses that the link did not take leave later, unchanged, in order,
// however several bursts come back.
func TestUnsendResponses(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		for first := range 3 {
			rule(t, func(r *raw) {
				r.req(bth.RCWriteOnly, 0, nil)
				r.reqTo(bth.RCReadReq, 1, make([]byte, 600), 0)
				r.req(bth.RCFetchAdd, 4, nil)
				r.req(bth.RCWriteOnly, 5, nil)
				r.req(bth.RCWriteOnly, 7, nil)
				all := []string{"READ_RESP_FIRST 1/256", "READ_RESP_MIDDLE 2/256", "READ_RESP_LAST 3/88", "ATOMIC_ACK 4", "NAK60 6"}
				bs := r.bursts(3, 2)
				for _, k := range order {
					cut := 0
					if k == 0 {
						cut = min(first, bs[0].Len())
					}
					r.qp.Sent(bs[k], cut)
				}
				r.sent()
				if len(r.pkts) != len(all)-first {
					r.t.Fatalf("%d packets again: %s", len(r.pkts), r.texts())
				}
				for i, p := range r.pkts {
					if got, want := r.text(p), all[first+i]; got != want && got[:10] != want[:10] {
						r.t.Errorf("packet %d is %s, want %s", i, got, want)
					}
				}
				r.wantSent("")
			})
		}
	}
}
