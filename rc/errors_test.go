package rc

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// region registers another region and returns it.
func (r *raw) region(g mr.Region) *mr.Region {
	r.t.Helper()
	p, err := r.mrs.Register(g)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// fault is a request that must be refused.
type fault struct {
	name string
	nak  string
	recv string // completions of the send and two receive requests that wait; "" is flushed
	ev   transport.Events
	pkts func(r *raw) []bth.Packet // the last is the one refused, the others are good
	attr func(a *verbs.QPAttr)
}

const flushed = "7 FLUSH, r1 FLUSH, r2 FLUSH"

// with returns one packet from op on, changed by f.
func with(op bth.Opcode, n int, f func(r *raw, p *bth.Packet)) func(r *raw) []bth.Packet {
	return func(r *raw) []bth.Packet {
		p := r.packet(op, 0, bytesOf(n, 1))
		if op == bth.RCReadReq {
			p.DMALen = uint32(n)
		}
		f(r, &p)
		return []bth.Packet{p}
	}
}

// after returns a good first packet and a second one.
func after(first, op bth.Opcode, n int, f func(p *bth.Packet)) func(r *raw) []bth.Packet {
	return func(r *raw) []bth.Packet {
		a, b := r.packet(first, 0, bytesOf(256, 1)), r.packet(op, 1, bytesOf(n, 2))
		a.DMALen, a.AckReq = 600, false
		f(&b)
		return []bth.Packet{a, b}
	}
}

func keep(*bth.Packet) {}

var faults = []fault{
	// 0x62: what the region says. B05, B40, B41.
	{name: "wrong rkey, WRITE", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteOnly, 4, func(r *raw, p *bth.Packet) { p.RKey ^= 1 })},
	{name: "wrong rkey, WRITE_FIRST", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteFirst, 256, func(r *raw, p *bth.Packet) { p.RKey, p.DMALen = 0, 600 })},
	{name: "wrong rkey, WRITE_IMM", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteOnlyImm, 4, func(r *raw, p *bth.Packet) { p.RKey ^= 1 << 31 })},
	{name: "wrong rkey, READ", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCReadReq, 4, func(r *raw, p *bth.Packet) { p.RKey ^= 1 })},
	{name: "wrong rkey, atomic", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCFetchAdd, 0, func(r *raw, p *bth.Packet) { p.RKey ^= 1 })},
	{name: "va+len wraps, WRITE", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteFirst, 256, func(r *raw, p *bth.Packet) { p.VA, p.DMALen = 0xfffffffffffffc00, 0x400 })},
	{name: "va+len wraps, READ", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCReadReq, 0x400, func(r *raw, p *bth.Packet) { p.VA = 0xfffffffffffffc00 })},
	{name: "va+len wraps into the region", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCReadReq, 0, func(r *raw, p *bth.Packet) { p.VA, p.DMALen = ^uint64(0)-0x4000_0000, 1<<31 })},
	{name: "one octet below", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteOnly, 4, func(r *raw, p *bth.Packet) { p.VA-- })},
	{name: "one octet beyond", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteOnly, 4, func(r *raw, p *bth.Packet) { p.VA += uint64(len(r.mem)) - 3 })},
	{name: "atomic beyond", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCCmpSwap, 0, func(r *raw, p *bth.Packet) { p.VA += uint64(len(r.mem)) })},
	{name: "message beyond, first packet within", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteFirst, 256, func(r *raw, p *bth.Packet) { p.VA += uint64(len(r.mem)) - 300; p.DMALen = 301 })},
	{name: "another domain", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteOnly, 4, func(r *raw, p *bth.Packet) {
		p.RKey = r.region(mr.Region{PD: 2, IOVA: r.reg.IOVA, Mem: r.mem, Access: verbs.AccessAll}).Key
	})},
	{name: "region without remote write", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCWriteOnly, 4, func(r *raw, p *bth.Packet) {
		p.RKey = r.region(mr.Region{PD: 1, IOVA: r.reg.IOVA, Mem: r.mem, Access: verbs.AccessAll &^ verbs.AccessRemoteWrite}).Key
	})},
	{name: "region without remote read", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCReadReq, 4, func(r *raw, p *bth.Packet) {
		p.RKey = r.region(mr.Region{PD: 1, IOVA: r.reg.IOVA, Mem: r.mem, Access: verbs.AccessAll &^ verbs.AccessRemoteRead}).Key
	})},
	{name: "region without remote atomic", nak: "NAK62", ev: transport.EventAccess, pkts: with(bth.RCFetchAdd, 0, func(r *raw, p *bth.Packet) {
		p.RKey = r.region(mr.Region{PD: 1, IOVA: r.reg.IOVA, Mem: r.mem, Access: verbs.AccessAll &^ verbs.AccessRemoteAtomic}).Key
	})},
	// 0x61: what the queue pair says.
	{name: "no remote write", nak: "NAK61", ev: transport.EventReqErr, attr: without(verbs.AccessRemoteWrite), pkts: with(bth.RCWriteOnly, 0, func(r *raw, p *bth.Packet) {})},
	{name: "no remote read", nak: "NAK61", ev: transport.EventReqErr, attr: without(verbs.AccessRemoteRead), pkts: with(bth.RCReadReq, 0, func(r *raw, p *bth.Packet) {})},
	{name: "no remote atomic", nak: "NAK61", ev: transport.EventReqErr, attr: without(verbs.AccessRemoteAtomic), pkts: with(bth.RCFetchAdd, 0, func(r *raw, p *bth.Packet) {})},
	{name: "misaligned atomic", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCFetchAdd, 0, func(r *raw, p *bth.Packet) { p.VA += 4 })},
	{name: "atomic aligned by address only", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCCmpSwap, 0, func(r *raw, p *bth.Packet) {
		p.RKey = r.region(mr.Region{PD: 1, IOVA: 0x8000, Mem: r.mem[1:], Access: verbs.AccessAll}).Key
		p.VA = 0x8000
	})},
	{name: "atomic aligned in memory only", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCCmpSwap, 0, func(r *raw, p *bth.Packet) {
		p.RKey = r.region(mr.Region{PD: 1, IOVA: 0x8000, Mem: r.mem[4:], Access: verbs.AccessAll}).Key
		p.VA = 0x8004
	})},
	{name: "FLUSH", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCFlush, 0, func(r *raw, p *bth.Packet) {})},
	{name: "ATOMIC_WRITE (B04)", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCAtomicWrite, 0, func(r *raw, p *bth.Packet) {})},
	// 0x61: lengths and pads, and path MTUs that differ (B78).
	{name: "SEND_FIRST shorter than the path MTU", nak: "NAK61", recv: flushed, ev: transport.EventReqErr, pkts: with(bth.RCSendFirst, 128, func(r *raw, p *bth.Packet) {})},
	{name: "SEND_FIRST longer", nak: "NAK61", recv: flushed, ev: transport.EventReqErr, pkts: with(bth.RCSendFirst, 1024, func(r *raw, p *bth.Packet) {})},
	{name: "SEND_FIRST empty", nak: "NAK61", recv: flushed, ev: transport.EventReqErr, pkts: with(bth.RCSendFirst, 0, func(r *raw, p *bth.Packet) {})},
	{name: "SEND_ONLY longer", nak: "NAK61", recv: flushed, ev: transport.EventReqErr, pkts: with(bth.RCSendOnly, 260, func(r *raw, p *bth.Packet) {})},
	{name: "SEND_MIDDLE shorter", nak: "NAK61", recv: flushed, ev: transport.EventReqErr, pkts: after(bth.RCSendFirst, bth.RCSendMiddle, 252, keep)},
	{name: "SEND_LAST empty", nak: "NAK61", recv: flushed, ev: transport.EventReqErr, pkts: after(bth.RCSendFirst, bth.RCSendLast, 0, keep)},
	{name: "SEND_LAST longer", nak: "NAK61", recv: flushed, ev: transport.EventReqErr, pkts: after(bth.RCSendFirst, bth.RCSendLast, 257, keep)},
	{name: "pad too much", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCWriteOnly, 4, func(r *raw, p *bth.Packet) { p.Pad = 1 })},
	{name: "pad missing", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCWriteOnly, 5, func(r *raw, p *bth.Packet) { p.Pad = 0 })},
	{name: "pad on a READ", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCReadReq, 4, func(r *raw, p *bth.Packet) { p.Pad = 2 })},
	{name: "READ with payload", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCReadReq, 4, func(r *raw, p *bth.Packet) { p.Payload = bytesOf(4, 0) })},
	{name: "atomic with payload", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCFetchAdd, 0, func(r *raw, p *bth.Packet) { p.Payload = bytesOf(4, 0) })},
	{name: "WRITE_ONLY of another length", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCWriteOnly, 4, func(r *raw, p *bth.Packet) { p.DMALen = 5 })},
	{name: "WRITE_FIRST of one packet", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCWriteFirst, 256, func(r *raw, p *bth.Packet) { p.DMALen = 256 })},
	{name: "WRITE beyond 2^31", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCWriteFirst, 256, func(r *raw, p *bth.Packet) { p.DMALen = 1<<31 + 1 })},
	{name: "READ beyond 2^31", nak: "NAK61", ev: transport.EventReqErr, pkts: with(bth.RCReadReq, 0, func(r *raw, p *bth.Packet) { p.DMALen = 1<<31 + 1 })},
	{name: "WRITE_LAST too early", nak: "NAK61", ev: transport.EventReqErr, pkts: after(bth.RCWriteFirst, bth.RCWriteLast, 256, keep)},
	{name: "WRITE_LAST too long", nak: "NAK61", ev: transport.EventReqErr, pkts: func(r *raw) []bth.Packet {
		p := after(bth.RCWriteFirst, bth.RCWriteLast, 256, keep)(r)
		p[0].DMALen = 300
		return p
	}},
	{name: "WRITE_MIDDLE that would end it", nak: "NAK61", ev: transport.EventReqErr, pkts: func(r *raw) []bth.Packet {
		p := after(bth.RCWriteFirst, bth.RCWriteMiddle, 256, keep)(r)
		p[0].DMALen = 512
		return p
	}},
	// The receive request's own trouble.
	{name: "longer than the receive buffer", nak: "NAK61", recv: "r1 LOC_LEN, 7 FLUSH, r2 FLUSH", ev: transport.EventReqErr, pkts: with(bth.RCSendOnly, 201, func(r *raw, p *bth.Packet) {})},
	{name: "longer than the receive buffer, second packet", nak: "NAK61", recv: "r1 LOC_LEN, 7 FLUSH, r2 FLUSH", ev: transport.EventReqErr, pkts: after(bth.RCSendFirst, bth.RCSendLast, 45, keep)},
}

