package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// TestDatagramLoss: UD and UC that lose messages end soon after the last, and
// say how many are missing.
func TestDatagramLoss(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.UD, verbs.UC} {
		for _, check := range []bool{false, true} {
			bubble(t, "tx drop 10%", func(w *world) {
				start := time.Now()
				server, client, serr, cerr := w.play(oob.SendBW, func(c *Config) {
					c.Transport, c.Size, c.Iters, c.Check = typ, 200, 1000, check
				})
				require.NoError(t, serr, "%v", typ)
				require.NoError(t, cerr)
				require.Less(t, time.Since(start), 2*lossWait)
				require.Regexp(t, ` (8|9)\d\d of 1000 messages arrived, \d+ were lost: `+typ.String(), server.out.String())
				require.Contains(t, server.out.String(), "dropped here: ")
				require.NotContains(t, client.out.String(), "lost")
			})
		}
	}
}

// TestDatagramLossBothWays: so do two ends that both send.
func TestDatagramLossBothWays(t *testing.T) {
	bubble(t, "tx drop 10%; rx drop 10%", func(w *world) {
		server, client, serr, cerr := w.play(oob.SendBW, func(c *Config) {
			c.Transport, c.Size, c.Iters, c.Both, c.QPs = verbs.UD, 200, 500, true, 2
		})
		require.NoError(t, errors.Join(serr, cerr))
		require.Contains(t, server.out.String(), "of 1000 messages arrived")
		require.Contains(t, client.out.String(), "of 1000 messages arrived")
	})
}

// TestDatagramLossOfAll: what is left of one size takes messages of the next.
func TestDatagramLossOfAll(t *testing.T) {
	bubble(t, "tx drop 10%", func(w *world) {
		server, _, serr, cerr := w.play(oob.SendBW, func(c *Config) { c.Transport, c.All, c.Check = verbs.UD, true, true })
		require.NoError(t, errors.Join(serr, cerr))
		require.Regexp(t, ` 6\d\d of 720 messages arrived, \d+ were lost`, server.out.String())
		require.Regexp(t, `(?m)^ 4096 +5\d `, server.out.String())
	})
}

// TestDatagramsAllLost: a run of which nothing arrives ends soon after the other
// end is done with it, and is an error.
func TestDatagramsAllLost(t *testing.T) {
	bubble(t, "tx drop 100%", func(w *world) {
		start := time.Now()
		server, _, serr, cerr := w.play(oob.SendBW, func(c *Config) { c.Transport, c.Size, c.Iters = verbs.UD, 100, 30 })
		require.NoError(t, cerr)
		require.ErrorContains(t, serr, "none of the peer's messages arrived")
		require.Less(t, time.Since(start), 2*lossWait)
		require.Contains(t, server.out.String(), "0 of 30 messages arrived, 30 were lost")
	})
}

// TestLostExchange: a lost datagram of a latency test ends it, and both ends
// say after how many.
func TestLostExchange(t *testing.T) {
	bubble(t, "tx drop every=20", func(w *world) {
		_, _, serr, cerr := w.play(oob.SendLat, func(c *Config) { c.Transport = verbs.UD })
		for _, err := range []error{serr, cerr} {
			require.ErrorContains(t, err, "UD does not repeat what is lost")
		}
	})
}

// TestPeerEnds: a peer that ends in the middle of a run, by its context, is
// noticed at once, and this end says after how many messages.
func TestPeerEnds(t *testing.T) {
	for _, k := range allKinds {
		for _, client := range []bool{false, true} {
			bubble(t, "", func(w *world) {
				s, c := w.configs(k, func(c *Config) { c.Duration = time.Hour })
				sctx, send := context.WithCancel(w.t.Context())
				cctx, cend := context.WithCancel(w.t.Context())
				defer send()
				defer cend()
				other, own, end := w.start(sctx, s), w.start(cctx, c), cend
				if !client {
					other, own, end = own, other, send
				}
				end()
				require.ErrorIs(t, <-own.done, context.Canceled)
				start := time.Now()
				require.Error(t, <-other.done)
				require.Less(t, time.Since(start), s.Timeout+goneLimit)
			})
		}
	}
}

