package rc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// One ACK completes every SEND and WRITE up to its PSN, and no message of
// which a packet is missing.
func TestCoalescedAck(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 4 {
			r.post(uint64(i), verbs.WRWrite, 300)
		}
		r.sent()
		r.ack(4)
		r.wantDone("0 ok, 1 ok")
		r.ack(5)
		r.wantDone("2 ok")
		r.ack(7)
		r.wantDone("3 ok")
		r.wantSent("")
		if r.expire() != -1 {
			r.t.Fatal("a timer runs with nothing in flight")
		}
	})
}

// B25: WRITE 0, READ 1, WRITE 2; ACK 2 is an implied NAK of the READ: it is
// asked for again, and everything behind it. Completions stay in order.
func TestImpliedNak(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRWrite, 4)
		r.post(2, verbs.WRRead, 600)
		r.post(3, verbs.WRWrite, 4)
		r.wantSent("WRITE_ONLY 0/4!", "READ_REQ 1@7000+600!", "WRITE_ONLY 4/4!")
		r.ack(4)
		r.wantDone("1 ok")
		r.wantSent("READ_REQ 1@7000+600!", "WRITE_ONLY 4/4!")
		if n := r.qp.Counts()[trace.RetryImplied]; n != 1 { // B37
			r.t.Fatalf("implied_nak_seq_err is %d", n)
		}
		r.ack(4) // once for one loss
		r.wantSent("")
		r.resp(bth.RCReadRespFirst, 1, bytesOf(256, 1))
		// The next is lost: again from what is missing.
		r.resp(bth.RCReadRespLast, 3, bytesOf(88, 1))
		r.wantSent("READ_REQ 2@7256+344!", "WRITE_ONLY 4/4!")
		r.resp(bth.RCReadRespLast, 3, bytesOf(88, 1)) // awaited is 2
		r.ack(4)
		r.wantSent("")
		r.wantDone("")
		r.resp(bth.RCReadRespMiddle, 2, bytesOf(256, 2))
		r.resp(bth.RCReadRespLast, 3, bytesOf(88, 3))
		r.wantDone("2 ok")
		r.ack(4)
		r.wantDone("3 ok")
		want := append(append(bytesOf(256, 1), bytesOf(256, 2)...), bytesOf(88, 3)...)
		if !bytes.Equal(r.mem[:600], want) {
			r.t.Fatal("what was read differs")
		}
	})
}

// A response implies the acknowledgement of SENDs and WRITEs before it, and
// denies an unanswered atomic before it.
func TestResponseAcknowledges(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRFetchAdd, 8)
		r.post(3, verbs.WRRead, 8)
		r.sent()
		r.resp(bth.RCReadRespOnly, 2, bytesOf(8, 1))
		r.wantDone("1 ok")
		r.wantSent("FETCH_ADD 1!", "READ_REQ 2@7000+8!")
		r.atomicAck(1, 5)
		r.resp(bth.RCReadRespOnly, 2, bytesOf(8, 1))
		r.wantDone("2 ok, 3 ok")
	})
}

// NAK(p) acknowledges SENDs and WRITEs before p, and implicitly denies an
// unanswered READ before p, of which alone it then speaks.
func TestNakAcknowledgesBefore(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRWrite, 600)
		r.post(3, verbs.WRSend, 4)
		r.sent()
		r.nak(2, bth.NAKSequence)
		r.wantDone("1 ok")
		r.wantSent("WRITE_MIDDLE 2/256", "WRITE_LAST 3/88!", "SEND_ONLY 4/4!")
		r.nak(4, bth.NAKRemoteAccess)
		r.wantDone("2 ok, 3 REM_ACCESS")
	})
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRRead, 4)
		r.post(3, verbs.WRSend, 4)
		r.sent()
		r.nak(2, bth.NAKRemoteAccess)
		r.wantDone("1 ok")
		r.wantState(verbs.StateRTS)
		r.wantSent("READ_REQ 1@7000+4!", "SEND_ONLY 2/4!")
	})
}

