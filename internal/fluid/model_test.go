package fluid

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/cc"
)

// paper is the model of the papers' figures: 40 Gb/s, packets of 1000 octets.
func paper(t testing.TB, flows int, delay float64) Model {
	c := cc.Default()
	require.NoError(t, c.SetProfile("paper"))
	return New(&c, cc.RED{Kmin: 5_000, Kmax: 200_000, Pmax: 0.01}, flows, 40e9, 1000, delay)
}

// The parameters are those of the authors' own program.
func TestParameters(t *testing.T) {
	m := paper(t, 2, 50e-6)
	require.InEpsilon(t, 5e6, m.Line, 1e-12)
	require.InEpsilon(t, 5e3, m.Increase, 1e-12)
	require.InEpsilon(t, 1e4, m.Octets, 1e-12)
	require.InEpsilon(t, 50e-6, m.CNP, 1e-12)
	require.InEpsilon(t, 55e-6, m.Alpha, 1e-12)
	require.InEpsilon(t, 55e-6, m.Timer, 1e-12)
	require.InEpsilon(t, 1./256, m.G, 1e-12)
	require.Equal(t, 5.0, m.Threshold)
	require.InEpsilon(t, 5, m.Kmin, 1e-12)
	require.InEpsilon(t, 200, m.Kmax, 1e-12)
}

// Nothing changes at the fixed point, and the closed form of the paper is near it
// where marks are rare.
func TestFixedPoint(t *testing.T) {
	for n := 2; n <= 10; n++ {
		m := paper(t, n, 4e-6)
		s, err := m.FixedPoint()
		require.NoError(t, err)
		d := m.change(s, s.Mark, s.Rate)
		require.InDelta(t, 0, d.Rate/s.Rate, 1e-3, "of the rate, a second")
		require.InDelta(t, 0, d.Target/s.Rate, 1e-3)
		require.InDelta(t, 0, d.Alpha, 1e-6)
		require.InDelta(t, 0, d.Queue/m.Line, 1e-9)
		require.InDelta(t, s.Mark, m.Mark(s.Queue), 1e-9)
		require.InEpsilon(t, m.Approximate(), s.Mark, 0.5, "%d flows", n)
		t.Logf("%2d flows: p* %.3f %% (%.3f %%), queue %.0f KB, alpha %.3f, rate %.2f Gb/s, target %.2f", n, 100*s.Mark, 100*m.Approximate(), m.QueueOctets(s)/1e3, s.Alpha, m.RateBits(s)/1e9, s.Target*m.Packet*8/1e9)
	}
	// Towards small p the two are the same.
	m := paper(t, 2, 4e-6)
	m.Increase /= 1e6
	s, err := m.FixedPoint()
	require.NoError(t, err)
	require.InEpsilon(t, m.Approximate(), s.Mark, 0.01)

	_, err = paper(t, 64, 4e-6).FixedPoint()
	require.ErrorContains(t, err, "64 flows")
}

// swing is how far the queue still swings, relative to the fixed point's, after a
// push of 2 % and 0.2 s.
func swing(t *testing.T, flows int, delay float64) float64 {
	m := paper(t, flows, delay)
	// Beyond some 14 flows RED would have to mark more than Pmax; the analysis of
	// CoNEXT 2016 goes on with its slope.
	m.Kmax, m.Pmax = m.Kmin+100*(m.Kmax-m.Kmin), 100*m.Pmax
	s, err := m.FixedPoint()
	require.NoError(t, err)
	rests := s.Queue
	s.Queue *= 1.02
	low, high := math.Inf(1), 0.0
	m.Run(s, 0.25, 1e-6, func(at float64, s State) {
		if at > 0.2 {
			low, high = min(low, s.Queue), max(high, s.Queue)
		}
	})
	return (high - low) / rests
}

// CoNEXT 2016, section 3.2: with 4 us of delay any number of flows is stable; with
// 85 us 64 are and 10 are not, and it is about 10 that bear the least delay: with
// 100 us the phase margins are below 0 up to 34 flows, and above it from 36 on.
func TestStability(t *testing.T) {
	for _, n := range []int{2, 10, 64} {
		require.Less(t, swing(t, n, 4e-6), 0.001, "%d flows, 4 us", n)
	}
	require.Greater(t, swing(t, 10, 85e-6), 0.5)
	require.Greater(t, swing(t, 10, 100e-6), 0.5)
	require.Less(t, swing(t, 64, 85e-6), 0.001)
	require.Less(t, swing(t, 40, 100e-6), 0.001)
	require.Less(t, swing(t, 2, 85e-6), 0.25, "stable in the figure, on the edge here")
}

// From the line's rate two flows come to the fixed point.
func TestSettles(t *testing.T) {
	m := paper(t, 2, 4e-6)
	want, err := m.FixedPoint()
	require.NoError(t, err)
	var last State
	m.Run(State{Rate: m.Line, Target: m.Line, Alpha: 1}, 0.2, 1e-6, func(_ float64, s State) { last = s })
	require.InEpsilon(t, want.Rate, last.Rate, 0.001)
	require.InEpsilon(t, want.Queue, last.Queue, 0.01)
	require.InEpsilon(t, want.Alpha, last.Alpha, 0.01)
}

// One real reaction point, whose packets are marked with the probability of the
// fixed point, has about the rate of the fixed point: the algorithm and the model
// are about the same thing. It is a fifth faster: what the model takes for one
// chance of a cut in each 50 us is a notification and then none for 50 us, and
// rates go in steps.
func TestReactionPoint(t *testing.T) {
	for _, n := range []int{2, 5, 10} {
		m := paper(t, n, 0)
		want, err := m.FixedPoint()
		require.NoError(t, err)
		share := m.RateBits(want)
		got := averageRate(t, want.Mark)
		t.Logf("%2d flows, p* of %.3f %%: %.2f Gb/s, the model %.2f", n, 100*want.Mark, got/1e9, share/1e9)
		require.InDelta(t, 1.19, got/share, 0.05)
		require.InDelta(t, 1, averageRate(t, 1.23*want.Mark)/share, 0.05)
	}
}

// averageRate is that of a flow of packets of 1000 octets through a line of 40
// Gb/s, each marked with a probability, and notified of at once.
func averageRate(t *testing.T, mark float64) float64 {
	c := cc.Default()
	require.NoError(t, c.SetProfile("paper"))
	d := cc.NewDCQCN(&c)
	d.Start(0, cc.Path{Limit: 512, MTU: 1000, Line: 40e9})
	rnd := rand.New(rand.NewPCG(1, 1))
	const begin, end = 5e8, 3e9 // ns
	now, octets, notified := 0.0, 0.0, math.Inf(-1)
	for now < end {
		rate := d.Rate(int64(now))
		if rate == 0 {
			rate = 40e9
		}
		now += 8e12 / float64(rate)
		d.OnSent(int64(now), 1000)
		if now > begin {
			octets += 1000
		}
		if rnd.Float64() < mark && now-notified >= 50e3 {
			notified = now
			d.OnCNP(int64(now))
		}
	}
	return octets * 8e9 / (end - begin)
}
