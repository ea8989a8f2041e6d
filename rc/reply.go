package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// ackState is the one acknowledgement that may wait: a later one takes the
// place of an earlier. C9-116.
type ackState struct {
	pending bool
	psn     bth.PSN
}

// nakState is the one NAK that may wait.
type nakState struct {
	pending  bool
	fatal    bool // the queue pair is in ERR and sends nothing after it, or after what it had to answer
	psn      bth.PSN
	syndrome bth.Syndrome
}

func (q *QP) queueAck(psn bth.PSN) {
	a := &q.resp.ack
	if a.pending {
		q.stats.AcksCoalesced++
		if !psn.After(a.psn) {
			return
		}
	}
	a.pending, a.psn = true, psn
}

// queueNAK asks for the expected PSN. It acknowledges everything before that,
// so a waiting ACK is not needed any more.
func (q *QP) queueNAK(s bth.Syndrome) {
	r := &q.resp
	r.nak = nakState{pending: true, psn: r.epsn, syndrome: s}
	r.ack.pending = false
}

// silence drops everything that waits to be sent.
func (r *responder) silence() {
	r.ack.pending, r.nak.pending = false, false
	for i := range r.replies.slots {
		r.replies.slots[i].pending = false
	}
}

func (q *QP) responsesPending() bool {
	r := &q.resp
	return (r.ack.pending || r.nak.pending || r.replies.next() != nil) && q.flow != nil
}

// fillResponses puts responses into an empty burst in the order of their PSNs:
// READ and atomic replies first, then the ACK or NAK, which acknowledges them.
func (q *QP) fillResponses(now int64, b *wire.Burst) bool {
	if !q.responsesPending() {
		return false
	}
	r := &q.resp
	b.Kind = wire.KindResponse
	for {
		a := r.replies.next()
		if a == nil || b.Urgent && a.kind != replyAtomic {
			break
		}
		if a.kind == replyAtomic {
			if !q.putAtomicAck(b, a) {
				break
			}
		} else if !q.putReadResp(now, b, a) {
			break
		}
		if r.ack.pending && a.sent > 0 && r.ack.psn.Before(a.start.Add(a.sent)) {
			r.ack.pending = false // this response acknowledges it
		}
	}
	if r.replies.next() == nil {
		q.putAck(b)
	}
	if b.Len() == 0 {
		return false
	}
	q.stats.SentResponses += uint64(b.Len())
	return true
}

// putReadResp adds response packets of one READ until the burst is full. It
// returns false when it stopped short. The payload is a snapshot: the memory
// may change under the ICRC.
func (q *QP) putReadResp(now int64, b *wire.Burst, a *reply) bool {
	for a.sent < a.todo {
		skip := a.start.Diff(a.first)
		off := (skip + a.sent) * q.mtu
		n := min(q.mtu, a.end-off)
		op := bth.RCReadRespMiddle
		switch first, last := a.sent == 0, a.sent == a.todo-1; {
		case first && last:
			op = bth.RCReadRespOnly
		case first:
			op = bth.RCReadRespFirst
		case last:
			op = bth.RCReadRespLast
		}
		hdr := op.Info().HdrLen
		if !b.Fits(hdr+n+-n&3+bth.ICRCLen, 0) {
			return false
		}
		var src []byte
		if n > 0 {
			var why trace.Reason
			if src, why = q.mem.Remote(a.rkey, a.va+uint64(off), n, verbs.AccessRemoteRead); why != trace.None {
				return q.readFailed(now, a, why)
			}
		}
		p := q.header(op, a.start.Add(a.sent))
		p.Pad = uint8(-n & 3)
		p.Syndrome, p.MSN = q.credit(), q.resp.msn
		p.PutHeaders(b.Begin(p.PSN, op, hdr, n))
		copy(b.Copy(n), src)
		b.End()
		q.stats.SentBytes += uint64(n)
		a.sent++
	}
	a.pending, a.done = false, true
	return true
}

