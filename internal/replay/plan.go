package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// message is one request message as the recorded packets show it. Packets that
// were sent again count once.
type message struct {
	at     int // PSN of its first packet, counted from the direction's base
	pkts   int // PSNs it takes
	opcode bth.Opcode
	length int
	va     uint64
	rkey   uint32
	imm    *uint32
	se     bool
	swap   uint64
	comp   uint64
	data   []byte // SEND and WRITE: as recorded, 0 where no packet was

	takesRecv bool
	trouble   int // octets before a local error met it (NAK 0x63), or -1
	short     bool
}

func (m *message) op() bth.Op { return m.opcode.Info().Op }

// stream is the requests of one direction.
type stream struct {
	base     bth.PSN
	known    bool // base is the first PSN of the connection
	messages []message
	orphans  map[int]bool // packets of a message whose beginning is not recorded
}

func (s *stream) pos(p bth.PSN) int { return p.Diff(s.base) }

// index returns the message that owns a position, or -1.
func (s *stream) index(pos int) int {
	i, ok := slices.BinarySearchFunc(s.messages, pos, func(m message, pos int) int { return cmp.Compare(m.at, pos) })
	if !ok {
		i--
	}
	if i < 0 || pos >= s.messages[i].at+s.messages[i].pkts {
		return -1
	}
	return i
}

// completed returns how many messages end before a position, where a READ or
// atomic counts when it is accepted.
func (s *stream) completed(pos int) (n int) {
	i := s.index(pos)
	if i >= 0 {
		return i
	}
	for n < len(s.messages) && s.messages[n].at+s.messages[n].pkts <= pos {
		n++
	}
	return n
}

// plan is what the engine is configured with, and what it will meet.
type plan struct {
	conv *Conversation
	ours Side
	attr verbs.QPAttr
	// timed is false for a file without times: timers then fire when they are
	// wanted.
	timed bool

	out stream // our requests
	in  stream // the peer's

	regions []region
	script  []note // for each event of the peer's
	msn     int    // added to the engine's MSN

	burst *wire.Burst // of every engine in turn
}

// region is remotely accessible memory that requests name.
type region struct {
	va   uint64
	n    int
	rkey uint32 // as recorded
}

// note is what the recorded side had ready when a packet of the peer came.
type note struct {
	noRecv   bool // it answered with an RNR NAK
	withdraw bool // the region was withdrawn while, or before, it answered
	gone     bool // before
}

const (
	// maxSpan bounds what a region may grow to by joining accesses to one key.
	maxSpan = 1 << 20

	// maxMemory bounds the octets of all messages of one side.
	maxMemory = 256 << 20
)

func newPlan(c *Conversation, ours Side) (*plan, error) {
	p := &plan{conv: c, ours: ours, burst: wire.NewBurst()}
	for _, e := range c.events {
		p.timed = p.timed || !e.time.IsZero()
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
	p.attributes()
	p.findMSN()
	return p, nil
}

// rebase counts from the PSN at which the connection is known to begin.
func (s *stream) rebase(psn uint32) {
	d := s.base.Diff(bth.MakePSN(psn))
	if len(s.messages) == 0 {
		s.base, d = bth.MakePSN(psn), 0
	}
	if d < 0 || d > 1<<20 {
		return // a QPN used again; the packets know better
	}
	s.base, s.known = s.base.Add(-d), true
	for i := range s.messages {
		s.messages[i].at += d
	}
	orphans := map[int]bool{}
	for o := range s.orphans {
		orphans[o+d] = true
	}
	s.orphans = orphans
}

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

func packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu) }

