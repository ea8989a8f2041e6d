package perf

import (
	"errors"
	"math"
	"time"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/internal/perf/report"
)

// bandwidth is one run of a bandwidth tool: this end sends, or takes, or both,
// until each queue pair has had its messages or the time is over. Receives are
// posted before.
//
// perftest's bidirectional SEND server starts when the first message arrives,
// so that none comes before the client's receives are there.
func (r *run) bandwidth() (report.Bandwidth, error) {
	c := r.cfg
	sends := !c.server() || c.Both
	takes := c.messages() && (c.server() || c.Both)
	r.waits = takes && c.server()
	if takes {
		r.due += r.iters * uint64(len(r.flows))
	}
	if !r.waits {
		r.startClock()
	}
	for {
		if sends && !r.waits {
			for i := range r.flows {
				if err := r.top(&r.flows[i]); err != nil {
					return r.result(), err
				}
			}
		}
		if r.finished(sends, takes) {
			break
		}
		err := r.wait()
		if errors.Is(err, errOver) {
			break
		}
		if errors.Is(err, errQuiet) {
			r.clock.stop(r.lastAt)
			r.lost += r.iters*uint64(len(r.flows)) - r.arrived
			break
		}
		if err != nil {
			return r.result(), err
		}
		if r.second.CompareAndSwap(true, false) {
			r.everySecond()
		}
	}
	r.stopClock()
	return r.result(), nil
}

// top posts as much as a queue pair may have under way.
func (r *run) top(f *flow) error {
	list := uint64(len(f.wrs))
	for f.posted-f.done+list <= f.depth && (r.cfg.timed() || f.posted < r.iters) && r.roundAllows(f) {
		if r.peak != nil {
			r.peak.posted[r.posted] = r.now()
		}
		if err := r.send(f, len(f.wrs)); err != nil {
			return err
		}
		r.posted += list
	}
	return nil
}

func (r *run) finished(sends, takes bool) bool {
	if r.cfg.timed() {
		return false
	}
	all := r.iters * uint64(len(r.flows))
	return (!sends || r.sent >= all) && (!takes || r.arrived >= all) && r.roundsDone()
}

// firstArrival starts the clock of an end that waits for the other.
func (r *run) firstArrival() {
	if r.waits {
		r.waits = false
		r.startClock()
	}
}

// result is what the run has measured up to now.
func (r *run) result() report.Bandwidth {
	c := r.cfg
	n := r.counted
	if !c.timed() {
		if n = r.sent; c.messages() && c.server() && !c.Both {
			n = r.arrived
		}
	}
	b := report.Bandwidth{Size: r.size, Iters: n}
	if d := r.clock.elapsed(r.now()); d > 0 {
		b.Rate = float64(n) / d.Seconds()
		b.Average = b.Rate * float64(r.size)
	}
	if r.peak != nil && n > 0 {
		if gap := r.peak.gap(n); gap > 0 && !math.IsInf(gap, 1) {
			b.Peak = float64(r.size) * 1e9 / gap
		}
	}
	return b
}

// everySecond prints a row of --run_infinitely and starts the next.
func (r *run) everySecond() {
	b := r.result()
	if r.cfg.Both { // of what goes both ways, as perftest counts it
		b.Average, b.Rate = 2*b.Average, 2*b.Rate
	}
	r.out.Second(b)
	r.counted = 0
	r.clock.restart(r.now())
}

// units are of the reports that the two ends exchange.
func (r *run) unit() float64 {
	if r.cfg.Gbits {
		return 1e9 / 8
	}
	return 1 << 20
}

func (r *run) told(b report.Bandwidth) oob.BWReport {
	return oob.BWReport{Size: b.Size, Iters: b.Iters, BWPeak: b.Peak / r.unit(), BWAvg: b.Average / r.unit(), MsgRate: b.Rate / 1e6}
}

func (r *run) heard(b oob.BWReport) report.Bandwidth {
	return report.Bandwidth{Size: b.Size, Iters: b.Iters, Peak: b.BWPeak * r.unit(), Average: b.BWAvg * r.unit(), Rate: b.MsgRate * 1e6}
}

// now is the time since the run began.
func (r *run) now() time.Duration { return time.Since(r.began) }
