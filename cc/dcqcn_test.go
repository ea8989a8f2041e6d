package cc

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	us  = int64(1e3)
	ms  = int64(1e6)
	sec = int64(1e9)
)

// reference is the same reaction point written the long way: each period of alpha
// and each time that the timer ends is an event of its own, in order, and the
// formulas are the paper's (section 3.1, with g = 1 - rp_dce_tcp_g/1024). What
// belongs to neither, the release within a thousandth of the line and the clamp
// rules, is as Config and the type's comment say it.
type reference struct {
	c    *Config
	line float64

	limited       bool
	rc, rt, alpha float64
	nextAlpha     int64
	nextTimer     int64
	lastCut       int64
	cnp           bool // in the present period of alpha
	byTimer       int
	byOctets      int
	octets        int
}

func (r *reference) g() float64 { return 1 - float64(r.c.RPDCETCPG)/1024 }

func (r *reference) bound(v float64) float64 {
	return math.Max(float64(r.c.RPMinRate)*1e6, math.Min(r.line, v))
}

// until lives through all that happens by itself up to a time.
func (r *reference) until(now int64) {
	for r.limited {
		switch {
		case r.nextAlpha <= r.nextTimer && r.nextAlpha <= now:
			r.alpha *= 1 - r.g()
			if r.cnp {
				r.alpha += r.g()
			}
			r.cnp = false
			r.nextAlpha += int64(r.c.RPDCETCPRTT) * us
		case r.nextTimer <= now:
			r.byTimer++
			r.nextTimer += int64(r.c.RPTimeReset) * us
			r.grow()
		default:
			return
		}
	}
}

func (r *reference) grow() {
	t, b, f := r.byTimer, r.byOctets, r.c.RPThreshold
	hyper := t > f && b > f
	if r.c.RPByteReset == 0 {
		hyper = t > f+1 // the timer alone: one additive increase, then hyper ones
	}
	if hyper {
		r.rt += float64(r.c.RPHAIRate) * 1e6
	} else if t > f || b > f {
		r.rt += float64(r.c.RPAIRate) * 1e6
	}
	r.rt = math.Min(r.rt, r.line)
	r.rc = (r.rc + r.rt) / 2
	if r.rc >= r.line*1023/1024 {
		r.limited = false
	}
}

func (r *reference) sent(now int64, octets int) {
	r.until(now)
	if !r.limited || r.c.RPByteReset == 0 {
		return
	}
	r.octets += octets
	for r.limited && r.octets >= r.c.RPByteReset {
		r.octets -= r.c.RPByteReset
		r.byOctets++
		r.grow()
	}
}

func (r *reference) notified(now int64) {
	r.until(now)
	first := !r.limited
	if first {
		*r = reference{c: r.c, line: r.line, limited: true, rc: r.line, rt: r.line, alpha: float64(r.c.RPInitialAlphaValue) / 1024}
		if v := r.c.RPRateToSetOnFirstCNP; v != 0 {
			r.rc = r.bound(float64(v) * 1e6)
			r.rt = r.rc
		}
		r.nextAlpha = now + int64(r.c.RPDCETCPRTT)*us
	}
	r.cnp = true
	if !first && now < r.lastCut+int64(r.c.RPRateReduceMonitorPeriod)*us {
		return
	}
	grown := r.byOctets > 0 || r.c.RPClampTgtRateATI && r.byTimer > 0
	if r.c.RPClampTgtRate || grown {
		r.rt = r.rc
	}
	cut := r.alpha * 1024 / math.Exp2(float64(r.c.RPGD)) // alpha/2 with rp_gd of 11
	cut = math.Min(cut, 1-float64(r.c.RPMinDecFac)/100)
	r.rc = r.bound(r.rc * (1 - cut))
	r.rt = math.Max(r.rt, r.rc)
	r.lastCut, r.nextTimer = now, now+int64(r.c.RPTimeReset)*us
	r.byTimer, r.byOctets, r.octets = 0, 0, 0
}

