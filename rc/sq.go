package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// sqe is the requester's record of a fetched send request. Everything about
// its packets follows from first, pkts and length.
type sqe struct {
	transport.SendEntry
	first bth.PSN
	pkts  int // PSNs it takes: request packets, or for a READ response packets
	lsn   uint32
	ran   bool // a local operation that was carried out
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
	more, broken := w.Fetch(q.cfg.SQ)
	if !more {
		return false
	}
	r.broken = broken
	w.first, w.pkts, w.ran = r.tailPSN, 1, false
	if w.Bad == verbs.WCSuccess {
		switch w.Opcode {
		case verbs.WRSend, verbs.WRSendImm, verbs.WRSendInv, verbs.WRWrite, verbs.WRWriteImm, verbs.WRRead:
			w.pkts = transport.Packets(w.Length, q.mtu)
			if w.Opcode == verbs.WRRead && q.attr.MaxRdAtomic == 0 {
				w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
			}
		case verbs.WRCmpSwap, verbs.WRFetchAdd:
			if w.Length != 8 || q.attr.MaxRdAtomic == 0 || w.Flags&verbs.SendInline != 0 {
				w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
				if w.Length != 8 {
					w.Fail(verbs.WCLocLenErr, trace.FailLocalLen)
				}
			}
		case verbs.WRBindMW, verbs.WRLocalInv:
			w.pkts = 0
		default:
			w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
		}
	}
	w.lsn = r.credits.lsn
	r.credits.lsn = (r.credits.lsn + uint32(r.requests(w))) & bth.PSNMask
	r.tailPSN = w.end()
	r.tail++
	return true
}

// requests returns how many the responder sees of w, and counts in its MSN: a
// READ is asked for in parts, a local operation not at all.
func (r *requester) requests(w *sqe) int {
	if w.Local() {
		return 0
	}
	if w.Opcode == verbs.WRRead && r.readPart > 0 {
		return (w.pkts + r.readPart - 1) / r.readPart
	}
	return 1
}

// find moves cur to the entry that owns PSN p, or to a local operation before it
// that has not run, or to tail.
func (r *requester) find(p bth.PSN) {
	for r.cur = r.head; r.cur != r.tail; r.cur++ {
		if w := r.at(r.cur); p.Before(w.end()) || w.Local() && !w.ran {
			return
		}
	}
}

// skipRun moves cur past local operations that have run: they do so once, however
// often what is around them is sent.
func (r *requester) skipRun() {
	for r.cur != r.tail && r.at(r.cur).ran {
		r.cur++
	}
}
