package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/wire"
)

// MarkPoint is when a switch decides whether it marks a packet.
type MarkPoint uint8

const (
	// MarkDequeue is when it leaves the queue, by the queue behind it. The mark
	// tells of the congestion now and not of that which the packet met when it
	// came, a whole queue ago; so switches with a shared buffer do it, and CoDel.
	MarkDequeue MarkPoint = iota
	// MarkEnqueue is when it joins the queue, by the queue before it.
	MarkEnqueue
)

// DefaultBuffer is the shared buffer of a switch that is given none: 12 MB, that
// of the switches of the DCQCN paper (Zhu et al., SIGCOMM 2015, section 4).
const DefaultBuffer = 12_000_000

// SwitchConfig describes a switch. Its zero value drops what does not fit in its
// buffer, and marks nothing. All octets are those of IP packets.
type SwitchConfig struct {
	Name   string // (s1, s2 and so on)
	Buffer int    // octets, shared by all ports (DefaultBuffer)
	// Red marks packets that are ECN-capable, by the queue of the port they leave
	// by; nil marks none. Those that are not are left alone.
	Red    *cc.RED
	MarkAt MarkPoint
	// PFC pauses who sends too much, so that nothing is lost; nil drops.
	PFC *PFC
}

// PFC is priority flow control (IEEE 802.1Q, clause 36), of the one priority that
// all but control packets have. A pause holds until the frame that ends it.
//
// What is in the buffer is counted by the port that it came by. What takes that
// count above XOFF, or finds the shared part of the buffer full, goes to the port's
// own headroom, and the port's peer is paused; it takes a line's delay until it is,
// and Line.Headroom octets come in until then. It is told to go on when its headroom
// is empty and the rest of its count is down at XON.
type PFC struct {
	// XOFF is in octets. 0 is Alpha times what is free of the shared part, which
	// leaves few ports a lot and many ports less (Choudhury and Hahne, IEEE/ACM
	// ToN 6/2, 1998; the paper's beta of 8, for 8 priorities, is an Alpha of 1).
	XOFF int
	// XON is below XOFF; 0 is the threshold less two MTUs.
	XON   int
	Alpha float64 // (1)
	// Headroom is how many octets each port has to itself; all of them are taken
	// from the buffer.
	Headroom int
}

// Switch forwards packets to the line that leads to their destination by the
// fewest hops; of several the one that was made first. It stores and forwards: a
// packet begins to leave when all of it has come.
type Switch struct {
	Name string

	sim   *Sim
	cfg   SwitchConfig
	rng   *rand.Rand
	ports []*Port
	next  []*Port // by index of the destination
	used  int     // octets of the buffer, without headroom
}

// AddSwitch adds a switch. Nodes of a network with switches each have a line to
// one: there are none before the first switch.
func (s *Sim) AddSwitch(cfg SwitchConfig) (*Switch, error) {
	if len(s.nodes) > 0 && len(s.switches) == 0 {
		return nil, errors.New("sim: a switch after nodes that need none; add switches before nodes")
	}
	if s.cfg.Rate != 0 {
		return nil, errors.New("sim: Rate and Queue are of a network without switches; with them each Line has a rate")
	}
	if cfg.Buffer == 0 {
		cfg.Buffer = DefaultBuffer
	}
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("s%d", len(s.switches)+1)
	}
	if cfg.Buffer < 0 {
		return nil, fmt.Errorf("sim: switch %s: a buffer of %d octets", cfg.Name, cfg.Buffer)
	}
	if cfg.Red != nil {
		if err := cfg.Red.Check(); err != nil {
			return nil, fmt.Errorf("sim: switch %s: %w", cfg.Name, err)
		}
	}
	if cfg.PFC != nil {
		p := *cfg.PFC
		if p.Alpha == 0 {
			p.Alpha = 1
		}
		cfg.PFC = &p
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("sim: switch %s: %w", cfg.Name, err)
		}
	}
	sw := &Switch{Name: cfg.Name, sim: s, cfg: cfg, rng: rand.New(rand.NewPCG(s.cfg.Seed, 1<<63|uint64(len(s.switches))))}
	s.switches = append(s.switches, sw)
	return sw, nil
}

func (p *PFC) check() error {
	switch {
	case p.XOFF < 0 || p.XON < 0 || p.Headroom < 0:
		return fmt.Errorf("xoff of %d, xon of %d and headroom of %d: they take 0 octets or more", p.XOFF, p.XON, p.Headroom)
	case p.XON > 0 && p.XON >= p.XOFF:
		return fmt.Errorf("xon of %d with xoff of %d: xon takes fewer octets than xoff", p.XON, p.XOFF)
	case !(p.Alpha > 0 && p.Alpha <= 64):
		return fmt.Errorf("alpha of %v: it takes a factor above 0 and up to 64", p.Alpha)
	}
	return nil
}

// Connect makes a line to another switch.
func (sw *Switch) Connect(to *Switch, l Line) error {
	if err := l.check(); err != nil {
		return err
	}
	if sw == to || sw.sim != to.sim {
		return fmt.Errorf("sim: a line from switch %s to %s: it takes two switches of one network", sw.Name, to.Name)
	}
	a, b := &Port{sim: sw.sim, sw: sw}, &Port{sim: sw.sim, sw: to}
	connect(a, b, l)
	return errors.Join(sw.grow(a), to.grow(b))
}

