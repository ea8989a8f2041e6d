package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// What Soft-RoCE does around RNR NAKs and duplicate READs, for who asks for it.
func TestHabits(t *testing.T) {
	t.Run("resend all", func(t *testing.T) {
		rule(t, func(r *raw) {
			r.qp.cfg.Habits = ResendAll
			r.post(1, verbs.WRSend, 600)
			r.sent()
			r.nak(0, bth.RNRNAK(12))
			r.expire()
			r.wantSent("SEND_FIRST 0/256", "SEND_MIDDLE 1/256", "SEND_LAST 2/88!")
		})
	})
	t.Run("NAK behind RNR", func(t *testing.T) {
		rule(t, func(r *raw) {
			r.qp.cfg.Habits = NAKBehindRNR
			r.req(bth.RCSendOnly, 0, nil)
			r.wantSent("RNR12 0")
			r.req(bth.RCSendOnly, 1, nil)
			r.req(bth.RCSendOnly, 2, nil)
			r.wantSent("NAK60 0")
		})
	})
	for _, habits := range []Habits{0, NAKDuplicateRead} {
		t.Run("duplicate READ "+habits.String(), func(t *testing.T) {
			rule(t, func(r *raw) {
				r.qp.cfg.Habits = habits
				p := r.packet(bth.RCReadReq, 0, bytesOf(8, 1))
				r.in(p)
				r.wantSent("READ_RESP_ONLY 0/8")
				if err := r.qp.cfg.MRs.Deregister(p.RKey); err != nil {
					t.Fatal(err)
				}
				r.in(p)
				if habits == 0 {
					r.wantSent()
					r.wantState(verbs.StateRTS)
				} else {
					r.wantSent("NAK62 0")
					r.wantState(verbs.StateErr)
				}
			})
		})
	}
}
