package transport

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// RESET forgets what was received in part, what was raised and what was told.
func TestResetForgets(t *testing.T) {
	c, err := verbs.QPCap{}.WithDefaults()
	require.NoError(t, err)
	sq, ok := verbs.NewSendRing(verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline)))
	require.True(t, ok)
	rq, ok := verbs.NewRecvRing(verbs.NewRingMem(c.MaxRecvWR*verbs.RecvUnits(c.MaxRecvSGE)), c.MaxRecvSGE)
	require.True(t, ok)
	var u Unreliable
	u.Init(Config{QPN: 5, Cap: c, SQ: sq, RQ: rq, MRs: mr.NewTable(1), Recorder: trace.NewRecorder(4)})
	u.Attrs = verbs.QPAttr{State: verbs.StateRTS, DestQPN: 3}
	u.Raised = EventDrained
	u.Recv.Held, u.Recv.Len, u.Recv.Got = true, 9, 4
	u.broken = true
	assert.Equal(t, verbs.StateRTS, u.Enter(7, verbs.StateReset))
	assert.Zero(t, u.TakeEvents())
	assert.Equal(t, verbs.QPAttr{}, u.Attr())
	assert.False(t, u.Recv.Held)
	assert.Zero(t, u.Recv.Len+u.Recv.Got)
	assert.False(t, u.broken)
	assert.Equal(t, []trace.Event{{Time: 7, QPN: 5, Reason: trace.NoteState, Arg: uint32(verbs.StateReset)}}, u.Cfg.Recorder.Events())
}

// What a link did not take is not counted as sent, but once as such.
func TestSentCounts(t *testing.T) {
	b := wire.NewBurst()
	b.Reset(nil, 0, 0)
	for i := range 5 {
		p := bth.Packet{Opcode: 0x24, PSN: bth.MakePSN(uint32(i)), Pad: 3}
		p.PutHeaders(b.Begin(p.PSN, p.Opcode, bth.BTHLen, 5))
		copy(b.Copy(5), "hello")
		b.End()
	}
	require.Equal(t, 5, b.Len())
	for sent := range 6 {
		left := uint64(5 - sent)
		u := Unreliable{Tally: Stats{SentRequests: 10, Sends: 10, SentBytes: 100}}
		u.Sent(b, sent)
		assert.Equal(t, left, u.Noted[trace.RetryLink])
		assert.Equal(t, Stats{SentRequests: 10 - left, Sends: 10 - left, SentBytes: 100 - 5*left}, u.Tally)
	}
}
