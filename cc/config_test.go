package cc

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProfiles(t *testing.T) {
	require.NoError(t, new(Default()).Check())
	for _, name := range Profiles {
		c := Default()
		c.Algorithm, c.Window, c.SwiftAI, c.NPCNPPacing, c.RoCESlowRestart = AlgSwift, 77, 5, PacingPort, false
		require.NoError(t, c.SetProfile(name))
		require.NoError(t, c.Check(), name)
		require.Equal(t, AlgDCQCN, c.Algorithm)
		require.Equal(t, 77, c.Window, "what is no parameter of DCQCN stays")
		require.Equal(t, 5, c.SwiftAI)
		require.Equal(t, PacingPort, c.NPCNPPacing)
		require.False(t, c.RoCESlowRestart)
	}
	require.Equal(t, Default(), *profile(t, "mlx5"))
	c := Default()
	err := c.SetProfile("cisco")
	require.ErrorContains(t, err, `"cisco"`)
	require.ErrorContains(t, err, strings.Join(Profiles, ", "))
	require.Equal(t, Default(), c)
}

// The published values, by the names that their sources give them.
func TestPublished(t *testing.T) {
	check := func(name string, want map[string]string) {
		c := profile(t, name)
		for field, v := range want {
			require.Equal(t, v, find(field).Get(c), "%s: %s", name, field)
		}
	}
	// mlxconfig -d DEVICE query, of a ConnectX-4 and later.
	check("mlx5", map[string]string{
		"rp_clamp_tgt_rate_ati": "1", "rp_clamp_tgt_rate": "0", "rp_time_reset": "300", "rp_byte_reset": "32767", "rp_threshold": "1",
		"rp_max_rate": "0", "rp_ai_rate": "5", "rp_hai_rate": "50", "rp_gd": "11", "rp_min_dec_fac": "50", "rp_min_rate": "1",
		"rp_rate_to_set_on_first_cnp": "0", "rp_dce_tcp_g": "1019", "rp_dce_tcp_rtt": "1", "rp_rate_reduce_monitor_period": "4",
		"rp_initial_alpha_value": "1023", "np_min_time_between_cnps": "4", "np_cnp_prio": "6", "np_cnp_dscp": "48",
	})
	// SIGCOMM 2015, section 5.2 and figure 14: timer 55 us, byte counter 10 MB, g
	// of 1/256, F of 5, R_AI of 40 Mb/s, a notification each 50 us.
	check("paper", map[string]string{
		"rp_clamp_tgt_rate": "1", "rp_time_reset": "55", "rp_byte_reset": "10000000", "rp_threshold": "5", "rp_ai_rate": "40",
		"rp_dce_tcp_g": strconv.Itoa(1024 - 1024/256), "rp_dce_tcp_rtt": "55", "np_min_time_between_cnps": "50",
	})
	// Attributes of ns3::RdmaHw: EwmaGain, ClampTargetRate, RPTimer,
	// RateDecreaseInterval, FastRecoveryTimes, AlphaResumInterval, RateAI, RateHAI,
	// MinRate.
	check("ns3", map[string]string{
		"rp_dce_tcp_g": strconv.Itoa(1024 - 1024/16), "rp_clamp_tgt_rate": "0", "rp_time_reset": "1500", "rp_rate_reduce_monitor_period": "4",
		"rp_threshold": "5", "rp_dce_tcp_rtt": "55", "rp_ai_rate": "5", "rp_hai_rate": "50", "rp_min_rate": "100", "rp_byte_reset": "0",
	})
}

// Each field takes the ends of its range, and refuses what is just outside with
// its name, its range and its unit.
func TestRanges(t *testing.T) {
	names := map[string]bool{}
	for i := range Fields() {
		f := &Fields()[i]
		require.False(t, names[f.Name], "%s twice", f.Name)
		names[f.Name] = true
		require.NotEmpty(t, f.Help, f.Name)
		refused := func(v string) {
			t.Helper()
			c := Default()
			err := c.Set(f.Name, v)
			require.ErrorContains(t, err, f.Name)
			require.ErrorContains(t, err, strconv.Quote(v))
			require.ErrorContains(t, err, f.Range())
			require.Equal(t, Default(), c, "nothing is changed")
		}
		takes := func(v string) {
			t.Helper()
			c := Default()
			require.NoError(t, c.Set(f.Name, v))
			require.Equal(t, v, f.Get(&c))
		}
		switch {
		case f.number != nil:
			require.NotEmpty(t, f.Unit, f.Name)
			require.Contains(t, f.Range(), f.Unit)
			require.Less(t, f.Low, f.High)
			takes(strconv.Itoa(f.Low))
			takes(strconv.Itoa(f.High))
			for _, v := range []int{f.Low - 1, f.High + 1, -1 << 62, 1 << 62} {
				refused(strconv.Itoa(v))
				c := Default()
				*f.number(&c) = v
				err := c.Check()
				require.ErrorContains(t, err, f.Name)
				require.ErrorContains(t, err, f.Range())
			}
			for _, v := range []string{"", "x", "1.5", "0x10", "99999999999999999999", " 1", "1 "} {
				refused(v)
			}
		case f.flag != nil:
			takes("0")
			takes("1")
			for _, v := range []string{"", "2", "-1", "yes", "TRUE"} {
				refused(v)
			}
			c := Default()
			require.NoError(t, c.Set(f.Name, "on"))
			require.True(t, *f.flag(&c))
			require.NoError(t, c.Set(f.Name, "false"))
			require.False(t, *f.flag(&c))
		default:
			for _, v := range f.Of {
				takes(v)
			}
			for _, v := range []string{"", "x", strings.ToUpper(f.Of[0])} {
				refused(v)
				c := Default()
				*f.choice(&c) = v
				require.ErrorContains(t, c.Check(), f.Name)
			}
		}
	}
	c := Default()
	err := c.Set("rp_speed", "1")
	require.ErrorContains(t, err, `"rp_speed"`)
	require.ErrorContains(t, err, "rp_ai_rate")
}

