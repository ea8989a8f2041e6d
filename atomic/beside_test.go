package atomic

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// beside runs f over and over for a while, and g at the same time until that is
// over: two cores at one word, so that a gap between two instructions shows.
// Where there is one core, where nothing is at the same time, it skips.
func beside(t *testing.T, f, g func()) {
	if runtime.NumCPU() < 2 {
		t.Skipf("needs two processors at work at once, this machine has %d", runtime.NumCPU())
	}
	var wg sync.WaitGroup
	var stop atomic.Bool
	wg.Go(func() {
		for !stop.Load() {
			for range 100 {
				g()
			}
		}
	})
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		for range 100 {
			f()
		}
	}
	stop.Store(true)
	wg.Wait()
}

// TestFetchAddBesideCPU loses no addition, its own or the processor's.
func TestFetchAddBesideCPU(t *testing.T) {
	b := words(8)
	var here, there uint64
	beside(t, func() { FetchAdd(b, 1); here++ }, func() { atomic.AddUint64(word(b), 1); there++ })
	require.Equal(t, here+there, binary.NativeEndian.Uint64(b))
}

// TestCmpSwapBesideCPU: while the processor swaps 0 and 1 in, in turn, a CmpSwap
// of 0 for 2 takes the place of a 0 and never of a 1, and says so each time.
func TestCmpSwapBesideCPU(t *testing.T) {
	b := words(8)
	var taken, found, wrong int
	beside(t, func() {
		if old, _ := CmpSwap(b, 0, 2); old == 0 {
			taken++
		}
	}, func() {
		if atomic.SwapUint64(word(b), 1) == 2 {
			found++
		}
		if atomic.SwapUint64(word(b), 0) != 1 {
			wrong++
		}
	})
	if binary.NativeEndian.Uint64(b) == 2 {
		found++
	}
	require.Zero(t, wrong, "times that it took the place of a 1")
	require.Equal(t, taken, found)
	require.Positive(t, taken)
}
