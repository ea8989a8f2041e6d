package daemon

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A message that comes up again and again is written logBurst times, then once in
// logEvery, with how many were left out before it.
const (
	logBurst = 10
	logEvery = 10 * time.Second
	// logKinds bounds how many messages are told apart; there are fewer.
	logKinds = 1024
)

// newLogger writes to w. Its level can be changed, its format too: see logs.
func newLogger(w io.Writer, c Log) (*slog.Logger, *logs) {
	l := &logs{w: w, clock: time.Now, kinds: map[string]*kind{}}
	l.configure(c)
	return slog.New(&limited{logs: l}), l
}

// logs is what all loggers of the process share.
type logs struct {
	w     io.Writer
	level slog.LevelVar
	clock func() time.Time

	mu    sync.Mutex
	to    slog.Handler
	kinds map[string]*kind
}

// kind is a message, whatever its attributes.
type kind struct {
	*rate.Limiter
	level   slog.Level
	leftOut int
}

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

func (l *logs) configure(c Log) {
	l.level.Set(levels[c.Level])
	o := &slog.HandlerOptions{Level: &l.level}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Format == "json" {
		l.to = slog.NewJSONHandler(l.w, o)
	} else {
		l.to = slog.NewTextHandler(l.w, o)
	}
}

// admit reports whether a message is to be written, and how many were not before.
func (l *logs) admit(message string, level slog.Level) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[message]
	if k == nil {
		if len(l.kinds) == logKinds {
			clear(l.kinds)
		}
		k = &kind{Limiter: rate.NewLimiter(rate.Every(logEvery), logBurst)}
		l.kinds[message] = k
	}
	k.level = level
	if !k.AllowN(l.clock(), 1) {
		k.leftOut++
		return 0, false
	}
	leftOut, k.leftOut = k.leftOut, 0
	return leftOut, true
}

// flush tells of messages that were left out and did not come up again.
func (l *logs) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for message, k := range l.kinds {
		if k.leftOut > 0 && k.AllowN(now, 1) {
			r := slog.NewRecord(now, k.level, message, 0)
			r.AddAttrs(slog.Int("left_out", k.leftOut))
			_ = l.to.Handle(context.Background(), r)
			k.leftOut = 0
		}
	}
}

// limited is the handler of one logger: what its attributes and groups are is
// applied to the shared one at each message, which may have changed meanwhile.
type limited struct {
	*logs
	with []func(slog.Handler) slog.Handler
}

func (h *limited) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	leftOut, ok := h.admit(r.Message, r.Level)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", leftOut))
	}
	h.mu.Lock()
	to := h.to
	h.mu.Unlock()
	for _, f := range h.with {
		to = f(to)
	}
	return to.Handle(ctx, r)
}

func (h *limited) and(f func(slog.Handler) slog.Handler) slog.Handler {
	return &limited{h.logs, append(h.with[:len(h.with):len(h.with)], f)}
}

func (h *limited) WithAttrs(a []slog.Attr) slog.Handler {
	return h.and(func(to slog.Handler) slog.Handler { return to.WithAttrs(a) })
}

func (h *limited) WithGroup(name string) slog.Handler {
	return h.and(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}
