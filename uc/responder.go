package uc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// late is how far behind the expected PSN a packet counts as repeated or
// overtaken. Further behind it is ahead, after a long silence: the PSN has
// only 24 bits, and nobody repeats anything here.
const late = 1 << 15

// responder is the receiving half of a queue pair.
type responder struct {
	epsn        bth.PSN // expected
	op          bth.Op  // message in progress: OpSend, OpWrite or OpNone
	write       transport.WriteCursor
	established bool
}

// HandlePacket takes a packet for this queue pair whose ICRC, addresses and
// partition key are proven. The packet is borrowed for the call. Nothing
// answers it: AckReq means nothing here.
//
//gorxe:hot
func (q *QP) HandlePacket(now int64, p *bth.Packet) {
	if !q.Receives(now, p, bth.UC) {
		return
	}
	r := &q.resp
	if !r.established {
		r.established = true
		if q.State() == verbs.StateRTR {
			q.Raised |= transport.EventCommEst
		}
	}
	if !q.inSequence(now, p) {
		return
	}
	why := q.check(p)
	if why == trace.None {
		why = q.execute(p)
	}
	if why != trace.None {
		q.giveUp(now, p, why)
	}
}

// inSequence follows the PSN and reports whether the packet is to be looked at
// further. C9-226, 9.8.2.2.
func (q *QP) inSequence(now int64, p *bth.Packet) bool {
	r := &q.resp
	starts := p.Info().Has(bth.Starts)
	switch d := p.PSN.Diff(r.epsn); {
	case d == 0:
	case d < 0 && d >= -late:
		q.Note(now, trace.DropDuplicate, trace.Rx, p)
		return false
	case d < 0 && !starts: // of an earlier connection, or forged
		q.Note(now, trace.DropOutOfOrder, trace.Rx, p)
		return false
	default:
		if d > 0 {
			q.Tally.Lost += uint64(d)
		}
		r.op = bth.OpNone // what was in progress will not be finished
		if !starts {
			q.Note(now, trace.DropOutOfOrder, trace.Rx, p)
			r.epsn = p.PSN.Add(1)
			return false
		}
	}
	r.epsn = p.PSN.Add(1)
	was := r.op
	r.op = bth.OpNone // until the packet is found good
	switch {
	case starts && was != bth.OpNone: // its sender gave the message up
		q.Note(now, trace.FailOpcodeSeq, trace.Rx, p)
	case starts:
	case was == bth.OpNone:
		q.Note(now, trace.DropMessage, trace.Rx, p)
		return false
	case was != p.Info().Op:
		q.Note(now, trace.FailOpcodeSeq, trace.Rx, p)
		return false
	}
	return true
}

// check runs every check that comes before memory is touched.
func (q *QP) check(p *bth.Packet) trace.Reason {
	r, info := &q.resp, p.Info()
	if !transport.LengthOK(p, q.mtu) {
		return trace.FailReqLength
	}
	if info.Op == bth.OpWrite {
		switch {
		case q.Attrs.Access&verbs.AccessRemoteWrite == 0:
			return trace.FailQPAccess
		case !r.write.LengthOK(p):
			return trace.FailReqLength
		}
		if info.Has(bth.Starts) && p.DMALen > 0 {
			if _, why := q.Mem.Remote(p.RKey, p.VA, int(p.DMALen), verbs.AccessRemoteWrite); why != trace.None {
				return why
			}
		}
	}
	// A SEND takes its receive request at the first packet, a WRITE with
	// immediate at the last; one that a lost message left is used first.
	if info.Op == bth.OpSend && info.Has(bth.Starts) || info.Op == bth.OpWrite && info.Has(bth.TakesRecv) {
		if q.Recv.Held {
			q.Recv.Got = 0
		} else if why := q.Recv.Take(); why != trace.None {
			return why
		}
	}
	if info.Op == bth.OpSend && len(p.Payload) > q.Recv.Len-q.Recv.Got {
		return trace.DropTooLong
	}
	return trace.None
}

// execute carries out a packet that passed every check.
func (q *QP) execute(p *bth.Packet) (why trace.Reason) {
	r, info := &q.resp, p.Info()
	if info.Op == bth.OpSend {
		why = q.Recv.Place(&q.Mem, p.Payload)
	} else {
		why = r.write.Place(&q.Mem, p)
	}
	switch {
	case why != trace.None:
		return why
	case !info.Has(bth.Ends):
		r.op = info.Op
		return trace.None
	case !info.Has(bth.TakesRecv):
		return trace.None
	}
	wc := verbs.WC{Opcode: verbs.WCRecv, ByteLen: uint32(q.Recv.Got), SrcQP: q.Attrs.DestQPN}
	if info.Op == bth.OpWrite {
		wc.Opcode, wc.ByteLen = verbs.WCRecvWriteImm, uint32(r.write.Total)
	}
	if info.Has(bth.HasImm) {
		wc.Flags, wc.Imm = verbs.WCWithImm, p.Imm
	}
	q.Tally.Recvs++
	q.Recv.Done(wc, p.SE)
	return trace.None
}

// giveUp drops a message at the packet that met an error. Only a receive
// request that is wrong itself is told of, and ends the queue pair: IBA
// 9.9.3.1, responder class D and E faults.
func (q *QP) giveUp(now int64, p *bth.Packet, why trace.Reason) {
	q.Note(now, why, trace.Rx, p)
	if st, local := transport.ErrStatus(why); local {
		q.Recv.Fail(st, why)
		q.Raised |= transport.EventFatal
		q.ToErr(now, why)
	}
}
