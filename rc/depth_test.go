package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
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
