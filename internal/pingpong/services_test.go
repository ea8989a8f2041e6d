package pingpong

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

var unreliable = []Service{UC, UD}

// TestServices: uc, ud and srq with themselves, over sockets.
func TestServices(t *testing.T) {
	type change = func(*Config)
	cases := map[string]change{
		"defaults": func(c *Config) { c.Iters = 300 },
		"events":   func(c *Config) { c.Events = true },
		"sl":       func(c *Config) { c.SL = 3 },
		"check":    func(c *Config) { c.Iters = 300 },
		"once":     func(c *Config) { c.Iters = 1 },
		"gid":      func(c *Config) { c.GIDIndex = 0 },
	}
	for _, n := range []int{1, 2, 3} {
		cases[fmt.Sprint("depth ", n)] = func(c *Config) { c.RxDepth, c.NumQP = n, n }
	}
	for _, n := range []int{1, 2, 1023, 4096} {
		cases[fmt.Sprint("size ", n)] = func(c *Config) { c.Size = n }
	}
	for _, svc := range []Service{UC, UD, SRQ} {
		all := map[string]change{}
		for name, f := range cases {
			all[name] = f
		}
		if svc != UD {
			all["long"] = func(c *Config) { c.Size = 100000 }
			all["longer than a packet"] = func(c *Config) { c.Size = 4097 }
			for _, m := range []int{256, 4096} {
				all[fmt.Sprint("mtu ", m)] = func(c *Config) { c.MTU, c.Size = m, 20001 }
			}
		}
		if svc == SRQ {
			all["a queue pair"] = func(c *Config) { c.NumQP = 1 }
			all["most"] = func(c *Config) { c.NumQP, c.Iters, c.RxDepth, c.Size = 256, 1000, 256, 100 }
			all["fewer messages than queue pairs"] = func(c *Config) { c.NumQP, c.Iters = 16, 5 }
		}
		for name, f := range all {
			t.Run(fmt.Sprint(svc, " ", name), func(t *testing.T) {
				t.Parallel()
				server, client := pairOf(t, svc, func(c *Config) {
					c.Check = name != "defaults"
					f(c)
				})
				require.NoError(t, client.wait())
				require.NoError(t, server.wait())
			})
		}
	}
}

// TestInMemory: every service over link/mem, by both families.
func TestInMemory(t *testing.T) {
	for _, svc := range []Service{RC, UC, UD, SRQ} {
		for gid := range 2 {
			t.Run(fmt.Sprint(svc, gid), func(t *testing.T) {
				t.Parallel()
				a, b := gorxe.NewPair(gorxe.PairConfig{Seed: 3})
				defer a.Close()
				defer b.Close()
				devs := []*verbs.Context{a, b}
				server, client := pairOf(t, svc, func(c *Config) {
					c.Device, devs = devs[0], devs[1:]
					c.GIDIndex, c.Check, c.Iters = gid, true, 200
				})
				require.NoError(t, client.wait())
				require.NoError(t, server.wait())
			})
		}
	}
}

// TestSRQLoss: what the transport of srq repeats is invisible.
func TestSRQLoss(t *testing.T) {
	a, b := gorxe.NewPair(gorxe.PairConfig{Seed: 7, Faults: "tx drop 2%; rx dup 2%; rx reorder 2%"})
	defer a.Close()
	defer b.Close()
	devs := []*verbs.Context{a, b}
	server, client := pairOf(t, SRQ, func(c *Config) {
		c.Device, devs = devs[0], devs[1:]
		c.GIDIndex, c.Check, c.Iters, c.linger = 0, true, 200, lingerTime
	})
	require.NoError(t, client.wait())
	require.NoError(t, server.wait())
}

// TestUCDuplicates: a repeated packet of an unreliable connection is known by
// its PSN.
func TestUCDuplicates(t *testing.T) {
	a, b := gorxe.NewPair(gorxe.PairConfig{Seed: 7, Faults: "rx dup 50%"})
	defer a.Close()
	defer b.Close()
	devs := []*verbs.Context{a, b}
	server, client := pairOf(t, UC, func(c *Config) {
		c.Device, devs = devs[0], devs[1:]
		c.GIDIndex, c.Check, c.Iters = 0, true, 200
	})
	require.NoError(t, client.wait())
	require.NoError(t, server.wait())
}

