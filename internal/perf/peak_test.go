package perf

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestPeak: the least gap is the one that trying every pair finds.
func TestPeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "n")
		mod := rapid.IntRange(1, n).Draw(t, "mod")
		depth := rapid.IntRange(1, 20).Draw(t, "depth")
		p := newPeak(uint64(n))
		var now time.Duration
		for i := range n {
			now += time.Duration(rapid.IntRange(0, 1000).Draw(t, "step"))
			p.posted[i] = now
			if j := i - depth; j >= 0 && (j+1)%mod == 0 {
				p.completed[j] = now + 1
			}
		}
		for j := range n {
			if p.completed[j] == 0 && ((j+1)%mod == 0 || j == n-1) {
				now += time.Duration(rapid.IntRange(1, 1000).Draw(t, "end"))
				p.completed[j] = now
			}
		}
		best := math.Inf(1)
		for i := range n {
			for j := i; j < n; j++ {
				if p.completed[j] != 0 {
					best = min(best, float64(p.completed[j]-p.posted[i])/float64(j-i+1))
				}
			}
		}
		require.InDelta(t, best, p.gap(uint64(n)), 1e-9)
	})
}

// TestPattern: the pattern is one sequence whatever the cut, any changed octet
// is found at its place, and sequences of different seeds differ.
func TestPattern(t *testing.T) {
	const n = 1000
	whole := make([]byte, n)
	fillPattern(whole, 42, 0)
	rapid.Check(t, func(t *rapid.T) {
		off := 8 * rapid.IntRange(0, n/8-1).Draw(t, "off")
		part := make([]byte, rapid.IntRange(1, n-off).Draw(t, "len"))
		fillPattern(part, 42, uint64(off))
		require.Equal(t, whole[off:off+len(part)], part)
		at, _ := differs(part, 42, uint64(off))
		require.Equal(t, -1, at)
		i := rapid.IntRange(0, len(part)-1).Draw(t, "i")
		part[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "x"))
		at, want := differs(part, 42, uint64(off))
		require.Equal(t, i, at)
		require.Equal(t, whole[off+i], want)
		at, _ = differs(whole, rapid.Uint64Range(43, 1<<40).Draw(t, "seed"), 0)
		require.GreaterOrEqual(t, at, 0)
	})
}
