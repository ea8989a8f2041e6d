package sys

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No wait blocks for ever in one system call, whatever it was asked for: see
// longestWait.
func TestWaitsAreBounded(t *testing.T) {
	p, err := NewPoller(nil)
	require.NoError(t, err)
	defer p.Close()
	var w atomic.Uint32
	done := make(chan error, 1)
	go func() {
		_, err := p.Wait(-1, -1)
		FutexWait(&w, 0, -1)
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("still waiting")
	}
}
