package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorxe/gorxe/bth"
)

// What a choice of the search costs. Anything else that explains a recorded
// packet comes before a difference.
const (
	costTimer    = 1    // a timer fires
	costAck      = 2    // an ACK that repeats, or that the other side left to a later one
	costLost     = 4    // a packet of ours that was lost before the capture
	costUnheard  = 6    // a packet of the peer was lost behind the recorder
	costHold     = 5    // an answer of ours waits while the engine hears more
	costEarly    = 20   // theirs acknowledged what ours does later
	costWrong    = 1000 // a difference in fields
	costStranger = 2000 // a packet that only one of the two sent

	// slack is how much dearer than the cheapest explanation of a packet one
	// may be and still be kept, for what comes later.
	slack = 2 * costLost

	maxNodes = 20000 // of one search
)

// widths are how many explanations of the packets so far are kept at once. A
// wider search follows when a narrow one ends with differences, in a
// conversation that is short enough for it: its time grows with the square of
// the length.
var widths = []int{1, 4}

const (
	maxWide = 1000 // packets
	// maxLag is how many packets of the peer may be recorded and not heard. That
	// bounds what the engine holds; hosts lag by far less.
	maxLag = 256
)

// path is a way through the recorded packets so far.
type path struct {
	cost   int
	inputs *list[input]
	lines  *list[Line]
	place  place
	player *player // in the state the inputs lead to, or nil: to be made again
}

// place is where a path has come to. Of several paths to one place the cheapest
// are kept.
type place struct {
	next  int // the first event of the peer's that may be undelivered
	taken int // packets that the engine sent
	fired int // timers
	lost  int // packets of the peer that were not delivered
}

// list is a list that many paths have in common, newest first.
type list[T any] struct {
	value  T
	before *list[T]
}

// slice is the list, oldest first.
func (l *list[T]) slice() (out []T) {
	for ; l != nil; l = l.before {
		out = append(out, l.value)
	}
	slices.Reverse(out)
	return out
}

// input adds an input.
func (w *path) input(in input) {
	w.inputs = &list[input]{in, w.inputs}
	switch in.do {
	case deliver:
		w.place.next = in.n + 1
	case take:
		w.place.taken++
	case fire:
		w.place.fired++
	case lose:
		w.place.next = in.n + 1
		w.place.lost++
	}
}

// line adds a line.
func (w *path) line(l Line) { w.lines = &list[Line]{l, w.lines} }

// node is a path inside a search, whose last line may be the packet looked for.
type node struct {
	path
	seq  int
	done bool
}

// align is one run over the events of a plan.
type align struct {
	plan  *plan
	width int
	limit int // what the path must cost less than, if not 0
	ready int // events of the peer's up to this index may be delivered
}

// run plays every event and returns the cheapest path, or nil when that reaches
// the limit.
func (r *align) run() (*path, error) {
	y, err := newPlayer(r.plan)
	if err != nil {
		return nil, err
	}
	paths := []*path{{player: y}}
	for i := range r.plan.conv.events {
		e := &r.plan.conv.events[i]
		r.ready = i
		if e.from != r.plan.ours {
			each(paths, Line{event: i, Verdict: Played})
			continue
		}
		if why := r.outside(i); why != "" {
			each(paths, Line{event: i, Verdict: Outside, Why: why})
			continue
		}
		if paths, err = r.answer(paths, i); err != nil {
			return nil, err
		}
		if r.limit > 0 && paths[0].cost >= r.limit {
			return nil, nil
		}
	}
	for _, w := range paths {
		if err := r.end(w); err != nil {
			return nil, err
		}
	}
	return slices.MinFunc(paths, func(a, b *path) int { return a.cost - b.cost }), nil
}

// each adds a line to every path.
func each(paths []*path, l Line) {
	for _, w := range paths {
		w.line(l)
	}
}

// clock returns the engine's time of an event, in ns from 1 s on.
func (r *align) clock(i int) int64 {
	ev := r.plan.conv.events
	if !r.plan.timed {
		return 1e9 + int64(i)*1000
	}
	return 1e9 + max(0, ev[i].time.Sub(ev[0].time).Nanoseconds())
}

