package rc

import (
	"fmt"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// words are a burst's packets: opcode and PSN.
func (r *raw) words(b *wire.Burst) (s []string) {
	for _, g := range b.Segs {
		s = append(s, fmt.Sprintf("%v %d", g.Opcode, g.PSN.Diff(r.base)))
	}
	return s
}

// TestAckAlong: an ACK goes along behind requests where it fits, and what of
// such a burst the link does not take is sent again.
func TestAckAlong(t *testing.T) {
	for sent, again := range []string{"[[RC_SEND_ONLY 0 RC_SEND_ONLY 1 RC_ACK 0]]", "[[RC_ACK 0] [RC_SEND_ONLY 1]]", "[[RC_ACK 0]]", "[]"} {
		r := newRaw(t, 100)
		r.reqTo(bth.RCWriteOnly, 0, bytesOf(8, 1), 0)
		r.post(1, verbs.WRSend, 8)
		r.post(2, verbs.WRSend, 8)
		b := r.bursts(1, 0)[0]
		if got := fmt.Sprint(r.words(b)); got != "[RC_SEND_ONLY 0 RC_SEND_ONLY 1 RC_ACK 0]" {
			t.Fatal(got)
		}
		r.qp.Sent(b, sent)
		var all [][]string
		for b = r.bursts(1, 0)[0]; b.Len() > 0; b = r.bursts(1, 0)[0] {
			all = append(all, r.words(b))
			r.qp.Sent(b, b.Len())
		}
		if got := fmt.Sprint(all); got != again {
			t.Errorf("after %d left: %s, want %s", sent, got, again)
		}
		if s := r.qp.Stats(); s.SentRequests != 2 || s.SentResponses != 1 || s.AcksSent != 1 || s.SentBytes != 16 {
			t.Errorf("after %d left: %+v", sent, *s)
		}
		r.ack(1)
		r.wantDone("1 ok, 2 ok")
	}
}

// TestAckBehind: an ACK that did not fit behind requests goes before the next.
func TestAckBehind(t *testing.T) {
	r := newRaw(t, 100)
	r.reqTo(bth.RCWriteOnly, 0, bytesOf(8, 1), 0)
	r.post(1, verbs.WRSend, 260) // the second packet is shorter, and ends the burst
	r.post(2, verbs.WRSend, 8)
	for i, want := range []string{"[RC_SEND_FIRST 0 RC_SEND_LAST 1]", "[RC_ACK 0]", "[RC_SEND_ONLY 2]", "[]"} {
		if got := fmt.Sprint(r.words(r.bursts(1, 0)[0])); got != want {
			t.Errorf("burst %d: %s, want %s", i, got, want)
		}
	}
}

// TestAckLeaves: a link that takes a part of each burst does not keep the ACK behind
// the rest for ever.
func TestAckLeaves(t *testing.T) {
	r := newRaw(t, 100)
	r.reqTo(bth.RCWriteOnly, 0, bytesOf(8, 1), 0)
	r.post(0, verbs.WRSend, 8)
	for i := range 8 {
		r.post(uint64(i+1), verbs.WRSend, 8)
		b := r.bursts(1, 0)[0]
		if b.Segs[0].Opcode == bth.RCAck {
			return
		}
		r.qp.Sent(b, 1)
		r.ack(i)
	}
	t.Error("it never leaves")
}