// messages finds the request messages of one side.
func (p *plan) messages(side Side) (stream, error) {
	s := stream{orphans: map[int]bool{}}
	mtu := int(p.attr.PathMTU)
	seen := map[int]*bth.Packet{}
	have := false
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if e.from != side || !e.pkt.Info().Has(bth.Request) {
			continue
		}
		if !have {
			s.base, have = e.pkt.PSN, true
		}
		if pos := s.pos(e.pkt.PSN); seen[pos] == nil {
			seen[pos] = &e.pkt
		}
	}
	at := make([]int, 0, len(seen))
	for pos := range seen {
		at = append(at, pos)
	}
	slices.Sort(at)
	end, memory := -1<<30, 0 // after the last message; of all
	for i, pos := range at {
		q := seen[pos]
		if q.Info().Has(bth.Starts) || q.Info().Ext&(bth.ExtRETH|bth.ExtAtomicETH) != 0 {
			if pos < end {
				continue // a READ asked for again from its middle
			}
			m := message{at: pos, pkts: 1, opcode: q.Opcode, trouble: -1}
			m.begin(q, mtu)
			if memory += m.length; memory > maxMemory {
				return s, fmt.Errorf("the requests of side %v are about more than %d MiB of memory: cut the capture into pieces", side, maxMemory>>20)
			}
			if q.Opcode == bth.RCSendFirst {
				m.measure(seen, at[i:], mtu)
			}
			if q.Info().Has(bth.HasPayload) {
				m.data = make([]byte, m.length)
			}
			s.messages = append(s.messages, m)
			end = pos + m.pkts
		} else if pos >= end {
			s.orphans[pos] = true
			continue
		}
		m := &s.messages[len(s.messages)-1]
		if m.data != nil {
			copy(m.data[min(len(m.data), (pos-m.at)*mtu):], q.Payload)
		}
		if q.Info().Has(bth.Ends) {
			m.finish(q)
		}
	}
	return s, nil
}

// begin takes what a message's first packet says.
func (m *message) begin(q *bth.Packet, mtu int) {
	m.length = len(q.Payload)
	switch info := q.Info(); {
	case info.Ext&bth.ExtRETH != 0:
		m.va, m.rkey, m.length = q.VA, q.RKey, int(q.DMALen)
		m.pkts = packets(m.length, mtu)
	case info.Ext&bth.ExtAtomicETH != 0:
		m.va, m.rkey, m.length, m.swap, m.comp = q.VA, q.RKey, 8, q.SwapAdd, q.Compare
	}
}

// measure finds the length of a SEND of several packets: up to its last, or,
// when that was never recorded, to the next message or beyond the capture.
func (m *message) measure(seen map[int]*bth.Packet, at []int, mtu int) {
	m.pkts = at[len(at)-1] - m.at + 2
	m.length = (m.pkts-1)*mtu + 1
	for _, pos := range at[1:] {
		q := seen[pos]
		if q.Info().Has(bth.Last) {
			m.pkts = pos - m.at + 1
			m.length = (m.pkts-1)*mtu + len(q.Payload)
			return
		}
		if !q.Info().Has(bth.Middle) {
			m.pkts = pos - m.at
			m.length = m.pkts * mtu
			return
		}
	}
}

// finish takes what a message's last packet says.
func (m *message) finish(q *bth.Packet) {
	m.se = q.SE
	info := q.Info()
	m.takesRecv = info.Has(bth.TakesRecv)
	if info.Has(bth.HasImm) {
		imm := q.Imm
		m.imm = &imm
	}
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
			p.script[i].withdraw = true
			p.script[i].gone = !p.acceptedBefore(i)
		}
	}
}

