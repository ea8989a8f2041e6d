package relay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
)

const (
	maxHeld    = 4096    // packets that fault rules hold
	maxPackets = 1 << 16 // in one direction: held, queued and on their way
)

// Never is the deadline of who has nothing to wait for.
const Never = math.MaxInt64

// Line is what RoCEv2 of a direction goes through. The zero value is nothing.
type Line struct {
	Rate   int64 // bits a second of IP packets; 0: no bottleneck
	Buffer int   // octets that wait for the line; what finds no room is lost
	// Marks has packets with ECT marked by RED.
	Marks     bool
	RED       cc.RED
	AtEnqueue bool          // marks packets that join the queue, by what they find; not those that leave, by what they leave behind
	Delay     time.Duration // of every packet
}

// Limits of a Line.
const (
	MinRate, MaxRate = 1000, 1_000_000_000_000 // bits a second
	MaxBuffer        = 1 << 30                 // octets
	MaxDelay         = 10 * time.Second
)

// Check returns an error that names the field that is wrong, its range and its unit.
func (l *Line) Check() error {
	switch {
	case l.Rate != 0 && (l.Rate < MinRate || l.Rate > MaxRate):
		return fmt.Errorf("rate of %d: it takes 1k to 1000G bits a second, or 0 for no bottleneck", l.Rate)
	case l.Rate != 0 && (l.Buffer < 0 || l.Buffer > MaxBuffer):
		return fmt.Errorf("buffer of %d: it takes 0 to %d octets", l.Buffer, MaxBuffer)
	case l.Delay < 0 || l.Delay > MaxDelay:
		return fmt.Errorf("delay of %v: it takes 0 to %v", l.Delay, MaxDelay)
	case l.Marks && l.Rate == 0:
		return fmt.Errorf("kmin and kmax mark by the queue of a bottleneck: they need a rate")
	}
	if l.Marks {
		return l.RED.Check()
	}
	return nil
}

// Counts is what left a direction, and what did not, since the beginning. Packets are RoCEv2, and
// octets those of IP packets, header to ICRC; of what is not RoCEv2 they are frames.
type Counts struct {
	Packets     uint64 `json:"packets"`
	Octets      uint64 `json:"octets"`
	Marked      uint64 `json:"marked"`     // by RED
	Dropped     uint64 `json:"dropped"`    // no room in the buffer
	FaultLost   uint64 `json:"fault_lost"` // by a rule
	NoRoom      uint64 `json:"no_room"`    // more packets delayed than there is memory for
	TooLong     uint64 `json:"too_long"`   // frames, not sent: beyond the MTU of where they go
	Refused     uint64 `json:"refused"`    // frames that the kernel did not take
	Missed      uint64 `json:"missed"`     // frames that came faster than they were read, or that could not be
	Other       uint64 `json:"other"`      // frames that are not RoCEv2
	OtherOctets uint64 `json:"other_octets"`
}

// Sub returns what was counted since an earlier time.
func (c Counts) Sub(old Counts) Counts {
	return Counts{
		Packets: c.Packets - old.Packets, Octets: c.Octets - old.Octets, Marked: c.Marked - old.Marked,
		Dropped: c.Dropped - old.Dropped, FaultLost: c.FaultLost - old.FaultLost, NoRoom: c.NoRoom - old.NoRoom,
		TooLong: c.TooLong - old.TooLong, Refused: c.Refused - old.Refused, Missed: c.Missed - old.Missed,
		Other: c.Other - old.Other, OtherOctets: c.OtherOctets - old.OtherOctets,
	}
}

// Way is one direction. One goroutine at a time may use it.
type Way struct {
	line    Line
	dir     trace.Dir
	inj     *fault.Injector // nil without rules
	capture bool            // super-packets are split always
	rng     *rand.Rand

	now   int64
	late  [2]lateness // since the last Lap, and since the beginning
	free  int64       // when the line has sent what left the queue
	carry int64       // of the division of octets by the rate, while the line is busy

	hold   *fault.Hold[*packet]
	queue  fifo
	depth  depth // of queue, since the last Lap
	total  depth // before
	flight fifo  // on the line and delayed
	pool   []*packet
	made   int

	out    []Out
	run    run
	Counts Counts
}

// Out is a frame to send, with its virtio header.
type Out struct {
	Vnet, Frame []byte
	packet      *packet // nil: it belongs to who received it
	packets     int     // of RoCEv2
	size        int     // their octets
	due         int64   // when it should leave, of packets that were the Way's
}

