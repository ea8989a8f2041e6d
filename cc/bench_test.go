package cc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is called for each packet or burst allocates nothing.
func TestAllocs(t *testing.T) {
	for _, alg := range []string{AlgDCQCN, AlgNone, AlgWindow, AlgSwift} {
		c := Default()
		c.Algorithm = alg
		k := New(&c)
		k.Start(0, Path{Limit: 512, MTU: 4096, Line: 10e9})
		var p Pacer
		now := int64(0)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			now += 10 * us
			k.OnCNP(now)
			k.OnMark(now)
			k.OnSent(now, 65536)
			k.OnAck(now, 16, 100*us)
			k.OnLoss(now, LossNAK)
			_ = k.Window(now)
			_ = k.State(now)
			p.Sent(max(now, p.Next()), 65536, max(1e9, k.Rate(now)), LateControl)
		}), alg)
	}
}

// limited is a flow whose rate stays limited.
func limited(b *testing.B) *DCQCN {
	c := Default()
	c.RPAIRate, c.RPHAIRate, c.RPClampTgtRate = 1, 1, true
	d := NewDCQCN(&c)
	d.Start(0, Path{Limit: 512, MTU: 4096, Line: 400e9})
	for i := range int64(20) {
		d.OnCNP(i * 10 * us)
	}
	b.ReportAllocs()
	return d
}

func BenchmarkRateUnlimited(b *testing.B) {
	d := startDCQCN(new(Default()), 10e9)
	b.ReportAllocs()
	for b.Loop() {
		d.Rate(0)
	}
}

// Rate 1 us, 100 us and 10 ms after the last question: as many periods of alpha.
func BenchmarkRate(b *testing.B) {
	for name, step := range map[string]int64{"1us": us, "100us": 100 * us, "10ms": 10 * ms} {
		b.Run(name, func(b *testing.B) {
			d := limited(b)
			saved := *d
			now := int64(200 * us)
			for i := 0; b.Loop(); i++ {
				if i%1000 == 0 {
					*d, now = saved, 200*us // before it is released
				}
				now += step
				d.Rate(now)
			}
		})
	}
}

func BenchmarkOnSent(b *testing.B) {
	d := limited(b)
	saved := *d
	for i := 0; b.Loop(); i++ {
		if i%1000 == 0 {
			*d = saved
		}
		d.OnSent(200*us, 4156)
	}
}

func BenchmarkOnCNP(b *testing.B) {
	d := limited(b)
	for now := int64(200 * us); b.Loop(); now += 10 * us {
		d.OnCNP(now)
	}
}

func BenchmarkHourOfSilence(b *testing.B) {
	d := limited(b)
	saved := *d
	for b.Loop() {
		*d = saved
		d.Rate(3600 * sec)
	}
}

func BenchmarkPacer(b *testing.B) {
	b.ReportAllocs()
	var p Pacer
	for b.Loop() {
		p.Sent(p.Next(), 65536, 10e9, LateControl)
	}
}

func BenchmarkSwift(b *testing.B) {
	s := startSwift("swift")
	b.ReportAllocs()
	for now := int64(0); b.Loop(); now += us {
		s.OnAck(now, 16, 150*us+now%(100*us))
	}
}
