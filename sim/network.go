package sim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// Directions of a node's traffic.
const (
	wayTx = iota
	wayRx
)

var dirs = [2]trace.Dir{trace.Tx, trace.Rx}

// network is what lies between ports.
type network struct {
	sim    *Sim
	ports  map[netip.Addr]*Node
	groups map[netip.Addr][]*lane // in the order of joining, at most one lane of a node
	watch  func(Packet)
	counts Counts

	watchPorts func(PortEvent)
}

// Packet is one that reaches a port, for whoever watches.
type Packet struct {
	Time     int64 // nanoseconds since the start
	Node     *Node // whose port
	Src, Dst netip.Addr
	TOS      uint8         // traffic class: DSCP and ECN
	Data     []byte        // BTH to ICRC; borrowed for the call
	Hit      fault.Effects // what rules did to it: with Corrupt it is broken
}

// Counts says what became of packets. Those on their way are
//
//	Sent + Copied - Lost - Dropped - Unknown - Arrived
type Counts struct {
	Sent    uint64 // by nodes
	Copied  uint64 // added to them: by dup rules, and for all members of a group but one
	Lost    uint64 // by fault rules
	Held    uint64 // of the others: kept back by reorder and delay rules, in each direction
	Unknown uint64 // to an address that no node has, or a group that none has joined
	Dropped uint64 // by switches, for want of room in their buffers
	Arrived uint64 // at ports of nodes
}

func (n *network) init(s *Sim) {
	n.sim, n.ports, n.groups = s, make(map[netip.Addr]*Node), make(map[netip.Addr][]*lane)
}

func (n *network) add(x *Node, addrs ...netip.Addr) {
	for _, a := range addrs {
		n.ports[a] = x
	}
}

// Watch has f called for every packet that reaches a port, after faults.
func (s *Sim) Watch(f func(Packet)) { s.net.watch = f }

// Counts returns what became of packets so far.
func (s *Sim) Counts() Counts { return s.net.counts }

// JoinGroup makes the lane's node receive what other nodes send to a group: a
// copy each, under its own rx faults.
func (l *lane) JoinGroup(group netip.Addr) error {
	g, err := link.Group(group)
	switch members := l.node.sim.net.groups[g]; {
	case err != nil:
		return fmt.Errorf("sim: %w", err)
	case l.node.port != nil:
		return fmt.Errorf("sim: %v: switches do not carry multicast; a network without switches does", g)
	case l.down:
		return link.ErrClosed
	case slices.Contains(members, l):
		return nil
	case slices.ContainsFunc(members, func(m *lane) bool { return m.node == l.node }):
		return fmt.Errorf("sim: another link of this node has joined %v; a node joins a group once", g)
	default:
		l.node.sim.net.groups[g] = append(members, l)
		return nil
	}
}

// LeaveGroup ends it.
func (l *lane) LeaveGroup(group netip.Addr) error {
	g, err := link.Group(group)
	if err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	if l.down {
		return link.ErrClosed
	}
	l.node.sim.net.leave(l, g)
	return nil
}

func (n *network) leave(l *lane, g netip.Addr) {
	n.groups[g] = slices.DeleteFunc(n.groups[g], func(m *lane) bool { return m == l })
	if len(n.groups[g]) == 0 {
		delete(n.groups, g)
	}
}

// send breaks the first k segments of a burst up as tx faults and Config.Single
// demand, and puts the pieces on the line. What no fault touches stays together.
func (n *Node) send(b *wire.Burst, k int) {
	f := b.Flow
	d := datagram{Datagram: wire.Datagram{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, TOS: f.TOS, TTL: f.TTL}}
	n.sim.net.counts.Sent += uint64(k)
	if f.Src.Is4() && !n.sim.cfg.HideIDs {
		d.IDKnown, d.Flags = true, wire.FlagDF
	}
	var run *event // clean segments so far
	for i := range k {
		if run == nil {
			run = n.sim.events.get(b.Bytes())
			run.d = d
			if d.IDKnown {
				run.d.ID = uint16(i)
			}
		}
		at := len(run.buf)
		run.buf = b.AppendSegment(run.buf, i)
		if n.inj != nil {
			pkt := run.buf[at:]
			dec := n.inj.Process(n.sim.now, trace.Tx, pkt, len(pkt))
			if dec.Effects != 0 {
				one := run.d
				if d.IDKnown {
					one.ID = uint16(i)
				}
				n.odd = append(n.odd[:0], pkt...)
				one.Payload = n.odd
				run.buf = run.buf[:at]
				run = n.flush(run) // went before it
				n.broken(wayTx, &one, nil, &dec)
				continue
			}
		}
		if at == 0 {
			run.d.SegLen = len(run.buf)
		}
		due := n.passed(wayTx)
		if due || n.sim.cfg.Single || n.port != nil {
			run = n.flush(run)
		}
		if due {
			n.letGo(wayTx)
		}
	}
	n.flush(run)
}

// flush puts a run on the line, unless it is empty.
func (n *Node) flush(run *event) *event {
	if run == nil {
		return nil
	}
	if len(run.buf) == 0 {
		n.sim.events.put(run)
		return nil
	}
	if run.d.SegLen >= len(run.buf) {
		run.d.SegLen = 0
	}
	n.transmit(run)
	return nil
}

