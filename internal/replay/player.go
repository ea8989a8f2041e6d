package replay

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/rc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// kind tells requests from responses: an engine sends two streams, and how it
// interleaves them is its own affair.
type kind uint8

const (
	requests kind = iota
	responses
)

func kindOf(p *bth.Packet) kind {
	if p.Info().Has(bth.Request) {
		return requests
	}
	return responses
}

// input is something done to an engine. A list of them is a state: the same
// inputs lead to it again.
type input struct {
	do doing
	at int64 // ns
	n  int   // post: messages; deliver: the event; take: the kind
}

type doing uint8

const (
	post doing = iota
	deliver
	take
	fire
	lose // what the peer sent; the engine does not hear of it
)

const (
	domain    mr.PD = 1
	localVA         = 1 << 12
	window          = 1 << 20 // packets: the recorded side's decides
	maxBurst        = 1       // packets that leave at once
	maxPosted       = 1 << 14 // work requests posted and not completed
)

// player is the engine in place of the recorded side.
type player struct {
	plan *plan
	qp   *rc.QP
	sq   *verbs.SendQueue
	mrs  *mr.Table
	now  int64

	regions []*mr.Region
	sure    [][]bool // octets of regions whose content is known
	lkey    uint32
	offset  []uint64 // of each message in the local region

	burst *wire.Burst
	out   [2][]bth.Packet // sent and not yet taken, by kind
	recv  []verbs.RecvWR  // the receive request at hand, if any
	put   int             // messages posted
	heard int             // the peer's position expected next
	acked int             // positions of the peer's that were acknowledged
	// changed counts octets that the recorded side's program changed itself.
	changed int
}

// discard takes completions that nobody reads.
type discard struct{}

func (discard) Push(*verbs.WC, bool) {}

// Fetch gives the engine the receive request at hand.
func (y *player) Fetch(sgl []verbs.SGE) (id verbs.RecvID, n int, ok bool) {
	if len(y.recv) == 0 {
		return verbs.RecvID{}, 0, false
	}
	w := y.recv[0]
	y.recv = y.recv[:0]
	return verbs.RecvID{ID: w.ID}, copy(sgl, w.SGL), true
}

func newPlayer(p *plan) (*player, error) {
	y := &player{plan: p, mrs: mr.NewTable(1), burst: p.burst}
	for _, r := range p.regions {
		m, err := y.mrs.Register(mr.Region{PD: domain, IOVA: r.va, Mem: make([]byte, r.n), Access: verbs.AccessAll})
		if err != nil {
			return nil, err
		}
		y.regions = append(y.regions, m)
		y.sure = append(y.sure, make([]bool, r.n))
	}
	if err := y.local(); err != nil {
		return nil, err
	}
	c := verbs.QPCap{MaxSendWR: min(len(p.out.messages)+1, maxPosted), MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 2}
	mem := verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, 0))
	var err error
	if y.sq, err = verbs.NewSendQueue(mem, c); err != nil {
		return nil, err
	}
	ring, ok := verbs.NewSendRing(mem)
	if !ok {
		return nil, fmt.Errorf("no send ring for %d work requests", c.MaxSendWR)
	}
	y.qp = rc.New(rc.Config{
		Config: transport.Config{
			QPN: bth.QPN(p.conv.Ends[p.ours].QPN), PD: domain, Cap: c, SQ: ring, RQ: y, SendCQ: discard{}, RecvCQ: discard{}, MRs: y.mrs,
		},
		Window: window, Control: cc.NewFixed(window), Habits: p.habits,
	})
	return y, y.connect()
}