func without(x verbs.Access) func(a *verbs.QPAttr) { return func(a *verbs.QPAttr) { a.Access &^= x } }

// Every error of a request: exactly one NAK with the request's PSN behind the
// answers already due, the queue pair in ERR, receives flushed, one event,
// memory untouched, and nothing more of it when it comes again.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			rule(t, func(r *raw) {
				room := 200
				if len(f.pkts(r)) > 1 {
					room = 300
				} else if f.recv == flushed {
					room = 4096
				}
				r.postRecv(1, 1<<17, room)
				r.postRecv(2, 1<<17, room)
				pkts := f.pkts(r)
				r.post(7, verbs.WRSend, 4)
				for _, p := range pkts[:len(pkts)-1] {
					r.in(p)
				}
				r.wantDone("")
				before := append([]byte{}, r.mem...)
				bad := pkts[len(pkts)-1]
				r.in(bad)
				r.wantState(verbs.StateErr)
				want := f.recv
				if want == "" {
					want = flushed
				}
				r.wantDone(want)
				r.in(bad)
				r.wantSent(fmt.Sprintf("%s %d", f.nak, len(pkts)-1))
				r.in(bad)
				r.in(pkts[0])
				r.req(bth.RCWriteOnly, len(pkts), bytesOf(4, 0))
				r.wantSent("")
				r.wantDone("")
				if !bytes.Equal(before, r.mem) {
					r.t.Fatal("memory changed")
				}
				if e := r.qp.TakeEvents() &^ (transport.EventLastWQE | transport.EventCommEst); e != f.ev {
					r.t.Fatalf("events %b, want %b", e, f.ev)
				}
			}, func(a *verbs.QPAttr) {
				if f.attr != nil {
					f.attr(a)
				}
			})
		})
	}
}

