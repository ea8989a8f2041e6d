package nic

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gorxe/gorxe/wire"
)

// Bounds of an inbox: as much as a link's own receive buffer.
const (
	inboxSegs  = 4096
	inboxBytes = 4 << 20
)

// from is what demultiplexing needs to know of a packet's IP header.
type from struct {
	src, dst netip.Addr
	tos, ttl uint8
	id       uint16 // IPv4 identification
	flags    uint16 // IPv4 flags and fragment offset
	label    uint32 // IPv6 flow label
	handed   bool   // by an inbox
}

// parcel is a packet, BTH to ICRC, that reached a shard by another way than
// its link, and was proven before.
type parcel struct {
	from
	off, n int
}

// batch is parcels and the octets they point to.
type batch struct {
	parcels []parcel
	buf     []byte
}

// inbox is where shards leave things for one another: packets for queue pairs
// of the other shard (strays), packets from one queue pair of the device to
// another (hairpin), and queue pairs to fail. Anyone puts; the holder of the
// shard's lock takes.
type inbox struct {
	mu     sync.Mutex
	filled atomic.Bool
	in     batch
	out    batch // what take lent
	failed []*cq
}

// put copies a packet. It returns false when there is no room.
func (b *inbox) put(f from, pkt []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(len(pkt)) {
		return false
	}
	off := len(b.in.buf)
	b.in.buf = append(b.in.buf, pkt...)
	b.add(f, off)
	return true
}

// putBurst copies the first k segments of a burst and returns how many there
// was room for.
func (b *inbox) putBurst(x *wire.Burst, k int) int {
	f := from{src: x.Flow.Src, dst: x.Flow.Dst, tos: x.Flow.TOS, ttl: x.Flow.TTL, flags: wire.FlagDF}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range k {
		if !b.fits(x.Segs[i].Len) {
			return i
		}
		off := len(b.in.buf)
		b.in.buf = x.AppendSegment(b.in.buf, i)
		b.add(f, off)
	}
	return k
}

func (b *inbox) fits(n int) bool {
	return len(b.in.parcels) < inboxSegs && len(b.in.buf)+n <= inboxBytes
}

func (b *inbox) add(f from, off int) {
	f.handed = true
	b.in.parcels = append(b.in.parcels, parcel{from: f, off: off, n: len(b.in.buf) - off})
	b.filled.Store(true)
}

// fail asks the shard to fail the queue pairs that use an overflown queue.
func (b *inbox) fail(c *cq) {
	b.mu.Lock()
	b.failed = append(b.failed, c)
	b.filled.Store(true)
	b.mu.Unlock()
}

// take returns all there is, borrowed until the next take.
func (b *inbox) take() (*batch, []*cq) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.in, b.out = b.out, b.in
	b.in.parcels, b.in.buf = b.in.parcels[:0], b.in.buf[:0]
	f := b.failed
	b.failed = nil
	b.filled.Store(false)
	return &b.out, f
}