// TestLost: a message that nothing repeats ends a run, in an error that says how
// far it came and where to look.
func TestLost(t *testing.T) {
	send := func(f *fake) { f.send() }
	for _, c := range []struct {
		name   string
		svc    Service
		peer   Service
		faults string // of the peer
		size   int    // of the peer's messages
		fair   int    // messages each way before
		then   func(*fake)
		wants  []string
	}{
		{"a packet", UC, UC, "tx drop opcode=UC_* every=7 limit=1", 3000, 2, send, []string{"after 2 of 20 messages: UC repeats no packet", "dropped here: ", "message_rest, the rest of an unreliable message whose beginning was lost"}},
		{"all of a message", UC, UC, "tx drop opcode=UC_* every=2 limit=1", 1000, 1, send, []string{"after 1 of 20 messages: UC repeats no packet", "nothing was dropped here: has the peer ended"}},
		{"a datagram", UD, UD, "tx drop opcode=UD_* every=4 limit=1", 1000, 3, send, []string{"after 3 of 20 messages: UD repeats no packet", "nothing was dropped here: has the peer ended"}},
		{"a peer that ended", UC, UC, "", 1000, 4, func(f *fake) { f.qp.Destroy() }, []string{"after 4 of 20 messages", "nothing was dropped here: has the peer ended"}},
		{"nothing ever came", UC, UC, "", 1000, 0, func(*fake) {}, []string{"after 0 of 20 messages", "is 127.18.", "a uc_pingpong"}},
		{"nothing ever came", UD, UD, "", 1000, 0, func(*fake) {}, []string{"after 0 of 20 messages", "is 127.18.", "a ud_pingpong"}},
		{"another Q_Key", UD, UD, "", 1000, 2, func(f *fake) { f.to.RemoteQKey = 7; f.send() }, []string{"after 2 of 20 messages", "dropped here: 1 x bad_qkey, the queue keys do not match"}},
		{"longer messages", UC, UC, "", 3001, 0, send, []string{"after 0 of 20 messages", "1 x message_too_long"}},
		{"longer datagrams", UD, UD, "", 1001, 0, send, []string{"after 0 of 20 messages", "1 x message_too_long"}},
		{"another service", UC, RC, "", 1000, 0, send, []string{"after 0 of 20 messages", "wrong_transport, the opcode's transport is not the queue pair's"}},
	} {
		for _, events := range []bool{false, true} {
			t.Run(fmt.Sprint(c.svc, " ", c.name, events), func(t *testing.T) {
				t.Parallel()
				f := newFakeOf(t, c.peer, c.size, c.faults)
				cfg := configOf(c.svc)
				cfg.Size, cfg.Timeout, cfg.Events = min(c.size, 3000), 300*time.Millisecond, events
				if c.svc == UD {
					cfg.Size = 1000
				}
				e := f.ours(cfg, false, 8)
				f.play(false, c.fair, fair)
				c.then(f)
				err := e.wait()
				require.Error(t, err)
				for _, w := range append(c.wants, "nothing came from the peer for ") {
					require.ErrorContains(t, err, w)
				}
				require.LessOrEqual(t, strings.Count(err.Error(), "\n"), 1)
				require.NotContains(t, e.out.String(), "iters in")
			})
		}
	}
}

// TestShorter: messages that are too short say so at once.
func TestShorter(t *testing.T) {
	for _, svc := range unreliable {
		f := newFakeOf(t, svc, 500, "")
		cfg := configOf(svc)
		cfg.Size = 1000
		e := f.ours(cfg, false, 8)
		f.send()
		require.ErrorContains(t, e.wait(), "the peer sends 500 octets, this side expects 1000: give both the same -s")
	}
}

// TestOwnFaults: who breaks traffic on purpose is told so.
func TestOwnFaults(t *testing.T) {
	const rules = "tx drop every=3 limit=1"
	for _, svc := range unreliable {
		a, b := gorxe.NewPair(gorxe.PairConfig{Faults: rules})
		defer a.Close()
		defer b.Close()
		devs := []*verbs.Context{a, b}
		server, client := pairOf(t, svc, func(c *Config) {
			c.Device, devs = devs[0], devs[1:]
			c.GIDIndex, c.Size, c.Faults, c.Timeout = 0, 100, rules, 300*time.Millisecond
		})
		for _, e := range []*end{server, client} {
			err := e.wait()
			require.ErrorContains(t, err, "of 20 messages: the fault rules of this side break traffic on purpose: "+rules)
			require.NotContains(t, err.Error(), "4791")
		}
	}
}

// TestStrangers: datagrams of another queue pair are none of the peer's, and do
// not keep a run alive.
func TestStrangers(t *testing.T) {
	f := newFakeOf(t, UD, 100, "")
	stranger := newFakeOf(t, UD, 100, "")
	cfg := configOf(UD)
	cfg.Size, cfg.Check, cfg.Timeout = 100, true, 500*time.Millisecond
	cfg.Device = device(t, addr())
	e := start(t, t.Context(), cfg)
	c := connect(t, e.port)
	write(t, c, f.address())
	msg := read(t, c, 52)
	write(t, c, "done\x00")
	c.Close()
	f.up(msg, 8)
	stranger.up(msg, 0)
	for range 3 {
		stranger.send()
		stranger.until(0, stranger.sent+1)
	}
	marked(0, f.data())
	f.play(false, 5, fair)
	done := time.After(soon)
	for err := error(nil); err == nil; { // until ours has had enough of it
		select {
		case err = <-e.done:
			require.ErrorContains(t, err, "after 5 of 20 messages")
			require.Regexp(t, `dropped here: .*\d+ datagrams of other queue pairs than the peer's`, err.Error())
			return
		case <-done:
			t.Fatal("strangers keep the run alive")
		default:
			stranger.send()
			stranger.until(0, stranger.sent+1)
		}
	}
}

