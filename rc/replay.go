package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

type replyKind uint8

const (
	replyRead replyKind = iota
	replyAtomic
)

// reply is a READ or atomic that was accepted: the answer to send, and what a
// repeated request needs to be answered again. IBA 9.4.4, 9.4.5, 9.7.5.1.3.
type reply struct {
	kind  replyKind
	first bth.PSN // of the request as first accepted
	pkts  int

	va     uint64 // READ
	rkey   uint32
	length int
	value  uint64 // atomic: what the word held

	// The answer being sent: PSNs from start, sent of them gone, of todo.
	pending bool
	done    bool // sent to its end at least once
	again   bool // done before this answer began
	start   bth.PSN
	todo    int
	sent    int
	end     int // octets of the READ that this answer stops at
}

// replayRing holds the last max_dest_rd_atomic replies, oldest first. It takes
// memory as peers make use of that: most never read.
type replayRing struct {
	slots []reply
	depth int
}

func (r *replayRing) init(depth int) {
	r.slots, r.depth = r.slots[:0], depth
}

// room reports whether another READ or atomic can be accepted: the oldest
// reply has been sent, or there is a free slot. A repeat of the oldest that is
// still to be sent does not count: the requester, which keeps within the
// depth, would not send more if it needed that.
func (r *replayRing) room() bool {
	return len(r.slots) < r.depth || r.depth > 0 && r.slots[0].done
}

func (r *replayRing) push(p reply) {
	p.pending, p.start, p.todo, p.sent, p.end = true, p.first, p.pkts, 0, p.length
	if len(r.slots) == r.depth {
		r.slots = r.slots[:copy(r.slots, r.slots[1:])]
	}
	r.slots = append(r.slots, p)
}

// next returns the oldest reply that is not sent, or nil.
func (r *replayRing) next() *reply {
	for i := range r.slots {
		if r.slots[i].pending {
			return &r.slots[i]
		}
	}
	return nil
}

// resize changes how many replies are kept; the oldest go first.
func (r *replayRing) resize(depth int) {
	if n := len(r.slots) - depth; n > 0 {
		r.slots = r.slots[:copy(r.slots, r.slots[n:])]
	}
	r.depth = depth
}

// repeat queues the answer of a reply again, todo packets from PSN start on.
func (a *reply) repeat(start bth.PSN, todo int) {
	a.pending, a.again, a.start, a.todo, a.sent = true, a.done, start, todo, 0
}

// unsend makes the packet with this PSN the next one of the answer.
func (a *reply) unsend(psn bth.PSN) {
	if k := psn.Diff(a.start); k >= 0 && k < a.sent {
		a.pending, a.done, a.sent = true, a.again, k
	}
}

// find returns the reply that covers a PSN, or nil: the newest, since an old
// one may have the same PSN of 2^24 packets ago.
func (r *replayRing) find(psn bth.PSN) *reply {
	for i := len(r.slots) - 1; i >= 0; i-- {
		if d := psn.Diff(r.slots[i].first); d >= 0 && d < r.slots[i].pkts {
			return &r.slots[i]
		}
	}
	return nil
}

// duplicate answers a request that was executed before. SEND and WRITE are
// acknowledged again and not executed, a READ is executed again within what it
// was, an atomic never: its saved value is sent. Errors in a duplicate are not
// reported. C9-105, C9-110 to C9-112.
func (q *QP) duplicate(now int64, p *bth.Packet) {
	r := &q.resp
	// The requester went back: if the expected packet is lost again, that is
	// a new gap to report (hfi1 does so too).
	r.nakked = false
	switch p.Info().Op {
	case bth.OpSend, bth.OpWrite:
		q.note(now, trace.NoteDuplicate, trace.Rx, p)
		if p.AckReq {
			q.queueAck(q.lastPlain(p.PSN))
		}
		return
	case bth.OpReadReq:
		if q.repeatRead(p) {
			q.note(now, trace.NoteDuplicate, trace.Rx, p)
			return
		}
	case bth.OpCmpSwap, bth.OpFetchAdd:
		if a := r.replies.find(p.PSN); a != nil && a.kind == replyAtomic {
			q.note(now, trace.NoteDuplicate, trace.Rx, p)
			a.repeat(a.first, a.pkts)
			return
		}
	}
	q.note(now, trace.DropDuplicate, trace.Rx, p)
}

// lastPlain returns the highest PSN an ACK may carry in answer to a duplicate
// SEND or WRITE at psn: the last one received, but not past a READ or atomic,
// which only its own response acknowledges.
func (q *QP) lastPlain(psn bth.PSN) bth.PSN {
	last := q.resp.epsn.Add(-1)
	for i := range q.resp.replies.slots {
		if f := q.resp.replies.slots[i].first; f.After(psn) && !f.After(last) {
			last = f.Add(-1)
		}
	}
	return last
}

// repeatRead queues the answer to a READ asked for again, wholly or from a
// later PSN on, if what it asks lies within what was accepted.
func (q *QP) repeatRead(p *bth.Packet) bool {
	a := q.resp.replies.find(p.PSN)
	if a == nil || a.kind != replyRead || p.RKey != a.rkey || len(p.Payload) != 0 || p.Pad != 0 {
		return false
	}
	skip := p.PSN.Diff(a.first)
	off := skip * q.mtu
	n := int(p.DMALen)
	if p.VA != a.va+uint64(off) || off > a.length || n > a.length-off {
		return false
	}
	if n > 0 {
		if _, why := q.mem.Remote(p.RKey, p.VA, n, verbs.AccessRemoteRead); why != trace.None && q.cfg.Habits&NAKDuplicateRead == 0 {
			return false
		}
	}
	a.repeat(p.PSN, transport.Packets(n, q.mtu))
	a.end = off + n
	return true
}
