package sim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/wire"
)

// DefaultPortQueue is how many octets wait at a node's port, unless NodeConfig
// says otherwise.
const DefaultPortQueue = 64 << 10

// controlDSCP is where the code points begin whose packets have a queue of their
// own at each port: CS6 and above, network control, as CNPs (RFC 4594, 3.1).
const controlDSCP = 48

// Line is what connects two ports, the same both ways. A rate counts octets of IP
// packets, header to ICRC, as package cc does, and not the 38 octets of Ethernet
// around each: a line of 40 Gb/s in this sense is a little faster than 40GbE.
type Line struct {
	Rate  int64         // bits a second, more than 0
	Delay time.Duration // from the end of one port to the other
}

// Headroom returns how many octets at most come in by a port after it was found
// that its peer is to be paused, that packet included: those of two delays, and a
// packet of the MTU that the peer had just begun. With less PFC.Headroom packets
// can be lost.
func (l Line) Headroom(mtu int) int {
	return int((l.Rate*2*int64(l.Delay)+8e9-1)/8e9) + 2*mtu
}

func (l Line) check() error {
	const most = 1_600_000_000_000
	switch {
	case l.Rate <= 0 || l.Rate > most:
		return fmt.Errorf("sim: a line's rate of %d bits a second: it takes 1 to %d", l.Rate, int64(most))
	case l.Delay < 0 || l.Delay > time.Second:
		return fmt.Errorf("sim: a line's delay of %v: it takes 0 to 1s", l.Delay)
	}
	return nil
}

// Port is one end of a line, of a node or of a switch: the queue of what leaves by
// it, and what came in by it.
type Port struct {
	sim  *Sim
	node *Node   // whose it is,
	sw   *Switch // one of both
	peer *Port
	line Line

	control, data queue
	busy          bool  // a packet is being sent
	carry         int64 // of its time: what was rounded off, in 1/Rate nanoseconds
	paused        bool  // by the peer; not for control
	since         int64 // when that was, and
	touched       int64 // when data last changed
	stats         PortStats

	// Of what came in by it and is in its switch, without control:
	shared, head int  // octets in the shared buffer, and in the headroom
	asked        bool // the peer has been told to pause
}

// PortStats says what a port has done. Queues are those of data: control packets,
// with a DSCP of 48 or more, have one that always goes first, is neither marked nor
// paused, and is not counted.
type PortStats struct {
	Packets, Octets uint64  // that left, of both queues; octets of IP
	Queue, MaxQueue int     // octets that wait, now and at most, without the packet on the line
	Area            float64 // the integral of Queue over time, octets and nanoseconds: see MeanQueue
	Marked          uint64  // of a switch: packets that got CE
	Dropped         uint64  // of a switch: packets that would have left here, and found no room
	Pauses          uint64  // times that the peer has paused it
	Paused          time.Duration
}

// MeanQueue returns how many octets have waited on average over a time, from the
// difference of two PortStats.
func (p PortStats) MeanQueue(before PortStats, over time.Duration) float64 {
	if over <= 0 {
		return 0
	}
	return (p.Area - before.Area) / float64(over)
}

// PortEvent is something that happened at a port, for whoever watches.
type PortEvent struct {
	Time int64 // nanoseconds since the start
	Port *Port
	Kind PortEventKind
	// Queue is how many octets of data wait after that.
	Queue int
}

// PortEventKind is what happened.
type PortEventKind uint8

const (
	PortQueued  PortEventKind = iota // a packet joined the queue
	PortSent                         // one left it, and is on the line now
	PortMarked                       // one got CE; it is told of as queued or sent, too
	PortDropped                      // one found no room
	PortPaused                       // the peer wants nothing more
	PortResumed                      // it does again
)

// WatchPorts has f called for everything that happens at a port.
func (s *Sim) WatchPorts(f func(PortEvent)) { s.net.watchPorts = f }

