package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// perf runs one of perftest's tools in the guest against rxe perf. perftest
// does not look at the data; the cases of the group verbs do.
func (r *runner) perf(ctx context.Context, c *Case, res *Result) error {
	r.port++
	tool, conn, _ := strings.Cut(c.Kind, "/")
	common := fmt.Sprintf("-F -p %d -m %d %s", r.port, c.MTU, c.Flags)
	if c.Form != "qp-timeout" {
		common += " -u 17" // an emulated guest stands still for longer than the usual retries
	}
	if c.Form != "all-sizes" && !strings.HasPrefix(tool, "atomic") {
		common += fmt.Sprintf(" -s %d", c.Size)
	}
	if c.Form != "duration" {
		common += fmt.Sprintf(" -n %d", c.Iters)
	}
	if c.QPs > 1 {
		common += fmt.Sprintf(" -q %d", c.QPs)
	}
	if !strings.HasPrefix(tool, "read") && !strings.HasPrefix(tool, "atomic") {
		common += " -c " + conn
	}
	return r.play(ctx, c, &duet{
		port:  r.port,
		guest: fmt.Sprintf("ib_%s -x %d %s", tool, r.sgid[c.Family], common),
		us:    slices.Concat([]string{"perf", tool, "-x", r.gid(c.Family)}, r.device(c), strings.Fields(common+" "+c.OurFlags)),
		check: func(who, out string, err error) error { return perfSaid(who, out, err, c) },
		note:  headline,
	}, res)
}

// table returns the rows of numbers below perftest's column heads.
func table(out string) [][]float64 {
	var rows [][]float64
	below := false
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case len(f) > 0 && f[0] == "#bytes":
			below = true
		case below && len(f) > 1:
			var row []float64
			for _, s := range f {
				v, err := strconv.ParseFloat(strings.Replace(s, "-nan", "nan", 1), 64)
				if err != nil {
					break
				}
				row = append(row, v)
			}
			if len(row) > 1 {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// prints reports whether a program prints results: the server of a READ or an
// atomic, which does nothing, or of a WRITE's latency, has none.
func prints(who string, c *Case) bool {
	if !strings.HasSuffix(who, "server") {
		return true
	}
	return strings.HasPrefix(c.Kind, "send") || strings.HasPrefix(c.Kind, "write") || c.Form == "bidirectional"
}

// perfSaid checks what one of the programs printed: as many rows as sizes, each
// with the size and the messages of the case, and figures that go together.
func perfSaid(who, out string, err error, c *Case) error {
	if err := ended(who, out, err); err != nil {
		return err
	}
	if !prints(who, c) {
		return nil
	}
	rows, want := table(out), []int{c.Size}
	if c.Form == "all-sizes" {
		want = nil
		for n := 2; n <= c.MTU; n *= 2 {
			want = append(want, n)
		}
	}
	if len(rows) != len(want) {
		return fmt.Errorf("%s: %d rows of results, not %d: %s", who, len(rows), len(want), tail(out))
	}
	for i, row := range rows {
		err := counted(row, want[i], c)
		if err == nil && !(strings.HasPrefix(who, "the guest") && clockless(row)) {
			err = plausible(row, want[i], c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %v", who, err, row)
		}
	}
	return nil
}

// counted checks the octets and messages of a row.
func counted(row []float64, size int, c *Case) error {
	if int(row[0]) != size {
		return fmt.Errorf("%d octets were to be sent", size)
	}
	messages := c.Iters * c.QPs
	if c.Form == "duration" {
		messages = int(row[1])
	}
	if int(row[1]) != messages || messages == 0 {
		return fmt.Errorf("%d messages were to be sent", messages)
	}
	return nil
}

// clockless reports whether a row has no figures: on a busy machine perftest
// does not find the rate of an emulated processor's clock, and says so or not.
func clockless(row []float64) bool {
	return !slices.ContainsFunc(row[2:], func(v float64) bool { return v != 0 && !math.IsInf(v, 0) && !math.IsNaN(v) })
}

// plausible checks the figures of a row. Those of bandwidth tools: octets,
// messages, peak and average in MiB/s or Gb/s, million messages a second; of
// latency tools: octets, messages, least, most, typical and average
// microseconds, deviation, two percentiles.
func plausible(row []float64, size int, c *Case) error {
	if strings.Contains(c.Kind, "_lat") {
		if c.Form == "duration" { // octets, messages, average, transactions a second
			if len(row) < 4 || row[2] <= 0 || row[3] <= 0 {
				return errors.New("no latency")
			}
			return nil
		}
		if len(row) < 9 || row[2] <= 0 || !slices.IsSorted([]float64{row[2], row[4], row[3]}) || row[5] < row[2] || row[5] > row[3] {
			return errors.New("the latencies are in no order")
		}
		return nil
	}
	if len(row) < 5 || row[3] <= 0 && size > 16 || row[4] <= 0 {
		return errors.New("no bandwidth")
	}
	octets := row[4] * 1e6 * float64(size) // a second
	unit := float64(1 << 20)
	if c.Form == "gbits" {
		unit = 1e9 / 8
	}
	slack := 0.05*row[3] + 0.02 + float64(size)/unit // the rate has six digits behind the point
	if d := octets/unit - row[3]; d > slack || d < -slack {
		return errors.New("bandwidth and rate of messages do not go together")
	}
	return nil
}

// headline returns the figure of a report that a person wants to see.
func headline(out string) string {
	rows := table(out)
	switch {
	case len(rows) == 0:
		return ""
	case len(rows[0]) >= 9:
		return fmt.Sprintf("%.0f usec", rows[0][4])
	case len(rows[0]) >= 5:
		return fmt.Sprintf("%.2f MiB/s", rows[0][3])
	}
	return ""
}
