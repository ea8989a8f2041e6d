package main

import (
	"fmt"
	"slices"
	"strings"
)

// The cases of the groups pingpong and perf: the programs of rdma-core and
// perftest in the guest against ours. RC pingpongs are the full product of
// their dimensions. For the others that is too much, so that their tables cover
// the pairs (see cover): a table for each program and transport.

// lengths are the sizes of messages.
var lengths = []int{1, 2, 1023, 4096, 65536, 1 << 20}

// pingpongIters is how many exchanges an emulated guest does of a length in
// about a second.
func pingpongIters(size int) int {
	switch {
	case size <= 4096:
		return 100
	case size <= 65536:
		return 10
	}
	return 3
}

// rcPingpongs are ibv_rc_pingpong's.
func rcPingpongs() []Case {
	var out []Case
	for l, link := range links {
		for r, role := range roles {
			at := Case{Group: groupPingpong, Kind: "rc", Role: role, Link: link}
			for f, fam := range families {
				for m, mtu := range []int{256, 1024, 4096} {
					for k, size := range lengths {
						c := at
						c.Suite = alternate(l, r, f, m, k)
						c.Form, c.Family, c.MTU = fmt.Sprintf("size%d", size), fam, mtu
						c.Size, c.Iters, c.Flags = size, pingpongIters(size), "-c"
						out = append(out, c)
					}
				}
			}
			for k, o := range pingpongOptions {
				if slices.Contains(o.kinds, "rc") {
					c := at
					c.Suite = alternate(l, r, k)
					out = append(out, c.with(o))
				}
			}
		}
	}
	return out
}

// alternate spreads a full product over the suites: of cases that differ in one
// place alone, every other is against another suite.
func alternate(places ...int) string {
	n := 0
	for _, p := range places {
		n += p
	}
	return suites[n%len(suites)]
}

// option is a form of a program's cases: flags beyond the usual, for both
// programs or ours alone.
type option struct {
	form, flags, ours string
	kinds             []string
}

var pingpongOptions = []option{
	{"events", "-e", "", []string{"rc", "uc", "ud", "srq"}},
	{"rx-depth", "-r 20", "", []string{"rc", "uc", "ud", "srq"}},
	{"service-level", "-l 3", "", []string{"rc", "uc", "ud", "srq"}},
	{"timestamps", "", "-t", []string{"rc"}}, // Soft-RoCE has none
	{"one-receive", "-r 1 -c", "", []string{"rc", "ud"}},
}

// with is a pingpong with an option.
func (c Case) with(o option) Case {
	c.Form, c.Flags, c.OurFlags = o.form, o.flags, o.ours
	c.Family, c.MTU, c.Size, c.Iters = 4, 1024, 4096, 50
	if c.Kind == "ud" {
		c.MTU, c.Size = guestMTU, 2048
	}
	return c
}

// guestMTU is the active MTU of the guest's port: what a UD message may have,
// and the path MTU where a program cannot be told.
const guestMTU = 4096

// newPingpongs are those of UC, UD, and RC with a shared receive queue, where
// -q gives the queue pairs.
func newPingpongs() []Case {
	var out []Case
	for seed, kind := range []string{"uc", "ud", "srq"} {
		mtus, qps := []int{1024, 4096}, []int{1}
		switch kind {
		case "ud":
			mtus = []int{guestMTU}
		case "srq":
			qps = []int{1, 8}
		}
		possible := func(r []int) bool {
			size := lengths[r[4]]
			// What a program without privilege may have in its sockets' buffers is
			// little: more at once is lost, and sent again.
			return (kind != "ud" || size <= guestMTU) && (qps[r[6]] == 1 || size*qps[r[6]] <= 1<<17)
		}
		for _, r := range cover([]int{len(roles), len(links), len(families), len(suites), len(lengths), len(mtus), len(qps)}, possible, uint64(seed)) {
			c := Case{
				Group: groupPingpong, Kind: kind, Role: roles[r[0]], Link: links[r[1]], Family: families[r[2]], Suite: suites[r[3]],
				Size: lengths[r[4]], MTU: mtus[r[5]], QPs: qps[r[6]], Flags: "-c",
			}
			c.Form, c.Iters = fmt.Sprintf("size%d", c.Size), pingpongIters(c.Size)
			if kind == "srq" {
				c.Form += fmt.Sprintf("-qp%d", c.QPs)
				c.Iters = max(c.Iters, 3*c.QPs) // of all queue pairs together
			}
			out = append(out, c)
		}
		for k, o := range pingpongOptions {
			if !slices.Contains(o.kinds, kind) {
				continue
			}
			for _, r := range cover([]int{len(roles), len(links), len(suites)}, nil, uint64(k)) {
				c := Case{Group: groupPingpong, Kind: kind, Role: roles[r[0]], Link: links[r[1]], Suite: suites[r[2]], QPs: 1}
				if kind == "srq" {
					c.QPs = 4
				}
				out = append(out, c.with(o))
			}
		}
	}
	return out
}

