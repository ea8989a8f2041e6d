package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// credits is the requester's side of end-to-end flow control, IBA 9.7.7.2. They
// bind only where both ends agreed on it (verbs.QPAttr.FlowControl): hardware
// offers real counts in every ACK, and heeds none unless its connection says so.
//
// Every request message has a number, its LSN, from 0. An ACK says how many
// messages are complete (MSN) and how many receive requests there are beside: a
// SEND, or a WRITE with immediate, may go when its LSN is below the sum. The one
// at the sum may send its first packet, which asks for an ACK, and the rest when
// that came: it found a receive request. So may one when nothing is in flight: no
// message waits for ever.
type credits struct {
	lsn       uint32 // of the next request to be fetched, 24 bits
	limit     uint32 // LSN of the first message without a credit
	unlimited bool   // code 31 was seen
}

// sequence compares 24-bit message numbers.
func sequence(a, b uint32) int { return bth.MakePSN(a).Diff(bth.MakePSN(b)) }

// offer takes what an AETH says.
func (c *credits) offer(s bth.Syndrome, msn uint32) {
	if s.Kind() != bth.KindAck || s&0x80 != 0 {
		return
	}
	n, ok := s.Credits()
	if !ok {
		c.unlimited = true
		return
	}
	if l := (msn + uint32(n)) & bth.PSNMask; sequence(l, c.limit) > 0 {
		c.limit = l
	}
}

// hold reports whether packet i of w has to wait for a credit. W is limited
// when it may go only packet by packet; its first then asks for an ACK.
func (q *QP) hold(w *sqe, i int) (wait, limited bool) {
	c := &q.req.credits
	if !q.attr.FlowControl || c.unlimited || !w.takesRecv() {
		return false, false
	}
	switch d := sequence(w.lsn, c.limit); {
	case d < 0:
		return false, false
	case d > 0 && i == 0:
		// With nothing in flight no ACK would ever bring one: the peer counts
		// messages in another way.
		return q.req.next != q.req.una, true
	}
	return i > 0 && !q.req.una.After(w.first), true
}

// takesRecv reports whether the message consumes a receive request.
func (w *sqe) takesRecv() bool {
	switch w.Opcode {
	case verbs.WRSend, verbs.WRSendImm, verbs.WRSendInv, verbs.WRWriteImm:
		return true
	}
	return false
}

// credit is the syndrome of an ACK: how many receive requests there are, where
// credits bind. A shared queue promises nobody anything (IBA 9.7.7.2.1).
func (q *QP) credit() bth.Syndrome {
	if own := q.cfg.OwnRQ(); own != nil && q.attr.FlowControl {
		return bth.AckCredits(own.Len())
	}
	return bth.AckUnlimited
}
