package sim

import (
	"math/rand/v2"
	"sort"

	"github.com/gorxe/gorxe/bth"
)

// pick is one request that a program is to post.
type pick struct {
	plan, item int
	n          int // octets at most, where the request can have fewer
}

// plan is what one program posts, in order: request by request, each drawn from
// random numbers of its own, so that some can be left out and the others stay
// what they are. It knows which packets carry which request.
type plan struct {
	w      *world
	id     int
	first  bth.PSN
	picks  []pick // to post
	posted []pick
	starts []int // of posted: the first packet, from first on
	pkts   int
}

// plan returns what a program posts from a PSN on: n requests, or those of them
// that the scenario keeps.
func (w *world) plan(first bth.PSN, n int) *plan {
	p := &plan{w: w, id: len(w.plans), first: first}
	w.plans = append(w.plans, p)
	if w.c.picks == nil && !w.c.exact {
		for i := range n {
			p.picks = append(p.picks, pick{p.id, i, maxLen})
		}
	}
	for _, x := range w.c.picks {
		if x.plan == p.id && x.item < n {
			p.picks = append(p.picks, x)
		}
	}
	return p
}

func (p *plan) left() int { return len(p.picks) }

// next takes the next request, and the numbers it is drawn from.
func (p *plan) next() (pick, *rand.Rand) {
	x := p.picks[0]
	p.picks = p.picks[1:]
	return x, rand.New(rand.NewPCG(p.w.s.cfg.Seed*0x9e3779b97f4a7c15, uint64(p.id)<<40|uint64(x.item)<<8|0xa5))
}

// post says that a request has become one of n octets and so many packets.
func (p *plan) post(x pick, n, pkts int, what any) {
	x.n = n
	p.posted = append(p.posted, x)
	p.starts = append(p.starts, p.pkts)
	p.pkts += pkts
	p.w.logf("%10v posts %d.%d: %v of %d octets, PSN %v", p.w.s.Now(), x.plan, x.item, what, n, p.first.Add(p.starts[len(p.starts)-1]))
}

// place returns the request that a PSN belongs to, and which of its packets it
// is. One that is of none is so many behind the last.
func (p *plan) place(psn bth.PSN) (item, off int) {
	at := psn.Diff(p.first)
	i := sort.SearchInts(p.starts, at+1) - 1
	if i < 0 {
		return -1, at
	}
	return p.posted[i].item, at - p.starts[i]
}

// fork returns random numbers for something that draws while packets move.
func (w *world) fork() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())) }
