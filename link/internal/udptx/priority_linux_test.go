package udptx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/wire"
)

func TestMain(m *testing.M) {
	testbed.Main(m, testbed.Helpers{"level": func(args []string) error {
		s, err := New(Config{Addrs: []netip.Addr{netip.MustParseAddr(args[0])}})
		if err != nil {
			return err
		}
		defer s.Close()
		for _, priority := range []uint8{6, 7, 7, 0} {
			f := newFlow(s, netip.MustParseAddr(args[0]), netip.MustParseAddr(args[0]), 0, priority)
			n, err := s.Send([]*wire.Burst{packets(f, 2, s.IDs())})
			fmt.Println(priority, n, s.Stats().TxPackets, s.Stats().TxErrors, err)
		}
		return nil
	}, "cnps": cnpsHelper})
}

// newFlow is a flow with a port that s has.
func newFlow(s *Sender, src, dst netip.Addr, tos, priority uint8) *wire.Flow {
	port, err := s.ResolvePort(src, 0xc004)
	if err != nil {
		panic(err)
	}
	return &wire.Flow{Src: src, Dst: dst, SrcPort: port, TOS: tos, TTL: 7, Priority: priority}
}

// packets is a burst of n small packets.
func packets(f *wire.Flow, n int, ids wire.IDPolicy) *wire.Burst {
	b := wire.NewBurst()
	b.Reset(f, 0, 0)
	for i := range n {
		h := b.Begin(bth.MakePSN(uint32(i)), 4, bth.BTHLen, 0)
		clear(h)
		h[0], h[11] = 4, byte(i)
		b.End()
	}
	b.Seal(ids)
	return b
}

// tosPriority is the priority that Linux derives from bits 1 to 4 of a type
// of service (tc-prio(8)).
var tosPriority = [16]int{0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4}

// readMark reads one packet: its traffic class and, since it came over lo, the
// priority it was sent with.
func readMark(t *testing.T, fd int) (tos, priority int) {
	t.Helper()
	oob := make([]byte, 256)
	_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 256), oob, 0)
	require.NoError(t, err, "a packet is missing")
	ms, err := unix.ParseSocketControlMessage(oob[:n])
	require.NoError(t, err)
	tos, priority = -1, -1
	for _, m := range ms {
		switch [2]int32{m.Header.Level, m.Header.Type} {
		case [2]int32{unix.IPPROTO_IP, unix.IP_TOS}:
			tos = int(m.Data[0])
		case [2]int32{unix.IPPROTO_IPV6, unix.IPV6_TCLASS}:
			tos = int(binary.NativeEndian.Uint32(m.Data))
		case [2]int32{unix.SOL_SOCKET, unix.SO_PRIORITY}:
			priority = int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return tos, priority
}

// soRcvPriority is SO_RCVPRIORITY.
const soRcvPriority = 82

// markReader is a socket on the RoCEv2 port that tells the priority.
func markReader(t *testing.T, a netip.Addr) int {
	fd := holder(t, netip.AddrPortFrom(a, wire.Port))
	require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, soRcvPriority, 1))
	if a.Is4() {
		require.NoError(t, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTOS, 1))
	} else {
		require.NoError(t, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1))
	}
	return fd
}

// TestPriority sends flows of all service levels and some traffic classes from
// one port, in one call and in several, and reads what each packet was marked
// with.
func TestPriority(t *testing.T) {
	if errors.Is(unix.SetsockoptInt(holder(t, netip.AddrPortFrom(v4a, 0)), unix.SOL_SOCKET, soRcvPriority, 1), unix.ENOPROTOOPT) {
		t.Skip("needs SO_RCVPRIORITY (Linux 6.14)")
	}
	h := testbed.NewHost(t)
	for _, c := range []struct {
		a     netip.Addr
		noGSO bool
	}{{a: netip.MustParseAddr("127.0.0.1")}, {a: netip.IPv6Loopback()}, {netip.MustParseAddr("127.0.0.1"), true}, {netip.IPv6Loopback(), true}} {
		t.Run(fmt.Sprintf("%v NoGSO=%v", c.a, c.noGSO), func(t *testing.T) {
			h.Do(func() {
				rx := markReader(t, c.a)
				s, err := New(Config{Addrs: []netip.Addr{c.a}, NoGSO: c.noGSO})
				require.NoError(t, err)
				defer s.Close()
				var bs []*wire.Burst
				for _, tos := range []uint8{0x6a, 0, 0xff} {
					for _, priority := range []uint8{3, 0, 3, 3, 7, 1, 2, 4, 5, 6, 0, 0} {
						bs = append(bs, packets(newFlow(s, c.a, c.a, tos, priority), 2, s.IDs()))
					}
				}
				check := func() {
					t.Helper()
					for _, b := range bs {
						want := int(b.Flow.Priority)
						if want == 0 && c.a.Is4() {
							want = tosPriority[b.Flow.TOS>>1&0xf]
						}
						for range b.Segs {
							tos, priority := readMark(t, rx)
							require.EqualValues(t, b.Flow.TOS, tos)
							require.Equal(t, want, priority, "service level %d, traffic class %#x", b.Flow.Priority, b.Flow.TOS)
						}
					}
				}
				n, err := s.Send(bs)
				require.NoError(t, err)
				require.Equal(t, 2*len(bs), n)
				check()
				for i := range bs {
					n, err := s.Send(bs[i : i+1])
					require.NoError(t, err)
					require.Equal(t, 2, n)
				}
				check()
				require.Zero(t, testing.AllocsPerRun(2, func() { _, _ = s.Send(bs[:8]) }))
			})
		})
	}
}