// outside says why event i, of our side, cannot be compared, or nothing.
func (r *align) outside(i int) string {
	e := &r.plan.conv.events[i]
	switch pos := r.plan.out.pos(e.pkt.PSN); {
	case e.pkt.Info().Has(bth.Response):
		if r.plan.before(r.plan.in.pos(e.pkt.PSN)) {
			return "it answers a request from before the capture"
		}
	case r.plan.out.orphans[pos] && r.plan.out.index(pos) < 0:
		return "of a message that began before the capture"
	}
	return ""
}

// answer finds how the engine comes to say what event i, of our side, says, on
// each path; it returns the best paths on.
func (r *align) answer(paths []*path, i int) ([]*path, error) {
	e := &r.plan.conv.events[i]
	var out []*path
	for _, w := range paths {
		for r.plan.heardBy(i)-r.plan.heardBy(w.place.next) > maxLag {
			next := r.pending(w)
			if _, err := w.do(input{deliver, r.clock(next), next}); err != nil {
				return nil, err
			}
		}
		if e.pkt.Info().Has(bth.Request) {
			if err := r.post(w, i); err != nil {
				return nil, err
			}
		}
		on, err := r.search(w, i)
		if err != nil {
			return nil, err
		}
		out = append(out, on...)
	}
	slices.SortStableFunc(out, func(a, b *path) int { return a.cost - b.cost })
	var kept []*path
	seen := map[place]int{}
	for _, w := range out {
		if at := w.place; len(kept) < r.width && w.cost <= out[0].cost+slack && seen[at] < 2 {
			seen[at]++
			kept = append(kept, w)
		}
	}
	for _, w := range kept {
		if w.player == nil {
			var err error
			if w.player, err = r.rebuild(w.inputs); err != nil {
				return nil, err
			}
		}
	}
	return kept, nil
}

// post posts every message up to that of event i.
func (r *align) post(w *path, i int) error {
	pos := r.plan.out.pos(r.plan.conv.events[i].pkt.PSN)
	n := w.player.put
	for n < len(r.plan.out.messages) && r.plan.out.messages[n].at <= pos {
		n++
	}
	if n == w.player.put {
		return nil
	}
	_, err := w.do(input{post, r.clock(i), n})
	return err
}

// do gives the engine of a path an input outside a search.
func (w *path) do(in input) (*bth.Packet, error) {
	w.input(in)
	return w.player.run(in)
}

// rebuild makes an engine that has had the inputs.
func (r *align) rebuild(inputs *list[input]) (*player, error) {
	y, err := newPlayer(r.plan)
	if err != nil {
		return nil, err
	}
	for _, in := range inputs.slice() {
		if _, err := y.run(in); err != nil {
			return nil, err
		}
	}
	return y, nil
}

// pending returns the first event of the peer's that may be delivered on a
// path, or -1.
func (r *align) pending(w *path) int {
	for i := w.place.next; i < r.ready; i++ {
		if r.plan.conv.events[i].from != r.plan.ours {
			return i
		}
	}
	return -1
}

// search finds the cheapest ways on from a path to event i: Dijkstra's algorithm
// over what may happen before it. It uses up the path's engine.
func (r *align) search(from *path, i int) (found []*path, err error) {
	var open []*node
	seq := 0
	push := func(n *node) {
		seq++
		n.seq = seq
		at, _ := slices.BinarySearchFunc(open, n, func(a, b *node) int { return cmp.Or(a.cost-b.cost, a.seq-b.seq) })
		open = slices.Insert(open, at, n)
	}
	push(&node{path: *from})
	seen := map[place]int{}
	for range maxNodes {
		if len(open) == 0 {
			break
		}
		n := open[0]
		open = open[1:]
		if len(found) > 0 && n.cost > found[0].cost+slack {
			break
		}
		if n.done {
			found = append(found, &n.path)
			if len(found) == r.width {
				break
			}
			continue
		}
		if at := n.place; seen[at] < r.width {
			seen[at]++
		} else {
			continue // as dear as what was there before, or dearer
		}
		if n.player == nil {
			if n.player, err = r.rebuild(n.inputs); err != nil {
				return nil, err
			}
		}
		if err = r.expand(n, i, n.inputs == from.inputs, push); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("frame %d: no way to it was found in %d steps: the engine and the capture are too far apart", r.plan.conv.events[i].frame, maxNodes)
	}
	return found, nil
}

