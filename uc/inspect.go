package uc

import (
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// Inspect says what the queue pair is about.
func (q *QP) Inspect(now int64) transport.Inspection {
	i := q.Unreliable.Inspect(now)
	if q.State() >= verbs.StateRTR {
		i.ExpectedPSN = q.resp.epsn.Uint32()
	}
	return i
}
