package script

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Options say how to run a script. The zero value is as it stands, on this
// module's engines.
type Options struct {
	Make  Maker  // Engine when nil
	Shift uint32 // added to every PSN
	// Slack is how late the Subject's timers may run: packets and completions
	// may come that much after the time they are due, never before.
	Slack time.Duration
	// Log is told of every packet, as a line of a script.
	Log func(line string)
}

// Failure is a step that did not go as the script says.
type Failure struct {
	File string
	Line int
	Text string // the step
	Why  error
	// Packets are the last ones each way, oldest first, as a script would have
	// them.
	Packets []string
}

// Error is the place, the step, what came instead, and the last packets.
func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: %s\n\t%v", f.File, f.Line, f.Text, f.Why)
	if len(f.Packets) > 0 {
		fmt.Fprintf(&b, "\n\tlast packets:\n\t\t%s", strings.Join(f.Packets, "\n\t\t"))
	}
	return b.String()
}

func (f *Failure) Unwrap() error { return f.Why }

const (
	keepPackets = 12      // in a Failure
	maxTimers   = 10000   // in a step
	maxPackets  = 1 << 16 // that a queue pair sends in a run: who sends more never ends
)

// runner is one run of a script.
type runner struct {
	s       *Script
	sub     Subject
	setup   Setup
	shift   uint32
	slack   int64
	log     func(string)
	regions map[string]*Region
	windows map[string]*Window

	now    int64
	when   when // of the step at hand, absolute
	budget int  // packets that may leave; -1 is any number

	packets int    // that left so far
	sent    []sent // and not expected yet
	send    []done
	recv    []done
	events  []verbs.EventType
	seen    Observation
	last    []string
}

type sent struct {
	at int64
	Out
}

type done struct {
	at int64
	Completion
}

// Run runs the script once. The error is a *Failure that tells the step, or what
// kept the queue pair from being made.
func (s *Script) Run(o Options) error {
	r := &runner{s: s, setup: s.setup, shift: o.Shift, slack: int64(o.Slack), log: o.Log, budget: -1, regions: map[string]*Region{}, windows: map[string]*Window{}}
	if o.Make == nil {
		o.Make = Engine
	}
	r.setup.Flow = &wire.Flow{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), SrcPort: 0xc001, TTL: 64}
	for _, g := range s.regions {
		m := &Region{Name: g.name, Mem: make([]byte, g.size), IOVA: g.addr, Access: g.access, Foreign: g.foreign}
		copy(m.Mem, g.fill)
		r.regions[g.name], r.setup.Regions = m, append(r.setup.Regions, m)
	}
	for _, w := range s.windows {
		r.windows[w.Name] = &w
		r.setup.Windows = append(r.setup.Windows, &w)
	}
	var err error
	if r.sub, err = o.Make(&r.setup); err != nil {
		return fmt.Errorf("%s: %w", s.File, err)
	}
	if err := r.bringUp(); err != nil {
		return fmt.Errorf("%s: the queue pair does not reach %v: %w", s.File, s.state, err)
	}
	for i := range s.steps {
		st := &s.steps[i]
		if err := r.step(st); err != nil {
			return &Failure{File: s.File, Line: st.line, Text: st.text, Why: err, Packets: r.last}
		}
	}
	if err := r.nothingLeft(); err != nil {
		f := &Failure{File: s.File, Text: "(the end)", Why: err, Packets: r.last}
		if n := len(s.steps); n > 0 {
			f.Line = s.steps[n-1].line
		}
		return f
	}
	return nil
}

// bringUp takes the queue pair to the state it begins in.
func (r *runner) bringUp() error {
	r.seen.State = verbs.StateReset
	for to := verbs.StateInit; to <= r.s.state; to++ {
		a := r.s.attr
		a.State = to
		m := verbs.AttrState | need[r.setup.Type][[2]verbs.QPState{to - 1, to}]
		if to == verbs.StateRTR && a.RateLimit != 0 {
			m |= verbs.AttrRateLimit
		}
		if err := r.modify(a, m); err != nil {
			return err
		}
		if err := r.settle(); err != nil {
			return err
		}
	}
	r.events = nil
	return nil
}

func (r *runner) modify(a verbs.QPAttr, m verbs.AttrMask) error {
	for _, p := range []*uint32{&a.SQPSN, &a.RQPSN} {
		if *p <= bth.PSNMask { // what is no PSN stays none
			*p = r.psn(*p).Uint32()
		}
	}
	return r.sub.Modify(r.now, &a, m)
}

// step lets time pass and carries out what follows.
func (r *runner) step(st *step) error {
	w := st.when
	switch {
	case !w.set:
		w.lo, w.hi = r.now, r.now
	case w.relative:
		w.lo, w.hi = w.lo+r.now, w.hi+r.now
	}
	if w.hi < r.now && w.hi+r.slack >= r.now {
		w.hi = r.now
	}
	if w.hi < r.now {
		return fmt.Errorf("it is %v already", time.Duration(r.now))
	}
	r.when = w
	if st.when.lo == st.when.hi {
		if err := r.advance(w.lo, nil); err != nil {
			return err
		}
	}
	return st.run(r)
}

