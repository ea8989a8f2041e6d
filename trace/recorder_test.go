package trace

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecorder: the last events, oldest first, whatever came before.
func TestRecorder(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		r := NewRecorder(size)
		require.Nil(t, r.Events())
		for n := range 3*size + 1 {
			r.Record(Event{Time: int64(n), QPN: 1, PSN: uint32(n), Reason: RetryTimeout, Dir: Tx, Opcode: 4})
			var want []Event
			for k := max(0, n+1-size); k <= n; k++ {
				want = append(want, Event{Time: int64(k), QPN: 1, PSN: uint32(k), Reason: RetryTimeout, Dir: Tx, Opcode: 4})
			}
			require.Equal(t, want, r.Events(), "size %d, %d events", size, n+1)
		}
	}
}

// TestEventsCopied: what Events returned does not change with later events.
func TestEventsCopied(t *testing.T) {
	r := NewRecorder(2)
	r.Record(Event{PSN: 1})
	r.Record(Event{PSN: 2})
	got := r.Events()
	r.Record(Event{PSN: 3})
	require.Equal(t, []Event{{PSN: 1}, {PSN: 2}}, got)
	got[0].PSN = 9
	require.Equal(t, []Event{{PSN: 2}, {PSN: 3}}, r.Events())
}

// TestNoRecorder: none, a zero one and one of no events record nothing.
func TestNoRecorder(t *testing.T) {
	for _, r := range []*Recorder{nil, {}, NewRecorder(0), NewRecorder(-1), NewRecorder(math.MinInt)} {
		r.Record(Event{PSN: 1})
		require.Nil(t, r.Events())
	}
}

// TestRecordAllocates nothing: it happens for every retransmission.
func TestRecordAllocates(t *testing.T) {
	r, n := NewRecorder(4), uint32(0)
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Record(Event{PSN: n}); n++ }))
	require.Equal(t, n-1, r.Events()[3].PSN)
}

func TestDir(t *testing.T) {
	require.Equal(t, "- > < ? ?", Local.String()+" "+Tx.String()+" "+Rx.String()+" "+Dir(3).String()+" "+Dir(255).String())
}
