package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// Config.Window is how many packets of 4 KiB may be in flight, from 1 on; what
// is not positive means 64.
func TestConfiguredWindow(t *testing.T) {
	for _, c := range []struct{ window, want int }{{-1, 64}, {0, 64}, {1, 1}, {2, 2}, {100, 100}} {
		r := newRawMem(t, 100, 1<<20)
		cfg := r.qp.cfg
		cfg.Window = c.window
		r.qp = New(cfg)
		r.connect(verbs.QPAttr{Access: verbs.AccessAll, PathMTU: 4096, SQPSN: 100, RQPSN: 100, Timeout: 14, RetryCnt: 7, RNRRetry: 7})
		r.post(1, verbs.WRWrite, 4096*200)
		r.sent()
		if len(r.pkts) != c.want {
			t.Errorf("window %d: %d packets in flight, want %d", c.window, len(r.pkts), c.want)
		}
	}
}

// A timeout of 0 means none (IBA 9.7.6.1.3), also once it is set in SQD while
// packets are in flight: the next ACK stops the timer.
func TestTimeoutTurnedOff(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 600)
		r.sent()
		r.modify(verbs.StateSQD, verbs.AttrState)
		r.modify(verbs.StateSQD, verbs.AttrState|verbs.AttrTimeout)
		r.ack(0)
		if d := r.qp.Deadline(); d != never {
			t.Errorf("a deadline at %d", d)
		}
		r.nak(1, bth.NAKSequence)
		r.wantSent("SEND_MIDDLE 1/256, SEND_LAST 2/88!")
		if d := r.qp.Deadline(); d != never {
			t.Errorf("a deadline at %d", d)
		}
	})
}