// TestBlindSender: an end that sends without acknowledgements notices a peer that
// ends long before it is done itself, in time of this machine, since it never
// sleeps.
func TestBlindSender(t *testing.T) {
	for _, x := range []struct {
		k   oob.Kind
		typ verbs.QPType
	}{{oob.SendBW, verbs.UD}, {oob.SendBW, verbs.UC}, {oob.WriteBW, verbs.UC}} {
		t.Run(fmt.Sprint(x.k, x.typ), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			defer w.close()
			s, c := w.configs(x.k, func(c *Config) { c.Transport, c.Size, c.Duration = x.typ, 64, time.Minute })
			ctx, cancel := context.WithCancel(w.t.Context())
			defer cancel()
			server, client := w.start(ctx, s), w.start(w.t.Context(), c)
			for sent := uint64(0); sent < 1000; {
				m, err := w.host.Counters()
				require.NoError(t, err)
				sent = m["sent_requests"]
			}
			cancel()
			require.ErrorIs(t, <-server.done, context.Canceled)
			start := time.Now()
			require.ErrorContains(t, <-client.done, "during the run: the peer closed the connection")
			require.Less(t, time.Since(start), 30*time.Second)
		})
	}
}

// TestSilentPeer: a peer that has no receives, or sends less than is expected,
// ends the run after Timeout.
func TestSilentPeer(t *testing.T) {
	for name, x := range map[string]struct {
		k      oob.Kind
		change func(s, c *Config)
		server string
		client string
	}{
		"fewer messages": {oob.SendBW, func(_, c *Config) { c.Iters = 30 }, "after 30 of 60 messages", "closed the connection"},
		"more messages":  {oob.SendBW, func(s, _ *Config) { s.Iters = 30 }, "", "no receive for our messages"},
		"fewer volleys":  {oob.WriteLat, func(_, c *Config) { c.Iters = 30 }, "after (61 of 120 messages|30 sent and 30 received)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "", func(w *world) {
				s, c := w.configs(x.k, func(*Config) {})
				x.change(&s, &c)
				server, client := w.start(w.t.Context(), s), w.start(w.t.Context(), c)
				serr, cerr := <-server.done, <-client.done
				t.Log(serr, cerr)
				if x.server != "" {
					require.Regexp(t, x.server, serr)
				}
				if x.client != "" {
					require.Regexp(t, x.client, cerr)
				}
			})
		})
	}
}

// TestStoppedClient: an end that only serves its memory notices a client that
// is stopped with its connection open.
func TestStoppedClient(t *testing.T) {
	for _, k := range []oob.Kind{oob.WriteBW, oob.ReadLat, oob.AtomicBW} {
		bubble(t, "", func(w *world) {
			s, c := w.configs(k, func(*Config) {})
			server := w.start(w.t.Context(), s)
			ctx, cancel := context.WithCancel(w.t.Context())
			defer cancel()
			c.Out = &stopper{ctx: ctx, at: "#bytes"}
			client := make(chan error, 1)
			go func() { client <- Run(ctx, c) }()
			start := time.Now()
			require.ErrorContains(t, <-server.done, "is the peer stopped?")
			require.Less(t, time.Since(start), 2*s.Timeout)
			cancel()
			require.Error(t, <-client)
		})
	}
}

// TestStoppedAtStep: an end that waits for the peer before a run, or after it,
// notices one that is stopped.
func TestStoppedAtStep(t *testing.T) {
	const size = 8
	for _, x := range []struct {
		k    oob.Kind
		typ  verbs.QPType
		both bool
	}{{k: oob.SendBW}, {k: oob.SendBW, typ: verbs.UC}, {k: oob.SendLat, typ: verbs.UD}, {k: oob.WriteBW, both: true}, {k: oob.ReadBW, both: true}, {k: oob.AtomicLat}} {
		for _, at := range []string{"#bytes", fmt.Sprintf(" %d ", size)} { // the head of the table, its row
			for _, server := range []bool{false, true} {
				if x.k == oob.AtomicLat && (server || at == "#bytes") {
					continue // it has no step before, and its server prints nothing
				}
				bubble(t, "", func(w *world) {
					s, c := w.configs(x.k, func(c *Config) { c.Transport, c.Both, c.Size = x.typ, x.both, size })
					stopped, left := &c, &s
					if server {
						stopped, left = left, stopped
					}
					ctx, cancel := context.WithCancel(w.t.Context())
					defer cancel()
					stopped.Out = &stopper{ctx: ctx, at: at}
					end := make(chan error, 1)
					go func() { end <- Run(ctx, *stopped) }()
					start := time.Now()
					require.Regexp(t, "is (it|the peer) stopped", <-w.start(w.t.Context(), *left).done, "%v %q server=%v", x, at, server)
					require.Less(t, time.Since(start), 2*left.Timeout)
					cancel()
					require.Error(t, <-end)
				})
			}
		}
	}
}

