package atomic

import (
	"sync/atomic"
	"unsafe"
)

// word returns the eight octets of b as an aligned word, or nil when they are
// fewer or not aligned in memory.
func word(b []byte) *uint64 {
	if len(b) < 8 || uintptr(unsafe.Pointer(&b[0]))&7 != 0 {
		return nil
	}
	return (*uint64)(unsafe.Pointer(&b[0]))
}

// FetchAdd adds to the word at b and returns what it held before. ok is false
// when b is not an aligned word; nothing is changed then.
func FetchAdd(b []byte, add uint64) (old uint64, ok bool) {
	w := word(b)
	if w == nil {
		return 0, false
	}
	return atomic.AddUint64(w, add) - add, true
}

// CmpSwap stores swap in the word at b if it holds compare, and returns what
// it held before.
func CmpSwap(b []byte, compare, swap uint64) (old uint64, ok bool) {
	w := word(b)
	if w == nil {
		return 0, false
	}
	for {
		old = atomic.LoadUint64(w)
		if old != compare {
			return old, true
		}
		if atomic.CompareAndSwapUint64(w, compare, swap) {
			return old, true
		}
	}
}

// Store writes a value in host order to the word at b, for the result of an
// atomic; it falls back to octets when b is not aligned.
func Store(b []byte, v uint64) {
	if w := word(b); w != nil {
		atomic.StoreUint64(w, v)
		return
	}
	*(*[8]byte)(b) = *(*[8]byte)(unsafe.Pointer(&v))
}
