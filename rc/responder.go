package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// responder is the receiving half of a queue pair.
type responder struct {
	epsn        bth.PSN // expected
	msn         uint32  // messages completed, 24 bits
	established bool
	// nakked is set from a sequence or RNR NAK until the expected packet
	// comes: packets beyond it are dropped in silence.
	nakked bool
	beyond bth.PSN // after the farthest packet dropped since; valid while nakked

	op    bth.Op // message in progress: OpSend, OpWrite or OpNone
	recv  transport.Receiver
	write transport.WriteCursor

	replies replayRing
	ack     ackState
	nak     nakState
}

func (r *responder) init(c *transport.Config) { r.recv.Init(c) }

func (r *responder) reset() {
	r.recv.Reset()
	*r = responder{recv: r.recv, replies: replayRing{slots: r.replies.slots[:0]}}
}

// start begins at the first PSN when the queue pair enters RTR.
func (r *responder) start(psn bth.PSN, depth int) {
	r.reset()
	r.epsn = psn
	r.replies.init(depth)
}

// verdict is what the checks say of a request packet.
type verdict uint8

const (
	accept         verdict = iota
	invalidRequest         // NAK 0x61
	remoteAccess           // NAK 0x62
	remoteOp               // NAK 0x63
	notReady               // RNR NAK
	invalidation           // ACK, and ERR: class J of IBA 9.9.3
)

// handleRequest is the responder's pipeline: sequence, then each check in the
// order of IBA 9.7.4.1, then execution. The first check that fails decides.
func (q *QP) handleRequest(now int64, p *bth.Packet) {
	r := &q.resp
	switch d := p.PSN.Diff(r.epsn); {
	case d > 0:
		q.outOfSequence(now, p)
		return
	case d < 0:
		q.duplicate(now, p)
		return
	}
	r.nakked = false
	v, why := q.check(p)
	if v == accept {
		v, why = q.execute(now, p)
	}
	if v != accept {
		q.reject(now, p, v, why)
		return
	}
	if r.nak.pending {
		q.caughtUp()
	}
}

// caughtUp brings a NAK that waits up to date, after the packet it asks for came
// all the same. Of a gap that was but a change of order, what was dropped behind
// it is still missing: the NAK then asks for that, the packet expected now. An
// RNR NAK is over, as a receive request came before it left.
func (q *QP) caughtUp() {
	r := &q.resp
	if r.nak.syndrome.Kind() == bth.KindRNR || !r.epsn.Before(r.beyond) {
		r.nak.pending = false
		q.queueAck(r.epsn.Add(-1)) // an ACK may have made way for it
		return
	}
	r.nakked = true
	q.queueNAK(r.nak.syndrome)
}

// outOfSequence reports a gap once. C9-113, C9-114.
func (q *QP) outOfSequence(now int64, p *bth.Packet) {
	r := &q.resp
	q.note(now, trace.DropOutOfOrder, trace.Rx, p)
	if end := p.PSN.Add(1); !r.nakked || end.After(r.beyond) {
		r.beyond = end
	}
	if r.nakked || r.nak.pending && r.nak.syndrome.Kind() == bth.KindRNR { // says already what to send again
		return
	}
	r.nakked = true
	q.note(now, trace.NoteSequenceNAK, trace.Rx, p)
	q.queueNAK(bth.NAKSequence)
	q.events |= transport.EventGap
}

// check runs every check that comes before memory is touched.
func (q *QP) check(p *bth.Packet) (verdict, trace.Reason) {
	for _, f := range [...]func(*QP, *bth.Packet) (verdict, trace.Reason){
		(*QP).checkSequence, (*QP).checkOpcode, (*QP).checkResource, (*QP).checkLength, (*QP).checkRKey,
	} {
		if v, why := f(q, p); v != accept {
			return v, why
		}
	}
	return accept, trace.None
}

// checkSequence: the opcode continues the message in progress, or starts one
// when none is. C9-92.
func (q *QP) checkSequence(p *bth.Packet) (verdict, trace.Reason) {
	info, op := p.Info(), q.resp.op
	if info.Has(bth.Middle | bth.Last) {
		if op != info.Op {
			return invalidRequest, trace.FailOpcodeSeq
		}
	} else if op != bth.OpNone {
		return invalidRequest, trace.FailOpcodeSeq
	}
	return accept, trace.None
}

