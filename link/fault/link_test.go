package fault_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/link/mem/memtest"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is two links in memory, one of them behind rules, on a clock that the
// test sets.
type rig struct {
	t    testing.TB
	text string // of the rules
	now  int64
	a, b link.Link
	f    *fault.Link
	v    *wire.Verifier
	next uint32 // PSN
}

func newRig(t testing.TB, rules string, rx mem.Config) *rig {
	t.Helper()
	rs, err := fault.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	as, bs, err := mem.Pair(mem.Config{}, rx)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, text: rules, a: as[0], b: bs[0], v: wire.NewVerifier()}
	cfg := fault.Config{Rules: rs, Seed: 11, Now: func() int64 { return r.now }}
	if len(rs) > 0 && rs[0].Dir == trace.Rx {
		r.f = fault.Wrap(r.b, cfg)
		r.b = r.f
	} else {
		r.f = fault.Wrap(r.a, cfg)
		r.a = r.f
	}
	return r
}

// burst returns a burst of n packets with the PSNs that follow.
func (r *rig) burst(n int) *wire.Burst {
	b := memtest.Burst(r.t, memtest.Spec{Flow: memtest.Flow4(), QPN: 5, PSN: r.next, Op: bth.RCSendMiddle, Lens: memtest.Equal(n, 256)})
	r.next += uint32(n)
	return b
}

func (r *rig) send(bs ...*wire.Burst) {
	r.t.Helper()
	want := 0
	for _, b := range bs {
		want += b.Len()
	}
	if n, err := r.a.Send(bs); n != want || err != nil {
		r.t.Fatalf("Send = %d, %v; want %d", n, err, want)
	}
}

// recv returns the PSNs that have arrived, a slice for each datagram. A
// packet whose ICRC is wrong is -1.
func (r *rig) recv() (out [][]int) {
	r.t.Helper()
	if _, err := r.a.Recv(nil); err != nil { // what is due leaves now
		r.t.Fatal(err)
	}
	ds := make([]wire.Datagram, 3)
	// A call that is kept busy by rules that leave nothing may return 0 early.
	for empty := 0; empty < 20; {
		n, err := r.b.Recv(ds)
		if err != nil {
			r.t.Fatal(err)
		}
		if n == 0 {
			empty++
		}
		for i := range ds[:n] {
			var psns []int
			for s := range ds[i].Segments() {
				if reason := r.v.Check(0, &ds[i], s); reason == trace.DropICRC {
					psns = append(psns, -1)
				} else {
					p := memtest.Check(r.t, r.v, &ds[i], s)
					psns = append(psns, int(p.PSN.Uint32()))
				}
			}
			out = append(out, psns)
		}
	}
	return out
}

func (r *rig) expect(want string) {
	r.t.Helper()
	if got := fmt.Sprint(r.recv()); got != want {
		r.t.Fatalf("received %s, want %s", got, want)
	}
}

