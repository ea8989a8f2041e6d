package cc

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// sender sends as a NIC does: bursts of packets, when the pacer says so or up to
// late nanoseconds after.
type sender struct {
	p      Pacer
	rate   int64
	packet int
	late   int64 // it is late by this at most
	good   int64 // so much of it is made good
	rnd    *rand.Rand
}

// burst sends one at or after a time, and returns when and how much.
func (s *sender) burst(now int64) (int64, int) {
	now = max(now, s.p.Next())
	if s.late > 0 {
		now += s.rnd.Int64N(s.late)
	}
	octets := max(1, Burst(s.rate)/s.packet) * s.packet
	s.p.Sent(now, octets, s.rate, s.good)
	return now, octets
}

var paceRates = []int64{1e6, 3_333_333, 10e6, 100e6, 1e9, 9_999_999_999, 25e9, 40e9, 100e9}

// The rate is kept when bursts leave late, by any time that is made good in
// between: half a burst on average.
func TestPacerRate(t *testing.T) {
	for _, rate := range paceRates {
		for _, packet := range []int{64, 1086, 4156} {
			for _, late := range []int64{0, us, 5 * us, 20 * us, 500 * us, LateControl / 2, LateLimit / 2} {
				s := &sender{rate: rate, packet: packet, late: late, good: LateLimit, rnd: rand.New(rand.NewPCG(uint64(rate), uint64(late)))}
				// Long enough for what one burst, and the last lateness, do not matter.
				_, first := s.burst(0)
				total, now := 0, int64(0)
				cost := float64(first) * 8e9 / float64(rate)
				most := float64(late) + cost
				if float64(late) > 0.9*cost {
					continue // half a burst is made good by each: too late on average
				}
				for float64(now) < 4000*most {
					var n int
					now, n = s.burst(now)
					total += n
				}
				got := float64(total) * 8e9 / float64(now)
				require.InEpsilon(t, float64(rate), got, 1e-3, "%d b/s, packets of %d, %d ns late", rate, packet, late)
			}
		}
	}
}

// Lateness that comes now and then, and is made good in between.
func TestPacerStalls(t *testing.T) {
	for _, rate := range paceRates {
		s := &sender{rate: rate, packet: 4156, good: LateLimit, rnd: rand.New(rand.NewPCG(uint64(rate), 1))}
		total, now, stall := 0, int64(0), 10*ms
		for now < 20*sec {
			if now > stall && now < 19*sec { // and all is made good at the end
				now += 1 + s.rnd.Int64N(LateLimit-1)
				stall = now + 200*ms
			}
			var n int
			now, n = s.burst(now)
			total += n
		}
		// One packet more or less at the end: 33 ms of 1 Mb/s.
		require.InEpsilon(t, float64(rate), float64(total)*8e9/float64(now), 1e-3+33e-3/20/(float64(rate)/1e6), "%d b/s", rate)
	}
}

// No time of any length carries more than one burst and twice the rate, nor more
// than what was late beyond the rate itself, and no burst is longer than a packet
// or 50 us.
func TestPacerBursts(t *testing.T) {
	type sent struct {
		at     int64
		octets int
	}
	for i, rate := range paceRates {
		s := &sender{rate: rate, packet: 4156, good: []int64{LateControl, LateLimit}[i%2], rnd: rand.New(rand.NewPCG(uint64(rate), 3))}
		var log []sent
		now := int64(0)
		for range 4000 {
			switch s.rnd.IntN(100) {
			case 0:
				now += s.rnd.Int64N(20 * ms) // nobody came by
			case 1:
				now += s.rnd.Int64N(20 * ms) // nothing to send
				s.p.Idle(now)
			}
			var n int
			now, n = s.burst(now)
			require.LessOrEqual(t, n, max(s.packet, int(rate/8*50/1e6)))
			log = append(log, sent{now, n})
		}
		for i := 0; i < len(log); i += 17 {
			octets := 0
			for j := i; j < len(log); j++ {
				octets += log[j].octets
				took := float64(log[j].at-log[i].at) / 1e9
				late := float64(s.good) / 1e9
				most := float64(log[j].octets) + float64(rate)/8*min(2*took, took+late)*(1+1e-3) + float64(s.packet)/1000
				if float64(octets) > most {
					require.Fail(t, "too much", "%d b/s: from burst %d to %d %d octets, not %.0f", rate, i, j, octets, most)
				}
			}
		}
	}
}