// advance lets time pass, and timers run at their deadlines, until to or until
// enough says so.
func (r *runner) advance(to int64, enough func() bool) error {
	for range maxTimers {
		if enough != nil && enough() {
			return nil
		}
		next := r.sub.Timer(r.now)
		if err := r.settle(); err != nil {
			return err
		}
		if enough != nil && enough() {
			return nil
		}
		if next > to {
			if to > r.now {
				r.now = to
				return r.settle()
			}
			return nil
		}
		r.now = max(r.now, next)
	}
	return fmt.Errorf("%d timers, and still not %v", maxTimers, time.Duration(to))
}

// settle takes what the queue pair sends now, and looks at what it did.
func (r *runner) settle() error {
	for _, b := range r.sub.Transmit(r.now, r.budget) {
		if r.packets++; r.packets > maxPackets {
			return fmt.Errorf("more than %d packets: it never ends", maxPackets)
		}
		if r.budget == 0 {
			return errors.New("more packets left than the link takes")
		}
		if r.budget > 0 {
			r.budget--
		}
		r.record(">", b.Octets)
		r.sent = append(r.sent, sent{r.now, b})
	}
	r.seen = r.sub.Observe()
	for _, w := range r.seen.Send {
		r.send = append(r.send, done{r.now, w})
	}
	for _, w := range r.seen.Recv {
		r.recv = append(r.recv, done{r.now, w})
	}
	r.events = append(r.events, r.seen.Events...)
	return nil
}

// record keeps a packet for error messages.
func (r *runner) record(dir string, b []byte) {
	line := fmt.Sprintf("%v %s %s", time.Duration(r.now), dir, r.text(b))
	if r.last = append(r.last, line); len(r.last) > keepPackets {
		r.last = r.last[1:]
	}
	if r.log != nil {
		r.log(line)
	}
}

// nextPacket takes the next packet sent, and waits for it as long as the step
// says.
func (r *runner) nextPacket() (sent, error) {
	if err := r.advance(r.when.hi+r.slack, func() bool { return len(r.sent) > 0 }); err != nil {
		return sent{}, err
	}
	if len(r.sent) == 0 {
		return sent{}, fmt.Errorf("nothing was sent by %v", time.Duration(r.now))
	}
	p := r.sent[0]
	r.sent = r.sent[1:]
	if p.at < r.when.lo {
		return p, fmt.Errorf("a packet left at %v already: > %s", time.Duration(p.at), r.text(p.Octets))
	}
	return p, nil
}

// nextCompletion is nextPacket for completions.
func (r *runner) nextCompletion(queue string) (Completion, error) {
	q := &r.send
	if queue == "recv" {
		q = &r.recv
	}
	if err := r.advance(r.when.hi+r.slack, func() bool { return len(*q) > 0 }); err != nil {
		return Completion{}, err
	}
	if len(*q) == 0 {
		return Completion{}, fmt.Errorf("nothing completed by %v", time.Duration(r.now))
	}
	w := (*q)[0]
	*q = (*q)[1:]
	if w.at < r.when.lo {
		return w.Completion, fmt.Errorf("it completed at %v already: %s", time.Duration(w.at), completionText(queue, &w.Completion))
	}
	return w.Completion, nil
}

// nothingSent is an error when packets left that nobody expected.
func (r *runner) nothingSent() error {
	if len(r.sent) == 0 {
		return nil
	}
	var out []string
	for _, p := range r.sent[:min(len(r.sent), keepPackets)] {
		out = append(out, fmt.Sprintf("%v > %s", time.Duration(p.at), r.text(p.Octets)))
	}
	return fmt.Errorf("%d packets were sent that nothing expects:\n\t\t%s", len(r.sent), strings.Join(out, "\n\t\t"))
}

func (r *runner) nothingLeft() error {
	if err := r.nothingSent(); err != nil {
		return err
	}
	for i := range r.send {
		return fmt.Errorf("a completion that nothing expects: %s", completionText("send", &r.send[i].Completion))
	}
	for i := range r.recv {
		return fmt.Errorf("a completion that nothing expects: %s", completionText("recv", &r.recv[i].Completion))
	}
	return nil
}

// psn is a PSN of the script in this run.
func (r *runner) psn(v uint32) bth.PSN { return bth.MakePSN(v + r.shift) }

func (r *runner) addr(p place) uint64 {
	if p.region == "" {
		return p.off
	}
	return r.regions[p.region].IOVA + p.off
}

func (r *runner) key(p place) uint32 {
	if p.region == "" {
		return uint32(p.off)
	}
	if w := r.windows[p.region]; w != nil {
		return w.next(p.off)
	}
	return r.regions[p.region].Key
}

func (r *runner) sgl(list []piece) (out []verbs.SGE) {
	for _, p := range list {
		out = append(out, verbs.SGE{Addr: r.addr(p.at), Length: p.n, LKey: r.key(p.key)})
	}
	return out
}

// memory returns n octets of a region.
func (r *runner) memory(p place, n int) ([]byte, error) {
	m := r.regions[p.region].Mem
	if p.off > uint64(len(m)) || uint64(n) > uint64(len(m))-p.off {
		return nil, fmt.Errorf("region %s has %d octets", p.region, len(m))
	}
	return m[p.off:][:n], nil
}

// Never is the Deadline of a Subject without a timer.
const Never = int64(math.MaxInt64)
