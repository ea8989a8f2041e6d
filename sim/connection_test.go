package sim

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// connection is one direction of a reliable connection as somebody sees it who
// looks at the packets that reach the ports: requests at one end, their answers
// at the other. It counts what rules they exercise, and finds it wrong when more
// READs and atomics are outstanding than agreed.
//
// A packet that a fault held or repeated shows nothing about its sender.
type connection struct {
	w      *world
	to     *verbs.QP // the responder
	first  bth.PSN
	mtu    int
	depth  int // READs and atomics at once
	credit bool
	shared bool // the responder's receive queue

	high  bth.PSN // after the last request packet that was seen
	epsn  bth.PSN // the responder's, or before
	tasks []task  // READs and atomics, the newest ones
	end   uint64  // address after the last READ asked for

	una      bth.PSN // of the requester
	syndrome bth.Syndrome
	plain    bool // the last answer was an ACK
	msn      uint32
	nak, rnr mark
}

// task is a READ or atomic that was asked for.
type task struct {
	first, end bth.PSN
	atomic     bool
}

// mark is the PSN that a NAK named, until it comes again.
type mark struct {
	psn bth.PSN
	on  bool
}

// observe has a connection of two peers counted, both ways.
func observe(w *world, a, b *peer, c *Conn) {
	for _, p := range [][2]*peer{{a, b}, {b, a}} {
		first := bth.MakePSN(c.PSN)
		o := &connection{
			w: w, to: p[1].qp, first: first, mtu: int(c.Options.PathMTU), depth: c.Options.MaxDestRdAtomic, credit: c.Options.FlowControl,
			shared: p[1].host.srq != nil, high: first, epsn: first, una: first, syndrome: bth.AckUnlimited,
		}
		w.see(p[1].node, p[1].qp, o.request)
		w.see(p[0].node, p[0].qp, o.response)
	}
}

// request sees a request reach the responder.
func (o *connection) request(p Packet, h *bth.Packet) {
	info := h.Info()
	if !info.Has(bth.Request) {
		return
	}
	w := o.w
	pkts := 1
	if info.Op == bth.OpReadReq {
		pkts = max(1, (int(h.DMALen)+o.mtu-1)/o.mtu)
	}
	end := h.PSN.Add(pkts)
	atomic := info.Op == bth.OpCmpSwap || info.Op == bth.OpFetchAdd
	w.note(seenAckReq, h.AckReq)
	w.note(seenAckReqEarly, h.AckReq && info.Has(bth.First|bth.Middle))
	w.note(seenPad, h.Pad != 0)
	w.note(seenZero, info.Has(bth.Only) && !atomic && h.DMALen == 0 && len(h.Payload) == 0)
	w.note(seenAtomic, atomic)
	w.note(seenFirst, info.Has(bth.First))
	w.note(seenWriteImm, info.Op == bth.OpWrite && info.Has(bth.TakesRecv))
	w.note(seenReadPSNs, pkts > 1)
	if o.nak.on && h.PSN == o.nak.psn && p.Hit == 0 {
		o.nak.on = false
		w.note(seenRestartMiddle, info.Has(bth.Middle))
		w.note(seenRestartLast, info.Has(bth.Last))
		w.note(seenRestartFirst, info.Has(bth.Starts))
	}
	if o.rnr.on && h.PSN == o.rnr.psn && p.Hit == 0 {
		o.rnr.on = false
		w.note(seenAfterRNR, true)
	}
	if end.After(o.high) {
		o.fresh(h, pkts, atomic)
		o.high = end
	} else {
		o.again(h, atomic)
	}
}

// fresh is a request packet that was not seen before.
func (o *connection) fresh(h *bth.Packet, pkts int, atomic bool) {
	info, w := h.Info(), o.w
	w.note(seenWrap, info.Has(bth.Middle|bth.Last) && h.PSN.Uint32() == 0 || pkts > 1 && h.PSN.Add(pkts).Uint32() < uint32(pkts))
	dry := o.credit && o.syndrome == bth.AckCredits(0)
	w.note(seenLimited, dry && h.AckReq && info.Op == bth.OpSend && info.Has(bth.First))
	w.note(seenNeedsNone, dry && info.Has(bth.Starts) && info.Op != bth.OpSend)
	if info.Op != bth.OpReadReq && !atomic {
		return
	}
	if n := len(o.tasks); info.Op == bth.OpReadReq {
		w.note(seenReadPart, n > 0 && o.tasks[n-1].end == h.PSN && o.end == h.VA && h.DMALen > 0)
		o.end = h.VA + uint64(h.DMALen)
	}
	if len(o.tasks) > 4*o.depth {
		o.tasks = o.tasks[:copy(o.tasks, o.tasks[len(o.tasks)-2*o.depth:])]
	}
	o.tasks = append(o.tasks, task{h.PSN, h.PSN.Add(pkts), atomic})
	open := 0
	for _, t := range o.tasks {
		if t.end.After(o.una) {
			open++
		}
	}
	w.note(seenReadsFull, open == o.depth)
	if open > o.depth {
		w.t.Fatalf("%d READs and atomics are outstanding of queue pair %#x, agreed are %d", open, o.to.QPN(), o.depth)
	}
}

