package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorxe/gorxe/interop/rig"
)

// Role is what our side does.
type Role string

// The roles.
const (
	Client Role = "client" // connects; requester
	Server Role = "server" // is connected to; responder
)

// The links of our side. Reference is none: the kernel plays our part too.
const (
	linkPacket    = "packet"
	linkUDP       = "udp"
	linkXDP       = "xdp"
	linkReference = "reference"
)

// Groups of cases.
const (
	groupPingpong   = "pingpong"
	groupPerf       = "perf"
	groupVerbs      = "verbs"
	groupTrouble    = "trouble" // one end does what the other has to put up with
	groupFaults     = "faults"
	groupMulticast  = "multicast"
	groupCongestion = "congestion" // a bottleneck, marks and CNPs
)

// Case is one thing to try.
type Case struct {
	Group  string
	Kind   string // pingpong: the transport; perf: tool and transport, as in "send_bw/UD"; else the name of a procedure
	Form   string // what sets it apart from others of its kind, or ""
	Role   Role
	Link   string
	Suite  string // of the guest
	Family int    // 4 or 6
	MTU    int    // path MTU

	Size, Iters int    // of programs: octets of a message, messages (of each queue pair)
	QPs         int    // of programs: queue pairs, if the program can have several
	Flags       string // of programs: further flags on both sides
	OurFlags    string // of programs: further flags on ours alone
	Where       string // faults: whose traffic is broken, "guest" or "ours"

	Daemon bool // our side is attached to an rxed, as a user without privilege
}

// What is the case without where and how it runs.
func (c *Case) What() string {
	s := c.Group + "/" + c.Kind
	if c.Form != "" {
		s += "/" + c.Form
	}
	return s
}

// Name is what -run matches.
func (c *Case) Name() string {
	return strings.Join([]string{
		c.What(), fmt.Sprintf("v%d", c.Family), fmt.Sprintf("mtu%d", c.MTU), string(c.Role), c.over(), c.Suite,
	}, "/")
}

// atDaemon stands behind the link of a case that is attached to a daemon.
const atDaemon = "@rxed"

// over says over what our side is: its link, and whose.
func (c *Case) over() string {
	if c.Daemon {
		return c.Link + atDaemon
	}
	return c.Link
}

// ourFaults are the rules that break our traffic, or "".
func (c *Case) ourFaults() string {
	switch {
	case c.Group == groupCongestion:
		return jamOf(c.Kind).rules
	case c.Where != "ours":
		return ""
	case c.long():
		return ourRules
	}
	return ourLosses
}

// long reports whether a case moves megabytes over a broken network.
func (c *Case) long() bool { return c.Kind == "guest-netem" || c.Kind == "our-faults" }

// byHand reports whether our packets of a case are made by hand: then there is one
// role, and link udp.
func (c *Case) byHand() bool { return c.Kind == "answers" || c.Kind == "replies" || c.Kind == "strays" }

// counted reports whether packets of a case are captured and counted.
func (c *Case) counted() bool { return c.Kind == "silent" || c.Kind == "late" }

// looked reports whether packets of a case are captured, to be counted or looked at.
func (c *Case) looked() bool { return c.counted() || c.Group == groupCongestion }

// The dimensions that the groups are made of.
var (
	roles    = []Role{Client, Server}
	links    = []string{linkPacket, linkUDP, linkXDP}
	families = []int{4, 6}
	suites   = []string{rig.Bookworm, rig.Trixie}
)

// allCases lists every case. Reference cases have no link of ours.
func allCases(reference bool) []Case {
	if reference {
		return referenceCases()
	}
	var out []Case
	out = append(out, rcPingpongs()...)
	out = append(out, procedureCases()...)
	out = append(out, unconnectedCases()...)
	out = append(out, congestionCases()...)
	out = append(out, newPingpongs()...)
	return append(out, perfCases()...)
}

// over returns the cases with their link replaced by another: each once, without
// those whose packets are made by hand.
func over(link string, cases []Case) []Case {
	var out []Case
	seen := map[string]bool{}
	for _, c := range cases {
		c.Link = link
		if name := c.Name(); !c.byHand() && !seen[name] {
			seen[name] = true
			out = append(out, c)
		}
	}
	return out
}

// verbsCases are procedures on verbs with the path MTU that suits them for
// each family; all run in both roles over every link.
var verbsCases = []struct {
	kind       string
	mtu4, mtu6 int // 0: not over this family
}{
	{"write-200", 4096, 1024},
	{"read-200", 4096, 1024},
	{"send-200", 4096, 1024},
	{"mixed-20", 1024, 256},
	{"immediate", 1024, 1024},
	{"zero-length", 1024, 1024},
	{"atomics", 1024, 1024},
	{"psn-wrap", 1024, 256},
	{"wrong-rkey", 1024, 1024},
	{"sizes", 512, 2048},
	{"lists", 1024, 512},
	{"unsignaled", 2048, 0},
	{"both-ways", 1024, 4096},
	{"sum", 1024, 0},
	{"depths", 1024, 0},
}

// troubleCases are the procedures in which requests fail.
var troubleCases = []string{"windows", "not-ready", "never-ready", "vanishes", "restarts", "refused", "refused-own"}

// faultCases are the procedures that run on broken networks.
var faultCases = []struct{ kind, where string }{
	{"guest-netem", "guest"},
	{"our-faults", "ours"},
	{"both-ways", "ours"},
	{"depths", "ours"},
	{"not-ready", "ours"},
}