func (r *reference) rate() float64 {
	if r.limited {
		return r.rc
	}
	return r.line
}

// agree compares the two at a time.
func (r *reference) agree(t *testing.T, now int64, d *DCQCN) {
	t.Helper()
	r.until(now)
	s := d.State(now)
	got := float64(s.Rate)
	if got == 0 {
		got = r.line
	}
	require.InEpsilon(t, r.rate(), got, 0.01, "rate at %d ns", now)
	require.Equal(t, r.limited, s.Limited, "limited at %d ns: %v of %v", now, r.rc, r.line)
	if r.limited {
		require.InDelta(t, r.alpha, s.Alpha, 0.01*r.alpha+1e-12, "alpha at %d ns", now)
		require.InEpsilon(t, r.rt, float64(s.Target), 0.01, "target at %d ns", now)
	}
}

func profile(t testing.TB, name string) *Config {
	c := Default()
	require.NoError(t, c.SetProfile(name))
	return &c
}

func startDCQCN(c *Config, line int64) *DCQCN {
	d := NewDCQCN(c)
	d.Start(0, Path{Limit: 512, MTU: 4096, Line: line})
	return d
}

// variants are the profiles, and what their switches make of them.
func variants(t testing.TB) map[string]*Config {
	all := map[string]*Config{}
	for _, name := range Profiles {
		all[name] = profile(t, name)
		for _, v := range []string{
			"rp_clamp_tgt_rate=0,rp_clamp_tgt_rate_ati=0", "rp_clamp_tgt_rate=0,rp_clamp_tgt_rate_ati=1", "rp_clamp_tgt_rate=1", "rp_byte_reset=0", "rp_byte_reset=1500",
			"rp_gd=10", "rp_gd=15", "rp_min_dec_fac=90", "rp_rate_to_set_on_first_cnp=1000", "rp_max_rate=5000", "rp_rate_reduce_monitor_period=1000", "rp_dce_tcp_g=1,rp_dce_tcp_rtt=1000", "rp_initial_alpha_value=100", "rp_threshold=31", "rp_ai_rate=100,rp_hai_rate=900",
		} {
			c := *all[name]
			require.NoError(t, c.Parse(v))
			all[name+","+v] = &c
		}
	}
	return all
}

// Whatever comes, at whatever times, and however seldom anybody asks, the state is
// that of the reference.
func TestReference(t *testing.T) {
	const line = int64(10e9)
	for name, c := range variants(t) {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(9) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				longest := []float64{1e4, 1e6, 2e7}[seed%3] // ns between events
				events := []int{2000, 600, 100}[seed%3]
				seldom, often := startDCQCN(c, line), startDCQCN(c, line)
				ref := &reference{c: c, line: float64(line)}
				if c.RPMaxRate != 0 {
					ref.line = float64(c.RPMaxRate) * 1e6
				}
				for now := int64(0); events > 0; events-- {
					gap := int64(math.Exp(rnd.Float64() * math.Log(longest)))
					for ask := now; longest < 1e7 && ask < now+gap; ask += 1 + rnd.Int64N(gap) {
						often.Rate(ask)
					}
					now += gap
					switch rnd.IntN(4) {
					case 0:
						for _, d := range []*DCQCN{seldom, often} {
							d.OnCNP(now)
						}
						ref.notified(now)
					case 1:
						octets := 1 + rnd.IntN(65536)
						for _, d := range []*DCQCN{seldom, often} {
							d.OnSent(now, octets)
						}
						ref.sent(now, octets)
					case 2:
						ref.agree(t, now, seldom)
						ref.agree(t, now, often)
					}
				}
			}
		})
	}
}

