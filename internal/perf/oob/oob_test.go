package oob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

func destsOf(host byte, n int) (all []Dest) {
	for i := range n {
		all = append(all, Dest{
			OutReads: 16, QPN: 0x11 + uint32(i), PSN: 0x100*uint32(i) + uint32(host), RKey: 0xabcd0000 + uint32(host), VAddr: 0x7f00_0000_0000 + uint64(i)<<12,
			GID: verbs.GID{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: host},
		})
	}
	return all
}

// pair has both ends' conversations at once, over an in-memory pipe in virtual
// time.
func pair(t *testing.T, client, server Config, runs int) (fromServer, fromClient []BWReport, cerr, serr error) {
	server.Server = true
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		result := func(size uint64) func() BWReport {
			return func() BWReport { size *= 2; return BWReport{size, 1000, 3, 2, 1} }
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			s, err := New(context.Background(), b, server)
			require.NoError(t, err)
			defer s.Close()
			_, _, fromClient, serr = converse(s, destsOf(2, max(1, server.QPs)), runs, result(1))
		})
		c, err := New(context.Background(), a, client)
		require.NoError(t, err)
		defer c.Close()
		_, _, fromServer, cerr = converse(c, destsOf(1, max(1, client.QPs)), runs, result(1))
	})
	return fromServer, fromClient, cerr, serr
}

// TestOursWithOurs: every program with every option that changes its steps.
func TestOursWithOurs(t *testing.T) {
	n := 0
	for k := range kinds {
		for bits := range 1 << 6 {
			cfg := Config{Kind: k, MTU: 1024, Both: bits&1 != 0, All: bits&2 != 0, Duration: bits&4 != 0, WriteImm: bits&8 != 0, Infinite: bits&16 != 0, RunTimeout: time.Hour}
			if bits&32 != 0 {
				cfg.QPs = 3
			}
			if _, err := cfg.withDefaults(); err != nil {
				continue
			}
			runs := 1
			if cfg.All {
				runs = 5
			}
			n++
			fromServer, fromClient, cerr, serr := pair(t, cfg, cfg, runs)
			require.NoError(t, errors.Join(cerr, serr), "%+v", cfg)
			switch {
			case cfg.endReport():
				require.Len(t, fromServer, runs)
				require.Equal(t, fromServer, fromClient)
				require.Equal(t, uint64(1)<<runs, fromServer[runs-1].Size)
			case cfg.finishReport() && !cfg.Infinite:
				require.Empty(t, fromServer)
				require.Equal(t, []BWReport{{2, 1000, 3, 2, 1}}, fromClient[:1])
			}
		}
	}
	require.Greater(t, n, 150)
}

// TestDifferentOptions: two ends that were started differently. None waits for
// ever, and where the exchange shows what is different, the error says so. It
// does not show a server's -b alone.
func TestDifferentOptions(t *testing.T) {
	base := Config{Kind: WriteBW, MTU: 1024, StepTimeout: 10 * time.Second, RunTimeout: time.Minute}
	change := func(f func(*Config)) Config { c := base; f(&c); return c }
	for name, tt := range map[string]struct {
		client, server Config
		want           error
		text           string
	}{
		"client -b":   {change(func(c *Config) { c.Both = true }), base, ErrMismatch, "both or neither of them -b"},
		"client -q 3": {change(func(c *Config) { c.QPs = 3 }), base, ErrMismatch, "same -q"},
		"server -q 3": {base, change(func(c *Config) { c.QPs = 3 }), ErrMismatch, ""},
		"-a -b and -b": {
			change(func(c *Config) { c.Both, c.All = true, true }), change(func(c *Config) { c.Both = true }),
			ErrMismatch, "-a",
		},
		"validation": {change(func(c *Config) { c.Validation = true }), base, nil, ""},
		"write_bw and send_bw": {
			base, change(func(c *Config) { c.Kind = SendBW }),
			ErrMismatch, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 1
			_, _, cerr, serr := pair(t, tt.client, tt.server, runs)
			err := errors.Join(cerr, serr)
			require.Error(t, err)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want, "%v; %v", cerr, serr)
			}
			require.ErrorContains(t, err, tt.text)
		})
	}
}

