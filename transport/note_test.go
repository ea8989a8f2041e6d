package transport

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// A reason is counted once and recorded with all that is known: of a packet its PSN
// and opcode, without one the PSN to be sent next.
func TestNote(t *testing.T) {
	u := Unreliable{Cfg: Config{QPN: 5, Recorder: trace.NewRecorder(4)}, Next: bth.MakePSN(9)}
	u.Note(7, trace.DropLength, trace.Rx, &bth.Packet{Opcode: 0x24, PSN: bth.MakePSN(3)})
	u.Note(8, trace.FailLocalProt, trace.Local, nil)
	assert.Equal(t, []trace.Event{
		{Time: 7, QPN: 5, Reason: trace.DropLength, Dir: trace.Rx, PSN: 3, Opcode: 0x24},
		{Time: 8, QPN: 5, Reason: trace.FailLocalProt, Dir: trace.Local, PSN: 9},
	}, u.Cfg.Recorder.Events())
	assert.EqualValues(t, 1, u.Noted[trace.DropLength])
	assert.EqualValues(t, 1, u.Noted[trace.FailLocalProt])
}
