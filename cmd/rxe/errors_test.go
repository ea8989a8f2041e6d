package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/testbed"
)

// beRxe makes the test binary be rxe, and refuse a kernel that refuses something
// (testbed.Refusals).
const (
	beRxe  = "GORXE_TEST_BE_RXE"
	refuse = "GORXE_TEST_REFUSE"
)

func TestMain(m *testing.M) {
	if os.Getenv(beRxe) != "" {
		if err := testbed.RefuseNamed(strings.Fields(os.Getenv(refuse))...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command prepares rxe.
func command(args ...string) *exec.Cmd {
	// Not os.Executable: the directory that go test builds in is closed to
	// other users.
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), beRxe+"=1")
	cmd.Dir = "/"
	return cmd
}

// nobody has a program run as user 65534; it takes root.
func nobody(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testbed.Nobody, Gid: testbed.Nobody}}
	return cmd
}

// process is a running rxe.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

func begin(t *testing.T, h *testbed.Host, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd}
	cmd.Stdout, cmd.Stderr = &p.out, &p.err
	if h != nil {
		h.Start(cmd)
		return p
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return p
}

// ends waits and returns the exit status.
func (p *process) ends() int {
	p.t.Helper()
	late := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
	err := p.cmd.Wait()
	if !late.Stop() {
		p.t.Fatalf("%v does not end:\n%s", p.cmd.Args, &p.err)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// fails checks that it ends as a program should that cannot do what is asked:
// status 1, one or two lines that say what to do, nothing else.
func (p *process) fails(wants ...string) {
	p.t.Helper()
	status, said := p.ends(), p.err.String()
	require.Equal(p.t, 1, status, said)
	require.True(p.t, strings.HasPrefix(said, "rxe: "), said)
	require.LessOrEqual(p.t, strings.Count(said, "\n"), 2, said)
	for _, never := range []string{"goroutine ", "Usage:", "panic", "%!", "<nil>"} {
		require.NotContains(p.t, said, never)
	}
	for _, w := range wants {
		require.Contains(p.t, said, w)
	}
}

// tcpPort returns a free one.
func tcpPort(t *testing.T) string {
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// serves waits until somebody has port 4791 of an address.
func serves(t *testing.T, at string) {
	t.Helper()
	require.Eventually(t, func() bool {
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(at), 4791)))
		if err == nil {
			c.Close()
		}
		return err != nil
	}, 20*time.Second, 5*time.Millisecond)
}

// each runs a test as root, where this is, and without privileges.
func each(t *testing.T, f func(t *testing.T, as func(*exec.Cmd) *exec.Cmd)) {
	same := func(c *exec.Cmd) *exec.Cmd { return c }
	if os.Getuid() != 0 {
		t.Run("user", func(t *testing.T) { f(t, same) })
		return
	}
	t.Run("root", func(t *testing.T) { f(t, same) })
	t.Run("nobody", func(t *testing.T) { f(t, nobody) })
}