// Each effect on one packet in a burst of six, in either direction. What is
// sent is packed into bursts again; of what was received, runs that no rule
// hit stay merged. Every ICRC but the corrupted one is right where it is.
func TestEffects(t *testing.T) {
	for _, c := range []struct{ rules, tx, rx string }{
		{"DIR drop 0%", "[[0 1 2 3 4 5]]", "[[0 1 2 3 4 5]]"},
		{"DIR drop psn=2", "[[0 1 3 4 5]]", "[[0 1] [3 4 5]]"},
		{"DIR drop", "[]", "[]"},
		{"DIR drop psn=0..4", "[[5]]", "[[5]]"},
		{"DIR dup psn=2", "[[0 1 2 2 3 4 5]]", "[[0 1] [2] [2] [3 4 5]]"},
		{"DIR dup psn=2; DIR dup psn=2", "[[0 1 2 2 2 3 4 5]]", "[[0 1] [2] [2] [2] [3 4 5]]"},
		{"DIR corrupt psn=2", "[[0 1] [-1] [3 4 5]]", "[[0 1] [-1] [3 4 5]]"},
		{"DIR corrupt psn=2; DIR dup psn=2", "[[0 1] [-1] [-1] [3 4 5]]", "[[0 1] [-1] [-1] [3 4 5]]"},
		{"DIR corrupt", "[[-1] [-1] [-1] [-1] [-1] [-1]]", "[[-1] [-1] [-1] [-1] [-1] [-1]]"},
		{"DIR reorder psn=1 by=2", "[[0 2 3 1 4 5]]", "[[0] [2 3] [1] [4 5]]"},
		{"DIR reorder psn=1 by=4", "[[0 2 3 4 5 1]]", "[[0] [2 3 4 5] [1]]"},
		{"DIR reorder psn=1..2 by=2", "[[0 3 4 1 2 5]]", "[[0] [3 4] [1] [2] [5]]"},
		{"DIR reorder psn=5", "[[0 1 2 3 4]]", "[[0 1 2 3 4]]"},
		{"DIR reorder psn=1 by=2; DIR corrupt psn=1", "[[0 2 3] [-1] [4 5]]", "[[0] [2 3] [-1] [4 5]]"},
		{"DIR delay 1ms psn=3", "[[0 1 2 4 5]]", "[[0 1 2] [4 5]]"},
		{"DIR delay 0s psn=3", "[[0 1 2 4 3 5]]", "[[0 1 2] [4] [3] [5]]"},
		{"DIR ce psn=1", "[[0] [1] [2 3 4 5]]", "[[0] [1] [2 3 4 5]]"},
	} {
		for dir, want := range map[string]string{"tx": c.tx, "rx": c.rx} {
			rules := strings.ReplaceAll(c.rules, "DIR", dir)
			t.Run(rules, func(t *testing.T) {
				r := newRig(t, rules, mem.Config{})
				r.send(r.burst(6))
				r.expect(want)
			})
		}
	}
}

// The other direction is left alone, and clean bursts go on merged.
func TestOtherWay(t *testing.T) {
	r := newRig(t, "tx drop", mem.Config{})
	r.a, r.b = r.b, r.a
	b := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow("192.0.2.2", "192.0.2.1"), QPN: 5, Op: bth.RCSendMiddle, Lens: memtest.Equal(4, 256)})
	r.send(b)
	r.expect("[[0 1 2 3]]")
}

// A packet that is to be overtaken by three leaves after exactly three, across
// bursts, or when its time has come.
func TestReorder(t *testing.T) {
	for _, dir := range []string{"tx", "rx"} {
		r := newRig(t, dir+" reorder psn=0 by=3 within=2ms; "+dir+" reorder psn=20 by=3 within=2ms", mem.Config{Single: true})
		r.send(r.burst(1), r.burst(2), r.burst(5))
		r.expect("[[1] [2] [3] [0] [4] [5] [6] [7]]")
		r.next = 20
		r.send(r.burst(2))
		r.expect("[[21]]")
		r.now += 2e6 - 1
		r.expect("[]")
		r.now++
		r.expect("[[20]]")
	}
}

func TestDelayAndRate(t *testing.T) {
	for _, dir := range []string{"tx", "rx"} {
		r := newRig(t, dir+" delay 1ms psn=1; "+dir+" delay 2ms psn=0", mem.Config{})
		r.send(r.burst(3))
		r.expect("[[2]]")
		r.now += 1e6
		r.expect("[[1]]")
		r.now += 1e6
		r.expect("[[0]]")
		// A packet has 272 octets here: 2.176 ms at 1 Mbit/s, three queue.
		r = newRig(t, dir+" rate 1Mbit buf=900", mem.Config{Single: true})
		r.send(r.burst(5))
		r.expect("[]")
		for i := range 3 {
			r.now = int64(i+1)*2_176_000 - 1
			r.expect("[]")
			r.now++
			r.expect(fmt.Sprintf("[[%d]]", i))
		}
		r.now += 1e9
		r.expect("[]")
		if s, _ := r.f.Faults(); s[0].Hit != 5 || s[0].Lost != 2 {
			t.Errorf("%+v", s)
		}
	}
}

