package uc

import (
	"bytes"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
)

// in is a packet that arrives: opcode, PSN, octets, and what is unusual.
type in struct {
	op     bth.Opcode
	off, n int
	change func(r *raw, p *bth.Packet)
}

func dma(n uint32) func(*raw, *bth.Packet) {
	return func(_ *raw, p *bth.Packet) { p.DMALen = n }
}

// Each packet sequence against what comes of it. Two receive requests of 600
// octets wait, 1 and 2; a third, of any length, is 3.
var sequences = []struct {
	name string
	in   []in
	done string
	lost uint64
	want enginetest.Counts
	recv int // receive requests posted: 2 when 0, none when negative
}{
	{name: "SEND of one packet", in: []in{{op: sendOnly, off: 0, n: 256}, {op: sendOnlyImm, off: 1, n: 3}}, done: "r1 ok/256, r2 ok/3i"},
	{name: "SEND of two packets", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendLast, off: 1, n: 1}}, done: "r1 ok/257"},
	{name: "SEND of three packets", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendMiddle, off: 1, n: 256}, {op: sendLastImm, off: 2, n: 88}}, done: "r1 ok/600i"},
	{name: "zero length of everything", in: []in{
		{op: sendOnly, off: 0},
		{op: writeOnly, off: 1, change: func(_ *raw, p *bth.Packet) { p.RKey, p.VA = 0, 1 }},
		{op: writeOnlyImm, off: 2, change: func(_ *raw, p *bth.Packet) { p.RKey = 5 }},
		{op: sendOnlyImm, off: 3},
	}, recv: 3, done: "r1 ok/0, r2 ok/0i, r3 ok/0i"},

	{name: "gap in the middle", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendLast, off: 2, n: 5}, {op: sendOnly, off: 3, n: 7}}, done: "r1 ok/7", lost: 1, want: enginetest.Counts{trace.DropOutOfOrder: 1}},
	{name: "gap in the middle, of a long message", in: []in{
		{op: sendFirst, off: 0, n: 256}, {op: sendMiddle, off: 2, n: 256}, {op: sendMiddle, off: 3, n: 256}, {op: sendLast, off: 4, n: 5}, {op: sendOnly, off: 5, n: 7},
	}, done: "r1 ok/7", lost: 1, want: enginetest.Counts{trace.DropOutOfOrder: 1, trace.DropMessage: 2}},
	{name: "gap at the start", in: []in{{op: sendMiddle, off: 1, n: 256}, {op: sendLast, off: 2, n: 9}, {op: sendOnly, off: 3, n: 7}}, done: "r1 ok/7", lost: 1, want: enginetest.Counts{trace.DropOutOfOrder: 1, trace.DropMessage: 1}},
	{name: "gap at the end", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendMiddle, off: 1, n: 256}, {op: sendOnly, off: 3, n: 7}}, done: "r1 ok/7", lost: 1},
	{name: "a message lost", in: []in{{op: sendOnly, off: 0, n: 4}, {op: sendFirst, off: 4, n: 256}, {op: sendLast, off: 5, n: 44}}, done: "r1 ok/4, r2 ok/300", lost: 3},
	{name: "the seam of two messages lost", in: []in{
		{op: sendFirst, off: 0, n: 256}, {op: sendLast, off: 3, n: 4}, {op: sendOnly, off: 4, n: 6},
	}, done: "r1 ok/6", lost: 2, want: enginetest.Counts{trace.DropOutOfOrder: 1}},
	{name: "what looks in order after the gap is no part of it", in: []in{
		{op: sendFirst, off: 0, n: 256}, {op: sendMiddle, off: 5, n: 256}, {op: sendLast, off: 6, n: 4},
	}, lost: 4, want: enginetest.Counts{trace.DropOutOfOrder: 1, trace.DropMessage: 1}},

	{name: "ONLY repeated", in: []in{{op: sendOnly, off: 0, n: 5}, {op: sendOnly, off: 0, n: 5}, {op: sendOnly, off: 1, n: 6}}, done: "r1 ok/5, r2 ok/6", want: enginetest.Counts{trace.DropDuplicate: 1}},
	{name: "FIRST and LAST repeated", in: []in{
		{op: sendFirst, off: 0, n: 256}, {op: sendFirst, off: 0, n: 256}, {op: sendLast, off: 1, n: 6}, {op: sendLast, off: 1, n: 6}, {op: sendFirst, off: 0, n: 256},
	}, done: "r1 ok/262", want: enginetest.Counts{trace.DropDuplicate: 3}},
	{name: "LAST overtakes", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendLast, off: 2, n: 5}, {op: sendMiddle, off: 1, n: 256}, {op: sendOnly, off: 3, n: 8}}, done: "r1 ok/8", lost: 1, want: enginetest.Counts{trace.DropOutOfOrder: 1, trace.DropDuplicate: 1}},
	{name: "the next message overtakes", in: []in{{op: sendOnly, off: 1, n: 5}, {op: sendOnly, off: 0, n: 6}, {op: sendOnly, off: 2, n: 7}}, done: "r1 ok/5, r2 ok/7", lost: 1, want: enginetest.Counts{trace.DropDuplicate: 1}},
	{name: "as late as can be", in: []in{{op: sendOnly, off: -late, n: 5}, {op: sendOnly, off: 0, n: 6}}, done: "r1 ok/6", want: enginetest.Counts{trace.DropDuplicate: 1}},
	{name: "beyond late, a message", in: []in{{op: sendOnly, off: -late - 1, n: 5}, {op: sendOnly, off: -late, n: 6}}, done: "r1 ok/5, r2 ok/6"},
	{name: "beyond late, in the middle of a message", in: []in{{op: sendMiddle, off: -late - 1, n: 256}, {op: sendOnly, off: 0, n: 6}}, done: "r1 ok/6", want: enginetest.Counts{trace.DropOutOfOrder: 1}},
	{name: "half the PSNs behind", in: []in{{op: sendOnly, off: -1 << 23, n: 5}, {op: sendOnly, off: -1<<23 + 1, n: 6}}, done: "r1 ok/5, r2 ok/6"},
	{name: "half the PSNs ahead", in: []in{{op: sendOnly, off: 1<<23 - 1, n: 5}}, done: "r1 ok/5", lost: 1<<23 - 1},

	{name: "FIRST in the middle of a message", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendFirst, off: 1, n: 256}, {op: sendLast, off: 2, n: 6}}, done: "r1 ok/262", want: enginetest.Counts{trace.FailOpcodeSeq: 1}},
	{name: "WRITE in the middle of a SEND", in: []in{{op: sendFirst, off: 0, n: 256}, {op: writeMiddle, off: 1, n: 256}, {op: sendLast, off: 2, n: 6}, {op: sendOnly, off: 3, n: 8}}, done: "r1 ok/8", want: enginetest.Counts{trace.FailOpcodeSeq: 1, trace.DropMessage: 1}},
	{name: "SEND in the middle of a WRITE", in: []in{{op: writeFirst, off: 0, n: 256, change: dma(300)}, {op: sendLast, off: 1, n: 44}, {op: writeLast, off: 2, n: 44}}, want: enginetest.Counts{trace.FailOpcodeSeq: 1, trace.DropMessage: 1}},
	{name: "WRITE_ONLY in the middle of a SEND", in: []in{{op: sendFirst, off: 0, n: 256}, {op: writeOnly, off: 1, n: 8}, {op: sendLast, off: 2, n: 6}}, want: enginetest.Counts{trace.FailOpcodeSeq: 1, trace.DropMessage: 1}},
	{name: "no beginning", in: []in{{op: sendMiddle, off: 0, n: 256}, {op: sendLast, off: 1, n: 6}, {op: writeLast, off: 2, n: 6}}, want: enginetest.Counts{trace.DropMessage: 3}},

	{name: "longer than the request, at once", in: []in{{op: sendOnly, off: 0, n: 256}}, recv: 1, want: enginetest.Counts{trace.DropTooLong: 1}},
	{name: "longer than the request, in the end", in: []in{
		{op: sendFirst, off: 0, n: 256}, {op: sendMiddle, off: 1, n: 256}, {op: sendLast, off: 2, n: 89}, {op: sendFirst, off: 3, n: 256}, {op: sendMiddle, off: 4, n: 256}, {op: sendLast, off: 5, n: 88},
	}, done: "r1 ok/600", want: enginetest.Counts{trace.DropTooLong: 1}},
	{name: "longer than the request, in the middle", in: []in{
		{op: sendFirst, off: 0, n: 256}, {op: sendMiddle, off: 1, n: 256}, {op: sendMiddle, off: 2, n: 256}, {op: sendMiddle, off: 3, n: 256}, {op: sendLast, off: 4, n: 4},
	}, want: enginetest.Counts{trace.DropTooLong: 1, trace.DropMessage: 2}},
	{name: "no request", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendMiddle, off: 1, n: 256}, {op: sendLast, off: 2, n: 1}, {op: sendOnly, off: 3, n: 1}}, recv: -1, want: enginetest.Counts{trace.DropNoRecv: 2, trace.DropMessage: 2}},
	{name: "no request for WRITE with immediate", in: []in{{op: writeFirst, off: 0, n: 256, change: dma(300)}, {op: writeLastImm, off: 1, n: 44}, {op: writeOnlyImm, off: 2, n: 4}}, recv: -1, want: enginetest.Counts{trace.DropNoRecv: 2}},

	{name: "a lost SEND's request for the next SEND", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendFirst, off: 2, n: 256}, {op: sendLast, off: 3, n: 9}, {op: sendOnly, off: 4, n: 2}}, done: "r1 ok/265, r2 ok/2", lost: 1},
	{name: "a lost SEND's request for WRITE with immediate", in: []in{{op: sendFirst, off: 0, n: 256}, {op: writeOnlyImm, off: 2, n: 9}, {op: sendOnly, off: 3, n: 2}}, done: "r1 ok/9i, r2 ok/2", lost: 1},
	{name: "a too long SEND's request for WRITE with immediate", in: []in{{op: sendOnly, off: 0, n: 256}, {op: writeOnlyImm, off: 1, n: 256}}, recv: 1, done: "r3 ok/256i", want: enginetest.Counts{trace.DropTooLong: 1}},

	{name: "WRITE", in: []in{{op: writeOnly, off: 0, n: 5}, {op: writeFirst, off: 1, n: 256, change: dma(513)}, {op: writeMiddle, off: 2, n: 256}, {op: writeLast, off: 3, n: 1}}},
	{name: "WRITE with immediate", in: []in{{op: writeOnlyImm, off: 0, n: 5}, {op: writeFirst, off: 1, n: 256, change: dma(513)}, {op: writeMiddle, off: 2, n: 256}, {op: writeLastImm, off: 3, n: 1}}, done: "r1 ok/5i, r2 ok/513i"},
	{name: "WRITE with a gap", in: []in{{op: writeFirst, off: 0, n: 256, change: dma(513)}, {op: writeLastImm, off: 2, n: 1}, {op: writeOnlyImm, off: 3, n: 1}}, done: "r1 ok/1i", lost: 1, want: enginetest.Counts{trace.DropOutOfOrder: 1}},

	{name: "FIRST shorter than the path MTU", in: []in{{op: sendFirst, off: 0, n: 128}, {op: sendLast, off: 1, n: 4}}, want: enginetest.Counts{trace.FailReqLength: 1, trace.DropMessage: 1}},
	{name: "FIRST longer than the path MTU", in: []in{{op: sendFirst, off: 0, n: 512}}, want: enginetest.Counts{trace.FailReqLength: 1}},
	{name: "MIDDLE shorter", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendMiddle, off: 1, n: 252}, {op: sendLast, off: 2, n: 4}}, want: enginetest.Counts{trace.FailReqLength: 1, trace.DropMessage: 1}},
	{name: "LAST empty", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendLast, off: 1, n: 0}, {op: sendOnly, off: 2, n: 3}}, done: "r1 ok/3", want: enginetest.Counts{trace.FailReqLength: 1}},
	{name: "LAST and ONLY longer", in: []in{{op: sendFirst, off: 0, n: 256}, {op: sendLast, off: 1, n: 257}, {op: sendOnly, off: 2, n: 260}}, want: enginetest.Counts{trace.FailReqLength: 2}},
	{name: "pad too much", in: []in{{op: sendOnly, off: 0, n: 4, change: func(_ *raw, p *bth.Packet) { p.Pad = 3 }}}, want: enginetest.Counts{trace.FailReqLength: 1}},
	{name: "pad missing", in: []in{{op: writeOnly, off: 0, n: 5, change: func(_ *raw, p *bth.Packet) { p.Pad = 0 }}}, want: enginetest.Counts{trace.FailReqLength: 1}},
	{name: "WRITE_ONLY of another length", in: []in{{op: writeOnly, off: 0, n: 5, change: dma(4)}}, want: enginetest.Counts{trace.FailReqLength: 1}},
	{name: "WRITE_FIRST of one packet", in: []in{{op: writeFirst, off: 0, n: 256, change: dma(256)}}, want: enginetest.Counts{trace.FailReqLength: 1}},
	{name: "WRITE beyond 2^31", in: []in{{op: writeFirst, off: 0, n: 256, change: dma(1<<31 + 1)}}, want: enginetest.Counts{trace.FailReqLength: 1}},
	{name: "WRITE_LAST too early, too long", in: []in{{op: writeFirst, off: 0, n: 256, change: dma(600)}, {op: writeLast, off: 1, n: 256}, {op: writeFirst, off: 2, n: 256, change: dma(300)}, {op: writeLast, off: 3, n: 256}}, want: enginetest.Counts{trace.FailReqLength: 2}},
	{name: "WRITE_MIDDLE that would end it", in: []in{{op: writeFirst, off: 0, n: 256, change: dma(512)}, {op: writeMiddle, off: 1, n: 256}}, want: enginetest.Counts{trace.FailReqLength: 1}},

	{name: "wrong rkey", in: []in{
		{op: writeOnly, off: 0, n: 4, change: func(_ *raw, p *bth.Packet) { p.RKey ^= 1 }},
		{op: writeFirst, off: 1, n: 256, change: func(_ *raw, p *bth.Packet) { p.RKey, p.DMALen = 0, 300 }},
		{op: writeLastImm, off: 2, n: 44},
		{op: writeOnlyImm, off: 3, n: 4, change: func(_ *raw, p *bth.Packet) { p.RKey ^= 1 << 31 }},
	}, want: enginetest.Counts{trace.FailAccess: 3, trace.DropMessage: 1}},
	{name: "out of range", in: []in{
		{op: writeOnly, off: 0, n: 4, change: func(_ *raw, p *bth.Packet) { p.VA-- }},
		{op: writeOnly, off: 1, n: 4, change: func(r *raw, p *bth.Packet) { p.VA += uint64(len(r.Mem)) - 3 }},
		{op: writeFirst, off: 2, n: 256, change: func(r *raw, p *bth.Packet) { p.VA, p.DMALen = p.VA+uint64(len(r.Mem))-300, 301 }},
		{op: writeFirst, off: 3, n: 256, change: func(_ *raw, p *bth.Packet) { p.VA, p.DMALen = 0xfffffffffffffc00, 0x400 }},
	}, want: enginetest.Counts{trace.FailAccess: 4}},
	{name: "region without remote write, of another domain", in: []in{
		{op: writeOnly, off: 0, n: 4, change: func(r *raw, p *bth.Packet) {
			p.RKey = r.Region(mr.Region{PD: 1, IOVA: r.Reg.IOVA, Mem: r.Mem, Access: verbs.AccessLocalWrite}).Key
		}},
		{op: writeOnly, off: 1, n: 4, change: func(r *raw, p *bth.Packet) {
			p.RKey = r.Region(mr.Region{PD: 2, IOVA: r.Reg.IOVA, Mem: r.Mem, Access: verbs.AccessAll}).Key
		}},
	}, want: enginetest.Counts{trace.FailAccess: 2}},
	{name: "key withdrawn within a WRITE", in: []in{
		{op: writeFirst, off: 0, n: 256, change: func(r *raw, p *bth.Packet) {
			p.RKey, p.DMALen = r.Region(mr.Region{PD: 1, IOVA: r.Reg.IOVA, Mem: r.Mem, Access: verbs.AccessAll}).Key, 600
			r.Reg = &mr.Region{Key: p.RKey, IOVA: r.Reg.IOVA}
		}},
		{op: writeMiddle, off: 1, n: 256},
		{op: writeLastImm, off: 2, n: 88, change: func(r *raw, _ *bth.Packet) { _ = r.Cfg.MRs.Deregister(r.Reg.Key) }},
		{op: sendOnly, off: 3, n: 10},
	}, done: "r1 ok/10", want: enginetest.Counts{trace.FailAccess: 1}},
	{name: "not of this service", in: []in{{op: bth.RCSendOnly, off: 0, n: 4}, {op: bth.UDSendOnly, off: 0, n: 4}, {op: bth.RCAck, off: 0}, {op: sendOnly, off: 0, n: 4}}, done: "r1 ok/4", want: enginetest.Counts{trace.DropClass: 3}},
}

