package cc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Field is a parameter of Config as a program's user sees it.
type Field struct {
	Name, Help string
	Unit       string
	Low, High  int      // of a number
	Of         []string // what a choice is among

	number func(*Config) *int
	flag   func(*Config) *bool
	choice func(*Config) *string
}

// Fields returns all parameters, in the order to show them in.
func Fields() []Field { return fields }

const (
	maxMbit = 1_600_000  // 1.6 Tb/s
	maxUsec = 10_000_000 // 10 s
	maxByte = 1 << 30    // 1 GiB
	maxPkts = 1 << 20    // packets
)

func num(name, unit string, low, high int, help string, at func(*Config) *int) Field {
	return Field{Name: name, Unit: unit, Low: low, High: high, Help: help, number: at}
}

func oneOf(name, help string, at func(*Config) *string, of ...string) Field {
	return Field{Name: name, Help: help, Of: of, choice: at}
}

func onOff(name, help string, at func(*Config) *bool) Field {
	return Field{Name: name, Help: help, flag: at}
}

var fields = []Field{
	oneOf("algorithm", "how a queue pair reacts to congestion", func(c *Config) *string { return &c.Algorithm }, AlgDCQCN, AlgNone, AlgWindow, AlgSwift),
	num("window", "packets", 0, maxPkts, "in flight at most; 0: what the peer's receive buffer is taken to bear", func(c *Config) *int { return &c.Window }),
	num("window_initial", "KiB", 0, maxPkts, "of it to begin with, under dcqcn and swift; 0: all", func(c *Config) *int { return &c.WindowInitial }),
	onOff("window_cnp", "CNPs make it smaller, under dcqcn", func(c *Config) *bool { return &c.WindowCNP }),
	onOff("rp_enable", "CNPs slow a queue pair down", func(c *Config) *bool { return &c.RPEnable }),
	onOff("rp_clamp_tgt_rate", "each cut moves the target rate too", func(c *Config) *bool { return &c.RPClampTgtRate }),
	onOff("rp_clamp_tgt_rate_ati", "it does when the rate has grown by the timer since the last cut", func(c *Config) *bool { return &c.RPClampTgtRateATI }),
	num("rp_time_reset", "us", 1, maxUsec, "between increases of the rate", func(c *Config) *int { return &c.RPTimeReset }),
	num("rp_byte_reset", "octets", 0, maxByte, "between increases of the rate; 0: they are not counted", func(c *Config) *int { return &c.RPByteReset }),
	num("rp_threshold", "increases", 1, 31, "that only recover the target rate", func(c *Config) *int { return &c.RPThreshold }),
	num("rp_ai_rate", "Mb/s", 1, maxMbit, "that the target rate grows by after that", func(c *Config) *int { return &c.RPAIRate }),
	num("rp_hai_rate", "Mb/s", 1, maxMbit, "that it grows by when timer and octets are beyond the threshold", func(c *Config) *int { return &c.RPHAIRate }),
	num("rp_max_rate", "Mb/s", 0, maxMbit, "highest rate; 0: that of the line", func(c *Config) *int { return &c.RPMaxRate }),
	num("rp_min_dec_fac", "percent", 1, 100, "of the rate that a cut leaves at least", func(c *Config) *int { return &c.RPMinDecFac }),
	num("rp_min_rate", "Mb/s", 1, maxMbit, "lowest rate", func(c *Config) *int { return &c.RPMinRate }),
	num("rp_rate_to_set_on_first_cnp", "Mb/s", 0, maxMbit, "rate that the first cut begins at; 0: that of the line", func(c *Config) *int { return &c.RPRateToSetOnFirstCNP }),
	num("rp_dce_tcp_g", "1/1024", 1, 1023, "of alpha that is left after each period", func(c *Config) *int { return &c.RPDCETCPG }),
	num("rp_dce_tcp_rtt", "us", 1, maxUsec, "period of alpha", func(c *Config) *int { return &c.RPDCETCPRTT }),
	num("rp_rate_reduce_monitor_period", "us", 1, maxUsec, "between cuts at least", func(c *Config) *int { return &c.RPRateReduceMonitorPeriod }),
	num("rp_initial_alpha_value", "1/1024", 1, 1023, "alpha at the first CNP", func(c *Config) *int { return &c.RPInitialAlphaValue }),
	num("rp_gd", "log2", 0, 15, "a cut is by alpha (in 1/1024) shifted right by this", func(c *Config) *int { return &c.RPGD }),
	onOff("np_enable", "packets marked CE make CNPs", func(c *Config) *bool { return &c.NPEnable }),
	num("np_min_time_between_cnps", "us", 0, maxUsec, "to one pacing key", func(c *Config) *int { return &c.NPMinTimeBetweenCNPs }),
	oneOf("np_cnp_pacing", "what a pacing key is", func(c *Config) *string { return &c.NPCNPPacing }, PacingQP, PacingDestination, PacingPort),
	num("np_cnp_dscp", "DSCP", 0, 63, "of CNPs", func(c *Config) *int { return &c.NPCNPDSCP }),
	num("np_cnp_prio", "service level", 0, 7, "of CNPs", func(c *Config) *int { return &c.NPCNPPrio }),
	onOff("roce_slow_restart", "losses count as congestion: NAKs bring CNPs along, and cut the rate", func(c *Config) *bool { return &c.RoCESlowRestart }),
	num("swift_base_target", "us", 1, maxUsec, "delay that is aimed at", func(c *Config) *int { return &c.SwiftBaseTarget }),
	num("swift_ai", "1/100 packets", 1, maxPkts, "that the window grows by in a round trip", func(c *Config) *int { return &c.SwiftAI }),
	num("swift_beta", "percent", 1, 1000, "that it shrinks by, in proportion to the delay beyond the target", func(c *Config) *int { return &c.SwiftBeta }),
	num("swift_max_mdf", "percent", 1, 99, "that it shrinks at most", func(c *Config) *int { return &c.SwiftMaxMDF }),
}

