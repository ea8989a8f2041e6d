package pingpong

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

var roles = []struct {
	name   string
	client bool // ours is
}{{"client", true}, {"server", false}}

// play has the fake take its part in n messages each way; before sends, each
// counted from 0, spoil may change the data.
func (f *fake) play(client bool, n int, spoil func(k int, data []byte)) {
	f.t.Helper()
	for k := range n {
		if !client {
			spoil(k, f.data())
			f.send()
		}
		f.until(k+1, k)
		if client {
			spoil(k, f.data())
			f.send()
		}
		f.until(k+1, k+1)
	}
}

func fair(int, []byte) {}

// marked is what the original's client sends with -c.
func marked(_ int, data []byte) {
	for i := range data {
		data[i] = 0x7b
	}
	for i := 0; i < len(data); i += 4096 {
		data[i] = 0
	}
}

// TestOriginal: both roles against the original's habits.
func TestOriginal(t *testing.T) {
	for _, role := range roles {
		for _, check := range []bool{false, true} {
			for _, c := range []struct {
				svc  Service
				size int
			}{{RC, 1}, {RC, 4096}, {RC, 10000}, {UC, 1}, {UC, 4096}, {UC, 10000}, {UD, 1}, {UD, 1024}, {UD, 4096}} {
				t.Run(fmt.Sprintf("%s %s %d %v", c.svc, role.name, c.size, check), func(t *testing.T) {
					t.Parallel()
					f := newFakeOf(t, c.svc, c.size, "")
					cfg := configOf(c.svc)
					cfg.Size, cfg.Check = c.size, check
					e := f.ours(cfg, role.client, 8)
					spoil := fair // a server gives back what came, since it has one buffer
					if !role.client {
						spoil = marked
					}
					f.play(role.client, cfg.Iters, spoil)
					require.NoError(t, e.wait())
					require.NotContains(t, e.out.String(), "invalid")
				})
			}
		}
	}
}

// TestBadData: with -c, wrong data are found, whatever is wrong with them.
func TestBadData(t *testing.T) {
	const size = 10000
	ours := newOwnClient(size)
	for _, c := range []struct {
		name   string
		client bool
		spoil  func(k int, data []byte)
		want   string
		page   int
	}{
		{"an octet comes back changed", true, func(k int, d []byte) {
			if k == 3 {
				d[9001]++
			}
		}, "message 4 is wrong from octet 9001 on", 2},
		{"the last octet", true, func(k int, d []byte) {
			if k == 7 {
				d[size-1] ^= 0x80
			}
		}, "message 8 is wrong from octet 9999 on", 2},
		{"an earlier message comes again", true, func(k int, d []byte) {
			if k == 5 {
				ours.fill(d, 4)
			}
		}, "message 6 is wrong from octet 1 on", 0},
		{"a packet of an earlier message", true, func(k int, d []byte) {
			if k == 5 {
				earlier := make([]byte, size)
				ours.fill(earlier, 4)
				copy(d[2048:3072], earlier[2048:3072])
			}
		}, "message 6 is wrong from octet 2048 on", 0},
		{"our client's data, changed", false, func(k int, d []byte) {
			ours.fill(d, k)
			if k == 2 {
				d[5000] = 1
			}
		}, "message 3 is wrong from octet 5000 on: 0x01 instead of", 1},
		{"our client's first message, changed", false, func(k int, d []byte) {
			ours.fill(d, k)
			if k == 0 {
				clear(d[4:4000])
			}
		}, "message 1 is wrong from octet 4 on: 0x00 instead of", 0},
		{"our client's data, again", false, func(k int, d []byte) { ours.fill(d, min(k, 8)) }, "message 10 is wrong from octet 1 on", 0},
		{"the original's, changed where it looks", false, func(k int, d []byte) {
			marked(k, d)
			if k == 4 {
				d[8192] = 3
			}
		}, "message 5 is wrong from octet 8192 on: 0x03 instead of 0x00", 2},
		{"a client without -c", false, func(_ int, d []byte) {
			for i := range d {
				d[i] = 0x7b
			}
		}, "message 1 is wrong from octet 0 on: 0x7b instead of 0x00; was the client started with -c too?", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, size)
			cfg := config(t)
			cfg.Size, cfg.Check, cfg.Iters = size, true, 10
			e := f.ours(cfg, c.client, 8)
			f.play(c.client, cfg.Iters, c.spoil)
			require.ErrorContains(t, e.wait(), c.want)
			require.Contains(t, e.out.String(), fmt.Sprintf("\ninvalid data in page %d\n", c.page))
		})
	}
}