// TestSequences: what each packet sequence completes, loses and counts; nothing
// is ever answered, and the queue pair lives on.
func TestSequences(t *testing.T) {
	for _, c := range sequences {
		t.Run(c.name, func(t *testing.T) {
			rule(t, func(r *raw) {
				switch {
				case c.recv == 1: // one that is small
					r.recv(3, 4096, 200)
				case c.recv >= 0:
					r.recv(1, 1024, 600)
					r.recv(2, 2048, 600)
				}
				if c.recv == 3 {
					r.recv(3, 4096, 10)
				}
				fresh := bytes.Clone(r.Mem[8192:])
				for _, x := range c.in {
					p := r.packet(x.op, x.off, x.n)
					p.AckReq = true // B44: means nothing here
					if x.change != nil {
						x.change(r, &p)
					}
					r.In(p)
				}
				r.WantSent()
				r.WantDone(c.done)
				r.WantCounts(c.want)
				if got := r.qp.Stats().Lost; got != c.lost {
					t.Errorf("lost %d, want %d", got, c.lost)
				}
				if s := r.qp.Stats(); s.AcksSent+s.SentResponses != 0 {
					t.Errorf("answered: %+v", s)
				}
				r.WantState(verbs.StateRTS)
				if !bytes.Equal(fresh, r.Mem[8192:]) {
					t.Error("other memory changed")
				}
				if e := r.qp.TakeEvents(); e != 0 {
					t.Errorf("events %v", e)
				}
			})
		})
	}
}

