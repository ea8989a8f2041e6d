package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// RESET forgets the events that nobody took, the timer, and what counted for
// credits, and a connection after it begins like the first.
func TestResetForgets(t *testing.T) {
	rule(t, func(r *raw) {
		for id := range uint64(3) {
			r.post(id, verbs.WRSend, 4)
		}
		r.post(3, verbs.WRRead, 700)
		r.sent()
		r.req(bth.RCWriteLast, 0, bytesOf(1, 0)) // an error, and its events
		r.modify(verbs.StateReset, verbs.AttrState)
		if e := r.qp.TakeEvents(); e != 0 {
			r.t.Errorf("events %#x after RESET", e)
		}
		if r.qp.Flow() != nil {
			r.t.Error("a flow after RESET")
		}
		r.wcs = r.wcs[:0]
		r.sq.Reset()
		r.connect(upAttr(r))
		if d := r.qp.Deadline(); d != never {
			r.t.Errorf("a deadline at %d, with nothing sent", d)
		}
		r.post(4, verbs.WRRead, 4)
		r.post(5, verbs.WRSend, 4)
		r.wantSent("READ_REQ 0@7000+4!, SEND_ONLY 1/4!")
		r.resp(bth.RCReadRespOnly, 0, bytesOf(4, 1))
		r.ack(1)
		r.wantDone("4 ok, 5 ok")
	})
}

// The message number with which a connection begins does not outlast it.
func TestResetForgetsCredits(t *testing.T) {
	r := newRaw(t, 100, flowControl)
	r.post(1, verbs.WRSend, 4)
	r.sent()
	r.grant(0, 1, 20)
	r.modify(verbs.StateReset, verbs.AttrState)
	r.sq.Reset()
	r.wcs = r.wcs[:0]
	a := upAttr(r)
	a.FlowControl = true
	r.connect(a)
	r.post(2, verbs.WRSend, 4)
	r.post(3, verbs.WRSend, 4)
	r.wantSent("SEND_ONLY 0/4!")
	r.grant(0, 1, 0)
	r.wantSent("SEND_ONLY 1/4!")
}
