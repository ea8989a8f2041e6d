package lab

import (
	"math/bits"
	"time"

	"github.com/gorxe/gorxe/sim"
)

// port is one that is looked at.
type port struct {
	*sim.Port
	halfway sim.PortStats
	before  sim.PortStats // at the last sample
	high    int           // of the queue since
	queue   int
	since   int64 // when it became that
	depth   histogram
}

func (r *run) addPort(p *sim.Port) {
	x := &port{Port: p}
	r.ports = append(r.ports, x)
	r.byPt[p] = x
}

// queued sees what happens at ports.
func (r *run) queued(e sim.PortEvent) {
	if e.Kind != sim.PortQueued && e.Kind != sim.PortSent {
		return
	}
	p := r.byPt[e.Port]
	p.depth.add(p.queue, e.Time-p.since)
	p.queue, p.since = e.Queue, e.Time
	p.high = max(p.high, e.Queue)
}

// histogram is how much time was spent at each value, to one part in 32.
type histogram struct {
	weight [64 * 32]int64
	total  int64
}

// slot of a value: itself below 64, then 32 for each power of two.
func slot(v int) int {
	if v < 64 {
		return v
	}
	shift := bits.Len(uint(v)) - 6
	return shift*32 + v>>shift
}

// high is the highest value of a slot.
func high(i int) int {
	if i < 64 {
		return i
	}
	shift := i/32 - 1
	return (i-shift*32+1)<<shift - 1
}

func (h *histogram) add(v int, weight int64) {
	h.weight[slot(v)] += weight
	h.total += weight
}

// quantile returns the value that a part of the time was at or below.
func (h *histogram) quantile(q float64) int {
	want := int64(q * float64(h.total))
	for i, n := range h.weight {
		if want -= n; want <= 0 && n > 0 {
			return high(i)
		}
	}
	return 0
}

// sample is one point of the time series.
type sample struct {
	at    time.Duration
	flows []flowSample
	ports []portSample
}

type flowSample struct {
	octets uint64 // in all, so far
	cnps   uint64 // so far
	marks  uint64
	limit  int64 // bits a second that congestion control allows; 0 no limit, or nothing to send
}

type portSample struct {
	high            int // the longest queue since the last sample
	marked, dropped uint64
	octets          uint64
	paused          time.Duration
}

// tick takes a sample, and plans the next.
func (r *run) tick() {
	now := r.net.Now()
	x := sample{at: now, flows: make([]flowSample, len(r.flows)), ports: make([]portSample, len(r.ports))}
	for i, f := range r.flows {
		y := flowSample{octets: f.octets, cnps: f.cnps, marks: f.marks}
		running := now >= f.Start && (f.next > f.done || int64(now)-f.last < int64(r.s.Sample))
		node, q := f.from, f.qp
		if f.Op == "read" {
			node, q = f.to, f.peer
		}
		if d, err := node.node.NIC.QP(q.QPN()); err == nil && d.CC.Limited && running {
			y.limit = d.CC.Rate
		}
		x.flows[i] = y
	}
	for i, p := range r.ports {
		st := p.Stats()
		x.ports[i] = portSample{
			high: max(p.high, st.Queue), marked: st.Marked - p.before.Marked, dropped: st.Dropped - p.before.Dropped, octets: st.Octets - p.before.Octets,
			paused: st.Paused - p.before.Paused,
		}
		p.before, p.high = st, st.Queue
	}
	r.samples = append(r.samples, x)
	if now+r.s.Sample <= r.s.Duration {
		r.net.After(r.s.Sample, r.tick)
	}
}