// TestPlaces: data go where they belong, across scatter/gather entries, and a
// request used again after a lost message is filled from its start.
func TestPlaces(t *testing.T) {
	rule(t, func(r *raw) {
		r.PostRecv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{r.SGE(1000, 1), r.SGE(0, 0), r.SGE(3000, 300), r.SGE(5000, 500)}})
		want := append(enginetest.Bytes(256, 1003), append(enginetest.Bytes(256, 1004), enginetest.Bytes(7, 1005)...)...)
		r.In(r.packet(sendFirst, 0, 256))
		r.In(r.packet(sendMiddle, 1, 256))
		r.In(r.packet(sendFirst, 3, 256))
		r.In(r.packet(sendMiddle, 4, 256))
		r.In(r.packet(sendLast, 5, 7))
		r.WantDone("r1 ok/519")
		got := append(append(r.Mem[1000:1001:1001], r.Mem[3000:3300]...), r.Mem[5000:5218]...)
		if !bytes.Equal(got, want) {
			r.T.Error("SEND: wrong data")
		}
		rest := bytes.Clone(r.Mem[256+256+9:])
		for i, n := range []int{256, 256, 9} {
			p := r.packet([]bth.Opcode{writeFirst, writeMiddle, writeLast}[i], 6+i, n)
			p.DMALen = 521
			r.In(p)
		}
		want = append(enginetest.Bytes(256, 1006), append(enginetest.Bytes(256, 1007), enginetest.Bytes(9, 1008)...)...)
		if !bytes.Equal(r.Mem[:521], want) || !bytes.Equal(r.Mem[521:], rest) {
			r.T.Error("WRITE: wrong data")
		}
		// A WRITE that is given up has written what came before.
		p := r.packet(writeFirst, 9, 256)
		p.DMALen = 600
		r.In(p)
		r.In(r.packet(writeLast, 11, 88))
		if !bytes.Equal(r.Mem[:256], enginetest.Bytes(256, 1009)) || !bytes.Equal(r.Mem[256:521], want[256:]) {
			r.T.Error("given up: wrong data")
		}
	})
}

