package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// After a timeout every READ outstanding is asked for again at once, the one
// answered in part from its middle: none of them counts against the depth any
// more.
func TestRewindFreesDepth(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRRead, 600)
		r.post(2, verbs.WRRead, 4)
		r.wantSent("READ_REQ 0@7000+600!", "READ_REQ 3@7000+4!")
		r.resp(bth.RCReadRespFirst, 0, bytesOf(256, 1))
		for range 2 {
			r.expire()
			r.wantSent("READ_REQ 1@7256+344!", "READ_REQ 3@7000+4!")
		}
	}, func(a *verbs.QPAttr) { a.MaxRdAtomic = 2 })
}
