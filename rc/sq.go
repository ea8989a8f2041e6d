package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// sqe is the requester's record of a fetched send request. Everything about
// its packets follows from first, pkts and length.
type sqe struct {
	verbs.SendWQE
	first  bth.PSN
	pkts   int // PSNs it takes: request packets, or for a READ response packets
	length int // octets
	sgl    []verbs.SGE
	// bad is the status it will fail with when everything before it is done:
	// it broke a local rule and is not sent.
	bad    verbs.WCStatus
	badWhy trace.Reason
}

// answered reports whether the request is finished by a response of its own
// rather than an ACK.
func (w *sqe) answered() bool {
	return w.Opcode == verbs.WRRead || w.Opcode == verbs.WRCmpSwap || w.Opcode == verbs.WRFetchAdd
}

// end returns the PSN after its last one.
func (w *sqe) end() bth.PSN { return w.first.Add(w.pkts) }

// The requester's queue: entries [head, tail) are fetched and not retired;
// cur owns the PSN to be sent next, or is tail.

// at returns the entry with free-running index i.
func (r *requester) at(i uint32) *sqe { return &r.wqes[i%uint32(len(r.wqes))] }

// headWQE returns the oldest send request, or nil.
func (r *requester) headWQE() *sqe {
	if r.head == r.tail {
		return nil
	}
	return r.at(r.head)
}

// popSend retires the oldest send request and returns its room to the program.
func (q *QP) popSend() {
	r := &q.req
	q.cfg.SQ.Retire(&r.at(r.head).SendWQE)
	if r.cur == r.head {
		r.cur++
	}
	r.head++
}

// fetch takes the next posted send request into the queue and gives it PSNs.
// It returns false when there is none or no room.
func (q *QP) fetch(now int64) bool {
	r := &q.req
	if int(r.tail-r.head) == len(r.wqes) || r.broken {
		return false
	}
	w := r.at(r.tail)
	more, ok := q.cfg.SQ.Fetch(&w.SendWQE, w.sgl[:cap(w.sgl)])
	if !more {
		return false
	}
	w.bad, w.badWhy = verbs.WCSuccess, trace.None
	if !ok {
		// What stands in the ring is not a request: the queue ends here.
		r.broken = true
		w.SendWQE = verbs.SendWQE{}
	}
	w.sgl = w.sgl[:w.NumSGE]
	w.length = int(w.InlineLen)
	for _, s := range w.sgl {
		w.length += int(s.Length)
	}
	w.first, w.pkts = r.tailPSN, 1
	switch {
	case !ok:
		w.bad, w.badWhy = verbs.WCLocQPOpErr, trace.FailLocalQPOp
	case w.length > maxMessage:
		w.bad, w.badWhy = verbs.WCLocLenErr, trace.FailLocalLen
	default:
		switch w.Opcode {
		case verbs.WRSend, verbs.WRSendImm, verbs.WRSendInv, verbs.WRWrite, verbs.WRWriteImm, verbs.WRRead:
			if w.length > q.mtu && q.mtu > 0 {
				w.pkts = (w.length + q.mtu - 1) / q.mtu
			}
			if w.Opcode == verbs.WRRead && q.attr.MaxRdAtomic == 0 {
				w.bad, w.badWhy = verbs.WCLocQPOpErr, trace.FailLocalQPOp
			}
		case verbs.WRCmpSwap, verbs.WRFetchAdd:
			if w.length != 8 || q.attr.MaxRdAtomic == 0 || w.Flags&verbs.SendInline != 0 {
				w.bad, w.badWhy = verbs.WCLocQPOpErr, trace.FailLocalQPOp
				if w.length != 8 {
					w.bad, w.badWhy = verbs.WCLocLenErr, trace.FailLocalLen
				}
			}
		default:
			w.bad, w.badWhy = verbs.WCLocQPOpErr, trace.FailLocalQPOp
		}
	}
	r.tailPSN = w.end()
	r.tail++
	return true
}

// find moves cur to the entry that owns PSN p, or to tail.
func (r *requester) find(p bth.PSN) {
	for r.cur = r.head; r.cur != r.tail; r.cur++ {
		if p.Before(r.at(r.cur).end()) {
			return
		}
	}
}

// resolve returns the stretches of registered memory behind n octets at offset
// off of a scatter/gather list. It returns false when the list is too short, or
// at a key, range or permission that fails. What it returns is valid until the
// next call; the caller clears it, so that no slice of a user's memory outlives
// the step.
func (q *QP) resolve(sgl []verbs.SGE, off, n int, need verbs.Access) (parts [][]byte, ok bool) {
	parts = q.parts[:0]
	for i := range sgl {
		if n == 0 {
			break
		}
		s := &sgl[i]
		if off >= int(s.Length) {
			off -= int(s.Length)
			continue
		}
		k := min(n, int(s.Length)-off)
		b, why := q.cfg.MRs.Resolve(q.cfg.PD, s.LKey, s.Addr+uint64(off), k, need)
		if why != trace.None {
			break
		}
		parts = append(parts, b)
		n -= k
		off = 0
	}
	if n != 0 {
		clear(parts)
		return nil, false
	}
	return parts, true
}

// permits reports whether resolve would succeed.
func (q *QP) permits(sgl []verbs.SGE, off, n int, need verbs.Access) bool {
	parts, ok := q.resolve(sgl, off, n, need)
	clear(parts)
	return ok
}

// scatter copies src to offset off of a scatter/gather list, front to back. It
// returns false, and has copied nothing, when resolve fails.
func (q *QP) scatter(sgl []verbs.SGE, off int, src []byte) bool {
	parts, ok := q.resolve(sgl, off, len(src), verbs.AccessLocalWrite)
	if ok {
		for _, dst := range parts {
			src = src[copy(dst, src):]
		}
	}
	clear(parts)
	return ok
}