// readFailed ends a READ whose region was withdrawn while it was being answered,
// with a NAK in the middle of it. Of one that is answered again it ends the
// answer: errors in a duplicate are not reported. It reports whether the queue
// pair goes on.
func (q *QP) readFailed(now int64, a *reply, why trace.Reason) bool {
	if a.again && q.cfg.Habits&NAKDuplicateRead == 0 {
		a.pending = false
		q.note(now, trace.DropDuplicate, trace.Local, nil)
		q.queueAck(a.start.Add(-1)) // an ACK may have made way for it
		return true
	}
	r := &q.resp
	psn := a.start.Add(a.sent)
	for i := range r.replies.slots {
		r.replies.slots[i].pending = false
	}
	r.ack.pending = false
	r.nak = nakState{pending: true, fatal: true, psn: psn, syndrome: bth.NAKRemoteAccess}
	q.events |= transport.EventAccess
	q.note(now, why, trace.Local, nil)
	q.toErr(now, why)
	return false
}

func (q *QP) putAtomicAck(b *wire.Burst, a *reply) bool {
	hdr := bth.RCAtomicAck.Info().HdrLen
	if !b.Fits(hdr+bth.ICRCLen, 0) {
		return false
	}
	p := q.header(bth.RCAtomicAck, a.first)
	p.Syndrome, p.MSN, p.Orig = q.credit(), q.resp.msn, a.value
	p.PutHeaders(b.Begin(p.PSN, p.Opcode, hdr, 0))
	b.End()
	a.pending, a.done, a.sent = false, true, 1
	return true
}

// putAck adds the waiting ACK and NAK.
func (q *QP) putAck(b *wire.Burst) {
	r := &q.resp
	hdr := bth.RCAck.Info().HdrLen
	put := func(psn bth.PSN, s bth.Syndrome) bool {
		if !b.Fits(hdr+bth.ICRCLen, 0) {
			return false
		}
		p := q.header(bth.RCAck, psn)
		p.Syndrome, p.MSN = s, r.msn
		p.PutHeaders(b.Begin(psn, p.Opcode, hdr, 0))
		b.End()
		return true
	}
	if r.ack.pending && put(r.ack.psn, q.credit()) {
		r.ack.pending = false
		q.stats.AcksSent++
	}
	if r.nak.pending && put(r.nak.psn, r.nak.syndrome) {
		r.nak.pending = false
	}
}

// addAck puts the waiting ACK behind the requests of a burst, if it fits there.
func (q *QP) addAck(b *wire.Burst) {
	n := b.Len()
	q.putAck(b)
	q.stats.SentResponses += uint64(b.Len() - n)
}

// takeBackAck takes an ACK that did not leave out of a burst of requests of which
// sent packets did. Where a link has taken some of them it goes first next time: or
// it never leaves one that takes a part of each burst.
func (q *QP) takeBackAck(b *wire.Burst, sent int) {
	last := b.Len() - 1
	if s := &b.Segs[last]; s.Opcode == bth.RCAck {
		q.stats.SentResponses--
		q.unsendAck(s.PSN, bth.Syndrome(b.Header(last)[bth.BTHLen]))
		b.Segs = b.Segs[:last]
		q.passed = q.passed || sent > 0
	}
}

// unsendResponses puts back what did not leave.
func (q *QP) unsendResponses(b *wire.Burst, sent int) {
	r := &q.resp
	q.stats.SentResponses -= uint64(b.Len() - sent)
	silent := q.attr.State == verbs.StateErr && !r.nak.fatal // but for an ACK
	for i := b.Len() - 1; i >= sent; i-- {
		s := &b.Segs[i]
		switch s.Opcode.Info().Op {
		case bth.OpAck:
			if k := bth.Syndrome(b.Header(i)[bth.BTHLen]); !silent || k.Kind() == bth.KindAck {
				q.unsendAck(s.PSN, k)
			}
		case bth.OpAtomicAck, bth.OpReadResp:
			if a := r.replies.find(s.PSN); a != nil && !silent {
				a.unsend(s.PSN)
			}
		}
	}
}

func (q *QP) unsendAck(psn bth.PSN, s bth.Syndrome) {
	r := &q.resp
	if s.Kind() == bth.KindAck {
		q.stats.AcksSent--
		if !r.ack.pending || psn.After(r.ack.psn) {
			r.ack = ackState{pending: true, psn: psn}
		}
	} else if psn == r.nak.psn && s == r.nak.syndrome { // a newer one says more
		r.nak.pending = true
	}
}
