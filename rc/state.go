package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Modify changes attributes and, when m has AttrState, the state. Flow is the
// address vector on the wire, needed when m has AttrAV. It returns an error
// that names what is missing, too much or out of range, and then changes
// nothing.
func (q *QP) Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) error {
	to, err := transport.CheckModify(verbs.RC, q.attr.State, a, m, flow)
	if err != nil {
		return err
	}
	from := q.attr.State
	switch to {
	case verbs.StateReset:
		q.reset()
		return nil
	case verbs.StateErr:
		q.toErr(now, trace.FailFlushed)
		return nil
	}
	q.apply(a, m, flow)
	q.attr.State = to
	switch {
	case from == verbs.StateInit && to == verbs.StateRTR:
		q.resp.start(bth.MakePSN(a.RQPSN), q.attr.MaxDestRdAtomic)
	case from == verbs.StateRTR && to == verbs.StateRTS:
		q.req.start(bth.MakePSN(a.SQPSN), q.attr)
		q.req.readPart = max(1, q.limit()/readFraction)
		if q.control == nil {
			q.control = new(cc.Adaptive)
		}
		q.control.Start(now, q.path())
	case from == verbs.StateRTS && to == verbs.StateSQD:
		q.drained()
	case from == verbs.StateSQD && to == verbs.StateSQD:
		q.readapt(m)
	}
	q.cfg.Recorder.Record(trace.Event{Time: now, QPN: uint32(q.cfg.QPN), Reason: trace.NoteState, Arg: uint32(to)})
	return nil
}

// path is what a controller has to know.
func (q *QP) path() cc.Path { return cc.Path{Limit: q.limit(), MTU: q.mtu, Line: q.cfg.Line} }

// SetControl gives the queue pair another controller, which begins afresh.
func (q *QP) SetControl(now int64, c cc.Controller) {
	if q.control = c; q.attr.State >= verbs.StateRTR {
		c.Start(now, q.path())
	}
}

// readapt makes attributes that changed in SQD take effect.
func (q *QP) readapt(m verbs.AttrMask) {
	r := &q.req
	if m&(verbs.AttrRetryCnt|verbs.AttrRNRRetry) != 0 {
		r.retries, r.rnrLeft = int(q.attr.RetryCnt), int(q.attr.RNRRetry)
	}
	if m&verbs.AttrMaxDestRdAtomic != 0 {
		q.resp.replies.resize(q.attr.MaxDestRdAtomic)
	}
	if m&verbs.AttrMaxRdAtomic != 0 && q.attr.MaxRdAtomic == 0 {
		for i := r.cur; i != r.tail; i++ {
			if w := r.at(i); w.answered() {
				w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
			}
		}
	}
}

func (q *QP) apply(a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) {
	transport.Apply(&q.attr, a, m)
	q.mtu = int(q.attr.PathMTU)
	if m&verbs.AttrAV != 0 {
		q.flow = flow
	}
}

// reset returns to RESET: nothing is completed, everything is forgotten.
func (q *QP) reset() {
	q.attr = verbs.QPAttr{}
	q.flow, q.events = nil, 0
	q.cfg.SQ.Reset()
	if own := q.cfg.OwnRQ(); own != nil {
		own.SetFlushing(false)
		own.Reset()
	}
	q.req.reset()
	q.resp.reset()
}
