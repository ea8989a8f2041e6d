package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The way between a guest and us has queues that lose packets when they are
// full, each with a counter of its own. They are read before and after a case, so
// that one that failed can say where its packets went:
//
//	guest: UDP socket, eth0 (virtio) -> tap -> br0 -> veth -> eth0, UDP socket or packet socket: us
//
// What a device of ours drops it says itself (link_rx_dropped and the reasons of
// package trace): a packet socket's losses are in no file.

// nothing marks the end of one file's text in the output of a command.
const nothing = "\n--\n"

// mediumCounters reads what was lost on the way so far. The guest's own are among
// its endpoint's counters.
func (r *runner) mediumCounters(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", r.ns, "sh", "-c",
		"for f in /proc/net/snmp /proc/net/snmp6 /proc/net/softnet_stat; do cat $f; echo --; done; cd /sys/class/net/eth0/statistics; grep . *dropped *errors")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("counters of our namespace: %w", err)
	}
	parts := strings.SplitN(string(out), nothing, 4)
	if len(parts) != 4 {
		return nil, fmt.Errorf("counters of our namespace: %.80q", out)
	}
	c := map[string]uint64{}
	snmp(c, parts[0])
	snmp6(c, parts[1])
	softnet(c, parts[2])
	for line := range strings.Lines(parts[3]) {
		if name, text, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			count(c, "our eth0 "+name, text)
		}
	}
	for _, dev := range []string{fmt.Sprintf("tap%d", r.guest), fmt.Sprintf("v%d", r.host), "br0"} {
		for _, name := range []string{"rx_dropped", "tx_dropped", "rx_errors", "tx_errors"} {
			b, err := os.ReadFile("/sys/class/net/" + dev + "/statistics/" + name)
			if err != nil {
				return nil, err
			}
			count(c, dev+" "+name, string(b))
		}
	}
	return c, nil
}

// count keeps a number that is written in text.
func count(c map[string]uint64, name, text string) {
	if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil {
		c[name] = n
	}
}

// losing are the counters of a namespace's IP and UDP that tell of lost packets.
var losing = []string{"RcvbufErrors", "SndbufErrors", "InDiscards", "OutDiscards", "MemErrors"}

// snmp takes what tells of losses from /proc/net/snmp: pairs of lines, names and
// numbers, of each protocol.
func snmp(c map[string]uint64, text string) {
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, numbers := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		if len(names) == 0 || len(names) != len(numbers) || names[0] != "Ip:" && names[0] != "Udp:" {
			continue
		}
		for k, name := range names {
			if slices.Contains(losing, name) {
				count(c, "our "+strings.TrimSuffix(names[0], ":")+" "+name, numbers[k])
			}
		}
	}
}

// snmp6 takes the same from /proc/net/snmp6: a name and a number in each line.
func snmp6(c map[string]uint64, text string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		for _, proto := range []string{"Ip6", "Udp6"} {
			if slices.Contains(losing, strings.TrimPrefix(f[0], proto)) && strings.HasPrefix(f[0], proto) {
				count(c, "our "+proto+" "+strings.TrimPrefix(f[0], proto), f[1])
			}
		}
	}
}

// softnet takes from /proc/net/softnet_stat, of all processors of this machine,
// what their input queues had no room for: the second number of each line, in
// hexadecimal.
func softnet(c map[string]uint64, text string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 {
			n, _ := strconv.ParseUint(f[1], 16, 64)
			c["this machine's input queues"] += n
		}
	}
}

// mediumPrefix begins the guest's counters of what it lost between its Soft-RoCE and the
// network, by the names that its endpoint gives them.
const mediumPrefix = "net "

// lostOnTheWay says which queues lost how many packets between two looks, or "".
func lostOnTheWay(before, after, guest map[string]uint64) string {
	moved := map[string]uint64{}
	for k, v := range after {
		if d := v - before[k]; d != 0 {
			moved[k] = d
		}
	}
	for k, v := range guest {
		if name, ok := strings.CutPrefix(k, mediumPrefix); ok {
			moved["the guest's "+name] = v
		}
	}
	var s []string
	for _, k := range slices.Sorted(maps.Keys(moved)) {
		s = append(s, fmt.Sprintf("%s %d", k, moved[k]))
	}
	return strings.Join(s, ", ")
}
