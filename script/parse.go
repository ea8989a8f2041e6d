package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// Script is a parsed script.
type Script struct {
	File    string
	Title   string   // the first comment
	Rules   []string // that it proves; see internal/rules
	Reports []string // public reports that it reproduces

	setup   Setup
	attr    verbs.QPAttr // of the qp line
	state   verbs.QPState
	regions []region
	windows []Window
	steps   []step
}

// Type returns the service of the script's queue pair.
func (s *Script) Type() verbs.QPType { return s.setup.Type }

// region is memory as a script declares it.
type region struct {
	name    string
	size    int
	addr    uint64
	access  verbs.Access
	fill    []byte
	foreign bool
}

// step is a line that does something.
type step struct {
	line int
	text string
	when when
	run  action
}

// action carries a step out.
type action func(r *runner) error

// ErrSyntax is a line that is not as the grammar has it.
type ErrSyntax struct {
	File string
	Line int
	Text string // the line
	Why  error
}

func (e *ErrSyntax) Error() string {
	return fmt.Sprintf("%s:%d: %v\n\t%s", e.File, e.Line, e.Why, e.Text)
}

func (e *ErrSyntax) Unwrap() error { return e.Why }

type parser struct{ s *Script }

// Parse reads a script. File is what errors call it. The error is an
// *ErrSyntax that names the line.
func Parse(file, text string) (*Script, error) {
	c := &parser{s: &Script{File: file}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if err := c.line(n, line); err != nil {
			return nil, &ErrSyntax{File: file, Line: n, Text: line, Why: err}
		}
	}
	if c.s.setup.Type == 0 {
		return nil, &ErrSyntax{File: file, Line: n, Why: fmt.Errorf("there is no qp line, such as: qp rc mtu=1024 epsn=100")}
	}
	return c.s, nil
}

func (c *parser) line(n int, line string) error {
	words := strings.Fields(line)
	if i := slices.IndexFunc(words, func(w string) bool { return w[0] == '#' }); i >= 0 {
		if title := strings.Trim(strings.Join(words[i:], " "), "# "); c.s.Title == "" {
			c.s.Title = title
		}
		words = words[:i]
	}
	if len(words) == 0 {
		return nil
	}
	if h, ok := headers[words[0]]; ok {
		if len(c.s.steps) > 0 {
			return fmt.Errorf("%s belongs before the first step", words[0])
		}
		a := makeArgs(words[1:])
		h(c, a)
		return a.done()
	}
	w, timed, err := parseWhen(words[0])
	if err != nil {
		return err
	}
	if timed {
		words = words[1:]
	}
	if len(words) == 0 {
		return fmt.Errorf("a time and nothing to happen at it")
	}
	verb, ok := verbsOf[words[0]]
	switch {
	case !ok:
		return fmt.Errorf("unknown verb %s; there are %s", words[0], strings.Join(verbNames(), " "))
	case c.s.setup.Type == 0:
		return fmt.Errorf("a qp line comes first, such as: qp rc mtu=1024 epsn=100")
	case w.lo != w.hi && words[0] != ">" && words[0] != "cq":
		return fmt.Errorf("%s has a time, not a range", words[0])
	}
	if len(c.s.steps) == 0 {
		c.defaultRegion()
	}
	a := makeArgs(words[1:])
	run := verb(c, a)
	if err := a.done(); err != nil {
		return err
	}
	c.s.steps = append(c.s.steps, step{line: n, text: line, when: w, run: run})
	return nil
}

// headers are the verbs that come before the first step.
var headers map[string]func(c *parser, a *args)

func init() {
	headers = map[string]func(c *parser, a *args){
		"rule":    func(c *parser, a *args) { c.s.Rules = append(c.s.Rules, c.list(a, "a rule's name")...) },
		"reports": func(c *parser, a *args) { c.s.Reports = append(c.s.Reports, c.list(a, "a report")...) },
		"qp":      (*parser).qp,
		"region":  (*parser).region,
		"window":  (*parser).window,
		"cc":      (*parser).congestion,
	}
}

// withoutCC is the congestion control of a device that a script says nothing of:
// none, at either point.
func withoutCC() cc.Config {
	c := cc.Default()
	c.Algorithm, c.NPEnable, c.RoCESlowRestart = cc.AlgNone, false, false
	return c
}

// congestion begins with what a device has by itself, and changes that.
func (c *parser) congestion(a *args) {
	c.s.setup.CC = cc.Default()
	if err := c.changes(a)(&c.s.setup.CC); err != nil {
		a.fail("%v", err)
	}
}

