package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/sim"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Kinds of Scenario.Kind.
const (
	Star       = "star"
	Dumbbell   = "dumbbell"
	ParkingLot = "parking-lot"
	LeafSpine  = "leaf-spine"
)

// Scenario is what a file says. Rates are bits a second and sizes octets, of IP
// packets but for messages.
type Scenario struct {
	Name     string
	Title    string
	About    string
	Seed     uint64
	Duration time.Duration
	Sample   time.Duration // between points of the time series
	Settle   time.Duration // that rates are looked at over, to say when they have settled
	MTU      int           // path MTU of all queue pairs
	IPv6     bool
	Faults   string // rules of link/fault for all nodes

	Kind            string
	Hosts, Switches int // at each switch; parking-lot and leaf-spine only
	Line, Trunk     sim.Line
	PortQueue       int
	Window          int // packets that hosts' receive buffers bear
	Burst           int // packets that a NIC hands over at once

	Buffer int
	RED    *cc.RED
	MarkAt sim.MarkPoint
	PFC    *sim.PFC // Headroom -1: as much as the lines ask for

	CC    cc.Config
	Flows []Flow
	Nodes []Host // those with a line of their own
}

// Host is one that is not like the others.
type Host struct {
	Name string
	Line sim.Line // what is not 0 in it
	line int
}

// Flow is a queue pair that sends messages, one behind the other.
type Flow struct {
	Name        string
	From, To    string // From asks: a READ's data goes the other way
	Op, Service string // write, send or read; rc or uc
	Size        int    // octets of a message
	Count       int    // messages; 0: until Stop
	Depth       int    // of them posted at once
	Start, Stop time.Duration
	RateLimit   int64       // bits a second; 0 none
	CC          [][2]string // changes to the parameters of the host whose data it is

	line int
}

// sender returns the host whose data it is.
func (f *Flow) sender() string {
	if f.Op == "read" {
		return f.To
	}
	return f.From
}

// New returns a scenario with what a file need not say.
func New(name string) *Scenario {
	return &Scenario{
		Name: name, Seed: 1, Duration: 100 * time.Millisecond, MTU: 1024, Kind: Star, Hosts: 2, Switches: 3,
		Line: sim.Line{Rate: 40e9, Delay: time.Microsecond}, Trunk: sim.Line{Delay: -1}, PortQueue: sim.DefaultPortQueue, Window: sim.DefaultWindow, Burst: wire.MaxSegments,
		Buffer: sim.DefaultBuffer, CC: cc.Default(),
	}
}

// settle fills in what follows from the rest.
func (s *Scenario) settle() {
	if s.Sample == 0 {
		s.Sample = max(s.Duration/500, 1000)
	}
	if s.Settle == 0 {
		s.Settle = max(s.Duration/50, s.Sample)
	}
	if s.Trunk.Rate == 0 {
		s.Trunk.Rate = s.Line.Rate
	}
	if s.Trunk.Delay < 0 {
		s.Trunk.Delay = s.Line.Delay
	}
	for i := range s.Flows {
		if f := &s.Flows[i]; f.Stop == 0 || f.Stop > s.Duration {
			f.Stop = s.Duration
		}
	}
}

// hosts returns the names of all hosts, as sim.Topology gives them.
func (s *Scenario) hosts() (names []string) {
	switches := map[string]int{Star: 1, Dumbbell: 2, ParkingLot: s.Switches, LeafSpine: s.Switches}[s.Kind]
	for i := range switches {
		for j := range s.Hosts {
			if s.Kind == Star {
				names = append(names, fmt.Sprintf("h%d", j+1))
			} else {
				names = append(names, fmt.Sprintf("h%d.%d", i+1, j+1))
			}
		}
	}
	return names
}

// topology is the shape as package sim has it.
func (s *Scenario) topology() sim.Topology {
	t := sim.Topology{
		Line: s.Line, Trunk: s.Trunk, Switch: sim.SwitchConfig{Buffer: s.Buffer, Red: s.RED, MarkAt: s.MarkAt, PFC: s.pfc()},
		Node: sim.NodeConfig{Queue: s.PortQueue, Window: s.Window, Burst: s.Burst},
	}
	t.Change = func(name string, c *sim.NodeConfig) {
		for _, h := range s.Nodes {
			if h.Name == name {
				c.Line.Rate, c.Line.Delay = orElse(h.Line.Rate, c.Line.Rate), orElse(h.Line.Delay, c.Line.Delay)
			}
		}
		c.CC = s.ccOf(name)
	}
	return t
}

func orElse[T comparable](a, b T) T {
	var zero T
	if a == zero {
		return b
	}
	return a
}

// mtu is that of interfaces: a packet of the path MTU with the longest headers.
func (s *Scenario) mtu() int { return s.MTU + 104 }

// pfc is PFC with the headroom that the longest line asks for, where none is given.
func (s *Scenario) pfc() *sim.PFC {
	if s.PFC == nil || s.PFC.Headroom >= 0 {
		return s.PFC
	}
	p := *s.PFC
	p.Headroom = 0
	lines := []sim.Line{s.Line}
	if s.Kind != Star {
		lines = append(lines, s.Trunk)
	}
	for _, h := range s.Nodes {
		lines = append(lines, sim.Line{Rate: orElse(h.Line.Rate, s.Line.Rate), Delay: orElse(h.Line.Delay, s.Line.Delay)})
	}
	for _, l := range lines {
		p.Headroom = max(p.Headroom, l.Headroom(s.mtu()))
	}
	return &p
}

// ccOf returns the parameters of a host: the scenario's, with what a flow of its
// data changes.
func (s *Scenario) ccOf(host string) *cc.Config {
	c := s.CC
	for i := range s.Flows {
		if f := &s.Flows[i]; f.sender() == host {
			for _, p := range f.CC {
				_ = c.Set(p[0], p[1]) // it was checked
			}
		}
	}
	return &c
}

// opcode and service of a flow.
func (f *Flow) opcode() verbs.WROpcode {
	return map[string]verbs.WROpcode{"write": verbs.WRWrite, "send": verbs.WRSend, "read": verbs.WRRead}[f.Op]
}

func (f *Flow) service() verbs.QPType {
	if f.Service == "uc" {
		return verbs.UC
	}
	return verbs.RC
}

// sameCC reports whether two flows change parameters in the same way.
func (f *Flow) sameCC(g *Flow) bool { return slices.Equal(f.CC, g.CC) }