// TestCompletion: what a receive completion says.
func TestCompletion(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 5 {
			r.recv(uint64(i), 0, 600)
		}
		for i, c := range []struct {
			op   bth.Opcode
			se   bool
			want verbs.WC
		}{
			{sendOnly, false, verbs.WC{Opcode: verbs.WCRecv}},
			{sendOnly, true, verbs.WC{Opcode: verbs.WCRecv}},
			{sendOnlyImm, true, verbs.WC{Opcode: verbs.WCRecv, Flags: verbs.WCWithImm, Imm: 2}},
			{writeOnlyImm, false, verbs.WC{Opcode: verbs.WCRecvWriteImm, Flags: verbs.WCWithImm, Imm: 3}},
			{writeOnlyImm, true, verbs.WC{Opcode: verbs.WCRecvWriteImm, Flags: verbs.WCWithImm, Imm: 4}},
		} {
			p := r.packet(c.op, i, 11)
			p.SE = c.se
			r.In(p)
			c.want.ID, c.want.QPN, c.want.SrcQP, c.want.ByteLen = uint64(i), 0x11, 0x12, 11
			if len(r.Done) != i+1 || r.Done[i] != c.want || r.Solicited != c.se {
				r.T.Fatalf("completion %d: %+v, solicited %v\nwant %+v, %v", i, r.Done, r.Solicited, c.want, c.se)
			}
		}
		if s := r.qp.Stats(); s.Recvs != 5 || s.RcvdRequests != 5 || s.RcvdBytes != 55 {
			r.T.Errorf("%+v", s)
		}
	})
}

