package rc

import (
	"github.com/gorxe/gorxe/atomic"
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// handleResponse takes an ACK, NAK, READ response or atomic acknowledge.
func (q *QP) handleResponse(now int64, p *bth.Packet) {
	r := &q.req
	if q.attr.FlowControl && p.Info().Op == bth.OpAck && p.PSN == r.una.Add(-1) && p.Syndrome.Kind() == bth.KindAck {
		// The last ACK again: the responder has receive requests to offer.
		r.credits.offer(p.Syndrome, p.MSN)
		return
	}
	if !p.PSN.Before(r.high) || p.PSN.Before(r.una) {
		// Never sent, or acknowledged long ago.
		q.note(now, trace.DropGhostAck, trace.Rx, p)
		return
	}
	if p.Info().Ext&bth.ExtAETH != 0 {
		r.credits.offer(p.Syndrome, p.MSN)
	}
	switch p.Info().Op {
	case bth.OpAck:
		q.handleAck(now, p)
	case bth.OpReadResp:
		if p.Info().Has(bth.First|bth.Last|bth.Only) && (p.Syndrome.Kind() != bth.KindAck || p.Syndrome&0x80 != 0) {
			q.note(now, trace.DropReservedAck, trace.Rx, p)
			return
		}
		q.handleReadResp(now, p)
	default: // an atomic acknowledge: there are no others
		if p.Syndrome.Kind() != bth.KindAck || p.Syndrome&0x80 != 0 {
			q.note(now, trace.DropReservedAck, trace.Rx, p)
			return
		}
		q.handleAtomicAck(now, p)
	}
}

func (q *QP) handleAck(now int64, p *bth.Packet) {
	s := p.Syndrome
	if s&0x80 != 0 || s.Kind() == bth.KindReserved || s.Kind() == bth.KindNAK && (s < bth.NAKSequence || s > bth.NAKRemoteOperational) {
		q.note(now, trace.DropReservedAck, trace.Rx, p)
		return
	}
	if len(p.Payload) != 0 {
		q.note(now, trace.DropLength, trace.Rx, p)
		return
	}
	if s.Kind() == bth.KindAck {
		q.ackThrough(now, p.PSN, p)
		return
	}
	// A NAK acknowledges everything before its PSN, except READs and atomics
	// not yet answered: those it denies implicitly. IBA 9.7.5.1.2.
	if p.PSN != q.req.una && !q.ackThrough(now, p.PSN.Add(-1), p) {
		return
	}
	if q.attr.State == verbs.StateErr {
		return
	}
	if s.Kind() == bth.KindRNR {
		q.rnr(now, s.Code(), p)
		return
	}
	switch s {
	case bth.NAKSequence:
		q.restart(now, trace.RetrySequence, p)
	case bth.NAKInvalidRequest:
		q.failSend(now, verbs.WCRemInvReqErr, trace.FailInvalidReq)
	case bth.NAKRemoteAccess:
		q.failSend(now, verbs.WCRemAccessErr, trace.FailRemoteAccess)
	case bth.NAKRemoteOperational:
		q.failSend(now, verbs.WCRemOpErr, trace.FailRemoteOp)
	}
}

// ackThrough acknowledges every request packet up to and including psn: it
// completes the SENDs and WRITEs that end there. At a READ or atomic whose
// response has not come it stops: the responder answered past it, so its
// response was lost, and it is asked for again. It returns false then.
func (q *QP) ackThrough(now int64, psn bth.PSN, p *bth.Packet) bool {
	r := &q.req
	if psn.Before(r.una) {
		return true
	}
	before := r.una
	implied := false
	for w := r.headWQE(); w != nil && !psn.Before(r.una); w = r.headWQE() {
		if w.answered() || w.Bad != verbs.WCSuccess {
			implied = w.answered()
			break
		}
		if psn.Before(w.end().Add(-1)) {
			r.una = psn.Add(1)
			break
		}
		r.una = w.end()
		q.finishSend(verbs.WCSuccess, trace.None)
	}
	q.moved(now, before)
	if implied {
		q.restart(now, trace.RetryImplied, p)
	}
	return !implied
}

// moved does what follows when una went forward from before.
func (q *QP) moved(now int64, before bth.PSN) {
	r := &q.req
	n := r.una.Diff(before)
	if n <= 0 {
		return
	}
	q.finishLocal()
	if r.next.Before(r.una) {
		// Acknowledged while it waited to be sent again.
		r.next = r.una
		r.find(r.next)
	}
	for len(r.reads) > 0 && !r.reads[0].end.After(r.una) {
		r.reads = r.reads[:copy(r.reads, r.reads[1:])]
	}
	q.control.OnAck(now, n, r.rtt.acked(now, r.una))
	q.progress(now)
	q.failBad(now)
}

// awaited brings una to the PSN of a response, completing the SENDs and WRITEs
// before it. It returns the request the response is for, or nil if that is not
// one that takes op, or if something before it is still unanswered.
func (q *QP) awaited(now int64, p *bth.Packet, op ...verbs.WROpcode) *sqe {
	r := &q.req
	if p.PSN != r.una {
		if !q.ackThrough(now, p.PSN.Add(-1), p) || q.attr.State == verbs.StateErr {
			return nil
		}
	}
	if w := r.headWQE(); w != nil && r.una == p.PSN && w.Bad == verbs.WCSuccess {
		for _, o := range op {
			if w.Opcode == o {
				return w
			}
		}
	}
	q.note(now, trace.DropResponse, trace.Rx, p)
	return nil
}

// handleReadResp places a READ response. What is awaited is decided by its
// PSN; FIRST or MIDDLE, and ONLY or LAST, are equally good for it, since
// responders differ in how they answer a READ asked for again in its middle.
func (q *QP) handleReadResp(now int64, p *bth.Packet) {
	w := q.awaited(now, p, verbs.WRRead)
	if w == nil {
		return
	}
	i := p.PSN.Diff(w.first)
	want := min(q.mtu, w.Length-i*q.mtu)
	final := q.readEnd(w, i) == i+1
	ok := len(p.Payload) == want
	if p.Info().Has(bth.First | bth.Middle) {
		ok = ok && !final
	} else {
		ok = ok && final
	}
	if !ok {
		q.failSend(now, verbs.WCLocLenErr, trace.FailLocalLen)
		return
	}
	q.store(now, p, w)
}

// store writes a response's payload to the program's memory and moves on.
func (q *QP) store(now int64, p *bth.Packet, w *sqe) {
	r := &q.req
	if !q.mem.Scatter(w.SGL, p.PSN.Diff(w.first)*q.mtu, p.Payload) {
		q.failSend(now, verbs.WCLocProtErr, trace.FailLocalProt)
		return
	}
	before := r.una
	r.una = p.PSN.Add(1)
	if r.una == w.end() {
		q.finishSend(verbs.WCSuccess, trace.None)
	}
	q.moved(now, before)
}

// handleAtomicAck places the value that an atomic found, in host order.
func (q *QP) handleAtomicAck(now int64, p *bth.Packet) {
	r := &q.req
	w := q.awaited(now, p, verbs.WRCmpSwap, verbs.WRFetchAdd)
	if w == nil {
		return
	}
	if len(p.Payload) != 0 {
		q.note(now, trace.DropLength, trace.Rx, p)
		return
	}
	if !q.storeAtomic(w, p.Orig) {
		q.failSend(now, verbs.WCLocProtErr, trace.FailLocalProt)
		return
	}
	before := r.una
	r.una = p.PSN.Add(1)
	q.finishSend(verbs.WCSuccess, trace.None)
	q.moved(now, before)
}

// storeAtomic writes the result of an atomic to the program's memory, as one
// word where it lies in one piece.
func (q *QP) storeAtomic(w *sqe, v uint64) bool {
	parts, ok := q.mem.Resolve(w.SGL, 0, 8, verbs.AccessLocalWrite)
	if ok && len(parts) == 1 {
		atomic.Store(parts[0], v)
	} else if ok {
		var b [8]byte
		atomic.Store(b[:], v)
		src := b[:]
		for _, dst := range parts {
			src = src[copy(dst, src):]
		}
	}
	clear(parts)
	return ok
}
