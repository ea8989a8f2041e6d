package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// Every error wakes who waits for solicited completions alone; a success of a send
// request does not.
func TestErrorsAreSolicited(t *testing.T) {
	r := newRaw(t, 100)
	post := func() {
		r.post(1, verbs.WRWrite, 4)
		r.post(2, verbs.WRWrite, 4)
		r.sent()
	}
	want := func(done string, solicited bool) {
		t.Helper()
		r.wantDone(done)
		if r.solicited != solicited {
			t.Errorf("solicited %v after %s", r.solicited, done)
		}
		r.solicited = false
	}
	post()
	r.solicited = true
	r.ack(0)
	want("1 ok", false)
	r.nak(1, bth.NAKRemoteAccess)
	want("2 REM_ACCESS", true)
	r.post(3, verbs.WRWrite, 4)
	want("3 FLUSH", true)
}