// TestBadReceive: a receive request that is wrong itself completes with its
// error and ends the queue pair, once.
func TestBadReceive(t *testing.T) {
	for _, c := range []struct {
		name string
		wr   func(r *raw) verbs.RecvWR
		n    int
		why  trace.Reason
		done string
	}{
		{"wrong key", func(r *raw) verbs.RecvWR {
			return verbs.RecvWR{ID: 1, SGL: []verbs.SGE{{Addr: r.Reg.IOVA, Length: 600, LKey: r.Reg.Key ^ 1}}}
		}, 5, trace.FailLocalProt, "r1 LOC_PROT, r2 FLUSH"},
		{"beyond its region", func(r *raw) verbs.RecvWR { return verbs.RecvWR{ID: 1, SGL: []verbs.SGE{r.SGE(len(r.Mem)-4, 600)}} }, 5, trace.FailLocalProt, "r1 LOC_PROT, r2 FLUSH"},
		{"no local write", func(r *raw) verbs.RecvWR {
			g := r.Region(mr.Region{PD: 1, IOVA: 1 << 32, Mem: r.Mem, Access: 0})
			return verbs.RecvWR{ID: 1, SGL: []verbs.SGE{{Addr: 1 << 32, Length: 600, LKey: g.Key}}}
		}, 5, trace.FailLocalProt, "r1 LOC_PROT, r2 FLUSH"},
		{"wrong key that nothing is written to", func(r *raw) verbs.RecvWR {
			return verbs.RecvWR{ID: 1, SGL: []verbs.SGE{{Addr: r.Reg.IOVA, Length: 600, LKey: r.Reg.Key ^ 1}}}
		}, 0, trace.None, "r1 ok/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule(t, func(r *raw) {
				r.PostRecv(c.wr(r), verbs.RecvWR{ID: 2})
				r.In(r.packet(sendOnly, 0, c.n))
				r.WantDone(c.done)
				if c.why == trace.None {
					r.WantState(verbs.StateRTS)
					return
				}
				r.WantState(verbs.StateErr)
				if e := r.qp.TakeEvents(); e != transport.EventFatal|transport.EventLastWQE {
					t.Errorf("events %v", e)
				}
				r.In(r.packet(sendOnly, 1, c.n))
				r.WantDone("")
				r.WantCounts(enginetest.Counts{c.why: 1, trace.FailFlushed: 1, trace.DropState: 1})
			})
		})
	}
	t.Run("malformed", func(t *testing.T) {
		r := newRaw(t, 5)
		r.recv(1, 0, 600)
		r.RecvMem[192] = 99 // entries
		r.In(r.packet(sendOnly, 0, 4))
		r.WantDone("r1 LOC_QP_OP")
		r.WantState(verbs.StateErr)
	})
}