// grow adds a port, whose headroom there must be.
func (sw *Switch) grow(p *Port) error {
	if f := sw.cfg.PFC; f != nil && (len(sw.ports)+1)*f.Headroom >= sw.cfg.Buffer {
		return fmt.Errorf("sim: switch %s: headroom of %d octets for each of %d ports is all of a buffer of %d octets", sw.Name, f.Headroom, len(sw.ports)+1, sw.cfg.Buffer)
	}
	sw.ports = append(sw.ports, p)
	for _, x := range sw.sim.switches {
		x.next = nil
	}
	return nil
}

// Ports returns the ports of the switch, in the order in which they were made.
func (sw *Switch) Ports() []*Port { return sw.ports }

// Used returns how many octets of the buffer are in use.
func (sw *Switch) Used() int {
	n := sw.used
	for _, p := range sw.ports {
		n += p.head
	}
	return n
}

// receive takes a packet that came in by a port.
func (sw *Switch) receive(in *Port, e *event) {
	s := sw.sim
	to := s.net.ports[e.d.Dst]
	if to == nil {
		s.net.counts.Unknown++
		s.events.put(e)
		return
	}
	if sw.next == nil {
		sw.route()
	}
	var out *Port
	if to.index < len(sw.next) {
		out = sw.next[to.index]
	}
	if out == nil {
		s.net.counts.Unknown++
		s.events.put(e)
		return
	}
	if !sw.admit(in, e) {
		s.net.counts.Dropped++
		out.stats.Dropped++
		out.tell(PortDropped)
		s.events.put(e)
		return
	}
	e.port = in
	out.enqueue(e)
}

// admit finds room for a packet, and has the port's peer paused where that has
// become scarce.
func (sw *Switch) admit(in *Port, e *event) bool {
	n, f := e.octets(), sw.cfg.PFC
	switch {
	case f == nil || isControl(e.d.TOS):
		if sw.used+n > sw.pool() {
			return false
		}
		sw.used += n
		return true
	case in.shared+n <= sw.threshold() && sw.used+n <= sw.pool():
		sw.used += n
		in.shared += n
		return true
	case in.head+n > f.Headroom:
		sw.ask(in, true)
		return false
	}
	in.head += n
	sw.ask(in, true)
	return true
}

// pool returns the octets of the buffer that are shared.
func (sw *Switch) pool() int {
	if f := sw.cfg.PFC; f != nil {
		return sw.cfg.Buffer - f.Headroom*len(sw.ports)
	}
	return sw.cfg.Buffer
}

// threshold returns XOFF.
func (sw *Switch) threshold() int {
	if f := sw.cfg.PFC; f.XOFF == 0 {
		return int(f.Alpha * float64(sw.pool()-sw.used))
	}
	return sw.cfg.PFC.XOFF
}

// forget frees the room of a packet that leaves, headroom first.
func (sw *Switch) forget(e *event) {
	n, in := e.octets(), e.port
	if sw.cfg.PFC == nil || isControl(e.d.TOS) {
		sw.used -= n
		return
	}
	k := min(n, in.head)
	in.head -= k
	in.shared -= n - k
	sw.used -= n - k
	if !in.asked || in.head > 0 {
		return
	}
	xon := sw.cfg.PFC.XON
	if xon == 0 {
		xon = max(0, sw.threshold()-2*sw.sim.cfg.MTU)
	}
	if in.shared <= xon {
		sw.ask(in, false)
	}
}

// ask sends a pause frame to a port's peer, or the one that ends it.
func (sw *Switch) ask(in *Port, on bool) {
	if in.asked == on {
		return
	}
	in.asked = on
	e := sw.sim.events.get(0)
	e.kind, e.port, e.way = evPause, in.peer, 0
	if on {
		e.way = 1
	}
	sw.sim.events.push(sw.sim.now+int64(in.line.Delay), e)
}

// mark gives a packet CE, by chance and its port's queue, if it can bear it.
func (p *Port) mark(e *event) {
	if p.sw.cfg.Red == nil {
		return
	}
	if ecn := e.d.TOS & 3; ecn == wire.ECNNotECT || ecn == wire.ECNCE {
		return
	}
	chance := p.sw.cfg.Red.Probability(p.data.octets)
	if chance == 0 || chance < 1 && p.sw.rng.Float64() >= chance {
		return
	}
	e.d.TOS |= wire.ECNCE
	p.stats.Marked++
	p.tell(PortMarked)
}

// route finds which port leads to each node: breadth first from here.
func (sw *Switch) route() {
	sw.next = make([]*Port, len(sw.sim.nodes))
	first := map[*Switch]*Port{sw: nil} // the port that leads there
	for todo := []*Switch{sw}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		for _, p := range at.ports {
			by := first[at]
			if by == nil {
				by = p
			}
			switch n, x := p.peer.Owner(); {
			case n != nil:
				sw.next[n.index] = by
			default:
				if _, seen := first[x]; !seen {
					first[x] = by
					todo = append(todo, x)
				}
			}
		}
	}
}