// perfKinds are perftest's tools, with the transports that they can use.
var perfKinds = []string{
	"send_bw/RC", "send_lat/RC", "write_bw/RC", "write_lat/RC", "read_bw/RC", "read_lat/RC", "atomic_bw/RC", "atomic_lat/RC",
	"send_bw/UC", "send_lat/UC", "write_bw/UC", "write_lat/UC",
	"send_bw/UD", "send_lat/UD",
}

// perfOptions are perftest's options that take another way through the
// programs, with the kinds they are for: a part of their names.
var perfOptions = []option{
	{"bidirectional", "-b", "", []string{"_bw"}},
	{"events", "-e", "", []string{"send_bw", "send_lat", "read_bw", "read_lat", "atomic_bw"}},
	{"cq-mod", "-Q 1", "", []string{"_bw"}},
	{"post-list", "-l 4", "", []string{"_bw"}},
	{"tx-depth", "-t 4", "", []string{"send_bw", "write_bw/RC"}},
	{"rx-depth", "-t 4 -r 100", "", []string{"send_bw/RC"}},
	{"duration", "-D 2 -f 0", "", []string{"_bw", "send_lat/RC"}},
	{"no-peak", "-N", "", []string{"_bw/RC"}},
	{"gbits", "--report_gbits", "", []string{"_bw/RC"}},
	{"outstanding", "-o 1", "", []string{"read_bw", "atomic_bw"}},
	{"compare-swap", "-A CMP_AND_SWAP", "", []string{"atomic"}},
	{"fetch-add", "-A FETCH_AND_ADD", "", []string{"atomic"}},
	{"all-sizes", "-a", "", []string{"UD"}},
	{"use-srq", "--use-srq", "", []string{"send_bw/RC", "send_lat/RC", "send_bw/UD", "send_lat/UD"}},
	{"service-level", "-S 3", "", []string{"write_bw/RC", "send_bw/UD"}},
	{"qp-timeout", "-u 18", "", []string{"write_bw/RC", "read_lat/RC"}},
	{"unsorted", "-U", "", []string{"_lat/RC"}},
	{"histogram", "-H", "", []string{"_lat/RC"}},
}

// perfCases are perftest's.
func perfCases() []Case {
	var out []Case
	for i, kind := range perfKinds {
		out = append(out, perfTable(kind, uint64(i))...)
	}
	for i, o := range perfOptions {
		var kinds []string
		for _, k := range perfKinds {
			if slices.ContainsFunc(o.kinds, func(part string) bool { return strings.Contains(k, part) }) {
				kinds = append(kinds, k)
			}
		}
		for _, r := range cover([]int{len(kinds), len(roles), len(links), len(suites)}, nil, uint64(i)) {
			c := Case{
				Group: groupPerf, Kind: kinds[r[0]], Form: o.form, Role: roles[r[1]], Link: links[r[2]], Suite: suites[r[3]],
				Family: 4, MTU: 1024, Size: 2048, QPs: 1, Flags: o.flags, OurFlags: o.ours,
			}
			if strings.HasSuffix(c.Kind, "UD") {
				c.Size = 1024
			}
			if strings.HasPrefix(c.Kind, "atomic") {
				c.Size = 8
			}
			out = append(out, c.measured())
		}
	}
	return out
}

// perfTable is the table of one tool and transport.
func perfTable(kind string, seed uint64) []Case {
	sizes, qps, mtus := lengths, []int{1, 8}, []int{1024, 4096}
	if strings.HasPrefix(kind, "atomic") {
		sizes = []int{8}
	}
	if strings.Contains(kind, "_lat") {
		qps = []int{1}
	}
	possible := func(r []int) bool {
		size, mtu, n := sizes[r[4]], mtus[r[5]], qps[r[6]]
		if strings.HasSuffix(kind, "UD") && size > mtu {
			return false
		}
		return 5*size*n <= perfOctets // five messages are the least that perftest does
	}
	var out []Case
	for _, r := range cover([]int{len(roles), len(links), len(families), len(suites), len(sizes), len(mtus), len(qps)}, possible, seed) {
		c := Case{
			Group: groupPerf, Kind: kind, Role: roles[r[0]], Link: links[r[1]], Family: families[r[2]], Suite: suites[r[3]],
			Size: sizes[r[4]], MTU: mtus[r[5]], QPs: qps[r[6]],
		}
		c.Form = fmt.Sprintf("size%d-qp%d", c.Size, c.QPs)
		out = append(out, c.measured())
	}
	return out
}

// perfOctets is what a case of perf may move: an emulated guest takes about ten
// megabytes a second.
const perfOctets = 8 << 20

// measured gives a case of perf its number of messages.
func (c Case) measured() Case {
	many := 200
	if strings.Contains(c.Kind, "_lat") {
		many = 100
	}
	c.Iters = min(max(perfOctets/4/(c.Size*c.QPs), 5), many)
	return c
}
