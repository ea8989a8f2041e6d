package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bed is two namespaces joined by two veth pairs: eth0 with an MTU of 9000,
// 192.0.2.1 and 192.0.2.2, and eth1 with 1500, 198.51.100.1 and 198.51.100.2.
type bed struct {
	a, b string
	rxed string // the program, once it is built
	dir  string // of that, and of sockets
}

// place is where a program runs: which wire, and on which processors.
type place struct {
	iface, server string
	pinned        bool // both ends on the first processor
}

var (
	bed9000   = place{iface: "eth0", server: "192.0.2.2"}
	bed1500   = place{iface: "eth1", server: "198.51.100.2"}
	bedPinned = place{iface: "eth0", server: "192.0.2.2", pinned: true}
)

func newBed() (*bed, error) {
	w := &bed{a: fmt.Sprintf("gorxe-bench-a%d", os.Getpid()), b: fmt.Sprintf("gorxe-bench-b%d", os.Getpid())}
	cmds := [][]string{{"netns", "add", w.a}, {"netns", "add", w.b}}
	for _, l := range []struct{ name, mtu, net string }{{"eth0", "9000", "192.0.2."}, {"eth1", "1500", "198.51.100."}} {
		cmds = append(cmds,
			[]string{"-n", w.a, "link", "add", l.name, "mtu", l.mtu, "type", "veth", "peer", "name", l.name, "netns", w.b, "mtu", l.mtu},
			[]string{"-n", w.a, "addr", "add", l.net + "1/24", "dev", l.name},
			[]string{"-n", w.b, "addr", "add", l.net + "2/24", "dev", l.name},
			// No IPv6 address, which the kernel would still be checking.
			[]string{"-n", w.a, "link", "set", l.name, "addrgenmode", "none", "up"},
			[]string{"-n", w.b, "link", "set", l.name, "addrgenmode", "none", "up"})
	}
	for _, n := range []string{w.a, w.b} { // UCX talks to itself too
		cmds = append(cmds, []string{"-n", n, "link", "set", "lo", "up"})
	}
	for _, c := range cmds {
		if out, err := exec.Command("ip", c...).CombinedOutput(); err != nil {
			w.close()
			return nil, fmt.Errorf("ip %v: %w: %s", c, err, out)
		}
	}
	if err := w.ready(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// ready waits until the kernel says that the interfaces are up: UCX takes no
// others.
func (b *bed) ready() error {
	for range 200 {
		up := 0
		for _, n := range []string{b.a, b.b} {
			out, err := exec.Command("ip", "-n", n, "-o", "link", "show", "up").CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip -n %s link show: %w: %s", n, err, out)
			}
			up += strings.Count(string(out), "state UP")
		}
		if up == 4 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the veth pairs do not come up")
}

// close removes the namespaces, and the wires with them. An interrupt does not
// reach the program that does it.
func (b *bed) close() {
	for _, n := range []string{b.a, b.b} {
		c := exec.Command("ip", "netns", "del", n)
		c.SysProcAttr = apart
		_ = c.Run()
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// in prepares a program to run in a namespace until ctx ends.
func (p place) in(ctx context.Context, ns, name string, args ...string) *exec.Cmd {
	line := append([]string{"netns", "exec", ns}, name)
	if p.pinned {
		line = append([]string{"netns", "exec", ns, "taskset", "-c", "0"}, name)
	}
	return exec.CommandContext(ctx, "ip", append(line, args...)...)
}

// both runs a server and a client and returns the client's output. A server
// that does not end by itself is ended once the client is done.
func both(server, client *exec.Cmd, endless bool) ([]byte, error) {
	server.Stderr, client.Stderr = os.Stderr, os.Stderr
	if err := server.Start(); err != nil {
		return nil, err
	}
	out, err := client.Output()
	if err != nil || endless {
		_ = server.Process.Kill()
	}
	if serr := server.Wait(); err == nil && !endless {
		err = serr
	}
	return out, err
}

// margin is what a run may take beside its time: ten thousand connections are
// made in it.
const margin = 60 * time.Second

// ours runs two ends of gorxe.
func (b *bed) ours(ctx context.Context, o *options, name string, j job) (_ samples, err error) {
	p := bed9000
	if j.MTU == 1500 {
		p = bed1500
	}
	p.pinned = j.Pinned
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.d+margin)
	defer cancel()
	j.Interface, j.Peer, j.Time = p.iface, p.server, o.d
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
	}()
	end := func(ns, role string) (*exec.Cmd, error) {
		j.Server, j.Socket = role == "server", ""
		if j.Rxed == role || j.Rxed == "both" {
			stop, err := b.daemon(ctx, p, ns, &j)
			if err != nil {
				return nil, err
			}
			stops = append(stops, stop)
		}
		if o.profile != "" {
			j.Profile = filepath.Join(o.profile, name+"."+role+".pprof")
		}
		text, err := json.Marshal(j)
		return p.in(ctx, ns, self, "-end", string(text)), err
	}
	server, err := end(b.b, "server")
	if err != nil {
		return nil, err
	}
	client, err := end(b.a, "client")
	if err != nil {
		return nil, err
	}
	out, err := both(server, client, false)
	if err != nil {
		return nil, err
	}
	var got samples
	if err := json.Unmarshal(out, &got); err != nil {
		return nil, fmt.Errorf("its report: %w", err)
	}
	named := samples{}
	for k, v := range got {
		if k == "" {
			named[name] = v
		} else {
			named[name+"."+k] = v
		}
	}
	if len(named) == 0 {
		return nil, errors.New("it reports nothing")
	}
	return named, nil
}
