package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/interop/rig"
)

func TestCasesAreDistinctAndPossible(t *testing.T) {
	for _, reference := range []bool{false, true} {
		seen := map[string]bool{}
		for _, c := range allCases(reference) {
			name := c.Name()
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
			program := c.Group == groupPingpong || c.Group == groupPerf
			if !program && procedures[c.Kind] == nil {
				t.Errorf("%s: no such procedure", name)
			}
			if program && (c.Size == 0 || c.Iters == 0) {
				t.Errorf("%s: nothing to send", name)
			}
			octets := c.Size * c.Iters
			if c.Group == groupPerf {
				octets *= c.QPs
			}
			if octets > perfOctets {
				t.Errorf("%s moves %d octets", name, octets)
			}
			if (c.Group == groupFaults) != (c.Where != "") {
				t.Errorf("%s: faults are %q", name, c.Where)
			}
			if !slices.Contains(suites, c.Suite) || !slices.Contains(families, c.Family) {
				t.Errorf("%s: no such guest or family", name)
			}
		}
	}
}

// Every size, path MTU, family, role and link that was asked for of RC
// pingpongs is there.
func TestMatrixIsComplete(t *testing.T) {
	have := map[string]bool{}
	for _, c := range allCases(false) {
		have[strings.TrimSuffix(c.Name(), "/"+c.Suite)] = true
	}
	for _, size := range []string{"1", "2", "1023", "4096", "65536", "1048576"} {
		for _, mtu := range []string{"256", "1024", "4096"} {
			for _, rest := range []string{"client/packet", "client/udp", "client/xdp", "server/packet", "server/udp", "server/xdp"} {
				for _, v := range []string{"v4", "v6"} {
					if name := "pingpong/rc/size" + size + "/" + v + "/mtu" + mtu + "/" + rest; !have[name] {
						t.Errorf("%s is missing", name)
					}
				}
			}
		}
	}
}

// Half of the cases are against each suite, of each group about.
func TestSuitesAreEven(t *testing.T) {
	n := map[string][2]int{}
	for _, c := range allCases(false) {
		k := n[c.Group]
		k[slices.Index(suites, c.Suite)]++
		n[c.Group] = k
	}
	for group, k := range n {
		if d := k[0] - k[1]; d > k[0]/3 || d < -k[0]/3 {
			t.Errorf("%s: %v", group, k)
		}
	}
}

// Of each tool and transport of perftest, and of each pingpong, every two
// values of role, link, family, suite, size, path MTU and queue pairs are
// together in some case, if they can be.
func TestPairsOfTheTables(t *testing.T) {
	tables := map[string][]Case{}
	for _, c := range append(newPingpongs(), perfCases()...) {
		if strings.HasPrefix(c.Form, "size") {
			tables[c.Group+"/"+c.Kind] = append(tables[c.Group+"/"+c.Kind], c)
		}
	}
	if len(tables) != len(perfKinds)+3 {
		t.Errorf("%d tables", len(tables))
	}
	for name, cases := range tables {
		have := map[string]bool{}
		values := []map[string]bool{{}, {}, {}, {}, {}, {}, {}}
		for _, c := range cases {
			row := columns(&c)
			for i, v := range row {
				values[i][v] = true
				for j := i + 1; j < len(row); j++ {
					have[v+" "+row[j]] = true
				}
			}
		}
		for i := range values {
			for j := i + 1; j < len(values); j++ {
				for a := range values[i] {
					for b := range values[j] {
						if !have[a+" "+b] && !impossible(name, a, b) {
							t.Errorf("%s: %s and %s are never together", name, a, b)
						}
					}
				}
			}
		}
		if want := wanted(name); len(values[4]) != want[0] || len(values[5]) != want[1] || len(values[6]) != want[2] || len(values[0])*len(values[1])*len(values[2])*len(values[3]) != 24 {
			t.Errorf("%s has values %v", name, values)
		}
	}
}

func columns(c *Case) []string {
	return []string{
		string(c.Role), c.Link, fmt.Sprintf("v%d", c.Family), c.Suite,
		fmt.Sprintf("size%d", c.Size), fmt.Sprintf("mtu%d", c.MTU), fmt.Sprintf("qp%d", c.QPs),
	}
}

