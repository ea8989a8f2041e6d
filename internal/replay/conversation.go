package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/decode"
	"github.com/gorxe/gorxe/internal/pcap"
)

// Side is one end of a conversation: A sent its first packet.
type Side uint8

const (
	A Side = iota
	B
)

func (s Side) String() string { return string('A' + rune(s)) }

// Other is the opposite side.
func (s Side) Other() Side { return 1 - s }

// Endpoint is one end of a conversation as its packets name it.
type Endpoint struct {
	Addr string `json:"addr"`          // IP address or GID, or LID
	QPN  uint32 `json:"qpn,omitempty"` // 0 when no packet to it was recorded
}

func (e Endpoint) String() string {
	if e.QPN == 0 {
		return e.Addr + " qp ?"
	}
	return fmt.Sprintf("%s qp 0x%06x", e.Addr, e.QPN)
}

// event is a recorded packet of a conversation.
type event struct {
	frame int
	time  time.Time // zero when the file does not say
	from  Side
	pkt   bth.Packet
}

// Conversation is what two queue pairs said to each other.
type Conversation struct {
	Ends   [2]Endpoint
	Begins time.Time // of the file

	events []event
	cm     *setup // what the connection manager said of it, if recorded
}

// Packets returns how many packets were recorded.
func (c *Conversation) Packets() int { return len(c.events) }

func (c *Conversation) String() string {
	return fmt.Sprintf("A %v, B %v, %d packets", c.Ends[A], c.Ends[B], len(c.events))
}

// setup is a connection as a REQ and its REP describe it, by who sent which.
type setup struct {
	addr    [2]string // of the REQ's sender and of the REP's
	qpn     [2]uint32
	psn     [2]uint32 // the first that each expects
	depth   [2]int    // READs and atomics that each accepts
	mtu     int
	timeout uint8
	retry   uint8
	rnr     [2]uint8
	credits bool
}

// ErrNoRC is returned for a capture without a packet of a reliable connection
// that a NIC would take.
var ErrNoRC = errors.New("no packets of a reliable connection (RC)")

// flow is the packets of one direction between two queue pairs, of which only
// the destination is in them.
type flow struct {
	src, dst string
	qpn      uint32 // at dst
	events   []event
	requests map[bth.PSN]bth.Opcode
	answers  map[bth.PSN]bth.Op
	mate     *flow
}

// Read finds the conversations of a capture, in the order of their first
// packets. Left says how many packets of reliable connections were left out,
// and why: a NIC would drop them. The error wraps ErrNoRC when nothing is left.
func Read(r *pcap.Reader) (convs []*Conversation, left map[string]int, err error) {
	var flows []*flow
	var setups []*setup
	reqs := map[uint32]*setup{} // by the REQ's communication ID
	open := map[[3]string]*flow{}
	left = map[string]int{}
	var begins time.Time
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		if begins.IsZero() {
			begins = f.Time
		}
		for _, p := range decode.Packets(f) {
			if p.CM != nil {
				setups = connection(p, reqs, setups)
			}
			pkt, why := packet(p)
			if why != "" {
				left[why]++
			}
			if pkt == nil {
				continue
			}
			key := [3]string{p.Src, p.Dst, fmt.Sprint(pkt.DestQP)}
			fl := open[key]
			if fl == nil || fl.reused(pkt) {
				fl = &flow{src: p.Src, dst: p.Dst, qpn: uint32(pkt.DestQP), requests: map[bth.PSN]bth.Opcode{}, answers: map[bth.PSN]bth.Op{}}
				open[key] = fl
				flows = append(flows, fl)
			}
			fl.add(event{frame: p.Frame, time: p.Time, pkt: *pkt})
		}
	}
	if len(flows) == 0 {
		return nil, left, noRC(left)
	}
	pair(flows, setups)
	done := map[*flow]bool{}
	for _, f := range flows {
		if done[f] {
			continue
		}
		done[f] = true
		c := conversation(f, setups)
		c.Begins = begins
		if f.mate != nil {
			done[f.mate] = true
		}
		convs = append(convs, c)
	}
	return convs, left, nil
}