// expand pushes what may come after a node. It uses up the node's engine.
func (r *align) expand(n *node, i int, first bool, push func(*node)) error {
	e := &r.plan.conv.events[i]
	y := n.player
	c := r.context(y, e)
	// Without a packet of the engine, the recorded one is an ACK that ours
	// might as well have sent, or a stranger.
	switch cost := r.spare(y, &e.pkt, c); {
	case cost > 0:
		push(n.to(true, cost, Line{event: i, Verdict: Same, Allowed: []Allowed{Coalescing}}))
	case first:
		push(n.to(true, costStranger, Line{event: i, Verdict: Different, Diffs: []string{"ours sent nothing like it"}}))
	}
	next, due := r.pending(&n.path), y.due(r.clock(i))
	now := i
	if next >= 0 {
		now = next // the engine's time must not pass what it may yet hear
	}
	in := input{take, r.clock(now), int(kindOf(&e.pkt))}
	p, err := y.run(in)
	if err != nil {
		return err
	}
	if p != nil {
		allowed, diffs := compare(p, &e.pkt, c)
		line := Line{event: i, ours: p, Verdict: Same, Allowed: allowed}
		if len(diffs) == 0 {
			push(n.to(true, 0, line, in).by(y))
		} else {
			skip, cost := r.excuse(&n.path, i, p)
			push(n.to(false, cost, skip, in).by(y))
			if p.PSN == e.pkt.PSN {
				line.Verdict, line.Diffs = Different, diffs
				push(n.to(true, costWrong, line, in))
			}
		}
		if len(diffs) == 0 && r.width == 1 {
			return nil
		}
		y = nil
	}
	if due {
		push(n.to(false, costTimer, Line{}, input{fire, 0, 0}))
	}
	if next >= 0 && r.unheard(i, next) {
		l := Line{event: next, Verdict: Unheard, Why: fmt.Sprintf("lost behind the recorder: frame %d says so", e.frame)}
		push(n.to(false, costUnheard, l, input{lose, 0, next}))
	}
	if next >= 0 {
		cost := 0
		if p != nil && kindOf(p) == responses {
			cost = costHold
		}
		in := input{deliver, r.clock(next), next}
		to := n.to(false, cost, Line{}, in)
		if y != nil {
			if _, err := y.run(in); err != nil {
				return err
			}
			to.player = y
		}
		push(to)
	}
	return nil
}

// unheard reports whether event i says that our side has not heard event j, of
// the peer: a sequence NAK that asks for it, or a request sent again that it had
// answered well.
func (r *align) unheard(i, j int) bool {
	x, p := &r.plan.conv.events[i].pkt, &r.plan.conv.events[j].pkt
	if p.Info().Has(bth.Request) {
		return x.Info().Op == bth.OpAck && x.Syndrome == bth.NAKSequence && x.PSN == p.PSN
	}
	again := r.plan.index[r.plan.ours][x.PSN][0] < i
	if m := r.plan.out.index(r.plan.out.pos(x.PSN)); m >= 0 && r.plan.out.messages[m].op() == bth.OpReadReq {
		again = again || r.plan.out.pos(x.PSN) > r.plan.out.messages[m].at // from its middle
	}
	return x.Info().Has(bth.Request) && again && p.Syndrome.Kind() == bth.KindAck && !p.PSN.Before(x.PSN)
}

// to is a node after this one, its engine still to be made.
func (n *node) to(done bool, cost int, l Line, in ...input) *node {
	t := &node{path: path{cost: n.cost + cost, inputs: n.inputs, lines: n.lines, place: n.place}, done: done}
	for _, in := range in {
		t.input(in)
	}
	if l.Verdict != "" {
		t.line(l)
	}
	return t
}

