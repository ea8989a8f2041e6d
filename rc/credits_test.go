package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

func flowControl(a *verbs.QPAttr) { a.FlowControl = true }

// grant acknowledges up to a PSN with an MSN and a credit code.
func (r *raw) grant(off int, msn uint32, code bth.Syndrome) {
	r.in(bth.Packet{Opcode: bth.RCAck, PSN: r.psn(off), Syndrome: code, MSN: msn})
}

// A peer that never offers a credit gets one SEND per round trip: its first
// packet, with AckReq, and the rest when that was taken.
func TestNoCredits(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRSend, 600)
		r.post(3, verbs.WRSend, 4)
		r.wantSent("SEND_ONLY 0/4!")
		r.grant(0, 1, 0)
		r.wantDone("1 ok")
		r.wantSent("SEND_FIRST 1/256!")
		r.grant(1, 1, 0) // taken: the message has its receive request
		r.wantSent("SEND_MIDDLE 2/256!, SEND_LAST 3/88!")
		r.grant(3, 2, 0)
		r.wantDone("2 ok")
		r.wantSent("SEND_ONLY 4/4!")
	}, flowControl)
}

// WRITEs and READs count but need no credit; a SEND behind them waits for none
// that they used up.
func TestCreditsCountEveryRequest(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRWrite, 4)
		r.post(2, verbs.WRRead, 4)
		r.post(3, verbs.WRSend, 4)
		r.post(4, verbs.WRWrite, 4)
		r.wantSent("WRITE_ONLY 0/4!", "READ_REQ 1@7000+4!") // the SEND is two beyond
		r.grant(0, 1, 0)
		r.wantSent("")
		r.in(bth.Packet{Opcode: bth.RCReadRespOnly, PSN: r.psn(1), Syndrome: 0, MSN: 2, Payload: bytesOf(4, 1)})
		r.wantDone("1 ok, 2 ok")
		r.wantSent("SEND_ONLY 2/4!", "WRITE_ONLY 3/4!")
	}, flowControl)
}

// Credits offered open the way; fewer offered later take nothing back, and code
// 31 ends the counting.
func TestCreditsOffered(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 9 {
			r.post(uint64(i), verbs.WRSend, 4)
		}
		r.wantSent("SEND_ONLY 0/4!")
		r.grant(0, 1, 2)
		r.wantSent("SEND_ONLY 1/4!", "SEND_ONLY 2/4!", "SEND_ONLY 3/4!") // two, and the limited one
		r.grant(1, 2, 0)
		r.wantSent("")
		r.grant(2, 3, 1)
		r.wantSent("SEND_ONLY 4/4!")
		r.grant(3, 4, bth.AckUnlimited)
		r.wantSent("SEND_ONLY 5/4!", "SEND_ONLY 6/4!", "SEND_ONLY 7/4!", "SEND_ONLY 8/4!")
		r.grant(8, 9, 0)
		r.post(9, verbs.WRSend, 4)
		r.post(10, verbs.WRSend, 4)
		r.wantSent("SEND_ONLY 9/4!", "SEND_ONLY 10/4!")
	}, flowControl)
}

// Without the connection's word counts mean nothing.
func TestCreditsDoNotBind(t *testing.T) {
	rule(t, func(r *raw) {
		for i := range 3 {
			r.post(uint64(i), verbs.WRSend, 300)
		}
		r.wantSent("SEND_FIRST 0/256", "SEND_LAST 1/44!", "SEND_FIRST 2/256", "SEND_LAST 3/44!", "SEND_FIRST 4/256", "SEND_LAST 5/44!")
		r.grant(1, 1, 0)
		r.wantSent("")
	})
}

// A limited SEND that meets no receive request is sent again after the RNR wait,
// like any other.
func TestLimitedSendNotReady(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 300)
		r.wantSent("SEND_FIRST 0/256!")
		r.nak(0, bth.RNRNAK(12))
		r.wantSent("")
		r.expire()
		r.wantSent("SEND_FIRST 0/256!")
		r.grant(0, 0, 0)
		r.wantSent("SEND_LAST 1/44!")
	}, flowControl)
}

// What a responder offers is the receive requests it has, by the codes there
// are; nothing is promised where credits do not bind.
func TestCreditsAdvertised(t *testing.T) {
	for n, want := range map[int]bth.Syndrome{0: 0, 1: 1, 4: 4, 5: 4, 6: 5, 7: 5, 47: 10, 48: 11, 63: 11} {
		r := newRaw(t, 100, flowControl)
		for i := range n + 1 {
			r.postRecv(uint64(i), 0, 64)
		}
		r.req(bth.RCSendOnly, 0, bytesOf(4, 1))
		r.wantSent("ACK 0")
		if got := r.pkts[0].Syndrome; got != want {
			t.Fatalf("%d receive requests: credit code %d, want %d", n, got, want)
		}
	}
	r := newRaw(t, 100)
	r.postRecv(1, 0, 64)
	r.req(bth.RCSendOnly, 0, bytesOf(4, 1))
	r.wantSent("ACK 0")
	if r.pkts[0].Syndrome != bth.AckUnlimited {
		t.Fatal(r.pkts[0].Syndrome)
	}
}

// A peer that counts fewer messages than were sent (one that does not count
// READs, or parts of them) holds nothing up for ever: with nothing in flight one
// packet goes, and the rest of its message when that was taken.
func TestCreditsOfAnotherCount(t *testing.T) {
	rule(t, func(r *raw) {
		for range 3 {
			r.post(1, verbs.WRRead, 4)
		}
		r.post(2, verbs.WRSend, 300)
		r.post(3, verbs.WRSend, 4)
		r.wantSent("READ_REQ 0@7000+4!", "READ_REQ 1@7000+4!", "READ_REQ 2@7000+4!")
		for i := range 3 {
			r.wantSent("") // what is in flight may bring a credit
			r.in(bth.Packet{Opcode: bth.RCReadRespOnly, PSN: r.psn(i), Payload: bytesOf(4, 1)})
		}
		r.wantSent("SEND_FIRST 3/256!")
		r.grant(3, 0, 0)
		r.wantSent("SEND_LAST 4/44!")
		r.grant(4, 1, 0)
		r.wantSent("SEND_ONLY 5/4!")
	}, flowControl)
}