// scripted answers one of our clients, or asks one of our servers.
func scripted(t *testing.T, cfg Config, say ...string) (Peer, []Dest, error) {
	t.Helper()
	var peer Peer
	var remote []Dest
	var err error
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { io.Copy(io.Discard, theirs) })
		wg.Go(func() {
			for _, s := range say {
				if _, err := theirs.Write([]byte(s)); err != nil {
					break
				}
			}
			time.Sleep(time.Hour)
			theirs.Close()
		})
		var c *Conn
		c, err = New(context.Background(), ours, cfg)
		require.NoError(t, err)
		defer c.Close()
		if peer, err = c.Hello(); err != nil {
			return
		}
		remote, err = c.Exchange(destsOf(1, max(1, cfg.QPs)))
	})
	return peer, remote, err
}

const nul10 = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

func v(s string) string { return (s + nul10 + nul10)[:versionLen] }

const (
	page  = "\x00\x00\x10\x00"
	cache = "\x00\x00\x00\x40"
	mtu3  = "3\x00"
	gid4  = "00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:07"
	dest7 = "0000:0010:000012:abcdef:01020304:00007f0102030405:" + gid4 + ":00000000:\x00"
)

func TestHello(t *testing.T) {
	cfg := Config{Kind: ReadBW, MTU: 4096}
	for _, version := range []string{"5.70", "5.95", "6.06", "6.24", "6.27", "6.28", "6.29", "6.30.1-2", "24.10", "7"} {
		peer, remote, err := scripted(t, cfg, v(version), "\x00\x01\x00\x00", "\x00\x00\x00\x20", mtu3, dest7)
		require.NoError(t, err, version)
		require.Equal(t, Peer{Version: version, MTU: 1024, CycleBuffer: 65536, CacheLine: 64}, peer, "the smaller MTU, the larger of the others")
		require.Equal(t, []Dest{{OutReads: 16, QPN: 0x12, PSN: 0xabcdef, RKey: 0x01020304, VAddr: 0x7f0102030405, GID: verbs.GID{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 7}}}, remote)
	}
}

func TestHelloErrors(t *testing.T) {
	for _, tt := range []struct {
		say  []string
		want error
		text string
	}{
		{[]string{v("5.60")}, ErrVersion, "the peer is perftest 5.60, and before 5.70 perftest spoke otherwise; install a newer one there"},
		{[]string{v("0.58")}, ErrVersion, "before 5.70"},
		{[]string{"0000:000011:2f3a4b:"}, ErrVersion, "as the pingpong examples do"},
		{[]string{"SSH-2.0-OpenSSH_9"}, ErrVersion, "is another program at this port?"},
		{[]string{v("6.24") + "\xff\xff\xff\xff"}, ErrProtocol, "cycle buffer is -1 octets"},
		{[]string{v("6.24"), "\x7f\xff\xff\xff"}, ErrProtocol, "not between 1 and 67108864"},
		{[]string{v("6.24"), page, "\x00\x00\x00\x00"}, ErrProtocol, "cache line is 0 octets"},
		{[]string{v("6.24"), page, cache, "9\x00"}, ErrProtocol, "path MTU's code, which is 1 (256) to 5 (4096)"},
		{[]string{v("6.24"), page, cache, "31"}, ErrProtocol, "path MTU's code"},
		{[]string{v("6.24"), page, cache, mtu3, "0000:0001:000012:abcdef:01020304:00007f0102030405:00000000\x00"}, ErrMismatch, "without GID, as on InfiniBand"},
		{[]string{v("6.24"), page, cache, mtu3, strings.Replace(dest7, "000012", "ffffff", 1)}, ErrProtocol, "QPN 0xffffff"},
		{[]string{v("6.24"), page, cache, mtu3, strings.Replace(dest7, "0000:0010:000012:", "0000:010:0000012:", 1)}, ErrProtocol, "no perftest address"},
		{[]string{v("6.24"), page, cache, mtu3, strings.Replace(dest7, "0010", "0000", 1)}, ErrProtocol, "takes 0 READs or atomics at once"},
		{[]string{v("6.24"), page, cache, mtu3, strings.Replace(dest7, "0010", "0100", 1)}, ErrProtocol, "takes 256 READs"},
		{[]string{v("6.24"), page, cache, mtu3, strings.Replace(dest7, "ff:ff:c0:00:02:07", "00:00:00:00:00:00", 1)}, ErrMismatch, "empty GID"},
		{[]string{v("6.24"), page, cache, mtu3, strings.Replace(dest7, gid4, "ff:02"+strings.Repeat(":00", 13)+":01", 1)}, ErrMismatch, "no host's address"},
		{[]string{v("6.24"), page, cache, mtu3, strings.Replace(dest7, gid4, "fd:00"+strings.Repeat(":00", 13)+":07", 1)}, ErrMismatch, "the peer's GID is IPv6 fd00::7, this side's IPv4 192.0.2.1: choose one of the same family"},
		{[]string{v("6.24"), page, cache, mtu3, dest7[:50]}, ErrTimeout, "50 of 108 octets came in 1m0s"},
	} {
		for _, server := range []bool{false, true} {
			_, _, err := scripted(t, Config{Kind: ReadLat, MTU: 1024, Server: server}, tt.say...)
			require.ErrorIs(t, err, tt.want, "%q", tt.say)
			require.ErrorContains(t, err, tt.text)
		}
	}
}