func find(name string) *Field {
	for i := range fields {
		if fields[i].Name == name {
			return &fields[i]
		}
	}
	return nil
}

// Range says what values a parameter takes.
func (f *Field) Range() string {
	switch {
	case f.flag != nil:
		return "0 or 1"
	case f.choice != nil:
		return strings.Join(f.Of, ", ")
	}
	return fmt.Sprintf("%d to %d %s", f.Low, f.High, f.Unit)
}

func (f *Field) outOfRange(v string) error {
	return fmt.Errorf("%s of %q: it takes %s", f.Name, v, f.Range())
}

// Get returns the value of the parameter in c.
func (f *Field) Get(c *Config) string {
	switch {
	case f.number != nil:
		return strconv.Itoa(*f.number(c))
	case f.flag != nil:
		if *f.flag(c) {
			return "1"
		}
		return "0"
	}
	return *f.choice(c)
}

// Set sets a parameter by its name; "profile" is SetProfile. The error names the
// parameter, its range and its unit, and nothing is changed then. Parameters that
// must agree with each other are checked by Check.
func (c *Config) Set(name, value string) error {
	if name == "profile" {
		return c.SetProfile(value)
	}
	f := find(name)
	if f == nil {
		var names []string
		for _, f := range fields {
			names = append(names, f.Name)
		}
		return fmt.Errorf("no parameter %q: there are profile, %s", name, strings.Join(names, ", "))
	}
	switch {
	case f.number != nil:
		v, err := strconv.Atoi(value)
		if err != nil || v < f.Low || v > f.High {
			return f.outOfRange(value)
		}
		*f.number(c) = v
	case f.flag != nil:
		switch value {
		case "1", "true", "on":
			*f.flag(c) = true
		case "0", "false", "off":
			*f.flag(c) = false
		default:
			return f.outOfRange(value)
		}
	default:
		if !slices.Contains(f.Of, value) {
			return f.outOfRange(value)
		}
		*f.choice(c) = value
	}
	return nil
}

// Parse changes c by a list such as "dcqcn,rp_ai_rate=10,profile=paper": an
// algorithm may come first, without its name. A profile counts before everything
// else, wherever it stands. It is checked as a whole, and on error nothing is changed.
func (c *Config) Parse(list string) error {
	next := *c
	items := strings.Split(list, ",")
	for _, item := range items {
		if name, value, _ := strings.Cut(strings.TrimSpace(item), "="); name == "profile" {
			if err := next.SetProfile(value); err != nil {
				return err
			}
		}
	}
	for i, item := range items {
		name, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			if i > 0 || name == "" {
				return fmt.Errorf("%q: it takes an algorithm (%s), then name=value, with commas between", item, find("algorithm").Range())
			}
			if known := find(name) != nil || name == "profile"; known && name != AlgWindow {
				return fmt.Errorf("%s has no value: it takes %s=VALUE", name, name)
			}
			name, value = "algorithm", name
		}
		if name == "profile" {
			continue
		}
		if err := next.Set(name, value); err != nil {
			return err
		}
	}
	if err := next.Check(); err != nil {
		return err
	}
	*c = next
	return nil
}
