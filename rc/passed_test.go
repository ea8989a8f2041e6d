package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// A burst of requests may pass a waiting ACK, which is next then, however many
// requests wait; one that nothing passes leaves at once.
func TestAckIsPassedOnce(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRWrite, 256*5)
		for round := range 2 {
			r.req(bth.RCWriteOnly, round, bytesOf(4, 1))
			got := r.bursts(2, 1)
			if got[0].Kind != wire.KindRequest || got[1].Kind != wire.KindResponse {
				r.t.Fatalf("round %d: kinds %v, %v", round, got[0].Kind, got[1].Kind)
			}
		}
		r.wantSent("WRITE_MIDDLE 2/256, WRITE_MIDDLE 3/256, WRITE_LAST 4/256!")
		r.req(bth.RCWriteOnly, 2, bytesOf(4, 1))
		r.wantSent("ACK 2")
	})
}
