package lab

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/sim"
)

const (
	maxFile   = 128 << 10 // octets of a scenario: reading TOML takes the square of its keys
	maxErrors = 20        // that are told
)

// Parse reads a scenario; file is what errors call it, and name what reports do.
// settings are changes to parameters of congestion control, NAME=VALUE, after what
// the file says. The error holds everything that is wrong with the
// file, a line each: file:line: what it is, and what is allowed.
func Parse(file, name string, text []byte, settings ...string) (*Scenario, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d octets", file, maxFile)
	}
	var de *toml.DecodeError
	if err := toml.Unmarshal(text, &map[string]any{}); errors.As(err, &de) {
		line, _ := de.Position()
		return nil, fmt.Errorf("%s:%d: %s", file, line, strings.TrimPrefix(de.Error(), "toml: "))
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	r := reader{file: file, text: text, s: New(name), to: "scenario", pfc: sim.PFC{Headroom: -1}}
	r.read()
	for _, v := range settings {
		k, v, ok := strings.Cut(v, "=")
		if !ok {
			return nil, fmt.Errorf("%q: a setting is NAME=VALUE, such as rp_ai_rate=40", k)
		}
		if err := r.s.CC.Set(strings.TrimSpace(k), strings.TrimSpace(v)); err != nil {
			return nil, err
		}
	}
	r.s.settle()
	r.check()
	return r.s, r.wrong()
}

// reader carries a file into a Scenario.
type reader struct {
	file  string
	text  []byte
	s     *Scenario
	to    string // the table that the file is in; "" is one that is not known
	flow  *spread
	host  *Host
	red   cc.RED
	pfc   sim.PFC
	on    bool // PFC
	redAt int  // line of the first of its keys
	pfcAt int
	ccAt  int
	errs  []error
	more  int // errors

	at, lines int // lines before an offset
}

// line returns the line of a node. Nodes come in the order of the file.
func (r *reader) line(n *unstable.Node) int {
	to := int(n.Raw.Offset)
	if to < r.at {
		r.at, r.lines = 0, 0
	}
	r.lines += bytes.Count(r.text[r.at:to], []byte("\n"))
	r.at = to
	return 1 + r.lines
}

func (r *reader) add(line int, format string, args ...any) {
	if len(r.errs) == maxErrors {
		r.more++
		return
	}
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s", r.file, line, fmt.Sprintf(format, args...)))
}

// wrong returns what is wrong with the file, or nil.
func (r *reader) wrong() error {
	if r.more > 0 {
		r.errs = append(r.errs, fmt.Errorf("%s: and %d more", r.file, r.more))
	}
	return errors.Join(r.errs...)
}

func (r *reader) read() {
	p := unstable.Parser{}
	p.Reset(r.text)
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			r.endFlow()
			r.header(e)
		case unstable.KeyValue:
			if r.to != "" {
				r.pair(e)
			}
		}
	}
	r.endFlow()
	if r.redAt > 0 {
		r.s.RED = &r.red
		if err := r.red.Check(); err != nil {
			r.add(r.redAt, "%v", err)
		}
	}
	if r.on {
		r.s.PFC = &r.pfc
	} else if r.pfcAt > 0 {
		r.add(r.pfcAt, "xoff, xon, alpha and headroom take pfc = true")
	}
}

// key returns the name of a key, or the dotted path of a table, and its line.
func (r *reader) key(n *unstable.Node) (name string, line int) {
	for it := n.Key(); it.Next(); {
		if name != "" {
			name += "."
		} else {
			line = r.line(it.Node())
		}
		name += string(it.Node().Data)
	}
	return name, line
}

func (r *reader) header(e *unstable.Node) {
	name, line := r.key(e)
	list := e.Kind == unstable.ArrayTable
	r.to = ""
	switch name {
	case "topology", "switch", "cc":
		if list {
			r.add(line, "section %s is there once: [%[1]s]", name)
			return
		}
	case "flow", "host":
		if !list {
			r.add(line, "a %s is one of a list: [[%[1]s]]", name)
			return
		}
		if name == "flow" {
			r.flow = &spread{Flow: Flow{Op: "write", Service: "rc", Size: 1 << 20, Depth: 2, line: line}, copies: 1}
		} else {
			r.s.Nodes = append(r.s.Nodes, Host{line: line})
			r.host = &r.s.Nodes[len(r.s.Nodes)-1]
		}
	default:
		r.add(line, "there is no section [%s]; there are [topology], [switch], [cc], and any number of [[flow]] and [[host]]", name)
		return
	}
	r.to = name
}