// TestMistakes: what is wrong with flags and arguments is said at once, by a
// server too, which would otherwise wait for a client first.
func TestMistakes(t *testing.T) {
	at, port := testbed.Loopback(0).String(), tcpPort(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	each(t, func(t *testing.T, as func(*exec.Cmd) *exec.Cmd) {
		for _, c := range []struct {
			args  string
			wants []string
		}{
			{"--dev nosuch0", []string{`no such network interface: "nosuch0"`, "this host has lo"}},
			{"--addr 203.0.113.77", []string{"no interface has the address 203.0.113.77", "this host has 127.0.0.1"}},
			{"--addr here", []string{"here"}},
			{"--addr 127.0.0.1 --dev lo", []string{"--dev or --addr, not both"}},
			{"--link carrier", []string{"--link carrier", "auto, udp, packet and xdp"}},
			{"--faults pigeons", []string{"pigeons", "drop, dup", "an example is"}},
			{"--tap " + file + "/x.pcapng", []string{"cannot write the capture", "elsewhere"}},
			{"--shards 17", []string{"--shards 17", "1 to 16"}},
			{"--shards many", []string{"many"}},
			{"--addr " + at + " -g 1", []string{"-g 1", "only index 0", at}},
			{"--addr " + at + " -g -2", []string{"-g -2"}},
			{"-m 1000", []string{"256, 512, 1024, 2048 or 4096"}},
			{"-s 0", []string{"-s 0", "1 to"}},
			{"-n 0", []string{"-n 0"}},
			{"-i 2", []string{"-i 2", "one port"}},
			{"-x", []string{"'x'"}},
			{"a b", []string{"one PEER, not a and b"}},
			{"-s 64q", []string{"-s, --size 64q", "octets as a number", "such as 64k"}},
			{"--iters=abc", []string{"-n, --iters abc: it takes a number"}},
			{"--timeout 5", []string{"with its unit", "--timeout 5s"}},
			{"--addr lo", []string{"lo is a network interface", "-d lo"}},
			{"--addr 127.0.0.1/8", []string{"without the length of its network: --addr 127.0.0.1\n"}},
			{"--addr 127.0.0.1:4791", []string{"without a port: --addr 127.0.0.1\n"}},
			{"127.0.0.2:18515", []string{"without a port", "rc -p 18515 127.0.0.2"}},
			{"--dev rxe99", []string{`no such network interface: "rxe99"`}},
			{"127.0.0.1", []string{"nobody listens on TCP port " + port + " of 127.0.0.1", "start the server there first", "ibv_rc_pingpong -g"}},
			{"no.such.host.invalid", []string{"cannot find the host no.such.host.invalid", "an address"}},
		} {
			p := begin(t, nil, as(command(append([]string{"pingpong", "rc", "-p", port}, strings.Fields(c.args)...)...)))
			p.fails(c.wants...)
			require.Empty(t, p.out.String(), c.args)
		}
		for args, want := range map[string]string{
			"nosuch":                         "unknown command",
			"pingpong nosuch":                "unknown command",
			"demo x":                         "unknown command",
			"demo --faults bad":              "an example is",
			"demo --addr-a here":             "here",
			"demo --addr-a ::1 --addr-b ::1": "an address of its own",
			"decode /nosuch":                 "no such file",
			"decode":                         "needs a FILE",
			"decode a b":                     "one FILE at a time",
			"decode /":                       "/ is a folder",
			"devinfo eth0":                   "rxe devinfo -d eth0",
			"gids 192.0.2.1":                 "rxe gids --addr 192.0.2.1",
			"devinfo --addr lo":              "-d lo",
			"pingpong":                       "rxe pingpong rc [PEER]",
			"pingpong xsrq -g 1 host":        "not yet (it takes XRC queue pairs); there are rc, uc, ud and srq",
			"pingpong ud -m 1024 host":       "-m, --mtu is not supported here, because a datagram is one packet of -s octets",
			"pingpong ud -d lo -s 5000":      "-s 5000: a datagram is one packet, and lo with an MTU of 65536 carries messages of up to 4096 octets; use -s 4096 or less",
			"pingpong uc -s 3g":              "octets as a number",
			"pingpong uc 127.0.0.2:18515":    "rxe pingpong uc -p 18515 127.0.0.2",
			"pingpong uc 127.0.0.1 -p 9":     "rxe pingpong uc, or ibv_uc_pingpong -g N",
			"pingpong uc -q 4":               "unknown shorthand flag: 'q' in -q; rxe pingpong uc --help lists the flags",
			"pingpong srq -q 257":            "-q 257: the number of queue pairs is 1 to 256",
			"pingpong srq -q 0":              "-q 0: the number of queue pairs is 1 to 256",
			"pingpong srq -q 20 -r 10":       "-r 10: it takes a receive for each of the 20 queue pairs: -r 20",
			"pingpong srq -c -s 1m -r 30000": "choose less of either",
			"pingpong uc -l 8":               "0 to 7 on Ethernet",
			"pingpong rc --odp":              "-o, --odp is not supported here, because on-demand paging",
			"pingpong rc -oc host":           "-o, --odp is not supported here",
			"pingpong srq -o":                "-o, --odp is not supported here",
			"pingpong rc -O":                 "-O, --iodp is not supported here, because implicit on-demand paging",
			"pingpong rc --prefetch":         "-P, --prefetch is not supported here, because prefetching",
			"pingpong rc -j":                 "-j, --dm is not supported here, because device memory",
			"pingpong rc --new_send":         "-N, --new_send is not supported here, because it chooses between",
			"pingpong uc -t":                 "-t, --ts is not supported here, because only rc",
			"devinfo --dev nosuch":           "this host has lo",
		} {
			begin(t, nil, as(command(strings.Fields(args)...))).fails(want)
		}
		begin(t, nil, as(command("pingpong", "rc", ""))).fails("PEER is empty")
	})
}

// TestVersion: both ways to ask.
func TestVersion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		out, err := rxe(args)
		require.NoError(t, err)
		require.Regexp(t, `^rxe \S+.* go\d\S*\n$`, out)
	}
}

// TestOctets: what -s takes.
func TestOctets(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "4096": 4096, "64k": 65536, "64K": 65536, "2m": 2 << 20, "1M": 1 << 20, "0x10": 16} {
		n := 0
		require.NoError(t, octets{&n}.Set(text))
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "k", "k64", "6 4", "64kb", "1.5m", "99999999999"} {
		n := 7
		require.Error(t, octets{&n}.Set(text), text)
		require.Equal(t, 7, n)
	}
}

