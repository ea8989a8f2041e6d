package main

import (
	"fmt"
	"strings"
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
	linkReference = "reference"
)

// Groups of cases.
const (
	groupPingpong = "pingpong"
	groupVerbs    = "verbs"
	groupTrouble  = "trouble" // one end does what the other has to put up with
	groupFaults   = "faults"
)

// Case is one thing to try.
type Case struct {
	Group  string
	What   string // in the group verbs and faults the name of a procedure
	Role   Role
	Link   string
	Family int // 4 or 6
	MTU    int // path MTU
	Smoke  bool

	Size, Iters int    // pingpong: octets of a message, exchanges
	Flags       string // pingpong: further flags on both sides
	OurFlags    string // pingpong: further flags on ours alone
	Where       string // faults: whose traffic is broken, "guest" or "ours"
}

// Name is what -run matches.
func (c *Case) Name() string {
	s := []string{c.Group, c.What, fmt.Sprintf("v%d", c.Family), fmt.Sprintf("mtu%d", c.MTU), string(c.Role), c.Link}
	return strings.Join(s, "/")
}

// long reports whether a case moves megabytes over a broken network.
func (c *Case) long() bool { return c.What == "guest-netem" || c.What == "our-faults" }

// The dimensions that the groups are made of.
var (
	roles    = []Role{Client, Server}
	links    = []string{linkPacket, linkUDP}
	families = []int{4, 6}
)

// pingpongs are the sizes, and how many exchanges an emulated guest does of
// each in about a second.
var pingpongs = []struct{ size, iters int }{
	{1, 100}, {2, 100}, {1023, 100}, {4096, 100}, {65536, 10}, {1 << 20, 3},
}

// pathMTUs are those of the pingpongs, and which size of them is a smoke test.
var pathMTUs = []struct{ mtu, smoke int }{{256, 65536}, {1024, 4096}, {4096, 1 << 20}}

// options are flags of ibv_rc_pingpong beyond those above, for both programs
// or ours alone: Soft-RoCE has no timestamps.
var options = []struct{ name, flags, ours string }{
	{"events", "-e", ""},
	{"rx-depth", "-r 20", ""},
	{"service-level", "-l 3", ""},
	{"timestamps", "", "-t"},
	{"one-receive", "-r 1 -c", ""},
}

// verbsCases are procedures on verbs with the path MTU that suits them for
// each family; all run in both roles over both links.
var verbsCases = []struct {
	what       string
	mtu4, mtu6 int // 0: not over this family
	smoke      bool
}{
	{"write-200", 4096, 1024, false},
	{"read-200", 4096, 1024, false},
	{"send-200", 4096, 1024, false},
	{"mixed-20", 1024, 256, true},
	{"immediate", 1024, 1024, true},
	{"zero-length", 1024, 1024, false},
	{"atomics", 1024, 1024, true},
	{"psn-wrap", 1024, 256, true},
	{"wrong-rkey", 1024, 1024, true},
	{"sizes", 512, 2048, false},
	{"lists", 1024, 512, false},
	{"unsignaled", 2048, 0, false},
	{"both-ways", 1024, 4096, true},
	{"sum", 1024, 0, false},
	{"depths", 1024, 0, true},
}

// troubleCases are the procedures in which requests fail.
var troubleCases = []struct {
	what  string
	smoke bool
}{
	{"not-ready", true},
	{"never-ready", false},
	{"vanishes", false},
	{"restarts", false},
	{"refused", true},
}

// faultCases are the procedures that run on broken networks.
var faultCases = []struct {
	what, where string
	smoke       bool
}{
	{"guest-netem", "guest", true},
	{"our-faults", "ours", true},
	{"both-ways", "ours", false},
	{"depths", "ours", false},
	{"not-ready", "ours", false},
}

// allCases lists every case. Reference cases have no link of ours.
func allCases(reference bool) []Case {
	if reference {
		return referenceCases()
	}
	var out []Case
	for _, link := range links {
		for _, role := range roles {
			for _, fam := range families {
				out = append(out, pingpongCases(role, link, fam)...)
			}
			for _, fam := range families {
				out = append(out, procedureCases(role, link, fam)...)
			}
			for _, f := range faultCases {
				out = append(out, Case{
					Group: groupFaults, What: f.what, Where: f.where, Role: role, Link: link, Family: 4, MTU: 1024,
					Smoke: f.smoke && (role == Client) == (link == linkUDP),
				})
			}
		}
	}
	return out
}

func pingpongCases(role Role, link string, fam int) []Case {
	var out []Case
	for _, m := range pathMTUs {
		for _, p := range pingpongs {
			out = append(out, Case{
				Group: groupPingpong, What: fmt.Sprintf("size%d", p.size), Role: role, Link: link, Family: fam, MTU: m.mtu,
				Size: p.size, Iters: p.iters, Flags: "-c", Smoke: p.size == m.smoke,
			})
		}
	}
	if fam == 4 {
		for _, o := range options {
			out = append(out, Case{
				Group: groupPingpong, What: o.name, Role: role, Link: link, Family: fam, MTU: 1024,
				Size: 4096, Iters: 50, Flags: o.flags, OurFlags: o.ours,
			})
		}
	}
	return out
}

func procedureCases(role Role, link string, fam int) []Case {
	var out []Case
	for _, v := range verbsCases {
		mtu := v.mtu4
		if fam == 6 {
			mtu = v.mtu6
		}
		if mtu != 0 {
			out = append(out, Case{Group: groupVerbs, What: v.what, Role: role, Link: link, Family: fam, MTU: mtu, Smoke: v.smoke && fam == 4})
		}
	}
	if fam == 4 {
		for _, v := range troubleCases {
			out = append(out, Case{Group: groupTrouble, What: v.what, Role: role, Link: link, Family: fam, MTU: 1024, Smoke: v.smoke})
		}
	}
	return out
}

func referenceCases() []Case {
	out := procedureCases(Client, linkReference, 4)
	out = append(out, procedureCases(Client, linkReference, 6)...)
	return append(out, Case{Group: groupFaults, What: "guest-netem", Where: "guest", Role: Client, Link: linkReference, Family: 4, MTU: 1024})
}