// local lays the memory of the work requests: data to send, and room for what
// READs and atomics return.
func (y *player) local() error {
	n := 0
	room := 0
	for i := range y.plan.in.messages {
		room = max(room, y.plan.in.messages[i].length) // for receive requests, one after the other
	}
	for i := range y.plan.out.messages {
		y.offset = append(y.offset, uint64(localVA+n))
		n += (y.plan.out.messages[i].length + 7) &^ 7
	}
	y.offset = append(y.offset, uint64(localVA+n))
	mem := make([]byte, n+room)
	for i := range y.plan.out.messages {
		copy(mem[y.offset[i]-localVA:], y.plan.out.messages[i].data)
	}
	m, err := y.mrs.Register(mr.Region{PD: domain, IOVA: localVA, Mem: mem, Access: verbs.AccessLocalWrite})
	if err != nil {
		return err
	}
	y.lkey = m.Key
	return nil
}

// connect takes the queue pair to RTS.
func (y *player) connect() error {
	flow := &wire.Flow{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), SrcPort: 0xc000}
	for _, s := range []struct {
		to verbs.QPState
		m  verbs.AttrMask
	}{
		{verbs.StateInit, verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess},
		{verbs.StateRTR, verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer | verbs.AttrFlowControl},
		{verbs.StateRTS, verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrSQPSN | verbs.AttrMaxRdAtomic},
	} {
		a := y.plan.attr
		a.State = s.to
		if err := y.qp.Modify(0, &a, verbs.AttrState|s.m, flow); err != nil {
			return fmt.Errorf("the engine does not take what the capture says of the connection: %w", err)
		}
	}
	return nil
}

// run does an input. The packet is that of a take, nil when there is none.
func (y *player) run(in input) (*bth.Packet, error) {
	y.now = max(y.now, in.at)
	switch in.do {
	case post:
		return nil, y.post(in.n)
	case deliver:
		return nil, y.deliver(in.n)
	case lose:
		return nil, nil
	case fire:
		y.now = max(y.now, y.qp.Deadline())
		y.qp.HandleTimer(y.now)
		return nil, nil
	}
	return y.take(kind(in.n)), nil
}

// post posts messages up to n.
func (y *player) post(n int) error {
	for ; y.put < n; y.put++ {
		w := y.plan.out.messages[y.put].workRequest(uint64(y.put), y.offset[y.put], y.lkey)
		if err := y.sq.Put(&w); err != nil {
			return fmt.Errorf("message %d: %w", y.put, err)
		}
	}
	y.sq.Publish()
	y.qp.Doorbell(y.now)
	return nil
}

// take returns the engine's next packet of a kind.
func (y *player) take(k kind) *bth.Packet {
	for len(y.out[k]) == 0 {
		y.burst.Reset(nil, maxBurst, 0)
		if !y.qp.Fill(y.now, y.burst) {
			return nil
		}
		y.burst.Seal(wire.IDCount)
		for i := range y.burst.Segs {
			var p bth.Packet
			if why := bth.Parse(y.burst.AppendSegment(nil, i), &p); why != trace.None {
				panic(fmt.Sprintf("replay: the engine sent what is no packet: %v", why))
			}
			y.out[kindOf(&p)] = append(y.out[kindOf(&p)], p)
		}
		y.qp.Sent(y.burst, y.burst.Len())
	}
	p := y.out[k][0]
	y.out[k] = y.out[k][1:]
	if k == responses {
		y.acked = max(y.acked, acknowledged(&y.plan.in, &p))
	}
	return &p
}

// deliver gives the engine a recorded packet of the peer, after making ready
// what the recorded side had ready.
func (y *player) deliver(i int) error {
	e := &y.plan.conv.events[i]
	p := e.pkt
	if !p.Info().Has(bth.Request) {
		y.qp.HandlePacket(y.now, &p)
		return nil
	}
	pos := y.plan.in.pos(p.PSN)
	if y.plan.in.orphans[pos] && y.plan.in.index(pos) < 0 {
		return nil // of a message that began before the capture
	}
	if y.plan.script[i].gone {
		y.withdraw(p.RKey)
	}
	if early := p.PSN.Diff(bth.MakePSN(y.qp.Attr().RQPSN)); early <= 0 {
		y.ready(i, &p, early == 0)
	}
	if r := y.plan.region(p.RKey, p.VA, length(&p)); r >= 0 {
		p.RKey = y.regions[r].Key
	} else {
		p.RKey = 0 // no region has it
	}
	y.qp.HandlePacket(y.now, &p)
	y.recv = y.recv[:0]
	y.heard = y.plan.in.pos(bth.MakePSN(y.qp.Attr().RQPSN))
	return nil
}