// A flow that sends as fast as it may, with notifications in bursts, has the same
// rate whether its owner comes by each microsecond, each 100 or each 10 000.
func TestStep(t *testing.T) {
	const line = int64(10e9)
	for _, name := range Profiles {
		c := profile(t, name)
		c.RPByteReset = 0
		ref := &reference{c: c, line: float64(line)}
		steps := []int64{us, 7 * us, 100 * us, 10 * ms}
		flows := make([]*DCQCN, len(steps))
		for i := range flows {
			flows[i] = startDCQCN(c, line)
		}
		for now := int64(0); now < 500*ms; now += us {
			cnp := now%(50*ms) < 100*us && now%(50*us) == 0
			if cnp {
				ref.notified(now)
			}
			for i, d := range flows {
				if cnp {
					d.OnCNP(now)
				}
				if now%steps[i] == 0 {
					d.Rate(now)
				}
			}
			if now%(10*ms) == 0 {
				for _, d := range flows {
					ref.agree(t, now, d)
				}
			}
		}
	}
}

// Octets that are told of in a lump, after a step, bring the rate to where it
// would be if each packet had been told of: no higher, and no lower than a step
// ago.
func TestStepOfOctets(t *testing.T) {
	const line = int64(100e9)
	for _, name := range []string{"mlx5", "paper"} {
		for _, step := range []int64{10 * us, 100 * us} {
			c := profile(t, name)
			c.RPClampTgtRate = true
			fine, coarse := startDCQCN(c, line), startDCQCN(c, line)
			for now := range int64(4) {
				fine.OnCNP(now * 50 * us)
				coarse.OnCNP(now * 50 * us)
			}
			stepAgo, lump := 0.0, 0
			for now := 200 * us; fine.State(now).Limited; now += us {
				octets := int(fine.Rate(now) / 8 * us / sec) // the same for both
				fine.OnSent(now, octets)
				if (now-200*us)%step != step-us {
					lump += octets
					continue
				}
				coarse.OnSent(now, lump+octets)
				lump = 0
				if f, d := fine.State(now), coarse.State(now); f.Limited && d.Limited {
					require.LessOrEqual(t, float64(d.Rate), float64(f.Rate)*1.01, "%s: %d ns, steps of %d", name, now, step)
					require.GreaterOrEqual(t, float64(d.Rate), stepAgo*0.99, "%s: %d ns, steps of %d", name, now, step)
					stepAgo = float64(f.Rate)
				}
			}
		}
	}
}

// Without notifications alpha after n periods is alpha0 * g^n; with one in each it
// is 1 - (1-alpha0) * g^n.
func TestAlpha(t *testing.T) {
	for _, name := range Profiles {
		c := profile(t, name)
		c.RPTimeReset, c.RPByteReset = maxUsec, 0 // it stays limited
		g, period, alpha0 := float64(c.RPDCETCPG)/1024, int64(c.RPDCETCPRTT)*us, float64(c.RPInitialAlphaValue)/1024
		for _, n := range []int64{1, 2, 3, 10, 100, 1000} {
			d := startDCQCN(c, 400e9)
			d.OnCNP(0) // which marks the first period
			want := (1 - g*(1-alpha0)) * math.Pow(g, float64(n-1))
			require.InEpsilon(t, want, d.State(n*period).Alpha, 1e-9, "%s: %d periods without", name, n)
			require.InEpsilon(t, want, d.State((n+1)*period-1).Alpha, 1e-9)

			d.Start(0, d.path)
			for i := range n {
				d.OnCNP(i * period)
			}
			require.InEpsilon(t, 1-(1-alpha0)*math.Pow(g, float64(n)), d.State(n*period).Alpha, 1e-9, "%s: %d periods with", name, n)
		}
	}
}

