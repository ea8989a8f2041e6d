package replay

import (
	"fmt"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/rc"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// plan is what the engine is configured with, and what it will meet.
type plan struct {
	conv *Conversation
	ours Side
	attr verbs.QPAttr
	// habits are what the recorded side is seen to do its own way.
	habits rc.Habits
	// timed is false for a file without times: timers then fire when they are
	// wanted.
	timed bool

	out stream // our requests
	in  stream // the peer's

	regions []region
	script  []note // for each event of the peer's
	msn     int    // added to the engine's MSN

	index [2]map[bth.PSN][]int // events of each side by PSN, in order
	peers []int                // how many events before each are the peer's
	burst *wire.Burst          // of every engine in turn
}

// note is what the recorded side had ready when a packet of the peer came.
type note struct {
	noRecv bool // it answered with an RNR NAK
	gone   bool // with a remote access NAK: there was no such region, or no longer

	// What it answered a READ or atomic with, in the order of memory, and which
	// octets of that were recorded.
	data []byte
	have []bool
}

const (
	// joinGap is how far apart accesses with one key may be to share a region.
	joinGap = 4096

	// maxMemory bounds the octets of all messages of one side.
	maxMemory = 256 << 20
)

func newPlan(c *Conversation, ours Side) (*plan, error) {
	p := &plan{conv: c, ours: ours, burst: wire.NewBurst()}
	p.index = [2]map[bth.PSN][]int{{}, {}}
	n := 0
	for i := range c.events {
		e := &c.events[i]
		p.timed = p.timed || !e.time.IsZero()
		p.index[e.from][e.pkt.PSN] = append(p.index[e.from][e.pkt.PSN], i)
		p.peers = append(p.peers, n)
		if e.from != ours {
			n++
		}
	}
	if err := p.findMTU(); err != nil {
		return nil, err
	}
	var err error
	if p.out, err = p.messages(ours); err != nil {
		return nil, err
	}
	if p.in, err = p.messages(ours.Other()); err != nil {
		return nil, err
	}
	if c.cm != nil {
		// What the REQ and the REP say of PSNs is where each expects the other
		// to begin.
		p.out.rebase(c.cm.psn[ours.Other()])
		p.in.rebase(c.cm.psn[ours])
	}
	p.answers()
	p.findRegions()
	p.findContents()
	p.attributes()
	p.findMSN()
	return p, nil
}

// heardBy returns how many events before event i are the peer's.
func (p *plan) heardBy(i int) int { return p.peers[min(i, len(p.peers)-1)] }

// findMTU finds the path MTU that every packet agrees with.
func (p *plan) findMTU() error {
	fits := func(mtu int) bool {
		for i := range p.conv.events {
			e := &p.conv.events[i]
			info, n := e.pkt.Info(), len(e.pkt.Payload)
			if info.Has(bth.First|bth.Middle) && n != mtu || n > mtu {
				return false
			}
		}
		return p.spansFit(mtu)
	}
	if cm := p.conv.cm; cm != nil && fits(cm.mtu) {
		p.attr.PathMTU = verbs.MTU(cm.mtu)
		return nil
	}
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		if fits(mtu) {
			p.attr.PathMTU = verbs.MTU(mtu)
			return nil
		}
	}
	return fmt.Errorf("no path MTU fits the packets: FIRST and MIDDLE packets are of several lengths, or not of 256, 512, 1024, 2048 or 4096 octets")
}

// spansFit reports whether the next request after a READ begins where the READ
// ends.
func (p *plan) spansFit(mtu int) bool {
	for _, side := range []Side{A, B} {
		prev, have := bth.Packet{}, false
		for i := range p.conv.events {
			e := &p.conv.events[i]
			if e.from != side || !e.pkt.Info().Has(bth.Request) {
				continue
			}
			if have && e.pkt.PSN.After(prev.PSN) && e.pkt.PSN.Before(prev.PSN.Add(packets(int(prev.DMALen), mtu))) && e.pkt.Info().Op != bth.OpReadReq {
				return false
			}
			if prev, have = e.pkt, e.pkt.Info().Op == bth.OpReadReq; have && prev.DMALen > 1<<30 {
				have = false
			}
		}
	}
	return true
}

