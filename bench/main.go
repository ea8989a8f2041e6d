package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

func main() {
	if err := run(); err != nil {
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

func run() error {
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
	return o.measure()
}

// result is one line of the table, and of the JSON file.
type result struct {
	Name    string  `json:"name"`
	Ratio   float64 `json:"ratio"`
	Against string  `json:"against"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Need    float64 `json:"need"`
	OK      bool    `json:"ok"`

	gbits []float64
}

func (o *options) measure() error {
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
		t, err := w.iperf3(o.d)
		if err != nil {
			return err
		}
		r, err := w.pair(o, "write")
		if err != nil {
			return err
		}
		last = r
		rd, err := w.pair(o, "read")
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
	fmt.Printf("\n%-24s %8s  %-20s %6s %13s %5s\n", "what", "Gbit/s", "against", "ratio", "spread", "need")
	fmt.Printf("%-24s %8.1f\n", "iperf3 TCP default", median(tcp))
	ok := true
	for _, r := range []*result{write, read} {
		fmt.Printf("%-24s %8.1f  %-20s %6.2f   %5.2f-%5.2f %5.2f\n", r.Name, median(r.gbits), r.Against, r.Ratio, r.Min, r.Max, r.Need)
		ok = ok && r.OK
	}
	c := last.Counters
	if n := c["tx_bursts"]; n > 0 {
		seg := float64(c["sent_pkts"]) / float64(n)
		fmt.Printf("\nWRITE at path MTU 4096 left in super-packets of %.1f segments on average (need 8); %d packets sent again\n", seg, c["repeated_requests"])
		ok = ok && seg >= 8
	}
	if o.json != "" {
		b, err := json.MarshalIndent([]*result{write, read}, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if !ok {
		return errors.New("a need is not met")
	}
	return nil
}

func (r *result) sum(ratios []float64) {
	r.Ratio, r.Min, r.Max = median(ratios), slices.Min(ratios), slices.Max(ratios)
	r.OK = r.Ratio >= r.Need
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

// wire is two namespaces joined by a veth pair, 192.0.2.1 and 192.0.2.2.
type wire struct{ a, b string }

func newWire(mtu int) (*wire, error) {
	w := &wire{fmt.Sprintf("gorxe-bench-a%d", os.Getpid()), fmt.Sprintf("gorxe-bench-b%d", os.Getpid())}
	m := fmt.Sprint(mtu)
	for _, c := range [][]string{
		{"netns", "add", w.a},
		{"netns", "add", w.b},
		{"-n", w.a, "link", "add", "eth0", "mtu", m, "type", "veth", "peer", "name", "eth0", "netns", w.b, "mtu", m},
		{"-n", w.a, "addr", "add", "192.0.2.1/24", "dev", "eth0"},
		{"-n", w.b, "addr", "add", "192.0.2.2/24", "dev", "eth0"},
		{"-n", w.a, "link", "set", "eth0", "up"},
		{"-n", w.b, "link", "set", "eth0", "up"},
	} {
		if out, err := exec.Command("ip", c...).CombinedOutput(); err != nil {
			w.close()
			return nil, fmt.Errorf("ip %v: %w: %s (root and iproute2 are needed)", c, err, out)
		}
	}
	return w, nil
}

func (w *wire) close() {
	for _, n := range []string{w.a, w.b} {
		_ = exec.Command("ip", "netns", "del", n).Run()
	}
}

func in(ns, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", ns, name}, args...)...)
}

// both runs a server and a client and returns the client's output.
func both(server, client *exec.Cmd) ([]byte, error) {
	server.Stderr, client.Stderr = os.Stderr, os.Stderr
	if err := server.Start(); err != nil {
		return nil, err
	}
	out, err := client.Output()
	if err != nil {
		_ = server.Process.Kill()
	}
	if serr := server.Wait(); err == nil {
		err = serr
	}
	return out, err
}

func (w *wire) iperf3(d time.Duration) (float64, error) {
	server := in(w.b, "iperf3", "-s", "-1")
	client := in(w.a, "sh", "-c", fmt.Sprintf("sleep 0.3; exec iperf3 -c 192.0.2.2 -J -t %.0f", d.Seconds()))
	out, err := both(server, client)
	if err != nil {
		return 0, fmt.Errorf("iperf3: %w", err)
	}
	var r struct {
		End struct {
			Sum struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, err
	}
	return r.End.Sum.Bits / 1e9, nil
}

func (w *wire) pair(o *options, op string) (r report, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	args := []string{"-link", o.link, "-op", op, "-time", o.d.String()}
	server := in(w.b, self, append(args, "-role", "server")...)
	client := in(w.a, self, append(args, "-role", "client", "-peer", "192.0.2.2")...)
	out, err := both(server, client)
	if err != nil {
		return r, fmt.Errorf("RC %s over %s: %w", op, o.link, err)
	}
	return r, json.Unmarshal(out, &r)
}