// The numbers of one cycle, worked out by hand with the paper's formulas: at 40
// Gb/s the first notification halves, fast recovery halves the distance five
// times, then 40 Mb/s are added.
func TestCycle(t *testing.T) {
	c := profile(t, "paper")
	c.RPInitialAlphaValue = 1023
	d := startDCQCN(c, 40e9)
	require.Zero(t, d.Rate(0), "without congestion there is no limit")
	d.OnCNP(0)
	half := 40e9 * (1 - 1023./2048)
	require.InEpsilon(t, half, float64(d.Rate(0)), 1e-9)
	d.OnCNP(50 * us) // alpha has not changed: its period is 55 us
	cut := half * (1 - 1023./2048)
	require.InEpsilon(t, cut, float64(d.Rate(50*us)), 1e-9)
	require.InEpsilon(t, half, float64(d.State(50*us).Target), 1e-9, "the target is the rate before the cut")
	rate, target := cut, half
	for i := range 5 {
		rate = (rate + target) / 2
		now := 50*us + int64(i+1)*55*us
		require.InEpsilon(t, rate, float64(d.Rate(now)), 1e-6, "fast recovery %d", i+1)
		require.InEpsilon(t, half, float64(d.State(now).Target), 1e-6)
	}
	for i := range 100 {
		target += 40e6
		rate = (rate + target) / 2
		require.InEpsilon(t, rate, float64(d.Rate(50*us+int64(i+6)*55*us)), 1e-6, "additive increase %d", i+1)
	}
}

// Timer and octets beyond the threshold make hyper increases; octets alone make
// additive ones.
func TestStages(t *testing.T) {
	c := profile(t, "mlx5") // threshold 1, 5 and 50 Mb/s
	c.RPClampTgtRate = true
	d := startDCQCN(c, 10e9)
	d.OnCNP(0)
	d.OnCNP(10 * us)
	now := 10 * us
	target := float64(d.State(now).Target)
	grows := func(mbit float64, why string) {
		t.Helper()
		got := float64(d.State(now).Target)
		require.InDelta(t, target+mbit*1e6, got, 2, why)
		target = got
	}
	d.OnSent(now, c.RPByteReset-1)
	grows(0, "an octet is missing")
	d.OnSent(now, 1)
	grows(0, "fast recovery by octets")
	d.OnSent(now, 2*c.RPByteReset)
	grows(2*5, "additive increase by octets, twice")
	now += 300 * us
	grows(5, "additive: the timer is not beyond the threshold")
	now += 300 * us
	grows(50, "hyper")
	d.OnSent(now, c.RPByteReset)
	grows(50, "hyper by octets")
	d.OnCNP(now)
	target = float64(d.State(now).Target)
	now += 300 * us
	grows(0, "a cut begins anew")
}

// When the target follows a cut.
func TestClamp(t *testing.T) {
	for _, v := range []struct {
		set           string
		timer, octets bool // what has increased the rate since the last cut
		follows       bool
	}{
		{"rp_clamp_tgt_rate=1,rp_clamp_tgt_rate_ati=0", false, false, true},
		{"rp_clamp_tgt_rate=0,rp_clamp_tgt_rate_ati=0", false, false, false},
		{"rp_clamp_tgt_rate=0,rp_clamp_tgt_rate_ati=0", true, false, false},
		{"rp_clamp_tgt_rate=0,rp_clamp_tgt_rate_ati=0", false, true, true},
		{"rp_clamp_tgt_rate=0,rp_clamp_tgt_rate_ati=1", false, false, false},
		{"rp_clamp_tgt_rate=0,rp_clamp_tgt_rate_ati=1", true, false, true},
		{"rp_clamp_tgt_rate=0,rp_clamp_tgt_rate_ati=1", false, true, true},
	} {
		t.Run(fmt.Sprintf("%s,timer=%v,octets=%v", v.set, v.timer, v.octets), func(t *testing.T) {
			c := profile(t, "mlx5")
			require.NoError(t, c.Parse(v.set))
			d := startDCQCN(c, 10e9)
			d.OnCNP(0)
			now := 10 * us
			if v.octets {
				d.OnSent(now, c.RPByteReset)
			}
			if v.timer {
				now = 310 * us
			}
			before, target := d.Rate(now), d.State(now).Target
			d.OnCNP(now)
			require.Less(t, d.Rate(now), before)
			if v.follows {
				require.Equal(t, before, d.State(now).Target)
			} else {
				require.Equal(t, target, d.State(now).Target)
			}
		})
	}
}

