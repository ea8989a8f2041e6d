package gorxe_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

// stream is messages that one end sends to the other all the time, each of which
// is checked.
type stream struct {
	t      *testing.T
	passed atomic.Int64
	quit   atomic.Bool
	wg     sync.WaitGroup
	err    [2]error
}

const (
	streamLen   = 20_000 // octets of a message
	streamDepth = 16     // messages under way, at most
)

// startStream sends from a to b, which are connected.
func startStream(t *testing.T, a, b *end) *stream {
	s := &stream{t: t}
	for i := range streamDepth {
		s.postRecv(b, i)
	}
	s.wg.Go(func() { s.err[0] = s.send(a) })
	s.wg.Go(func() { s.err[1] = s.receive(b) })
	return s
}

func (s *stream) postRecv(b *end, slot int) {
	must(b.qp.PostRecv([]verbs.RecvWR{{ID: uint64(slot), SGL: []verbs.SGE{b.mr.SGE(slot*streamLen, streamLen)}}}))
}

// send sends until quit; the last message says so.
func (s *stream) send(a *end) error {
	for seq, more := uint64(0), true; more; seq++ {
		more = !s.quit.Load()
		buf := a.mr.Bytes()[:streamLen]
		pattern(buf, seq, more)
		if _, err := a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, streamLen)}, Flags: verbs.SendSignaled}}); err != nil {
			return err
		}
		var wc [1]verbs.WC
		if _, err := a.cq.Wait(context.Background(), wc[:]); err != nil {
			return err
		}
		if err := wc[0].Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) receive(b *end) error {
	want := make([]byte, streamLen)
	for seq := uint64(0); ; seq++ {
		var wc [1]verbs.WC
		if _, err := b.cq.Wait(context.Background(), wc[:]); err != nil {
			return err
		}
		if err := wc[0].Err(); err != nil {
			return err
		}
		slot := int(wc[0].ID)
		got := b.mr.Bytes()[slot*streamLen:][:streamLen]
		more := got[8] != 0
		pattern(want, seq, more)
		for i := range got {
			if got[i] != want[i] {
				return fmt.Errorf("octet %d of message %d is %#x, want %#x", i, seq, got[i], want[i])
			}
		}
		s.passed.Add(1)
		if !more {
			return nil
		}
		s.postRecv(b, slot)
	}
}

func pattern(buf []byte, seq uint64, more bool) {
	for i := range buf {
		buf[i] = byte(uint64(i)*7 + seq)
	}
	binary.LittleEndian.PutUint64(buf, seq)
	buf[8] = 0
	if more {
		buf[8] = 1
	}
}

// goesOn waits until some more messages have passed.
func (s *stream) goesOn() {
	s.t.Helper()
	from := s.passed.Load()
	require.Eventually(s.t, func() bool { return s.passed.Load() >= from+20 }, 10*time.Second, time.Millisecond, "the stream stands still: %v", &s.err)
}

// stop ends the stream, which must have passed without an error.
func (s *stream) stop() {
	s.t.Helper()
	s.quit.Store(true)
	s.wg.Wait()
	require.NoError(s.t, s.err[0])
	require.NoError(s.t, s.err[1])
}
