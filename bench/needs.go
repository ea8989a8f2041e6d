package main

import (
	"regexp"
	"slices"
)

// need is a line of the table: a figure, what it is compared with in the same
// round, and the ratio that is asked for.
type need struct {
	name    string
	of      string   // program, or part of one ("send_lat_udp.p99")
	against []string // programs: the best of them counts; none: the figure itself is judged
	words   string   // what it is compared with, for the reader
	ratio   float64
	atMost  bool // the ratio is to be this or less
	scale   func(samples) float64
}

// needs is the table. Ratios of gorxe to others are those of the project's
// performance goals; docs/performance.md has the last run.
func needs() []need {
	best := []string{"tcp", "tcp_1m", "tcp_zerocopy"}
	return []need{
		{name: "RC WRITE 1 MiB, udp", of: "write_1m", against: []string{"tcp"}, words: "iperf3 TCP default", ratio: 1.8},
		{name: "RC WRITE 1 MiB, udp", of: "write_1m", against: best, words: "best of iperf3's modes", ratio: 1.3},
		{name: "RC WRITE 1 MiB, udp", of: "write_1m", against: []string{"ucx_put_1m"}, words: "UCX tcp put_bw", ratio: 2.7},
		{name: "RC WRITE 64 KiB, udp", of: "write_64k", against: []string{"tcp"}, words: "iperf3 TCP default", ratio: 1.6},
		{name: "RC WRITE 64 KiB, udp", of: "write_64k", against: []string{"ucx_put_64k"}, words: "UCX tcp put_bw", ratio: 2.5},
		{name: "RC SEND 1 MiB, udp", of: "send_1m", against: []string{"write_1m"}, words: "RC WRITE 1 MiB", ratio: 0.9},
		{name: "RC READ 1 MiB, udp", of: "read_1m", against: []string{"write_1m"}, words: "RC WRITE 1 MiB", ratio: 0.8},
		{name: "RC WRITE 1 MiB, region of 64 MiB", of: "write_64m", against: best, words: "best of iperf3's modes", ratio: 1.0},
		{name: "RC WRITE 1 MiB, MTU 1500", of: "write_1500", against: []string{"tcp_1500"}, words: "iperf3 TCP default", ratio: 1.0},
		{name: "RC WRITE 1 MiB, both ways", of: "write_both", against: []string{"write_1m"}, words: "one way", ratio: 0.9},
		{name: "RC SEND 2 B half round trip, udp", of: "send_lat_udp.p50", against: []string{"ucx_tag_lat.p50"}, words: "UCX tag_lat", ratio: 0.8, atMost: true},
		{name: "RC SEND 2 B half round trip, packet", of: "send_lat_packet.p50", against: []string{"ucx_tag_lat.p50"}, words: "UCX tag_lat", ratio: 0.6, atMost: true},
		{name: "  its 99th percentile, udp", of: "send_lat_udp.p99", against: []string{"ucx_tag_lat.p99"}, words: "UCX tag_lat's", ratio: 1.0, atMost: true},
		{name: "  its 99th percentile, packet", of: "send_lat_packet.p99", against: []string{"ucx_tag_lat.p99"}, words: "UCX tag_lat's", ratio: 1.0, atMost: true},
		{name: "RC WRITE 8 B half round trip, udp", of: "write_lat.p50", against: []string{"ucx_put_lat.p50"}, words: "UCX put_lat", ratio: 0.5, atMost: true},
		{name: "RC SEND 2 B, waiting blocked", of: "blocked_lat.p50", against: []string{"qperf_udp_lat"}, words: "qperf udp_lat", ratio: 1.2, atMost: true},
		{name: "RC SEND 64 B in lists, million/s", of: "rate_64.millions", words: "", ratio: 4},
		{name: "RC WRITE 64 KiB over 1000 of 10000 QPs", of: "many_qps", against: []string{"write_64k"}, words: "one QP", ratio: 0.85},
		{name: "RC WRITE 64 KiB, 1 % of segments lost", of: "write_loss", against: []string{"write_lossless"}, words: "lossless x (1-p)/(1-p+pW), W 64", ratio: 0.8, scale: lossFloor},
		{name: "RC WRITE 1 MiB, both ends on one core", of: "write_pinned", against: []string{"tcp_pinned"}, words: "iperf3 TCP likewise", ratio: 0.8},
		{name: "RC WRITE 64 KiB, sender behind rxed", of: "write_64k_rxed", against: []string{"write_64k_own"}, words: "embedded", ratio: 0.8},
		{name: "RC WRITE 64 KiB, receiver behind rxed", of: "write_64k_to_rxed", against: []string{"write_64k_own"}, words: "embedded", ratio: 0.8},
		{name: "RC SEND 2 B half round trip, one end behind rxed", of: "send_lat_rxed.p50", against: []string{"send_lat_own.p50"}, words: "embedded", ratio: 1.7, atMost: true},
		{name: "RC SEND 2 B half round trip, both behind rxed", of: "send_lat_rxed2.p50", against: []string{"send_lat_own.p50"}, words: "embedded", ratio: 2.8, atMost: true},
		{name: "small message in rxed beside bulk: ahead of it, p99", of: "queue_rxed.ahead.p99", words: "super-packets", ratio: 2, atMost: true},
		{name: "RC WRITE 1 MiB, with DCQCN", of: "write_1m_cc", against: []string{"write_1m_none"}, words: "without", ratio: 0.97},
		{name: "RC WRITE 64 KiB, with DCQCN", of: "write_64k_cc", against: []string{"write_64k_none"}, words: "without", ratio: 0.97},
		{name: "RC WRITE 64 KiB over 1000 QPs, with DCQCN", of: "many_cc", against: []string{"many_none"}, words: "without", ratio: 0.97},
		{name: "RC READ 1 MiB, with DCQCN", of: "read_1m_cc", against: []string{"read_1m_none"}, words: "without", ratio: 0.97},
		{name: "RC SEND 64 B in lists, with DCQCN", of: "rate_64_cc.millions", against: []string{"rate_64_none.millions"}, words: "without", ratio: 0.97},
		{name: "RC SEND 2 B half round trip, with DCQCN", of: "send_lat_cc.p50", against: []string{"send_lat_none.p50"}, words: "without", ratio: 1 / 0.97, atMost: true},
		{name: "allocations a packet, RC WRITE 64 KiB", of: "write_64k.allocs", words: "", ratio: 0.001, atMost: true},
	}
}