// procedureCases are those over RC.
func procedureCases() []Case {
	var out []Case
	for l, link := range links {
		for r, role := range roles {
			at := Case{Role: role, Link: link}
			for f, fam := range families {
				for k, c := range at.procedures(fam) {
					c.Suite = alternate(l, r, f, k)
					out = append(out, c)
				}
			}
			for k, f := range faultCases {
				c := at
				c.Group, c.Kind, c.Where, c.Family, c.MTU = groupFaults, f.kind, f.where, 4, 1024
				c.Suite = alternate(l, r, k)
				out = append(out, c)
			}
		}
	}
	return out
}

// procedures are the cases of verbs and trouble of a family, with role and link
// of c.
func (c Case) procedures(fam int) []Case {
	var out []Case
	c.Family = fam
	for _, v := range verbsCases {
		c.Group, c.Kind, c.MTU = groupVerbs, v.kind, v.mtu4
		if fam == 6 {
			c.MTU = v.mtu6
		}
		if c.MTU != 0 {
			out = append(out, c)
		}
	}
	if fam == 4 {
		for _, kind := range troubleCases {
			c.Group, c.Kind, c.MTU = groupTrouble, kind, 1024
			out = append(out, c)
		}
	}
	return out
}

// unconnectedKinds are the procedures over UC, UD, shared receive queues and
// multicast, with the path MTU for each family. Every pair of role, link, family
// and suite is there for each.
var unconnectedKinds = []struct {
	group, kind string
	mtu4, mtu6  int // 0: not over this family
}{
	{groupVerbs, "uc-write-30", 4096, 1024},
	{groupVerbs, "uc-send-30", 1024, 4096},
	{groupVerbs, "uc-immediate", 1024, 256},
	{groupVerbs, "uc-sizes", 2048, 1024},
	{groupVerbs, "uc-lists", 1024, 512},
	{groupVerbs, "uc-psn-wrap", 1024, 4096},
	{groupVerbs, "ud-sizes", guestMTU, guestMTU},
	{groupVerbs, "ud-many", guestMTU, guestMTU},
	{groupVerbs, "ud-reply", guestMTU, guestMTU},
	{groupVerbs, "srq-rc", 1024, 4096},
	{groupVerbs, "srq-ud", guestMTU, guestMTU},
	{groupTrouble, "srq-late", 1024, 1024},
	{groupTrouble, "uc-dropped", 1024, 1024},
	{groupTrouble, "ud-qkey", guestMTU, guestMTU},
	{groupTrouble, "ud-no-room", guestMTU, guestMTU},
	{groupTrouble, "events", 1024, 1024},
	{groupTrouble, "silent", 1024, 1024},
	{groupTrouble, "late", 1024, 1024},
	{groupTrouble, "answers", 1024, 1024},
	{groupTrouble, "replies", 1024, 1024},
	{groupTrouble, "strays", guestMTU, guestMTU},
	{groupMulticast, "group", guestMTU, guestMTU},
	{groupMulticast, "mckey", guestMTU, 0}, // the kernel's connection manager has no IPv6 groups for RoCEv2
	{groupMulticast, "two-of-ours", guestMTU, guestMTU},
}

func unconnectedCases() []Case {
	var out []Case
	for seed, k := range unconnectedKinds {
		possible := func(r []int) bool {
			if (k.kind == "two-of-ours" || k.kind == "events") && roles[r[0]] != Client {
				return false // the same from the other end
			}
			if c := (&Case{Kind: k.kind}); c.byHand() && (roles[r[0]] != Client || links[r[1]] != linkUDP) {
				return false
			}
			return families[r[2]] == 4 || k.mtu6 != 0
		}
		for _, r := range cover([]int{len(roles), len(links), len(families), len(suites)}, possible, uint64(seed)) {
			c := Case{Group: k.group, Kind: k.kind, Role: roles[r[0]], Link: links[r[1]], Family: families[r[2]], Suite: suites[r[3]], MTU: k.mtu4}
			if c.Family == 6 {
				c.MTU = k.mtu6
			}
			out = append(out, c)
		}
	}
	wheres := []string{"guest", "ours"}
	for seed, kind := range []string{"uc-loss", "ud-loss"} {
		for _, r := range cover([]int{len(roles), len(links), len(suites), len(wheres)}, nil, uint64(seed)) {
			c := Case{Group: groupFaults, Kind: kind, Role: roles[r[0]], Link: links[r[1]], Suite: suites[r[2]], Where: wheres[r[3]], Family: 4, MTU: 1024}
			if kind == "ud-loss" {
				c.MTU = guestMTU
			}
			c.Form = c.Where
			out = append(out, c)
		}
	}
	return out
}

// referenceCases have the kernel on both sides, in one role, those of the
// guest's programs and endpoints against each other.
func referenceCases() []Case {
	var out []Case
	at := Case{Role: Client, Link: linkReference, Suite: rig.Bookworm}
	for _, fam := range families {
		out = append(out, at.procedures(fam)...)
	}

	seen := map[string]bool{}
	more := slices.Concat(unconnectedCases(), rcPingpongs(), newPingpongs(), perfCases())
	for _, c := range more {
		if c.Kind == "two-of-ours" || c.Kind == "mckey" || c.byHand() || c.Where != "" {
			continue
		}
		c.Role, c.Link, c.OurFlags = Client, linkReference, ""
		if name := c.Name(); !seen[name] {
			seen[name] = true
			out = append(out, c)
		}
	}
	return out
}
