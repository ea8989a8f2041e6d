package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// apart puts a program in a process group of its own, which a terminal's
// interrupt does not reach.
var apart = &syscall.SysProcAttr{Setpgid: true}

// check says what a measurement needs that is not here, and installs what it
// may.
func (o *options) check(ctx context.Context, lines []need) error {
	switch {
	case o.rounds < 1:
		return fmt.Errorf("-rounds %d: at least one", o.rounds)
	case o.d <= 0:
		return fmt.Errorf("-time %v: more than nothing", o.d)
	case os.Geteuid() != 0:
		return errors.New("network namespaces need root: run it as root")
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return fmt.Errorf("-profile: %w", err)
		}
	}
	missing := map[string]string{} // package: a command of it
	add := func(pkg, cmd string) {
		if _, err := exec.LookPath(cmd); cmd != "" && err != nil {
			missing[pkg] = cmd
		}
	}
	add("iproute2", "ip")
	for _, p := range wanted(programs(o), lines) {
		add(p.deb, p.cmd)
	}
	if len(missing) == 0 {
		return nil
	}
	pkgs, cmds := "", ""
	for p, c := range missing {
		pkgs, cmds = pkgs+" "+p, cmds+" "+c
	}
	if _, err := exec.LookPath("apt-get"); err != nil || !o.install {
		return fmt.Errorf("not installed:%s (Debian: apt-get install%s)", cmds, pkgs)
	}
	fmt.Printf("installing%s\n", pkgs)
	c := exec.CommandContext(ctx, "sh", "-c", "apt-get -q update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends"+pkgs+" >/dev/null")
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("apt-get install%s: %w", pkgs, err)
	}
	return nil
}

// idleLimit is what part of the processors others may use.
const idleLimit = 0.1

// settle waits until the machine is idle, at most for a while, and returns how
// long that took and what others use now.
func settle(ctx context.Context, limit time.Duration) (time.Duration, float64) {
	start := time.Now()
	for {
		load := busy(500 * time.Millisecond)
		if load <= idleLimit || time.Since(start) > limit || ctx.Err() != nil {
			return time.Since(start), load
		}
	}
}

// busy measures for a while what part of the processors is in use; 0 where that
// cannot be seen.
func busy(d time.Duration) float64 {
	idle, all := processors()
	time.Sleep(d)
	idle2, all2 := processors()
	if all2 <= all {
		return 0
	}
	return 1 - (idle2-idle)/(all2-all)
}

// processors returns how long all processors together were idle, and the whole
// time, in ticks since boot: proc(5), /proc/stat.
func processors() (idle, all float64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 { // the name; guests' time is in the users' already
			continue
		}
		all += v
		if i == 4 || i == 5 { // idle, and waiting for a disk
			idle += v
		}
	}
	return idle, all
}
