package relay

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// Describe says in lines what a relay of this configuration does.
func Describe(c *Config) (lines []string) {
	for _, w := range [...]struct {
		from, to, rules string
		line            *Line
	}{{c.A, c.B, "tx", &c.AB}, {c.B, c.A, "rx", &c.BA}} {
		what := describe(w.line)
		if what == "" {
			what = "RoCEv2 passes as it comes"
		}
		lines = append(lines, fmt.Sprintf("%s to %s (%s in fault rules): %s", w.from, w.to, w.rules, what))
	}
	for i := range c.Rules {
		lines = append(lines, "fault rule: "+c.Rules[i].String())
	}
	return lines
}

func describe(l *Line) (s string) {
	if l.Rate > 0 {
		s = fmt.Sprintf("bottleneck of %s with a buffer of %d octets", formatRate(float64(l.Rate)), l.Buffer)
		if l.Marks {
			when := "leave"
			if l.AtEnqueue {
				when = "join"
			}
			s += fmt.Sprintf(", marks packets with ECT that %s a queue of %d to %d octets, up to %.4g %%, and all beyond", when, l.RED.Kmin, l.RED.Kmax, 100*l.RED.Pmax)
		}
	}
	if l.Delay > 0 {
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf("delay of %v", l.Delay)
	}
	return s
}

func formatRate(v float64) string {
	for _, u := range [...]struct {
		n    float64
		name string
	}{{1e9, "Gb/s"}, {1e6, "Mb/s"}, {1e3, "kb/s"}} {
		if v >= u.n {
			return fmt.Sprintf("%.4g %s", v/u.n, u.name)
		}
	}
	return fmt.Sprintf("%.4g b/s", v)
}

func micros(ns float64) string { return fmt.Sprintf("%.0f us", ns/1000) }

// WriteText writes a report as a table for a person.
func (n *Report) WriteText(w io.Writer, a, b string) {
	what := "in the last " + n.Span.Round(time.Millisecond).String()
	if n.Last {
		what = "in all"
	}
	fmt.Fprintf(w, "%.3f s, %s:\n", n.At.Seconds(), what)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tpackets\toctets\trate\tmarked\tdropped\tby faults\tqueue mean\tp99\tmax\tlate mean\tmax\tother frames\t")
	for i, way := range [...]string{a + " to " + b, b + " to " + a} {
		r := &n.Ways[i]
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%d\t%d\t%d\t%.0f\t%d\t%d\t%s\t%s\t%d\t\n",
			way, r.Packets, r.Octets, formatRate(r.Rate), r.Marked, r.Dropped, r.FaultLost, r.Queue.Mean, r.Queue.P99, r.Queue.Max,
			micros(r.Late.Mean), micros(float64(r.Late.Max)), r.Other)
	}
	_ = t.Flush()
	for i, way := range [...]string{a + " to " + b, b + " to " + a} {
		r := &n.Ways[i]
		for _, l := range [...]struct {
			n   uint64
			why string
		}{
			{r.TooLong, "frames not sent: longer than the MTU of where they go"},
			{r.Refused, "frames not sent: the kernel did not take them"},
			{r.Missed, "frames lost: they came faster than they were read"},
			{r.NoRoom, "packets lost: more are delayed than there is memory for"},
		} {
			if l.n > 0 {
				fmt.Fprintf(w, "%s: %d %s\n", way, l.n, l.why)
			}
		}
	}
	if n.Last {
		for _, r := range n.Rules {
			fmt.Fprintf(w, "rule %q: %s packets matched, %d hit, %d lost\n", r.Rule, strconv.FormatUint(r.Matched, 10), r.Hit, r.Lost)
		}
	}
}

// MarshalJSON gives times in seconds.
func (n *Report) MarshalJSON() ([]byte, error) {
	type rule struct {
		Rule    string `json:"rule"`
		Matched uint64 `json:"matched"`
		Hit     uint64 `json:"hit"`
		Lost    uint64 `json:"lost"`
	}
	var rules []rule
	for _, r := range n.Rules {
		rules = append(rules, rule(r))
	}
	return json.Marshal(struct {
		At    float64    `json:"at"`
		Span  float64    `json:"span"`
		Last  bool       `json:"last"`
		AB    *WayReport `json:"ab"`
		BA    *WayReport `json:"ba"`
		Rules []rule     `json:"rules,omitempty"`
	}{n.At.Seconds(), n.Span.Seconds(), n.Last, &n.Ways[0], &n.Ways[1], rules})
}