// The region behind a receive request is wrong: 0x63, and the receive request
// tells (the reference's table of errors).
func TestReceiveKey(t *testing.T) {
	for name, sge := range map[string]func(r *raw) verbs.SGE{
		"wrong lkey":  func(r *raw) verbs.SGE { return verbs.SGE{Addr: r.reg.IOVA, Length: 64, LKey: r.reg.Key ^ 1} },
		"past region": func(r *raw) verbs.SGE { return r.sge(len(r.mem)-2, 64) },
		"no local write": func(r *raw) verbs.SGE {
			return verbs.SGE{Addr: 0x900000, Length: 64, LKey: r.region(mr.Region{PD: 1, IOVA: 0x900000, Mem: make([]byte, 64), Access: 0}).Key}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(r *raw) {
				r.recv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{r.sge(0, 2), sge(r)}})
				r.postRecv(2, 0, 64)
				before := append([]byte{}, r.mem...)
				r.req(bth.RCSendOnly, 0, bytesOf(10, 1))
				r.wantDone("r1 LOC_PROT, r2 FLUSH")
				r.wantSent("NAK63 0")
				r.wantState(verbs.StateErr)
				if !bytes.Equal(before, r.mem) {
					r.t.Fatal("memory changed")
				}
			})
		})
	}
}

