package sys

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rings of an AF_XDP socket lie in memory that the kernel shares: entries,
// a power of two of them, and two free-running indexes, each written by one
// side only. An entry belongs to whoever's index has not passed it yet.
// Linux Documentation/networking/af_xdp.rst.
//
// The indexes are published and read with sequentially consistent atomics,
// which is more than the release and acquire they need.

// XDPDesc is an entry of the receive and send rings: octets of the shared
// memory, and whether the packet goes on in the next entry (unix.XDP_PKT_CONTD).
type XDPDesc = unix.XDPDesc

// Producer is this side of a ring that the kernel takes entries from. One
// goroutine at a time may use it, but NeedWakeup and Pending anyone.
type Producer[T any] struct {
	entries          []T
	prod, cons, flag *uint32
	next             uint32 // entries ever put
	seen             uint32 // cons when it was looked at last
	published        atomic.Uint32
}

func (r *Producer[T]) init(entries []T, prod, cons, flag *uint32) {
	r.entries, r.prod, r.cons, r.flag = entries, prod, cons, flag
	r.next = atomic.LoadUint32(prod)
	r.seen = atomic.LoadUint32(cons)
	r.published.Store(r.next)
}

// Free returns how many entries there is room for. It asks the kernel's index
// only when fewer than want are known of.
func (r *Producer[T]) Free(want int) int {
	n := len(r.entries) - int(r.next-r.seen)
	if n < want {
		r.seen = atomic.LoadUint32(r.cons)
		n = len(r.entries) - int(r.next-r.seen)
	}
	return n
}

// Put adds an entry, which the kernel does not see before Submit.
//
// Preconditions: Free(1) > 0.
func (r *Producer[T]) Put(v T) {
	r.entries[r.next&uint32(len(r.entries)-1)] = v
	r.next++
}

// Submit hands over what was put.
func (r *Producer[T]) Submit() {
	atomic.StoreUint32(r.prod, r.next)
	r.published.Store(r.next)
}

// Pending returns how many submitted entries the kernel has not taken yet.
func (r *Producer[T]) Pending() int {
	return int(r.published.Load() - atomic.LoadUint32(r.cons))
}

// NeedWakeup reports whether the kernel takes nothing before a system call
// tells it to.
func (r *Producer[T]) NeedWakeup() bool {
	return atomic.LoadUint32(r.flag)&unix.XDP_RING_NEED_WAKEUP != 0
}

// Consumer is this side of a ring that the kernel fills.
type Consumer[T any] struct {
	entries    []T
	prod, cons *uint32
	next       uint32 // entries ever released
	seen       uint32 // prod when it was looked at last
}

func (r *Consumer[T]) init(entries []T, prod, cons *uint32) {
	r.entries, r.prod, r.cons = entries, prod, cons
	r.next = atomic.LoadUint32(cons)
	r.seen = r.next
}

// Avail returns how many entries wait. It asks the kernel's index only when it
// knows of none.
func (r *Consumer[T]) Avail() int {
	if r.seen == r.next {
		return r.Refresh()
	}
	return int(r.seen - r.next)
}

// Refresh is Avail that always asks.
func (r *Consumer[T]) Refresh() int {
	r.seen = atomic.LoadUint32(r.prod)
	return int(r.seen - r.next)
}

// At returns the entry i after the first that waits.
//
// Preconditions: 0 <= i < Avail().
func (r *Consumer[T]) At(i int) T {
	return r.entries[(r.next+uint32(i))&uint32(len(r.entries)-1)]
}

// Release gives the first n entries back.
func (r *Consumer[T]) Release(n int) {
	r.next += uint32(n)
	atomic.StoreUint32(r.cons, r.next)
}

// view finds the parts of a mapped ring.
func view[T any](m []byte, off *unix.XDPRingOffset, entries int) (es []T, prod, cons, flag *uint32) {
	at := func(o uint64) unsafe.Pointer { return unsafe.Pointer(&m[o]) }
	return unsafe.Slice((*T)(at(off.Desc)), entries), (*uint32)(at(off.Producer)), (*uint32)(at(off.Consumer)), (*uint32)(at(off.Flags))
}
