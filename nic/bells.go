package nic

import (
	"math/bits"
	"sync/atomic"
)

// maxShardQPs is how many queue pairs a shard holds: what three levels of 64
// bits tell apart.
const maxShardQPs = 64 * 64 * 64

// bells is the doorbell word of a shard, one bit for each queue pair, with two
// levels of summary above so that looking for rung ones is a single load.
// Ringing is one atomic Or while the bit's word is rung already, three at
// most. Anyone may ring; the holder of the shard's lock takes.
type bells struct {
	top  atomic.Uint64
	_    [56]byte
	mid  [64]atomic.Uint64
	leaf [64 * 64]atomic.Uint64
}

// ring sets bit i. A summary bit is set by whoever made its word non-zero, so
// a ringer that finds it non-zero may leave: the other has not driven yet.
func (b *bells) ring(i uint32) {
	w := i / 64
	if b.leaf[w].Or(1<<(i%64)) == 0 && b.mid[w/64].Or(1<<(w%64)) == 0 {
		b.top.Or(1 << (w / 64))
	}
}

// rung reports whether any bit is set.
func (b *bells) rung() bool { return b.top.Load() != 0 }

// take clears all bits and appends their numbers to dst.
func (b *bells) take(dst []uint32) []uint32 {
	for top := b.top.Swap(0); top != 0; top &= top - 1 {
		m := uint32(bits.TrailingZeros64(top))
		for mid := b.mid[m].Swap(0); mid != 0; mid &= mid - 1 {
			w := m*64 + uint32(bits.TrailingZeros64(mid))
			for leaf := b.leaf[w].Swap(0); leaf != 0; leaf &= leaf - 1 {
				dst = append(dst, w*64+uint32(bits.TrailingZeros64(leaf)))
			}
		}
	}
	return dst
}