// by gives the node its engine.
func (n *node) by(y *player) *node {
	n.player = y
	return n
}

// spare returns what it costs to take a recorded ACK for one that the engine
// might as well have sent, or 0.
func (r *align) spare(y *player, p *bth.Packet, c context) int {
	switch {
	case !spare(p, c):
		return 0
	case r.plan.in.pos(p.PSN) < y.acked:
		return costAck
	}
	return costEarly
}

// context is what a comparison with event e must know.
func (r *align) context(y *player, e *event) context {
	c := context{msn: r.plan.msn, peer: bth.QPN(r.plan.attr.DestQPN), expected: r.plan.in.base.Add(y.heard), completed: r.plan.in.completed(y.heard)}
	if e.pkt.Info().Op == bth.OpReadResp {
		pos := r.plan.in.pos(e.pkt.PSN)
		m := r.plan.in.index(pos)
		c.restarted = m >= 0 && pos != r.plan.in.messages[m].at && r.asked(e.pkt.PSN)
	}
	return c
}

// asked reports whether the peer has sent a READ request with this PSN.
func (r *align) asked(psn bth.PSN) bool {
	for _, i := range r.plan.index[r.plan.ours.Other()][psn] {
		if i < r.ready && r.plan.conv.events[i].pkt.Info().Op == bth.OpReadReq {
			return true
		}
	}
	return false
}

// excuse says why the engine's packet p, which comes before event i, was not
// recorded, and what that costs. Without a proof it is a difference.
func (r *align) excuse(w *path, i int, p *bth.Packet) (Line, int) {
	ev := r.plan.conv.events
	x := &ev[i].pkt
	l := Line{event: -1, ours: p, Verdict: Unrecorded}
	if p.Info().Has(bth.Request) {
		if x.PSN.After(p.PSN) {
			l.Why = "lost before the capture: PSNs after it were sent"
			return l, costLost
		}
		return r.stranger(l)
	}
	if p.Info().Op == bth.OpAck {
		good := p.Syndrome.Kind() == bth.KindAck
		for j := i; j < len(ev); j++ {
			e := &ev[j]
			switch {
			case good && e.from == r.plan.ours && e.pkt.Info().Has(bth.Response) && covers(&e.pkt, p.PSN):
				l.Verdict, l.Allowed = Same, []Allowed{Coalescing}
				return l, costAck
			case !good && e.from != r.plan.ours && e.pkt.Info().Has(bth.Request) && e.pkt.PSN == p.PSN && r.sentBefore(j):
				l.Why = fmt.Sprintf("lost before the capture: the peer sent again what it asks for, in frame %d", e.frame)
				return l, costLost
			}
		}
		return r.stranger(l)
	}
	m := r.plan.in.index(r.plan.in.pos(p.PSN))
	if same := r.plan.in.index(r.plan.in.pos(x.PSN)); x.Info().Op == bth.OpReadResp && same == m && x.PSN.After(p.PSN) {
		l.Why = "lost before the capture: later responses to the READ were sent"
		return l, costLost
	}
	if j := r.again(p.PSN, i); j >= 0 {
		l.Why = fmt.Sprintf("lost before the capture: asked for again in frame %d", ev[j].frame)
		return l, costLost
	}
	if r.unanswered(w, p.PSN) {
		l.Why = "lost before the capture: asked for more often than answers were recorded"
		return l, costLost
	}
	return r.stranger(l)
}

func (r *align) stranger(l Line) (Line, int) {
	l.Verdict, l.Diffs = Different, []string{"theirs sent nothing like it"}
	return l, costStranger
}

// covers reports whether a response acknowledges psn.
func covers(p *bth.Packet, psn bth.PSN) bool {
	if p.Info().Op == bth.OpAck && p.Syndrome.Kind() != bth.KindAck {
		return p.PSN.After(psn)
	}
	return !p.PSN.Before(psn)
}

