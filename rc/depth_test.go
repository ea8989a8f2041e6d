package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// A READ that was sent before SQD forbade READs is asked for again after a loss,
// whatever else changes in SQD meanwhile.
func TestReadSentAgainWithoutDepth(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRRead, 4)
		r.wantSent("READ_REQ 0@7000+4!")
		r.modify(verbs.StateSQD, verbs.AttrState)
		r.modify(verbs.StateSQD, verbs.AttrState|verbs.AttrMaxRdAtomic)
		r.expire()
		r.modify(verbs.StateSQD, verbs.AttrState|verbs.AttrRNRRetry)
		r.wantSent("READ_REQ 0@7000+4!")
		r.resp(bth.RCReadRespOnly, 0, bytesOf(4, 1))
		r.wantDone("1 ok")
	})
}

// A READ that waits for depth when READs are forbidden fails as one posted later
// does: for the same reason.
func TestForbiddenForOneReason(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRRead, 4)
		r.post(2, verbs.WRRead, 4)
		r.wantSent("READ_REQ 0@7000+4!")
		r.modify(verbs.StateSQD, verbs.AttrState)
		r.modify(verbs.StateSQD, verbs.AttrState|verbs.AttrMaxRdAtomic)
		r.resp(bth.RCReadRespOnly, 0, bytesOf(4, 1))
		r.sent()
		if len(r.wcs) != 2 || r.wcs[1].Reason != trace.FailLocalQPOp || r.qp.Counts()[trace.FailLocalQPOp] != 1 {
			r.t.Errorf("%+v, %d counted", r.wcs, r.qp.Counts()[trace.FailLocalQPOp])
		}
		r.wantDone("1 ok, 2 LOC_QP_OP")
	}, func(a *verbs.QPAttr) { a.MaxRdAtomic = 1 })
}
