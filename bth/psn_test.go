package bth

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// IBA 9.7.2: half of the 24-bit circle is ahead, half behind.
func TestPSN(t *testing.T) {
	for _, c := range []struct {
		p, q uint32
		diff int
	}{
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, 0xffffff, 1},
		{0xffffff, 0, -1},
		{5, 0xfffff0, 21},
		{0xfffff0, 5, -21},
		{0x7fffff, 0, 1<<23 - 1},
		{0x800000, 0, -1 << 23},
		{0, 0x800000, -1 << 23},
		{0x800000, 1, 1<<23 - 1},
		{0x123456, 0x923456, -1 << 23},
		{0x923457, 0x123456, -1<<23 + 1},
	} {
		p, q := MakePSN(c.p), MakePSN(c.q)
		require.Equal(t, c.diff, p.Diff(q), "%x - %x", c.p, c.q)
		require.Equal(t, c.diff > 0, p.After(q))
		require.Equal(t, c.diff < 0, p.Before(q))
		require.Equal(t, c.diff == 0, p == q)
		require.Equal(t, p, q.Add(c.diff))
	}
	require.Equal(t, MakePSN(0), MakePSN(1<<24), "modulo 2^24")
	require.Equal(t, uint32(0xffffff), MakePSN(0xffffffff).Uint32())
	require.Equal(t, MakePSN(0xfffffe), MakePSN(1).Add(-3))
	require.Equal(t, MakePSN(2), MakePSN(0xfffffe).Add(4))
	require.Equal(t, MakePSN(7), MakePSN(7).Add(1<<24))
	require.Equal(t, "16777215", MakePSN(0xffffff).String())
}

func TestPSNProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := MakePSN(rapid.Uint32().Draw(t, "p"))
		n := rapid.IntRange(-1<<23, 1<<23-1).Draw(t, "n")
		q := p.Add(n)
		if q.Uint32() > PSNMask {
			t.Fatalf("%v + %d leaves the 24 bits", p, n)
		}
		if got := q.Diff(p); got != n {
			t.Fatalf("(%v + %d) - %v = %d", p, n, p, got)
		}
		if n != -1<<23 && p.Diff(q) != -n { // the far end of the circle is behind both ways
			t.Fatalf("%v - %v = %d, want %d", p, q, p.Diff(q), -n)
		}
		if p.Add(n).Add(-n) != p {
			t.Fatalf("%v + %d - %d", p, n, n)
		}
	})
}