// Stats returns what the port has done so far.
func (p *Port) Stats() PortStats {
	p.account()
	st := p.stats
	st.Queue = p.data.octets
	if p.paused {
		st.Paused += time.Duration(p.sim.now - p.since)
	}
	return st
}

// Line returns the line it is an end of.
func (p *Port) Line() Line { return p.line }

// Owner returns the node whose port it is, or nil and the switch.
func (p *Port) Owner() (*Node, *Switch) { return p.node, p.sw }

// Peer returns the port at the other end.
func (p *Port) Peer() *Port { return p.peer }

// String names the port by its owner and that of its peer: s1>h2.
func (p *Port) String() string { return p.owner() + ">" + p.peer.owner() }

func (p *Port) owner() string {
	if p.node != nil {
		return p.node.Name
	}
	return p.sw.Name
}

// connect makes a line between two ports.
func connect(a, b *Port, l Line) {
	a.peer, b.peer, a.line, b.line = b, a, l, l
}

// queue is a FIFO of datagrams.
type queue struct {
	q          []*event // a ring, its length a power of two
	head, tail uint32
	octets     int
}

func (q *queue) empty() bool { return q.head == q.tail }

func (q *queue) push(e *event) {
	if n := q.tail - q.head; int(n) == len(q.q) {
		grown := make([]*event, max(16, 2*n))
		for i := range n {
			grown[i] = q.q[(q.head+i)&(n-1)]
		}
		q.q, q.head, q.tail = grown, 0, n
	}
	q.q[q.tail&uint32(len(q.q)-1)] = e
	q.tail++
	q.octets += e.octets()
}

func (q *queue) pop() *event {
	at := &q.q[q.head&uint32(len(q.q)-1)]
	e := *at
	*at = nil
	q.head++
	q.octets -= e.octets()
	return e
}

// octets is the length of a single packet with its IP and UDP headers.
func (e *event) octets() int { return headers(e.d.Dst.Is4()) + len(e.buf) }

func headers(ip4 bool) int {
	if ip4 {
		return 20 + 8
	}
	return 40 + 8
}

// isControl reports whether a packet has the queue that goes first.
func isControl(tos uint8) bool { return tos>>2 >= controlDSCP }

// account brings the integral of the queue to the present.
func (p *Port) account() {
	p.stats.Area += float64(p.data.octets) * float64(p.sim.now-p.touched)
	p.touched = p.sim.now
}

func (p *Port) tell(k PortEventKind) {
	if f := p.sim.net.watchPorts; f != nil {
		f(PortEvent{Time: p.sim.now, Port: p, Kind: k, Queue: p.data.octets})
	}
}

// enqueue puts a packet in its queue, and on the line if that is free.
func (p *Port) enqueue(e *event) {
	if isControl(e.d.TOS) {
		p.control.push(e)
	} else {
		p.account()
		if p.sw != nil && p.sw.cfg.MarkAt == MarkEnqueue {
			p.mark(e)
		}
		p.data.push(e)
		p.stats.MaxQueue = max(p.stats.MaxQueue, p.data.octets)
		p.tell(PortQueued)
	}
	p.start()
}

// start puts the next packet on the line, if there is one that may go.
func (p *Port) start() {
	if p.busy {
		return
	}
	var e *event
	switch {
	case !p.control.empty():
		e = p.control.pop()
		p.leave(e)
	case !p.data.empty() && !p.paused:
		p.account()
		e = p.data.pop()
		p.leave(e)
		p.tell(PortSent)
	default:
		p.carry = 0
		if p.node != nil {
			p.node.roomier()
		}
		return
	}
	s, n := p.sim, e.octets()
	p.stats.Packets++
	p.stats.Octets += uint64(n)
	work := int64(n)*8e9 + p.carry
	at := s.now + work/p.line.Rate
	p.carry = work % p.line.Rate
	p.busy = true
	free := s.events.get(0)
	free.kind, free.port = evFree, p
	s.events.push(at, free)
	if to := p.peer.node; to != nil {
		e.kind, e.lane = evArrive, to.laneOf(e.buf)
	} else {
		e.kind, e.port = evHop, p.peer
	}
	s.events.push(at+int64(p.line.Delay), e)
}

