package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Samples are the latencies of one size: times from one request to the next.
type Samples struct {
	Size uint64 // octets of a message

	half  float64 // what part of a round trip is a latency
	each  []time.Duration
	keep  bool
	count uint64
	sum   time.Duration
	max   time.Duration
	hist  *hdrhistogram.Histogram
}

// NewSamples has room for n iterations, of which all samples are kept; with
// n 0, for a test of some duration, the histogram alone is. A latency is half a
// round trip if half is true, as of SEND and WRITE.
func NewSamples(size uint64, n int, half bool) *Samples {
	s := &Samples{Size: size, half: 1, keep: n > 0, each: make([]time.Duration, 0, max(n, 0)), hist: hdrhistogram.New(1, int64(maxSample), digits)}
	if half {
		s.half = 0.5
	}
	return s
}

// Add records a round trip. It does not allocate until there are more than n.
func (s *Samples) Add(d time.Duration) {
	d = max(d, 0)
	s.count++
	s.sum += d
	s.max = max(s.max, d)
	if s.keep {
		s.each = append(s.each, d)
	}
	s.hist.RecordValue(int64(min(d, maxSample)))
}

// latency is a summary, in microseconds. The first seven numbers are
// perftest's: of the samples without the two largest, with the next one for the
// maximum. Its standard deviation is cut to whole microseconds sample by
// sample; ours is not. The percentiles are of all samples, from the histogram.
type latency struct {
	iters                                      uint64
	min, max, typical, avg, stdev, p99, p999   float64
	tps                                        float64 // transactions a second, of a test of some duration
	unsorted, sorted                           []float64
	hist50, hist90, hist99, hist999, histogram float64
}

func (s *Samples) us(d time.Duration) float64 { return float64(d) / 1e3 * s.half }

func (s *Samples) summary() latency {
	l := latency{iters: s.count}
	at := func(p float64) float64 { return s.us(min(time.Duration(s.hist.ValueAtPercentile(p)), s.max)) }
	l.hist50, l.hist90, l.hist99, l.hist999, l.histogram = at(50), at(90), at(99), at(99.9), s.us(s.max)
	if !s.keep {
		l.avg = s.us(s.sum) / float64(s.count)
		l.tps = float64(s.count) / s.sum.Seconds()
		return l
	}
	l.iters++ // each sample is between two of them
	for _, d := range s.each {
		l.unsorted = append(l.unsorted, s.us(d))
	}
	all := slices.Sorted(slices.Values(l.unsorted))
	n := max(len(all)-tail, 1)
	l.sorted = all[:n]
	l.min, l.max = all[0], all[min(n, len(all)-1)]
	l.typical = all[n/2]
	if n%2 == 0 {
		l.typical = (all[n/2] + all[n/2-1]) / 2
	}
	var sum, squares float64
	for _, x := range l.sorted {
		sum += x
	}
	l.avg = sum / float64(n)
	for _, x := range l.sorted {
		squares += (x - l.avg) * (x - l.avg)
	}
	l.stdev = math.Sqrt(squares / float64(n))
	ceil := func(p float64) float64 { return all[min(int(math.Ceil(float64(n)*p)), len(all)-1)] }
	l.p99, l.p999 = ceil(0.99), ceil(0.999)
	return l
}

// headPercentiles and columns come after perftest's columns, where programs
// that count columns or lines do not meet them.
const headPercentiles = "   p50[usec]  p90[usec]  p99[usec]  p99.9[usec]  max[usec]"

func (l *latency) columns() string {
	return strings.TrimRight(fmt.Sprintf("\t\t%-9.2f  %-9.2f  %-9.2f  %-11.2f  %-9.2f", l.hist50, l.hist90, l.hist99, l.hist999, l.histogram), " ")
}

// g6 is C's "%g".
func g6(x float64) string {
	s := strconv.FormatFloat(x, 'g', 6, 64)
	if m, e, ok := strings.Cut(s, "e"); ok {
		return trimZeros(m) + "e" + e
	}
	return trimZeros(s)
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}