// Notifications in one monitor period cut once.
func TestMonitorPeriod(t *testing.T) {
	c := profile(t, "paper")
	d := startDCQCN(c, 40e9)
	d.OnCNP(0)
	once := d.Rate(0)
	for now := us; now < 50*us; now += us {
		d.OnCNP(now)
		require.Equal(t, once, d.Rate(now))
	}
	d.OnCNP(50 * us)
	require.Less(t, d.Rate(50*us), once)
}

// A flood of notifications ends at the minimum, and a cut takes no more than
// rp_min_dec_fac leaves.
func TestFlood(t *testing.T) {
	for name, c := range variants(t) {
		d := startDCQCN(c, 40e9)
		least := int64(c.RPMinRate) * 1e6
		before := int64(40e9)
		if c.RPMaxRate != 0 {
			before = int64(c.RPMaxRate) * 1e6
		}
		if c.RPRateToSetOnFirstCNP != 0 {
			before = int64(c.RPRateToSetOnFirstCNP) * 1e6
		}
		for now := int64(0); now < 10*ms; now += us {
			d.OnCNP(now)
			r := d.Rate(now)
			if r < least || float64(r) < float64(before)*float64(c.RPMinDecFac)/100-1 {
				require.Fail(t, "a cut too deep", "%s: from %d to %d", name, before, r)
			}
			before = r
		}
		if c.RPGD <= 11 && c.RPMinDecFac == 50 && c.RPRateReduceMonitorPeriod < 100 {
			require.Equal(t, least, d.Rate(10*ms), name)
		}
	}
}

// An hour of silence is over at once, and leaves no limit.
func TestSilence(t *testing.T) {
	const hour = 3600 * sec
	for name, c := range variants(t) {
		d := startDCQCN(c, 400e9)
		for i := range int64(1000) {
			d.OnCNP(i * 1000 * us)
		}
		require.True(t, d.State(999*ms).Limited, name)
		full := int64(c.RPMaxRate) * 1e6
		require.Equal(t, full, d.Rate(sec+hour), name)
		require.False(t, d.State(sec+hour).Limited, name)
		d.OnCNP(sec + hour)
		require.True(t, d.State(sec+hour).Limited, name)
	}
}

// Without reaction nothing reacts.
func TestDisabled(t *testing.T) {
	c := profile(t, "mlx5")
	c.RPEnable = false
	d := startDCQCN(c, 10e9)
	d.OnCNP(0)
	require.Equal(t, TakenForLoss, d.OnLoss(0, LossNAK))
	require.Zero(t, d.Rate(0))
	require.False(t, c.Reacts())
}

// NAKs cut the rate where that is wanted; other losses never do.
func TestSlowRestart(t *testing.T) {
	c := profile(t, "mlx5")
	c.RoCESlowRestart = true
	d := startDCQCN(c, 10e9)
	require.Equal(t, TakenForLoss, d.OnLoss(0, LossTimeout))
	require.Equal(t, TakenForLoss, d.OnLoss(0, LossImplied))
	require.Zero(t, d.Rate(0))
	require.Equal(t, SlowRestartBegins, d.OnLoss(0, LossNAK))
	require.InEpsilon(t, 5e9, float64(d.Rate(0)), 0.01)
	require.Equal(t, SlowRestart, d.OnLoss(10*us, LossNAK))
	require.Equal(t, SlowRestartBegins, d.OnLoss(3600*sec, LossNAK), "it had long ended")
	require.Equal(t, SlowRestart, d.OnLoss(3600*sec+10*us, LossNAK))
	c.RoCESlowRestart = false
	d.Start(0, d.path)
	require.Equal(t, TakenForLoss, d.OnLoss(0, LossNAK))
	require.Zero(t, d.Rate(0))
}

