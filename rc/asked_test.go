package rc

import (
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// The packets behind a request that asks for an ACK, or is answered, are counted
// from its last one: the fourth of them asks again where the window is 16.
func TestAsksAgainBehind(t *testing.T) {
	for _, c := range []struct {
		op      verbs.WROpcode
		octets  int
		packets int // PSNs
	}{{verbs.WRSend, 600, 3}, {verbs.WRWrite, 4, 1}, {verbs.WRRead, 600, 3}, {verbs.WRRead, 4, 1}, {verbs.WRFetchAdd, 8, 1}, {verbs.WRCmpSwap, 8, 1}} {
		t.Run(fmt.Sprintf("%v of %d", c.op, c.octets), func(t *testing.T) {
			rule(t, func(r *raw) {
				r.qp.control = &control{window: 16}
				r.post(1, c.op, c.octets)
				r.post(2, verbs.WRWrite, 256*9)
				r.sent()
				for _, p := range r.pkts {
					k := p.PSN.Diff(r.psn(c.packets)) // in the WRITE
					if want := k < 0 && p.Info().Has(bth.Ends) || k == 3 || k == 7 || k == 8; p.AckReq != want {
						r.t.Errorf("AckReq %v of %s", p.AckReq, r.text(p))
					}
				}
			})
		})
	}
}
