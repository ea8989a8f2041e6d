package main

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// pool holds the mutants of one package in the order they are drawn in: the
// operators take turns, each with its sites shuffled.
type pool struct {
	pkg   string
	lines int // of code
	want  int // mutants to try

	mu    sync.Mutex
	order []mutant
}

func newPool(pkg string, lines int, all []mutant, seed uint64) *pool {
	p := &pool{pkg: pkg, lines: lines}
	r := rand.New(rand.NewPCG(seed, 0))
	var by [operators][]mutant
	for _, m := range all {
		by[m.Op] = append(by[m.Op], m)
	}
	for _, b := range by {
		r.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
	}
	for i := range len(all) {
		for _, b := range by {
			if i < len(b) {
				p.order = append(p.order, b[i])
			}
		}
	}
	return p
}

// next draws a mutant.
func (p *pool) next() (m mutant, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.order) == 0 {
		return m, false
	}
	m, p.order = p.order[0], p.order[1:]
	return m, true
}

// share divides n mutants among the pools in proportion to their code; what
// rounding leaves goes to those that it cost most.
func share(pools []*pool, n int) {
	lines, given := 0, 0
	for _, p := range pools {
		lines += p.lines
	}
	for _, p := range pools {
		p.want = n * p.lines / lines
		given += p.want
	}
	byRest := slices.Clone(pools)
	slices.SortStableFunc(byRest, func(a, b *pool) int { return n*b.lines%lines - n*a.lines%lines })
	for _, p := range byRest[:n-given] {
		p.want++
	}
}
