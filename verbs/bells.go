package verbs

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// MaxBells is how many queue pairs a set of doorbells tells apart: three levels
// of 64 bits.
const MaxBells = 64 * 64 * 64

// Bells is the doorbells of a shard's queue pairs, one bit for each, with two
// levels of summary above so that looking for rung ones is a single load.
// Ringing is one atomic Or while the bit's word is rung already, three at
// most. Anyone may ring; the device's side takes. It is plain memory, all zero
// when nothing is rung, which two processes may share: whatever the other side
// does to it, Take ends soon and returns numbers below MaxBells.
type Bells struct {
	top  atomic.Uint64
	_    [56]byte
	mid  [64]atomic.Uint64
	leaf [64 * 64]atomic.Uint64
}

// Ring sets bit i. A summary bit is set by whoever made its word non-zero, so
// a ringer that finds it non-zero may leave: the other has not driven yet.
func (b *Bells) Ring(i uint32) {
	w := i / 64 % (64 * 64)
	if b.leaf[w].Or(1<<(i%64)) == 0 && b.mid[w/64].Or(1<<(w%64)) == 0 {
		b.top.Or(1 << (w / 64))
	}
}

// Rung reports whether any bit is set.
func (b *Bells) Rung() bool { return b.top.Load() != 0 }

// Take clears bits and appends their numbers to dst, until that has most of them
// (and up to 63 more). What it leaves stays rung. A word without a bit counts as
// one, so that summaries that lie cost no more than bits.
func (b *Bells) Take(dst []uint32, most int) []uint32 {
	for top := b.top.Swap(0); top != 0; top &= top - 1 {
		if len(dst) >= most {
			b.top.Or(top)
			return dst
		}
		m := uint32(bits.TrailingZeros64(top))
		mid := b.mid[m].Swap(0)
		if mid == 0 {
			most--
		}
		for ; mid != 0; mid &= mid - 1 {
			if len(dst) >= most {
				b.mid[m].Or(mid)
				b.top.Or(top)
				return dst
			}
			w := m*64 + uint32(bits.TrailingZeros64(mid))
			leaf := b.leaf[w].Swap(0)
			if leaf == 0 {
				most--
			}
			for ; leaf != 0; leaf &= leaf - 1 {
				dst = append(dst, w*64+uint32(bits.TrailingZeros64(leaf)))
			}
		}
	}
	return dst
}

// BellBlock is what a program in another process and one shard of its device tell
// each other: doorbells, and whether the shard sleeps. Who rings and finds Asleep
// 1 stores 0 there and wakes the device by a message.
//
//	octet 0    asleep, u32
//	octet 64   summary of all, u64
//	octet 128  64 summaries of 64 words each, u64
//	octet 640  4096 words of 64 doorbells each, u64
type BellBlock struct {
	Asleep atomic.Uint32
	_      [60]byte
	Bells  Bells
}

// BellBlockLen is the length of a BellBlock in octets.
const BellBlockLen = int(unsafe.Sizeof(BellBlock{}))

// BellBlocks returns a view of memory with a BellBlock for each shard; false when
// it is too short, or not aligned to 8 octets.
func BellBlocks(mem []byte, shards int) ([]*BellBlock, bool) {
	if shards < 1 || len(mem) < shards*BellBlockLen || uintptr(unsafe.Pointer(&mem[0]))&7 != 0 {
		return nil, false
	}
	out := make([]*BellBlock, shards)
	for i := range out {
		out[i] = (*BellBlock)(unsafe.Pointer(&mem[i*BellBlockLen]))
	}
	return out, true
}
