package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// filled fills a burst of so many octets at most and returns how many packets it
// holds, and their octets.
func (r *raw) filled(octets int) (packets, bytes int) {
	r.t.Helper()
	r.burst.Reset(nil, 0, octets)
	if !r.qp.Fill(r.now, r.burst) {
		r.t.Fatal("nothing to send")
	}
	return r.burst.Len(), r.burst.Bytes()
}

// reads delivers three READ requests.
func (r *raw) reads(n int) {
	for i := range 3 {
		r.reqTo(bth.RCReadReq, i, make([]byte, n), 0)
	}
}

// Packets of one kind and length share a burst as long as there is room, to the
// octet: three in that of three, and two in one an octet smaller.
func TestBurstsAreFull(t *testing.T) {
	post := func(op verbs.WROpcode) func(*raw) {
		return func(r *raw) {
			for id := range uint64(3) {
				r.post(id, op, 8)
			}
		}
	}
	for _, c := range []struct {
		name string
		wait func(r *raw) // three packets
	}{
		{"SEND", post(verbs.WRSend)},
		{"WRITE", post(verbs.WRWrite)},
		{"READ", post(verbs.WRRead)},
		{"fetch and add", post(verbs.WRFetchAdd)},
		{"compare and swap", post(verbs.WRCmpSwap)},
		{"READ response", func(r *raw) { r.reads(256) }},
		{"READ response with a pad", func(r *raw) { r.reads(5) }},
		{"atomic acknowledge", func(r *raw) {
			for i := range 3 {
				r.req(bth.RCFetchAdd, i, nil)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t, 100)
			c.wait(r)
			n, bytes := r.filled(0)
			if n != 3 {
				t.Fatalf("%d packets in a burst with room, want 3", n)
			}
			for want, octets := range map[int]int{2: bytes - 1, 3: bytes} {
				r := newRaw(t, 100)
				c.wait(r)
				if n, _ := r.filled(octets); n != want {
					t.Errorf("%d packets in a burst of %d octets, want %d", n, octets, want)
				}
			}
		})
	}
}

// The ACK that waits beside a NAK shares its burst, if there is room.
func TestAckBesideNAK(t *testing.T) {
	const ack = bth.BTHLen + bth.AETHLen + bth.ICRCLen
	for want, octets := range map[int]int{1: 2*ack - 1, 2: 2 * ack} {
		r := newRaw(t, 100)
		r.req(bth.RCWriteOnly, 1, nil) // a gap
		r.req(bth.RCWriteOnly, 0, nil) // and its end
		r.qp.queueNAK(bth.NAKSequence)
		r.qp.queueAck(r.psn(0))
		if n, _ := r.filled(octets); n != want {
			t.Errorf("%d packets in a burst of %d octets, want %d", n, octets, want)
		}
	}
}

// Of a burst of responses that left in part, so much counts as sent.
func TestSentResponsesInPart(t *testing.T) {
	for sent := range 4 {
		r := newRaw(t, 100)
		r.reads(256)
		b := r.bursts(1, 3)[0]
		r.qp.Sent(b, sent)
		if s := r.qp.Stats(); s.SentResponses != uint64(sent) || s.SentBytes != uint64(sent*256) {
			t.Errorf("%d left, but %d packets and %d octets count", sent, s.SentResponses, s.SentBytes)
		}
		r.sent()
		if s := r.qp.Stats(); s.SentResponses != 3 || s.SentBytes != 3*256 {
			t.Errorf("%d left first, and %d packets and %d octets count in the end", sent, s.SentResponses, s.SentBytes)
		}
	}
}

// SENDs count once each, by their first packet, and no other operation among them.
func TestSendsCount(t *testing.T) {
	for op, want := range map[verbs.WROpcode]uint64{
		verbs.WRSend: 1, verbs.WRSendImm: 1, verbs.WRSendInv: 1, verbs.WRWrite: 0, verbs.WRWriteImm: 0, verbs.WRRead: 0,
	} {
		for _, n := range []int{0, 8, 700} {
			r := newRaw(t, 100)
			r.post(1, op, n)
			r.sent()
			r.expire()
			r.sent()
			if got := r.qp.Stats().Sends; got != want {
				t.Errorf("operation %v of %d octets: %d sends, want %d", op, n, got, want)
			}
		}
	}
}