// again is a request packet that was seen before, or one that was lost and comes
// behind others.
func (o *connection) again(h *bth.Packet, atomic bool) {
	info, w := h.Info(), o.w
	if !h.PSN.Before(o.epsn) {
		a, err := o.to.Query()
		if err != nil {
			w.t.Fatal(err)
		}
		o.epsn = bth.MakePSN(a.RQPSN)
		if !h.PSN.Before(o.epsn) {
			return
		}
	}
	switch {
	case info.Op == bth.OpSend:
		w.note(seenDupSend, true)
	case info.Op == bth.OpWrite:
		w.note(seenDupWrite, true)
	case info.Op == bth.OpReadReq:
		w.note(seenDupRead, true)
		for i := len(o.tasks) - 1; i >= 0; i-- {
			if t := &o.tasks[i]; h.PSN.After(t.first) && h.PSN.Before(t.end) {
				w.note(seenReadMiddle, true)
				break
			}
		}
	case atomic:
		w.note(seenDupAtomic, true)
		newer := 0
		for i := len(o.tasks) - 1; i >= 0; i-- {
			t := &o.tasks[i]
			if t.first == h.PSN {
				w.note(seenDupDepth, o.depth > 1 && newer == o.depth-1)
				break
			}
			if t.first.Before(o.epsn) {
				newer++
			}
		}
	}
}

// response sees an answer reach the requester.
func (o *connection) response(_ Packet, h *bth.Packet) {
	info, w := h.Info(), o.w
	if info.Has(bth.Request) {
		return
	}
	plain := info.Op == bth.OpAck
	w.note(seenOtherKind, plain != o.plain)
	o.plain = plain
	w.note(seenReadFirst, info.Op == bth.OpReadResp && info.Has(bth.First))
	w.note(seenReadEnd, info.Op == bth.OpAtomicAck || info.Op == bth.OpReadResp && info.Has(bth.Ends))
	if info.Ext&bth.ExtAETH != 0 && h.Syndrome.Kind() == bth.KindAck {
		w.note(seenMSN, h.MSN != o.msn)
		o.msn, o.syndrome = h.MSN, h.Syndrome
		n, ok := h.Syndrome.Credits()
		w.note(seenCreditCount, ok)
		w.note(seenNoCredit, ok && n == 0)
		w.note(seenUnbound, !o.credit && !ok)
		w.note(seenShared, o.credit && o.shared && !ok)
	}
	done := h.PSN.Add(1)
	if plain && h.Syndrome.Kind() != bth.KindAck {
		o.refused(h)
		done = h.PSN
	}
	if plain { // it acknowledges no READ or atomic
		for _, t := range o.tasks {
			if t.end.After(o.una) && t.first.Before(done) {
				done = t.first
				break
			}
		}
	}
	if !done.After(o.una) {
		return
	}
	w.note(seenCoalesced, plain && h.Syndrome.Kind() == bth.KindAck && done.Diff(o.una) > 1)
	w.note(seenAcksBefore, plain && h.Syndrome.Kind() != bth.KindAck)
	o.una = done
}

// refused sees a NAK.
func (o *connection) refused(h *bth.Packet) {
	w := o.w
	switch s := h.Syndrome; {
	case s.Kind() == bth.KindRNR:
		o.rnr = mark{h.PSN, true}
		w.note(seenRNR, true)
		w.note(seenRNRCode, s.Code() != 12)
	case s == bth.NAKSequence:
		w.note(seenGapNAK, true)
		w.note(seenNAKAgain, o.nak == mark{h.PSN, true})
		o.nak = mark{h.PSN, true}
	case s == bth.NAKInvalidRequest:
		w.note(seenInvalid, true)
	case s == bth.NAKRemoteAccess:
		w.note(seenAccess, true)
	case s == bth.NAKRemoteOperational:
		w.note(seenOperational, true)
	}
}
