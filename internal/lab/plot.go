package lab

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Size of a plot and its margins, in the units of its SVG.
const (
	plotWidth, plotHeight    = 900, 320
	plotLeft, plotRight      = 70, 14
	plotTop, plotBottom      = 12, 46
	plotColumns              = 600 // points of a curve at most
	plotCurves               = 24  // curves of a plot at most
	plotColours              = 8
	plotInnerW, plotInnerH   = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	plotXLabelY, plotXTicksY = plotHeight - 6, plotHeight - plotBottom + 18
)

// curve is one line of a plot; NaN is a gap.
type curve struct {
	name string
	x, y []float64
}

// plot is curves over an axis, as an SVG that takes its colours from the page.
type plot struct {
	title, about string
	x, y         string // of the axes, with their units
	curves       []curve
	peak         bool    // of several points in a place the highest counts, not the mean
	top          float64 // of the y axis at least
	none         string  // what is said where there is nothing to draw
}

// write appends the plot, a figure with its legend.
func (p *plot) write(b *strings.Builder) {
	fmt.Fprintf(b, "<figure>\n<figcaption><b>%s</b> %s</figcaption>\n", html.EscapeString(p.title), html.EscapeString(p.about))
	defer b.WriteString("</figure>\n")
	curves := slices.DeleteFunc(slices.Clone(p.curves), func(c curve) bool { return peakOf(c.y) <= 0 })
	if len(curves) == 0 {
		fmt.Fprintf(b, "<p class=\"none\">%s</p>\n", html.EscapeString(p.none))
		return
	}
	left := 0
	if len(curves) > plotCurves {
		ranked := slices.Clone(curves)
		slices.SortStableFunc(ranked, func(a, b curve) int { return -cmp.Compare(peakOf(a.y), peakOf(b.y)) })
		least := peakOf(ranked[plotCurves-1].y)
		left = len(curves) - plotCurves
		curves = slices.DeleteFunc(curves, func(c curve) bool { return peakOf(c.y) < least })
		curves = curves[:min(len(curves), plotCurves)]
	}
	top, right := p.top, 0.0
	for i := range curves {
		curves[i] = curves[i].reduced(p.peak)
		top = max(top, peakOf(curves[i].y))
		right = max(right, peakOf(curves[i].x))
	}
	if right <= 0 {
		right = 1
	}
	xs, ys := ticks(right), ticks(top)
	top = max(top*1.03, ys[len(ys)-1])
	px := func(v float64) float64 { return plotLeft + v/right*plotInnerW }
	py := func(v float64) float64 { return plotTop + plotInnerH - v/top*plotInnerH }
	fmt.Fprintf(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", plotWidth, plotHeight, html.EscapeString(p.title))
	for _, v := range ys {
		fmt.Fprintf(b, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"ytick\" x=\"%d\" y=\"%.1f\">%s</text>\n",
			plotLeft, plotWidth-plotRight, py(v), py(v), plotLeft-6, py(v)+4, trim(v))
	}
	for _, v := range xs {
		fmt.Fprintf(b, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text class=\"xtick\" x=\"%.1f\" y=\"%d\">%s</text>\n",
			px(v), px(v), plotTop, plotTop+plotInnerH, px(v), plotXTicksY, trim(v))
	}
	fmt.Fprintf(b, "<text class=\"label\" x=\"%d\" y=\"%d\">%s</text>\n", plotLeft+plotInnerW/2, plotXLabelY, html.EscapeString(p.x))
	fmt.Fprintf(b, "<text class=\"label\" transform=\"translate(14 %d) rotate(-90)\">%s</text>\n", plotTop+plotInnerH/2, html.EscapeString(p.y))
	for i, c := range curves {
		fmt.Fprintf(b, "<path class=\"curve %s\" d=\"", style(i))
		pen := "M"
		for k := range c.y {
			if math.IsNaN(c.y[k]) {
				pen = "M"
				continue
			}
			fmt.Fprintf(b, "%s%.1f %.1f", pen, px(c.x[k]), py(c.y[k]))
			pen = "L"
		}
		fmt.Fprintf(b, "\"><title>%s</title></path>\n", html.EscapeString(c.name))
	}
	b.WriteString("</svg>\n<ul class=\"legend\">\n")
	for i, c := range curves {
		fmt.Fprintf(b, "<li><svg viewBox=\"0 0 26 8\"><path class=\"curve %s\" d=\"M1 4L25 4\"/></svg>%s</li>\n", style(i), html.EscapeString(c.name))
	}
	b.WriteString("</ul>\n")
	if left > 0 {
		fmt.Fprintf(b, "<p class=\"none\">The %d with the highest peaks; %d more are in the CSV and JSON files.</p>\n", len(curves), left)
	}
}

// style is the classes of the curve at a place: colours, then dashes.
func style(i int) string { return fmt.Sprintf("c%d d%d", i%plotColours, i/plotColours%3) }

func peakOf(v []float64) float64 {
	m := math.Inf(-1)
	for _, x := range v {
		if x > m { // not for NaN
			m = x
		}
	}
	return m
}

// reduced is the curve with no more points than a plot has room for.
func (c curve) reduced(peak bool) curve {
	n := len(c.y)
	if n <= plotColumns {
		return c
	}
	out := curve{name: c.name}
	for i := range plotColumns {
		a, b := i*n/plotColumns, (i+1)*n/plotColumns
		sum, k, most := 0.0, 0, math.NaN()
		for _, v := range c.y[a:b] {
			if !math.IsNaN(v) {
				sum, k = sum+v, k+1
				if !(most >= v) {
					most = v
				}
			}
		}
		if !peak && k > 0 {
			most = sum / float64(k)
		}
		out.x, out.y = append(out.x, c.x[b-1]), append(out.y, most)
	}
	return out
}

// ticks are round numbers from 0 to a value or a little more, four to nine.
func ticks(top float64) (out []float64) {
	step := math.Pow(10, math.Floor(math.Log10(top)))
	switch n := top / step; {
	case n < 2:
		step /= 5
	case n < 5:
		step /= 2
	}
	n := int(top/step + 1e-9)
	for i := range n + 1 {
		out = append(out, float64(i)*step)
	}
	return out
}
