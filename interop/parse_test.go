package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/interop/rig"
)

// What tc -s qdisc show prints in the guest (iproute2 6.1).
const tcOutput = `qdisc noqueue 0: dev lo root refcnt 2 
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
qdisc prio 1: dev eth0 root refcnt 2 bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 Sent 1058 bytes 11 pkt (dropped 9, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
qdisc netem 40: dev eth0 parent 1:2 limit 20000 delay 300us loss 2% duplicate 1% reorder 2% gap 1
 Sent 52 bytes 1 pkt (dropped 7, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
qdisc ingress ffff: dev eth0 parent ffff:fff1 ---------------- 
 Sent 546 bytes 9 pkt (dropped 3, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
qdisc netem 50: dev ifbin root refcnt 2 limit 20000 delay 300us loss 2% duplicate 1% reorder 2% gap 1
 Sent 0 bytes 0 pkt (dropped 12, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
`

func TestLosses(t *testing.T) {
	to, from, err := parseLosses(tcOutput)
	if err != nil || to != 12 || from != 7 {
		t.Errorf("%d to the guest, %d from it, %v; want 12 and 7", to, from, err)
	}
	if _, _, err := parseLosses(strings.Replace(tcOutput, "netem 50", "fq 50", 1)); err == nil {
		t.Error("one netem is enough")
	}
}

func TestOverloaded(t *testing.T) {
	for _, c := range []struct {
		load       string
		processors int
		want       bool
	}{
		{"3.97 8.46 14.14 4/512 9281", 2, false},
		{"6.00 8.46 14.14 4/512 9281", 2, false},
		{"11.87 9.60 10.27 4/512 9281", 2, true},
		{"11.87 9.60 10.27 4/512 9281", 4, false},
		{"", 2, false},
	} {
		if got := overloaded(c.load, c.processors); (got != "") != c.want {
			t.Errorf("%q on %d processors: %q", c.load, c.processors, got)
		}
	}
}

func TestPingpongSaid(t *testing.T) {
	c := &Case{Kind: "rc", Size: 4096, Iters: 50}
	const good = `  local address:  LID 0x0000, QPN 0x000011, PSN 0xf807cf, GID ::ffff:192.0.2.3
  remote address: LID 0x0000, QPN 0x000011, PSN 0x823d2b, GID ::ffff:192.0.2.2
409600 bytes in 0.17 seconds = 19.48 Mbit/sec
50 iters in 0.17 seconds = 3363.66 usec/iter
`
	if err := pingpongSaid("it", good, nil, c); err != nil {
		t.Error(err)
	}
	if got := rate(good); got != "3363.66 usec/iter" {
		t.Errorf("rate %q", got)
	}
	for name, bad := range map[string]struct {
		out string
		err error
	}{
		"wrong data":  {good + "invalid data in page 0\n", nil},
		"wrong count": {strings.Replace(good, "50 iters", "49 iters", 1), nil},
		"wrong bytes": {strings.Replace(good, "409600 bytes", "409601 bytes", 1), nil},
		"nothing":     {"", nil},
		"status":      {good, &rig.ExitError{Status: 1}},
		"error":       {good, errors.New("killed")},
	} {
		if pingpongSaid("it", bad.out, bad.err, c) == nil {
			t.Errorf("%s: taken for good", name)
		}
	}
}
