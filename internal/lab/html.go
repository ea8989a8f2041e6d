package lab

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// WriteHTML writes the report as one page that needs nothing else: no script and
// nothing from the network. It is well-formed XML too.
func (p *Report) WriteHTML(w io.Writer) error {
	b := new(strings.Builder)
	fmt.Fprintf(b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n",
		html.EscapeString(p.Name+": "+p.Title), pageStyle)
	fmt.Fprintf(b, "<h1>%s</h1>\n<p>Scenario <code>%s</code>. %s</p>\n<ul>\n", html.EscapeString(p.Title), html.EscapeString(p.Name), html.EscapeString(p.About))
	for _, l := range p.summary() {
		fmt.Fprintf(b, "<li>%s</li>\n", html.EscapeString(l))
	}
	b.WriteString("</ul>\n")
	for _, x := range p.plots() {
		x.write(b)
	}
	p.tables(b)
	b.WriteString("</body>\n</html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

const pageStyle = `
:root { color-scheme: light dark; --back: #fff; --fore: #1b1f24; --dim: #5b6570; --grid: #dfe3e8;
 --c0: #1668b8; --c1: #c8501e; --c2: #22863a; --c3: #8a3ab9; --c4: #b58900; --c5: #0a8f94; --c6: #c0286f; --c7: #58606a; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --fore: #e4e8ec; --dim: #9aa4af; --grid: #30363d;
 --c0: #6cb2ff; --c1: #ff9462; --c2: #63d17e; --c3: #cf96f5; --c4: #e8c547; --c5: #4dd5da; --c6: #ff85b8; --c7: #b4bdc7; } }
body { background: var(--back); color: var(--fore); font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 1rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
figure { margin: 1.6rem 0; } figcaption { margin-bottom: .3rem; color: var(--dim); } figcaption b { color: var(--fore); margin-right: .5rem; }
figure > svg { width: 100%; height: auto; display: block; }
text { fill: var(--dim); font-size: 12px; } .label { text-anchor: middle; fill: var(--fore); } .ytick { text-anchor: end; } .xtick { text-anchor: middle; }
.grid { stroke: var(--grid); stroke-width: 1; } .curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); } .c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
.d1 { stroke-dasharray: 7 3; } .d2 { stroke-dasharray: 2 3; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: 0 0 0 4.4rem; margin: .2rem 0; font-size: 13px; }
.legend svg { width: 26px; height: 8px; margin-right: .4rem; } .none { color: var(--dim); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; } th { color: var(--dim); font-weight: 600; }
td:first-child, th:first-child, .words td { text-align: left; }
`

// unit is what an axis shows values in: the largest of which there is one.
type unit struct {
	name string
	by   float64
}

func pick(curves []curve, units ...unit) unit {
	top := 0.0
	for _, c := range curves {
		top = max(top, peakOf(c.y))
	}
	u := units[0]
	for _, x := range units[1:] {
		if top >= x.by {
			u = x
		}
	}
	for i := range curves {
		y := make([]float64, len(curves[i].y))
		for k, v := range curves[i].y {
			y[k] = v / u.by
		}
		curves[i].y = y
	}
	return u
}

func (p *Report) plots() []plot {
	const atX = "time, ms"
	t := p.Series.Time
	flows := func(at func(*FlowSeries) []float64) (out []curve) {
		for i := range p.Series.Flows {
			out = append(out, curve{p.Series.Flows[i].Name, t, at(&p.Series.Flows[i])})
		}
		return out
	}
	ports := func(at func(*PortSeries) []float64) (out []curve) {
		for i := range p.Series.Ports {
			out = append(out, curve{p.Series.Ports[i].Name, t, at(&p.Series.Ports[i])})
		}
		return out
	}
	rates := []unit{{"Mb/s", 1}, {"Gb/s", 1000}}
	rate := flows(func(f *FlowSeries) []float64 { return f.Rate })
	rateIn := pick(rate, rates...)
	limit := flows(func(f *FlowSeries) []float64 {
		y := slices.Clone(f.Limit)
		for i, v := range y {
			if v == 0 {
				y[i] = math.NaN()
			}
		}
		return y
	})
	limitIn := pick(limit, rates...)
	queue := ports(func(q *PortSeries) []float64 {
		if q.Host {
			return nil
		}
		return q.Queue
	})
	queueIn := pick(queue, unit{"octets", 1}, unit{"kB", 1000}, unit{"MB", 1e6})
	paused := ports(func(q *PortSeries) []float64 {
		y := slices.Clone(q.Paused)
		for i := range y {
			y[i] *= 100
		}
		return y
	})
	var took []curve
	for _, f := range p.Flows {
		took = append(took, distribution(f))
	}
	tookIn := unit{"us", 1}
	longest := 0.0
	for _, c := range took {
		longest = max(longest, peakOf(c.x))
	}
	if longest >= 10_000 {
		tookIn = unit{"ms", 1000}
		for i := range took {
			for k := range took[i].x {
				took[i].x[k] /= 1000
			}
		}
	}
	return []plot{
		{title: "Rate per flow", about: "payload that came in order", x: atX, y: "goodput, " + rateIn.name, curves: rate, none: "Nothing came."},
		{title: "Limit per flow", about: "what congestion control allowed; a gap is no limit, or nothing to send", x: atX, y: "rate, " + limitIn.name, curves: limit, none: "Nothing was limited."},
		{title: "Queue depth", about: "the longest between two points, per port of a switch", x: atX, y: "queue, " + queueIn.name, curves: queue, peak: true, none: "No queue ever held two packets."},
		{title: "Congestion notifications", about: "that reached the sender of the data, between two points", x: atX, y: "CNPs", curves: flows(func(f *FlowSeries) []float64 { return f.CNPs }), peak: true, none: "There were none."},
		{title: "Pauses", about: "part of the time that a port was paused by its peer", x: atX, y: "paused, %", curves: paused, peak: true, none: "No port was ever paused."},
		{title: "Drops", about: "by switches, between two points, per port that the packets would have left by", x: atX, y: "packets", curves: ports(func(q *PortSeries) []float64 { return q.Drops }), peak: true, none: "No packet was dropped."},
		{title: "Completion times", about: "part of the messages that took no longer", x: "time of a message, " + tookIn.name, y: "messages, %", curves: took, none: "No message was done."},
	}
}

// distribution is the completion times of a flow as a cumulative distribution, in
// microseconds and percent.
func distribution(f FlowReport) curve {
	c := curve{name: f.Name}
	v := make([]float64, len(f.Took))
	for i, t := range f.Took {
		v[i] = float64(t.Took) / 1e3
	}
	slices.Sort(v)
	n := len(v)
	points := min(n, plotColumns/2)
	for i := range points {
		k := (i + 1) * n / points
		if i == 0 {
			c.x, c.y = append(c.x, v[0]), append(c.y, 0)
		}
		c.x, c.y = append(c.x, v[k-1]), append(c.y, 100*float64(k)/float64(n))
	}
	return c
}

func (p *Report) tables(b *strings.Builder) {
	head := func(title, class string, cells ...string) {
		fmt.Fprintf(b, "<h2>%s</h2>\n<div class=\"scroll\"><table class=\"%s\">\n<tr>", title, class)
		for _, c := range cells {
			fmt.Fprintf(b, "<th>%s</th>", c)
		}
		b.WriteString("</tr>\n")
	}
	line := func(cells ...any) {
		b.WriteString("<tr>")
		for _, c := range cells {
			fmt.Fprintf(b, "<td>%s</td>", html.EscapeString(fmt.Sprint(c)))
		}
		b.WriteString("</tr>\n")
	}
	head("Flows", "", "flow", "from", "to", "op", "payload", "goodput", "last half", "messages", "mean", "p99", "CNPs", "marks", "retries")
	for _, f := range p.Flows {
		line(f.Name, f.From, f.To, f.Op, octets(float64(f.Octets)), bitrate(f.Goodput*1e6), bitrate(f.LastHalf*1e6), f.Messages,
			micros(f.Mean, f.Messages), micros(f.P99, f.Messages), f.CNPs, f.Marks, f.Retries)
	}
	b.WriteString("</table></div>\n")
	head("Ports", "", "port", "use", "queue mean", "p99", "max", "marks", "drops", "pauses", "paused")
	for _, q := range p.Queues {
		line(q.Port, percent(q.Utilisation), octets(q.Mean), octets(float64(q.P99)), octets(float64(q.Max)), q.Marks, q.Drops, q.Pauses, micros(q.Paused, 1))
	}
	b.WriteString("</table></div>\n")
	head("Parameters", "words", "section", "name", "value")
	for _, x := range p.Parameters {
		line(x.Section, x.Name, x.Value)
	}
	b.WriteString("</table></div>\n")
}