// Each fatal NAK ends its request with its status, the rest is flushed, in
// both queues, oldest first.
func TestFatalNaks(t *testing.T) {
	for s, want := range map[bth.Syndrome]string{
		bth.NAKInvalidRequest: "REM_INV", bth.NAKRemoteAccess: "REM_ACCESS", bth.NAKRemoteOperational: "REM_OP",
	} {
		rule(t, func(r *raw) {
			for i := range 4 {
				r.post(uint64(i), verbs.WRSend, 4)
				r.postRecv(uint64(10+i), 0, 4)
			}
			r.sent()
			r.nak(1, s)
			r.wantDone(fmt.Sprintf("0 ok, 1 %s, 2 FLUSH, 3 FLUSH, r10 FLUSH, r11 FLUSH, r12 FLUSH, r13 FLUSH", want))
			r.wantState(verbs.StateErr)
			r.wantSent("")
		})
	}
}

// B38: ACKs of what was never sent or acknowledged long ago, reserved codes,
// ACKs with payload, responses of the wrong kind: counted, nothing else.
func TestGhosts(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 3 {
			r.post(uint64(i), verbs.WRSend, 4)
		}
		r.sent()
		r.ack(0)
		r.wantDone("0 ok")
		for _, off := range []int{-1, -5, 0, 3, 4, 1000, 1 << 22, -1 << 23} {
			r.ack(off)
			r.nak(off, bth.NAKSequence)
			r.nak(off, bth.NAKInvalidRequest)
			r.nak(off, bth.RNRNAK(1))
			r.resp(bth.RCReadRespOnly, off, nil)
			r.atomicAck(off, 1)
		}
		if n := r.qp.Counts()[trace.DropGhostAck]; n != 8*6 {
			r.t.Fatalf("ghost_ack is %d", n)
		}
		for s := range 256 {
			if s := bth.Syndrome(s); s&0x80 != 0 || s.Kind() == bth.KindReserved || s.Kind() == bth.KindNAK && s > bth.NAKRemoteOperational {
				r.nak(1, s)
				r.in(bth.Packet{Opcode: bth.RCReadRespOnly, PSN: r.psn(1), Syndrome: s})
				r.in(bth.Packet{Opcode: bth.RCAtomicAck, PSN: r.psn(1), Syndrome: s})
			}
		}
		if n := r.qp.Counts()[trace.DropReservedAck]; n != 3*(128+32+28) {
			r.t.Fatalf("reserved_aeth is %d", n)
		}
		r.in(bth.Packet{Opcode: bth.RCAck, PSN: r.psn(1), Syndrome: bth.AckUnlimited, Payload: bytesOf(4, 0)})
		r.resp(bth.RCReadRespOnly, 1, nil) // but 1 is a SEND
		r.atomicAck(1, 7)
		r.wantDone("")
		r.wantSent("")
		r.wantState(verbs.StateRTS)
		// A peer that says "no credits" has acknowledged all the same.
		r.in(bth.Packet{Opcode: bth.RCAck, PSN: r.psn(1), Syndrome: 0})
		r.wantDone("1 ok")
		r.ack(2)
		r.wantDone("2 ok")
	})
}

// A READ is done with its last response, an ACK of its PSNs does not do it.
// FIRST or MIDDLE, LAST or ONLY are equally good on a READ asked for again.
func TestReadResponses(t *testing.T) {
	first, middle, last, only := bth.RCReadRespFirst, bth.RCReadRespMiddle, bth.RCReadRespLast, bth.RCReadRespOnly
	for _, c := range []struct{ a, b, c bth.Opcode }{{first, middle, last}, {first, first, last}, {middle, middle, last}, {first, middle, only}, {middle, first, only}} {
		rule(t, func(r *raw) {
			r.post(1, verbs.WRRead, 600)
			r.sent()
			r.resp(c.a, 0, bytesOf(256, 1))
			r.resp(c.b, 1, bytesOf(256, 2))
			r.wantDone("")
			r.resp(c.c, 2, bytesOf(88, 3))
			r.wantDone("1 ok")
			if want := append(append(bytesOf(256, 1), bytesOf(256, 2)...), bytesOf(88, 3)...); !bytes.Equal(r.mem[:600], want) {
				r.t.Fatal("what was read differs")
			}
		})
	}
	rule(t, func(r *raw) { // zero length: one PSN, ONLY without payload
		r.post(1, verbs.WRRead, 0)
		r.wantSent("READ_REQ 0@7000+0!")
		r.ack(0)
		r.wantDone("")
		r.wantSent("READ_REQ 0@7000+0!")
		r.resp(only, 0, nil)
		r.wantDone("1 ok")
	})
}