// pair takes a key and its value.
func (r *reader) pair(e *unstable.Node) {
	name, line := r.key(e)
	v := e.Value()
	var err error
	known, names := true, ""
	switch r.to {
	case "scenario":
		known, names, err = set(scenarioKeys, r.s, name, v)
	case "topology":
		known, names, err = set(topologyKeys, r.s, name, v)
	case "switch":
		switch name {
		case "kmin", "kmax", "pmax":
			r.redAt = orElse(r.redAt, line)
		case "xoff", "xon", "alpha", "headroom":
			r.pfcAt = orElse(r.pfcAt, line)
		}
		known, names, err = set(switchKeys, r, name, v)
	case "cc":
		if name == "profile" && r.ccAt > 0 {
			r.add(line, "profile goes before all other parameters: it sets them")
			return
		}
		r.ccAt = line
		err = setCC(&r.s.CC, name, v)
	case "host":
		known, names, err = set(hostKeys, r.host, name, v)
	case "flow":
		if name == "cc" && v.Kind == unstable.InlineTable {
			for it := v.Children(); it.Next(); {
				k, _ := r.key(it.Node())
				trial := r.s.CC
				if err := setCC(&trial, k, it.Node().Value()); err != nil {
					r.add(line, "flow: %v", err)
					continue
				}
				r.flow.CC = append(r.flow.CC, [2]string{k, scalar(it.Node().Value())})
			}
			return
		}
		known, names, err = set(flowKeys, r.flow, name, v)
	}
	switch {
	case !known:
		r.add(line, "unknown key %s in %s; there are %s", name, r.to, names)
	case err != nil && r.to == "cc":
		r.add(line, "%v", err)
	case err != nil:
		r.add(line, "%s = %s: it takes %v", name, shown(v), err)
	}
}

// setCC sets a parameter of congestion control.
func setCC(c *cc.Config, name string, v *unstable.Node) error {
	switch v.Kind {
	case unstable.String, unstable.Integer, unstable.Float, unstable.Bool:
		return c.Set(name, scalar(v))
	}
	return fmt.Errorf("%s: it takes a number or a name", name)
}

// check finds what is wrong with values together.
func (r *reader) check() {
	s := r.s
	if err := s.CC.Check(); err != nil {
		r.add(max(1, r.ccAt), "%v", err)
	}
	if len(s.Flows) == 0 && len(r.errs) == 0 {
		r.add(1, "there is no [[flow]]: nothing would happen")
	}
	if n := int64(s.Duration / s.Sample); n > maxSamples {
		r.add(1, "sample = %v of a duration of %v makes %d points; %d are the most", s.Sample, s.Duration, n, maxSamples)
	}
	hosts := s.hosts()
	known := func(line int, name, what string) {
		if !slices.Contains(hosts, name) {
			r.add(line, "%s = %q: there is no such host; there are %s to %s", what, name, hosts[0], hosts[len(hosts)-1])
		}
	}
	for i := range s.Nodes {
		known(s.Nodes[i].line, s.Nodes[i].Name, "name")
	}
	names := map[string]bool{}
	by := map[string]*Flow{}
	for i := range s.Flows {
		f := &s.Flows[i]
		known(f.line, f.From, "from")
		known(f.line, f.To, "to")
		switch {
		case f.From == f.To:
			r.add(f.line, "flow %s is from host %s to itself", f.Name, f.From)
		case f.Op == "read" && f.Service == "uc":
			r.add(f.line, "flow %s: UC has no READ", f.Name)
		case f.Start >= f.Stop:
			r.add(f.line, "flow %s starts at %v and stops at %v; the scenario ends at %v", f.Name, f.Start, f.Stop, s.Duration)
		case names[f.Name]:
			r.add(f.line, "there are two flows %q; name one of them", f.Name)
		}
		names[f.Name] = true
		if other := by[f.sender()]; other != nil && !other.sameCC(f) {
			r.add(f.line, "flows %s and %s send from host %s with different parameters; they are a NIC's: let them send from two hosts", other.Name, f.Name, f.sender())
		}
		by[f.sender()] = f
		if c := s.ccOf(f.sender()); len(f.CC) > 0 {
			if err := c.Check(); err != nil {
				r.add(f.line, "flow %s: %v", f.Name, err)
			}
		}
	}
	if len(r.errs) > 0 {
		return
	}
	if _, err := s.build(); err != nil { // what package sim refuses
		r.add(1, "%s", strings.TrimPrefix(err.Error(), "sim: "))
	}
}

// build makes the network.
func (s *Scenario) build() (*sim.Sim, error) {
	net, err := sim.New(sim.Config{Seed: s.Seed, MTU: s.mtu(), Faults: s.Faults})
	if err != nil {
		return nil, err
	}
	switch t := s.topology(); s.Kind {
	case Star:
		_, err = t.Star(net, s.Hosts)
	case Dumbbell:
		_, _, err = t.Dumbbell(net, s.Hosts)
	case ParkingLot:
		_, err = t.ParkingLot(net, s.Switches, s.Hosts)
	case LeafSpine:
		_, err = t.LeafSpine(net, s.Switches, s.Hosts)
	}
	if err != nil {
		net.Close()
		return nil, err
	}
	return net, nil
}