// What is set is what is read, and a configuration is the sum of its fields.
func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c, again := Default(), Default()
		var list []string
		for i := range fields {
			f := &fields[i]
			switch {
			case f.number != nil:
				*f.number(&c) = f.Low + rnd.IntN(f.High-f.Low+1)
			case f.flag != nil:
				*f.flag(&c) = rnd.IntN(2) == 0
			default:
				*f.choice(&c) = f.Of[rnd.IntN(len(f.Of))]
			}
			list = append(list, f.Name+"="+f.Get(&c))
		}
		if c.RPMaxRate < c.RPMinRate {
			require.ErrorContains(t, again.Parse(strings.Join(list, ",")), "rp_min_rate")
			require.Equal(t, Default(), again)
			continue
		}
		require.NoError(t, again.Parse(strings.Join(list, ",")))
		require.Equal(t, c, again)
	}
}

func TestParse(t *testing.T) {
	c := Default()
	require.NoError(t, c.Parse("swift, swift_ai=7 ,rp_ai_rate=10"))
	require.Equal(t, AlgSwift, c.Algorithm)
	require.Equal(t, 7, c.SwiftAI)
	require.Equal(t, 10, c.RPAIRate)
	require.NoError(t, c.Parse("profile=paper,rp_ai_rate=11"))
	require.Equal(t, AlgDCQCN, c.Algorithm)
	require.Equal(t, 11, c.RPAIRate)
	require.Equal(t, 55, c.RPTimeReset)
	require.NoError(t, c.Parse("none"))
	require.Equal(t, AlgNone, c.Algorithm)
	// Parameters that must agree are looked at when all are there.
	require.NoError(t, c.Parse("rp_max_rate=100,rp_min_rate=50"))
	require.NoError(t, c.Parse("rp_min_rate=500,algorithm=dcqcn,rp_max_rate=1000"))

	before := c
	for list, says := range map[string]string{
		"":                                 "dcqcn, none, window, swift",
		"bbr":                              `algorithm of "bbr"`,
		"dcqcn,swift":                      "name=value",
		"rp_ai_rate":                       "has no value",
		"rp_ai_rate=1,rp_hai_rate=0":       "1 to 1600000 Mb/s",
		"rp_ai_rate=1,,rp_hai_rate=1":      "name=value",
		"rp_ai_rate=1,rp_min_rate=2000":    "rp_min_rate of 2000 Mb/s is above rp_max_rate of 1000 Mb/s",
		"rp_ai_rate=1,profile=none":        "mlx5, paper, ns3",
		"rp_ai_rate=1,rp_time_reset=0":     "1 to 10000000 us",
		"rp_ai_rate=1,rp_dce_tcp_g=1024":   "1 to 1023 1/1024",
		"rp_ai_rate=1,algorithm=dcqcn=yes": `"dcqcn=yes"`,
	} {
		require.ErrorContains(t, c.Parse(list), says, list)
		require.Equal(t, before, c, "%q: nothing is changed", list)
	}
}

// The kind of controller is that of the configuration.
func TestNew(t *testing.T) {
	for alg, want := range map[string]Controller{AlgDCQCN: &DCQCN{}, AlgNone: &Adaptive{}, AlgWindow: &Fixed{}, AlgSwift: &Swift{}} {
		c := Default()
		c.Algorithm = alg
		require.IsType(t, want, New(&c), alg)
		require.Equal(t, alg == AlgDCQCN, c.Reacts())
	}
}

func TestFixed(t *testing.T) {
	f := NewFixed(0)
	f.Start(0, Path{Limit: 100})
	require.Equal(t, 100, f.Window(0))
	f = NewFixed(300)
	f.Start(0, Path{Limit: 100})
	require.Equal(t, 100, f.Window(0), "no more than the path bears")
	f.Configure(0, &Config{Window: 7})
	f.OnLoss(0, LossNAK)
	f.OnCNP(0)
	f.OnMark(0)
	f.OnSent(0, 1<<20)
	f.OnAck(0, 1000, 1)
	require.Equal(t, State{Window: 7}, f.State(0))
	require.Zero(t, f.Rate(0))
}