// WayConfig is what a Way is made of.
type WayConfig struct {
	Line  Line
	Dir   trace.Dir       // as the rules know it
	Rules fault.Rules     // that Faults has
	Fault *fault.Injector // shared by both directions; nil for none
	Seed  uint64          // of marks
	Now   int64
	Split bool // super-packets of RoCEv2 always: a capture shows single packets
}

// NewWay returns a direction.
func NewWay(c *WayConfig) *Way {
	w := &Way{
		line: c.Line, dir: c.Dir, capture: c.Split, rng: rand.New(rand.NewPCG(c.Seed, uint64(c.Dir))),
		now: c.Now, free: c.Now, hold: fault.NewHold[*packet](maxHeld),
	}
	for i := range c.Rules {
		if d := c.Rules[i].Dir; d == trace.Local || d == c.Dir {
			w.inj = c.Fault
		}
	}
	w.depth.init(c.Now, c.Line.Buffer)
	w.total.init(c.Now, c.Line.Buffer)
	return w
}

// passes reports whether nothing is to be done to RoCEv2.
func (w *Way) passes() bool {
	return w.line.Rate == 0 && w.line.Delay == 0 && w.inj == nil && !w.capture
}

// Receive takes a frame with its virtio header that came at a time. Frames come in
// the order of their times; both are borrowed until Sent.
//
//gorxe:hot
func (w *Way) Receive(at int64, v, frame []byte) {
	at = max(at, w.now)
	w.advance(at)
	r := &w.run
	if !r.parse(v, frame) {
		w.out = append(w.out, Out{Vnet: v, Frame: frame})
		return
	}
	if w.passes() && r.whole() {
		n := r.Segments()
		size := len(r.Payload) + n*(r.bth-r.ip)
		w.out = append(w.out, Out{Vnet: v, Frame: frame, packets: n, size: size})
		return
	}
	for i := range r.Segments() {
		p := w.get()
		if p == nil {
			w.Counts.NoRoom++
			continue
		}
		r.cut(p, i)
		w.judge(at, p)
	}
}

// judge has the rules decide about a packet.
func (w *Way) judge(at int64, p *packet) {
	if w.inj == nil {
		w.enqueue(at, p)
		return
	}
	pkt := p.roce()
	d := w.inj.Process(at, w.dir, pkt, len(pkt))
	if d.Lost {
		w.Counts.FaultLost++
		w.put(p)
		return
	}
	if d.Effects.Has(fault.CE) {
		p.mark()
	}
	if d.Effects.Has(fault.Corrupt) {
		d.Flip(pkt)
		if summed(p) {
			p.setChecksum() // so that the ICRC finds it, not UDP
		}
	}
	for ; d.Copies > 0; d.Copies-- {
		if c := w.get(); c != nil {
			*c = packet{frame: append(c.frame[:0], p.frame...), ip: p.ip, bth: p.bth, size: p.size}
			w.place(at, c, &d)
		} else {
			w.Counts.NoRoom++
		}
	}
	w.place(at, p, &d)
	if !d.Held() {
		w.hold.Passed()
		w.release(at)
	}
}

func summed(p *packet) bool { return p.frame[p.bth-2] != 0 || p.frame[p.bth-1] != 0 }

// place holds a packet, or has it go on.
func (w *Way) place(at int64, p *packet, d *fault.Decision) {
	if !d.Held() {
		w.enqueue(at, p)
		return
	}
	h := w.hold.Put(d)
	if h == nil {
		w.Counts.NoRoom++
		w.put(p)
		return
	}
	h.Meta = p
}

// release has held packets go on that are due.
func (w *Way) release(now int64) {
	for next := w.hold.Next(); next <= now && w.hold.Len() > 0; next = w.hold.Next() {
		at := max(next, w.now)
		w.serve(at)
		h := w.hold.Pop(now)
		p := h.Meta
		w.hold.Free(h)
		w.now = at
		w.enqueue(at, p)
	}
}

// enqueue has a packet wait for the line.
func (w *Way) enqueue(at int64, p *packet) {
	p.at = at
	if w.line.Rate == 0 {
		w.depart(at, p)
		return
	}
	idle := w.queue.len() == 0 && w.free <= at
	if !idle && w.depth.octets+p.size > w.line.Buffer {
		w.Counts.Dropped++
		w.put(p)
		return
	}
	if w.line.AtEnqueue {
		w.red(p)
	}
	w.queue.push(p)
	w.depth.add(at, p.size)
	w.serve(at)
}

