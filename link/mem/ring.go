package mem

import (
	"sync"

	"github.com/gorxe/gorxe/wire"
)

// ring is what a link has received and not yet given back: descriptors in
// order, and the octets they point to. All its memory is there from the
// start. Octets of a datagram are contiguous; one that would straddle the end
// of buf begins at its start, and the gap is part of its cost.
//
//	released | lent to Recv's caller | waiting | free
//	         tail                    next      head
type ring struct {
	mu    sync.Mutex // held for copies, never while waiting
	descs []desc
	buf   []byte
	tail  uint64 // free-running counts of descriptors
	next  uint64
	head  uint64
	off   int // in buf, where the next datagram may begin
	used  int // octets of buf in use, gaps included

	rxPackets, rxBytes, dropped uint64
	closed                      bool
}

type desc struct {
	wire.Datagram
	cost int
}

const ringAlign = 64

// ringSize returns what n octets occupy.
func ringSize(n int) int { return (n + ringAlign - 1) &^ (ringAlign - 1) }

func newRing(depth, bytes int) ring {
	return ring{descs: make([]desc, depth), buf: make([]byte, ringSize(bytes))}
}

// reserve takes room for a datagram of n octets, or returns nil when there is
// none. The lock is held.
func (r *ring) reserve(n int) *desc {
	if r.used == 0 {
		r.off = 0
	}
	size, gap, off := ringSize(n), 0, r.off
	if off+size > len(r.buf) {
		gap, off = len(r.buf)-off, 0
	}
	if r.head-r.tail == uint64(len(r.descs)) || r.used+gap+size > len(r.buf) {
		return nil
	}
	d := &r.descs[r.head%uint64(len(r.descs))]
	r.head++
	d.Payload = r.buf[off : off+n : off+n]
	d.cost = gap + size
	r.off = off + size
	r.used += d.cost
	return d
}

// pop takes back what the last pop lent and lends what waits.
func (r *ring) pop(ds []wire.Datagram) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; r.tail != r.next; r.tail++ {
		r.used -= r.descs[r.tail%uint64(len(r.descs))].cost
	}
	n := 0
	for ; n < len(ds) && r.next != r.head; n++ {
		d := &r.descs[r.next%uint64(len(r.descs))]
		r.next++
		ds[n] = d.Datagram
		r.rxPackets += uint64(d.Segments())
		r.rxBytes += uint64(len(d.Payload))
	}
	return n
}

// waiting reports whether pop would return something.
func (r *ring) waiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next != r.head
}