// TestMulticastAddress: a group's GID and QPN are of a UD test alone, and a
// group has no family to agree on.
func TestMulticastAddress(t *testing.T) {
	group := strings.Replace(strings.Replace(dest7, "000012", "ffffff", 1), gid4, "ff:0e"+strings.Repeat(":00", 8)+":ff:ff:e0:00:00:01", 1)
	_, remote, err := scripted(t, Config{MTU: 1024, Datagram: true}, v("6.24"), page, cache, mtu3, group)
	require.NoError(t, err)
	require.Equal(t, uint32(0xffffff), remote[0].QPN)
	_, _, err = scripted(t, Config{MTU: 1024}, v("6.24"), page, cache, mtu3, group)
	require.ErrorIs(t, err, ErrProtocol)
}

// TestValidationAddress has the second virtual address of --data_validation
// (perftest_communication.h, 6.29): 17 octets more.
func TestValidationAddress(t *testing.T) {
	d := destsOf(7, 1)[0]
	d.ReadVAddr = 0x0102030405060708
	b := appendDest(nil, &d, true)
	require.Len(t, b, destLenDV)
	require.Equal(t, "0102030405060708:", string(b[50:67]))
	got, ok := parseDest(b, true)
	require.True(t, ok)
	require.Equal(t, d, got)
	_, remote, err := scripted(t, Config{MTU: 1024, Validation: true}, v("6.29"), page, cache, mtu3, string(b))
	require.NoError(t, err)
	require.Equal(t, []Dest{d}, remote)
}

func TestResults(t *testing.T) {
	for name, tt := range map[string]struct {
		client, server BWReport
		want           error
		told           bool
	}{
		"same":          {BWReport{65536, 5000, 3, 2, 1}, BWReport{65536, 5000, 4, 3, 2}, nil, true},
		"other size":    {BWReport{65536, 5000, 3, 2, 1}, BWReport{1024, 5000, 4, 3, 2}, ErrMismatch, true},
		"other count":   {BWReport{65536, 5000, 3, 2, 1}, BWReport{65536, 1000, 4, 3, 2}, ErrMismatch, true},
		"not a number":  {BWReport{65536, 5000, 3, 2, 1}, BWReport{65536, 5000, math.NaN(), 3, 2}, ErrProtocol, false},
		"negative":      {BWReport{65536, 5000, 3, 2, 1}, BWReport{65536, 5000, 1, -3, 2}, ErrProtocol, false},
		"too many":      {BWReport{65536, 5000, 3, 2, 1}, BWReport{65536, 1 << 63, 1, 3, 2}, ErrProtocol, false},
		"infinite rate": {BWReport{65536, 5000, 3, 2, 1}, BWReport{65536, 5000, 1, 3, math.Inf(1)}, ErrProtocol, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				cfg := Config{Kind: ReadBW, MTU: 1024, Both: true, RunTimeout: time.Minute}
				at := func(nc net.Conn, server bool) *Conn {
					cfg := cfg
					cfg.Server = server
					c, err := New(context.Background(), nc, cfg)
					require.NoError(t, err)
					c.stage = running
					c.local, c.remote = destsOf(1, 1), destsOf(1, 1)
					return c
				}
				c, s := at(a, false), at(b, true)
				defer c.Close()
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() {
					defer s.Close()
					s.End(tt.server)
				})
				r, told, err := c.End(tt.client)
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, tt.told, told)
				if told {
					require.Equal(t, tt.server, r)
				}
			})
		})
	}
}

