package perf

import "github.com/gorxe/gorxe/verbs"

// ring says where messages lie: message k of a queue pair at slot k mod slots.
// perftest lets messages of up to half a page cycle over one, so that caches
// see more than one line, and puts longer ones all in the same place.
type ring struct{ base, stride, slots uint64 }

func (g ring) at(k uint64) uint64 { return g.base + k%g.slots*g.stride }

// layout is the registered memory of one end: a part for each queue pair to
// send from, or to READ into, then one for each that messages arrive in and
// that the peer is told of, then room for the words of a check.
//
//	| from 0 | from 1 | ... | into 0 | into 1 | ... | notices |
type layout struct {
	cycle, line uint64 // octets, the larger of the two ends'
	part        uint64 // octets of a part
	qps         uint64
}

func (l layout) from(qp int) uint64 { return uint64(qp) * l.part }
func (l layout) into(qp int) uint64 { return (l.qps + uint64(qp)) * l.part }
func (l layout) notices() uint64    { return 2 * l.qps * l.part }
func (l layout) size() int          { return int(l.notices() + noticeRoom) }

// checkRoom is the memory of one end that Check may use, in each direction: no
// slot is used again before its message was compared.
const checkRoom = 16 << 20

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// plan decides the memory that the largest message needs.
func (r *run) plan() layout {
	c := r.cfg
	l := layout{cycle: uint64(r.peer.CycleBuffer), line: uint64(r.peer.CacheLine), qps: uint64(c.QPs)}
	stride := r.stride(l, uint64(c.Size), true)
	l.part = roundUp(max(stride, l.cycle), l.line)
	if c.Check {
		depth := c.TxDepth
		if c.messages() {
			depth = max(depth, c.RxDepth)
		}
		l.part = max(l.part, stride*l.checkSlots(stride, depth))
	}
	return l
}

// stride is the distance between two messages of a size; those that arrive
// over UD have a GRH in front.
func (r *run) stride(l layout, size uint64, arriving bool) uint64 {
	if arriving && r.cfg.Transport == verbs.UD {
		size += grh
	}
	return roundUp(max(size, 1), l.line)
}

func (l layout) checkSlots(stride uint64, depth int) uint64 {
	return max(1, min(uint64(depth), checkRoom/l.qps/stride))
}

// ring returns the slots of messages of the run's size in the part at base, of
// which depth may be under way at a time.
func (r *run) ring(base uint64, depth int, arriving bool) ring {
	l := r.layout
	g := ring{base: base, stride: r.stride(l, r.size, arriving), slots: 1}
	if arriving && r.cfg.All { // what is left of one size has room for the next
		g.stride = r.stride(l, uint64(r.cfg.Size), true)
	}
	switch {
	case r.cfg.Check:
		g.slots = min(l.checkSlots(g.stride, depth), l.part/g.stride)
	case r.cfg.Kind.Latency():
	case g.stride <= l.cycle/2:
		g.slots = l.cycle / g.stride
	}
	return g
}
