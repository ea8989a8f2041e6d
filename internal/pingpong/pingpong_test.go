package pingpong

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is far more than what must end at once needs on a busy machine.
const soon = 20 * time.Second

var addrs atomic.Uint32

// addr returns a loopback address that nobody else uses, for port 4791 has one
// owner per address: those of 127.18 are this package's, and where each process
// of it begins depends on its number, since two may run at a time.
func addr() netip.Addr {
	for {
		n := uint16(os.Getpid()*251) + uint16(addrs.Add(1))
		a := netip.AddrFrom4([4]byte{127, 18, byte(n >> 8), byte(n)})
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 4791)))
		if err == nil {
			c.Close()
			return a
		}
	}
}

func device(t *testing.T, a netip.Addr) *verbs.Context {
	t.Helper()
	dev, err := gorxe.Open(gorxe.Config{Addr: a.String(), Link: gorxe.LinkUDP})
	require.NoError(t, err)
	t.Cleanup(func() { dev.Close() })
	return dev
}

// end is a Run in a goroutine.
type end struct {
	t    *testing.T
	port int // of a server
	out  bytes.Buffer
	done chan error
}

func start(t *testing.T, ctx context.Context, cfg Config) *end {
	t.Helper()
	e := &end{t: t, done: make(chan error, 1)}
	ready := make(chan int, 1)
	cfg.Out, cfg.Ready = &e.out, func(port int) { ready <- port }
	go func() { e.done <- Run(ctx, cfg) }()
	if cfg.Peer != "" {
		return e
	}
	select {
	case e.port = <-ready:
	case err := <-e.done:
		t.Fatalf("the server does not listen: %v", err)
	}
	return e
}

// wait returns the error of the Run, which must end soon.
func (e *end) wait() error {
	e.t.Helper()
	select {
	case err := <-e.done:
		return err
	case <-time.After(soon):
		e.t.Fatal("the run does not end")
	}
	return nil
}

// patient is a transport timeout of a second: hundreds of queue pairs that send
// at once overflow a socket's buffer where the other end gets no processor.
const patient = 18

// config is a short run; the server takes any free port.
func config(*testing.T) Config { return configOf(RC) }

func configOf(svc Service) Config {
	c := Default(svc)
	c.Port, c.Iters, c.Timeout, c.linger = 0, 20, soon, 10*time.Millisecond
	if svc == SRQ {
		c.ackTimeout = patient
	}
	return c
}

// pair runs a server and a client on two devices to their ends.
func pair(t *testing.T, change func(*Config)) (server, client *end) {
	t.Helper()
	return pairOf(t, RC, change)
}

func pairOf(t *testing.T, svc Service, change func(*Config)) (server, client *end) {
	t.Helper()
	s, c := configOf(svc), configOf(svc)
	change(&s)
	change(&c)
	if s.Device == nil {
		s.Device, c.Device = device(t, addr()), device(t, addr())
	}
	server = start(t, t.Context(), s)
	c.Peer, c.Port = "127.0.0.1", server.port
	client = start(t, t.Context(), c)
	return server, client
}

// TestOptions: every option, from its smallest to its largest useful value.
func TestOptions(t *testing.T) {
	cases := map[string]func(*Config){
		"defaults": func(c *Config) { c.Iters = 1000 },
		"events":   func(c *Config) { c.Events = true },
		"check":    func(c *Config) { c.Check = true },
		"stamps":   func(c *Config) { c.Stamps = true },
		"all":      func(c *Config) { c.Events, c.Check, c.Stamps, c.GIDIndex, c.SL = true, true, true, 0, 5 },
		"once":     func(c *Config) { c.Iters = 1 },
		"once -c":  func(c *Config) { c.Iters, c.Check = 1, true },
		"gid":      func(c *Config) { c.GIDIndex = 0 },
		"deep":     func(c *Config) { c.RxDepth = 4096 },
	}
	for _, n := range []int{1, 2, 3} {
		cases[fmt.Sprint("depth ", n)] = func(c *Config) { c.RxDepth, c.Iters = n, 100 }
	}
	for _, n := range []int{1, 2, 1023, 4096, 4097, 65536, 1 << 20} {
		cases[fmt.Sprint("size ", n)] = func(c *Config) { c.Size = n }
		cases[fmt.Sprint("check size ", n)] = func(c *Config) { c.Size, c.Check = n, true }
	}
	for _, n := range []int{256, 512, 1024, 2048, 4096} {
		cases[fmt.Sprint("mtu ", n)] = func(c *Config) { c.MTU, c.Size, c.Check = n, 20001, true }
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := pair(t, change)
			require.NoError(t, client.wait())
			require.NoError(t, server.wait())
			require.Regexp(t, `^  local address: .*\n  remote address: .*\n\d+ bytes in `, server.out.String())
			require.Regexp(t, `^  local address: .*\n  remote address: .*\n\d+ bytes in `, client.out.String())
		})
	}
}

