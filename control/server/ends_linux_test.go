package server_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/verbs"
)

// A completion queue may be destroyed while others wait on it, however often they
// have been woken before: the memory of its word is gone by then, and what its
// count becomes may be what a waiter has seen.
func TestDestroyWakesWaiters(t *testing.T) {
	s := newSite(t, gorxe.PairConfig{}, server.Config{})
	for woken := range 4 {
		a, b := newEnd(t, s.attach(), verbs.RC, 4096), newEnd(t, s.peer, verbs.RC, 4096)
		connect(t, a, b, servedAddr, peerAddr)
		ctx := t.Context()
		wait := func() chan error {
			ended := make(chan error, 1)
			go func() {
				var wc [1]verbs.WC
				_, err := a.cq.Wait(ctx, wc[:])
				ended <- err
			}()
			time.Sleep(20 * time.Millisecond) // asleep, most likely
			return ended
		}
		for range woken {
			w := wait()
			a.recv(0, 64)
			b.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{b.mr.SGE(0, 8)}})
			b.wait()
			require.NoError(t, <-w)
		}
		w := wait()
		require.NoError(t, a.qp.Destroy())
		destroyed := make(chan error, 1)
		go func() { destroyed <- a.cq.Destroy() }()
		for _, c := range []chan error{destroyed, w} {
			select {
			case err := <-c:
				if c == w {
					require.ErrorIs(t, err, verbs.ErrClosed)
				} else {
					require.NoError(t, err)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("woken %d times before, a waiter sleeps on", woken)
			}
		}
	}
}

// A daemon that stops takes the memory of completion queues back: who polls finds
// nothing, not zeros that look like completions, and who waits an error.
func TestStopMakesNoCompletions(t *testing.T) {
	s := newSite(t, gorxe.PairConfig{}, server.Config{})
	a, b := newEnd(t, s.attach(), verbs.RC, 4096), newEnd(t, s.peer, verbs.RC, 4096)
	connect(t, a, b, servedAddr, peerAddr)
	for range 3 {
		a.recv(0, 64)
		b.send(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{b.mr.SGE(0, 8)}})
		b.wait()
		a.wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, s.server.Close(ctx))
	var wc [8]verbs.WC
	require.Zero(t, a.cq.Poll(wc[:]), "%+v", wc)
	_, err := a.cq.Wait(ctx, wc[:])
	require.ErrorIs(t, err, verbs.ErrFailed)
	// Requests still find room, until they do not: that is not for want of polling.
	for err = nil; err == nil; {
		_, err = a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, 8)}}})
	}
	require.ErrorIs(t, err, verbs.ErrFailed)
}

// Whatever a program is calling when its daemon stops, it is told that that has ended:
// also when the call finds the socket closed before the reader does.
func TestStopAmidCalls(t *testing.T) {
	s := newSite(t, gorxe.PairConfig{}, server.Config{})
	const clients = 16
	ended := make(chan error, clients)
	for range clients {
		ctx := s.attach()
		go func() {
			for {
				if _, err := ctx.Port(); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, s.server.Close(ctx))
	for range clients {
		require.ErrorIs(t, <-ended, verbs.ErrFailed)
	}
}

// A daemon that takes connections and answers nothing, since it is stopped, is named.
func TestDialUnanswered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "verbs.sock")
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = control.Dial(ctx, path, control.Want{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, path)
}
