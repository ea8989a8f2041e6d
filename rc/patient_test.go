package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// An ACK alone may wait for the program; nothing else may, nor an ACK beside it.
func TestPatient(t *testing.T) {
	write := func(r *raw) { r.req(bth.RCWriteOnly, 0, bytesOf(4, 1)) }
	for _, c := range []struct {
		name string
		do   func(r *raw)
		want bool
	}{
		{"nothing", func(*raw) {}, false},
		{"ACK", write, true},
		{"ACK and a request", func(r *raw) { write(r); r.post(1, verbs.WRSend, 4) }, false},
		{"request", func(r *raw) { r.post(1, verbs.WRSend, 4) }, false},
		{"ACK and NAK", func(r *raw) { r.req(bth.RCWriteOnly, 1, nil); r.qp.queueAck(r.psn(-1)) }, false},
		{"NAK", func(r *raw) { r.req(bth.RCWriteOnly, 1, nil) }, false},
		{"ACK and READ response", func(r *raw) { write(r); r.reqTo(bth.RCReadReq, 1, make([]byte, 4), 0) }, false},
		{"atomic acknowledge", func(r *raw) { r.req(bth.RCFetchAdd, 0, nil) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t, 100)
			c.do(r)
			if got := r.qp.Patient(r.now); got != c.want {
				t.Errorf("patient: %v, want %v", got, c.want)
			}
		})
	}
}
