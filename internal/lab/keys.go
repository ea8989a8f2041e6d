package lab

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/sim"
	"github.com/gorxe/gorxe/wire"
)

const (
	maxSamples = 5000
	maxFlows   = 1024
	maxRate    = 1_600_000_000_000
)

// key is one of a section: what takes its value. An error says what it takes.
type key[T any] struct {
	name string
	set  func(*T, *unstable.Node) error
}

// set gives a value to the key of a name; names are all there are.
func set[T any](keys []key[T], to *T, name string, v *unstable.Node) (known bool, names string, err error) {
	var all []string
	for _, k := range keys {
		if k.name == name {
			return true, "", k.set(to, v)
		}
		all = append(all, k.name)
	}
	return false, strings.Join(all, ", "), nil
}

// scalar is a value that is neither a list nor a table, as text.
func scalar(v *unstable.Node) string { return string(v.Data) }

// shown is a value as an error quotes it.
func shown(v *unstable.Node) string {
	switch v.Kind {
	case unstable.String:
		return strconv.Quote(scalar(v))
	case unstable.Array:
		return "[...]"
	case unstable.InlineTable:
		return "{...}"
	}
	return scalar(v)
}

func text[T any](name string, at func(*T) *string) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		if v.Kind != unstable.String {
			return errors.New("a string")
		}
		*at(t) = scalar(v)
		return nil
	}}
}

func choice[T any](name string, at func(*T) *string, of ...string) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		if v.Kind != unstable.String || !slices.Contains(of, scalar(v)) {
			return errors.New(strings.Join(of, ", "))
		}
		*at(t) = scalar(v)
		return nil
	}}
}

func onOff[T any](name string, to func(*T, bool)) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		if v.Kind != unstable.Bool {
			return errors.New("true or false")
		}
		to(t, scalar(v) == "true")
		return nil
	}}
}

func number[T any](name, unit string, low, high int, at func(*T) *int) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		n, err := strconv.Atoi(strings.ReplaceAll(scalar(v), "_", ""))
		if v.Kind != unstable.Integer || err != nil || n < low || n > high {
			return fmt.Errorf("%d to %d %s", low, high, unit)
		}
		*at(t) = n
		return nil
	}}
}

func fraction[T any](name, what string, low, high float64, at func(*T) *float64) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		n, err := strconv.ParseFloat(scalar(v), 64)
		if v.Kind != unstable.Float && v.Kind != unstable.Integer || err != nil || !(n >= low && n <= high) {
			return fmt.Errorf("%s from %v to %v", what, low, high)
		}
		*at(t) = n
		return nil
	}}
}

func span[T any](name string, low, high time.Duration, at func(*T) *time.Duration) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		d, err := time.ParseDuration(scalar(v))
		if v.Kind != unstable.String || err != nil || d < low || d > high {
			return fmt.Errorf(`a time from %v to %v, such as "50ms" or "2us"`, low, high)
		}
		*at(t) = d
		return nil
	}}
}

func size[T any](name string, low, high int, at func(*T) *int) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		n, ok := scaled(v, [][2]any{{"KiB", 1024.0}, {"MiB", 1024.0 * 1024}, {"KB", 1e3}, {"MB", 1e6}, {"B", 1.0}})
		if !ok || n < float64(low) || n > float64(high) {
			return fmt.Errorf(`octets, %d to %d, as a number or such as "64KiB" or "12MB" (KiB, MiB, KB, MB)`, low, high)
		}
		*at(t) = int(n)
		return nil
	}}
}

func rate[T any](name string, low int64, at func(*T) *int64) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		n, ok := scaled(v, [][2]any{{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}, {"bit", 1.0}})
		if !ok || v.Kind != unstable.String || n < float64(low) || n > maxRate {
			return fmt.Errorf(`bits a second of IP packets, %d to %d, such as "40Gbit" (bit, kbit, Mbit, Gbit, Tbit)`, low, int64(maxRate))
		}
		*at(t) = int64(n)
		return nil
	}}
}