// Answers that are due leave before the NAK that ends the queue pair, also
// when the link takes them in pieces.
func TestNakIsLast(t *testing.T) {
	rule(t, func(r *raw) {
		r.req(bth.RCWriteOnly, 0, nil)
		r.reqTo(bth.RCReadReq, 1, make([]byte, 600), 0)
		p := r.packet(bth.RCWriteOnly, 4, bytesOf(4, 1))
		p.RKey++
		r.in(p)
		b := r.bursts(1, 2)
		r.qp.Sent(b[0], 1)
		r.wantSent("READ_RESP_MIDDLE 2/256, READ_RESP_LAST 3/88, NAK62 4")
	})
	rule(t, func(r *raw) { // a NAK that the link did not take
		p := r.packet(bth.RCWriteOnly, 0, bytesOf(4, 1))
		p.RKey++
		r.in(p)
		r.qp.Sent(r.bursts(1, 2)[0], 0)
		r.wantSent("NAK62 0")
	})
	rule(t, func(r *raw) { // a local error is silent, also what comes back from the link
		r.reqTo(bth.RCReadReq, 0, make([]byte, 200), 0)
		b := r.bursts(1, 2)
		r.reqTo(bth.RCReadReq, 1, make([]byte, 200), 0)
		r.req(bth.RCWriteOnly, 2, nil)
		r.qp.Fail(r.now, trace.FailDevice)
		r.qp.Sent(b[0], 0)
		r.wantSent("")
	})
	rule(t, func(r *raw) { // a gap is not told any more
		r.req(bth.RCWriteOnly, 1, nil)
		b := r.bursts(1, 2)
		r.qp.Fail(r.now, trace.FailDevice)
		r.qp.Sent(b[0], 0)
		r.wantSent("")
	})
	rule(t, func(r *raw) { // but for an ACK alone: the program may have what it is for
		r.req(bth.RCWriteOnly, 0, nil)
		r.qp.Fail(r.now, trace.FailDevice)
		b := r.bursts(1, 2)
		r.wantSent("")
		r.qp.Sent(b[0], 0)
		r.wantSent("ACK 0")
	})
}

