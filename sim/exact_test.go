package sim

import (
	"fmt"
	"strings"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
)

// key names one passage of one packet: not by queue pair number and PSN, as
// rules do, but by the request that it carries, so that it stays what it is when
// requests before it are left out.
type key struct {
	plan, item, off int
	answer          bool
	dir             trace.Dir // sent, or received
	seen            int       // times it has passed there, from 1
}

// hit is what happens to one packet. Release is counted from when it passes.
type hit struct {
	key
	do fault.Decision
}

// carrier is whose requests a queue pair receives, and whose answers.
type carrier struct{ requests, answers *plan }

// exact is the Judge of a node that knows packets by their keys.
type exact struct {
	w     *world
	rules *fault.Injector // decide, and are written down; nil for those of the scenario
	seen  map[key]int
}

func (x *exact) Process(now int64, dir trace.Dir, pkt []byte, n int) fault.Decision {
	k := x.w.identify(bth.BTH(pkt), pkt)
	k.dir = dir
	x.seen[k]++
	k.seen = x.seen[k]
	if x.w.passes != nil {
		x.w.passes(k)
	}
	var d fault.Decision
	if x.rules != nil {
		d = x.rules.Process(now, dir, pkt, n)
		if d.Effects != 0 {
			e := d
			e.Release, e.Rule = d.Release-now, 0
			x.w.hits = append(x.w.hits, hit{k, e})
		}
	} else {
		d = x.w.c.faults[k]
		d.Release += now
	}
	if d.Effects != 0 {
		x.w.logf("%10v %v %v PSN %v, %v: %v", x.w.s.Now(), dir, bth.BTH(pkt).Opcode(), bth.BTH(pkt).PSN(), k, d.Effects)
	}
	return d
}

// identify returns the key of a packet but for direction and times.
func (w *world) identify(h bth.BTH, pkt []byte) key {
	info := h.Opcode().Info()
	c := w.carry[h.DestQP()]
	p := c.requests
	switch {
	case info.Ext&bth.ExtDETH != 0:
		const srcQP = bth.BTHLen + 5
		p = w.carry[bth.QPN(pkt[srcQP])<<16|bth.QPN(pkt[srcQP+1])<<8|bth.QPN(pkt[srcQP+2])].answers
	case info.Has(bth.Response):
		p = c.answers
	}
	if p == nil {
		return key{plan: -1, off: int(h.PSN().Uint32()), answer: info.Has(bth.Response)}
	}
	item, off := p.place(h.PSN())
	return key{plan: p.id, item: item, off: off, answer: info.Has(bth.Response)}
}

// carries says that requests of a plan go to a queue pair, and their answers to
// the other.
func (w *world) carries(p *plan, requests, answers bth.QPN) {
	c := w.carry[requests]
	c.requests = p
	w.carry[requests] = c
	c = w.carry[answers]
	c.answers = p
	w.carry[answers] = c
}

var ways = [...]string{trace.Tx: "tx", trace.Rx: "rx"}

// String is a key as the text of a scenario has it: tx0.3+1a#2 is the second
// sending of the answer to packet 1 of request 3 of plan 0.
func (k key) String() string {
	a := ""
	if k.answer {
		a = "a"
	}
	return fmt.Sprintf("%s%d.%d+%d%s#%d", ways[k.dir], k.plan, k.item, k.off, a, k.seen)
}

func parseKey(s string) (k key, err error) {
	k.dir = trace.Tx
	if strings.HasPrefix(s, ways[trace.Rx]) {
		k.dir = trace.Rx
	}
	s = strings.TrimPrefix(s, ways[k.dir])
	k.answer = strings.Contains(s, "a#")
	_, err = fmt.Sscanf(strings.Replace(s, "a#", "#", 1), "%d.%d+%d#%d", &k.plan, &k.item, &k.off, &k.seen)
	return k, err
}

// String is a hit as the text of a scenario has it.
func (h hit) String() string {
	var w []string
	if h.do.Lost {
		w = append(w, "drop")
	}
	if h.do.Copies > 0 {
		w = append(w, fmt.Sprintf("dup%d", h.do.Copies))
	}
	if h.do.Effects.Has(fault.Corrupt) {
		w = append(w, fmt.Sprintf("flip%d", h.do.Bit))
	}
	if h.do.Held() {
		w = append(w, fmt.Sprintf("hold%d/%d", h.do.Release, h.do.Behind))
	}
	return h.key.String() + "=" + strings.Join(w, ",")
}

func parseHit(s string) (h hit, err error) {
	at, what, _ := strings.Cut(s, "=")
	if h.key, err = parseKey(at); err != nil {
		return h, fmt.Errorf("%q: %w", s, err)
	}
	for _, w := range strings.Split(what, ",") {
		switch {
		case w == "drop":
			h.do.Effects, h.do.Lost = h.do.Effects|1<<fault.Drop, true
		case strings.HasPrefix(w, "dup"):
			h.do.Effects |= 1 << fault.Dup
			_, err = fmt.Sscanf(w, "dup%d", &h.do.Copies)
		case strings.HasPrefix(w, "flip"):
			h.do.Effects |= 1 << fault.Corrupt
			_, err = fmt.Sscanf(w, "flip%d", &h.do.Bit)
		default:
			h.do.Effects |= 1 << fault.Delay
			_, err = fmt.Sscanf(w, "hold%d/%d", &h.do.Release, &h.do.Behind)
		}
		if err != nil {
			return h, fmt.Errorf("%q: %w", s, err)
		}
	}
	return h, nil
}