// transmit gives an event with a datagram in buf its time of arrival, at each
// of its receivers.
func (n *Node) transmit(e *event) {
	s := n.sim
	if n.port != nil {
		e.d.Payload = e.buf
		n.port.enqueue(e)
		return
	}
	n.line = max(n.line, s.now)
	if s.cfg.Rate > 0 {
		n.line += int64(len(e.buf)) * 8 * 1e9 / s.cfg.Rate
	}
	e.kind, e.d.Payload = evArrive, e.buf
	at := n.line + int64(s.cfg.Latency)
	if to := s.net.ports[e.d.Dst]; to != nil {
		e.lane = to.laneOf(e.buf)
		s.events.push(at, e)
		return
	}
	k := uint64(e.d.Segments())
	for _, m := range s.net.groups[e.d.Dst] {
		switch {
		case m.node == n:
			continue
		case e.lane == nil:
			e.lane = m
			s.events.push(at, e)
		default:
			c := s.events.get(len(e.buf))
			c.kind, c.lane, c.d, c.buf = evArrive, m, e.d, append(c.buf, e.buf...)
			c.d.Payload = c.buf
			s.net.counts.Copied += k
			s.events.push(at, c)
		}
	}
	if e.lane == nil {
		s.net.counts.Unknown += k
		s.events.put(e)
	}
}

// broken does to one packet what a fault decided. d is borrowed; lane is where
// a received one goes.
func (n *Node) broken(way int, d *datagram, to *lane, dec *fault.Decision) {
	if dec.Lost {
		n.sim.net.counts.Lost++
		return
	}
	d.hit |= dec.Effects
	dec.Flip(d.Payload)
	if dec.Effects.Has(fault.CE) {
		d.TOS |= 3
	}
	if dec.Held() {
		n.hold(way, d, to, dec)
		return
	}
	n.copies(way, d, to, dec.Copies)
	if n.passed(way) {
		n.letGo(way)
	}
}

// copies lets a packet go on its way, and more times.
func (n *Node) copies(way int, d *datagram, to *lane, more int) {
	n.sim.net.counts.Copied += uint64(more)
	for range 1 + more {
		n.onward(way, d, to)
	}
}

// onward lets a packet go on its way, a copy of it.
func (n *Node) onward(way int, d *datagram, to *lane) {
	e := n.sim.events.get(len(d.Payload))
	e.buf = append(e.buf, d.Payload...)
	e.d = *d
	if way == wayTx {
		n.transmit(e)
		return
	}
	e.d.Payload = e.buf
	to.take(e)
}

func (n *Node) hold(way int, d *datagram, to *lane, dec *fault.Decision) {
	if n.holds[way] == nil {
		n.holds[way] = fault.NewHold[held](maxHeld)
	}
	p := n.holds[way].Put(dec)
	if p == nil {
		n.sim.net.counts.Lost++ // for want of room
		return
	}
	n.sim.net.counts.Held++
	p.Pkt = append(p.Pkt, d.Payload...)
	p.Meta = held{d: *d, lane: to, more: dec.Copies}
	n.plan(way)
}

// passed tells held packets that one went by, and reports whether some are due
// for that.
func (n *Node) passed(way int) (due bool) {
	h := n.holds[way]
	if h == nil || h.Len() == 0 {
		return false
	}
	h.Passed()
	return h.Next() <= n.sim.now
}

// plan has release called when the next held packet is due.
func (n *Node) plan(way int) {
	at := max(n.holds[way].Next(), n.sim.now)
	if at >= n.due[way] {
		return
	}
	n.due[way] = at
	e := n.sim.events.get(0)
	e.kind, e.lane, e.way = evRelease, n.lanes[0], way
	n.sim.events.push(at, e)
}

// release is the event that plan planned.
func (n *Node) release(way int) {
	if n.sim.now >= n.due[way] {
		n.due[way] = never
		n.letGo(way)
	}
}

// letGo sends held packets that are due on their way.
func (n *Node) letGo(way int) {
	h := n.holds[way]
	for p := h.Pop(n.sim.now); p != nil; p = h.Pop(n.sim.now) {
		d := p.Meta.d
		d.Payload = p.Pkt
		n.copies(way, &d, p.Meta.lane, p.Meta.more)
		h.Free(p)
	}
	if h.Len() > 0 {
		n.plan(way)
	}
}

// arrive has a datagram reach the node: rx faults, then the lane.
func (n *Node) arrive(e *event) {
	if n.inj == nil {
		e.lane.take(e)
		return
	}
	for i := range e.d.Segments() {
		one := e.d
		one.SegLen, one.Payload = 0, e.d.Segment(i)
		if one.IDKnown {
			one.ID += uint16(i)
		}
		dec := n.inj.Process(n.sim.now, dirs[wayRx], one.Payload, len(one.Payload))
		if dec.Effects != 0 {
			n.broken(wayRx, &one, e.lane, &dec)
			continue
		}
		n.onward(wayRx, &one, e.lane)
		if n.passed(wayRx) {
			n.letGo(wayRx)
		}
	}
	n.sim.events.put(e)
}

// take lends an event with a datagram to the lane.
func (l *lane) take(e *event) {
	net := &l.node.sim.net
	net.counts.Arrived += uint64(e.d.Segments())
	if net.watch != nil {
		for i := range e.d.Segments() {
			net.watch(Packet{Time: l.node.sim.now, Node: l.node, Src: e.d.Src, Dst: e.d.Dst, TOS: e.d.TOS, Data: e.d.Segment(i), Hit: e.d.hit})
		}
	}
	l.in = append(l.in, e)
	l.stepAt(l.node.sim.now)
}
