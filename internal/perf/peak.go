package perf

import "time"

// peak finds the highest rate of a run: the smallest time for each message from
// the posting of one to the completion of the same or a later one.
type peak struct {
	posted    []time.Duration // of each message, in the order of posting
	completed []time.Duration // of each message that had a completion, by how many were complete then
}

func newPeak(n uint64) *peak {
	return &peak{posted: make([]time.Duration, n), completed: make([]time.Duration, n)}
}

// gap returns that time in nanoseconds, of the first n messages: the least
//
//	(completed[j] - posted[i]) / (j - i + 1)  over i <= j
//
// perftest tries every pair. This is Dinkelbach's method (Management Science
// 13, 1967): with a guess s, the pair for which completed[j] - posted[i] -
// s(j-i+1) is least gives a better guess, and no pair does at the end. It takes
// a few passes.
func (p *peak) gap(n uint64) float64 {
	best := float64(p.completed[n-1]-p.posted[0]) / float64(n)
	for {
		next, found := p.better(best, n)
		if !found {
			return best
		}
		best = next
	}
}

// better returns the ratio of the pair that is best for a guess, if it is below
// the guess.
func (p *peak) better(s float64, n uint64) (ratio float64, found bool) {
	least, from := 0.0, 0
	start := float64(p.posted[0]) // posted[i] - s*i is greatest for from
	for j := range int(n) {
		if v := float64(p.posted[j]) - s*float64(j); v > start {
			start, from = v, j
		}
		if p.completed[j] == 0 {
			continue // its completion was another's
		}
		if d := float64(p.completed[j]) - s*float64(j+1) - start; d < least {
			least = d
			ratio = float64(p.completed[j]-p.posted[from]) / float64(j-from+1)
		}
	}
	return ratio, least < 0 && ratio < s
}
