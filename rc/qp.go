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

// Config is what a queue pair is made of. It is not changed later.
type Config struct {
	transport.Config

	// Window is how many packets of 4 KiB may be in flight; 0 means 64.
	Window int
	// Line is how many bits a second the interface carries; 0 is not known.
	Line int64
	// Control decides how much may be in flight, and begins afresh in RTS; nil
	// means a cc.Adaptive.
	Control cc.Controller
	// Habits of other implementations that this one is to have.
	Habits Habits
}

// QP is one reliable connection. Calls are the owner's to serialise.
type QP struct {
	cfg  Config
	attr verbs.QPAttr
	flow *wire.Flow
	mtu  int
	mem  transport.Memory

	control cc.Controller // nil until RTS, unless given

	req  requester
	resp responder

	turn   bool // requests go first in the next Fill
	passed bool // responses do, which requests have passed
	events transport.Events
	ended  trace.Reason // why it is in ERR
	wc     verbs.WC     // the completion at hand: a sink is an interface, and what it is given would escape
	counts trace.Counts
	stats  transport.Stats
}

// New returns a queue pair in state RESET.
func New(cfg Config) *QP {
	if cfg.Window <= 0 {
		cfg.Window = defaultWindow
	}
	q := &QP{cfg: cfg, control: cfg.Control}
	q.mem.Init(&q.cfg.Config)
	q.req.init(cfg.Cap)
	q.resp.init(&q.cfg.Config)
	return q
}

// Attr returns the attributes; State is the current state.
func (q *QP) Attr() verbs.QPAttr {
	a := q.attr
	a.CurState = a.State
	if a.State >= verbs.StateRTR {
		a.RQPSN = q.resp.epsn.Uint32()
		a.SQPSN = q.req.next.Uint32()
	}
	return a
}

// State returns the current state.
func (q *QP) State() verbs.QPState { return q.attr.State }

// QPN returns the queue pair number.
func (q *QP) QPN() bth.QPN { return q.cfg.QPN }

// Flow returns the address vector, nil before RTR.
func (q *QP) Flow() *wire.Flow { return q.flow }

// Counts returns the queue pair's counter for each reason.
func (q *QP) Counts() *trace.Counts { return &q.counts }

// Stats returns the queue pair's other counters.
func (q *QP) Stats() *transport.Stats { return &q.stats }

// TakeEvents returns the events since the last call.
func (q *QP) TakeEvents() transport.Events {
	e := q.events
	q.events = 0
	return e
}

// note counts a reason and records it.
func (q *QP) note(now int64, r trace.Reason, d trace.Dir, p *bth.Packet) {
	q.counts[r]++
	e := trace.Event{Time: now, QPN: uint32(q.cfg.QPN), Reason: r, Dir: d}
	if p != nil {
		e.PSN, e.Opcode, e.Arg = p.PSN.Uint32(), uint8(p.Opcode), uint32(p.Syndrome)
	} else {
		e.PSN = q.req.una.Uint32()
	}
	q.cfg.Recorder.Record(e)
}

// HandlePacket takes a packet for this queue pair whose ICRC, addresses and
// partition key are proven. The packet is borrowed for the call.
//
//gorxe:hot
func (q *QP) HandlePacket(now int64, p *bth.Packet) {
	info := p.Info()
	switch q.attr.State {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD:
	default:
		q.note(now, trace.DropState, trace.Rx, p)
		return
	}
	if info.Class != bth.RC {
		q.note(now, trace.DropClass, trace.Rx, p)
		return
	}
	if info.Has(bth.Request) {
		if q.attr.State == verbs.StateRTR && !q.resp.established {
			q.events |= transport.EventCommEst
		}
		q.resp.established = true
		q.stats.RcvdRequests++
		q.stats.RcvdBytes += uint64(len(p.Payload))
		q.handleRequest(now, p)
		return
	}
	if q.attr.State == verbs.StateRTR {
		q.note(now, trace.DropState, trace.Rx, p)
		return
	}
	q.stats.RcvdResponses++
	q.stats.RcvdBytes += uint64(len(p.Payload))
	q.handleResponse(now, p)
}

// Fill puts packets of this queue pair into the burst, which the caller has
// Reset with its limits, and reports whether there are any. Responses and
// requests take turns when both wait; an ACK alone goes along behind requests if
// it fits there.
//
//gorxe:hot
func (q *QP) Fill(now int64, b *wire.Burst) bool {
	b.Flow, b.QPN = q.flow, q.cfg.QPN
	if b.Urgent {
		return q.fillResponses(now, b)
	}
	if q.passed || !q.turn && !q.ackOnly() {
		q.passed, q.turn = false, true
		return q.fillResponses(now, b) || q.fillRequests(now, b)
	}
	q.turn = false
	if !q.fillRequests(now, b) {
		return q.fillResponses(now, b)
	}
	if q.ackOnly() {
		q.addAck(b)
	}
	q.passed = q.responsesPending()
	return true
}

// Ready reports whether Fill may have something to send.
func (q *QP) Ready(now int64) bool {
	return q.responsesPending() || q.requestReady(now)
}

// Urgent reports whether there is something to send that no pacer holds back:
// anything but requests, answers to READs, and what has to come behind those.
func (q *QP) Urgent() bool {
	a := q.resp.replies.next()
	return q.responsesPending() && (a == nil || a.kind == replyAtomic)
}

// Patient reports whether all that is ready may wait for the program to answer
// what came last, well within the advertised local_ca_ack_delay: an ACK.
func (q *QP) Patient(now int64) bool { return q.ackOnly() && !q.requestReady(now) }

// Sent says how many segments of a burst left; what did not is taken back. It
// is not a loss. When several bursts were filled, the calls may come in any
// order.
func (q *QP) Sent(b *wire.Burst, sent int) {
	if sent >= b.Len() {
		return
	}
	q.counts[trace.RetryLink] += uint64(b.Len() - sent)
	for i := sent; i < b.Len(); i++ {
		s := &b.Segs[i]
		pad := bth.BTH(b.Header(i)).PadCount()
		q.stats.SentBytes -= uint64(s.Len - s.Opcode.Info().HdrLen - pad - bth.ICRCLen)
	}
	if b.Kind == wire.KindRequest {
		q.takeBackAck(b, sent)
		if sent < b.Len() {
			q.unsendRequests(b, sent)
		}
	} else {
		q.unsendResponses(b, sent)
	}
}

// Deadline returns when HandleTimer wants to be called, or math.MaxInt64.
func (q *QP) Deadline() int64 {
	if s := q.attr.State; s != verbs.StateRTS && s != verbs.StateSQD {
		return math.MaxInt64
	}
	return q.req.deadline
}

// Doorbell says that work requests were posted. Sending them is Fill's
// business; in ERR they are flushed.
func (q *QP) Doorbell(now int64) {
	if q.attr.State == verbs.StateErr {
		q.flush(now)
	}
}