// Of a run, the packets that the rule hits are marked and no others, whether the
// link has it whole or not: the runs between them stay whole, which is all the
// splitting that a traffic class of its own takes.
func TestCE(t *testing.T) {
	const ect, ce = wire.ECNECT0, wire.ECNCE
	for _, c := range []struct {
		rule string
		want []uint8 // of packets 0 to 5
		runs string  // in which they come
	}{
		{"ce psn=1", []uint8{ect, ce, ect, ect, ect, ect}, "[1 1 4]"},
		{"ce psn=0", []uint8{ce, ect, ect, ect, ect, ect}, "[1 5]"},
		{"ce psn=5", []uint8{ect, ect, ect, ect, ect, ce}, "[5 1]"},
		{"ce psn=0..2", []uint8{ce, ce, ce, ect, ect, ect}, ""},
		{"ce every=2", []uint8{ect, ce, ect, ce, ect, ce}, "[1 1 1 1 1 1]"},
		{"ce", []uint8{ce, ce, ce, ce, ce, ce}, ""},
		{"ce psn=9", []uint8{ect, ect, ect, ect, ect, ect}, "[6]"},
	} {
		for _, dir := range []string{"tx ", "rx "} {
			for _, single := range []bool{false, true} {
				r := newRig(t, dir+c.rule, mem.Config{Single: single})
				r.send(r.burst(6))
				ds := make([]wire.Datagram, 8)
				n, err := r.b.Recv(ds)
				if err != nil {
					t.Fatal(err)
				}
				var got []uint8
				var runs []int
				for i := range ds[:n] {
					runs = append(runs, ds[i].Segments())
					for s := range ds[i].Segments() {
						if p := memtest.Check(t, r.v, &ds[i], s); int(p.PSN.Uint32()) != len(got) {
							t.Fatalf("%s: packet %v comes as number %d", r.text, p.PSN, len(got))
						}
						got = append(got, ds[i].TOS)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%s, single %v: traffic classes %v, want %v", r.text, single, got, c.want)
				}
				if !single && c.runs != "" && fmt.Sprint(runs) != c.runs {
					t.Errorf("%s: runs of %v, want %s", r.text, runs, c.runs)
				}
			}
		}
	}
}

// A mark stays with its packet when the packet is repeated, corrupted, or held and
// overtaken.
func TestCEAndOtherEffects(t *testing.T) {
	for _, rules := range []string{"DIR ce psn=2; DIR dup psn=2", "DIR ce psn=2; DIR reorder psn=2 by=2", "DIR ce psn=2; DIR delay 5us psn=2", "DIR ce psn=2; DIR corrupt psn=2", "DIR ce psn=2; DIR drop psn=3"} {
		for _, dir := range []string{"tx", "rx"} {
			rules := strings.ReplaceAll(rules, "DIR", dir)
			r := newRig(t, rules, mem.Config{})
			r.send(r.burst(6))
			marked := 0
			ds := make([]wire.Datagram, 16)
			for range 20 {
				r.now += 1000
				if _, err := r.a.Recv(nil); err != nil { // what is due leaves now
					t.Fatal(err)
				}
				n, err := r.b.Recv(ds)
				if err != nil {
					t.Fatal(err)
				}
				for i := range ds[:n] {
					for s := range ds[i].Segments() {
						is := ds[i].Segment(s)[11] == 2
						if (ds[i].TOS == wire.ECNCE) != is {
							t.Errorf("%s: packet %d has traffic class %d", rules, ds[i].Segment(s)[11], ds[i].TOS)
						}
						if is {
							marked++
						}
					}
				}
			}
			want := 1
			if strings.Contains(rules, "dup") {
				want = 2
			}
			if marked != want {
				t.Errorf("%s: packet 2 came %d times, want %d", rules, marked, want)
			}
		}
	}
}

// Packets that differ in their priority leave in bursts of their own, as they came.
func TestPriorities(t *testing.T) {
	r := newRig(t, "", mem.Config{})
	inner := &recorder{Link: r.f.Unwrap()}
	l := fault.Wrap(inner, fault.Config{Rules: fault.MustParse("tx dup psn=0..3"), Now: func() int64 { return 0 }})
	var bs []*wire.Burst
	for _, p := range []uint8{0, 6, 0, 6} {
		b := r.burst(1)
		b.Flow.Priority = p
		bs = append(bs, b)
	}
	if n, err := l.Send(bs); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if got := fmt.Sprint(inner.priorities); got != "[0 0 6 6 0 0 6 6]" {
		t.Errorf("packets left with priorities %s", got)
	}
}

// recorder notes the priority of each packet that is sent.
type recorder struct {
	link.Link
	priorities []uint8
}

func (r *recorder) Send(bs []*wire.Burst) (int, error) {
	for _, b := range bs {
		for range b.Segs {
			r.priorities = append(r.priorities, b.Flow.Priority)
		}
	}
	return r.Link.Send(bs)
}

// Neither the user's memory, nor the burst, nor the inner link's buffer is
// written to.
func TestCorruptTouchesOnlyCopies(t *testing.T) {
	r := newRig(t, "tx corrupt", mem.Config{})
	b := r.burst(4)
	before := slices.Concat(b.Vec()...)
	r.send(b)
	if !slices.Equal(before, slices.Concat(b.Vec()...)) {
		t.Error("the burst was changed")
	}
	r.expect("[[-1] [-1] [-1] [-1]]")

	r = newRig(t, "rx corrupt", mem.Config{})
	peek := &peeker{Link: r.f.Unwrap()}
	f := fault.Wrap(peek, fault.Config{Rules: fault.MustParse("rx corrupt")})
	r.send(r.burst(4))
	ds := make([]wire.Datagram, 8)
	if n, err := f.Recv(ds); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	for s := range peek.last.Segments() {
		memtest.Check(t, r.v, &peek.last, s)
	}
}

// peeker remembers the first datagram of the last Recv.
type peeker struct {
	link.Link
	last wire.Datagram
}

func (p *peeker) Recv(ds []wire.Datagram) (int, error) {
	n, err := p.Link.Recv(ds)
	if n > 0 {
		p.last = ds[0]
	}
	return n, err
}

func TestNotes(t *testing.T) {
	r := newRig(t, "tx drop psn=1; tx dup psn=5; tx ce psn=5", mem.Config{})
	r.send(r.burst(3), r.burst(3))
	for i := range 2 {
		for s := range 3 {
			want := map[[2]int]string{{0, 1}: "drop", {1, 2}: "dup+ce"}[[2]int{i, s}]
			if got := r.f.TxNote(i, s); got != want {
				t.Errorf("burst %d segment %d: %q, want %q", i, s, got, want)
			}
		}
	}
	r = newRig(t, "rx delay 1ms psn=1; rx corrupt psn=2", mem.Config{})
	r.send(r.burst(4))
	ds := make([]wire.Datagram, 8)
	notes := func() (out []string) {
		n, err := r.b.Recv(ds)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			out = append(out, r.f.RxNote(i))
		}
		return out
	}
	if got := notes(); !slices.Equal(got, []string{"", "corrupt", ""}) {
		t.Errorf("%q", got)
	}
	r.now += 1e6
	if got := notes(); !slices.Equal(got, []string{"delay"}) {
		t.Errorf("%q", got)
	}
}