// answer returns the NAK that our side gave to event i: one of its PSN, before
// that PSN was sent again.
func (p *plan) answer(i int) *bth.Packet {
	psn := p.conv.events[i].pkt.PSN
	for j := i + 1; j < len(p.conv.events); j++ {
		e := &p.conv.events[j]
		if e.pkt.PSN != psn {
			continue
		}
		if e.from != p.ours {
			if e.pkt.Info().Has(bth.Request) {
				return nil
			}
			continue
		}
		if e.pkt.Info().Op == bth.OpAck && e.pkt.Syndrome.Kind() != bth.KindAck && e.pkt.Syndrome != bth.NAKSequence {
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

// findRegions lays regions under what accepted requests name.
func (p *plan) findRegions() {
	refused := map[int]bool{}
	for i, n := range p.script {
		if n.gone {
			refused[p.in.index(p.in.pos(p.conv.events[i].pkt.PSN))] = true
		}
	}
	var all []region
	for i := range p.in.messages {
		m := &p.in.messages[i]
		if n := m.length; n > 0 && !refused[i] && m.opcode.Info().Ext&(bth.ExtRETH|bth.ExtAtomicETH) != 0 && m.va+uint64(n)-1 >= m.va {
			all = append(all, region{m.va, n, m.rkey})
		}
	}
	slices.SortFunc(all, func(a, b region) int { return cmp.Or(cmp.Compare(a.rkey, b.rkey), cmp.Compare(a.va, b.va)) })
	for _, r := range all {
		if n := len(p.regions); n > 0 {
			if last := &p.regions[n-1]; last.rkey == r.rkey {
				if end := r.va + uint64(r.n) - last.va; end <= maxSpan || r.va <= last.va+uint64(last.n) {
					last.n = max(last.n, int(end))
					continue
				}
			}
		}
		p.regions = append(p.regions, r)
	}
}

// region returns the index of the region that holds n octets at va, or -1.
func (p *plan) region(rkey uint32, va uint64, n int) int {
	for i := range p.regions {
		r := &p.regions[i]
		if off := va - r.va; r.rkey == rkey && va >= r.va && off <= uint64(r.n) && uint64(n) <= uint64(r.n)-off {
			return i
		}
	}
	return -1
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
	allowed, refused := verbs.Access(0), verbs.Access(0)
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if e.from == p.ours || !e.pkt.Info().Has(bth.Request) {
			continue
		}
		if nak := p.answer(i); nak != nil && nak.Syndrome == bth.NAKInvalidRequest {
			refused |= need[e.pkt.Info().Op]
		} else if p.accepted(i) {
			allowed |= need[e.pkt.Info().Op]
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

// workRequest is what makes the engine send a message. Data lie at off of the
// local region.
func (m *message) workRequest(id uint64, off uint64, lkey uint32) verbs.SendWR {
	w := verbs.SendWR{ID: id, Flags: verbs.SendSignaled, RemoteAddr: m.va, RKey: m.rkey}
	if m.length > 0 {
		w.SGL = []verbs.SGE{{Addr: off, Length: uint32(m.length), LKey: lkey}}
	}
	if m.se {
		w.Flags |= verbs.SendSolicited
	}
	switch m.op() {
	case bth.OpSend:
		w.Opcode = verbs.WRSend
	case bth.OpWrite:
		w.Opcode = verbs.WRWrite
	case bth.OpReadReq:
		w.Opcode = verbs.WRRead
	case bth.OpFetchAdd:
		w.Opcode, w.CompareAdd = verbs.WRFetchAdd, m.swap
	case bth.OpCmpSwap:
		w.Opcode, w.CompareAdd, w.Swap = verbs.WRCmpSwap, m.comp, m.swap
	}
	if m.imm != nil {
		w.Imm = *m.imm
		if m.op() == bth.OpSend {
			w.Opcode = verbs.WRSendImm
		} else {
			w.Opcode = verbs.WRWriteImm
		}
	}
	return w
}

// recorded returns the octets that our side answered a READ with, from event i
// on, and which of them were recorded.
func (p *plan) recorded(i int) (data []byte, have []bool) {
	q := &p.conv.events[i].pkt
	mtu, n := int(p.attr.PathMTU), int(q.DMALen)
	data, have = make([]byte, n), make([]bool, n)
	if n == 0 {
		return data, have
	}
	pkts := packets(n, mtu)
	for j := i + 1; j < len(p.conv.events); j++ {
		e := &p.conv.events[j]
		if e.from != p.ours || e.pkt.Info().Op != bth.OpReadResp {
			continue
		}
		k := e.pkt.PSN.Diff(q.PSN)
		if k < 0 || k >= pkts || have[min(n-1, k*mtu)] {
			continue
		}
		copy(data[k*mtu:], e.pkt.Payload)
		for o := k * mtu; o < min(n, k*mtu+len(e.pkt.Payload)); o++ {
			have[o] = true
		}
	}
	return data, have
}

// original returns the value that our side answered an atomic with.
func (p *plan) original(i int) (v uint64, ok bool) {
	for j := i + 1; j < len(p.conv.events); j++ {
		if e := &p.conv.events[j]; e.from == p.ours && e.pkt.Info().Op == bth.OpAtomicAck && e.pkt.PSN == p.conv.events[i].pkt.PSN {
			return e.pkt.Orig, true
		}
	}
	return 0, false
}