func newOwnClient(size int) *checker {
	c := checkerOf(true, false, size)
	return &c
}

// TestUnwritten: a message of which the NIC has not written an octet is found,
// also when the one before was right.
func TestUnwritten(t *testing.T) {
	for _, client := range []bool{true, false} {
		for _, size := range []int{1, 2, 4096, 10000} {
			us, peer := checkerOf(client, false, size), newOwnClient(size)
			tx, rx := make([]byte, size), make([]byte, size)
			for k := range 5 {
				us.prepare(tx, rx, k)
				if k < 4 {
					peer.fill(rx, k)
				}
				us.examine(rx)
				if k < 4 {
					require.Nil(t, us.bad)
				}
			}
			require.NotNil(t, us.bad)
			require.Equal(t, 5, us.bad.message)
			require.Equal(t, 0, us.bad.offset)
			require.EqualValues(t, poison, us.bad.got)
		}
	}
}

// TestVanished: a peer that is gone ends the run, by the transport's retries
// since a message is on its way to it.
func TestVanished(t *testing.T) {
	for _, role := range roles {
		for _, events := range []bool{false, true} {
			t.Run(fmt.Sprint(role.name, events), func(t *testing.T) {
				t.Parallel()
				f := newLossyFake(t, 5000, "rx drop opcode=RC_SEND_*")
				cfg := config(t)
				cfg.Size, cfg.Events = 5000, events
				e := f.ours(cfg, role.client, 8)
				if !role.client {
					f.send()
				}
				err := e.wait()
				require.ErrorIs(t, err, &verbs.StatusError{Status: verbs.WCRetryExcErr})
				require.ErrorContains(t, err, "does the peer still run")
				require.ErrorContains(t, err, "path MTU 1024")
			})
		}
	}
}

// TestKilled: a peer of which the process ends mid-run.
func TestKilled(t *testing.T) {
	for _, role := range roles {
		t.Run(role.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, 5000)
			cfg := config(t)
			cfg.Size, cfg.Timeout = 5000, time.Second
			e := f.ours(cfg, role.client, 8)
			f.play(role.client, 5, fair)
			require.NoError(t, f.qp.Destroy())
			// Ours may have got a last message across or not.
			err := e.wait()
			if !errors.Is(err, &verbs.StatusError{Status: verbs.WCRetryExcErr}) {
				require.ErrorContains(t, err, "nothing came from the peer for 1")
			}
		})
	}
}

// TestSilent: what no retry finds out ends too.
func TestSilent(t *testing.T) {
	for _, role := range roles {
		for _, c := range []struct {
			name      string
			receives  int
			want      string
			exchanged int
		}{
			{"it owes a message", 8, "nothing came from the peer for ", 3},
			{"it owes the first message", 8, "nothing came from the peer for ", 0},
			{"it never has a receive", 0, "no receive for our message for ", 0},
		} {
			t.Run(role.name+" "+c.name, func(t *testing.T) {
				t.Parallel()
				f := newFake(t, 100)
				cfg := config(t)
				cfg.Size, cfg.Timeout = 100, 300*time.Millisecond
				e := f.ours(cfg, role.client, c.receives)
				f.play(role.client, c.exchanged, fair)
				if c.receives == 0 && !role.client {
					f.send() // ours answers it
				}
				err := e.wait()
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, "of 20 messages")
			})
		}
	}
}

