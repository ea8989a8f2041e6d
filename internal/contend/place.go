package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// place is three network namespaces in a row, and a folder with the programs.
//
//	sender --- eth0|left -- relay -- right|eth0 --- receiver
type place struct {
	dir                      string
	sender, middle, receiver string
}

// addrs are those of the ends.
var addrs = [2]string{"10.47.92.1", "10.47.92.2"}

func newPlace(ctx context.Context, mtu int) (p *place, err error) {
	name := func(s string) string { return fmt.Sprintf("gxcc-%d-%s", os.Getpid(), s) }
	p = &place{sender: name("a"), middle: name("m"), receiver: name("b")}
	if p.dir, err = os.MkdirTemp("", "gorxe-contend-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	build := exec.CommandContext(ctx, "go", "build", "-o", p.dir+"/", "github.com/gorxe/gorxe/cmd/rxe", "github.com/gorxe/gorxe/internal/contend")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build rxe (run this inside the repository): %w\n%s", err, out)
	}
	commands := []string{
		"ip netns add " + p.sender, "ip netns add " + p.middle, "ip netns add " + p.receiver,
		fmt.Sprintf("ip link add eth0 netns %s mtu %d type veth peer name left mtu %[2]d netns %s", p.sender, mtu, p.middle),
		fmt.Sprintf("ip link add eth0 netns %s mtu %d type veth peer name right mtu %[2]d netns %s", p.receiver, mtu, p.middle),
		fmt.Sprintf("ip -n %s addr add %s/24 dev eth0", p.sender, addrs[0]),
		fmt.Sprintf("ip -n %s addr add %s/24 dev eth0", p.receiver, addrs[1]),
	}
	for _, up := range [][2]string{{p.sender, "eth0"}, {p.middle, "left"}, {p.middle, "right"}, {p.receiver, "eth0"}, {p.sender, "lo"}, {p.receiver, "lo"}} {
		commands = append(commands, fmt.Sprintf("ip -n %s link set %s up", up[0], up[1]))
	}
	for _, c := range commands {
		f := strings.Fields(c)
		if out, err := exec.CommandContext(ctx, f[0], f[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	return p, nil
}

// command is a program of the folder in one of the namespaces.
func (p *place) command(ctx context.Context, ns, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns, filepath.Join(p.dir, program)}, args...)...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.Stderr = os.Stderr
	return c
}

func (p *place) close() {
	for _, ns := range []string{p.sender, p.middle, p.receiver} {
		_ = exec.Command("ip", "netns", "del", ns).Run()
	}
	_ = os.RemoveAll(p.dir)
}
