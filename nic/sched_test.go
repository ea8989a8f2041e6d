package nic

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sender is a queue pair that is always ready with bursts of one size.
type sender struct {
	q    *qp
	size int
	sent int
}

func newSenders(c *Client, sizes ...int) (out []*sender) {
	for _, n := range sizes {
		out = append(out, &sender{q: &qp{client: c, s: &shard{}}, size: n})
	}
	return out
}

func oneClient() *Client { return &Client{lanes: []*lane{new(lane)}} }

// turn gives a burst to whose turn it is and returns that.
func turn(d *sched, all []*sender, more func(*sender) bool) *sender {
	q := d.pop()
	for _, x := range all {
		if x.q == q {
			x.sent += x.size
			d.spend(q, 1, x.size)
			if more(x) {
				d.again(q)
			} else {
				d.rest(q)
			}
			return x
		}
	}
	panic("not one of them")
}

func always(*sender) bool { return true }

// What clients send is equal, however long their bursts are and however many queue
// pairs they have; and so is what the queue pairs of one client send.
func TestSchedShares(t *testing.T) {
	a, b := oneClient(), oneClient()
	one := newSenders(a, 60000)
	many := newSenders(b, 60000, 60000, 30000, 8000, 60000, 60000, 60000, 60000)
	all := append(one, many...)
	var d sched
	for _, x := range all {
		d.push(x.q)
	}
	cost := map[*sender]int{}
	for range 20000 {
		x := turn(&d, all, always)
		cost[x] += burstCost + segCost + x.size
	}
	total := 0
	for _, x := range many {
		total += cost[x]
		assert.InEpsilon(t, float64(cost[many[0]]), cost[x], 0.02, "queue pair with bursts of %d", x.size)
	}
	assert.InEpsilon(t, float64(cost[one[0]]), total, 0.02)
	require.Equal(t, len(all), d.len())
}

// Who begins to send has the next turn, however much others have ready.
func TestSchedNewcomer(t *testing.T) {
	var bulk []*sender
	var d sched
	for range 3 {
		bulk = append(bulk, newSenders(oneClient(), 60000, 60000, 60000, 60000)...)
	}
	small := newSenders(oneClient(), 64)[0]
	all := append(bulk, small)
	for _, x := range bulk {
		d.push(x.q)
	}
	for round := range 1000 {
		for range 4 + round%7 {
			turn(&d, all, always)
		}
		d.push(small.q)
		require.Same(t, small, turn(&d, all, func(x *sender) bool { return x != small }))
	}
}

// Nobody gains by beginning over and over: a client whose only queue pair is ready
// again as soon as it has sent all it had gets its share and no more.
func TestSchedBeginsAgain(t *testing.T) {
	var d sched
	var all []*sender
	for range 3 {
		all = append(all, newSenders(oneClient(), 60000)...)
	}
	restless := newSenders(oneClient(), 50000)[0]
	all = append(all, restless)
	for _, x := range all {
		d.push(x.q)
	}
	cost := map[*sender]int{}
	for range 20000 {
		x := turn(&d, all, func(x *sender) bool { return x != restless })
		cost[x] += burstCost + segCost + x.size
		if x == restless {
			d.push(x.q)
		}
	}
	assert.LessOrEqual(t, cost[restless], cost[all[0]])
	assert.InEpsilon(t, cost[all[0]], cost[all[1]], 0.02)
}

// Nobody is lost, and nobody gets a turn twice, whatever they do.
func TestSchedLosesNobody(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var all []*sender
	for range 5 {
		all = append(all, newSenders(oneClient(), 64, 5000, 70000)...)
	}
	all = append(all, newSenders(nil, 100, 64000)...)
	in := map[*sender]bool{}
	var d sched
	for range 100000 {
		if x := all[r.IntN(len(all))]; !in[x] && r.IntN(2) == 0 {
			d.push(x.q)
			in[x] = true
		}
		if d.len() > 0 && r.IntN(3) > 0 {
			stays := r.IntN(3) > 0
			x := turn(&d, all, func(*sender) bool { return stays })
			require.True(t, in[x])
			in[x] = stays
		}
		n := 0
		for _, is := range in {
			if is {
				n++
			}
		}
		require.Equal(t, n, d.len())
	}
	for d.len() > 0 {
		in[turn(&d, all, func(*sender) bool { return false })] = false
	}
	for x, is := range in {
		require.False(t, is, x)
	}
}