// narrow is a link that takes few segments at a time.
type narrow struct {
	link.Link
	room int
	sent []int // PSNs
}

func (l *narrow) Send(bs []*wire.Burst) (int, error) {
	n := 0
	for _, b := range bs {
		for i := range b.Segs {
			if l.room == 0 {
				return n, nil
			}
			l.room--
			n++
			l.sent = append(l.sent, int(b.Segs[i].PSN.Uint32()))
		}
	}
	return n, nil
}

// A link without room loses nothing, repeats nothing and reorders nothing,
// and no packet is judged twice.
func TestShortSends(t *testing.T) {
	for _, rules := range []string{"tx drop 0%", "tx dup 20%; tx drop 10%; tx corrupt 5%", "tx drop psn=3 seen=1"} {
		rng := rand.New(rand.NewPCG(5, 5))
		as, _, err := mem.Pair(mem.Config{}, mem.Config{})
		if err != nil {
			t.Fatal(err)
		}
		// What an endless link sends by these rules: the same, in the end.
		wide := &narrow{Link: as[0], room: 1 << 30}
		thin := &narrow{Link: as[0]}
		cfg := fault.Config{Rules: fault.MustParse(rules), Seed: 3, Now: func() int64 { return 0 }}
		fw, ft := fault.Wrap(wide, cfg), fault.Wrap(thin, cfg)
		var bs []*wire.Burst
		for psn := 0; psn < 200; {
			n := 1 + rng.IntN(9)
			bs = append(bs, memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 5, PSN: uint32(psn), Op: bth.RCSendMiddle, Lens: memtest.Equal(n, 64)}))
			psn += n
		}
		if _, err := fw.Send(bs); err != nil {
			t.Fatal(err)
		}
		for tries := 0; len(thin.sent) < len(wide.sent); tries++ {
			if tries > 1000 {
				t.Fatalf("%s: stuck after %d of %d", rules, len(thin.sent), len(wide.sent))
			}
			thin.room = rng.IntN(12)
			n, err := ft.Send(bs[:min(3, len(bs))])
			if err != nil {
				t.Fatal(err)
			}
			for n > 0 { // whole bursts: what is not judged is offered again
				n -= bs[0].Len()
				bs = bs[1:]
			}
			if n < 0 {
				t.Fatal("a burst was taken in part")
			}
		}
		if !slices.Equal(thin.sent, wide.sent) || len(bs) > 0 {
			t.Errorf("%s: sent\n%v\nwant\n%v", rules, thin.sent, wide.sent)
		}
		sw, _ := fw.Faults()
		st, full := ft.Faults()
		if !slices.Equal(sw, st) || full != 0 {
			t.Errorf("%s: %v and %v, %d without room", rules, sw, st, full)
		}
	}
}

