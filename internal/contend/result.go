package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gorxe/gorxe/internal/relay"
)

// result is what an experiment gave.
type result struct {
	e       *experiment
	samples []sample
	counts  [2]map[string]uint64 // of the sender's and the receiver's device
	reports []report             // each half, then everything
	rate    int                  // of the bottleneck
}

// report is what rxe relay says of the direction that data goes.
type report struct {
	Last bool             `json:"last"`
	AB   *relay.WayReport `json:"ab"`
}

// window is the time over which shares are looked at to say whether they have settled.
const window = 500 * time.Millisecond

// jain is Jain's fairness index of numbers: 1 when all are equal, 1/n when one has all.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares / float64(len(x))
}

// at returns the last sample of a time.
func (r *result) at(t time.Duration) *sample {
	for i := range r.samples {
		if r.samples[i].At >= t {
			return &r.samples[i]
		}
	}
	return &r.samples[len(r.samples)-1]
}

// shares returns the bits a second of each queue pair that was to send all the time
// from one time to another.
func (r *result) shares(from, to time.Duration) (out []float64) {
	a, b := r.at(from), r.at(to)
	for i := range b.Octets {
		if i == len(b.Octets)-1 && from < r.e.Join || i == 0 && r.e.Leave > 0 && to > r.e.Leave {
			continue
		}
		out = append(out, float64(b.Octets[i]-a.Octets[i])*8/(b.At-a.At).Seconds())
	}
	return out
}

// settled returns how long after a time the shares were first fair for a window.
func (r *result) settled(from time.Duration, want float64) (time.Duration, bool) {
	for t := from; t+window <= r.e.For; t += every {
		if jain(r.shares(t, t+window)) >= want {
			return t - from, true
		}
	}
	return 0, false
}

// change is when the queue pairs were last others.
func (r *result) change() time.Duration { return max(r.e.Join, r.e.Leave) }

// whole is the bottleneck's report of all the time, half of the second half.
func (r *result) whole() *relay.WayReport { return r.reports[len(r.reports)-1].AB }

func (r *result) half() *relay.WayReport {
	if len(r.reports) < 3 {
		return r.whole()
	}
	return r.reports[1].AB
}

const header = "run                   Jain   used   settled      marked    lost    queue KiB: mean  p99  max   CNPs  repeated"

func (r *result) row() string {
	w, h := r.whole(), r.half()
	when := "never"
	if t, ok := r.settled(r.change(), 0.95); ok {
		when = t.Round(every).String()
	}
	return fmt.Sprintf("%-20s %.3f  %.3f  %8s  %9.3f %% %7d  %14.0f %5.0f %5.0f %7d %9d", r.e.Name, jain(r.shares(r.e.For/2, r.e.For)), r.usage(),
		when, 100*float64(w.Marked)/float64(max(1, w.Packets)), w.Dropped, h.Queue.Mean/1024, float64(h.Queue.P99)/1024, float64(w.Queue.Max)/1024,
		r.counts[0]["np_cnp_sent"]+r.counts[1]["np_cnp_sent"], r.counts[0]["repeated_requests"])
}

// usage is how much of the bottleneck was used in the second half.
func (r *result) usage() float64 { return r.half().Rate / float64(r.rate) }

// judge says what is not as it should be.
func (r *result) judge(s *setting) error {
	lost := r.whole().Dropped
	if r.e.Loses {
		if lost == 0 {
			return errors.New("nothing was lost without congestion control: the bottleneck is none")
		}
		return nil
	}
	var bad []error
	if j := jain(r.shares(r.e.For/2, r.e.For)); j < s.jain {
		bad = append(bad, fmt.Errorf("a Jain index of %.3f, %.3f is wanted", j, s.jain))
	}
	if u := r.usage(); u < s.usage {
		bad = append(bad, fmt.Errorf("%.3f of the bottleneck was used, %.3f is wanted", u, s.usage))
	}
	if t, ok := r.settled(r.change(), s.jain); !ok || t > s.settle {
		bad = append(bad, fmt.Errorf("shares settled after %v (%v), %v is wanted", t, ok, s.settle))
	}
	if lost > 0 {
		bad = append(bad, fmt.Errorf("%d packets were lost", lost))
	}
	return errors.Join(bad...)
}

// show prints each window.
func (r *result) show(w io.Writer) {
	for t := time.Duration(0); t+window <= r.e.For; t += window {
		a, b := r.at(t), r.at(t+window)
		var line strings.Builder
		for i := range b.Octets {
			fmt.Fprintf(&line, " %5.0f", float64(b.Octets[i]-a.Octets[i])*8/(b.At-a.At).Seconds()/1e6)
		}
		fmt.Fprintf(w, "  %5.1f s: Mb/s%s\n", t.Seconds(), line.String())
	}
	fmt.Fprintf(w, "  sender: %s\n  receiver: %s\n", pick(r.counts[0]), pick(r.counts[1]))
}

// pick are counters worth a look.
func pick(c map[string]uint64) string {
	var out []string
	for _, n := range []string{"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "packet_seq_err", "local_ack_timeout_err", "repeated_requests", "roce_slow_restart", "implied_nak_seq_err", "link_rx_dropped", "icrc_id_window", "roce_adp_retrans", "pacing_wait", "window_wait", "np_cnp_delay"} {
		out = append(out, fmt.Sprintf("%s %d", n, c[n]))
	}
	return strings.Join(out, ", ")
}