func TestConfigErrors(t *testing.T) {
	for text, cfg := range map[string]Config{
		"no path MTU is 1500":                {MTU: 1500},
		"no such program: Kind(9)":           {MTU: 1024, Kind: 9},
		"with one queue pair, not 2":         {MTU: 1024, Kind: SendLat, QPs: 2},
		"leave out -b":                       {MTU: 1024, Kind: ReadLat, Both: true},
		"leave out --write_with_imm":         {MTU: 1024, Kind: SendBW, WriteImm: true},
		`version "6.28"`:                     {MTU: 1024, Version: "6.28"},
		`version "5.60"`:                     {MTU: 1024, Version: "5.60"},
		`version "me"`:                       {MTU: 1024, Version: "me"},
		"1 to 16384 are possible":            {MTU: 1024, QPs: 16385},
		"a cycle buffer of -1 octets":        {MTU: 1024, CycleBuffer: -1},
		"a cache line of 1048576 octets":     {MTU: 1024, CacheLine: 1 << 20},
		"version \"6.06.1.2.3.4.5.6.7.8.9\"": {MTU: 1024, Version: "6.06.1.2.3.4.5.6.7.8.9"},
	} {
		a, b := net.Pipe()
		_, err := New(context.Background(), a, cfg)
		require.ErrorContains(t, err, text)
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the connection is closed")
		b.Close()
		_, err = Dial(context.Background(), "127.0.0.1", 1, cfg)
		require.ErrorContains(t, err, text)
	}
}

func TestOutOfOrder(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	c, err := New(context.Background(), a, Config{MTU: 1024})
	require.NoError(t, err)
	_, err = c.Exchange(destsOf(1, 1))
	require.ErrorContains(t, err, "Exchange out of order")
	require.ErrorContains(t, c.Connected(), "out of order")
	require.ErrorContains(t, c.Begin(), "out of order")
	_, _, err = c.End(BWReport{})
	require.ErrorContains(t, err, "out of order")
	_, _, err = c.Finish(BWReport{})
	require.ErrorContains(t, err, "out of order")
	require.NoError(t, c.Close())
	_, err = c.Hello()
	require.ErrorContains(t, err, "out of order")
}

// TestTCP has a whole conversation over TCP, and the ways not to come to one.
func TestTCP(t *testing.T) {
	before := descriptors(t)
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	require.NoError(t, err)
	_, err = Listen(t.Context(), "127.0.0.1", l.Port())
	require.ErrorContains(t, err, "is taken, perhaps by another perftest; -p chooses another")
	cfg := Config{Kind: WriteBW, MTU: 4096}
	var wg sync.WaitGroup
	wg.Go(func() {
		s, err := l.Accept(context.Background(), cfg)
		require.NoError(t, err)
		require.True(t, s.Passive())
		_, _, told, err := converse(s, destsOf(2, 1), 1, func() BWReport { return BWReport{} })
		require.NoError(t, err)
		require.Equal(t, []BWReport{{65536, 5000, 3, 2, 1}}, told)
	})
	c, err := Dial(t.Context(), "127.0.0.1", l.Port(), cfg)
	require.NoError(t, err)
	require.False(t, c.Passive())
	local, remote := c.Addrs()
	require.Equal(t, "127.0.0.1", local.String())
	require.Equal(t, local, remote)
	start := time.Now()
	_, _, _, err = converse(c, destsOf(1, 1), 1, func() BWReport { return BWReport{65536, 5000, 3, 2, 1} })
	require.NoError(t, err)
	wg.Wait()
	require.Less(t, time.Since(start), lingerTimeout, "neither end waits for the other to hang up")
	require.NoError(t, l.Close(), "again")

	_, err = Dial(t.Context(), "127.0.0.1", l.Port(), cfg)
	require.ErrorContains(t, err, "start the server there first (rxe perf write_bw, or ib_write_bw, without -R and -z)")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	l, err = Listen(ctx, "", 0)
	require.NoError(t, err)
	time.AfterFunc(time.Millisecond, func() { cancel(cause) })
	_, err = l.Accept(ctx, cfg)
	require.ErrorIs(t, err, cause)
	_, err = Dial(ctx, "127.0.0.1", 1, cfg)
	require.ErrorIs(t, err, cause)
	require.Equal(t, before, descriptors(t))
}