// What finds no room to be held is lost and counted.
func TestMaxHeld(t *testing.T) {
	for _, rule := range []string{"tx delay 1ms", "rx delay 1ms"} {
		r := newRig(t, rule, mem.Config{Single: true})
		small := fault.Wrap(r.f.Unwrap(), fault.Config{Rules: fault.MustParse(rule), Now: func() int64 { return r.now }, MaxHeld: 3})
		if r.a == link.Link(r.f) {
			r.a = small
		} else {
			r.b = small
		}
		for range 2 {
			r.send(r.burst(5))
			r.expect("[]")
			r.now += 1e6
			if got := r.recv(); len(flat(got)) != 3 {
				t.Errorf("%s: received %v", rule, got)
			}
		}
		if _, full := small.Faults(); full != 4 {
			t.Errorf("%s: %d found no room", rule, full)
		}
	}
}

func flat(s [][]int) []int { return slices.Concat(s...) }

// Any rules, any bursts: what arrives is what was sent, less what the counters
// say was lost, plus what they say was repeated; the same again for the same
// seed. Nothing is left behind in the end.
func TestBalance(t *testing.T) {
	effects := []string{"drop 5%", "dup 10%", "reorder 10% by=2", "reorder 5% by=9 within=1ms", "delay 0s..3ms 10%", "corrupt 5%", "ce 10%", "rate 1Gbit buf=20k", "dup seen=1 every=7"}
	for seed := range uint64(60) {
		run := func() (string, map[int]int) {
			rng := rand.New(rand.NewPCG(seed, 1))
			dir := []string{"tx ", "rx "}[rng.IntN(2)]
			var rules []string
			for range 1 + rng.IntN(4) {
				rules = append(rules, dir+effects[rng.IntN(len(effects))])
			}
			r := newRig(t, strings.Join(rules, "; "), mem.Config{Single: rng.IntN(2) == 0, HideIDs: rng.IntN(2) == 0})
			got := map[int]int{}
			var log strings.Builder
			collect := func() {
				in := r.recv()
				fmt.Fprintln(&log, r.now, in)
				for _, psn := range flat(in) {
					got[psn]++
				}
			}
			for range 40 {
				r.send(r.burst(1+rng.IntN(20)), r.burst(1+rng.IntN(3)))
				if rng.IntN(3) == 0 {
					collect()
				}
				r.now += rng.Int64N(2e5)
			}
			collect() // what rx rules hold is held from here on
			r.now += 1e9
			collect()
			total, lost := int(r.next), 0
			stats, full := r.f.Faults()
			copies := 0
			for _, s := range stats {
				if strings.Contains(s.Rule, "dup") {
					copies += int(s.Hit)
				}
				lost += int(s.Lost)
			}
			arrived := 0
			for _, n := range got {
				arrived += n
			}
			// A packet that was repeated by one rule and lost by a later one
			// takes its copies along.
			if full != 0 || arrived > total+copies-lost || arrived < total-lost || lost == 0 && arrived != total+copies {
				t.Errorf("seed %d, %q: sent %d, lost %d, repeated %d, arrived %d", seed, rules, total, lost, copies, arrived)
			}
			return log.String(), got
		}
		first, got := run()
		if again, _ := run(); again != first {
			t.Errorf("seed %d: the same seed, packets and times gave other faults", seed)
		}
		if len(got) < 100 {
			t.Errorf("seed %d: only %d packets arrived", seed, len(got))
		}
	}
}
