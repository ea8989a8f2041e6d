package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// samples are the figures of one round: Gbit/s, or microseconds, by the name of
// the program, or of program and part ("ucx_tag_lat.p99").
type samples map[string]float64

// program is what a round runs once.
type program struct {
	name string
	deb  string // Debian package it needs, and the command of that
	cmd  string
	run  func(context.Context, *bed) (samples, error)
}

// programs is everything that can be measured, in the order of a round:
// those that are compared stand together.
func programs(o *options) []program {
	ours := func(name string, j job) program {
		return program{name: name, run: func(ctx context.Context, b *bed) (samples, error) { return b.ours(ctx, o, name, j) }}
	}
	const kib, mib = 1 << 10, 1 << 20
	return []program{
		iperf3("tcp", o.d, bed9000),
		ours("write_1m", job{Op: "write", Size: mib}),
		ours("floor_bw", job{Op: "floor_bw"}),
		iperf3("tcp_1m", o.d, bed9000, "-l", "1M"),
		ours("write_64m", job{Op: "write", Size: mib, Region: 64 * mib}),
		iperf3("tcp_zerocopy", o.d, bed9000, "-Z"),
		ucx("ucx_put_1m", o.d, "ucp_put_bw", mib, ""),
		ours("write_64k", job{Op: "write", Size: 64 * kib, Window: 16}),
		ucx("ucx_put_64k", o.d, "ucp_put_bw", 64*kib, ""),
		ours("many_qps", job{Op: "write", Size: 64 * kib, Window: 16, QPs: 10000, Active: 1000}),
		ours("write_lossless", job{Op: "write", Size: 64 * kib, Window: 4}),
		ours("write_loss", job{Op: "write", Size: 64 * kib, Window: 4, Faults: "rx drop 1%"}),
		ours("send_1m", job{Op: "send", Size: mib}),
		ours("read_1m", job{Op: "read", Size: mib}),
		ours("write_both", job{Op: "write", Size: mib, Both: true}),
		ours("write_1m_packet", job{Op: "write", Size: mib, Link: "packet"}),
		ours("write_64k_packet", job{Op: "write", Size: 64 * kib, Window: 16, Link: "packet"}),
		ours("write_1m_xdp", job{Op: "write", Size: mib, Link: "xdp"}),
		iperf3("tcp_1500", o.d, bed1500),
		ours("write_1500", job{Op: "write", Size: mib, MTU: 1500}),
		iperf3("tcp_pinned", o.d, bedPinned),
		ours("write_pinned", job{Op: "write", Size: mib, Pinned: true}),
		ucx("ucx_tag_lat", o.d, "tag_lat", 2, "p50"),
		ours("send_lat_udp", job{Op: "send_lat", Size: 2}),
		ours("floor_lat", job{Op: "floor_lat"}),
		ours("send_lat_packet", job{Op: "send_lat", Size: 2, Link: "packet"}),
		ucx("ucx_put_lat", o.d, "ucp_put_lat", 8, "p50"),
		ours("write_lat", job{Op: "write_lat", Size: 8}),
		qperf("qperf_udp_lat", o.d),
		ours("blocked_lat", job{Op: "send_lat", Size: 2, Blocked: true}),
		ours("asleep_lat", job{Op: "send_lat", Size: 2, Blocked: true, Think: 200 * time.Microsecond}),
		ours("write_64k_own", job{Op: "write", Size: 64 * kib, Window: 16}),
		ours("write_64k_rxed", job{Op: "write", Size: 64 * kib, Window: 16, Rxed: "client"}),
		ours("write_64k_to_rxed", job{Op: "write", Size: 64 * kib, Window: 16, Rxed: "server"}),
		ours("send_lat_own", job{Op: "send_lat", Size: 2}),
		ours("send_lat_rxed", job{Op: "send_lat", Size: 2, Rxed: "server"}),
		ours("send_lat_rxed2", job{Op: "send_lat", Size: 2, Rxed: "both"}),
		queueing(o, "queue_rxed"),
		ours("asleep_lat_own", job{Op: "send_lat", Size: 2, Blocked: true, Think: 200 * time.Microsecond}),
		ours("asleep_lat_rxed", job{Op: "send_lat", Size: 2, Blocked: true, Think: 200 * time.Microsecond, Rxed: "server"}),
		ours("write_1m_cc", job{Op: "write", Size: mib}),
		ours("write_1m_none", job{Op: "write", Size: mib, CC: "none"}),
		ours("write_64k_cc", job{Op: "write", Size: 64 * kib, Window: 16}),
		ours("write_64k_none", job{Op: "write", Size: 64 * kib, Window: 16, CC: "none"}),
		ours("many_cc", job{Op: "write", Size: 64 * kib, Window: 16, QPs: 10000, Active: 1000}),
		ours("many_none", job{Op: "write", Size: 64 * kib, Window: 16, QPs: 10000, Active: 1000, CC: "none"}),
		ours("read_1m_cc", job{Op: "read", Size: mib}),
		ours("read_1m_none", job{Op: "read", Size: mib, CC: "none"}),
		ours("send_lat_cc", job{Op: "send_lat", Size: 2}),
		ours("send_lat_none", job{Op: "send_lat", Size: 2, CC: "none"}),
		ours("rate_64_cc", job{Op: "send", Size: 64, Window: 512, List: 64}),
		ours("rate_64_none", job{Op: "send", Size: 64, Window: 512, List: 64, CC: "none"}),
		ours("rate_64", job{Op: "send", Size: 64, Window: 512, List: 64}),
	}
}

// wanted are the programs that lines of the table are made of.
func wanted(all []program, lines []need) []program {
	names := map[string]bool{}
	add := func(figure string) {
		name, _, _ := strings.Cut(figure, ".")
		names[name] = true
	}
	for _, n := range lines {
		add(n.of)
		for _, a := range n.against {
			add(a)
		}
	}
	return slices.DeleteFunc(all, func(p program) bool { return !names[p.name] })
}

func (o *options) measure(ctx context.Context, lines []need) error {
	b, err := newBed()
	if err != nil {
		return err
	}
	defer b.close()
	progs := wanted(programs(o), lines)
	s := summary{Rounds: o.rounds, Seconds: o.d.Seconds(), Started: time.Now().UTC().Format(time.RFC3339)}
	fmt.Printf("%d programs, %d rounds, about %v\n", len(progs), o.rounds, (time.Duration(len(progs)*o.rounds) * (o.d + time.Second)).Round(time.Minute))
	var rounds []samples
	for i := range o.rounds {
		waited, load := settle(ctx, o.idle)
		s.Busy = max(s.Busy, load)
		if load > idleLimit {
			fmt.Printf("round %d: others use %.0f%% of the processors, after %v: figures are too low and spread too far\n", i+1, load*100, waited.Round(time.Second))
		}
		round := samples{}
		for _, p := range progs {
			got, err := p.run(ctx, b)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			maps.Copy(round, got)
		}
		rounds = append(rounds, round)
		fmt.Printf("round %d done\n", i+1)
	}
	return s.report(o, lines, rounds)
}
