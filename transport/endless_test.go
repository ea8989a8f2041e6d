package transport

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
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

// A flush ends though the program goes on posting: what was posted before it began is
// complete then.
func TestFlushEnds(t *testing.T) {
	c, err := verbs.QPCap{}.WithDefaults()
	require.NoError(t, err)
	sqMem := verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline))
	rqMem := verbs.NewRingMem(c.MaxRecvWR * verbs.RecvUnits(c.MaxRecvSGE))
	send, err := verbs.NewSendQueue(sqMem, c)
	require.NoError(t, err)
	recv, err := verbs.NewRecvQueue(rqMem, c.MaxRecvWR, c.MaxRecvSGE)
	require.NoError(t, err)
	sq, _ := verbs.NewSendRing(sqMem)
	rq, _ := verbs.NewRecvRing(rqMem, c.MaxRecvSGE)
	postSend := func() { _ = send.Put(&verbs.SendWR{Opcode: verbs.WRSend}); send.Publish() }
	postRecv := func() { _ = recv.Put(&verbs.RecvWR{}); recv.Publish() }
	sends, recvs := &endless{t: t, post: postSend}, &endless{t: t, post: postRecv}
	var u Unreliable
	u.Init(Config{QPN: 5, Cap: c, SQ: sq, RQ: rq, SendCQ: sends, RecvCQ: recvs, MRs: mr.NewTable(1), Recorder: trace.NewRecorder(1)})
	u.Attrs = verbs.QPAttr{State: verbs.StateRTS, PathMTU: 256}
	for range c.MaxSendWR {
		postSend()
		postRecv()
	}
	u.ToErr(0, trace.FailFlushed)
	require.Equal(t, c.MaxSendWR, sends.n)
	require.Equal(t, c.MaxRecvWR, recvs.n)
	u.Doorbell(0)
	require.Equal(t, 2*c.MaxSendWR, sends.n, "a doorbell later the rest is complete")
}