// TestFewer: an end that is told of fewer iterations leaves; the other says so
// before its timeout is over.
func TestFewer(t *testing.T) {
	n := 10
	server, client := pair(t, func(c *Config) { c.Iters, n, c.Timeout = n, 5, 2*time.Second })
	require.NoError(t, client.wait())
	require.ErrorContains(t, server.wait(), "after 5 of 10 messages: has it ended, or been given another -n or -s?")
}

// TestSizes: both ends say that the sizes differ.
func TestSizes(t *testing.T) {
	for _, s := range [][2]int{{1000, 2000}, {2000, 1000}, {1, 100000}, {5000, 100}} {
		i := 0
		server, client := pair(t, func(c *Config) {
			c.Size, c.Timeout = s[i], 2*time.Second
			i++
		})
		for _, e := range []*end{server, client} {
			err := e.wait()
			require.Error(t, err, s)
			require.Contains(t, err.Error(), "-s", s)
		}
	}
}

// TestMTUs: differing path MTUs end by an error that names -m.
func TestMTUs(t *testing.T) {
	for _, m := range [][2]int{{1024, 4096}, {4096, 1024}} {
		i := 0
		server, client := pair(t, func(c *Config) {
			c.MTU, c.Size = m[i], 20000
			i++
		})
		for _, e := range []*end{server, client} {
			require.ErrorContains(t, e.wait(), "-m", m)
		}
	}
}

// TestInterrupt: ending the context ends a run in each of its phases.
func TestInterrupt(t *testing.T) {
	phases := map[string]func(t *testing.T, ctx context.Context, interrupt func()) *end{
		"listening": func(t *testing.T, ctx context.Context, interrupt func()) *end {
			cfg := config(t)
			cfg.Device = device(t, addr())
			e := start(t, ctx, cfg)
			interrupt()
			return e
		},
		"server's exchange": func(t *testing.T, ctx context.Context, interrupt func()) *end {
			cfg := config(t)
			cfg.Device = device(t, addr())
			e := start(t, ctx, cfg)
			c := connect(t, e.port)
			write(t, c, newFake(t, 10).address())
			read(t, c, 52)
			interrupt()
			return e
		},
		"client's exchange": func(t *testing.T, ctx context.Context, interrupt func()) *end {
			cfg := config(t)
			cfg.Device = device(t, addr())
			l := listen(t)
			cfg.Peer, cfg.Port = "127.0.0.1", portOf(l)
			e := start(t, ctx, cfg)
			read(t, accept(t, l), 52)
			interrupt()
			return e
		},
		"waiting for a message": func(t *testing.T, ctx context.Context, interrupt func()) *end {
			cfg := config(t)
			cfg.Device = device(t, addr())
			e := start(t, ctx, cfg)
			newFake(t, 10).dial(e.port, 1)
			interrupt()
			return e
		},
		"messages": func(t *testing.T, ctx context.Context, interrupt func()) *end {
			cfg := config(t)
			cfg.Device, cfg.Iters, cfg.Size = device(t, addr()), 1<<30, 10
			e := start(t, ctx, cfg)
			f := newFake(t, 10)
			f.dial(e.port, 8)
			f.play(false, 10, fair)
			interrupt()
			return e
		},
	}
	for name, phase := range phases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e := phase(t, ctx, cancel)
			require.ErrorIs(t, e.wait(), context.Canceled)
		})
	}
}

// TestInterruptLinger: a run that has everything ends well when it is
// interrupted while it only stays for the peer's sake.
func TestInterruptLinger(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := newFake(t, 10)
	cfg := config(t)
	cfg.Device, cfg.Size = device(t, addr()), 10
	e := start(t, ctx, cfg)
	c := connect(t, e.port) // held open, so that it stays
	write(t, c, f.address())
	f.up(read(t, c, 52), 8)
	write(t, c, "done\x00")
	f.play(false, cfg.Iters, fair)
	require.Equal(t, "", read(t, c, 0))
	eof(t, c)
	cancel()
	require.NoError(t, e.wait())
}
