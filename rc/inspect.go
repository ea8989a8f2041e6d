package rc

import (
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// Inspect says what the queue pair is about.
func (q *QP) Inspect(now int64) transport.Inspection {
	r := &q.req
	i := transport.Inspection{
		Requests: int(r.tail - r.head), Reads: len(r.reads), Deadline: q.Deadline(),
		Receives: transport.Receives(&q.cfg.Config),
	}
	if q.attr.State == verbs.StateErr {
		i.Ended = q.ended
	}
	if q.attr.State >= verbs.StateRTR {
		i.ExpectedPSN, i.MSN = q.resp.epsn.Uint32(), q.resp.msn
	}
	if q.control == nil || q.attr.State < verbs.StateRTS {
		return i
	}
	i.NextPSN, i.UnackedPSN, i.HighestPSN = r.next.Uint32(), r.una.Uint32(), r.high.Uint32()
	if i.Window = q.window(now); q.attr.State != verbs.StateErr {
		i.InFlight = max(0, r.next.Diff(r.una))
	}
	i.Posted = !r.broken && q.cfg.SQ.Pending()
	i.RetriesLeft, i.RNRRetriesLeft, i.RNRWait = r.retries, r.rnrLeft, r.rnrWait
	i.RTT, i.Stall = r.rtt.most, r.stall.why
	i.CreditsBind = q.attr.FlowControl && !r.credits.unlimited
	if i.CreditsBind {
		i.Credits = max(0, sequence(r.credits.limit, r.credits.lsn))
	}
	return i
}

// Capacity returns what the queue pair has room for.
func (q *QP) Capacity() verbs.QPCap { return q.cfg.Cap }