// Who had nothing to send has earned nothing; who was late has, up to a bound.
func TestPacerIdle(t *testing.T) {
	const rate = int64(1e9)
	for _, idle := range []int64{0, ms, sec, 3600 * sec} {
		s := &sender{rate: rate, packet: 4156, good: LateLimit}
		s.burst(0)
		at := s.p.Next() + idle
		s.p.Idle(at)
		require.LessOrEqual(t, s.p.Next(), at, "it may send at once")
		first, n := s.burst(at)
		require.Equal(t, at, first)
		require.InDelta(t, float64(at)+float64(n)*8, float64(s.p.Next()), 2, "and no faster after it")
	}
	for _, good := range []int64{LateControl, LateLimit} {
		s := &sender{rate: rate, packet: 4156, good: good}
		s.burst(0)
		now := sec // late by far
		total := 0
		for now < sec+200*ms {
			var n int
			now, n = s.burst(now)
			total += n
		}
		more := float64(total)*8e9/float64(rate) - float64(200*ms)
		require.InDelta(t, float64(good), more, float64(100*us), "ns made good")
	}
}

// What did not leave costs nothing.
func TestPacerUnsent(t *testing.T) {
	var p Pacer
	p.Sent(0, 125_000, 1e9, 0) // 1 ms
	require.Equal(t, ms, p.Next())
	p.Unsent(0, 125_000, 1e9)
	require.Zero(t, p.Next())
	p.Sent(0, 125_000, 1e9, 0)
	p.Unsent(0, 62_500, 1e9)
	require.Equal(t, ms/2, p.Next())
}

// At the ends of what anybody might set.
func TestPacerEnds(t *testing.T) {
	for _, rate := range []int64{1, 1e3, 1600e9, math.MaxInt64} {
		for _, octets := range []int{1, 64, 4156, 65535, 1 << 30} {
			t.Run(fmt.Sprint(rate, octets), func(t *testing.T) {
				var p Pacer
				now := int64(1e18) // some 30 years
				for range 3 {
					p.Sent(now, octets, rate, LateLimit)
					require.GreaterOrEqual(t, p.Next(), now-LateLimit, "in the past: overflow")
					cost := float64(octets) * 8e9 / float64(rate)
					require.InDelta(t, min(cost, math.MaxInt64/4), float64(p.Next()-now), cost/2+LateLimit)
					if now = max(now, p.Next()); now > math.MaxInt64/2 {
						break
					}
				}
			})
		}
	}
	// Small packets at the highest rates: 0.32 ns each.
	s := &sender{rate: 1600e9, packet: 64}
	total, now := 0, int64(0)
	for range 1000000 {
		now = max(now, s.p.Next())
		s.p.Sent(now, 64, s.rate, LateLimit)
		total += 64
	}
	require.InEpsilon(t, float64(s.rate), float64(total)*8e9/float64(s.p.Next()), 1e-3)
	require.Positive(t, Burst(math.MaxInt64))
	require.Zero(t, Burst(1))
	require.Equal(t, 6250, Burst(1e9))
}

func TestSlower(t *testing.T) {
	require.Equal(t, int64(0), Slower(0, 0))
	require.Equal(t, int64(5), Slower(0, 5))
	require.Equal(t, int64(5), Slower(5, 0))
	require.Equal(t, int64(5), Slower(9, 5))
	require.Equal(t, int64(5), Slower(5, 9))
}

// Behind is true from a burst that left late until the time that was lost is made
// good, and never while everything leaves in time.
func TestPacerBehind(t *testing.T) {
	var p Pacer
	now := int64(1e9)
	p.Idle(now)
	for range 10 {
		p.Sent(now, 1250, 1e9, LateLimit) // 10 us
		require.False(t, p.Behind())
		now = p.Next()
	}
	now += 100_000
	sent := 0
	for p.Sent(now, 1250, 1e9, LateLimit); p.Behind(); p.Sent(now, 1250, 1e9, LateLimit) {
		now = p.Next()
		sent++
	}
	require.InDelta(t, 20, sent, 1, "100 us at twice the rate take 20 bursts of 10 us")
}

// TestPacerChange: what is left to wait for is the same octets at the new rate, of
// whatever rates; without one there is nothing, and lateness is forgotten.
func TestPacerChange(t *testing.T) {
	for _, from := range []int64{1, 1000, 77e6, 1_600e9} {
		for _, to := range []int64{1, 1000, 77e6, 1_600e9} {
			var p Pacer
			p.Idle(1e9)
			p.Sent(1e9, 4096, from, LateLimit)
			p.Change(1e9, from, to)
			require.InDelta(t, 4096*8e9/float64(to), float64(p.Next()-1e9), 1+float64(from)/float64(to))
			before := p.Next()
			p.Sent(before, 4096, to, LateLimit)
			require.Greater(t, p.Next(), before)
			p.Change(1e9, to, 0)
			require.Equal(t, Pacer{}, p)
		}
	}
	p := Pacer{due: 5, next: 7}
	p.Change(10, 1000, 2000)
	require.Equal(t, Pacer{}, p)
}