// TestReceiveStates: packets are taken from RTR on, and the first one there is
// told of.
func TestReceiveStates(t *testing.T) {
	r := unconnected(t, 0x11, 1<<16, verbs.QPCap{}, nil)
	r.Base = bth.MakePSN(7)
	a := attr(256, 0x12, 7, 7)
	r.In(r.packet(sendOnly, 0, 4))
	r.Modify(verbs.StateInit, toInit, a, nil)
	r.recv(1, 0, 600)
	r.recv(2, 0, 600)
	r.recv(3, 0, 600)
	r.In(r.packet(sendOnly, 0, 4))
	r.WantDone("")
	r.Modify(verbs.StateRTR, toRTR, a, enginetest.Flow("192.0.2.1", "192.0.2.2"))
	r.In(r.packet(sendOnly, 0, 4))
	r.In(r.packet(sendOnly, 1, 4))
	r.WantDone("r1 ok/4, r2 ok/4")
	if e := r.qp.TakeEvents(); e != transport.EventCommEst {
		t.Errorf("events %v", e)
	}
	if got := r.qp.Attr(); got.RQPSN != 9 || got.SQPSN != 0 || got.PathMTU != 256 || got.DestQPN != 0x12 {
		t.Errorf("%+v", got)
	}
	r.Modify(verbs.StateReset, 0, verbs.QPAttr{}, nil)
	r.ResetRings()
	if r.qp.Flow() != nil {
		t.Error("a flow in RESET")
	}
	r.In(r.packet(sendOnly, 2, 4))
	r.WantDone("")
	r.WantCounts(enginetest.Counts{trace.DropState: 3})

	// Access is the queue pair's as well as the region's.
	a.Access = verbs.AccessLocalWrite
	r.connect(a)
	r.In(r.packet(writeOnly, 0, 4))
	r.In(r.packet(writeOnly, 1, 0))
	r.WantCounts(enginetest.Counts{trace.DropState: 3, trace.FailQPAccess: 2})
}
