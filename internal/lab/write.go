package lab

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gorxe/gorxe/cc"
)

func ccFields() []cc.Field { return cc.Fields() }

// WriteTable writes the report for a terminal.
func (p *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s: %s\n\n", p.Name, p.Title)
	row(t, "flow", "from", "to", "op", "payload", "goodput", "last half", "messages", "mean", "p99", "CNPs", "marks", "retries")
	for _, f := range p.Flows {
		row(t, f.Name, f.From, f.To, f.Op, octets(float64(f.Octets)), bitrate(f.Goodput*1e6), bitrate(f.LastHalf*1e6), f.Messages,
			micros(f.Mean, f.Messages), micros(f.P99, f.Messages), f.CNPs, f.Marks, f.Retries)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if len(p.Queues) > 0 {
		row(t, "port", "use", "queue mean", "p99", "max", "marks", "drops", "pauses", "paused")
		for _, q := range p.Queues {
			row(t, q.Port, percent(q.Utilisation), octets(q.Mean), octets(float64(q.P99)), octets(float64(q.Max)), q.Marks, q.Drops, q.Pauses, micros(q.Paused, 1))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, l := range p.summary() {
		fmt.Fprintln(w, l)
	}
	return nil
}

func row(w io.Writer, cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(w, "%v\t", c)
	}
	fmt.Fprintln(w)
}

// summary is the report in a few sentences.
func (p *Report) summary() (lines []string) {
	fair := "not two flows ran all through it"
	if p.Jain > 0 {
		fair = fmt.Sprintf("Jain index %.4f", p.Jain)
	}
	lines = append(lines, fmt.Sprintf("last half: %s; %s used %s of its line", fair, orElse(p.Bottleneck, "no port"), percent(p.Utilisation)))
	lines = append(lines, fmt.Sprintf("marks %d, CNPs %d, drops %d, pauses %d", p.Marks, p.CNPs, p.Drops, p.Pauses))
	for _, s := range p.Settled {
		what := "not settled"
		if s.OK {
			what = "settled after " + trim(s.After) + " ms"
		}
		lines = append(lines, fmt.Sprintf("from %s ms on, %s: %s", trim(s.At), count(s.Flows, "flow"), what))
	}
	for _, f := range p.Flows {
		if f.Failed != "" {
			lines = append(lines, fmt.Sprintf("flow %s failed: %s", f.Name, f.Failed))
		}
	}
	return lines
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// trim is a number with no more than four digits that matter.
func trim(v float64) string {
	if v == 0 || math.IsNaN(v) {
		return "0"
	}
	if a := math.Abs(v); a >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	s := strconv.FormatFloat(v, 'g', 4, 64)
	if strings.Contains(s, "e") {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return s
}

func percent(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) }

func scaledBy(v, by float64, units ...string) string {
	i := 0
	for v >= by && i < len(units)-1 {
		v, i = v/by, i+1
	}
	return trim(v) + " " + units[i]
}

func bitrate(v float64) string { return scaledBy(v, 1000, "b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s") }
func octets(v float64) string  { return scaledBy(math.Round(v), 1000, "B", "kB", "MB", "GB") }

// micros is a time in microseconds, of something that has happened n times.
func micros(v float64, n int) string {
	if n == 0 {
		return "-"
	}
	return scaledBy(v, 1000, "us", "ms", "s")
}

// WriteCSV writes the time series: a line for each point, its time first.
func (p *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	head := []string{"time_ms"}
	var columns [][]float64
	add := func(name string, v []float64) { head, columns = append(head, name), append(columns, v) }
	for _, f := range p.Series.Flows {
		add("rate_mbit "+f.Name, f.Rate)
		add("limit_mbit "+f.Name, f.Limit)
		add("cnps "+f.Name, f.CNPs)
		add("marks "+f.Name, f.Marks)
	}
	for _, q := range p.Series.Ports {
		add("queue_octets "+q.Name, q.Queue)
		add("marks "+q.Name, q.Marks)
		add("drops "+q.Name, q.Drops)
		add("paused "+q.Name, q.Paused)
	}
	if err := c.Write(head); err != nil {
		return err
	}
	line := make([]string, len(head))
	for i, t := range p.Series.Time {
		line[0] = trimAll(t)
		for j, v := range columns {
			line[j+1] = trimAll(v[i])
		}
		if err := c.Write(line); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func trimAll(v float64) string { return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64) }

// WriteJSON writes all of the report but each message's time.
func (p *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(p)
}