// Parameters may change while the rate is limited.
func TestConfigure(t *testing.T) {
	c := profile(t, "mlx5")
	d := startDCQCN(c, 10e9)
	d.OnCNP(0)
	faster := *c
	faster.RPMinRate = 9000
	d.Configure(us, &faster)
	require.Equal(t, int64(9e9), d.Rate(us))
	slower := *c
	slower.RPMaxRate = 100
	d.Configure(2*us, &slower)
	require.Equal(t, int64(100e6), d.Rate(2*us))
	d.Configure(3*us, c)
	require.Less(t, d.Rate(3*us), int64(101e6))
	require.Equal(t, int64(0), d.Rate(3600*sec))
}

// With parameters at and between the ends of their ranges, and events at any
// times: no panic, no endless loop, and the bounds hold.
func FuzzDCQCN(f *testing.F) {
	f.Add(uint64(0), []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	f.Add(uint64(12345), []byte{0xff, 0x80, 0, 0xff, 0x80, 0})
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		ops := make([]byte, 200)
		for i := range ops {
			ops[i] = byte(rnd.Uint32())
		}
		f.Add(seed, ops)
	}
	f.Fuzz(func(t *testing.T, seed uint64, ops []byte) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		any := func() *Config {
			for {
				c := Default()
				for i := range fields {
					switch p := &fields[i]; {
					case p.number != nil:
						at := p.number(&c)
						switch rnd.IntN(5) {
						case 0:
							*at = p.Low
						case 1:
							*at = p.High
						case 2:
							*at = p.Low + int(math.Exp(rnd.Float64()*math.Log(float64(p.High-p.Low+1)))) - 1
						}
					case p.flag != nil:
						*p.flag(&c) = rnd.IntN(4) != 0
					}
				}
				if c.Check() == nil {
					return &c
				}
			}
		}
		c := any()
		line := []int64{0, 1, 1e6, 10e9, 1600e9}[rnd.IntN(5)]
		d := NewDCQCN(c)
		d.Start(0, Path{Limit: rnd.IntN(1024), MTU: rnd.IntN(4097), Line: line})
		now := int64(0)
		for _, op := range ops {
			now += []int64{0, 1, 999, 10 * us, ms, sec, 3600 * sec}[int(op>>4)%7]
			switch op % 8 {
			case 0, 1:
				d.OnCNP(now)
			case 2:
				d.OnLoss(now, Loss(op>>3)%3)
			case 3:
				d.OnSent(now, int(op)<<8)
			case 4:
				d.OnAck(now, int(op>>3), 0)
			case 5:
				d.OnMark(now)
			case 6:
				if op>>4 == 15 {
					c = any()
					d.Configure(now, c)
				}
			}
			s := d.State(now)
			require.GreaterOrEqual(t, s.Window, 0)
			if !s.Limited {
				require.Equal(t, int64(c.RPMaxRate)*1e6, s.Rate)
				continue
			}
			require.GreaterOrEqual(t, s.Rate, int64(c.RPMinRate)*1e6)
			require.LessOrEqual(t, float64(s.Rate), d.line())
			require.GreaterOrEqual(t, s.Target, s.Rate)
			require.LessOrEqual(t, float64(s.Target), d.line())
			require.True(t, s.Alpha >= 0 && s.Alpha <= 1, "alpha %v", s.Alpha)
		}
	})
}

// TestDisabledWhileLimited: a limit ends when CNPs are not to slow it down any more.
func TestDisabledWhileLimited(t *testing.T) {
	c := Default()
	d := NewDCQCN(&c)
	d.Start(0, Path{Limit: 512, MTU: 1024, Line: 10e9})
	d.OnCNP(0)
	require.NotZero(t, d.Rate(0))
	off := c
	off.RPEnable = false
	d.Configure(0, &off)
	require.Zero(t, d.Rate(0))
	require.False(t, d.State(0).Limited)
}