// A response of the wrong length, as from a peer with another path MTU (B78),
// is an error and not a hang.
func TestReadResponseLength(t *testing.T) {
	first, middle, last, only := bth.RCReadRespFirst, bth.RCReadRespMiddle, bth.RCReadRespLast, bth.RCReadRespOnly
	for _, c := range []struct {
		op     bth.Opcode
		at, n  int
		length int
	}{
		{first, 0, 255, 600},
		{first, 0, 257, 600},
		{first, 0, 1024, 600},
		{first, 0, 0, 600},
		{last, 0, 88, 600},
		{only, 0, 256, 600},
		{middle, 1, 88, 600},
		{last, 1, 256, 600},
		{middle, 2, 88, 600},
		{last, 2, 87, 600},
		{last, 2, 89, 600},
		{last, 2, 0, 600},
		{only, 0, 1, 0},
		{first, 0, 0, 0},
		{first, 0, 256, 256},
		{only, 0, 255, 256},
	} {
		t.Run(fmt.Sprintf("%v %d/%d of %d", c.op, c.at, c.n, c.length), func(t *testing.T) {
			r := newRaw(t, 0xffffff)
			r.post(1, verbs.WRRead, c.length)
			r.post(2, verbs.WRRead, c.length)
			r.sent()
			for i := range c.at {
				r.resp(middle, i, bytesOf(256, 1))
			}
			before := append([]byte{}, r.mem[c.at*256:]...)
			r.resp(c.op, c.at, bytesOf(c.n, 1))
			r.wantDone("1 LOC_LEN, 2 FLUSH")
			if !bytes.Equal(before, r.mem[c.at*256:]) {
				t.Error("memory changed")
			}
		})
	}
}

// B60: an atomic's old value is big-endian on the wire and in host order in
// memory, also when the buffer is odd or in pieces.
func TestAtomicResult(t *testing.T) {
	const v = 0x0102030405060708
	var host [8]byte
	binary.NativeEndian.PutUint64(host[:], v)
	rule(t, func(r *raw) {
		for i, sgl := range [][]verbs.SGE{{r.sge(64, 8)}, {r.sge(129, 8)}, {r.sge(200, 3), r.sge(203, 5)}} {
			r.postWR(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRCmpSwap, Flags: verbs.SendSignaled, SGL: sgl, CompareAdd: v, Swap: v + 1})
			r.sent()
			wireForm := make([]byte, 40)
			r.pkts[0].PutHeaders(wireForm)
			if want := "0102030405060709" + "0102030405060708"; fmt.Sprintf("%x", wireForm[12+12:12+28]) != want {
				r.t.Fatalf("AtomicETH %x", wireForm[12:])
			}
			// As octets, so that the byte order is the wire's.
			resp := bth.Packet{Opcode: bth.RCAtomicAck, PSN: r.psn(i), Syndrome: bth.AckUnlimited, Orig: v}
			b := make([]byte, bth.RCAtomicAck.Info().HdrLen+bth.ICRCLen)
			resp.PutHeaders(b)
			if !bytes.Equal(b[16:24], []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
				r.t.Fatalf("AtomicAckETH %x", b[16:24])
			}
			if why := bth.Parse(b, &resp); why != trace.None {
				r.t.Fatal(why)
			}
			r.qp.HandlePacket(r.now, &resp)
			r.wantDone(fmt.Sprintf("%d ok", i))
			if at := []int{64, 129, 200}[i]; !bytes.Equal(r.mem[at:at+8], host[:]) {
				r.t.Fatalf("result %d: % x", i, r.mem[at:at+8])
			}
		}
	})
}

// The buffer of a READ or atomic was withdrawn before the answer came.
func TestBufferWithdrawn(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRead, verbs.WRFetchAdd} {
		r := newRaw(t, 100)
		g, err := r.mrs.Register(mr.Region{PD: 1, IOVA: 0x900000, Mem: make([]byte, 64), Access: verbs.AccessLocalWrite})
		if err != nil {
			t.Fatal(err)
		}
		r.postWR(verbs.SendWR{ID: 1, Opcode: op, SGL: []verbs.SGE{{Addr: g.IOVA, Length: 8, LKey: g.Key}}})
		r.sent()
		if err := r.mrs.Deregister(g.Key); err != nil {
			t.Fatal(err)
		}
		if op == verbs.WRRead {
			r.resp(bth.RCReadRespOnly, 0, bytesOf(8, 1))
		} else {
			r.atomicAck(0, 1)
		}
		r.wantDone("1 LOC_PROT")
		if !bytes.Equal(g.Mem, make([]byte, 64)) {
			t.Error("withdrawn memory changed")
		}
	}
}