// stopper is the output of a program that is stopped when it prints a text.
type stopper struct {
	ctx context.Context
	at  string
}

func (s *stopper) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(s.at)) {
		<-s.ctx.Done()
	}
	return len(b), nil
}

// TestMismatch: ends that were started differently tell, instead of measuring
// nonsense.
func TestMismatch(t *testing.T) {
	for name, x := range map[string]struct {
		change func(s, c *Config)
		want   string // of one of the two
	}{
		"size":        {func(s, c *Config) { s.Size, c.Size = 100, 200 }, "-s"},
		"check alone": {func(_, c *Config) { c.Check = true }, "--check"},
		"check there": {func(s, _ *Config) { s.Check = true }, "--check"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "", func(w *world) {
				s, c := w.configs(oob.SendBW, func(*Config) {})
				x.change(&s, &c)
				server, client := w.start(w.t.Context(), s), w.start(w.t.Context(), c)
				err := errors.Join(<-server.done, <-client.done)
				require.ErrorContains(t, err, x.want)
			})
		})
	}
}

// TestCheckFinds: with --check, every octet that is wrong on its way is found.
// Whoever would have noticed is the one that tells.
func TestCheckFinds(t *testing.T) {
	for _, k := range allKinds {
		t.Run(k.String(), func(t *testing.T) {
			bubble(t, "", func(w *world) {
				_, _, serr, cerr := w.play(k, func(c *Config) {
					c.Check = true
					c.spoil = func(mem []byte, k uint64) {
						if k == 17 || k == published {
							mem[0] ^= 4
						}
					}
				})
				require.ErrorContains(t, errors.Join(serr, cerr), "--check: ")
			})
		})
	}
}

// TestTimed: a timed run ends with its time, in time of this machine, since
// loops that never sleep do not let virtual time pass.
func TestTimed(t *testing.T) {
	for _, k := range allKinds {
		for _, both := range []bool{false, true} {
			if both && k.Latency() {
				continue
			}
			t.Run(k.String(), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "")
				defer w.close()
				_, _, serr, cerr := w.play(k, func(c *Config) {
					c.Duration, c.Margin, c.Both = 60*time.Millisecond, 10*time.Millisecond, both
				})
				require.NoError(t, cerr)
				require.NoError(t, serr)
			})
		}
	}
}

// TestInfinite: --run_infinitely prints rows until it is interrupted, and then
// ends clean at both ends.
func TestInfinite(t *testing.T) {
	for _, k := range []oob.Kind{oob.SendBW, oob.WriteBW, oob.ReadBW} {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			defer w.close()
			s, c := w.configs(k, func(c *Config) { c.Infinite, c.Duration = true, 20*time.Millisecond })
			ctx, cancel := context.WithTimeout(w.t.Context(), 150*time.Millisecond)
			defer cancel()
			server, client := w.start(w.t.Context(), s), w.start(ctx, c)
			require.ErrorIs(t, <-client.done, context.DeadlineExceeded)
			require.NoError(t, <-server.done)
		})
	}
}

// TestInterrupted: a run that is interrupted before a peer has come ends at
// once.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		defer w.close()
		a, b := net.Pipe()
		defer b.Close()
		c := Default(oob.WriteBW)
		c.Device, c.conn, c.GIDIndex = w.server, a, 0
		ctx, cancel := context.WithCancel(t.Context())
		s := w.start(ctx, c)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-s.done, context.Canceled)
	})
}
