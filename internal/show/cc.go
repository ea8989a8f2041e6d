package show

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gorxe/gorxe/control/admin"
)

// CC is what there is to show of a device's congestion control.
type CC struct {
	admin.CC
	// Counters are those that tell of congestion.
	Counters map[string]uint64 `json:"counters"`
	// QPs is how many queue pairs there are, Paced how many of them have a rate to
	// keep just now, by congestion control, a static rate, or a limit of their own;
	// Slowest and Fastest are among those rates, in bits/s.
	QPs     int   `json:"qps"`
	Paced   int   `json:"paced"`
	Slowest int64 `json:"slowest"`
	Fastest int64 `json:"fastest"`
	// CNPDelayNanos is the mean time from the step that saw a mark until its CNP was
	// sent.
	CNPDelayNanos int64 `json:"cnp_delay_ns"`
}

// NewCC puts together what a daemon tells of a device.
func NewCC(c admin.CC, counters map[string]uint64, qps []admin.QP) *CC {
	out := &CC{CC: c, Counters: map[string]uint64{}, QPs: len(qps)}
	for name, v := range counters {
		if IsCongestion(name) {
			out.Counters[name] = v
		}
	}
	if n := counters["np_cnp_sent"]; n > 0 {
		out.CNPDelayNanos = int64(counters["np_cnp_delay"] / n)
	}
	for i := range qps {
		r := qps[i].Rate
		if r == 0 {
			continue
		}
		if out.Paced++; out.Slowest == 0 || r < out.Slowest {
			out.Slowest = r
		}
		out.Fastest = max(out.Fastest, r)
	}
	return out
}

// WriteText writes the parameters as a table, and below it what came of them.
func (c *CC) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s: %s\n", c.Device, c.Get("algorithm"))
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PARAMETER\tVALUE\tDEFAULT\tRANGE\tUNIT\tWHAT IT IS")
	for i := range c.Parameters {
		p := &c.Parameters[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, p.Value, p.Default, span(p), cmp.Or(p.Unit, "-"), p.Help)
	}
	t.Flush()
	switch {
	case c.Paced == 0:
		fmt.Fprintf(out, "\n%s, none has a rate to keep now\n", plural(c.QPs, "queue pair"))
	default:
		fmt.Fprintf(out, "\n%s, %d with a rate to keep now: %s to %s\n", plural(c.QPs, "queue pair"), c.Paced, bitRate(c.Slowest), bitRate(c.Fastest))
	}
	t = tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	names := make([]string, 0, len(c.Counters))
	for name := range c.Counters {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(t, "  %s\t%20d\n", name, c.Counters[name])
	}
	t.Flush()
	if c.CNPDelayNanos > 0 {
		fmt.Fprintf(out, "  a CNP was sent %s after its mark was seen, on average\n", short(c.CNPDelayNanos))
	}
	return out.Flush()
}

func span(p *admin.CCParameter) string {
	if p.Of != nil {
		return strings.Join(p.Of, "|")
	}
	return fmt.Sprintf("%d..%d", p.Low, p.High)
}

// WriteProfiles writes sets of parameters beside each other: those in which they
// differ, and all of them with all.
func WriteProfiles(w io.Writer, names []string, sets []admin.CC, all bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "PARAMETER\t%s\tUNIT\n", strings.ToUpper(strings.Join(names, "\t")))
	for i := range sets[0].Parameters {
		p := &sets[0].Parameters[i]
		values := make([]string, len(sets))
		for k := range sets {
			values[k] = sets[k].Parameters[i].Value
		}
		if all || slices.ContainsFunc(values, func(v string) bool { return v != values[0] }) {
			fmt.Fprintf(t, "%s\t%s\t%s\n", p.Name, strings.Join(values, "\t"), cmp.Or(p.Unit, "-"))
		}
	}
	return t.Flush()
}
