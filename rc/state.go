package rc

import (
	"fmt"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Modify changes attributes and, when m has AttrState, the state. Flow is the
// address vector on the wire, needed when m has AttrAV. It returns an error
// that names what is missing, too much or out of range, and then changes
// nothing.
func (q *QP) Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) error {
	to := q.attr.State
	if m&verbs.AttrState != 0 {
		to = a.State
	}
	if err := verbs.CheckTransition(verbs.RC, q.attr.State, to, m); err != nil {
		return err
	}
	if err := checkRanges(a, m); err != nil {
		return err
	}
	if m&verbs.AttrAV != 0 && flow == nil {
		return fmt.Errorf("rc: an address vector without a flow")
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
		if q.control = q.cfg.Control; q.control == nil {
			q.control = cc.NewAdaptive(q.limit())
		}
	case from == verbs.StateRTS && to == verbs.StateSQD:
		q.drained()
	case from == verbs.StateSQD && to == verbs.StateSQD:
		q.readapt(m)
	}
	q.cfg.Recorder.Record(trace.Event{Time: now, QPN: uint32(q.cfg.QPN), Reason: trace.NoteState, Arg: uint32(to)})
	return nil
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
				w.bad, w.badWhy = verbs.WCLocQPOpErr, trace.FailLocalQPOp
			}
		}
	}
}

func checkRanges(a *verbs.QPAttr, m verbs.AttrMask) error {
	for _, c := range []struct {
		m     verbs.AttrMask
		v     int
		limit int
		name  string
	}{
		{verbs.AttrMaxRdAtomic, a.MaxRdAtomic, verbs.MaxRdAtomic, "MaxRdAtomic"},
		{verbs.AttrMaxDestRdAtomic, a.MaxDestRdAtomic, verbs.MaxRdAtomic, "MaxDestRdAtomic"},
		{verbs.AttrMinRNRTimer, int(a.MinRNRTimer), 31, "MinRNRTimer"},
		{verbs.AttrTimeout, int(a.Timeout), 31, "Timeout"},
		{verbs.AttrRetryCnt, int(a.RetryCnt), 7, "RetryCnt"},
		{verbs.AttrRNRRetry, int(a.RNRRetry), 7, "RNRRetry"},
		{verbs.AttrDestQPN, int(a.DestQPN), bth.QPNMask, "DestQPN"},
		{verbs.AttrRQPSN, int(a.RQPSN), bth.PSNMask, "RQPSN"},
		{verbs.AttrSQPSN, int(a.SQPSN), bth.PSNMask, "SQPSN"},
	} {
		if m&c.m != 0 && (c.v < 0 || c.v > c.limit) {
			return fmt.Errorf("rc: %s is %d, the range is 0..%d", c.name, c.v, c.limit)
		}
	}
	if m&verbs.AttrPathMTU != 0 && !a.PathMTU.Valid() {
		return fmt.Errorf("rc: path MTU %d is none of 256, 512, 1024, 2048, 4096", a.PathMTU)
	}
	return nil
}

func (q *QP) apply(a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) {
	set := func(bit verbs.AttrMask, f func()) {
		if m&bit != 0 {
			f()
		}
	}
	t := &q.attr
	set(verbs.AttrAccess, func() { t.Access = a.Access })
	set(verbs.AttrPKeyIndex, func() { t.PKeyIndex = a.PKeyIndex })
	set(verbs.AttrPort, func() { t.Port = a.Port })
	set(verbs.AttrAV, func() { t.AV, q.flow = a.AV, flow })
	set(verbs.AttrPathMTU, func() { t.PathMTU, q.mtu = a.PathMTU, int(a.PathMTU) })
	set(verbs.AttrDestQPN, func() { t.DestQPN = a.DestQPN })
	set(verbs.AttrRQPSN, func() { t.RQPSN = a.RQPSN })
	set(verbs.AttrSQPSN, func() { t.SQPSN = a.SQPSN })
	set(verbs.AttrMaxDestRdAtomic, func() { t.MaxDestRdAtomic = a.MaxDestRdAtomic })
	set(verbs.AttrMinRNRTimer, func() { t.MinRNRTimer = a.MinRNRTimer })
	set(verbs.AttrTimeout, func() { t.Timeout = a.Timeout })
	set(verbs.AttrRetryCnt, func() { t.RetryCnt = a.RetryCnt })
	set(verbs.AttrRNRRetry, func() { t.RNRRetry = a.RNRRetry })
	set(verbs.AttrMaxRdAtomic, func() { t.MaxRdAtomic = a.MaxRdAtomic })
}

// reset returns to RESET: nothing is completed, everything is forgotten.
func (q *QP) reset() {
	q.attr = verbs.QPAttr{}
	q.flow, q.mtu, q.events = nil, 0, 0
	q.cfg.SQ.Reset()
	if r, ok := q.cfg.RQ.(*verbs.RecvRing); ok {
		r.SetFlushing(false)
		r.Reset()
	}
	q.req.reset()
	q.resp.reset()
}