// answers looks ahead: what our side said to each packet of the peer's tells
// what it had ready.
func (p *plan) answers() {
	p.script = make([]note, len(p.conv.events))
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if e.from == p.ours || !e.pkt.Info().Has(bth.Request) {
			continue
		}
		nak := p.answer(i)
		if nak == nil {
			continue
		}
		m := p.in.index(p.in.pos(e.pkt.PSN))
		switch {
		case nak.Syndrome.Kind() == bth.KindRNR:
			p.script[i].noRecv = true
		case m < 0:
		case nak.Syndrome == bth.NAKRemoteOperational:
			p.in.messages[m].trouble = max(0, p.in.pos(nak.PSN)-p.in.messages[m].at) * int(p.attr.PathMTU)
		case nak.Syndrome == bth.NAKInvalidRequest:
			p.in.messages[m].short = e.pkt.Info().Op == bth.OpSend
		case nak.Syndrome == bth.NAKRemoteAccess:
			p.script[i].gone = true
			if p.acceptedBefore(i) {
				p.habits |= rc.NAKDuplicateRead
			} else {
				p.in.messages[m].refused = true
			}
		}
	}
}

// answer returns the NAK that our side gave to event i: one of its PSN, before
// that PSN was sent again.
func (p *plan) answer(i int) *bth.Packet {
	psn, until := p.conv.events[i].pkt.PSN, len(p.conv.events)
	for _, j := range p.index[p.ours.Other()][psn] {
		if j > i && p.conv.events[j].pkt.Info().Has(bth.Request) {
			until = j
			break
		}
	}
	for _, j := range p.index[p.ours][psn] {
		e := &p.conv.events[j]
		if j > i && j < until && e.pkt.Info().Op == bth.OpAck && e.pkt.Syndrome.Kind() != bth.KindAck && e.pkt.Syndrome != bth.NAKSequence {
			return &e.pkt
		}
	}
	return nil
}

// acceptedBefore reports whether event i repeats a request that our side has
// answered well.
func (p *plan) acceptedBefore(i int) bool {
	psn := p.conv.events[i].pkt.PSN
	for j := range i {
		e := &p.conv.events[j]
		if e.from == p.ours && e.pkt.Info().Has(bth.Response) && e.pkt.PSN.After(psn) && e.pkt.Syndrome.Kind() == bth.KindAck {
			return true
		}
	}
	return false
}

// accepted reports whether our side acknowledged event i, or something behind
// it.
func (p *plan) accepted(i int) bool {
	for j := i + 1; j < len(p.conv.events); j++ {
		e := &p.conv.events[j]
		if e.from == p.ours && e.pkt.Info().Has(bth.Response) && !e.pkt.PSN.Before(p.conv.events[i].pkt.PSN) && e.pkt.Syndrome.Kind() == bth.KindAck {
			return true
		}
	}
	return false
}

// depth is for a queue pair whose connection manager was not recorded.
const (
	defaultDepth   = 128
	defaultTimeout = 14
)

func (p *plan) attributes() {
	a := &p.attr
	ends := p.conv.Ends
	a.Access, a.Port, a.DestQPN = verbs.AccessAll, 1, ends[p.ours.Other()].QPN
	if a.DestQPN == 0 {
		a.DestQPN = unknownQPN
	}
	a.SQPSN, a.RQPSN = p.out.first(), p.in.first()
	a.MaxRdAtomic, a.MaxDestRdAtomic, a.Timeout, a.RetryCnt, a.RNRRetry = defaultDepth, defaultDepth, defaultTimeout, 7, 7
	if cm := p.conv.cm; cm != nil {
		a.Timeout, a.FlowControl = cm.timeout, cm.credits
		a.MaxRdAtomic, a.MaxDestRdAtomic = p.depth(cm.depth[p.ours.Other()], p.ours), p.depth(cm.depth[p.ours], p.ours.Other())
	}
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if e.from == p.ours && e.pkt.Info().Op == bth.OpAck && e.pkt.Syndrome.Kind() == bth.KindRNR {
			a.MinRNRTimer = e.pkt.Syndrome.Code()
			break
		}
	}
	p.permissions()
	p.findHabits()
}