// impossible lists what no program can do, or a guest not in time.
func impossible(table, a, b string) bool {
	return strings.HasSuffix(table, "UD") && a == "size4096" && b == "mtu1024" || a == "size1048576" && b == "qp8" ||
		table == "pingpong/srq" && a == "size65536" && b == "qp8"
}

// wanted is how many sizes, path MTUs and numbers of queue pairs a table has.
func wanted(table string) [3]int {
	w := [3]int{6, 2, 2}
	if strings.HasSuffix(table, "UD") || strings.HasSuffix(table, "ud") {
		w[0] = 4
	}
	if strings.Contains(table, "atomic") {
		w[0] = 1
	}
	if strings.HasSuffix(table, "/ud") {
		w[1] = 1
	}
	if strings.Contains(table, "_lat") || strings.HasSuffix(table, "/uc") || strings.HasSuffix(table, "/ud") {
		w[2] = 1
	}
	return w
}

// A covering table is much smaller than the product, has possible rows alone,
// and the same ones each time.
func TestCover(t *testing.T) {
	for _, values := range [][]int{{1}, {3}, {2, 2}, {2, 2, 2, 2, 2, 2}, {6, 2, 2, 2, 2}, {5, 4, 3, 2}} {
		possible := func(r []int) bool { return len(r) < 4 || r[0] != 1 || r[3] != 1 }
		rows := cover(values, possible, 7)
		have, product := map[pair]bool{}, 1
		for _, v := range values {
			product *= v
		}
		for _, r := range rows {
			if !possible(r) {
				t.Errorf("%v: row %v", values, r)
			}
			for _, p := range pairs(r) {
				have[p] = true
			}
		}
		pairs := 0
		for i := range values {
			for j := i + 1; j < len(values); j++ {
				pairs += values[i] * values[j]
			}
		}
		if len(values) == 1 {
			pairs = values[0]
		}
		if len(values) >= 4 {
			pairs--
		}
		if len(have) != pairs {
			t.Errorf("%v: %d pairs of %d", values, len(have), pairs)
		}
		if len(values) >= 4 && len(rows) > product/2 {
			t.Errorf("%v: %d rows", values, len(rows))
		}
		if fmt.Sprint(cover(values, possible, 7)) != fmt.Sprint(rows) {
			t.Errorf("%v: other rows the second time", values)
		}
	}
}

// The smoke form has a case of every kind, about a tenth of them all, by the
// seed.
func TestDraw(t *testing.T) {
	all := allCases(false)
	kinds := func(cs []Case) map[string]bool {
		out := map[string]bool{}
		for i := range cs {
			out[cs[i].Group+"/"+cs[i].Kind] = true
		}
		return out
	}
	names := func(cs []Case) (out []string) {
		for i := range cs {
			out = append(out, cs[i].Name())
		}
		return out
	}
	isXDP := func(c Case) bool { return c.Link == linkXDP }
	others := slices.DeleteFunc(slices.Clone(all), isXDP)
	a, b := draw(all, smokeShare, 1), draw(all, smokeShare, 2)
	groups := map[string]int{}
	for _, c := range a {
		if isXDP(c) {
			groups[c.Group]++
		}
	}
	if fmt.Sprint(groups) != "map[congestion:1 faults:1 multicast:1 perf:1 pingpong:1 trouble:1 verbs:1]" {
		t.Errorf("over xdp: %v", groups)
	}
	if slices.Equal(names(a), names(b)) || !slices.Equal(names(a), names(draw(all, smokeShare, 1))) {
		t.Error("what is drawn does not depend on the seed alone")
	}
	a = slices.DeleteFunc(a, isXDP)
	if len(kinds(a)) != len(kinds(all)) {
		t.Errorf("%d kinds of %d", len(kinds(a)), len(kinds(all)))
	}
	if len(a) < len(others)/smokeShare || len(a) > len(others)/5 {
		t.Errorf("%d cases of %d", len(a), len(others))
	}
	drawn, xdp := map[string]bool{}, map[string]bool{}
	for seed := range uint64(300) {
		for _, c := range draw(all, smokeShare, seed) {
			if isXDP(c) {
				xdp[c.Name()] = true
			} else {
				drawn[c.Name()] = true
			}
		}
	}
	if len(drawn) != len(others) || len(xdp) < 300 {
		t.Errorf("in 300 draws %d of %d cases came up, and %d over xdp", len(drawn), len(others), len(xdp))
	}
}