// TestLoss: what the transport repeats is invisible, also between the last
// message and the end.
func TestLoss(t *testing.T) {
	for _, check := range []bool{false, true} {
		a, b := addr(), addr()
		server, client := pair(t, func(c *Config) {
			c.Size, c.Iters, c.Check, c.linger = 9000, 60, check, lingerTime
			at := a
			a, b = b, a // one for each of the two
			dev, err := gorxe.Open(gorxe.Config{Addr: at.String(), Link: gorxe.LinkUDP, Faults: "tx drop 4%; rx dup 3%; rx reorder 3%", Seed: 5})
			require.NoError(t, err)
			t.Cleanup(func() { dev.Close() })
			c.Device = dev
		})
		require.NoError(t, client.wait())
		require.NoError(t, server.wait())
	}
}

// TestIPv6 has both queue pairs on one device, since a host has one ::1.
func TestIPv6(t *testing.T) {
	dev, err := gorxe.Open(gorxe.Config{Addr: "::1", Link: gorxe.LinkUDP})
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		t.Skip("needs IPv6 on lo")
	case errors.Is(err, syscall.EADDRINUSE):
		t.Skip("needs port 4791 of ::1, which somebody has: ", err)
	case err != nil && !hasIPv6():
		t.Skip("needs IPv6 on lo: ", err)
	}
	require.NoError(t, err)
	defer dev.Close()
	s := config(t)
	s.Device, s.Check, s.Size = dev, true, 10000
	server := start(t, t.Context(), s)
	c := s
	c.Peer, c.Port = "::1", server.port
	client := start(t, t.Context(), c)
	require.NoError(t, client.wait())
	require.NoError(t, server.wait())
	require.Contains(t, client.out.String(), "GID ::1\n")
}

func hasIPv6() bool {
	_, err := gorxe.Probe(gorxe.Config{Addr: "::1", Link: gorxe.LinkUDP})
	return err == nil
}

// TestOpen: a device that is opened for the connection is closed with it.
func TestOpen(t *testing.T) {
	var opened []*verbs.Context
	s := config(t)
	a, b := addr(), addr()
	opener := func(at netip.Addr) func(netip.Addr) (*verbs.Context, error) {
		return func(local netip.Addr) (*verbs.Context, error) {
			require.Equal(t, "127.0.0.1", local.String())
			dev, err := gorxe.Open(gorxe.Config{Addr: at.String(), Link: gorxe.LinkUDP})
			opened = append(opened, dev)
			return dev, err
		}
	}
	s.Open = opener(a)
	server := start(t, t.Context(), s)
	c := config(t)
	c.Peer, c.Port, c.Device = "127.0.0.1", server.port, device(t, b)
	client := start(t, t.Context(), c)
	require.NoError(t, client.wait())
	require.NoError(t, server.wait())
	require.Len(t, opened, 1)
	_, err := opened[0].Counters()
	require.ErrorIs(t, err, verbs.ErrClosed)

	want := errors.New("no device today")
	s.Open = func(netip.Addr) (*verbs.Context, error) { return nil, want }
	server = start(t, t.Context(), s)
	c.Port = server.port
	client = start(t, t.Context(), c)
	require.ErrorIs(t, server.wait(), want)
	require.ErrorContains(t, client.wait(), "no address from the peer: it closed the connection after 0 of 52 octets")
}

