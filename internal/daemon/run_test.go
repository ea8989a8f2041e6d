package daemon

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSecondSignal: while the daemon stops, a second signal ends the process, a
// hangup does not.
func TestSecondSignal(t *testing.T) {
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signals <- syscall.SIGHUP
	signals <- syscall.SIGINT
	var codes []int
	code := waitStop(done, signals, func(n int) {
		codes = append(codes, n)
		close(done)
	})
	require.Equal(t, []int{128 + int(syscall.SIGINT)}, codes)
	require.Equal(t, 0, code)
}
