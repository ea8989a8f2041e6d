package cc

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func startSwift(set string) *Swift {
	c := Default()
	c.Algorithm, c.WindowInitial = AlgSwift, 0
	if err := c.Parse(set); err != nil {
		panic(err)
	}
	s := NewSwift(&c)
	s.Start(0, Path{Limit: 512, MTU: 4096})
	return s
}

const aim = 200 * us // Default's swift_base_target

// Below the target the window grows by ai in a round trip, however its packets are
// acknowledged.
func TestSwiftIncrease(t *testing.T) {
	for _, at := range []int{1, 4, 1000} { // packets to an ACK
		s := startSwift("swift,swift_ai=100")
		s.window = 100
		for range 50 {
			for left := s.Window(0); left > 0; left -= at {
				s.OnAck(0, min(at, left), 100*us)
			}
		}
		require.InDelta(t, 150, s.window, 1, "%d to an ACK", at)
	}
	s := startSwift("swift,swift_ai=50")
	s.window = 10
	s.OnAck(0, 10, aim-1)
	require.InDelta(t, 10.5, s.window, 1e-9)
	s.OnAck(0, 4, 0)
	require.InDelta(t, 10.5, s.window, 1e-9, "without a delay nothing is known")
	s.OnAck(0, 4, aim-1)
	require.InDelta(t, 10.5+0.5*8/10.5, s.window, 1e-9, "it counts with the next")
	for range 1 << 16 {
		s.OnAck(0, 1000, us)
	}
	require.Equal(t, 512, s.Window(0), "no more than the limit")
}

// The decrease of algorithm 1: beta times the part of the delay that is beyond the
// target, max_mdf at most, once in a round trip.
func TestSwiftDecrease(t *testing.T) {
	for delay, left := range map[int64]float64{
		aim:         1,
		aim * 5 / 4: 1 - 0.8*0.2,
		2 * aim:     1 - 0.8*0.5,
		3 * aim:     0.5, // 0.8 of 2/3 is more than a half
		10 * aim:    0.5,
		3600 * 1e9:  0.5,
		aim + 1:     1 - 0.8/float64(aim+1),
		aim * 5 / 2: 1 - 0.8*0.6,
	} {
		s := startSwift("swift")
		s.OnAck(sec, 1, delay)
		require.InDelta(t, 512*left, s.window, 1e-6, "delay %d", delay)
		s.OnAck(sec+delay-1, 1, delay)
		require.InDelta(t, 512*left, s.window, 1e-6, "once in a round trip")
		s.OnAck(sec+delay, 1, delay)
		require.InDelta(t, 512*left*left, s.window, 1e-6)
	}
}

// Losses take max_mdf, once in a round trip; five timeouts in a row all but stop.
func TestSwiftLoss(t *testing.T) {
	s := startSwift("swift,swift_max_mdf=25")
	s.OnAck(0, 1, 100*us)
	require.Equal(t, TakenForLoss, s.OnLoss(sec, LossNAK))
	require.InDelta(t, 384, s.window, 1e-9)
	s.OnLoss(sec+99*us, LossImplied)
	require.InDelta(t, 384, s.window, 1e-9)
	s.OnLoss(sec+100*us, LossImplied)
	require.InDelta(t, 288, s.window, 1e-9)
	now := 2 * sec
	for range 4 {
		now += sec
		s.OnLoss(now, LossTimeout)
	}
	require.InDelta(t, 288*math.Pow(0.75, 4), s.window, 1e-9)
	s.OnAck(now, 1, 0) // something came through
	for range 4 {
		now += sec
		s.OnLoss(now, LossTimeout)
	}
	require.Greater(t, s.window, 1.0)
	s.OnLoss(now+1, LossTimeout)
	require.InDelta(t, 0.001, s.window, 1e-12)
	require.Equal(t, 1, s.Window(now))
	require.Positive(t, s.Rate(now))
}

// A window of less than a packet is one packet and a rate.
func TestSwiftPacing(t *testing.T) {
	s := startSwift("swift")
	require.Zero(t, s.Rate(0))
	s.window, s.rtt = 0.25, aim
	require.Equal(t, 1, s.Window(0))
	// A packet of 4096 octets and its headers in four round trips.
	require.InEpsilon(t, (4096+60)*8/(4*200e-6), float64(s.Rate(0)), 1e-6)
	require.True(t, s.State(0).Limited)
	require.Equal(t, aim, s.State(0).RTT)
	s.OnAck(0, 1, 100*us)
	require.InDelta(t, 1.25, s.window, 1e-9, "ai for each packet, as for a window of one")
	require.Zero(t, s.Rate(0))
	for range 1000 {
		s.OnAck(int64(s.window*1e9), 1, 10*sec)
		s.cut = false
	}
	require.InDelta(t, 0.001, s.window, 1e-12, "no further")
	require.GreaterOrEqual(t, s.Rate(0), int64(1))
}

