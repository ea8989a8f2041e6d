package atomic

import (
	"encoding/binary"
	"math"
	"sync"
	"testing"
	"unsafe"
)

// words returns n octets aligned to 8.
func words(n int) []byte {
	w := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), n)
}

func TestFetchAdd(t *testing.T) {
	b := words(8)
	for _, c := range []struct{ old, add, want uint64 }{
		{0, 0x0102030405060708, 0x0102030405060708}, {1, math.MaxUint64, 0}, {math.MaxUint64, 1, 0}, {1 << 63, 1 << 63, 0},
	} {
		binary.NativeEndian.PutUint64(b, c.old)
		old, ok := FetchAdd(b, c.add)
		if got := binary.NativeEndian.Uint64(b); !ok || old != c.old || got != c.want {
			t.Errorf("%#x + %#x: %#x, found %#x, %v", c.old, c.add, got, old, ok)
		}
	}
}

func TestCmpSwap(t *testing.T) {
	b := words(8)
	for _, c := range []struct{ held, compare, want uint64 }{{5, 5, 9}, {5, 6, 5}, {0, 0, 9}, {math.MaxUint64, math.MaxUint64, 9}} {
		binary.NativeEndian.PutUint64(b, c.held)
		old, ok := CmpSwap(b, c.compare, 9)
		if got := binary.NativeEndian.Uint64(b); !ok || old != c.held || got != c.want {
			t.Errorf("%d compared with %d: %d, found %d, %v", c.held, c.compare, got, old, ok)
		}
	}
}

// What is no aligned word is refused and not changed.
func TestNotAWord(t *testing.T) {
	b := words(24)
	for _, w := range [][]byte{nil, b[:7], b[1:9], b[4:12], b[7:]} {
		if _, ok := FetchAdd(w, 1); ok {
			t.Errorf("FetchAdd of %d octets", len(w))
		}
		if _, ok := CmpSwap(w, 0, 1); ok {
			t.Errorf("CmpSwap of %d octets", len(w))
		}
	}
	for i, v := range b {
		if v != 0 {
			t.Errorf("octet %d changed", i)
		}
	}
}

// Store writes host order, aligned or not, and only the word.
func TestStore(t *testing.T) {
	var want [8]byte
	binary.NativeEndian.PutUint64(want[:], 0x0102030405060708)
	for off := range 9 {
		b := words(24)
		Store(b[off:off+8], 0x0102030405060708)
		for i, v := range b {
			switch k := i - off; {
			case k >= 0 && k < 8 && v != want[k], (k < 0 || k >= 8) && v != 0:
				t.Errorf("offset %d: octet %d is %d", off, i, v)
			}
		}
	}
}

// Goroutines that add and swap at once lose nothing.
func TestConcurrent(t *testing.T) {
	b := words(8)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				FetchAdd(b, 1)
				for {
					v, _ := FetchAdd(b, 0)
					if old, _ := CmpSwap(b, v, v+1); old == v {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	if v := binary.NativeEndian.Uint64(b); v != 8000 {
		t.Errorf("%d", v)
	}
}
