package rc

import (
	"math"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// requester is the sending half of a queue pair.
type requester struct {
	wqes            []sqe
	head, cur, tail uint32
	tailPSN         bth.PSN // first PSN of the next request to be fetched
	broken          bool    // the send ring is unusable

	una, next, high bth.PSN
	asked           bth.PSN // after the last packet sent that asks for an ACK
	silent          int64   // when the first packet behind that was sent
	slow            bool    // each packet asks for one: see QP.slow

	reads []readReq // READ and atomic requests outstanding, oldest first

	credits credits

	readPart int // PSNs one READ request asks for at most

	deadline int64
	retries  int // transport retries left
	rnrLeft  int
	rnrWait  bool // deadline is the end of an RNR wait
	// probing is set from an RNR NAK until progress: what was refused goes
	// alone, for everything behind it would be refused with it.
	probing bool
	// hurry is set from a restart by a sequence NAK until progress or the next
	// timeout, which comes soon: see HandleTimer.
	hurry bool
	rtt   rttClock
	stall stallClock
	// restarted is set from a restart until progress: further signs of the
	// same loss start no second one.
	restarted bool
}

// readReq is an outstanding READ or atomic request: the PSNs its response
// covers.
type readReq struct{ first, end bth.PSN }

func (r *requester) init(c verbs.QPCap) {
	r.wqes = make([]sqe, c.MaxSendWR)
	sges := make([]verbs.SGE, c.MaxSendWR*c.MaxSendSGE)
	for i := range r.wqes {
		r.wqes[i].SGL = sges[i*c.MaxSendSGE : i*c.MaxSendSGE : (i+1)*c.MaxSendSGE]
	}
	r.reset()
}

func (r *requester) reset() {
	*r = requester{wqes: r.wqes, reads: r.reads[:0], deadline: math.MaxInt64}
}

// start begins at the first PSN when the queue pair enters RTS, which it does but once
// after a reset.
func (r *requester) start(psn bth.PSN, a verbs.QPAttr) {
	r.tailPSN, r.una, r.next, r.high, r.asked = psn, psn, psn, psn, psn
	r.retries, r.rnrLeft = int(a.RetryCnt), int(a.RNRRetry)
	if cap(r.reads) < a.MaxRdAtomic {
		r.reads = make([]readReq, 0, a.MaxRdAtomic)
	}
}

// limit returns how many packets fit the receive buffer of a host like this
// one. A smaller path MTU lets more of them in, but queues on the way that
// count packets, such as a tap device's 1000, do not care for their size.
func (q *QP) limit() int {
	if q.mtu < 4096 {
		return max(q.cfg.Window, min(2*q.cfg.Window, smallWindow))
	}
	return q.cfg.Window
}

// window returns how many packets may be in flight.
func (q *QP) window(now int64) int {
	if q.req.probing && q.cfg.Habits&ResendAll == 0 {
		return 1
	}
	return max(1, q.control.Window(now))
}

// unasked returns how many PSNs in flight lie behind the last packet that asks
// for an ACK.
func (r *requester) unasked() int {
	if r.asked.After(r.una) {
		return r.next.Diff(r.asked)
	}
	return r.next.Diff(r.una)
}

// room reports whether the window lets another packet go. When it has shrunk
// below what is in flight and none of that asks for an ACK, one may, which
// then asks: nothing else would open the window again before the timeout.
func (r *requester) room(window int) bool {
	n := r.next.Diff(r.una)
	return n < window || n > 0 && r.unasked() == n
}

// requestReady reports whether a request packet may leave now.
func (q *QP) requestReady(now int64) bool {
	r := &q.req
	ready, why := q.mayRequest(now)
	if why != r.stall.why {
		q.stalled(now, why)
	}
	return ready
}

// mayRequest is requestReady, and says what keeps back a request that there is.
func (q *QP) mayRequest(now int64) (bool, transport.Stall) {
	r := &q.req
	if s := q.attr.State; s != verbs.StateRTS && s != verbs.StateSQD {
		return false, transport.StallNone
	}
	if r.rnrWait {
		return false, transport.StallRNR
	}
	room := r.room(q.window(now))
	if r.cur == r.tail {
		more := q.attr.State != verbs.StateSQD && !r.broken && int(r.tail-r.head) < len(r.wqes) && q.cfg.SQ.Pending()
		if more && !room {
			return false, transport.StallWindow
		}
		return more, transport.StallNone
	}
	if !room {
		return false, transport.StallWindow
	}
	w := r.at(r.cur)
	if w.Bad != verbs.WCSuccess {
		return !w.first.After(r.una), transport.StallNone // it is its turn to fail
	}
	i := r.next.Diff(w.first)
	if !q.held(w, i) {
		return true, transport.StallNone
	}
	if wait, _ := q.hold(w, i); wait {
		return false, transport.StallCredits
	}
	return false, transport.StallNone
}

// held reports whether a rule keeps back the PSN with index i of w.
func (q *QP) held(w *sqe, i int) bool {
	r := &q.req
	switch {
	case i == 0 && q.attr.State == verbs.StateSQD && !r.next.Before(r.high): // not begun before SQD
		return true
	case w.answered() && len(r.reads) >= max(1, q.attr.MaxRdAtomic): // one begun before SQD forbade them is finished
		return true
	case i == 0 && w.Flags&verbs.SendFence != 0 && len(r.reads) > 0: // IBA 10.8.3.3
		return true
	case w.Opcode == verbs.WRLocalInv && w.Flags&verbs.SendFence != 0 && w != r.headWQE(): // the local invalidate fence, IBA 10.6.5.1
		return true
	}
	wait, _ := q.hold(w, i)
	return wait
}

// current returns the send request that owns the PSN to be sent next and the
// index of that PSN in it, or nil if nothing may be sent: nothing is posted,
// or a rule holds it back. Local operations on the way to it run, a queue full of
// them at a time.
func (q *QP) current(now int64) (w *sqe, i int) {
	r := &q.req
	for range len(r.wqes) + 1 {
		if r.cur == r.tail {
			if q.attr.State == verbs.StateSQD || !q.fetch(now) {
				return nil, 0
			}
		}
		w = r.at(r.cur)
		i = r.next.Diff(w.first)
		if w.Bad != verbs.WCSuccess || q.held(w, i) {
			return nil, 0
		}
		if !w.Local() {
			return w, i
		}
		q.runLocal(w)
	}
	return nil, 0
}

// runLocal carries out the local operation that cur is at. It is complete when
// everything before it is.
func (q *QP) runLocal(w *sqe) {
	r := &q.req
	if w.RunLocal(&q.mem); w.Bad != verbs.WCSuccess {
		return
	}
	w.ran = true
	r.skipRun()
	q.finishLocal()
}

// finishLocal completes the local operations that have run and are oldest.
func (q *QP) finishLocal() {
	for w := q.req.headWQE(); w != nil && w.ran; w = q.req.headWQE() {
		q.finishSend(verbs.WCSuccess, trace.None)
	}
}

// fillRequests puts request packets into an empty burst.
func (q *QP) fillRequests(now int64, b *wire.Burst) bool {
	r := &q.req
	if !q.requestReady(now) {
		return false
	}
	b.Kind, b.Mark = wire.KindRequest, r.high
	window := q.window(now)
	r.slow = q.slow(now)
	for r.room(window) {
		w, i := q.current(now)
		if w == nil {
			break
		}
		full := false
		switch w.Opcode {
		case verbs.WRRead:
			full = !q.putRead(b, w, i)
		case verbs.WRCmpSwap, verbs.WRFetchAdd:
			full = !q.putAtomic(b, w)
		default:
			full = !q.putData(now, b, w, i, window)
		}
		if full {
			break
		}
	}
	q.failBad(now)
	if b.Len() == 0 || q.attr.State == verbs.StateErr {
		return false
	}
	q.stats.SentRequests += uint64(b.Len())
	if r.deadline == math.MaxInt64 {
		q.armTimer(now)
	}
	return true
}

// failBad ends a request that broke a local rule once everything before it is
// finished, so that completions stay in order.
func (q *QP) failBad(now int64) {
	if w := q.req.headWQE(); w != nil && w.Bad != verbs.WCSuccess && !w.first.After(q.req.una) {
		q.failSend(now, w.Bad, w.BadWhy)
	}
}

// advance moves past n PSNs that were just put into a burst.
func (q *QP) advance(w *sqe, n int) {
	r := &q.req
	if r.next.Before(r.high) {
		q.stats.Repeated++
	}
	r.next = r.next.Add(n)
	if r.next.After(r.high) {
		r.high = r.next
	}
	if r.next == w.end() {
		r.cur++
		r.skipRun()
	}
}

// header returns the fields every packet of this queue pair has.
func (q *QP) header(op bth.Opcode, psn bth.PSN) bth.Packet {
	return bth.Packet{Opcode: op, MigReq: true, PKey: transport.PKey, DestQP: bth.QPN(q.attr.DestQPN), PSN: psn}
}

// putData adds packet i of a SEND or WRITE. It returns false when the burst
// has no room for it.
func (q *QP) putData(now int64, b *wire.Burst, w *sqe, i, window int) bool {
	r := &q.req
	off := i * q.mtu
	n := min(q.mtu, w.Length-off)
	op := w.PacketOpcode(bth.RCSendFirst, i, w.pkts)
	info := op.Info()
	hdr := info.HdrLen
	if !b.Fits(hdr+n+-n&3+bth.ICRCLen, len(w.SGL)) {
		return false
	}
	data, ok := w.Payload(&q.mem, off, n)
	if !ok {
		w.Fail(verbs.WCLocProtErr, trace.FailLocalProt)
		return true
	}
	last := i == w.pkts-1
	_, limited := q.hold(w, i)
	ask := last || limited || r.slow || r.unasked() >= window/ackFraction-1 || q.overdue(now)
	if !ask && r.unasked() == 0 {
		r.silent = now
	}
	if ask {
		r.asked = r.next.Add(1)
		if !r.next.Before(r.high) {
			r.rtt.sent(now, r.next)
		}
	}
	h := b.Begin(r.next, op, hdr, n)
	if hdr == bth.BTHLen {
		bth.PutBTH(h, op, uint8(-n&3), w.Solicits(last), ask, bth.QPN(q.attr.DestQPN), r.next)
	} else {
		p := q.header(op, r.next)
		p.Pad, p.AckReq = uint8(-n&3), ask
		w.Describe(&p, last)
		p.PutHeaders(h)
	}
	data.Put(b, q.cfg.SQ)
	q.stats.SentBytes += uint64(n)
	if info.Op == bth.OpSend && info.Has(bth.Starts) && !r.next.Before(r.high) {
		q.stats.Sends++
	}
	q.advance(w, 1)
	return true
}

// overdue reports whether a packet should ask for an ACK because those before it have
// not for a good part of the timeout: at a low rate a window takes longer than that.
func (q *QP) overdue(now int64) bool {
	return q.req.unasked() > 0 && now-q.req.silent >= q.patience()
}

// slow reports whether the next packet of a message would come too late to ask for an
// ACK of this one as well: at a very low rate.
func (q *QP) slow(now int64) bool {
	r := cc.Slower(cc.Slower(int64(q.attr.RateLimit)*1000, q.flow.Rate), q.control.Rate(now))
	return r != 0 && float64(q.mtu)*8e9/float64(r) >= float64(q.patience())
}

// patience is a good part of the timeout.
func (q *QP) patience() int64 {
	if t := q.attr.Timeout; t != 0 {
		return int64(timeoutUnit) << t / 8
	}
	return math.MaxInt64
}

// readEnd returns the index after the last PSN of the request that asks for
// index i of a READ. A READ longer than part of a window is asked for in parts,
// so that its responses fit the receive buffer. Parts end at fixed places,
// whatever index a restart begins at: a late response to an earlier request
// then fits a later one as well.
func (q *QP) readEnd(w *sqe, i int) int {
	return min(w.pkts, i-i%q.req.readPart+q.req.readPart)
}

// putRead adds a READ request for the PSNs from index i on.
func (q *QP) putRead(b *wire.Burst, w *sqe, i int) bool {
	r := &q.req
	hdr := bth.RCReadReq.Info().HdrLen
	if !b.Fits(hdr+bth.ICRCLen, 0) {
		return false
	}
	pkts := q.readEnd(w, i) - i
	off := i * q.mtu
	n := min(pkts*q.mtu, w.Length-off)
	if !q.mem.Permits(w.SGL, off, n, verbs.AccessLocalWrite) {
		w.Fail(verbs.WCLocProtErr, trace.FailLocalProt)
		return true
	}
	p := q.header(bth.RCReadReq, r.next)
	p.AckReq, r.asked = true, r.next.Add(pkts)
	p.VA, p.RKey, p.DMALen = w.RemoteAddr+uint64(off), w.RKey, uint32(n)
	p.PutHeaders(b.Begin(r.next, p.Opcode, hdr, 0))
	b.End()
	r.reads = append(r.reads, readReq{r.next, r.next.Add(pkts)})
	q.advance(w, pkts)
	return true
}

// putAtomic adds an atomic request.
func (q *QP) putAtomic(b *wire.Burst, w *sqe) bool {
	r := &q.req
	op := bth.RCFetchAdd
	if w.Opcode == verbs.WRCmpSwap {
		op = bth.RCCmpSwap
	}
	hdr := op.Info().HdrLen
	if !b.Fits(hdr+bth.ICRCLen, 0) {
		return false
	}
	if !q.mem.Permits(w.SGL, 0, 8, verbs.AccessLocalWrite) {
		w.Fail(verbs.WCLocProtErr, trace.FailLocalProt)
		return true
	}
	p := q.header(op, r.next)
	p.AckReq, r.asked = true, r.next.Add(1)
	p.VA, p.RKey = w.RemoteAddr, w.RKey
	p.SwapAdd, p.Compare = w.CompareAdd, 0
	if op == bth.RCCmpSwap {
		p.SwapAdd, p.Compare = w.Swap, w.CompareAdd
	}
	p.PutHeaders(b.Begin(r.next, op, hdr, 0))
	b.End()
	r.reads = append(r.reads, readReq{r.next, r.next.Add(1)})
	q.advance(w, 1)
	return true
}

// unsendRequests returns next to the first packet that did not leave. What the
// burst held for the first time counts as never sent.
func (q *QP) unsendRequests(b *wire.Burst, sent int) {
	r := &q.req
	for i := sent; i < b.Len(); i++ {
		s := &b.Segs[i]
		q.stats.SentRequests--
		if s.PSN.Before(b.Mark) {
			q.stats.Repeated--
		} else if s.Opcode.Info().Op == bth.OpSend && s.Opcode.Info().Has(bth.Starts) {
			q.stats.Sends--
		}
	}
	psn := b.Segs[sent].PSN
	if psn.Before(r.una) {
		psn = r.una // an earlier sending of it was acknowledged meanwhile
	}
	if psn.Before(r.next) {
		q.rewind(psn)
	}
	high := b.Mark
	if psn.After(high) {
		high = psn
	}
	if high.Before(r.high) {
		r.high = high
	}
	if r.next == r.una && !r.rnrWait {
		r.deadline = math.MaxInt64
	}
	q.drained()
}
