package show

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorxe/gorxe/control/admin"
)

// mostQPs is how many queue pairs Stat lists, unless it is to list all.
const mostQPs = 20

// Stat is what there is to show of a device's counters.
type Stat struct {
	Info     admin.DeviceInfo
	Counters admin.Counters
	QPs      []admin.QP
	// Before, if not nil, is what Counters were at an earlier time: rates are
	// shown.
	Before *admin.Counters

	All     bool // counters that are 0, and all queue pairs, too
	Explain bool // with what each counts
}

// The groups of counters, by kind, in the order to show them.
var groups = []struct{ kind, title string }{
	{"port", "port"},
	{congestion, "congestion"},
	{"queue pair", "all queue pairs"},
	{"drop", "packets dropped, by reason"},
	{"failure", "failures, by reason"},
	{"retry", "sent again, by reason"},
	{"note", "of note"},
	{"device", "device"},
}

// congestion is the kind of those that tell of congestion, whatever else they are of.
const congestion = "congestion"

// kind is the group that a counter is shown in.
func (s *Stat) kind(name string) string {
	if IsCongestion(name) {
		return congestion
	}
	return s.Counters.About[name].Kind
}

// IsCongestion reports whether a counter tells of congestion: marks, notifications,
// and the time that rates took.
func IsCongestion(name string) bool {
	return strings.HasPrefix(name, "np_") || strings.HasPrefix(name, "rp_") || strings.HasPrefix(name, "roce_slow_restart") || name == "pacing_wait"
}

// WriteText writes the counters of a port, and its queue pairs.
func (s *Stat) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s port 1 (%s, %s)\n", s.Info.Name, cmp.Or(s.Info.NetDev, "no interface"), s.Info.State)
	if s.Info.Error != "" {
		fmt.Fprintf(out, "  the device is no more: %s\n", s.Info.Error)
		return out.Flush()
	}
	for _, g := range groups {
		s.group(out, g.kind, g.title)
	}
	s.queuePairs(out)
	return out.Flush()
}

// group writes the counters of a kind. Those of the port are shown also when they
// are 0.
func (s *Stat) group(out io.Writer, kind, title string) {
	var names []string
	for name, v := range s.Counters.Values {
		if s.kind(name) == kind && (v > 0 || s.All || kind == "port") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	fmt.Fprintf(out, "  %s\n", title)
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, name := range names {
		about := s.Counters.About[name]
		fmt.Fprintf(t, "    %s\t%20d %s", name, s.Counters.Values[name], about.Unit)
		if s.Before != nil {
			fmt.Fprintf(t, "\t%12.0f/s", s.rate(name))
		}
		if s.Explain {
			fmt.Fprintf(t, "\t%s", about.Text)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

// rate is how much a counter grew in a second.
func (s *Stat) rate(name string) float64 {
	d := s.Counters.Time.Sub(s.Before.Time).Seconds()
	was, now := s.Before.Values[name], s.Counters.Values[name]
	if d <= 0 || now < was { // another device of that name
		return 0
	}
	return float64(now-was) / d
}

// queuePairs lists those with the most traffic.
func (s *Stat) queuePairs(out io.Writer) {
	if len(s.QPs) == 0 {
		return
	}
	qps := slices.Clone(s.QPs)
	slices.SortStableFunc(qps, func(a, b admin.QP) int {
		return cmp.Compare(b.SentPackets+b.RcvdPackets, a.SentPackets+a.RcvdPackets)
	})
	rest := 0
	if !s.All && len(qps) > mostQPs {
		rest = len(qps) - mostQPs
		qps = qps[:mostQPs]
	}
	fmt.Fprintln(out, "  queue pairs")
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "    QPN\ttype\tstate\tsent packets\tpayload\treceived packets\tpayload\trepeated\tdropped\t")
	for _, q := range qps {
		fmt.Fprintf(t, "    %#06x\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", q.QPN, q.Type, q.State,
			q.SentPackets, q.SentPayload, q.RcvdPackets, q.RcvdPayload, q.RepeatedPackets, q.Drops)
	}
	t.Flush()
	if rest > 0 {
		fmt.Fprintf(out, "    and %d with less traffic; --all shows them\n", rest)
	}
}

// WriteQPCounters writes the counters of one queue pair.
func WriteQPCounters(w io.Writer, dev string, q *admin.QPDetail, about func(string) admin.CounterInfo, all, explain bool) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s queue pair %#06x (%s, %s)\n", dev, q.QPN, q.Type, q.State)
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	names := make([]string, 0, len(q.Counters))
	for name, v := range q.Counters {
		if v > 0 || all {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		i := about(name)
		fmt.Fprintf(t, "  %s\t%20d %s", name, q.Counters[name], i.Unit)
		if explain {
			fmt.Fprintf(t, "\t%s", i.Text)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	if len(names) == 0 {
		fmt.Fprintln(out, "  all are 0")
	}
	return out.Flush()
}

// short rounds a duration for reading.
func short(ns int64) string {
	d := time.Duration(ns)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// bitRate shows bits a second, "-" for no bound.
func bitRate(bps int64) string {
	if bps == 0 {
		return "-"
	}
	v, unit := float64(bps), "b/s"
	for _, u := range []string{"kb/s", "Mb/s", "Gb/s"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " " + unit
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
