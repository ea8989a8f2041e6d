package cc

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func startHeedful(limit int) *heedful {
	h := new(heedful)
	h.Start(0, Path{Limit: limit})
	return h
}

// The first notification halves the window at once, a windowful without one adds a
// packet, and the share is averaged with a weight of 1/16 (RFC 8257, 3.3 and 4.2).
func TestHeedful(t *testing.T) {
	h := startHeedful(512)
	h.tell()
	require.Equal(t, 256, h.Window(0))
	h.tell()
	require.Equal(t, 256, h.Window(0), "once in a windowful")
	for range 255 {
		h.OnAck(0, 1, 0)
		require.Equal(t, 256, h.Window(0))
	}
	h.OnAck(0, 1, 0)
	require.Equal(t, 256, h.Window(0), "it does not grow with a windowful that had some")
	share := 1 + (2./256-1)/16
	require.InDelta(t, share, h.share, 1e-9)

	for range 20 {
		before := h.Window(0)
		h.OnAck(0, before, 0)
		share *= 15. / 16
		require.InDelta(t, share, h.share, 1e-9)
		require.Equal(t, before+1, h.Window(0))
	}
	before := float64(h.Window(0))
	h.tell()
	require.InDelta(t, before*(1-share/2), float64(h.Window(0)), 0.51)
}

// A notification for each packet brings the window to two packets; then silence
// brings it back to the limit, and no further.
func TestHeedfulEnds(t *testing.T) {
	h := startHeedful(64)
	for range 100 {
		w := h.Window(0)
		for range w {
			h.tell()
			h.OnAck(0, 1, 0)
		}
		require.LessOrEqual(t, h.Window(0), w)
	}
	require.Equal(t, 2, h.Window(0))
	for h.Window(0) < 64 {
		require.True(t, h.heeds)
		before := h.Window(0)
		h.OnAck(0, before, 0)
		require.LessOrEqual(t, h.Window(0), before+1)
	}
	require.Equal(t, 64, h.Window(0))
	require.False(t, h.heeds, "it is whole")
	h.OnAck(0, 1000, 0)
	require.Equal(t, 64, h.Window(0))
	h.OnLoss(0, LossNAK)
	require.Equal(t, 32, h.Window(0))
	h.OnAck(0, 32, 0)
	require.Equal(t, 36, h.Window(0), "without notifications it grows as ever")

	one := startHeedful(1)
	one.tell()
	one.OnAck(0, 1, 0)
	require.Equal(t, 1, one.Window(0))
}

// With a constant probability p of a notification for each packet the window stays
// where the gain of windowfuls without one is the loss of those with one: the share
// is p on average, so (1-p)^w = (1 - (1-p)^w) * w*p/2.
func TestHeedfulBalance(t *testing.T) {
	for _, p := range []float64{0.003, 0.01, 0.03, 0.1} {
		low, high := 1.0, 5000.0
		for range 60 {
			w := (low + high) / 2
			if none := math.Pow(1-p, w); none > (1-none)*w*p/2 {
				low = w
			} else {
				high = w
			}
		}
		h := startHeedful(5000)
		rnd := rand.New(rand.NewPCG(1, 2))
		var sum, n float64
		for i := range 4_000_000 {
			if rnd.Float64() < p {
				h.tell()
			}
			h.OnAck(0, 1, 0)
			if i > 1_000_000 {
				sum += 1 / float64(h.window) // packets: their mean weight is a windowful
				n++
			}
		}
		t.Logf("p %.3f: window %.1f, balance %.1f", p, n/sum, low)
		require.InEpsilon(t, low, n/sum, 0.15)
	}
}

// What of it a device can be told to leave.
func TestWindowCNP(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		c := Default()
		c.WindowCNP = heeds
		d := startDCQCN(&c, 10e9)
		require.Equal(t, 8, d.Window(0), "32 KiB to begin with")
		d.OnAck(0, 8, 0)
		require.Equal(t, 16, d.Window(0), "it doubles")
		d.OnMark(0)
		if heeds {
			require.Equal(t, 8, d.Window(0))
			continue
		}
		d.OnAck(0, 16, 0)
		require.Equal(t, 18, d.Window(0), "an eighth more, not twice as much")
	}
}