// reported are measured with the rest, and judged by nobody.
func reported() []need {
	return []need{
		{name: "RC WRITE 1 MiB, packet", of: "write_1m_packet", against: []string{"tcp"}, words: "iperf3 TCP default"},
		{name: "RC WRITE 64 KiB, packet", of: "write_64k_packet", against: []string{"tcp"}, words: "iperf3 TCP default"},
		{name: "RC WRITE 1 MiB, xdp", of: "write_1m_xdp", against: []string{"tcp"}, words: "iperf3 TCP default"},
		{name: "RC WRITE 1 MiB, udp", of: "write_1m", against: []string{"floor_bw"}, words: "its system calls alone"},
		{name: "RC SEND 2 B half round trip, udp", of: "send_lat_udp.p50", against: []string{"floor_lat.p50"}, words: "its system calls alone"},
		{name: "  its 99th percentile, udp", of: "send_lat_udp.p99", against: []string{"floor_lat.p99"}, words: "theirs"},
		{name: "its system calls alone, 2 B half round trip", of: "floor_lat.p50", against: []string{"ucx_tag_lat.p50"}, words: "UCX tag_lat"},
		{name: "  its time until it left, p99", of: "queue_rxed.time.p99", words: "a super-packet's time"},
		{name: "RC SEND 2 B, asleep between messages, one end behind rxed", of: "asleep_lat_rxed.p50", against: []string{"asleep_lat_own.p50"}, words: "embedded"},
		{name: "RC SEND 2 B, asleep between messages", of: "asleep_lat.p50", against: []string{"qperf_udp_lat"}, words: "qperf udp_lat"},
	}
}

// lossFloor is the part of the rate that go-back-N with a window of W packets
// has left where each is lost with probability p: every loss costs the window
// behind it.
func lossFloor(samples) float64 {
	const p, w = 0.01, 64
	return (1 - p) / (1 - p + p*w)
}

// choose picks the lines whose name or program a regular expression matches.
func choose(all []need, match *regexp.Regexp) []need {
	return slices.DeleteFunc(append(all, reported()...), func(n need) bool { return !match.MatchString(n.name) && !match.MatchString(n.of) })
}
