package cc

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The paper's figure 5: 0 up to Kmin, then linear up to Pmax at Kmax, then 1.
func TestRED(t *testing.T) {
	r := RED{Kmin: 5_000, Kmax: 200_000, Pmax: 0.01}
	require.NoError(t, r.Check())
	for queue, want := range map[int]float64{
		0: 0, 5_000: 0, 5_001: 0.01 / 195_000, 102_500: 0.005, 200_000: 0.01, 200_001: 1, 1 << 40: 1, -1: 0,
	} {
		require.InDelta(t, want, r.Probability(queue), 1e-12, queue)
	}
	last := 0.0
	for q := 0; q < 300_000; q += 97 {
		p := r.Probability(q)
		require.GreaterOrEqual(t, p, last)
		last = p
	}
	step := RED{Kmin: 1000, Kmax: 1000, Pmax: 1} // as DCTCP's switches mark
	require.NoError(t, step.Check())
	require.Zero(t, step.Probability(1000))
	require.Equal(t, 1.0, step.Probability(1001))
	require.NoError(t, RED{}.Check())

	for says, bad := range map[string]RED{
		"kmin of -1: it takes 0 octets or more": {Kmin: -1},
		"kmin of 2 is above kmax of 1":          {Kmin: 2, Kmax: 1},
		"pmax of 1.5":                           {Kmax: 1, Pmax: 1.5},
		"pmax of -0.5":                          {Kmax: 1, Pmax: -0.5},
		"pmax of NaN":                           {Kmax: 1, Pmax: math.NaN()},
	} {
		require.ErrorContains(t, bad.Check(), says)
	}
}