// scaled is a number, or a string of one and its unit.
func scaled(v *unstable.Node, units [][2]any) (float64, bool) {
	s, by := strings.ReplaceAll(scalar(v), "_", ""), 1.0
	switch v.Kind {
	case unstable.Integer:
	case unstable.String:
		found := false
		for _, u := range units {
			if rest, ok := strings.CutSuffix(s, u[0].(string)); ok {
				s, by, found = strings.TrimSpace(rest), u[1].(float64), true
				break
			}
		}
		if !found {
			return 0, false
		}
	default:
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	n = math.Round(n * by)
	return n, err == nil && n == n
}

// list is names of hosts: one, "h1..h8", or a list of such.
func list[T any](name string, at func(*T) *[]string) key[T] {
	return key[T]{name, func(t *T, v *unstable.Node) error {
		takes := errors.New(`a host, "h1..h8", or a list of such`)
		var names []string
		add := func(n *unstable.Node) error {
			if n.Kind != unstable.String {
				return takes
			}
			more, ok := between(scalar(n))
			if !ok {
				return takes
			}
			if len(names)+len(more) > maxFlows {
				return fmt.Errorf("%d hosts at most", maxFlows)
			}
			names = append(names, more...)
			return nil
		}
		if v.Kind != unstable.Array {
			*at(t) = nil
			err := add(v)
			*at(t) = names
			return err
		}
		for it := v.Children(); it.Next(); {
			if err := add(it.Node()); err != nil {
				return err
			}
		}
		*at(t) = names
		return nil
	}}
}

// between is the hosts that a text such as h2.1..h2.4 names: they differ in the
// last number.
func between(s string) (names []string, ok bool) {
	first, last, many := strings.Cut(s, "..")
	if !many {
		return []string{s}, s != ""
	}
	stem := strings.TrimRight(first, "0123456789")
	a, err1 := strconv.Atoi(first[len(stem):])
	b, err2 := strconv.Atoi(strings.TrimPrefix(last, stem))
	if err1 != nil || err2 != nil || a > b || b-a >= maxFlows || !strings.HasPrefix(last, stem) {
		return nil, false
	}
	for i := a; i <= b; i++ {
		names = append(names, stem+strconv.Itoa(i))
	}
	return names, true
}

var scenarioKeys = []key[Scenario]{
	text("title", func(s *Scenario) *string { return &s.Title }),
	text("about", func(s *Scenario) *string { return &s.About }),
	{"seed", func(s *Scenario, v *unstable.Node) error {
		n, err := strconv.ParseUint(scalar(v), 0, 63)
		if v.Kind != unstable.Integer || err != nil {
			return errors.New("a number from 0 to 9223372036854775807")
		}
		s.Seed = n
		return nil
	}},
	span("duration", 10*time.Microsecond, time.Minute, func(s *Scenario) *time.Duration { return &s.Duration }),
	span("sample", time.Microsecond, time.Minute, func(s *Scenario) *time.Duration { return &s.Sample }),
	span("settle", time.Microsecond, time.Minute, func(s *Scenario) *time.Duration { return &s.Settle }),
	{"mtu", func(s *Scenario, v *unstable.Node) error {
		if n, err := strconv.Atoi(scalar(v)); err == nil && v.Kind == unstable.Integer && slices.Contains([]int{256, 512, 1024, 2048, 4096}, n) {
			s.MTU = n
			return nil
		}
		return errors.New("256, 512, 1024, 2048 or 4096 octets of payload")
	}},
	onOff("ipv6", func(s *Scenario, on bool) { s.IPv6 = on }),
	{"faults", func(s *Scenario, v *unstable.Node) error {
		if _, err := fault.Parse(scalar(v)); v.Kind != unstable.String || err != nil {
			return fmt.Errorf(`rules such as "tx drop 0.1%%": %w`, err)
		}
		s.Faults = scalar(v)
		return nil
	}},
}

var topologyKeys = []key[Scenario]{
	choice("kind", func(s *Scenario) *string { return &s.Kind }, Star, Dumbbell, ParkingLot, LeafSpine),
	number("hosts", "at each switch", 1, 256, func(s *Scenario) *int { return &s.Hosts }),
	number("switches", "that have hosts; for parking-lot and leaf-spine", 1, 64, func(s *Scenario) *int { return &s.Switches }),
	rate("rate", 1000, func(s *Scenario) *int64 { return &s.Line.Rate }),
	span("delay", 0, time.Second, func(s *Scenario) *time.Duration { return &s.Line.Delay }),
	rate("trunk_rate", 1000, func(s *Scenario) *int64 { return &s.Trunk.Rate }),
	span("trunk_delay", 0, time.Second, func(s *Scenario) *time.Duration { return &s.Trunk.Delay }),
	size("port_queue", 1, 1<<30, func(s *Scenario) *int { return &s.PortQueue }),
	number("window", "packets", 1, 1<<20, func(s *Scenario) *int { return &s.Window }),
	number("burst", "packets", 1, wire.MaxSegments, func(s *Scenario) *int { return &s.Burst }),
}

var switchKeys = []key[reader]{
	size("buffer", 1000, 1<<30, func(r *reader) *int { return &r.s.Buffer }),
	size("kmin", 0, 1<<30, func(r *reader) *int { return &r.red.Kmin }),
	size("kmax", 0, 1<<30, func(r *reader) *int { return &r.red.Kmax }),
	fraction("pmax", "a probability", 0, 1, func(r *reader) *float64 { return &r.red.Pmax }),
	{"mark", func(r *reader, v *unstable.Node) error {
		at := map[string]sim.MarkPoint{"dequeue": sim.MarkDequeue, "enqueue": sim.MarkEnqueue}
		p, ok := at[scalar(v)]
		if v.Kind != unstable.String || !ok {
			return errors.New("dequeue or enqueue")
		}
		r.s.MarkAt = p
		return nil
	}},
	onOff("pfc", func(r *reader, on bool) { r.on = on }),
	size("xoff", 0, 1<<30, func(r *reader) *int { return &r.pfc.XOFF }),
	size("xon", 0, 1<<30, func(r *reader) *int { return &r.pfc.XON }),
	fraction("alpha", "a factor", 0.001, 64, func(r *reader) *float64 { return &r.pfc.Alpha }),
	size("headroom", 0, 1<<30, func(r *reader) *int { return &r.pfc.Headroom }),
}

var hostKeys = []key[Host]{
	text("name", func(h *Host) *string { return &h.Name }),
	rate("rate", 1000, func(h *Host) *int64 { return &h.Line.Rate }),
	span("delay", 1, time.Second, func(h *Host) *time.Duration { return &h.Line.Delay }),
}

// spread is a [[flow]], which may stand for many.
type spread struct {
	Flow
	from, to []string
	copies   int
	stagger  time.Duration
}

var flowKeys = []key[spread]{
	text("name", func(f *spread) *string { return &f.Name }),
	list("from", func(f *spread) *[]string { return &f.from }),
	list("to", func(f *spread) *[]string { return &f.to }),
	choice("op", func(f *spread) *string { return &f.Op }, "write", "send", "read"),
	choice("service", func(f *spread) *string { return &f.Service }, "rc", "uc"),
	size("size", 0, 64<<20, func(f *spread) *int { return &f.Size }),
	number("count", "messages; 0: until stop", 0, 1<<30, func(f *spread) *int { return &f.Count }),
	number("depth", "messages that are posted at once", 1, 256, func(f *spread) *int { return &f.Depth }),
	number("copies", "of each", 1, maxFlows, func(f *spread) *int { return &f.copies }),
	span("start", 0, time.Minute, func(f *spread) *time.Duration { return &f.Start }),
	span("stop", 0, time.Minute, func(f *spread) *time.Duration { return &f.Stop }),
	span("stagger", 0, time.Minute, func(f *spread) *time.Duration { return &f.stagger }),
	rate("rate_limit", 1000, func(f *spread) *int64 { return &f.RateLimit }),
	{"cc", func(*spread, *unstable.Node) error {
		return errors.New("a table of parameters, such as { rp_ai_rate = 40 }")
	}},
}

// endFlow adds the flows that a [[flow]] stands for.
func (r *reader) endFlow() {
	f := r.flow
	if f == nil {
		return
	}
	r.flow = nil
	n := max(len(f.from), len(f.to))
	switch {
	case len(f.from) == 0 || len(f.to) == 0:
		r.add(f.line, "a flow needs from and to, hosts such as h1 or h1.1")
		return
	case len(f.from) != n && len(f.from) != 1 || len(f.to) != n && len(f.to) != 1:
		r.add(f.line, "a flow from %d hosts to %d; it takes as many, or one on a side", len(f.from), len(f.to))
		return
	case len(r.s.Flows)+n*f.copies > maxFlows:
		r.add(f.line, "more than %d flows", maxFlows)
		return
	}
	if f.Name == "" {
		f.Name = "f" + strconv.Itoa(len(r.s.Flows)+1)
	}
	for i := range n * f.copies {
		one := f.Flow
		one.From, one.To = f.from[i/f.copies%len(f.from)], f.to[i/f.copies%len(f.to)]
		one.Start += time.Duration(i) * f.stagger
		if n*f.copies > 1 {
			one.Name += "." + strconv.Itoa(i+1)
		}
		r.s.Flows = append(r.s.Flows, one)
	}
}
