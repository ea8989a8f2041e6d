package rc

import "github.com/gorxe/gorxe/transport"

// stallClock measures for how long requests that there are wait for something
// other than their turn.
type stallClock struct {
	why   transport.Stall
	since int64
}

// stalled says what keeps requests back from now on.
func (q *QP) stalled(now int64, why transport.Stall) {
	q.CountStall(now)
	q.req.stall = stallClock{why, now}
}

// CountStall counts how long the present wait has lasted, so that it shows while
// it goes on.
func (q *QP) CountStall(now int64) {
	c := &q.req.stall
	d := uint64(max(0, now-c.since))
	switch c.why {
	case transport.StallWindow:
		q.stats.WindowWait += d
	case transport.StallCredits:
		q.stats.CreditWait += d
	case transport.StallRNR:
		q.stats.RNRWait += d
	}
	c.since = max(c.since, now)
}
