package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
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

	op    bth.Op // message in progress: OpSend, OpWrite or OpNone
	recv  recvWQE
	write writeCursor

	replies replayRing
	ack     ackState
	nak     nakState
}

// recvWQE is the receive request that the message in progress fills.
type recvWQE struct {
	id     uint64
	held   bool
	sgl    []verbs.SGE
	n      int // entries of sgl
	length int // octets of room
	got    int // octets filled
}

// writeCursor is where the next packet of a WRITE goes.
type writeCursor struct {
	va    uint64
	rkey  uint32
	left  int
	total int
}

func (r *responder) init(c verbs.QPCap) { r.recv.sgl = make([]verbs.SGE, c.MaxRecvSGE) }

func (r *responder) reset() {
	*r = responder{recv: recvWQE{sgl: r.recv.sgl}, replies: replayRing{slots: r.replies.slots[:0]}}
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
	if r.nak.pending && r.nak.syndrome.Kind() == bth.KindRNR {
		r.nak.pending = false // a receive request came before it left
	}
}

// outOfSequence reports a gap once. C9-113, C9-114.
func (q *QP) outOfSequence(now int64, p *bth.Packet) {
	r := &q.resp
	q.note(now, trace.DropOutOfOrder, trace.Rx, p)
	if r.nakked {
		return
	}
	r.nakked = true
	q.note(now, trace.NoteSequenceNAK, trace.Rx, p)
	q.queueNAK(bth.NAKSequence)
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
		if p.Info().Has(bth.HasInv) {
			return invalidRequest, trace.DropUnsupported
		}
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
	w := &q.resp.recv
	id, n, ok := q.cfg.RQ.Fetch(w.sgl)
	if !ok {
		return notReady, trace.NoteRNRNAK
	}
	w.id, w.held, w.n, w.length, w.got = id, true, max(n, 0), 0, 0
	if n < 0 {
		return remoteOp, trace.FailLocalQPOp
	}
	for _, s := range w.sgl[:n] {
		w.length += int(s.Length)
	}
	return accept, trace.None
}

// checkLength: payload and pad have the length the opcode's position demands,
// and the message keeps to its own. C9-95 to C9-98, 9.7.4.1.6.
func (q *QP) checkLength(p *bth.Packet) (verdict, trace.Reason) {
	info, n := p.Info(), len(p.Payload)
	bad := int(p.Pad) != -n&3
	switch {
	case !info.Has(bth.HasPayload):
		bad = bad || n != 0
	case info.Has(bth.First | bth.Middle):
		bad = bad || n != q.mtu
	case info.Has(bth.Last):
		bad = bad || n < 1 || n > q.mtu
	default:
		bad = bad || n > q.mtu
	}
	w := &q.resp.write
	switch info.Op {
	case bth.OpSend:
		if !bad && n > q.resp.recv.length-q.resp.recv.got {
			return invalidRequest, trace.FailLocalLen
		}
	case bth.OpWrite:
		switch {
		case info.Has(bth.First):
			bad = bad || p.DMALen > maxMessage || int(p.DMALen) <= n
		case info.Has(bth.Only):
			bad = bad || int(p.DMALen) != n
		case info.Has(bth.Middle):
			bad = bad || w.left <= n
		default:
			bad = bad || w.left != n
		}
	case bth.OpReadReq:
		bad = bad || p.DMALen > maxMessage
	case bth.OpCmpSwap, bth.OpFetchAdd:
		bad = bad || p.VA&7 != 0
	}
	if bad {
		return invalidRequest, trace.FailReqLength
	}
	return accept, trace.None
}

// checkRKey: key, domain, range and permission of remote memory, over the
// whole message at its first packet. Zero length needs no key. C9-88, C9-89,
// 9.7.4.1.5.
func (q *QP) checkRKey(p *bth.Packet) (verdict, trace.Reason) {
	info := p.Info()
	need, n := verbs.AccessRemoteWrite, int(p.DMALen)
	switch {
	case info.Ext&bth.ExtRETH != 0:
		if info.Op == bth.OpReadReq {
			need = verbs.AccessRemoteRead
		}
	case info.Ext&bth.ExtAtomicETH != 0:
		need, n = verbs.AccessRemoteAtomic, 8
	default:
		return accept, trace.None
	}
	if n == 0 {
		return accept, trace.None
	}
	if _, why := q.cfg.MRs.Resolve(q.cfg.PD, p.RKey, p.VA, n, need); why != trace.None {
		return remoteAccess, why
	}
	return accept, trace.None
}

// reject answers a request that failed a check. Everything but RNR ends the
// queue pair, after one NAK. IBA 9.7.5.2, 9.9.3.
func (q *QP) reject(now int64, p *bth.Packet, v verdict, why trace.Reason) {
	r := &q.resp
	q.note(now, why, trace.Rx, p)
	switch v {
	case notReady:
		r.nakked = true
		q.queueNAK(bth.RNRNAK(q.attr.MinRNRTimer))
		return
	case invalidRequest:
		q.queueNAK(bth.NAKInvalidRequest)
		q.events |= EventReqErr
	case remoteAccess:
		q.queueNAK(bth.NAKRemoteAccess)
		q.events |= EventAccess
	case remoteOp:
		q.queueNAK(bth.NAKRemoteOperational)
		q.events |= EventFatal
	}
	r.nak.fatal = true
	if r.recv.held {
		// The receive request that met the error tells of it; the rest are
		// flushed.
		switch why {
		case trace.FailLocalLen:
			q.completeRecv(verbs.WCLocLenErr, why)
		case trace.FailLocalProt:
			q.completeRecv(verbs.WCLocProtErr, why)
		case trace.FailLocalQPOp:
			q.completeRecv(verbs.WCLocQPOpErr, why)
		}
	}
	q.toErr(now, why)
}