func noRC(left map[string]int) error {
	if len(left) == 0 {
		return ErrNoRC
	}
	var text strings.Builder
	for _, why := range slices.Sorted(maps.Keys(left)) {
		text.WriteString(fmt.Sprintf("; %d were left out: %s", left[why], why))
	}
	return fmt.Errorf("%w%s", ErrNoRC, text.String())
}

// packet is a recorded packet as an engine sees it. It returns nil for one of
// another transport, and why for one that a NIC drops before its engine.
func packet(p *decode.Packet) (pkt *bth.Packet, why string) {
	if p.BTH == nil || bth.Opcode(p.BTH.Opcode).Info().Class != bth.RC {
		return nil, ""
	}
	switch {
	case p.Reason != "":
		return nil, p.Why
	case p.Captured > 0:
		return nil, "the capture cut it short: record whole packets (tcpdump -s 0)"
	case p.BTH.PKey&0x7fff == 0:
		return nil, fmt.Sprintf("its partition key 0x%04x is invalid (IBA 10.9.1.1)", p.BTH.PKey)
	}
	h := p.BTH
	pkt = &bth.Packet{
		Opcode: bth.Opcode(h.Opcode), SE: h.SE, MigReq: h.MigReq, AckReq: h.AckReq, FECN: h.FECN, BECN: h.BECN, Pad: uint8(h.Pad),
		TVer: h.TVer, PKey: h.PKey, DestQP: bth.QPN(h.DestQP), PSN: bth.MakePSN(h.PSN), Payload: p.Payload,
	}
	if e := p.RETH; e != nil {
		pkt.VA, pkt.RKey, pkt.DMALen = e.VA, e.RKey, e.DMALen
	}
	if e := p.AtomicETH; e != nil {
		pkt.VA, pkt.RKey, pkt.SwapAdd, pkt.Compare = e.VA, e.RKey, e.SwapAdd, e.Compare
	}
	if e := p.AETH; e != nil {
		pkt.Syndrome, pkt.MSN = bth.Syndrome(e.Syndrome), e.MSN
	}
	if e := p.AtomicAckETH; e != nil {
		pkt.Orig = e.Orig
	}
	if e := p.ImmDt; e != nil {
		pkt.Imm = e.Imm
	}
	if e := p.IETH; e != nil {
		pkt.Inv = e.RKey
	}
	return pkt, ""
}

// connection takes a message of the connection manager.
func connection(p *decode.Packet, reqs map[uint32]*setup, setups []*setup) []*setup {
	switch m := p.CM.(type) {
	case *decode.ConnReq:
		if m.TransportService == 0 {
			reqs[m.LocalCommID] = &setup{
				addr: [2]string{p.Src, p.Dst}, qpn: [2]uint32{m.LocalQPN}, psn: [2]uint32{m.StartingPSN}, depth: [2]int{int(m.ResponderResources)},
				mtu: m.PathMTU, timeout: m.Primary.LocalAckTimeout, retry: m.RetryCount, rnr: [2]uint8{m.RNRRetryCount}, credits: m.EndToEndFlowControl,
			}
		}
	case *decode.ConnRep:
		if s := reqs[m.RemoteCommID]; s != nil && s.qpn[1] == 0 {
			s.qpn[1], s.psn[1], s.depth[1], s.rnr[1] = m.LocalQPN, m.StartingPSN, int(m.ResponderResources), m.RNRRetryCount
			s.credits = s.credits && m.EndToEndFlowControl
			setups = append(setups, s)
		}
	}
	return setups
}