// TestTapDenied: a capture where this user may not write.
func TestTapDenied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user than the owner of a folder")
	}
	path := filepath.Join(t.TempDir(), "x.pcapng") // closed to others
	begin(t, nil, nobody(command("pingpong", "rc", "--tap", path))).fails("cannot write the capture", path, "permission denied")
}

// TestTapFull: a capture that cannot be written to its end fails the run, which
// is otherwise good, and tells its counters when asked to.
func TestTapFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}
	at, port := testbed.Loopback(0).String(), tcpPort(t)
	server := begin(t, nil, command("pingpong", "rc", "--addr", at, "-n", "20", "-p", port))
	serves(t, at)
	var client *process
	require.Eventually(t, func() bool {
		client = begin(t, nil, command("pingpong", "rc", "--addr", testbed.Loopback(1).String(), "-n", "20", "-p", port, "-v", "--tap", "/dev/full", at))
		client.ends()
		return !strings.Contains(client.err.String(), "nobody listens")
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, client.cmd.ProcessState.ExitCode())
	require.Regexp(t, `^rxe: tap: the capture is incomplete.*: write /dev/full: no space left on device\n$`, client.err.String())
	require.Contains(t, client.out.String(), "20 iters in ")
	require.Regexp(t, `(?m)^rdma_sends +20$`, client.out.String())
	require.NotRegexp(t, `(?m)^\w+ +0$`, client.out.String())
	require.Zero(t, server.ends(), server.err.String())
}

// TestAuto: who asks for --link auto is told in a few lines what that is, and what
// it goes without, if it does; nobody else is.
func TestAuto(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to compare with a user without capabilities")
	}
	const takes, missing = "rxe: --link auto is udp: it needs no privilege", "rxe: CAP_NET_RAW is missing, so "
	auto := []string{"--link", "auto"}
	for _, c := range []struct {
		name, refuse string
		nobody       bool
		args         []string
		says         []string // how the lines begin
	}{
		{"root", "", false, auto, nil},
		{"nobody", "", true, auto, []string{takes, missing}},
		{"nobody, by default", "", true, nil, nil},
		{"nobody, by name", "", true, []string{"--link", "udp"}, nil},
		{"an old kernel", "gso gro", false, auto, []string{takes, "rxe: no UDP segmentation offload: ", "rxe: no UDP receive offload: "}},
		{"small buffers", "rcvbuf", true, auto, []string{takes, missing, "rxe: receive buffer of 208 KiB bears 64 packets in flight, not 512; "}},
		{"no IPv6", "ipv6", false, auto, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			as := func(cmd *exec.Cmd) *exec.Cmd {
				cmd.Env = append(cmd.Env, refuse+"="+c.refuse)
				if c.nobody {
					return nobody(cmd)
				}
				return cmd
			}
			at, port := testbed.Loopback(0).String(), tcpPort(t)
			args := append([]string{"pingpong", "rc", "-n", "20", "-p", port}, c.args...)
			server := begin(t, nil, as(command(append(args, "--addr", at)...)))
			serves(t, at)
			client := begin(t, nil, as(command(append(args, "--addr", testbed.Loopback(1).String(), at)...)))
			for _, p := range []*process{client, server} {
				require.Zero(t, p.ends(), p.err.String())
				lines := slices.Collect(strings.Lines(p.err.String()))
				require.Len(t, lines, len(c.says), p.err.String())
				for i, want := range c.says {
					require.True(t, strings.HasPrefix(lines[i], want), "%s\nbegins otherwise than\n%s", lines[i], want)
				}
			}
		})
	}
}

// TestPacketDenied: the packet link without the capability it needs.
func TestPacketDenied(t *testing.T) {
	cmd := command("pingpong", "rc", "--addr", testbed.Loopback(0).String(), "--link", "packet")
	if os.Getuid() == 0 {
		cmd = nobody(cmd)
	}
	begin(t, nil, cmd).fails("CAP_NET_RAW", "--link udp")
}

// TestPortTaken: the second server on an address is told who has the first.
func TestPortTaken(t *testing.T) {
	at := testbed.Loopback(0).String()
	first := begin(t, nil, command("pingpong", "rc", "--addr", at, "-p", tcpPort(t)))
	serves(t, at)
	second := begin(t, nil, command("pingpong", "rc", "--addr", at, "-p", tcpPort(t)))
	second.fails("UDP port 4791 of "+at+" is taken by process "+fmt.Sprint(first.cmd.Process.Pid), "stop it")
	if os.Getuid() == 0 { // who may not look at the first
		begin(t, nil, nobody(command("pingpong", "rc", "--addr", at, "-p", tcpPort(t)))).fails("is taken by user 0", "ss -lunp")
	}
	require.NoError(t, first.cmd.Process.Signal(os.Interrupt))
	first.fails("interrupted")
}