// sentBefore reports whether the peer sent event j's request before.
func (r *align) sentBefore(j int) bool {
	for i := range j {
		e := &r.plan.conv.events[i]
		if e.from != r.plan.ours && e.pkt.Info().Has(bth.Request) && !e.pkt.PSN.Before(r.plan.conv.events[j].pkt.PSN) {
			return true
		}
	}
	return false
}

// again returns the first event from i on that asks for the answer with a PSN
// once more, or -1: the atomic, or the READ from there on or from before.
func (r *align) again(psn bth.PSN, i int) int {
	ev := r.plan.conv.events
	m := r.plan.in.index(r.plan.in.pos(psn))
	for j := i; j < len(ev); j++ {
		p := &ev[j].pkt
		if ev[j].from == r.plan.ours || !p.Info().Has(bth.Request) || m < 0 || r.plan.in.index(r.plan.in.pos(p.PSN)) != m || p.PSN.After(psn) {
			continue
		}
		return j
	}
	return -1
}

// unanswered reports whether the peer has asked for the answer with a PSN more
// often than answers were recorded, and than are known to be lost: asking again
// is what a peer does that has none.
func (r *align) unanswered(w *path, psn bth.PSN) bool {
	m, n, asked := r.plan.in.index(r.plan.in.pos(psn)), 0, 0
	for i := range r.plan.conv.events {
		e := &r.plan.conv.events[i]
		switch request := e.pkt.Info().Has(bth.Request); {
		case e.from == r.plan.ours && !request && e.pkt.PSN == psn && e.pkt.Info().Op != bth.OpAck:
			n--
		case e.from != r.plan.ours && request && i < r.ready && !e.pkt.PSN.After(psn) && r.plan.in.index(r.plan.in.pos(e.pkt.PSN)) == m:
			n++
			asked++
		}
	}
	for at := w.lines; at != nil; at = at.before {
		if l := &at.value; l.Verdict == Unrecorded && l.ours.PSN == psn && l.ours.Info().Has(bth.Response) {
			n--
		}
	}
	return m >= 0 && asked > 1 && n > 0
}

// end delivers what is left and lists what the engine still has to say.
func (r *align) end(w *path) error {
	ev := r.plan.conv.events
	r.ready = len(ev)
	for i := r.pending(w); i >= 0; i = r.pending(w) {
		if _, err := w.do(input{deliver, r.clock(i), i}); err != nil {
			return err
		}
	}
	theirs := 0
	for i := range ev {
		if e := &ev[i]; e.from == r.plan.ours && e.pkt.Info().Has(bth.Response) {
			theirs = max(theirs, acknowledged(&r.plan.in, &e.pkt))
		}
	}
	for k := range kind(2) {
		for {
			p, err := w.do(input{take, w.player.now, int(k)})
			if err != nil {
				return err
			}
			if p == nil {
				break
			}
			l, cost := Line{event: -1, ours: p, Verdict: Outside, Why: "the capture ends before it"}, 0
			switch late := k == responses && r.plan.in.pos(p.PSN) < theirs; {
			case late && p.Info().Op == bth.OpAck && p.Syndrome.Kind() == bth.KindAck:
				l.Verdict, l.Allowed, l.Why = Same, []Allowed{Coalescing}, ""
			case late && p.Info().Op != bth.OpAck && !r.unanswered(w, p.PSN):
				l, cost = r.stranger(Line{event: -1, ours: p})
			}
			w.cost += cost
			w.line(l)
		}
	}
	if len(r.plan.in.messages) > 0 && w.player.acked < theirs {
		w.cost += costStranger
		w.line(Line{
			event: -1, Verdict: Different, Diffs: []string{fmt.Sprintf("ours never acknowledges PSN %v, theirs does", r.plan.in.base.Add(theirs-1))},
		})
	}
	return nil
}

// acknowledged returns the position after the last that a response
// acknowledges.
func acknowledged(s *stream, p *bth.Packet) int {
	if p.Syndrome.Kind() == bth.KindAck {
		return s.pos(p.PSN) + 1
	}
	return s.pos(p.PSN)
}
