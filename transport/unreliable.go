package transport

import (
	"math"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Unreliable is what queue pairs of the services without acknowledgements have
// in common: all but the packets. An engine embeds it and adds Modify,
// HandlePacket and Fill; the fields are the engine's business.
//
// A send request is complete when its last packet has left (IBA 9.8.3, 9.9.4.1):
// the caller says so by Sent. One that breaks a local rule completes with an
// error and moves the queue pair to SQE, where send requests are flushed and
// packets still received; back in RTS it works again.
type Unreliable struct {
	Cfg    Config
	Attrs  verbs.QPAttr
	Mem    Memory
	Recv   Receiver
	Noted  trace.Counts
	Tally  Stats
	Raised Events
	Ended  trace.Reason // why it is in SQE or ERR

	// The send queue: entries [head, tail) are fetched and not retired, cur
	// owns the PSN to be sent next, or is tail.
	wqes            []Unacked
	head, cur, tail uint32
	broken          bool    // the ring is unusable
	tailPSN         bth.PSN // first PSN of the next request to be fetched
	Next            bth.PSN // the next to be sent
	left            bth.PSN // after the last that has left
	wc              verbs.WC
}

// Unacked is a fetched send request and its PSNs.
type Unacked struct {
	SendEntry
	First bth.PSN
	Pkts  int
}

// Index returns which of the request's packets is the next to be sent.
func (u *Unreliable) Index(w *Unacked) int { return u.Next.Diff(w.First) }

// Init prepares a queue pair in state RESET. The Unreliable must not move
// afterwards.
func (u *Unreliable) Init(cfg Config) {
	u.Cfg = cfg
	u.Mem.Init(&u.Cfg)
	u.Recv.Init(&u.Cfg)
	c := cfg.Cap
	u.wqes = make([]Unacked, c.MaxSendWR)
	sges := make([]verbs.SGE, c.MaxSendWR*c.MaxSendSGE)
	for i := range u.wqes {
		u.wqes[i].SGL = sges[i*c.MaxSendSGE : i*c.MaxSendSGE : (i+1)*c.MaxSendSGE]
	}
}

// Attr returns the attributes; State is the current state.
func (u *Unreliable) Attr() verbs.QPAttr {
	a := u.Attrs
	a.CurState = a.State
	if a.State >= verbs.StateRTS {
		a.SQPSN = u.Next.Uint32()
	}
	return a
}

// State returns the current state.
func (u *Unreliable) State() verbs.QPState { return u.Attrs.State }

// QPN returns the queue pair number.
func (u *Unreliable) QPN() bth.QPN { return u.Cfg.QPN }

// Counts returns the queue pair's counter for each reason.
func (u *Unreliable) Counts() *trace.Counts { return &u.Noted }

// Stats returns the queue pair's other counters.
func (u *Unreliable) Stats() *Stats { return &u.Tally }

// TakeEvents returns the events since the last call.
func (u *Unreliable) TakeEvents() Events {
	e := u.Raised
	u.Raised = 0
	return e
}

// Deadline returns math.MaxInt64: no timer runs without acknowledgements.
func (u *Unreliable) Deadline() int64 { return math.MaxInt64 }

// HandleTimer does nothing.
func (u *Unreliable) HandleTimer(int64) {}

// Note counts a reason and records it; p may be nil.
func (u *Unreliable) Note(now int64, r trace.Reason, d trace.Dir, p *bth.Packet) {
	u.Noted[r]++
	e := trace.Event{Time: now, QPN: uint32(u.Cfg.QPN), Reason: r, Dir: d}
	if p != nil {
		e.PSN, e.Opcode = p.PSN.Uint32(), uint8(p.Opcode)
	} else {
		e.PSN = u.Next.Uint32()
	}
	u.Cfg.Recorder.Record(e)
}

// Receives counts a packet that reached the queue pair, and reports whether its
// state and service let it in.
func (u *Unreliable) Receives(now int64, p *bth.Packet, class bth.Class) bool {
	switch u.Attrs.State {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
	default:
		u.Note(now, trace.DropState, trace.Rx, p)
		return false
	}
	if p.Info().Class != class {
		u.Note(now, trace.DropClass, trace.Rx, p)
		return false
	}
	u.Tally.RcvdRequests++
	u.Tally.RcvdBytes += uint64(len(p.Payload))
	return true
}

// Enter carries out a change of state that CheckModify and Apply have let
// pass. It returns the state before.
func (u *Unreliable) Enter(now int64, to verbs.QPState) (from verbs.QPState) {
	from = u.Attrs.State
	switch {
	case to == verbs.StateErr:
		u.ToErr(now, trace.FailFlushed)
		return from
	case from == verbs.StateSQE && to == verbs.StateRTS:
		if u.Doorbell(now); u.Attrs.State != from { // what was posted in SQE does not outlive it
			return from
		}
	}
	u.setState(now, to)
	switch {
	case to == verbs.StateReset:
		u.reset()
	case from == verbs.StateRTR && to == verbs.StateRTS:
		psn := bth.MakePSN(u.Attrs.SQPSN)
		u.tailPSN, u.Next, u.left = psn, psn, psn
	case from == verbs.StateRTS && to == verbs.StateSQD:
		u.drained()
	}
	return from
}

func (u *Unreliable) setState(now int64, to verbs.QPState) {
	u.Attrs.State = to
	u.Cfg.Recorder.Record(trace.Event{Time: now, QPN: uint32(u.Cfg.QPN), Reason: trace.NoteState, Arg: uint32(to)})
}

// reset forgets everything and completes nothing.
func (u *Unreliable) reset() {
	u.Attrs, u.Raised = verbs.QPAttr{}, 0
	u.Cfg.SQ.Reset()
	if own := u.Cfg.OwnRQ(); own != nil {
		own.SetFlushing(false)
		own.Reset()
	}
	u.Recv.Reset()
	u.head, u.cur, u.tail, u.broken = 0, 0, 0, false
}

// Fail moves the queue pair to ERR for a reason of the device's, such as an
// overflown completion queue, and flushes both queues.
func (u *Unreliable) Fail(now int64, why trace.Reason) {
	if u.Attrs.State == verbs.StateErr || u.Attrs.State == verbs.StateReset {
		return
	}
	u.Raised |= EventFatal
	u.Note(now, why, trace.Local, nil)
	u.ToErr(now, why)
}

// ToErr enters ERR for a reason that was counted, and flushes. IBA 10.3.1.6.
func (u *Unreliable) ToErr(now int64, why trace.Reason) {
	if u.Attrs.State == verbs.StateErr {
		return
	}
	u.setState(now, verbs.StateErr)
	u.Ended = why
	if own := u.Cfg.OwnRQ(); own != nil {
		own.SetFlushing(true)
	}
	u.Doorbell(now)
	u.Raised |= EventLastWQE
}

// Doorbell says that work requests were posted: in SQE and ERR they are
// flushed, otherwise they are Fill's business.
func (u *Unreliable) Doorbell(now int64) {
	switch u.Attrs.State {
	case verbs.StateErr:
		u.flushSends()
		u.Noted[trace.FailFlushed] += u.Recv.Flush(u.Ended)
	case verbs.StateSQE:
		if u.flushSends(); u.broken {
			u.Raised |= EventFatal
			u.ToErr(now, trace.FailLocalQPOp)
		}
	}
}

// flushSends completes every outstanding send request with a flush error, also
// those posted since. C10-42. What a program goes on posting meanwhile, beyond what
// its queue has room for, waits for its next doorbell.
func (u *Unreliable) flushSends() {
	for n := len(u.wqes); n > 0 && (u.head != u.tail || u.fetch()); n-- {
		u.complete(verbs.WCWRFlushErr, trace.FailFlushed)
	}
	u.tailPSN, u.left = u.Next, u.Next
}

func (u *Unreliable) at(i uint32) *Unacked { return &u.wqes[i%uint32(len(u.wqes))] }

// fetch takes the next posted send request into the queue and gives it PSNs.
func (u *Unreliable) fetch() bool {
	if int(u.tail-u.head) == len(u.wqes) || u.broken {
		return false
	}
	w := u.at(u.tail)
	more, broken := w.Fetch(u.Cfg.SQ)
	if !more {
		return false
	}
	u.broken = broken
	w.First, w.Pkts = u.tailPSN, Packets(w.Length, int(u.Attrs.PathMTU))
	u.tailPSN = w.First.Add(w.Pkts)
	u.tail++
	return true
}

// Patient returns false: nothing is sent in answer to anything.
func (u *Unreliable) Patient(int64) bool { return false }

// Urgent returns false: a pacer may hold back everything.
func (u *Unreliable) Urgent() bool { return false }

// Ready reports whether Fill may have something to send.
func (u *Unreliable) Ready(int64) bool {
	switch u.Attrs.State {
	case verbs.StateRTS:
		return u.cur != u.tail || !u.broken && int(u.tail-u.head) < len(u.wqes) && u.Cfg.SQ.Pending()
	case verbs.StateSQD: // only what had begun before
		return u.cur != u.tail && u.Index(u.at(u.cur)) > 0
	}
	return false
}

// Current returns the send request that owns the PSN to be sent next, or nil.
// One that has gone Bad stops the queue until it is its turn to fail.
func (u *Unreliable) Current(now int64) *Unacked {
	if !u.Ready(now) || u.cur == u.tail && !u.fetch() {
		return nil
	}
	if w := u.at(u.cur); w.Bad == verbs.WCSuccess {
		return w
	}
	return nil
}

// Advance moves past a packet of w that was just put into a burst.
func (u *Unreliable) Advance(w *Unacked) {
	u.Next = u.Next.Add(1)
	if u.Next == w.First.Add(w.Pkts) {
		u.cur++
	}
}

// Skip completes the request at hand as if it had been sent: UD does so with
// what is too long. It returns false while older ones have yet to leave.
func (u *Unreliable) Skip(w *Unacked) bool {
	if u.head != u.cur {
		return false
	}
	u.Next = w.First.Add(w.Pkts)
	u.left = u.Next
	u.cur++
	u.finish()
	return true
}

// Filled ends a Fill: it counts what is in the burst, and fails a request that
// has gone Bad if everything before it is done. It reports whether the burst
// holds anything.
func (u *Unreliable) Filled(now int64, b *wire.Burst) bool {
	u.Tally.SentRequests += uint64(b.Len())
	if b.Len() == 0 {
		u.failBad(now)
	}
	return b.Len() > 0
}

// failBad ends the oldest send request if it broke a local rule, and with it
// the send queue. Packets of it that are in a burst must have left before: their
// payload is the program's again once the request is complete.
func (u *Unreliable) failBad(now int64) {
	if u.head == u.tail || u.at(u.head).Bad == verbs.WCSuccess || u.left != u.Next {
		return
	}
	w := u.at(u.head)
	u.Ended = w.BadWhy
	u.complete(w.Bad, w.BadWhy)
	if u.broken {
		u.Raised |= EventFatal
		u.ToErr(now, u.Ended)
		return
	}
	u.setState(now, verbs.StateSQE)
	u.flushSends()
}

// Sent says how many segments of a burst left, and completes the requests that
// are done with that. What did not leave is taken back. Bursts come in the
// order in which they were filled, but that the latest may come first when
// nothing of it left.
func (u *Unreliable) Sent(b *wire.Burst, sent int) {
	if sent < b.Len() {
		u.Noted[trace.RetryLink] += uint64(b.Len() - sent)
		u.Tally.SentRequests -= uint64(b.Len() - sent)
		for i := sent; i < b.Len(); i++ {
			s := &b.Segs[i]
			if s.Opcode.Info().Op == bth.OpSend && s.Opcode.Info().Has(bth.Starts) {
				u.Tally.Sends--
			}
			u.Tally.SentBytes -= uint64(s.Len - s.Opcode.Info().HdrLen - bth.BTH(b.Header(i)).PadCount() - bth.ICRCLen)
		}
	}
	if u.Attrs.State != verbs.StateRTS && u.Attrs.State != verbs.StateSQD {
		return // flushed meanwhile
	}
	if sent > 0 {
		u.left = b.Segs[sent-1].PSN.Add(1)
	}
	u.finish()
	if sent < b.Len() && b.Segs[sent].PSN.Before(u.Next) {
		u.Next = b.Segs[sent].PSN
		for u.cur = u.head; u.cur != u.tail && !u.Next.Before(u.at(u.cur).First.Add(u.at(u.cur).Pkts)); {
			u.cur++
		}
	}
	u.drained()
}

// finish completes the requests whose last packet has left.
func (u *Unreliable) finish() {
	for u.head != u.cur {
		w := u.at(u.head)
		if u.left.Before(w.First.Add(w.Pkts)) {
			break
		}
		u.complete(verbs.WCSuccess, trace.None)
	}
}

// drained tells that a queue pair in SQD has nothing under way any more.
func (u *Unreliable) drained() {
	if u.Attrs.State == verbs.StateSQD && u.left == u.Next && !u.Ready(0) {
		u.Raised |= EventDrained
	}
}

// complete retires the oldest send request and writes its completion, if it has
// one: an error always does. Its room in the ring is free first, since a
// program that has the completion may post at once.
func (u *Unreliable) complete(s verbs.WCStatus, why trace.Reason) {
	w := u.at(u.head)
	u.Cfg.SQ.Retire(&w.SendWQE)
	if u.cur == u.head {
		u.cur++
	}
	u.head++
	if s == verbs.WCSuccess {
		u.Tally.Completed++
		if w.Flags&verbs.SendSignaled == 0 && !u.Cfg.SigAll {
			return
		}
	} else {
		u.Noted[why]++
	}
	if s == verbs.WCWRFlushErr {
		why = u.Ended
	}
	w.Completion(&u.wc, u.Cfg.QPN, s, why)
	u.Cfg.SendCQ.Push(&u.wc, s != verbs.WCSuccess)
}
