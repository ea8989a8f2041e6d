package xdp

import (
	"slices"
	"sync/atomic"

	"github.com/gorxe/gorxe/wire"
)

// runs finds the segments of runs. In generic mode a run that a sender on this
// machine (over veth or lo) left to be cut up by a wire that there is not comes
// in one piece, and the program is not told of what length its segments are.
// The ICRC of the first one tells; the lengths seen last are tried first.
type runs struct {
	hints  []int
	credit int           // for searches
	found  atomic.Uint64 // datagrams that were runs
}

const (
	maxHints   = 4
	longestRun = 4096 + 128 // octets of a packet, BTH to ICRC
	// A search that finds nothing costs as much as receiving a thousand packets,
	// so datagrams earn searches: damaged ones cannot make many.
	searchCost = 64
	maxCredit  = 16 * searchCost
)

func newRuns() *runs { return &runs{hints: make([]int, 0, maxHints), credit: maxCredit} }

// split sets SegLen. A datagram that it finds nothing for stays as it is, and
// its ICRC is wrong.
func (r *runs) split(d *wire.Datagram) {
	r.credit = min(r.credit+1, maxCredit)
	most := 0
	if r.credit >= searchCost {
		most = longestRun
	}
	n, ok := wire.FindRun(d, r.hints, most)
	if !ok {
		if most != 0 {
			r.credit -= searchCost
		}
		return
	}
	if n == 0 {
		return
	}
	d.SegLen = n
	r.found.Add(1)
	if slices.Contains(r.hints, n) {
		return
	}
	if len(r.hints) == maxHints {
		r.hints = r.hints[:copy(r.hints, r.hints[1:])]
	}
	r.hints = append(r.hints, n)
}