// findHabits looks at what follows an RNR NAK. Of our responder: a sequence NAK
// before the refused packet comes again? Of our requester: more than the
// refused packet before it hears again?
func (p *plan) findHabits() {
	ev := p.conv.events
	for i := range ev {
		nak := &ev[i]
		if nak.pkt.Info().Op != bth.OpAck || nak.pkt.Syndrome.Kind() != bth.KindRNR {
			continue
		}
		again := false
		for _, e := range ev[i+1:] {
			if answer := e.from == nak.from && e.pkt.Info().Has(bth.Response); answer && again {
				break
			} else if answer && e.from == p.ours && e.pkt.Syndrome == bth.NAKSequence && e.pkt.PSN == nak.pkt.PSN {
				p.habits |= rc.NAKBehindRNR
			}
			if e.from != nak.from && e.pkt.Info().Has(bth.Request) {
				if again && e.from == p.ours && e.pkt.PSN.After(nak.pkt.PSN) {
					p.habits |= rc.ResendAll
				}
				again = again || e.pkt.PSN == nak.pkt.PSN
			}
		}
	}
}

// depth is how many READs and atomics of side may be outstanding: what the
// connection manager said, unless they were more: a queue pair may be modified
// afterwards.
func (p *plan) depth(said int, side Side) int {
	outstanding := map[bth.PSN]bool{}
	most := 0
	for i := range p.conv.events {
		e := &p.conv.events[i]
		switch info := e.pkt.Info(); {
		case e.from == side && (info.Op == bth.OpReadReq || info.Ext&bth.ExtAtomicETH != 0):
			outstanding[e.pkt.PSN] = true
			most = max(most, len(outstanding))
		case e.from != side && info.Has(bth.Response):
			for psn := range outstanding {
				if !psn.After(e.pkt.PSN) {
					delete(outstanding, psn)
				}
			}
		}
	}
	return max(1, said, most)
}

// unknownQPN stands in for a queue pair that no recorded packet names.
const unknownQPN = 0x11

func (s *stream) first() uint32 {
	if len(s.messages) > 0 && !s.known {
		return s.base.Add(s.messages[0].at).Uint32()
	}
	return s.base.Uint32()
}

// permissions takes from the queue pair what it refused as invalid and never
// allowed.
func (p *plan) permissions() {
	need := map[bth.Op]verbs.Access{
		bth.OpWrite: verbs.AccessRemoteWrite, bth.OpReadReq: verbs.AccessRemoteRead,
		bth.OpCmpSwap: verbs.AccessRemoteAtomic, bth.OpFetchAdd: verbs.AccessRemoteAtomic,
	}
	var allowed, refused verbs.Access
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if e.from != p.ours && e.pkt.Info().Has(bth.Request) {
			if nak := p.answer(i); nak != nil && nak.Syndrome == bth.NAKInvalidRequest {
				refused |= need[e.pkt.Info().Op]
			}
		}
	}
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if bit := need[e.pkt.Info().Op] & refused &^ allowed; e.from != p.ours && bit != 0 && p.accepted(i) {
			allowed |= bit
		}
	}
	p.attr.Access &^= refused &^ allowed
}

// findMSN compares the first MSN of our side with the count of messages: it is
// more in a capture that began late.
func (p *plan) findMSN() {
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if e.from != p.ours || e.pkt.Info().Ext&bth.ExtAETH == 0 {
			continue
		}
		pos := p.in.pos(e.pkt.PSN)
		if p.before(pos) {
			continue
		}
		done := p.in.completed(pos)
		m := p.in.index(pos)
		switch good := e.pkt.Syndrome.Kind() == bth.KindAck; {
		case m < 0 || !good:
		case p.in.messages[m].op() != bth.OpSend && p.in.messages[m].op() != bth.OpWrite, pos == p.in.messages[m].at+p.in.messages[m].pkts-1:
			done = m + 1
		}
		if d := (int(e.pkt.MSN) - done) & bth.PSNMask; !p.in.known {
			p.msn = d
		}
		return
	}
}

// before reports whether a position is of a request from before the capture.
func (p *plan) before(pos int) bool {
	return len(p.in.messages) == 0 || !p.in.known && pos < p.in.messages[0].at
}
