package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
)

// Of two NAKs that a link may not take, in two bursts, the newer leaves once: the
// older is of no use any more.
func TestNewerNakStays(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(r *raw) // the older one's cause
		then   func(r *raw) // the newer one's
		want   string
	}{
		{"another gap", func(r *raw) { r.req(bth.RCWriteOnly, 1, nil) }, func(r *raw) {
			r.req(bth.RCWriteOnly, 0, nil)
			r.req(bth.RCWriteOnly, 2, nil)
		}, "NAK60 1"},
		{"an error in the packet asked for", func(r *raw) { r.req(bth.RCWriteOnly, 1, nil) }, func(r *raw) {
			r.req(bth.RCWriteLast, 0, bytesOf(1, 0))
		}, "NAK61 0"},
	} {
		for _, back := range [][]int{{0}, {1}, {0, 1}, {1, 0}} {
			rule(t, func(r *raw) {
				c.before(r)
				bursts := r.bursts(1, 1)
				c.then(r)
				bursts = append(bursts, r.bursts(1, 1)...)
				for i, b := range bursts {
					if b.Len() != 1 {
						r.t.Fatalf("burst %d of %d packets", i, b.Len())
					}
				}
				want := ""
				for _, i := range back {
					r.qp.Sent(bursts[i], 0)
					if i == 1 {
						want = c.want
					}
				}
				r.wantSent(want)
			})
		}
	}
}
