package rc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// endless posts another request for each that completes.
type endless struct {
	t    *testing.T
	n    int
	post func()
}

func (e *endless) Push(*verbs.WC, bool) {
	if e.n++; e.n > 10000 {
		e.t.Fatal("a program that goes on posting keeps the device")
	}
	e.post()
}

// Neither a flush nor a run of local operations goes on for as long as the program
// posts.
func TestEndlessPosting(t *testing.T) {
	for _, local := range []bool{false, true} {
		c, err := verbs.QPCap{}.WithDefaults()
		require.NoError(t, err)
		mem := verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline))
		send, err := verbs.NewSendQueue(mem, c)
		require.NoError(t, err)
		sq, _ := verbs.NewSendRing(mem)
		rq, _ := verbs.NewRecvRing(verbs.NewRingMem(8), 1)
		mrs := mr.NewTable(1)
		w, err := mrs.AllocWindow(1, verbs.MWType1)
		require.NoError(t, err)
		wr := verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{Key: w.Key() ^ 1, NewKey: w.Key()}}
		post := func() {
			wr.Bind.Key, wr.Bind.NewKey = wr.Bind.NewKey, wr.Bind.Key
			require.NoError(t, send.Put(&wr))
			send.Publish()
		}
		e := &endless{t: t, post: post}
		q := New(Config{Config: transport.Config{QPN: 5, PD: 1, Cap: c, SQ: sq, RQ: rq, SendCQ: e, RecvCQ: e, MRs: mrs, Recorder: trace.NewRecorder(1)}})
		q.attr.State, q.mtu = verbs.StateRTS, 256
		for range c.MaxSendWR {
			post()
		}
		if local {
			w, _ := q.current(0)
			require.Nil(t, w)
			require.InDelta(t, c.MaxSendWR, e.n, 1)
		} else {
			q.Fail(0, trace.FailCQOverflow)
			require.Equal(t, c.MaxSendWR, e.n)
		}
	}
}
