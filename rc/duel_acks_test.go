package rc

import (
	"encoding/binary"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// offer takes credits.
func (q *requests) offer(p *bth.Packet) {
	switch c := p.Syndrome & 0x1f; {
	case p.Syndrome > 0x1f:
	case c == 31:
		q.unlimited = true
	default:
		// Message numbers have 24 bits.
		l := dist(bth.MakePSN(p.MSN+uint32(creditsOf(c))), bth.MakePSN(uint32(q.limit)))
		q.limit += max(0, l)
	}
}

// response is what a response packet does.
func (q *requests) response(p *bth.Packet) {
	f := q.f
	s := p.Syndrome
	q.stopped = false
	if f.attr.FlowControl && p.Opcode == bth.RCAck && p.PSN == plus(q.una, -1) && s>>5&3 == 0 {
		q.offer(p)
		return
	}
	if dist(p.PSN, q.una) < 0 || dist(p.PSN, q.high) >= 0 {
		return
	}
	if p.Opcode != bth.RCReadRespMiddle {
		q.offer(p)
	}
	switch p.Opcode {
	case bth.RCAck:
		q.ack(p)
	case bth.RCAtomicAck:
		if s > 0x1f {
			return
		}
		if w := q.awaits(p); w != nil && w.Opcode != verbs.WRRead && len(p.Payload) == 0 {
			to, ok := f.pieces(w.SGL, 0, 8, verbs.AccessLocalWrite)
			if !ok {
				q.fail(verbs.WCLocProtErr)
				return
			}
			scatter(to, binary.NativeEndian.AppendUint64(nil, p.Orig))
			q.progress(w.end())
		}
	default:
		if p.Opcode != bth.RCReadRespMiddle && s > 0x1f {
			return
		}
		if w := q.awaits(p); w != nil && w.Opcode == verbs.WRRead {
			q.readResponse(p, w)
		}
	}
}

func (q *requests) readResponse(p *bth.Packet, w *request) {
	mtu, part := int(q.f.attr.PathMTU), q.f.qp.req.readPart
	i := dist(p.PSN, w.first)
	last := i == w.pkts-1 || i%part == part-1
	if len(p.Payload) != min(mtu, w.n-i*mtu) || last != (p.Opcode == bth.RCReadRespLast || p.Opcode == bth.RCReadRespOnly) {
		q.fail(verbs.WCLocLenErr)
		return
	}
	to, ok := q.f.pieces(w.SGL, i*mtu, len(p.Payload), verbs.AccessLocalWrite)
	if !ok {
		q.fail(verbs.WCLocProtErr)
		return
	}
	scatter(to, p.Payload)
	q.progress(plus(p.PSN, 1))
}

// ack is what an ACK or NAK does. IBA 9.7.5.1.2.
func (q *requests) ack(p *bth.Packet) {
	s := p.Syndrome
	switch {
	case s >= 0x40 && s < 0x60 || s > 0x63, len(p.Payload) > 0:
		return
	case s <= 0x1f:
		q.through(p.PSN)
		return
	case !q.through(plus(p.PSN, -1)), q.f.state == verbs.StateErr:
		return
	case s == 0x61:
		q.fail(verbs.WCRemInvReqErr)
	case s == 0x62:
		q.fail(verbs.WCRemAccessErr)
	case s == 0x63:
		q.fail(verbs.WCRemOpErr)
	case s < 0x40 && !q.waiting:
		q.rnrs++
		if n := int(q.f.attr.RNRRetry); n != 7 && q.rnrs > n {
			q.fail(verbs.WCRNRRetryExcErr)
			return
		}
		q.waiting, q.rewind = true, true
		q.until = q.f.d.now + rnrTimes[s&0x1f]*10_000
	}
}

// rnrTimes is IBA table 46, in units of 10 us.
var rnrTimes = [32]int64{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
	16384, 24576, 32768, 49152,
}

// awaits acknowledges what comes before a response and returns the READ or
// atomic that it answers, or nil.
func (q *requests) awaits(p *bth.Packet) *request {
	if !q.through(plus(p.PSN, -1)) || q.f.state == verbs.StateErr || len(q.out) == 0 || q.una != p.PSN || q.bad(0) {
		return nil
	}
	if w := q.out[0]; w.answered() {
		return w
	}
	return nil
}

// bad reports whether the engine has given up request i for a local reason.
func (q *requests) bad(i int) bool {
	e := &q.f.qp.req
	if int32(e.tail-q.out[i].index) <= 0 {
		return false
	}
	s := e.at(q.out[i].index).Bad
	if s != verbs.WCSuccess && !q.out[i].mayFail(s) {
		q.f.t.Fatalf("%s gives up request %d: %v", q.f.name, q.out[i].ID, s)
	}
	return s != verbs.WCSuccess
}

func (w *request) mayFail(s verbs.WCStatus) bool {
	return w.bad != 0 && s == w.bad || w.prot && s == verbs.WCLocProtErr || w.depth && s == verbs.WCLocQPOpErr
}

// gaveUp reports whether the engine had a local reason to end with its oldest
// request.
func (q *requests) gaveUp() bool {
	var s verbs.WCStatus
	for n, i := len(q.f.wantSend), 0; i < len(q.f.wcs); i++ {
		if w := &q.f.wcs[i]; w.Opcode&verbs.WCRecv == 0 {
			if n == 0 {
				s = w.Status
				break
			}
			n--
		}
	}
	if len(q.out) == 0 || !q.out[0].mayFail(s) {
		return false
	}
	q.fail(s)
	return true
}

// through acknowledges up to psn, but no READ or atomic: it returns false when
// one is in the way, which then is to be asked for again.
func (q *requests) through(psn bth.PSN) bool {
	to := q.una
	for i, w := range q.out {
		if dist(psn, to) < 0 {
			break
		}
		if w.local() && !q.bad(i) {
			continue
		}
		if w.answered() || q.bad(i) {
			q.stopped = w.answered()
			break
		}
		if to = w.end(); dist(to, psn) > 1 {
			to = plus(psn, 1)
			break
		}
	}
	q.progress(to)
	return !q.stopped
}

// progress moves una.
func (q *requests) progress(to bth.PSN) {
	if to == q.una {
		return
	}
	q.una = to
	if dist(q.next, to) < 0 {
		q.next = to
	}
	q.begun, q.signs, q.rnrs, q.waiting, q.gap, q.since = 0, 0, 0, false, false, q.f.d.now
	for len(q.reads) > 0 && dist(q.reads[0].end(), to) <= 0 {
		q.reads = q.reads[1:]
	}
	q.retire()
	if len(q.out) > 0 && q.bad(0) { // it was given up before, and now is its turn
		q.fail(q.f.qp.req.at(q.out[0].index).Bad)
	}
}

// retire completes what una has passed, and local operations that have run.
func (q *requests) retire() {
	for len(q.out) > 0 && dist(q.out[0].end(), q.una) <= 0 && (!q.out[0].local() || q.out[0].ran) {
		w := q.out[0]
		q.out = q.out[1:]
		if peer := q.f.peer; !q.f.d.tainted && q.f.d.clean && peer.state != verbs.StateErr && dist(peer.r.epsn, w.end()) < 0 {
			q.f.t.Fatalf("%s: request %d of PSNs %v+%d is complete, and its peer expects %v", q.f.name, w.ID, w.first, w.pkts, peer.r.epsn)
		}
		if w.Flags&verbs.SendSignaled == 0 {
			continue
		}
		wc := verbs.WC{ID: w.ID, Opcode: verbs.WCSend}
		switch w.Opcode {
		case verbs.WRWrite, verbs.WRWriteImm:
			wc.Opcode = verbs.WCWrite
		case verbs.WRBindMW:
			wc.Opcode = verbs.WCBindMW
		case verbs.WRLocalInv:
			wc.Opcode = verbs.WCLocalInv
		case verbs.WRRead:
			wc.Opcode, wc.ByteLen = verbs.WCRead, uint32(w.n)
		case verbs.WRCmpSwap:
			wc.Opcode, wc.ByteLen = verbs.WCCmpSwap, 8
		case verbs.WRFetchAdd:
			wc.Opcode, wc.ByteLen = verbs.WCFetchAdd, 8
		}
		q.f.wantSend = append(q.f.wantSend, wc)
	}
}

// fail ends the oldest request with an error, and the side with it.
func (q *requests) fail(s verbs.WCStatus) {
	if len(q.out) > 0 {
		q.f.wantSend = append(q.f.wantSend, verbs.WC{ID: q.out[0].ID, Status: s})
		q.out = q.out[1:]
	}
	q.f.ended()
}

// timer is what a side's time does to it.
func (q *requests) timer() {
	q.stopped = false
	if q.waiting && q.f.d.now >= q.until {
		q.waiting, q.signs = false, 0
	}
}

// restarts takes note of what the engine counted since the last call, while it
// handled p or, with nil, its timer.
func (q *requests) restarts(p *bth.Packet) {
	f := q.f
	c := f.qp.Counts()
	n := func(r trace.Reason) int { return int(c[r] - q.counted[r]) }
	late, gaps, implied := n(trace.RetryTimeout), n(trace.RetrySequence), n(trace.RetryImplied)
	early := n(trace.RetryAdaptive)
	q.counted = *c
	if early > 0 {
		if early > 1 || p != nil || q.waiting || f.attr.Timeout == 0 || !q.gap || f.d.now < q.gapAt+1e6 {
			f.t.Fatalf("%s sends again at %d, %d times, what a NAK asked for at %d", f.name, f.d.now, early, q.gapAt)
		}
		q.rewind, q.gap, q.since = true, false, f.d.now
		if q.begun++; q.begun > int(f.attr.RetryCnt) {
			f.t.Fatalf("%s spends its last retry early", f.name)
		}
	}
	if late+gaps+implied == 0 {
		return
	}
	q.signs += gaps + implied
	q.begun += late + gaps + implied
	q.rewind = true
	switch {
	case late > 0 && (p != nil || q.waiting || f.attr.Timeout == 0 || f.d.now < q.since+4096<<f.attr.Timeout):
		f.t.Fatalf("%s times out at %d; what is in flight left at %d", f.name, f.d.now, q.since)
	case gaps > 0 && (p == nil || p.Opcode != bth.RCAck || p.Syndrome != 0x60),
		implied > 0 && !q.stopped,
		late+gaps+implied > 1, q.signs > 1:
		f.t.Fatalf("%s restarts for nothing: %d NAKs, %d implied, %d of one loss", f.name, gaps, implied, q.signs)
	}
	if late > 0 {
		q.signs, q.since, q.gap = 0, f.d.now, false
	}
	if gaps > 0 {
		q.gap, q.gapAt = true, f.d.now
	}
	if q.begun > int(f.attr.RetryCnt) {
		if f.d.troubles <= int(f.attr.RetryCnt) {
			f.d.excused(f.name, verbs.WCRetryExcErr)
		}
		q.fail(verbs.WCRetryExcErr)
	}
}
