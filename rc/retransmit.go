package rc

import (
	"math"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// rewind makes psn the next to be sent. Requests at or after it count as not
// outstanding.
func (q *QP) rewind(psn bth.PSN) {
	r := &q.req
	r.next = psn
	r.rtt.stop()
	r.find(psn)
	for n := len(r.reads); n > 0 && !r.reads[n-1].first.Before(psn); n-- {
		r.reads = r.reads[:n-1]
	}
	// A READ that is to be asked for again from its middle is not outstanding.
	if n := len(r.reads); n > 0 && r.reads[n-1].end.After(psn) {
		r.reads = r.reads[:n-1]
	}
	if r.asked.After(psn) {
		r.asked = r.una // what asks for an ACK before psn is not known
	}
}

// maxLeaving is what a packet may take from here to the wire, a system call of
// many packets before it included.
const maxLeaving = int64(1e6)

// armTimer starts the retransmission timer afresh. IBA 9.7.6.1.3: it fires
// between T and 4T; here at T after the packet has left, unless a NAK has shown
// that the peer is there and what it waits for.
func (q *QP) armTimer(now int64) {
	q.req.deadline = math.MaxInt64
	if t := q.attr.Timeout; t != 0 {
		wait := int64(timeoutUnit) << t
		wait += min(wait/4, maxLeaving)
		if soon := max(minHurry, hurryRTTs*q.req.rtt.most); soon < wait && q.req.hurry && q.req.rtt.most > 0 && q.req.retries > 0 {
			wait = soon
		} else {
			q.req.hurry = false
		}
		q.req.deadline = now + wait
	}
}

// progress records that una moved: retry counters start afresh, and so does
// the timer while anything is in flight.
func (q *QP) progress(now int64) {
	r := &q.req
	r.retries, r.rnrLeft = int(q.attr.RetryCnt), int(q.attr.RNRRetry)
	r.restarted, r.probing, r.hurry = false, false, false
	if r.rnrWait {
		// Something after the packet that met an RNR NAK was acknowledged: an
		// earlier sending of it got through.
		r.rnrWait = false
	}
	if r.next == r.una {
		r.deadline = math.MaxInt64
	} else {
		q.armTimer(now)
	}
	q.drained()
}

// drained raises the SQD event once nothing is in flight and no message is
// begun. IBA 10.3.1.5.
func (q *QP) drained() {
	r := &q.req
	if q.attr.State != verbs.StateSQD || r.una != r.high {
		return
	}
	if w := r.headWQE(); w == nil || w.first == r.una {
		q.events |= transport.EventDrained
	}
}

// restart sends again from una, go-back-N, and takes a retry for it. One loss
// causes one restart: until progress, further signs of it are ignored, and
// while nothing is sent since the last one, as during an RNR wait. Nor is a
// sequence NAK for what met an RNR NAK a loss: rxe follows the one with the
// other when more packets come, and one for each burst would use up the retries.
func (q *QP) restart(now int64, why trace.Reason, p *bth.Packet) {
	r := &q.req
	known := r.restarted || r.next == r.una || why == trace.RetrySequence && r.probing
	timer := why == trace.RetryTimeout || why == trace.RetryAdaptive
	if known && !timer {
		q.note(now, trace.DropResponse, trace.Rx, p)
		return
	}
	q.note(now, why, trace.Local, p)
	if r.retries == 0 {
		q.failSend(now, verbs.WCRetryExcErr, trace.FailRetryExceeded)
		return
	}
	r.retries--
	if why == trace.RetrySequence {
		r.rtt.refused(now)
	}
	r.restarted = why != trace.RetryTimeout // whatever that outlived is over
	r.hurry = why == trace.RetrySequence
	if took := q.control.OnLoss(now, lossOf(why)); took != cc.TakenForLoss {
		q.note(now, trace.NoteSlowRestart, trace.Local, nil)
		if took == cc.SlowRestartBegins {
			q.note(now, trace.NoteSlowRestartTrans, trace.Local, nil)
		}
	}
	q.rewind(r.una)
	r.deadline = math.MaxInt64 // armed again when the first packet leaves
}

func lossOf(why trace.Reason) cc.Loss {
	switch why {
	case trace.RetrySequence:
		return cc.LossNAK
	case trace.RetryImplied:
		return cc.LossImplied
	}
	return cc.LossTimeout
}

// rnr waits as long as the responder's RNR NAK asks; nothing is sent and no
// other timer runs meanwhile. IBA 9.7.5.2.8.
func (q *QP) rnr(now int64, code uint8, p *bth.Packet) {
	r := &q.req
	if r.rnrWait {
		q.note(now, trace.DropResponse, trace.Rx, p)
		return
	}
	q.note(now, trace.RetryRNR, trace.Rx, p)
	if q.attr.RNRRetry != 7 {
		if r.rnrLeft == 0 {
			q.failSend(now, verbs.WCRNRRetryExcErr, trace.FailRNRExceeded)
			return
		}
		r.rnrLeft--
	}
	q.rewind(r.una)
	r.rnrWait, r.probing, r.hurry = true, true, false
	r.deadline = now + bth.RNRNanos(code)
}

// HandleTimer is called at or after Deadline. A responder tells of a gap but once
// (C9-114): when what it asked for is lost again, only the timeout finds out, and
// that is a thousand times as long as a round trip. So the first time it comes
// after a few of those, unless the retry it takes is the last. ConnectX does the
// like under the name of adaptive retransmission.
func (q *QP) HandleTimer(now int64) {
	r := &q.req
	if q.Deadline() > now {
		return
	}
	r.deadline = math.MaxInt64
	if r.rnrWait {
		r.rnrWait = false // Fill resumes
		r.restarted = false
		return
	}
	switch {
	case r.next == r.una:
	case r.hurry:
		q.restart(now, trace.RetryAdaptive, nil)
	default:
		q.restart(now, trace.RetryTimeout, nil)
	}
}
