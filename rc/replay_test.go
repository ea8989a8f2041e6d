package rc

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// A SEND or WRITE that comes again is acknowledged again, with the latest PSN
// and MSN, and not executed.
func TestDuplicateSendWrite(t *testing.T) {
	rule(t, func(r *raw) {
		r.postRecv(1, 100, 64)
		r.postRecv(2, 200, 64)
		r.req(bth.RCSendOnly, 0, bytesOf(8, 1))
		r.reqTo(bth.RCWriteOnly, 1, bytesOf(8, 1), 300)
		r.wantSent("ACK 1")
		r.wantDone("r1 ok/8")
		before := append([]byte{}, r.mem...)
		r.req(bth.RCSendOnly, 0, bytesOf(8, 50))
		r.wantSent("ACK 1")
		if r.lastMSN() != 2 {
			r.t.Fatalf("MSN %d", r.lastMSN())
		}
		r.reqTo(bth.RCWriteOnly, 1, bytesOf(8, 50), 300)
		r.wantSent("ACK 1")
		p := r.packet(bth.RCWriteOnly, 1, nil)
		p.AckReq = false
		r.in(p)
		r.wantSent("")
		if !bytes.Equal(before, r.mem) {
			r.t.Fatal("a duplicate changed memory")
		}
		r.wantDone("")
		r.req(bth.RCSendOnly, 2, bytesOf(8, 2)) // the second receive request is still there
		r.wantDone("r2 ok/8")
	})
}

// Errors in a duplicate are not reported.
func TestDuplicateWithErrors(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 4 {
			r.req(bth.RCWriteOnly, i, nil)
		}
		r.sent()
		for _, c := range []func(p *bth.Packet){
			func(p *bth.Packet) { p.RKey++ },
			func(p *bth.Packet) { p.VA = ^uint64(0) - 3 },
			func(p *bth.Packet) { p.DMALen = 1 << 31 },
			func(p *bth.Packet) { p.Opcode = bth.RCSendMiddle },
			func(p *bth.Packet) { p.Pad = 3 },
			func(p *bth.Packet) { p.Opcode = bth.RCReadReq; p.Payload = nil; p.VA = ^uint64(0) - 3; p.DMALen = 8 },
			func(p *bth.Packet) { p.Opcode = bth.RCFetchAdd; p.VA++ },
			func(p *bth.Packet) { p.Opcode = bth.RCFlush },
			func(p *bth.Packet) { p.Opcode = bth.RCSendOnlyInv },
		} {
			p := r.packet(bth.RCWriteOnly, 1, bytesOf(4, 4))
			p.AckReq = false
			c(&p)
			r.in(p)
			r.wantSent("")
			r.wantState(verbs.StateRTS)
		}
	})
}

// An ACK of a duplicate does not speak for a READ or atomic behind it, whose
// own response may be lost.
func TestDuplicateBeforeRead(t *testing.T) {
	rule(t, func(r *raw) {
		r.req(bth.RCWriteOnly, 0, nil)
		r.req(bth.RCWriteOnly, 1, nil)
		r.reqTo(bth.RCReadReq, 2, make([]byte, 300), 0)
		r.req(bth.RCWriteOnly, 4, nil)
		r.req(bth.RCFetchAdd, 5, nil)
		r.req(bth.RCWriteOnly, 6, nil)
		r.sent()
		r.req(bth.RCWriteOnly, 0, nil)
		r.wantSent("ACK 1")
		r.req(bth.RCWriteOnly, 4, nil)
		r.wantSent("ACK 4")
		r.req(bth.RCWriteOnly, 6, nil)
		r.wantSent("ACK 6")
		// The READ's answer before the ACK of what is behind it.
		r.reqTo(bth.RCReadReq, 2, make([]byte, 300), 0)
		r.req(bth.RCWriteOnly, 4, nil)
		r.wantSent("READ_RESP_FIRST 2/256, READ_RESP_LAST 3/44, ACK 4")
		// A later ACK that waits is not put back.
		r.req(bth.RCWriteOnly, 7, nil)
		r.req(bth.RCWriteOnly, 0, nil)
		r.wantSent("ACK 7")
		r.req(bth.RCWriteOnly, 8, nil)
		b := r.bursts(1, 8)[0]
		r.req(bth.RCWriteOnly, 9, nil)
		r.qp.Sent(b, 0)
		r.wantSent("ACK 9")
	})
}

// B20: an atomic that comes again is not executed; its saved value is sent,
// also with other requests between and after, as long as it is within the
// depth. Beyond it there is silence.
func TestDuplicateAtomic(t *testing.T) {
	rule(t, func(r *raw) {
		word := r.mem[:8]
		binary.NativeEndian.PutUint64(word, 40)
		add := func(off int) {
			p := r.packet(bth.RCFetchAdd, off, nil)
			p.SwapAdd = 1
			r.in(p)
		}
		add(0)
		r.wantSent("ATOMIC_ACK 0=0x28")
		add(0)
		r.wantSent("ATOMIC_ACK 0=0x28")
		r.reqTo(bth.RCWriteOnly, 1, bytesOf(8, 0), 64)
		r.reqTo(bth.RCReadReq, 2, make([]byte, 8), 64)
		add(3)
		r.sent()
		add(0)
		add(3)
		r.wantSent("ATOMIC_ACK 0=0x28, ATOMIC_ACK 3=0x29")
		if v := binary.NativeEndian.Uint64(word); v != 42 {
			r.t.Fatalf("executed %d times", v-40)
		}
		add(4)
		add(5) // the fifth: 0 is forgotten
		r.sent()
		if r.lastMSN() != 6 {
			r.t.Fatalf("MSN %d", r.lastMSN())
		}
		drops := r.qp.Counts()[trace.DropDuplicate]
		add(0)
		r.wantSent("")
		if n := r.qp.Counts()[trace.DropDuplicate]; n != drops+1 {
			r.t.Fatalf("duplicate_dropped is %d", n)
		}
		add(3)
		r.wantSent("ATOMIC_ACK 3=0x29")
		if v := binary.NativeEndian.Uint64(word); v != 44 {
			r.t.Fatalf("%d", v)
		}
	})
}