// reused reports whether a request cannot be of the same connection: its PSN
// was another request's.
func (f *flow) reused(p *bth.Packet) bool {
	op, ok := f.requests[p.PSN]
	return ok && p.Info().Has(bth.Request) && op != p.Opcode
}

func (f *flow) add(e event) {
	f.events = append(f.events, e)
	if p := &e.pkt; p.Info().Has(bth.Request) {
		f.requests[p.PSN] = p.Opcode
	} else {
		f.answers[p.PSN] = p.Info().Op
	}
}

// answered counts the packets of g that answer requests of f, less those that
// cannot.
func (f *flow) answered(g *flow) (n int) {
	for psn, op := range g.answers {
		req, ok := f.requests[psn]
		if !ok {
			continue // the middle of a READ, or of what was not recorded
		}
		fits := op == bth.OpAck
		switch req.Info().Op {
		case bth.OpReadReq:
			fits = fits || op == bth.OpReadResp
		case bth.OpCmpSwap, bth.OpFetchAdd:
			fits = fits || op == bth.OpAtomicAck
		}
		if fits {
			n++
		} else {
			n -= 10
		}
	}
	// Of two that fit, the one that leaves less unanswered.
	return 1000*n - len(f.requests)
}

// pair finds the two directions of each conversation: what the connection
// manager says, else who answers whom.
func pair(flows []*flow, setups []*setup) {
	type match struct {
		f, g  *flow
		score int
	}
	var all []match
	for i, f := range flows {
		for _, g := range flows[i+1:] {
			if f.src != g.dst || f.dst != g.src {
				continue
			}
			a, b := f.answered(g), g.answered(f)
			score := a + b
			for _, s := range setups {
				if s.joins(f, g) || s.joins(g, f) {
					score = 1 << 40
				}
			}
			if score > 0 {
				all = append(all, match{f, g, score})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b match) int { return cmp.Compare(b.score, a.score) })
	for _, m := range all {
		if m.f.mate == nil && m.g.mate == nil {
			m.f.mate, m.g.mate = m.g, m.f
		}
	}
}

// joins reports whether f goes from the REQ's sender to the REP's, and g back.
func (s *setup) joins(f, g *flow) bool {
	return s.addr == [2]string{f.src, f.dst} && s.qpn == [2]uint32{g.qpn, f.qpn}
}

// conversation makes one of a flow and its mate.
func conversation(f *flow, setups []*setup) *Conversation {
	c := &Conversation{Ends: [2]Endpoint{{Addr: f.src}, {Addr: f.dst, QPN: f.qpn}}}
	for _, e := range f.events {
		e.from = A
		c.events = append(c.events, e)
	}
	if g := f.mate; g != nil {
		c.Ends[A].QPN = g.qpn
		for _, e := range g.events {
			e.from = B
			c.events = append(c.events, e)
		}
		slices.SortStableFunc(c.events, func(a, b event) int { return cmp.Compare(a.frame, b.frame) })
	}
	for _, s := range setups {
		if s.addr == [2]string{f.src, f.dst} && s.qpn[1] == f.qpn && (f.mate == nil || s.qpn[0] == f.mate.qpn) {
			c.cm = s
			c.Ends[A].QPN = s.qpn[0]
		} else if s.addr == [2]string{f.dst, f.src} && s.qpn[0] == f.qpn && (f.mate == nil || s.qpn[1] == f.mate.qpn) {
			c.cm = s.turned()
			c.Ends[A].QPN = s.qpn[1]
		}
	}
	return c
}

// turned is the setup with the REP's sender first.
func (s *setup) turned() *setup {
	t := *s
	for _, p := range []*[2]uint32{&t.qpn, &t.psn} {
		p[0], p[1] = p[1], p[0]
	}
	t.addr[0], t.addr[1] = t.addr[1], t.addr[0]
	t.depth[0], t.depth[1] = t.depth[1], t.depth[0]
	t.rnr[0], t.rnr[1] = t.rnr[1], t.rnr[0]
	return &t
}