// Over another link there is each case once, but for those made by hand.
func TestOver(t *testing.T) {
	all := allCases(false)
	want := map[string]bool{}
	for _, c := range all {
		if !c.byHand() {
			want[strings.Replace(c.Name(), "/"+c.Link+"/", "/xdp/", 1)] = true
		}
	}
	for _, c := range over(linkXDP, all) {
		if !want[c.Name()] || c.Link != linkXDP {
			t.Errorf("%s is too much", c.Name())
		}
		delete(want, c.Name())
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

func TestCleanNamesTheCounters(t *testing.T) {
	if err := clean(map[string]uint64{"sent_pkts": 7, "rcvd_rnr_err": 1, "duplicate_request": 2}); err != nil {
		t.Errorf("counters that may move: %v", err)
	}
	for _, k := range quiet {
		if clean(map[string]uint64{k: 1}) == nil {
			t.Errorf("%s moved and nobody minds", k)
		}
	}
}

// The numbers of guests and of our sides are all different.
func TestNumbers(t *testing.T) {
	seen := map[int]bool{1: true} // the bridge
	for _, suite := range []string{rig.Bookworm, rig.Trixie} {
		for _, n := range []int{guestNumbers[suite], hostNumbers[suite], hostNumbers[suite] + secondHost} {
			if seen[n] {
				t.Errorf("%d is there twice", n)
			}
			seen[n] = true
		}
	}
}

// Every case that has a device of ours is there through a daemon, those of one
// daemon in a row; the rest says why not.
func TestThroughDaemon(t *testing.T) {
	all := allCases(false)
	want := map[string]bool{}
	for _, c := range all {
		if c.Kind != "answers" && c.Kind != "replies" && c.Kind != "strays" {
			want[strings.Replace(c.Name(), "/"+c.Link+"/", "/"+c.Link+"@rxed/", 1)] = true
		}
	}
	daemons, last := map[string]int{}, ""
	for _, c := range throughDaemon(all) {
		if !c.Daemon || !c.unprivileged() || !want[c.Name()] {
			t.Errorf("%s is too much, or not through a daemon", c.Name())
		}
		delete(want, c.Name())
		if d := c.Link + " " + c.ourFaults(); d != last {
			daemons[d]++
			last = d
		}
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
	for d, n := range daemons {
		if n != 1 {
			t.Errorf("the cases of daemon %q are in %d places", d, n)
		}
	}
}

// Of each kind something is through a daemon in the smoke form, and what is drawn
// without one is as before.
func TestSmokeThroughDaemon(t *testing.T) {
	c := config{smoke: true, seed: 7}
	cases, err := c.cases()
	if err != nil {
		t.Fatal(err)
	}
	n := slices.IndexFunc(cases, func(c Case) bool { return c.Daemon })
	if want := draw(allCases(false), smokeShare, 7); n != len(want) || fmt.Sprint(cases[:n]) != fmt.Sprint(want) {
		t.Errorf("%d cases without a daemon come first, %d are drawn", n, len(want))
	}
	kinds := map[string]bool{}
	for _, c := range throughDaemon(allCases(false)) {
		if c.Link != linkXDP {
			kinds[c.Group+"/"+c.Kind] = true
		}
	}
	for _, c := range cases[n:] {
		if !c.Daemon {
			t.Errorf("%s is among those with a daemon", c.Name())
		}
		delete(kinds, c.Group+"/"+c.Kind)
	}
	if len(kinds) > 0 {
		t.Errorf("not through a daemon: %v", kinds)
	}
	t.Logf("%d cases, %d of them through a daemon", len(cases), len(cases)-n)
}
