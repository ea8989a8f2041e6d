package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// What a query says of the PSNs: from RTR on the one expected, and the one to
// be sent next.
func TestQueriedPSNs(t *testing.T) {
	r := newRaw(t, 100)
	r.post(1, verbs.WRWrite, 600)
	r.sent()
	r.req(bth.RCWriteOnly, 0, nil)
	if a := r.qp.Attr(); a.RQPSN != 101 || a.SQPSN != 103 || a.State != verbs.StateRTS || a.CurState != verbs.StateRTS {
		t.Errorf("in RTS: %+v", a)
	}
	r.modify(verbs.StateReset, verbs.AttrState)
	r.modify(verbs.StateInit, toInit)
	a := verbs.QPAttr{State: verbs.StateRTR, PathMTU: 256, RQPSN: 200, DestQPN: 5}
	if err := r.qp.Modify(0, &a, toRTR, new(wire.Flow)); err != nil {
		t.Fatal(err)
	}
	r.req(bth.RCWriteOnly, 100, nil)
	if a := r.qp.Attr(); a.RQPSN != 201 || a.CurState != verbs.StateRTR {
		t.Errorf("in RTR: %+v", a)
	}
}