// leave does what the owner does about a packet that leaves its queue.
func (p *Port) leave(e *event) {
	switch {
	case p.node != nil:
		p.node.roomier()
	default:
		p.sw.forget(e)
		if p.sw.cfg.MarkAt == MarkDequeue && !isControl(e.d.TOS) {
			p.mark(e)
		}
	}
}

// free is the event that the line is.
func (p *Port) free() {
	p.busy = false
	p.start()
}

// pause is a pause frame of the peer, or the one that ends it.
func (p *Port) pause(on bool) {
	if p.paused == on {
		return
	}
	p.paused = on
	if on {
		p.since = p.sim.now
		p.stats.Pauses++
		p.tell(PortPaused)
		return
	}
	p.stats.Paused += time.Duration(p.sim.now - p.since)
	p.tell(PortResumed)
	p.start()
}

// laneOf returns the lane that a packet to the node goes to.
func (n *Node) laneOf(pkt []byte) *lane {
	return n.lanes[int(bth.BTH(pkt).DestQP()&0xf)%len(n.lanes)]
}

// roomier steps shards that found the port's queue full, once it is half empty.
func (n *Node) roomier() {
	if n.port.data.octets > n.queue/2 {
		return
	}
	for _, l := range n.lanes {
		if l.blocked {
			l.blocked = false
			l.stepAt(n.sim.now)
		}
	}
}

// plug gives a node its port, in a network with switches. The switch's end is made
// and not yet one of its ports.
func (n *Node) plug(cfg *NodeConfig) error {
	switch {
	case cfg.Switch == nil && len(n.sim.switches) == 0:
		return nil
	case cfg.Switch == nil:
		return fmt.Errorf("sim: node %s has no Switch; in a network with switches each node has a Line to one", n.Name)
	case cfg.Switch.sim != n.sim:
		return fmt.Errorf("sim: node %s: switch %s is of another network", n.Name, cfg.Switch.Name)
	case cfg.Queue < 0:
		return fmt.Errorf("sim: node %s: a Queue of %d octets", n.Name, cfg.Queue)
	}
	if err := cfg.Line.check(); err != nil {
		return fmt.Errorf("%w, of node %s", err, n.Name)
	}
	n.port, n.queue = &Port{sim: n.sim, node: n}, cmp.Or(cfg.Queue, DefaultPortQueue)
	connect(n.port, &Port{sim: n.sim, sw: cfg.Switch}, cfg.Line)
	return nil
}

// Port returns the node's port, nil in a network without switches.
func (n *Node) Port() *Port { return n.port }

// takes returns how many segments of a burst the port's queue has room for; one
// that is longer than the queue is taken when it is empty.
func (n *Node) takes(b *wire.Burst) int {
	if isControl(b.Flow.TOS) {
		return b.Len()
	}
	waiting, more := n.port.data.octets, headers(b.Flow.Dst.Is4())
	for k, s := range b.Segs {
		if waiting > 0 && waiting+s.Len+more > n.queue {
			return k
		}
		waiting += s.Len + more
	}
	return b.Len()
}

// blockedBy has the lane stepped when there is room for a packet of so many octets
// that the line did not take.
func (l *lane) blockedBy(octets int) {
	if l.node.port != nil {
		l.blocked = true
		if p := l.node.port; p.data.empty() && !p.busy {
			l.node.roomier() // faults have lost what it took
		}
		return
	}
	l.stepAt(l.node.roomAt(octets))
}

// Sim returns the network that the node is in.
func (n *Node) Sim() *Sim { return n.sim }