// It begins small and doubles, until the delay is there.
func TestSwiftBegins(t *testing.T) {
	s := startSwift("swift,window_initial=32")
	require.Equal(t, 8, s.Window(0))
	s.OnAck(0, 8, 100*us)
	require.Equal(t, 16, s.Window(0))
	s.OnAck(0, 16, 100*us)
	require.Equal(t, 32, s.Window(0))
	s.OnAck(0, 32, 250*us)
	w := s.window
	require.InDelta(t, 32*(1-0.8*0.2), w, 1e-9)
	s.OnAck(sec, s.Window(0), 100*us)
	require.InDelta(t, w+1, s.window, 0.05)

	s = startSwift("swift,window_initial=32,window=100")
	for range 10 {
		s.OnAck(0, 100, us)
	}
	require.Equal(t, 100, s.Window(0), "the window that is set")
	s = startSwift("swift,window_initial=1024")
	s.Start(0, Path{Limit: 0, MTU: 0})
	require.Equal(t, 1, s.Window(0))
}

// queue is a bottleneck of a fluid kind: each flow has a window in flight, what the
// line does not hold waits, and each sees the same delay once in a round trip, but
// for 5 % of noise: at a delay of exactly the target nobody would move, whatever
// the shares.
func queue(flows []*Swift, packetsPerSec, base float64, seconds float64, start []float64) (delay float64, share []float64) {
	share = make([]float64, len(flows))
	next := make([]float64, len(flows))
	rnd := rand.New(rand.NewPCG(uint64(len(flows)), 7))
	copy(next, start)
	var delays, n float64
	for now := 0.0; now < seconds; now += base / 10 {
		inFlight := 0.0
		for i, s := range flows {
			if now >= start[i] {
				inFlight += s.window
			}
		}
		rtt := math.Max(base, inFlight/packetsPerSec)
		for i, s := range flows {
			if now < start[i] {
				continue
			}
			if now > seconds/2 {
				share[i] += s.window / rtt * base / 10
			}
			if now >= next[i] {
				next[i] = now + rtt*(0.9+0.2*rnd.Float64()) // or they sample in step
				s.OnAck(int64(now*1e9), max(1, int(s.window)), int64(rtt*1e9*(0.95+0.1*rnd.Float64())))
			}
		}
		if now > seconds/2 {
			delays += rtt
			n++
		}
	}
	return delays / n, share
}

// Flows through one queue share it, and its delay is the target's: what the paper
// builds on. One that comes later gets as much.
func TestSwiftConverges(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8} {
		const line, base = 10e9 / 8 / 4156, 50e-6 // packets a second, seconds
		flows := make([]*Swift, n)
		start := make([]float64, n)
		for i := range flows {
			flows[i] = startSwift("swift")
			flows[i].window = 1 + 20*float64(i)
			start[i] = float64(i) * 0.01
		}
		delay, share := queue(flows, line, base, 2, start)
		var sum, squares float64
		for _, v := range share {
			sum += v
			squares += v * v
		}
		jain := sum * sum / float64(n) / squares
		t.Logf("%d flows: delay %.0f us, Jain %.4f, utilisation %.3f", n, delay*1e6, jain, sum/line)
		require.Greater(t, jain, 0.95)
		require.InDelta(t, 200e-6, delay, 40e-6)
		require.Greater(t, sum/line, 0.95)
	}
}

// Nothing that comes makes a window of nonsense.
func FuzzSwift(f *testing.F) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		ops := make([]byte, 300)
		for i := range ops {
			ops[i] = byte(rnd.Uint32())
		}
		f.Add(rnd.Uint32(), rnd.Uint32(), rnd.Uint32(), rnd.Uint32(), ops)
	}
	f.Fuzz(func(t *testing.T, target, ai, beta, mdf uint32, ops []byte) {
		c := Default()
		c.SwiftBaseTarget, c.SwiftAI, c.SwiftBeta, c.SwiftMaxMDF = 1+int(target%maxUsec), 1+int(ai%maxPkts), 1+int(beta%1000), 1+int(mdf%99)
		require.NoError(t, c.Check())
		s := NewSwift(&c)
		s.Start(0, Path{Limit: int(target % 2000), MTU: int(ai % 4097)})
		now := int64(0)
		for _, op := range ops {
			now += []int64{0, 1, us, ms, sec, 3600 * sec}[int(op>>5)%6]
			switch op % 4 {
			case 0:
				s.OnLoss(now, Loss(op>>2)%3)
			case 1:
				s.OnAck(now, int(op), 0)
			default:
				s.OnAck(now, 1+int(op>>3), 1+int64(op)*int64(op)*int64(target%100000))
			}
			require.GreaterOrEqual(t, s.Window(now), 1)
			require.LessOrEqual(t, float64(s.Window(now)), s.limit)
			require.True(t, s.window >= swiftMin && s.window <= s.limit, "window %v", s.window)
			if s.window < 1 {
				require.Positive(t, s.Rate(now))
			} else {
				require.Zero(t, s.Rate(now))
			}
		}
	})
}