// TestHostileAddresses: what is wrong with the addresses of srq.
func TestHostileAddresses(t *testing.T) {
	const good = "0000:00abcd:fedcba:" + gid4 + "\x00"
	for name, c := range map[string]struct{ says, want string }{
		"none":                {strings.Repeat(zeros, 256), "QPN 0x000000, which cannot be a pingpong's"},
		"no GID":              {strings.Repeat("0000:00abcd:fedcba:"+noGID+"\x00", 256), "-g N of ibv_*_pingpong"},
		"more":                {strings.Repeat(good, 256), "this side has 16 queue pairs, the peer 256: give both the same -q"},
		"one more":            {strings.Repeat(good, 17) + strings.Repeat(zeros, 239), "this side has 16 queue pairs, the peer 17"},
		"garbage in between":  {strings.Repeat(good, 5) + strings.Repeat("x", 52*251), "no pingpong address"},
		"a bad one":           {strings.Repeat(good, 5) + "0000:ffffff:fedcba:" + gid4 + "\x00" + strings.Repeat(zeros, 250), "QPN 0xffffff"},
		"another family last": {strings.Repeat(good, 5) + "0000:00abcd:fedcba:" + gid6 + "\x00" + strings.Repeat(zeros, 250), "the peer's GID is IPv6"},
		"rc":                  {good, "52 of 13312 octets came in 300ms; is it srq_pingpong"},
		"cut off":             {strings.Repeat(good, 255) + good[:51], "13311 of 13312 octets came in 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configOf(SRQ)
			cfg.Device, cfg.Timeout = device(t, addr()), 300*time.Millisecond
			e := start(t, t.Context(), cfg)
			write(t, connect(t, e.port), c.says)
			require.ErrorContains(t, e.wait(), c.want)
		})
	}
	t.Run("garbage after the last", func(t *testing.T) {
		es, err := decodeDests([]byte(good + good + zeros + strings.Repeat("\xff", 253*52)))
		require.NoError(t, err)
		require.Len(t, es, 2)
	})
	t.Run("a client's server with fewer", func(t *testing.T) {
		cfg := configOf(SRQ)
		cfg.Device = device(t, addr())
		l := listen(t)
		cfg.Peer, cfg.Port = "127.0.0.1", portOf(l)
		e := start(t, t.Context(), cfg)
		c := accept(t, l)
		msgs := read(t, c, 256*52)
		require.Equal(t, strings.Repeat(zeros, 240), msgs[16*52:])
		write(t, c, strings.Repeat(good, 15)+strings.Repeat(zeros, 241))
		require.ErrorContains(t, e.wait(), "this side has 16 queue pairs, the peer 15")
	})
}

// FuzzAddresses: whatever a peer sends is refused, or begins with what it is
// taken for.
func FuzzAddresses(f *testing.F) {
	const good = "0000:00abcd:fedcba:" + gid4 + "\x00"
	f.Add([]byte(good + good + zeros))
	f.Add([]byte(good + zeros + good))
	f.Add([]byte(good[:50]))
	f.Fuzz(func(t *testing.T, b []byte) {
		es, err := decodeDests(b)
		if err == nil {
			require.True(t, strings.HasPrefix(strings.ToLower(string(b)), string(encodeDests(es, len(es)))))
		}
	})
}

// TestServiceOutput: the lines of the originals, figures aside: ud has a colon
// before its own GID, srq a line for each queue pair.
func TestServiceOutput(t *testing.T) {
	for svc, want := range map[Service]string{
		UD:  `^  local address:  LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}: GID ::ffff:127.18.\d+.\d+\n  remote address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127.18.\d+.\d+\n6144 bytes in \S+ seconds = \S+ Mbit/sec\n3 iters in \S+ seconds = \S+ usec/iter\n$`,
		SRQ: `^(  local address:  LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127.18.\d+.\d+\n){16}(  remote address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127.18.\d+.\d+\n){16}24576 bytes in \S+ seconds = \S+ Mbit/sec\n3 iters in \S+ seconds = \S+ usec/iter\n$`,
	} {
		server, client := pairOf(t, svc, func(c *Config) { c.Iters = 3 })
		require.NoError(t, client.wait())
		require.NoError(t, server.wait())
		for _, e := range []*end{server, client} {
			require.Regexp(t, regexp.MustCompile(want), e.out.String())
		}
	}
}

// TestDatagramLimit: a message that is more than a packet is refused before
// anybody is waited for.
func TestDatagramLimit(t *testing.T) {
	cfg := configOf(UD)
	cfg.Device, cfg.Size = device(t, addr()), 4097
	require.ErrorContains(t, Run(t.Context(), withOut(cfg)), "carries messages of up to 4096 octets; use -s 4096 or less")
	cfg = configOf("xrc")
	require.ErrorContains(t, Run(t.Context(), withOut(cfg)), "there are rc, uc, ud and srq")
}