// TestOutput: the lines of the original, figures aside.
func TestOutput(t *testing.T) {
	a, b := addr(), addr()
	devs := []*verbs.Context{device(t, a), device(t, b)}
	server, client := pair(t, func(c *Config) {
		c.Stamps, c.Size, c.Iters = true, 100, 3
		c.Device, devs = devs[0], devs[1:]
	})
	require.NoError(t, client.wait())
	require.NoError(t, server.wait())
	const golden = `  local address:  LID 0x0000, QPN 0x######, PSN 0x######, GID ::ffff:LOCAL
  remote address: LID 0x0000, QPN 0x######, PSN 0x######, GID ::ffff:REMOTE
600 bytes in #.## seconds = #.## Mbit/sec
3 iters in #.## seconds = #.## usec/iter
Max receive completion clock cycles = #
Min receive completion clock cycles = #
Average receive completion clock cycles = #.######
`
	for _, c := range []struct {
		out           string
		local, remote netip.Addr
	}{{server.out.String(), a, b}, {client.out.String(), b, a}} {
		got := c.out
		for _, r := range [][2]string{
			{`(QPN|PSN) 0x[0-9a-f]{6}`, "$1 0x######"},
			{`::ffff:` + c.local.String() + `\n`, "::ffff:LOCAL\n"},
			{`::ffff:` + c.remote.String() + `\n`, "::ffff:REMOTE\n"},
			{`\d+\.\d\d( seconds| Mbit| usec)`, "#.##$1"},
			{`cycles = \d+\.\d{6}\n`, "cycles = #.######\n"},
			{`cycles = \d+\n`, "cycles = #\n"},
		} {
			got = regexp.MustCompile(r[0]).ReplaceAllString(got, r[1])
		}
		require.Equal(t, golden, got)
	}
}

// TestConfig: what cannot be is refused before anybody is waited for.
func TestConfig(t *testing.T) {
	dev := device(t, addr())
	small, err := gorxe.Probe(gorxe.Config{Addr: addr().String(), Link: gorxe.LinkUDP})
	require.NoError(t, err)
	defer small.Close()
	for want, change := range map[string]func(*Config){
		"-p 65536":  func(c *Config) { c.Port = 65536 },
		"-p -1":     func(c *Config) { c.Port = -1 },
		"-p 0":      func(c *Config) { c.Peer = "localhost" },
		"-i 2":      func(c *Config) { c.IBPort = 2 },
		"-s 0":      func(c *Config) { c.Size = 0 },
		"-s 214748": func(c *Config) { c.Size = verbs.MaxMessage + 1 },
		"-m 1000":   func(c *Config) { c.MTU = 1000 },
		"-r 0":      func(c *Config) { c.RxDepth = 0 },
		"-r 1000":   func(c *Config) { c.RxDepth = 1000000 },
		"-n 0":      func(c *Config) { c.Iters = 0 },
		"-l 8":      func(c *Config) { c.SL = 8 },
		"-g -2":     func(c *Config) { c.GIDIndex = -2 },
		"-g 1":      func(c *Config) { c.GIDIndex = 1 },
		"timeout 0": func(c *Config) { c.Timeout = 0 },
	} {
		c := config(t)
		c.Device = dev
		change(&c)
		require.ErrorContains(t, Run(t.Context(), c), want)
	}
}

// TestFaultsNamed: who breaks traffic on purpose is told so, and not to look
// at the network.
func TestFaultsNamed(t *testing.T) {
	r := &run{cfg: &Config{MTU: 1024}, lanes: []*lane{{}}}
	w := &verbs.WC{ID: sendWR, Status: verbs.WCRetryExcErr, Reason: trace.FailRetryExceeded}
	require.ErrorContains(t, r.complete(w), "firewall")
	r.cfg.Faults = "tx drop 100%"
	err := r.complete(w)
	require.ErrorIs(t, err, &verbs.StatusError{Status: verbs.WCRetryExcErr})
	require.ErrorContains(t, err, "the fault rules of this side break traffic on purpose: tx drop 100%")
	for _, innocent := range []string{"firewall", "4791", "-g"} {
		require.NotContains(t, err.Error(), innocent)
	}
}
