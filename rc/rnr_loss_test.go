package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// A READ that a receiver-not-ready NAK put off starts afresh when its wait is
// over: that a packet behind it was answered shows a new loss, whatever was
// lost before the wait.
func TestImpliedNAKAfterRNR(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRRead, 4)
		r.post(2, verbs.WRSend, 4)
		r.wantSent("READ_REQ 0@7000+4!", "SEND_ONLY 1/4!")
		r.nak(0, bth.NAKSequence)
		r.wantSent("READ_REQ 0@7000+4!", "SEND_ONLY 1/4!")
		r.nak(0, bth.RNRNAK(1))
		r.wantSent("")
		r.expire()
		r.wantSent("READ_REQ 0@7000+4!")
		r.ack(1)
		r.wantSent("READ_REQ 0@7000+4!")
		if n := r.qp.Counts()[trace.RetryImplied]; n != 1 {
			t.Errorf("%d implied NAKs", n)
		}
	})
}

// A receiver-not-ready NAK that waits for its turn is not replaced by a sequence
// NAK for what comes behind it, which would have the requester send again at once
// and take one of its few retries for it.
func TestRNRNAKIsKept(t *testing.T) {
	t.Run("duplicate between", func(t *testing.T) {
		rule(t, func(r *raw) {
			r.req(bth.RCWriteOnly, 0, nil)
			r.wantSent("ACK 0")
			r.req(bth.RCSendOnly, 1, nil)
			r.in(bth.Packet{Opcode: bth.RCWriteOnly, PSN: r.psn(0)})
			r.req(bth.RCSendOnly, 2, nil)
			r.wantSent("RNR12 1")
		})
	})
	t.Run("NAK behind RNR", func(t *testing.T) {
		rule(t, func(r *raw) {
			r.qp.cfg.Habits = NAKBehindRNR
			r.req(bth.RCSendOnly, 0, nil)
			r.req(bth.RCSendOnly, 1, nil)
			r.wantSent("RNR12 0")
			r.req(bth.RCSendOnly, 2, nil)
			r.wantSent("NAK60 0")
		})
	})
}