// red marks a packet by the present queue.
func (w *Way) red(p *packet) {
	if !w.line.Marks || !p.ect() {
		return
	}
	if q := w.line.RED.Probability(w.depth.octets); q > 0 && (q >= 1 || w.rng.Float64() < q) {
		p.mark()
		w.Counts.Marked++
	}
}

// serve has the line send what it could begin to send until now.
func (w *Way) serve(now int64) {
	for w.queue.len() > 0 && w.free <= now {
		p := w.queue.pop()
		start := w.free
		if p.at > w.free { // it was idle
			start, w.carry = p.at, 0
		}
		w.depth.add(start, -p.size)
		if !w.line.AtEnqueue {
			w.red(p)
		}
		bits := int64(p.size)*8*1e9 + w.carry
		w.free = start + bits/w.line.Rate
		w.carry = bits % w.line.Rate
		w.depart(w.free, p)
	}
}

// depart has a packet arrive at the other end of the line after the delay.
func (w *Way) depart(at int64, p *packet) {
	p.at = at + int64(w.line.Delay)
	w.flight.push(p)
}

// advance brings everything to the present.
func (w *Way) advance(now int64) {
	w.release(now)
	w.serve(now)
	w.now = now
	for w.flight.len() > 0 && w.flight.head().at <= now {
		p := w.flight.pop()
		w.out = append(w.out, Out{Vnet: plain, Frame: p.frame, packet: p, packets: 1, size: p.size, due: p.at})
	}
}

// Step brings the direction to the present, after all frames that came before were
// received, and returns when to call it again, Never if nothing is under way.
//
//gorxe:hot
func (w *Way) Step(now int64) (deadline int64) {
	w.advance(max(now, w.now))
	deadline = w.hold.Next()
	if w.flight.len() > 0 {
		deadline = min(deadline, w.flight.head().at)
	}
	return deadline
}

// Out returns the frames to send now, in order. They are borrowed until Sent.
func (w *Way) Out() []Out { return w.out }

// Lost says that frame i of them did not leave.
func (w *Way) Lost(i int) { w.out[i].packets, w.out[i].size = -1, 0 }

// Sent says that they are gone at a time.
func (w *Way) Sent(now int64) {
	for i := range w.out {
		o := &w.out[i]
		if o.packet != nil {
			w.late[0].add(now - o.due)
		}
		switch {
		case o.packets > 0:
			w.Counts.Packets += uint64(o.packets)
			w.Counts.Octets += uint64(o.size)
		case o.packets == 0:
			w.Counts.Other++
			w.Counts.OtherOctets += uint64(len(o.Frame))
		}
		if o.packet != nil {
			w.put(o.packet)
		}
	}
	clear(w.out)
	w.out = w.out[:0]
}

// Lap returns what the queue held since the last Lap, and how late packets were.
func (w *Way) Lap(now int64) (Queue, Late) {
	q, l := w.depth.read(max(now, w.depth.since)), w.late[0].read()
	w.total.merge(&w.depth)
	w.depth.restart()
	w.late[1].merge(&w.late[0])
	w.late[0] = lateness{}
	return q, l
}

// Total returns the same since the beginning, up to the last Lap.
func (w *Way) Total() (Queue, Late) { return w.total.read(w.total.since), w.late[1].read() }

func (w *Way) get() *packet {
	if n := len(w.pool); n > 0 {
		p := w.pool[n-1]
		w.pool = w.pool[:n-1]
		return p
	}
	if w.made == maxPackets {
		return nil
	}
	w.made++
	return new(packet)
}

func (w *Way) put(p *packet) { w.pool = append(w.pool, p) }

// fifo is a ring of packets that grows.
type fifo struct {
	ring []*packet
	at   int
	n    int
}

func (f *fifo) len() int      { return f.n }
func (f *fifo) head() *packet { return f.ring[f.at] }

func (f *fifo) push(p *packet) {
	if f.n == len(f.ring) {
		bigger := make([]*packet, max(64, 2*f.n))
		n := copy(bigger, f.ring[f.at:])
		copy(bigger[n:], f.ring[:f.at])
		f.ring, f.at = bigger, 0
	}
	f.ring[(f.at+f.n)%len(f.ring)] = p
	f.n++
}

func (f *fifo) pop() *packet {
	p := f.ring[f.at]
	f.at = (f.at + 1) % len(f.ring)
	f.n--
	return p
}
