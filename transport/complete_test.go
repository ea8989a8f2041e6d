package transport

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// completion is what a queue was given.
type completion struct {
	verbs.WC
	solicited bool
}

type completions []completion

func (c *completions) Push(wc *verbs.WC, solicited bool) { *c = append(*c, completion{*wc, solicited}) }

// A send request that succeeds has no reason in its completion, which is not
// solicited; one that is flushed has that for which the queue pair ended.
func TestCompletionOfSend(t *testing.T) {
	c, err := verbs.QPCap{}.WithDefaults()
	require.NoError(t, err)
	mem := verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline))
	program, err := verbs.NewSendQueue(mem, c)
	require.NoError(t, err)
	ring, ok := verbs.NewSendRing(mem)
	require.True(t, ok)
	var done completions
	var u Unreliable
	u.Init(Config{QPN: 5, Cap: c, SQ: ring, SendCQ: &done, MRs: mr.NewTable(1)})
	u.Attrs = verbs.QPAttr{State: verbs.StateRTS, PathMTU: 256}
	require.NoError(t, program.Put(&verbs.SendWR{ID: 7, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}))
	program.Publish()
	w := u.Current(0)
	require.NotNil(t, w)
	require.True(t, u.Skip(w))
	assert.Equal(t, completions{{WC: verbs.WC{ID: 7, Opcode: verbs.WCSend, QPN: 5}}}, done)

	u.ToErr(0, trace.FailFlushed)
	require.NoError(t, program.Put(&verbs.SendWR{ID: 8, Opcode: verbs.WRSend}))
	program.Publish()
	u.Doorbell(0)
	assert.Equal(t, completion{verbs.WC{ID: 8, Opcode: verbs.WCSend, QPN: 5, Status: verbs.WCWRFlushErr, Reason: trace.FailFlushed}, true}, done[1])
}
