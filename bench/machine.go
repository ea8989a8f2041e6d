package main

import (
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

// check says what a measurement needs that is not here.
func (o *options) check() error {
	switch {
	case o.rounds < 1:
		return fmt.Errorf("-rounds %d: at least one", o.rounds)
	case o.d <= 0:
		return fmt.Errorf("-time %v: more than nothing", o.d)
	case o.link != "udp" && o.link != "packet":
		return fmt.Errorf("-link %s: there are udp and packet", o.link)
	case os.Geteuid() != 0:
		return errors.New("network namespaces need root: run it as root")
	}
	for prog, pkg := range map[string]string{"ip": "iproute2", "iperf3": "iperf3"} {
		if _, err := exec.LookPath(prog); err != nil {
			return fmt.Errorf("%s is not installed (Debian: apt-get install %s)", prog, pkg)
		}
	}
	return nil
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
