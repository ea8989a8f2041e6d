package pingpong

import (
	"fmt"
	"time"
)

// gaps are the times between receive completions, for -t.
type gaps struct {
	min, max, sum time.Duration
	n             int
}

func (r *run) stamp() {
	if !r.cfg.Stamps {
		return
	}
	now := time.Now()
	if !r.last.IsZero() {
		d := now.Sub(r.last)
		if r.gaps.n == 0 || d < r.gaps.min {
			r.gaps.min = d
		}
		r.gaps.max = max(r.gaps.max, d)
		r.gaps.sum += d
		r.gaps.n++
	}
	r.last = now
}

// report prints the original's lines. The clock of -t is one of 1 GHz.
func (r *run) report(d time.Duration) {
	c := r.cfg
	octets := int64(c.Size) * int64(c.Iters) * 2
	us := float64(d.Nanoseconds()) / 1000
	fmt.Fprintf(c.Out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", octets, us/1e6, float64(octets)*8/us)
	fmt.Fprintf(c.Out, "%d iters in %.2f seconds = %.2f usec/iter\n", c.Iters, us/1e6, us/float64(c.Iters))
	if c.Stamps && r.gaps.n > 0 {
		fmt.Fprintf(c.Out, "Max receive completion clock cycles = %d\n", r.gaps.max.Nanoseconds())
		fmt.Fprintf(c.Out, "Min receive completion clock cycles = %d\n", r.gaps.min.Nanoseconds())
		fmt.Fprintf(c.Out, "Average receive completion clock cycles = %f\n", float64(r.gaps.sum.Nanoseconds())/float64(r.gaps.n))
	}
	if r.check.bad != nil {
		fmt.Fprintf(c.Out, "invalid data in page %d\n", r.check.bad.page)
	}
}
