package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorxe/gorxe/link/fault"
)

// scenario is one run: all that the seed draws on the network of a test, or a
// part of the requests, and of the faults that happened.
type scenario struct {
	name  string
	seed  uint64
	size  int    // of the longest message
	picks []pick // to post
	hits  []hit  // in place of the network's rules
	exact bool   // without it no picks are all there are, and hits do not count

	faults map[key]fault.Decision // hits
}

// String is the scenario as -replay takes it.
func (c *scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %d", c.name, c.seed, c.size)
	for _, p := range c.picks {
		fmt.Fprintf(&b, " %d.%d:%d", p.plan, p.item, p.n)
	}
	if c.exact {
		b.WriteString(" faults")
		for _, h := range c.hits {
			b.WriteString(" " + h.String())
		}
	}
	return b.String()
}

func parseScenario(s string) (c scenario, err error) {
	f := strings.Fields(s)
	if len(f) < 3 {
		return c, fmt.Errorf("scenario %q: want the name of a test, a seed and a size", s)
	}
	c.name = f[0]
	if c.seed, err = strconv.ParseUint(f[1], 0, 64); err != nil {
		return c, fmt.Errorf("scenario %q: seed: %w", s, err)
	}
	if c.size, err = strconv.Atoi(f[2]); err != nil {
		return c, fmt.Errorf("scenario %q: size: %w", s, err)
	}
	for _, w := range f[3:] {
		switch {
		case w == "faults":
			c.exact = true
		case c.exact:
			h, err := parseHit(w)
			if err != nil {
				return c, fmt.Errorf("scenario: fault %w", err)
			}
			c.hits = append(c.hits, h)
		default:
			var p pick
			if _, err := fmt.Sscanf(w, "%d.%d:%d", &p.plan, &p.item, &p.n); err != nil {
				return c, fmt.Errorf("scenario: request %q: %w", w, err)
			}
			c.picks = append(c.picks, p)
		}
	}
	return c, nil
}

// shrunk returns a scenario that violates the same as c and has little in it:
// few faults, few requests, and those short. It takes about as long as it may.
func shrunk(cfg Config, c scenario, start func(*world), limit time.Duration) (_ scenario, ok bool) {
	end := time.Now().Add(limit)
	w, v := play(cfg, c, start, &trial{}, func(w *world) { w.record = true })
	if v == nil {
		return c, false
	}
	fails := func(c scenario) bool {
		if time.Now().After(end) {
			return false
		}
		_, x := play(cfg, c, start, &trial{}, nil)
		return x != nil && x.at == v.at
	}
	all := c
	if !c.exact {
		all.exact, all.hits = true, w.hits
	}
	all.picks = nil
	for _, p := range w.plans {
		all.picks = append(all.picks, p.posted...)
		all.picks = append(all.picks, p.picks...)
	}
	if !fails(all) {
		return c, false // the faults that happened are not what does it
	}
	c = all
	for before := ""; before != c.String() && time.Now().Before(end); {
		before = c.String()
		c.picks = Shrink(c.picks, func(picks []pick) bool { d := c; d.picks = picks; return fails(d) })
		if d := c.pruned(); fails(d) {
			c = d
		}
		c.hits = Shrink(c.hits, func(hits []hit) bool { d := c; d.hits = hits; return fails(d) })
		for i := range c.picks {
			for _, n := range []int{0, 8, 1, 100, 1000, c.picks[i].n / 2} {
				d := c
				d.picks = append([]pick{}, c.picks...)
				d.picks[i].n = n
				if n < c.picks[i].n && fails(d) {
					c = d
					break
				}
			}
		}
	}
	return c, true
}

// pruned is the scenario without the faults of packets of requests that it does
// not have.
func (c scenario) pruned() scenario {
	has := map[[2]int]bool{}
	for _, p := range c.picks {
		has[[2]int{p.plan, p.item}] = true
	}
	c.hits = slices.Clone(c.hits)
	c.hits = slices.DeleteFunc(c.hits, func(h hit) bool { return !has[[2]int{h.plan, h.item}] })
	return c
}