// TestTCPPortTaken: two servers on one TCP port.
func TestTCPPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	begin(t, nil, command("pingpong", "rc", "-p", port)).fails("TCP port "+port+" is taken", "-p chooses another")
}

// TestPathMTU: a path MTU that the interface does not carry, said before any
// peer is told anything.
func TestPathMTU(t *testing.T) {
	pair := testbed.NewPair(t, 1500)
	for _, peer := range []string{"", testbed.B4.String()} {
		args := []string{"pingpong", "rc", "--dev", testbed.Iface, "-m", "4096"}
		if peer != "" {
			args = append(args, peer)
		}
		begin(t, pair.A, nobody(command(args...))).fails("-m 4096: veth0 has an MTU of 1500, which carries a path MTU of 1024", "use -m 1024 on both sides", "ip link set veth0 mtu 4176")
	}
}

// TestFamilies: each side names a GID of another family.
func TestFamilies(t *testing.T) {
	pair := testbed.NewPair(t, 1500)
	server := begin(t, pair.A, nobody(command("pingpong", "rc", "--dev", testbed.Iface, "-g", "1")))
	var client *process
	require.Eventually(t, func() bool {
		client = begin(t, pair.B, nobody(command("pingpong", "rc", "--dev", testbed.Iface, "-g", "2", testbed.A4.String())))
		return client.ends() == 1 && !strings.Contains(client.err.String(), "nobody listens")
	}, 20*time.Second, 10*time.Millisecond)
	server.fails("the peer's GID is IPv6 fd00:2::2, this side's IPv4 192.0.2.1", "-g N")
	require.Contains(t, client.err.String(), "it closed the connection")
}

// TestPingpong runs both roles of each as programs, without privileges, by the
// route to the peer: neither --dev nor --addr, over both families.
func TestPingpong(t *testing.T) {
	pair := testbed.NewPair(t, 1500)
	for svc, octets := range map[string]string{"rc": "409600", "uc": "409600", "ud": "102400", "srq": "409600"} {
		for _, peer := range []netip.Addr{testbed.A4, testbed.A6} {
			server := begin(t, pair.A, nobody(command("pingpong", svc, "-n", "50", "-c")))
			var client *process
			require.Eventually(t, func() bool {
				client = begin(t, pair.B, nobody(command("pingpong", svc, "-n", "50", "-c", peer.String())))
				return client.ends() == 0 || !strings.Contains(client.err.String(), "nobody listens")
			}, 20*time.Second, 10*time.Millisecond)
			require.Empty(t, client.err.String())
			require.Zero(t, server.ends(), server.err.String())
			for _, p := range []*process{server, client} {
				require.Contains(t, p.out.String(), octets+" bytes in ")
				require.Contains(t, p.out.String(), "50 iters in ")
			}
		}
	}
}

// TestPingpongLost: what a lost datagram looks like to who runs the program.
func TestPingpongLost(t *testing.T) {
	pair := testbed.NewPair(t, 1500)
	server := begin(t, pair.A, nobody(command("pingpong", "ud", "--timeout", "1s")))
	var client *process
	require.Eventually(t, func() bool {
		client = begin(t, pair.B, nobody(command("pingpong", "ud", "--timeout", "1s", "--faults", "tx drop first=20", testbed.A4.String())))
		return client.ends() == 1 && !strings.Contains(client.err.String(), "nobody listens")
	}, 20*time.Second, 10*time.Millisecond)
	require.Contains(t, client.err.String(), "after 0 of 1000 messages: the fault rules of this side break traffic on purpose: tx drop first=20")
	server.fails("nothing came from the peer for 1", "after 0 of 1000 messages: UD repeats no packet", "is 192.0.2.2 the peer's address on this network")
}

// TestDemo runs where nothing can be written, as user 65534 where this is root.
func TestDemo(t *testing.T) {
	cmd := command("demo", "--time", "20ms", "--addr-a", testbed.Loopback(0).String(), "--addr-b", testbed.Loopback(1).String())
	if os.Getuid() == 0 {
		cmd = nobody(cmd)
	}
	p := begin(t, nil, cmd)
	require.Zero(t, p.ends(), p.err.String())
	require.Contains(t, p.out.String(), "No capture was written: open gorxe-demo.pcapng: permission denied")
	require.Contains(t, p.out.String(), "RDMA WRITE")
}