// changes takes an algorithm, and parameters by their names.
func (c *parser) changes(a *args) func(*cc.Config) error {
	if !c.s.setup.Device {
		a.fail("only a device has congestion control: qp ... device")
	}
	words := a.words
	for i := range words {
		words[i].used = true
	}
	return func(to *cc.Config) error {
		for _, w := range words {
			name, value := w.key, w.val
			if !w.pair {
				name, value = "algorithm", w.key
			}
			if err := to.Set(name, value); err != nil {
				return err
			}
		}
		return to.Check()
	}
}

func (c *parser) list(a *args, what string) []string {
	out := a.rest()
	if len(out) == 0 {
		a.fail("%s is missing", what)
	}
	return out
}

// services are the queue pair types by the names of scripts.
var services = map[string]verbs.QPType{"rc": verbs.RC, "uc": verbs.UC, "ud": verbs.UD}

func (c *parser) qp(a *args) {
	s := &c.s.setup
	if s.Type != 0 {
		a.fail("there is one qp line")
		return
	}
	name := a.next("the service, rc, uc or ud,")
	if s.Type = services[name]; s.Type == 0 {
		a.fail("%s is none of rc, uc, ud", name)
		return
	}
	s.CC = withoutCC()
	c.s.attr = verbs.QPAttr{
		Port: 1, PathMTU: 256, DestQPN: 0x12, SQPSN: 100, RQPSN: 100, Access: verbs.AccessAll, QKey: 0x1234, MaxRdAtomic: 4, MaxDestRdAtomic: 4,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
	for i := range attrs {
		attrs[i].parse(a, &c.s.attr)
	}
	if a.flag("flow_control") {
		c.s.attr.FlowControl = true
	}
	s.QPN = bth.QPN(a.count("qpn", 0x11, bth.QPNMask))
	s.Cap = verbs.QPCap{
		MaxSendWR: a.count("sq", 64, 4096), MaxRecvWR: a.count("rq", 64, 4096),
		MaxSendSGE: a.count("sge", 4, verbs.MaxSGE), MaxInline: a.count("inline", 64, verbs.MaxInline),
	}
	s.Cap.MaxRecvSGE = s.Cap.MaxSendSGE
	s.Window = a.count("window", 0, 4096)
	s.SharedRQ, s.Device, s.Bare = a.flag("srq"), a.flag("device"), a.flag("engine")
	if s.Device && s.Bare {
		a.fail("device and engine exclude each other; a script for both says neither")
	}
	s.MTU = int(c.s.attr.PathMTU)
	s.CQE = a.count("cqe", 0, 1<<14)
	if g := a.addr("group"); g.IsValid() {
		s.Groups = append(s.Groups, g)
		if s.Type != verbs.UD || !s.Device || !g.IsMulticast() {
			a.fail("group=%v: a multicast group is for a UD queue pair of a device", g)
		}
	}
	if s.CQE > 0 && !s.Device {
		a.fail("cqe=%d: only a device has completion queues", s.CQE)
	}
	c.s.state = verbs.StateRTS
	if name, ok := a.str("state"); ok {
		if c.s.state, ok = stateNamed(name); !ok || c.s.state > verbs.StateRTS {
			a.fail("state=%s: a script begins in reset, init, rtr or rts", name)
		}
	}
	var err error
	if s.Cap, err = s.Cap.WithDefaults(); err != nil {
		a.fail("%v", err)
	}
	if !c.s.attr.PathMTU.Valid() {
		a.fail("mtu=%d is none of 256, 512, 1024, 2048, 4096", c.s.attr.PathMTU)
	}
}

func stateNamed(name string) (verbs.QPState, bool) {
	for s := verbs.StateReset; s <= verbs.StateErr; s++ {
		if strings.EqualFold(s.String(), name) {
			return s, true
		}
	}
	return 0, false
}

// attrDef is an attribute of a queue pair that scripts name.
type attrDef struct {
	name string
	mask verbs.AttrMask
	bits int
	set  func(a *verbs.QPAttr, v uint64)
}

// attrs have the names of ibv_qp_attr, shortened. They take more than a queue
// pair does, so that scripts can say what it refuses.
var attrs = []attrDef{
	{"mtu", verbs.AttrPathMTU, 16, func(a *verbs.QPAttr, v uint64) { a.PathMTU = verbs.MTU(v) }},
	{"psn", verbs.AttrSQPSN, 32, func(a *verbs.QPAttr, v uint64) { a.SQPSN = uint32(v) }},
	{"epsn", verbs.AttrRQPSN, 32, func(a *verbs.QPAttr, v uint64) { a.RQPSN = uint32(v) }},
	{"dest", verbs.AttrDestQPN, 32, func(a *verbs.QPAttr, v uint64) { a.DestQPN = uint32(v) }},
	{"rd", verbs.AttrMaxRdAtomic, 16, func(a *verbs.QPAttr, v uint64) { a.MaxRdAtomic = int(v) }},
	{"dest_rd", verbs.AttrMaxDestRdAtomic, 16, func(a *verbs.QPAttr, v uint64) { a.MaxDestRdAtomic = int(v) }},
	{"timeout", verbs.AttrTimeout, 8, func(a *verbs.QPAttr, v uint64) { a.Timeout = uint8(v) }},
	{"retry", verbs.AttrRetryCnt, 8, func(a *verbs.QPAttr, v uint64) { a.RetryCnt = uint8(v) }},
	{"rnr_retry", verbs.AttrRNRRetry, 8, func(a *verbs.QPAttr, v uint64) { a.RNRRetry = uint8(v) }},
	{"rnr_timer", verbs.AttrMinRNRTimer, 8, func(a *verbs.QPAttr, v uint64) { a.MinRNRTimer = uint8(v) }},
	{"qkey", verbs.AttrQKey, 32, func(a *verbs.QPAttr, v uint64) { a.QKey = uint32(v) }},
	{"rate", verbs.AttrRateLimit, 32, func(a *verbs.QPAttr, v uint64) { a.RateLimit = uint32(v) }},
	{"access", verbs.AttrAccess, 0, nil},
}

// parse takes the attribute, if it is there.
func (d *attrDef) parse(a *args, q *verbs.QPAttr) (named bool) {
	if d.name == "access" {
		s, ok := a.str(d.name)
		if ok {
			q.Access = parseAccess(a, s)
		}
		return ok
	}
	v, ok := a.num(d.name, d.bits)
	if ok {
		d.set(q, v)
	}
	return ok
}

func parseAccess(a *args, s string) (out verbs.Access) {
	switch s {
	case "all":
		return verbs.AccessAll
	case "none":
		return 0
	}
	for _, ch := range s {
		i := strings.IndexRune("lwrabz", ch)
		if i < 0 {
			a.fail("access=%s: letters of l (local write), w, r, a (remote write, read, atomic), b (binding of windows), z (zero-based), or all, or none", s)
			return 0
		}
		out |= 1 << i
	}
	return out
}

// maxMemory bounds what the regions of a script take.
const maxMemory = 1 << 25

func (c *parser) region(a *args) {
	g := region{name: a.next("the region's name"), size: a.count("size", 1<<16, 1<<24), addr: 0x10000, access: verbs.AccessAll, foreign: a.flag("foreign")}
	if strings.ContainsAny(g.name, "+-:,0123456789") {
		a.fail("%s: a region's name is letters", g.name)
	}
	if v, ok := a.num("addr", 64); ok {
		g.addr = v
	}
	if s, ok := a.str("access"); ok {
		g.access = parseAccess(a, s)
	}
	if b, ok := a.bytes("fill"); ok {
		if g.fill = b; len(b) > g.size {
			a.fail("fill: %d octets for a region of %d", len(b), g.size)
		}
	}
	total := g.size
	for _, o := range c.s.regions {
		total += o.size
	}
	if total > maxMemory {
		a.fail("regions of more than %d octets together", maxMemory)
	}
	if c.hasRegion(g.name) || c.hasWindow(g.name) {
		a.fail("there is a region %s already", g.name)
	}
	c.s.regions = append(c.s.regions, g)
}

// defaultRegion is m, unless the script has its own.
func (c *parser) defaultRegion() {
	if !c.hasRegion("m") {
		c.s.regions = append(c.s.regions, region{name: "m", size: 1 << 16, addr: 0x10000, access: verbs.AccessAll})
	}
}

func (c *parser) hasRegion(name string) bool {
	return slices.ContainsFunc(c.s.regions, func(o region) bool { return o.name == name })
}

// needRegion complains of a place in a region that there is not.
func (c *parser) needRegion(a *args, p place) {
	if p.region != "" && !c.hasRegion(p.region) {
		a.fail("there is no region %s", p.region)
	}
}

// sgl takes len or sge. Without either there are no entries.
func (c *parser) sgl(a *args) (out []piece) {
	if n, ok := a.num("len", 32); ok {
		m := place{region: "m"}
		c.needRegion(a, m)
		return []piece{{m, uint32(n), m}}
	}
	s, ok := a.str("sge")
	if !ok {
		return nil
	}
	out, err := parseList(s)
	if err != nil {
		a.fail("sge: %v", err)
	}
	for _, p := range out {
		c.needRegion(a, p.at)
		c.needKey(a, p.key)
	}
	return out
}

// reasonNamed finds a counter by its name.
func reasonNamed(name string) (trace.Reason, bool) {
	for r := trace.None; r < trace.NumReasons; r++ {
		if r.String() == name {
			return r, true
		}
	}
	return 0, false
}