// Which opcodes may follow which: nothing begun, a SEND begun, a WRITE begun.
func TestOpcodeSequence(t *testing.T) {
	set := func(ops ...bth.Opcode) map[bth.Opcode]bool {
		m := map[bth.Opcode]bool{}
		for _, o := range ops {
			m[o] = true
		}
		return m
	}
	badKey := map[string]bth.Opcode{"nothing": bth.RCSendOnlyInv, "SEND": bth.RCSendLastInv} // of a key that there is not
	good := map[string]map[bth.Opcode]bool{
		"nothing": set(0x00, 0x04, 0x05, 0x06, 0x0a, 0x0b, 0x0c, 0x13, 0x14),
		"SEND":    set(0x01, 0x02, 0x03),
		"WRITE":   set(0x07, 0x08, 0x09),
	}
	requests := set(0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x16, 0x17, 0x1c, 0x1d)
	for begun, ok := range good {
		for o := range 256 {
			op := bth.Opcode(o)
			r := newRawMem(t, 0xffffff, 8192)
			r.postRecv(1, 0, 4096)
			r.postRecv(2, 0, 4096)
			off, n := 0, 256
			switch begun {
			case "SEND":
				r.req(bth.RCSendFirst, 0, bytesOf(256, 0))
				off = 1
			case "WRITE":
				p := r.packet(bth.RCWriteFirst, 0, bytesOf(256, 0))
				p.DMALen = 512
				switch op {
				case bth.RCWriteMiddle:
					p.DMALen = 2000
				}
				r.in(p)
				off = 1
			}
			r.sent()
			if !op.Valid() || !op.Info().Has(bth.HasPayload) {
				n = 0
			}
			p := r.packet(op, off, bytesOf(n, 0))
			if op == bth.RCWriteFirst {
				p.DMALen = 600
			}
			r.in(p)
			got := r.sent()
			switch {
			case !requests[op]:
				if got != "" || r.qp.State() != verbs.StateRTS {
					t.Errorf("%s, then %v: sent %q, state %v", begun, op, got, r.qp.State())
				}
			case ok[op]:
				if got == "" || r.qp.State() != verbs.StateRTS {
					t.Errorf("%s, then %v: sent %q, state %v", begun, op, got, r.qp.State())
				}
			case op == badKey[begun] && op != 0:
				if want := fmt.Sprintf("ACK %d", off); got != want || r.qp.State() != verbs.StateErr {
					t.Errorf("%s, then %v: sent %q, state %v", begun, op, got, r.qp.State())
				}
			default:
				if want := fmt.Sprintf("NAK61 %d", off); got != want || r.qp.State() != verbs.StateErr {
					t.Errorf("%s, then %v: sent %q, state %v", begun, op, got, r.qp.State())
				}
			}
		}
	}
}

// Octets in the receive ring that are no request: 0x63, and it tells.
func TestMalformedReceive(t *testing.T) {
	rule(t, func(r *raw) {
		r.postRecv(1, 0, 64)
		r.postRecv(2, 0, 64)
		r.recvMem[192] = 99 // entries of the first request
		r.req(bth.RCSendOnly, 0, bytesOf(10, 1))
		r.wantDone("r1 LOC_QP_OP, r2 FLUSH")
		r.wantSent("NAK63 0")
		r.wantState(verbs.StateErr)
	})
}
