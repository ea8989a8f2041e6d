package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options of a run.
type options struct {
	rounds int
	d      time.Duration
	mtu    int
	link   string
	json   string
}

func run(ctx context.Context) error {
	var o options
	var e end
	role := flag.String("role", "", "server or client: be one end (used by the program itself)")
	flag.IntVar(&o.rounds, "rounds", 5, "interleaved rounds")
	flag.DurationVar(&o.d, "time", 2*time.Second, "time of each run")
	flag.IntVar(&o.mtu, "mtu", 9000, "MTU of the veth pair")
	flag.StringVar(&o.link, "link", "udp", "udp or packet")
	flag.StringVar(&o.json, "json", "", "write the results to this file")
	flag.StringVar(&e.peer, "peer", "", "address of the server")
	flag.StringVar(&e.op, "op", "write", "write or read")
	flag.IntVar(&e.size, "size", 1<<20, "octets of a message")
	flag.IntVar(&e.window, "window", 4, "messages outstanding")
	flag.Parse()
	if *role != "" {
		e.server, e.link, e.d = *role == "server", o.link, o.d
		return e.run()
	}
	return o.measure(ctx)
}

// result is one line of the table, and of the JSON file.
type result struct {
	Name    string  `json:"name"`
	Gbits   float64 `json:"gbits"` // median
	Ratio   float64 `json:"ratio"`
	Against string  `json:"against"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Need    float64 `json:"need"`
	OK      bool    `json:"ok"`

	gbits []float64
}

// summary is the JSON file.
type summary struct {
	Link     string    `json:"link"`
	MTU      int       `json:"mtu"`
	Rounds   int       `json:"rounds"`
	Seconds  float64   `json:"seconds"` // of each run
	Busy     float64   `json:"busy"`    // part of the processors that others used just before
	TCPGbits float64   `json:"tcp_gbits"`
	Segments float64   `json:"segments"` // of a super-packet of WRITE, on average
	Repeated uint64    `json:"repeated"` // packets of the last WRITE run
	Results  []*result `json:"results"`
}

// segmentsNeed is how many segments a super-packet of WRITE must have.
const segmentsNeed = 8

func (o *options) measure(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	s := summary{Link: o.link, MTU: o.mtu, Rounds: o.rounds, Seconds: o.d.Seconds(), Busy: busy(500 * time.Millisecond)}
	if s.Busy > 0.1 {
		fmt.Printf("the machine is not idle: others use %.0f%% of its processors, so figures are too low and spread too far\n", s.Busy*100)
	}
	w, err := newWire(o.mtu)
	if err != nil {
		return err
	}
	defer w.close()
	write := &result{Name: "RC WRITE 1 MiB, " + o.link, Against: "iperf3 TCP default", Need: 1.0}
	read := &result{Name: "RC READ 1 MiB, " + o.link, Against: "RC WRITE 1 MiB", Need: 0}
	var tcp, ratios, readRatios []float64
	var last report
	for i := range o.rounds {
		t, err := w.iperf3(ctx, o.d)
		if err != nil {
			return err
		}
		r, err := w.pair(ctx, o, "write")
		if err != nil {
			return err
		}
		last = r
		rd, err := w.pair(ctx, o, "read")
		if err != nil {
			return err
		}
		tcp = append(tcp, t)
		write.gbits = append(write.gbits, r.Gbits)
		read.gbits = append(read.gbits, rd.Gbits)
		ratios = append(ratios, r.Gbits/t)
		readRatios = append(readRatios, rd.Gbits/r.Gbits)
		fmt.Printf("round %d: iperf3 TCP %.1f Gbit/s, WRITE %.1f, READ %.1f\n", i+1, t, r.Gbits, rd.Gbits)
	}
	write.sum(ratios)
	read.sum(readRatios)
	s.TCPGbits, s.Results, s.Repeated = median(tcp), []*result{write, read}, last.Counters["repeated_requests"]
	if n := last.Counters["tx_bursts"]; n > 0 {
		s.Segments = float64(last.Counters["sent_pkts"]) / float64(n)
	}
	s.print()
	if o.json != "" {
		if err := s.save(o.json); err != nil {
			return err
		}
	}
	if !write.OK || !read.OK || s.Segments < segmentsNeed {
		return errors.New("a need is not met")
	}
	return nil
}

func (s *summary) print() {
	fmt.Printf("\n%-24s %8s  %-20s %6s %13s %5s\n", "what", "Gbit/s", "against", "ratio", "spread", "need")
	fmt.Printf("%-24s %8.1f\n", "iperf3 TCP default", s.TCPGbits)
	for _, r := range s.Results {
		fmt.Printf("%-24s %8.1f  %-20s %6.2f   %5.2f-%5.2f %5.2f\n", r.Name, r.Gbits, r.Against, r.Ratio, r.Min, r.Max, r.Need)
	}
	fmt.Printf("\nWRITE left in super-packets of %.1f segments on average (need %d); %d packets sent again in the last round\n", s.Segments, segmentsNeed, s.Repeated)
}

func (s *summary) save(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func (r *result) sum(ratios []float64) {
	r.Ratio, r.Min, r.Max = median(ratios), slices.Min(ratios), slices.Max(ratios)
	r.Gbits, r.OK = median(r.gbits), r.Ratio >= r.Need
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return 0
	}
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