// length returns how many octets of memory a request's headers name.
func length(p *bth.Packet) int {
	if p.Info().Ext&bth.ExtAtomicETH != 0 {
		return 8
	}
	return int(p.DMALen)
}

// withdraw takes back every region with a recorded key.
func (y *player) withdraw(rkey uint32) {
	for i := range y.plan.regions {
		if y.plan.regions[i].rkey == rkey && y.mrs.Lookup(y.regions[i].Key) != nil {
			_ = y.mrs.Deregister(y.regions[i].Key) // it is there
		}
	}
}

// ready posts the receive request that the message takes, and puts into memory
// what the recorded side had there. Fresh is false for a request sent again.
func (y *player) ready(i int, p *bth.Packet, fresh bool) {
	pos := y.plan.in.pos(p.PSN)
	k := y.plan.in.index(pos)
	if k < 0 {
		return
	}
	m, note := &y.plan.in.messages[k], &y.plan.script[i]
	info := p.Info()
	switch info.Op {
	case bth.OpSend:
		if info.Has(bth.Starts) && !note.noRecv {
			y.recv = append(y.recv[:0], y.receive(m))
		}
	case bth.OpWrite:
		if info.Has(bth.TakesRecv) && !note.noRecv {
			y.recv = append(y.recv[:0], verbs.RecvWR{ID: uint64(i)})
		}
		if r := y.plan.region(m.rkey, m.va, m.length); r >= 0 && fresh {
			off := int(m.va-y.plan.regions[r].va) + (pos-m.at)*int(y.plan.attr.PathMTU)
			for o := off; o < min(off+len(p.Payload), len(y.sure[r])); o++ {
				y.sure[r][o] = true
			}
		}
	case bth.OpReadReq:
		if r := y.plan.region(p.RKey, p.VA, int(p.DMALen)); r >= 0 {
			y.remember(r, int(p.VA-y.plan.regions[r].va), note)
		}
	case bth.OpCmpSwap, bth.OpFetchAdd:
		r := y.plan.region(p.RKey, p.VA, 8)
		if r >= 0 && fresh {
			y.remember(r, int(p.VA-y.plan.regions[r].va), note)
		}
	}
}

// receive is the request that a SEND finds: as long as the message, or such
// that it fails where the recorded one did.
func (y *player) receive(m *message) verbs.RecvWR {
	room := y.offset[len(y.offset)-1]
	n := m.length
	switch {
	case m.trouble >= 0:
		return verbs.RecvWR{SGL: []verbs.SGE{{Addr: room, Length: uint32(m.trouble), LKey: y.lkey}, {Addr: room, Length: uint32(n - m.trouble), LKey: ^y.lkey}}}
	case m.short:
		n--
	case n == 0:
		return verbs.RecvWR{}
	}
	return verbs.RecvWR{SGL: []verbs.SGE{{Addr: room, Length: uint32(n), LKey: y.lkey}}}
}

// remember makes memory hold what the recorded side's held. Where that was
// known and is another value, its own program had changed it.
func (y *player) remember(r, off int, n *note) {
	mem := y.regions[r].Mem
	for i, v := range n.data {
		if !n.have[i] {
			continue
		}
		if y.sure[r][off+i] && mem[off+i] != v {
			y.changed++
		}
		mem[off+i], y.sure[r][off+i] = v, true
	}
}

// due returns when the engine's timer fires, if it may by a time.
func (y *player) due(by int64) bool {
	d := y.qp.Deadline()
	return d != math.MaxInt64 && (d <= by || !y.plan.timed)
}
