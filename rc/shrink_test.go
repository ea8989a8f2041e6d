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
