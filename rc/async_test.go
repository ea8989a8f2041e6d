package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// The asynchronous events of each end (IBA 11.6.3), told once.
func TestAsyncEvents(t *testing.T) {
	const last = transport.EventLastWQE
	for _, c := range []struct {
		name string
		do   func(r *raw)
		want transport.Events
	}{
		{"device's failure", func(r *raw) { r.qp.Fail(0, trace.FailCQOverflow) }, transport.EventFatal | last},
		{"failure in ERR", func(r *raw) {
			r.modify(verbs.StateErr, verbs.AttrState)
			r.qp.TakeEvents()
			r.qp.Fail(0, trace.FailCQOverflow)
		}, 0},
		{"failure in RESET", func(r *raw) {
			r.modify(verbs.StateReset, verbs.AttrState)
			r.qp.Fail(0, trace.FailCQOverflow)
		}, 0},
		{"ERR by Modify", func(r *raw) { r.modify(verbs.StateErr, verbs.AttrState) }, last},
		{"invalid request", func(r *raw) { r.req(bth.RCWriteLast, 0, bytesOf(1, 0)) }, transport.EventReqErr | last},
		{"access error", func(r *raw) {
			p := r.packet(bth.RCWriteOnly, 0, bytesOf(4, 0))
			p.RKey++
			r.in(p)
		}, transport.EventAccess | last},
		{"bad receive list", func(r *raw) {
			r.recv(verbs.RecvWR{SGL: []verbs.SGE{{Length: 8, LKey: 1}}})
			r.req(bth.RCSendOnly, 0, bytesOf(4, 0))
		}, transport.EventFatal | last},
		{"no receive request", func(r *raw) { r.req(bth.RCSendOnly, 0, bytesOf(4, 0)) }, 0},
		{"NAK", func(r *raw) {
			r.post(1, verbs.WRSend, 0)
			r.sent()
			r.nak(0, bth.NAKRemoteAccess)
		}, last},
		{"idle in SQD", func(r *raw) { r.modify(verbs.StateSQD, verbs.AttrState) }, transport.EventDrained},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t, 100)
			c.do(r)
			if got := r.qp.TakeEvents(); got != c.want {
				t.Errorf("events %#x, want %#x", got, c.want)
			}
			if got := r.qp.TakeEvents(); got != 0 {
				t.Errorf("events %#x again", got)
			}
		})
	}
}
