package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLogLimit: an incident that goes on is written a few times, then now and then
// with the number of those left out; others are not held up by it.
func TestLogLimit(t *testing.T) {
	var out bytes.Buffer
	log, l := newLogger(&out, Log{Level: "info", Format: "text"})
	now := time.Unix(1e9, 0)
	l.clock = func() time.Time { return now }
	dev := log.With("device", "rxe0")
	for range 100 {
		dev.Error("send failed", "err", "no buffer")
	}
	require.Equal(t, logBurst, strings.Count(out.String(), "send failed"))
	require.Contains(t, out.String(), `device=rxe0 err="no buffer"`)
	dev.Info("something else")
	require.Contains(t, out.String(), "something else")

	out.Reset()
	now = now.Add(logEvery)
	dev.Error("send failed")
	require.Contains(t, out.String(), "left_out=90")

	out.Reset()
	dev.Error("send failed")
	dev.Error("send failed")
	l.flush()
	require.Empty(t, out.String(), "it is not due yet")
	now = now.Add(logEvery)
	l.flush()
	require.Contains(t, out.String(), "level=ERROR")
	require.Contains(t, out.String(), `"send failed" left_out=2`)
	out.Reset()
	now = now.Add(logEvery)
	l.flush()
	require.Empty(t, out.String())
}

// TestLogReconfigured: loggers that were made before follow.
func TestLogReconfigured(t *testing.T) {
	var out bytes.Buffer
	log, l := newLogger(&out, Log{Level: "warn", Format: "text"})
	dev := log.With("device", "rxe0").WithGroup("g")
	dev.Info("quiet")
	require.Empty(t, out.String())
	l.configure(Log{Level: "debug", Format: "json"})
	dev.Debug("loud", slog.Int("n", 1))
	require.Contains(t, out.String(), `"level":"DEBUG","msg":"loud","device":"rxe0","g":{"n":1}}`)
}