// TestLastWord: perftest 6.06 writes "done" after the last step, and must not
// fail at it, which a closed socket with that word unread would make it.
func TestLastWord(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	tr := readTranscript(t, "testdata/6.06/send_bw.txt")
	for _, server := range []bool{false, true} {
		theirs, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		ours, err := l.Accept()
		require.NoError(t, err)
		word := make(chan error, 1)
		go func() {
			defer theirs.Close()
			for _, m := range tr.messages {
				if m.client == server {
					if _, err := theirs.Write(m.b); err != nil {
						word <- err
						return
					}
				} else if string(m.b) != "done\x00" {
					if _, err := io.ReadFull(theirs, make([]byte, len(m.b))); err != nil {
						word <- err
						return
					}
				}
			}
			_, err := io.ReadAll(theirs) // our end, and no reset
			word <- err
		}()
		cfg := tr.cfg
		cfg.Server = server
		local, _ := tr.side(!server)
		c, err := New(t.Context(), ours, cfg)
		require.NoError(t, err)
		start := time.Now()
		_, _, _, err = converse(c, local, 1, func() BWReport { return BWReport{} })
		require.NoError(t, err)
		require.NoError(t, <-word)
		require.Less(t, time.Since(start), lingerTimeout)
	}
}

// TestAlive: during a run the connection tells nothing but its end.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c, err := New(t.Context(), ours, Config{MTU: 1024})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Alive())
		require.False(t, c.Ahead())
		go theirs.Write([]byte("x"))
		synctest.Wait()
		require.NoError(t, c.Alive())
		require.True(t, c.Ahead())
		require.NoError(t, c.Alive())
	})
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c, err := New(t.Context(), ours, Config{MTU: 1024})
		require.NoError(t, err)
		defer c.Close()
		theirs.Close()
		require.ErrorIs(t, c.Alive(), ErrClosed)
	})
}

// TestRunTimeout: while the peer measures there is no limit but this one, and
// what it then says is bounded like any message.
func TestRunTimeout(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			cfg := Config{Kind: WriteBW, MTU: 1024, Server: true, StepTimeout: time.Second, RunTimeout: limit}
			c, err := New(t.Context(), ours, cfg)
			require.NoError(t, err)
			c.stage = running
			c.local, c.remote = destsOf(1, 1), destsOf(1, 1)
			var wg sync.WaitGroup
			defer wg.Wait()
			defer theirs.Close()
			wg.Go(func() {
				time.Sleep(time.Hour)
				theirs.Write([]byte("0000:"))
			})
			start := time.Now()
			_, _, err = c.Finish(BWReport{})
			require.ErrorIs(t, err, ErrTimeout)
			if limit == 0 {
				require.Equal(t, time.Hour+time.Second, time.Since(start))
				require.ErrorContains(t, err, "5 of 108 octets came in 1s")
			} else {
				require.Equal(t, limit, time.Since(start))
				require.ErrorContains(t, err, "0 of 108 octets came in 1m0s")
			}
		})
	}
}

func TestKindNames(t *testing.T) {
	for k := range kinds {
		require.NotContains(t, k.String(), "Kind")
		require.Equal(t, strings.HasSuffix(k.String(), "_lat"), k.Latency())
		require.Equal(t, strings.HasPrefix(k.String(), "send"), k.Send())
	}
	require.Equal(t, "Kind(8)", fmt.Sprint(kinds))
}