// checkOpcode: the operation exists here, and the queue pair's access flags
// allow it. C9-93, C9-94; rxe and hfi1 answer a missing flag with an invalid
// request NAK too.
func (q *QP) checkOpcode(p *bth.Packet) (verdict, trace.Reason) {
	var need verbs.Access
	switch p.Info().Op {
	case bth.OpSend:
	case bth.OpWrite:
		need = verbs.AccessRemoteWrite
	case bth.OpReadReq:
		need = verbs.AccessRemoteRead
	case bth.OpCmpSwap, bth.OpFetchAdd:
		need = verbs.AccessRemoteAtomic
	default:
		return invalidRequest, trace.DropUnsupported
	}
	if q.attr.Access&need != need {
		return invalidRequest, trace.FailQPAccess
	}
	return accept, trace.None
}

// checkResource: a receive request for a message that takes one, a reply slot
// for a READ or atomic. C9-105 and 9.7.5.2.8 (RNR). A SEND takes its receive
// request at the first packet, a WRITE with immediate at the last.
func (q *QP) checkResource(p *bth.Packet) (verdict, trace.Reason) {
	info := p.Info()
	switch info.Op {
	case bth.OpSend:
		if !info.Has(bth.Starts) {
			return accept, trace.None
		}
	case bth.OpWrite:
		if !info.Has(bth.TakesRecv) {
			return accept, trace.None
		}
	default:
		if !q.resp.replies.room() {
			return invalidRequest, trace.FailTooManyReads
		}
		return accept, trace.None
	}
	return q.takeRecv()
}

// takeRecv takes the next receive request. None is held: a packet that took one
// either was accepted or ended the queue pair.
func (q *QP) takeRecv() (verdict, trace.Reason) {
	switch why := q.resp.recv.Take(); why {
	case trace.None:
		return accept, trace.None
	case trace.DropNoRecv:
		return notReady, trace.NoteRNRNAK
	default:
		return remoteOp, why
	}
}

// checkLength: payload and pad have the length the opcode's position demands,
// and the message keeps to its own. C9-95 to C9-98, 9.7.4.1.6.
func (q *QP) checkLength(p *bth.Packet) (verdict, trace.Reason) {
	bad := !transport.LengthOK(p, q.mtu)
	switch p.Info().Op {
	case bth.OpSend:
		if !bad && len(p.Payload) > q.resp.recv.Len-q.resp.recv.Got {
			return invalidRequest, trace.FailLocalLen
		}
	case bth.OpWrite:
		bad = bad || !q.resp.write.LengthOK(p)
	case bth.OpReadReq:
		bad = bad || p.DMALen > transport.MaxMessage
	case bth.OpCmpSwap, bth.OpFetchAdd:
		bad = bad || p.VA&7 != 0
	}
	if bad {
		return invalidRequest, trace.FailReqLength
	}
	return accept, trace.None
}

// checkRKey: key, domain, range and permission of remote memory, over the
// whole message at its first packet. Zero length needs no key. That of an atomic
// is checked as it runs. C9-88, C9-89, 9.7.4.1.5.
func (q *QP) checkRKey(p *bth.Packet) (verdict, trace.Reason) {
	info := p.Info()
	if info.Ext&bth.ExtRETH == 0 || p.DMALen == 0 {
		return accept, trace.None
	}
	need := verbs.AccessRemoteWrite
	if info.Op == bth.OpReadReq {
		need = verbs.AccessRemoteRead
	}
	if _, why := q.mem.Remote(p.RKey, p.VA, int(p.DMALen), need); why != trace.None {
		return remoteAccess, why
	}
	return accept, trace.None
}

// reject answers a request that failed a check. Everything but RNR ends the
// queue pair, after one NAK. IBA 9.7.5.2, 9.9.3. Of an invalidation that fails
// no NAK tells: its message has arrived and is acknowledged. The receive request
// tells of it, as in Soft-RoCE.
func (q *QP) reject(now int64, p *bth.Packet, v verdict, why trace.Reason) {
	r := &q.resp
	q.note(now, why, trace.Rx, p)
	switch v {
	case notReady:
		r.nakked = q.cfg.Habits&NAKBehindRNR == 0
		q.queueNAK(bth.RNRNAK(q.attr.MinRNRTimer))
		return
	case invalidRequest:
		q.queueNAK(bth.NAKInvalidRequest)
		q.events |= transport.EventReqErr
	case remoteAccess:
		q.queueNAK(bth.NAKRemoteAccess)
		q.events |= transport.EventAccess
	case remoteOp:
		q.queueNAK(bth.NAKRemoteOperational)
		q.events |= transport.EventFatal
	case invalidation:
		if r.nak.pending { // it would ask for more; what came is still acknowledged
			r.nak.pending = false
			q.queueAck(r.epsn.Add(-1))
		}
		q.events |= transport.EventReqErr
	}
	r.nak.fatal = true
	if r.recv.Held {
		// The receive request that met the error tells of it; the rest are
		// flushed.
		if st, ok := transport.ErrStatus(why); ok {
			r.recv.Fail(st, why)
		}
	}
	q.toErr(now, why)
}
