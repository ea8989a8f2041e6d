package sim

import (
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/wire"
)

type eventKind uint8

const (
	evArrive  eventKind = iota // a datagram reaches a lane's node
	evStep                     // a shard wants to be stepped
	evRelease                  // a fault's hold has something due
	evCall                     // Sim.After
	evHop                      // a datagram reaches a port of a switch
	evFree                     // a port's line is
	evPause                    // a pause frame reaches a port; way 1, or 0 for its end
)

// datagram is one on its way, and what fault rules did to it so far.
type datagram struct {
	wire.Datagram
	hit fault.Effects
}

// event is one thing to happen, and for evArrive the datagram with its octets.
// Events are used again, with their memory.
type event struct {
	kind eventKind
	lane *lane
	way  int // of evRelease and evPause
	port *Port
	call func()
	d    datagram
	buf  []byte
	size int // of buf, by bufLen
}

// heap orders events by time, and those of one time by when they were pushed:
// that makes a run repeatable. It is a binary heap of values, since the
// standard one allocates for each.
type heap struct {
	q    []item
	seq  uint64
	free [len(bufLen)][]*event // by what their memory bears
}

// bufLen are the sizes of events' memory: none, a small packet, one with 1024
// octets of payload, any packet, a burst.
var bufLen = [5]int{0, 640, 2 << 10, 8 << 10, 64 << 10}

type item struct {
	at  int64
	seq uint64
	e   *event
}

func (a *item) before(b *item) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// get returns an event to fill, with room for n octets.
func (h *heap) get(n int) *event {
	size := 0
	for size < len(bufLen)-1 && bufLen[size] < n {
		size++
	}
	f := h.free[size]
	if k := len(f); k > 0 {
		e := f[k-1]
		h.free[size] = f[:k-1]
		return e
	}
	return &event{size: size, buf: make([]byte, 0, bufLen[size])}
}

// put takes an event back.
func (h *heap) put(e *event) {
	*e = event{size: e.size, buf: e.buf[:0]}
	h.free[e.size] = append(h.free[e.size], e)
}

// next returns the time of the first event, or never.
func (h *heap) next() int64 {
	if len(h.q) == 0 {
		return never
	}
	return h.q[0].at
}

func (h *heap) push(at int64, e *event) {
	h.seq++
	h.q = append(h.q, item{at, h.seq, e})
	i := len(h.q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.q[i].before(&h.q[up]) {
			break
		}
		h.q[i], h.q[up] = h.q[up], h.q[i]
		i = up
	}
}

func (h *heap) pop() (at int64, e *event) {
	top := h.q[0]
	last := len(h.q) - 1
	h.q[0] = h.q[last]
	h.q[last] = item{}
	h.q = h.q[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && h.q[c+1].before(&h.q[c]) {
			c++
		}
		if !h.q[c].before(&h.q[i]) {
			break
		}
		h.q[i], h.q[c] = h.q[c], h.q[i]
		i = c
	}
	return top.at, top.e
}
