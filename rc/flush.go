package rc

import (
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// Fail moves the queue pair to ERR for a reason of the device's, such as an
// overflown completion queue, and flushes both queues.
func (q *QP) Fail(now int64, why trace.Reason) {
	if q.attr.State == verbs.StateErr || q.attr.State == verbs.StateReset {
		return
	}
	q.events |= transport.EventFatal
	q.note(now, why, trace.Local, nil)
	q.toErr(now, why)
}

// toErr enters ERR for a reason that was counted, and flushes; the completions
// of the flush carry the reason, since at the responder nothing else tells the
// program. Responses already due, a fatal NAK last, still leave, and an ACK alone:
// the program may have what it is for, and have made its mistake before the ACK
// left. Everything else falls silent. IBA 10.3.1.6.
func (q *QP) toErr(now int64, why trace.Reason) {
	if q.attr.State == verbs.StateErr {
		return
	}
	q.attr.State = verbs.StateErr
	q.ended = why
	q.cfg.Recorder.Record(trace.Event{Time: now, QPN: uint32(q.cfg.QPN), Reason: trace.NoteState, Arg: uint32(verbs.StateErr)})
	if !q.resp.nak.fatal && !q.ackOnly() {
		q.resp.silence()
	}
	if own := q.cfg.OwnRQ(); own != nil {
		own.SetFlushing(true)
	}
	q.flush(now)
	q.events |= transport.EventLastWQE
}

// ackOnly reports whether an ACK is all that waits to be sent in response.
func (q *QP) ackOnly() bool {
	r := &q.resp
	return r.ack.pending && !r.nak.pending && r.replies.next() == nil
}

// flush completes every outstanding work request of both queues with a flush
// error, oldest first, also those posted since. C10-41, C10-42. A program that goes
// on posting meanwhile, more than its queue has room for, is served at its next
// doorbell: it must not keep the device.
func (q *QP) flush(now int64) {
	r := &q.req
	for n := len(r.wqes); n > 0 && (r.head != r.tail || q.fetch(now)); n-- {
		q.finishSend(verbs.WCWRFlushErr, trace.FailFlushed)
	}
	q.counts[trace.FailFlushed] += q.resp.recv.Flush(q.ended)
}

// finishSend retires the oldest send request and writes its completion, if it
// has one: an error always does. Its room in the ring is free first, since a
// program that has the completion may post at once.
func (q *QP) finishSend(s verbs.WCStatus, why trace.Reason) {
	w := q.req.headWQE()
	q.popSend()
	if s == verbs.WCSuccess {
		q.stats.Completed++
		if w.Flags&verbs.SendSignaled == 0 && !q.cfg.SigAll {
			return
		}
	} else {
		q.counts[why]++
	}
	if s == verbs.WCWRFlushErr {
		why = q.ended
	}
	wc := &q.wc
	w.Completion(wc, q.cfg.QPN, s, why)
	if s == verbs.WCRetryExcErr {
		wc.VendorErr = verbs.VendorRetryExceeded
	}
	q.cfg.SendCQ.Push(wc, s != verbs.WCSuccess)
}

// failSend ends the oldest send request with an error and the queue pair with
// it. C10-39. The completion tells; an event is only for a ring that has no
// requests in it any more (IBA 11.6.3.2).
func (q *QP) failSend(now int64, s verbs.WCStatus, why trace.Reason) {
	if q.req.head != q.req.tail {
		q.finishSend(s, why)
	}
	if q.req.broken {
		q.events |= transport.EventFatal
	}
	q.cfg.Recorder.Record(trace.Event{Time: now, QPN: uint32(q.cfg.QPN), PSN: q.req.una.Uint32(), Reason: why})
	q.toErr(now, why)
}
