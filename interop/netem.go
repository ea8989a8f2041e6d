package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gorxe/gorxe/interop/rig"
)

// The guest breaks only RoCE traffic, so that the control connection stays
// whole: packets to UDP port 4791 that it sends take a band of their own, and
// those it receives go through ifbin, since netem works on what is sent.
const netemUp = `set -e
modprobe -a ifb sch_netem sch_prio cls_flower act_mirred
broken='limit 20000 delay 300us loss 2% duplicate 1% reorder 2%'
tc qdisc add dev eth0 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
tc qdisc add dev eth0 parent 1:2 handle 40: netem $broken
ip link add ifbin type ifb; ip link set ifbin mtu 4500 up
tc qdisc add dev ifbin root handle 50: netem $broken
tc qdisc add dev eth0 handle ffff: ingress
for family in ip ipv6; do
  tc filter add dev eth0 parent 1: protocol $family flower ip_proto udp dst_port 4791 classid 1:2
  tc filter add dev eth0 parent ffff: protocol $family flower ip_proto udp dst_port 4791 action mirred egress redirect dev ifbin
done`

// netemDown undoes netemUp, whatever of it was done.
const netemDown = `tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; ip link del ifbin; true`

// losses matches netem's counters in the output of tc -s qdisc.
var losses = regexp.MustCompile(`qdisc netem (40|50): .*\n.*\(dropped (\d+),`)

// netemLosses returns how many packets netem has lost towards the guest, and
// from it.
func netemLosses(ctx context.Context, guest int) (to, from uint64, err error) {
	out, err := rig.Exec(ctx, guest, "tc -s qdisc show")
	if err != nil {
		return 0, 0, err
	}
	return parseLosses(out)
}

func parseLosses(out string) (to, from uint64, err error) {
	found := map[string]uint64{}
	for _, m := range losses.FindAllStringSubmatch(out, -1) {
		n, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		found[m[1]] = n
	}
	if len(found) != 2 {
		return 0, 0, fmt.Errorf("tc shows %d of 2 netem: %s", len(found), strings.TrimSpace(out))
	}
	return found["50"], found["40"], nil
}
