package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"time"
)

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
		// No IPv6 address, which the kernel would still be checking.
		{"-n", w.a, "link", "set", "eth0", "addrgenmode", "none", "up"},
		{"-n", w.b, "link", "set", "eth0", "addrgenmode", "none", "up"},
	} {
		if out, err := exec.Command("ip", c...).CombinedOutput(); err != nil {
			w.close()
			return nil, fmt.Errorf("ip %v: %w: %s", c, err, out)
		}
	}
	return w, nil
}

// close removes the namespaces, and the wire with them. An interrupt does not
// reach the program that does it.
func (w *wire) close() {
	for _, n := range []string{w.a, w.b} {
		c := exec.Command("ip", "netns", "del", n)
		c.SysProcAttr = apart
		_ = c.Run()
	}
}

// in prepares a program to run in a namespace until ctx ends.
func in(ctx context.Context, ns, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns, name}, args...)...)
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

// margin is what a run may take beside its time.
const margin = 20 * time.Second

func (w *wire) iperf3(ctx context.Context, d time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, d+margin)
	defer cancel()
	server := in(ctx, w.b, "iperf3", "-s", "-1")
	client := in(ctx, w.a, "sh", "-c", fmt.Sprintf("sleep 0.3; exec iperf3 -c 192.0.2.2 -J -t %.0f", math.Ceil(d.Seconds())))
	out, err := both(server, client)
	var r struct {
		Error string `json:"error"`
		End   struct {
			Sum struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	jerr := json.Unmarshal(out, &r)
	switch {
	case r.Error != "":
		return 0, fmt.Errorf("iperf3: %s", r.Error)
	case err != nil:
		return 0, fmt.Errorf("iperf3: %w", err)
	case jerr != nil:
		return 0, fmt.Errorf("iperf3: its report: %w", jerr)
	case r.End.Sum.Bits == 0:
		return 0, errors.New("iperf3: nothing was received")
	}
	return r.End.Sum.Bits / 1e9, nil
}

func (w *wire) pair(ctx context.Context, o *options, op string) (r report, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.d+margin)
	defer cancel()
	args := []string{"-link", o.link, "-op", op, "-time", o.d.String()}
	server := in(ctx, w.b, self, append(args, "-role", "server")...)
	client := in(ctx, w.a, self, append(args, "-role", "client", "-peer", "192.0.2.2")...)
	out, err := both(server, client)
	if err != nil {
		return r, fmt.Errorf("RC %s over %s: %w", op, o.link, err)
	}
	return r, json.Unmarshal(out, &r)
}
