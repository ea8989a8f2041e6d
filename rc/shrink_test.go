package rc

import (
	"testing"

	"github.com/gorxe/gorxe/verbs"
)

// A window that shrinks below what is in flight lets one more packet go when
// nothing in flight asks for an ACK, however little that is: that packet asks.
func TestShrunkWindow(t *testing.T) {
	for _, inFlight := range []int{1, 2, 5} {
		rule(t, func(r *raw) {
			c := &control{window: 100}
			r.qp.control = c
			r.post(1, verbs.WRWrite, 256*50)
			for range inFlight {
				if b := r.bursts(1, 1)[0]; b.Len() != 1 {
					r.t.Fatalf("a burst of %d packets", b.Len())
				}
			}
			c.window = 1
			r.sent()
			if len(r.pkts) != 1 || r.pkts[0].PSN != r.psn(inFlight) || !r.pkts[0].AckReq {
				r.t.Fatalf("sent %s", r.texts())
			}
			r.ack(inFlight)
			r.sent()
			if len(r.pkts) != 1 || !r.pkts[0].AckReq {
				r.t.Fatalf("sent %s after the ACK", r.texts())
			}
		})
	}
}

// Every request of one packet asks for its answer, and is one packet in flight:
// a window of one holds back what follows.
func TestWindowOfOne(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRRead, verbs.WRFetchAdd, verbs.WRCmpSwap} {
		rule(t, func(r *raw) {
			r.qp.control = &control{window: 1}
			r.post(1, op, 8)
			r.post(2, verbs.WRWrite, 8)
			r.sent()
			if len(r.pkts) != 1 || !r.pkts[0].AckReq {
				r.t.Fatalf("%v: sent %s", op, r.texts())
			}
		})
	}
}
