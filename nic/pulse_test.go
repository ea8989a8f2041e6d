package nic

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

// TestPulse: a shard whose background moves has a pulse, asleep in its link or not;
// one whose lock is never let go of has none, nor has a device that is closed.
func TestPulse(t *testing.T) {
	x, _ := pair(t, 2)
	n := x.nic
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 100 {
		require.NoError(t, n.Pulse(ctx, 0))
		require.NoError(t, n.Pulse(ctx, 1))
	}

	n.shards[1].mu.Lock()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := n.Pulse(short, 1)
	n.shards[1].mu.Unlock()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "shard 1 of rxe0 has not moved for ")
	require.NoError(t, n.Pulse(ctx, 1), "it moves again")

	x.close()
	require.ErrorIs(t, n.Pulse(ctx, 0), verbs.ErrClosed)
}