// A READ that comes again is executed again, wholly or from a packet on, if it
// lies within what it was. Memory is read anew.
func TestDuplicateRead(t *testing.T) {
	rule(t, func(r *raw) {
		r.reqTo(bth.RCReadReq, 0, make([]byte, 900), 50)
		const all = "READ_RESP_FIRST 0/256, READ_RESP_MIDDLE 1/256, READ_RESP_MIDDLE 2/256, READ_RESP_LAST 3/132"
		r.wantSent(all)
		r.reqTo(bth.RCReadReq, 0, make([]byte, 900), 50)
		r.wantSent(all)
		r.mem[50+512] ^= 0xff
		r.reqTo(bth.RCReadReq, 2, make([]byte, 900-512), 50+512)
		r.wantSent("READ_RESP_FIRST 2/256, READ_RESP_LAST 3/132")
		if !bytes.Equal(r.pkts[0].Payload, r.mem[50+512:50+768]) {
			r.t.Fatal("data differ")
		}
		if r.lastMSN() != 1 {
			r.t.Fatalf("MSN %d", r.lastMSN())
		}
		r.reqTo(bth.RCReadReq, 3, make([]byte, 132), 50+768)
		r.wantSent("READ_RESP_ONLY 3/132")
		r.reqTo(bth.RCReadReq, 1, make([]byte, 256), 50+256) // a part
		r.wantSent("READ_RESP_ONLY 1/256")
		for _, c := range []struct{ off, n, at int }{{0, 901, 50}, {1, 900 - 255, 50 + 256}, {1, 10, 50}, {2, 10, 50 + 511}, {0, 900, 49}, {0, 1 << 20, 50}} {
			r.reqTo(bth.RCReadReq, c.off, make([]byte, c.n), c.at)
			r.wantSent("")
		}
		p := r.packet(bth.RCReadReq, 0, make([]byte, 900))
		p.VA += 50
		p.RKey = r.region(mr.Region{PD: 1, IOVA: r.reg.IOVA, Mem: r.mem, Access: verbs.AccessAll}).Key // not the key it had
		r.in(p)
		r.wantSent("")
		r.wantState(verbs.StateRTS)
		// The answer in progress starts over.
		r.reqTo(bth.RCReadReq, 0, make([]byte, 900), 50)
		r.bursts(1, 2)
		r.reqTo(bth.RCReadReq, 1, make([]byte, 900-256), 50+256)
		r.wantSent("READ_RESP_FIRST 1/256, READ_RESP_MIDDLE 2/256, READ_RESP_LAST 3/132")
		// Other requests between.
		for i := range 3 {
			r.reqTo(bth.RCReadReq, 4+i, make([]byte, 4), 0)
		}
		r.sent()
		r.reqTo(bth.RCReadReq, 0, make([]byte, 900), 50)
		r.wantSent(all)
		r.reqTo(bth.RCReadReq, 7, make([]byte, 4), 0)
		r.sent()
		r.reqTo(bth.RCReadReq, 0, make([]byte, 900), 50)
		r.wantSent("") // out of the depth
	})
}

// A key withdrawn: a READ that comes again is dropped, one whose answer has
// begun ends in a NAK of the packet it could not send.
func TestReadKeyWithdrawn(t *testing.T) {
	rule(t, func(r *raw) {
		r.reqTo(bth.RCReadReq, 0, make([]byte, 4), 0)
		r.sent()
		r.reqTo(bth.RCReadReq, 1, make([]byte, 1000), 0)
		r.bursts(1, 2)
		if err := r.mrs.Deregister(r.reg.Key); err != nil {
			r.t.Fatal(err)
		}
		r.reqTo(bth.RCReadReq, 0, make([]byte, 4), 0)
		r.wantSent("NAK62 3")
		r.wantState(verbs.StateErr)
		if e := r.qp.TakeEvents(); e&transport.EventAccess == 0 {
			r.t.Fatalf("events %b", e)
		}
		r.wantSent("")
	})
}

// Among replies of one PSN, 2^24 packets apart, the newest is meant.
func TestReplyOfLastLap(t *testing.T) {
	r := newRaw(t, 100)
	add := func() {
		p := r.packet(bth.RCFetchAdd, 0, nil)
		p.SwapAdd = 1
		r.in(p)
	}
	binary.NativeEndian.PutUint64(r.mem, 7)
	add()
	r.wantSent("ATOMIC_ACK 0=0x7")
	r.qp.resp.epsn = r.psn(0) // a lap later
	add()
	r.wantSent("ATOMIC_ACK 0=0x8")
	add()
	r.wantSent("ATOMIC_ACK 0=0x8")
}

// A lap of single packets: every PSN is once expected, once a duplicate, once
// beyond, and the window of duplicates is 2^23 wide.
func TestPSNWindow(t *testing.T) {
	r := newRaw(t, 0)
	for _, c := range []struct {
		off  int
		want string
	}{{1, "NAK60 0"}, {1<<23 - 1, ""}, {-1, "ACK -1"}, {-1 << 23, "ACK -1"}, {-5, "ACK -1"}} {
		r.req(bth.RCWriteOnly, c.off, nil)
		r.wantSent(c.want)
	}
}