// TestPriorityRefused: a service level that the process may not use is an error
// that says so, and stands in nobody else's way.
func TestPriorityRefused(t *testing.T) {
	h := testbed.NewHost(t)
	for _, a := range []string{"127.0.0.1", "::1"} {
		out, err := h.Run(h.Helper(testbed.AsNobody, "level", a))
		require.NoError(t, err, out)
		refused := fmt.Sprintf("link: send from %s port 49156 to %s: service level 7: setsockopt SO_PRIORITY: operation not permitted; levels above 6 need CAP_NET_ADMIN or CAP_NET_RAW", a, a)
		want := fmt.Sprintf("6 2 2 0 <nil>\n7 2 2 2 %s\n7 2 2 4 %s\n0 2 4 4 <nil>\n", refused, refused)
		require.Equal(t, want, out)
	}
}

// TestPriorityOfECN: the ECN bits of a traffic class do not change the priority
// that Linux derives from it, of any DSCP: its table (rt_tos2priority) has bit 1,
// which is ECT(0), and gives with and without it the same.
func TestPriorityOfECN(t *testing.T) {
	if errors.Is(unix.SetsockoptInt(holder(t, netip.AddrPortFrom(v4a, 0)), unix.SOL_SOCKET, soRcvPriority, 1), unix.ENOPROTOOPT) {
		t.Skip("needs SO_RCVPRIORITY (Linux 6.14)")
	}
	h := testbed.NewHost(t)
	for _, a := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()} {
		h.Do(func() {
			rx := markReader(t, a)
			s, err := New(Config{Addrs: []netip.Addr{a}})
			require.NoError(t, err)
			defer s.Close()
			for dscp := range uint8(64) {
				for _, explicit := range []uint8{0, 6} {
					want := -1
					for ecn := range uint8(4) {
						n, err := s.Send([]*wire.Burst{packets(newFlow(s, a, a, dscp<<2|ecn, explicit), 2, s.IDs())})
						require.NoError(t, err)
						require.Equal(t, 2, n)
						for range n {
							tos, priority := readMark(t, rx)
							require.EqualValues(t, dscp<<2|ecn, tos)
							if want < 0 {
								want = priority
							}
							require.Equal(t, want, priority, "DSCP %d, ECN %d", dscp, ecn)
						}
					}
					if explicit != 0 {
						require.EqualValues(t, explicit, want)
					}
				}
			}
		})
	}
}

// cnpsHelper sends from one source port n times the bursts that letters name: d is
// data, c a CNP (DSCP 48, priority 6), p a CNP without a priority of its own. Its
// arguments are the address, n and the letters.
func cnpsHelper(args []string) error {
	a := netip.MustParseAddr(args[0])
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	s, err := New(Config{Addrs: []netip.Addr{a}})
	if err != nil {
		return err
	}
	defer s.Close()
	flows := map[rune]*wire.Flow{
		'd': newFlow(s, a, a, wire.ECNECT0, 0),
		'c': newFlow(s, a, a, 48<<2|wire.ECNECT0, 6),
		'p': newFlow(s, a, a, 48<<2|wire.ECNECT0, 0),
	}
	for range n {
		for _, letter := range args[2] {
			b := packets(flows[letter], 2, s.IDs())
			if k, err := s.Send([]*wire.Burst{b}); k != 2 || err != nil {
				return fmt.Errorf("sent %d packets: %w", k, err)
			}
		}
	}
	return nil
}

// TestCallsOfClasses counts, by strace, the system calls that flows of different
// traffic classes cost which share a socket. The class travels with the message. A
// priority does not: over IPv4 the socket keeps that of the CNPs, as data tell their
// class and with it the priority themselves; over IPv6 it is told at each change.
func TestCallsOfClasses(t *testing.T) {
	h := testbed.NewHost(t)
	for _, c := range []struct {
		addr, flows string
		sets        int // calls of setsockopt each time, once all flows have been seen
	}{
		{"127.0.0.1", "dddddddd", 0},
		{"127.0.0.1", "dpdpdpdp", 0},
		{"127.0.0.1", "dddddddc", 0},
		{"::1", "dddddddd", 0},
		{"::1", "dpdpdpdp", 0},
		{"::1", "dddddddc", 2},
	} {
		few, sentFew := countCalls(t, h, c.addr, 10, c.flows)
		many, sentMany := countCalls(t, h, c.addr, 30, c.flows)
		require.Equal(t, 20*c.sets, many-few, "setsockopt, %s over %s", c.flows, c.addr)
		require.Equal(t, 20*len(c.flows), sentMany-sentFew, "sendmsg, %s over %s", c.flows, c.addr)
	}
}

// countCalls runs cnpsHelper under strace.
func countCalls(t *testing.T, h *testbed.Host, addr string, n int, flows string) (sets, sends int) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace, which is not installed")
	}
	cmd := h.Helper(testbed.AsTest, "cnps", addr, strconv.Itoa(n), flows)
	// strace starts it: /proc/self/exe would be strace's own.
	self, err := os.Executable()
	require.NoError(t, err)
	traced := h.Command(testbed.AsTest, "strace", append([]string{"-f", "-qq", "-e", "trace=setsockopt,sendmsg,sendmmsg", "-e", "signal=none", self}, cmd.Args[1:]...)...)
	traced.Env = cmd.Env
	out, err := h.Run(traced)
	if strings.Contains(out, "ptrace") {
		t.Skipf("needs strace, which may not trace here: %s", out)
	}
	require.NoError(t, err, out)
	return strings.Count(out, "setsockopt("), strings.Count(out, "sendmsg(") + strings.Count(out, "sendmmsg(")
}
