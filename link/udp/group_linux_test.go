package udp

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/wire"
)

var (
	group4    = netip.MustParseAddr("239.1.2.3")
	group6    = netip.MustParseAddr("ff0e::4791:1") // global scope: the socket alone knows the interface
	groupLink = netip.MustParseAddr("ff02::4791:1")
)

func TestMain(m *testing.M) { testbed.Main(m, testbed.Helpers{"member": memberHelper}) }

// memberHelper joins a group, says so, and says what comes first.
func memberHelper(args []string) error {
	addr, group := netip.MustParseAddr(args[0]), netip.MustParseAddr(args[1])
	ls, err := Open(Config{Addrs: []netip.Addr{addr}})
	if err != nil {
		return err
	}
	defer ls[0].Close()
	if err := ls[0].(link.GroupJoiner).JoinGroup(group); err != nil {
		return err
	}
	fmt.Println("joined")
	ds := make([]wire.Datagram, 1)
	for {
		n, err := ls[0].Recv(ds)
		if err != nil {
			return err
		}
		if n != 0 {
			fmt.Println(os.Getuid(), ds[0].Src, ds[0].Dst, ds[0].Segments(), len(ds[0].Payload))
			return nil
		}
		if err := ls[0].Wait(-1); err != nil {
			return err
		}
	}
}

// groupFlow is a flow from l's host to a group on the host's interface.
func groupFlow(t *testing.T, l *Link, h *testbed.Host, src, group netip.Addr) (f *wire.Flow) {
	t.Helper()
	h.Do(func() {
		f = flow(t, l, src.WithZone(""), group, 0xc007)
		if src.Zone() != "" || group.IsLinkLocalMulticast() {
			f.Scope = uint32(h.Index(testbed.Iface))
		}
	})
	return f
}

func join(t *testing.T, l *Link, h *testbed.Host, group netip.Addr) {
	t.Helper()
	h.Do(func() { require.NoError(t, l.JoinGroup(group)) })
}

// mustSend sends a burst and returns its packets.
func mustSend(t *testing.T, l *Link, b *wire.Burst) []string {
	t.Helper()
	n, err := l.Send([]*wire.Burst{b})
	require.NoError(t, err)
	require.Equal(t, b.Len(), n)
	return segments(b)
}

// isMember reports whether the host has told the network of a membership.
func isMember(t *testing.T, h *testbed.Host, group netip.Addr) (member bool) {
	t.Helper()
	h.Do(func() {
		file, want := "/proc/thread-self/net/igmp6", fmt.Sprintf("%x", group.As16())
		if group.Is4() {
			a := group.As4() // the kernel prints the number in the host's byte order
			file, want = "/proc/thread-self/net/igmp", fmt.Sprintf("%02X%02X%02X%02X", a[3], a[2], a[1], a[0])
		}
		out, err := os.ReadFile(file)
		require.NoError(t, err)
		member = strings.Contains(string(out), want)
	})
	return member
}

// TestGroups sends to a group that is joined on the far host by two links, on
// the near one by another link and by the sender itself, and on the far host
// by a link on another interface. The first four get every packet once, the
// last gets none, and after leaving nobody does. On the wire the identification
// is what bursts are sealed for, and TTL and traffic class are the flow's.
func TestGroups(t *testing.T) {
	p := newPair(t, 9000)
	run(t, p.A, "ethtool", "-K", testbed.Iface, "tx-udp-segmentation", "off")
	a2, b2 := netip.MustParsePrefix("192.0.2.11/24"), netip.MustParsePrefix("192.0.2.12/24")
	p.A.AddAddr(a2)
	p.B.AddAddr(b2)
	elsewhere := netip.MustParsePrefix("198.51.100.2/24")
	p.AddWire("veth1", 9000, []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24")}, []netip.Prefix{elsewhere})
	run(t, p.A, "ip", "route", "add", "default", "dev", "veth1") // a wrong way out
	run(t, p.A, "ip", "route", "add", "multicast", "224.0.0.0/4", "dev", "veth1")
	run(t, p.A, "ip", "-6", "route", "add", "default", "dev", "veth1")
	wireside := startCapture(t, p.B)
	lla := linkLocal(t, p.A)
	for _, c := range []struct {
		name       string
		src, group netip.Addr
		opt        Options
	}{
		{"IPv4", testbed.A4, group4, Options{}},
		{"IPv4NoGSO", testbed.A4, group4, Options{NoGSO: true}},
		{"IPv4Plain", testbed.A4, group4, Options{NoGSO: true, NoGRO: true}},
		{"IPv4Local", testbed.A4, netip.MustParseAddr("224.0.0.200"), Options{}}, // never forwarded
		{"IPv6", testbed.A6, group6, Options{}},
		{"IPv6NoGSO", testbed.A6, group6, Options{NoGSO: true}},
		{"IPv6LinkGroup", testbed.A6, groupLink, Options{}},
		{"IPv6LinkLocal", lla, groupLink, Options{}},
		{"IPv6LinkLocalGlobal", lla, group6, Options{NoGRO: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sender := openIn(t, p.A, Config{Addrs: []netip.Addr{c.src}, Options: c.opt})
			near := openIn(t, p.A, Config{Addrs: []netip.Addr{a2.Addr()}, Options: c.opt})
			far := openIn(t, p.B, Config{Addrs: []netip.Addr{testbed.B4, testbed.B6}, Options: c.opt})
			other := openIn(t, p.B, Config{Addrs: []netip.Addr{b2.Addr()}, Options: c.opt})
			apart := openIn(t, p.B, Config{Addrs: []netip.Addr{elsewhere.Addr()}})
			join(t, sender, p.A, c.group)
			join(t, near, p.A, c.group)
			for _, l := range []*Link{far, far, other, apart} {
				join(t, l, p.B, c.group)
			}
			require.True(t, isMember(t, p.B, c.group))
			f := groupFlow(t, sender, p.A, c.src, c.group)
			r := rand.New(rand.NewPCG(30, 31))
			b := wire.NewBurst()
			for _, s := range []shape{{1, 64, 64}, {2, 64, 64}, {15, 4112, 4112}, {15, 4112, 520}, {1, 4112, 4112}, {64, 80, 20}} {
				fill(b, f, s, 0xffffff, r, sender.Info().IDs)
				want := mustSend(t, sender, b)
				v := wire.NewVerifier()
				for i := range want {
					d := wireside.next(t)
					require.Equal(t, want[i], string(d.Payload))
					require.Equal(t, c.group, d.Dst)
					require.EqualValues(t, 0x6a, d.TOS)
					require.EqualValues(t, 33, d.TTL)
					require.Zero(t, v.Check(0, &d, 0), "segment %d, identification %d", i, d.ID)
					if c.group.Is4() {
						require.EqualValues(t, wire.FlagDF, d.Flags)
					}
					switch {
					case !c.group.Is4():
					case c.opt.NoGSO:
						require.Zero(t, d.ID)
					default:
						require.EqualValues(t, i, d.ID)
					}
				}
				for _, l := range []*Link{sender, near, far, other} {
					pkts, ds := collect(t, l, s.segs)
					require.Equal(t, want, pkts)
					for _, d := range ds {
						require.Equal(t, wire.Datagram{
							Src: c.src.WithZone(""), Dst: c.group, SrcPort: f.SrcPort, TOS: 0x6a, TTL: 33, SegLen: d.SegLen,
						}, d)
					}
				}
			}
			for _, l := range []*Link{near, far, other} {
				require.NoError(t, l.LeaveGroup(c.group))
				require.NoError(t, l.LeaveGroup(c.group))
			}
			require.NoError(t, apart.LeaveGroup(c.group))
			require.False(t, isMember(t, p.B, c.group))
			want := mustSend(t, sender, b)
			pkts, _ := collect(t, sender, len(want)) // by now the others would have theirs
			require.Equal(t, want, pkts)
			for range want {
				wireside.next(t)
			}
			for _, l := range []*Link{near, far, other, apart} {
				n, err := l.Recv(make([]wire.Datagram, 4))
				require.NoError(t, err)
				require.Zero(t, n)
			}
			require.Zero(t, apart.Stats().RxPackets)
			require.Zero(t, sender.Stats().TxErrors)
			for _, l := range []*Link{sender, near, far, other, apart} {
				require.NoError(t, l.Close())
			}
		})
	}
}

// TestGroupUnprivileged: user 65534 without capabilities can join, also beside
// another user's link.
func TestGroupUnprivileged(t *testing.T) {
	p := newPair(t, 1500)
	b2 := netip.MustParsePrefix("192.0.2.12/24")
	p.B.AddAddr(b2)
	for _, c := range []struct{ src, member, group netip.Addr }{
		{testbed.A4, testbed.B4, group4},
		{testbed.A6, testbed.B6, group6},
	} {
		beside := openIn(t, p.B, Config{Addrs: []netip.Addr{b2.Addr()}})
		join(t, beside, p.B, c.group)
		cmd := p.B.Helper(testbed.AsNobody, "member", c.member.String(), c.group.String())
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		p.B.Start(cmd)
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		require.Equal(t, "joined", lines.Text())
		sender := openIn(t, p.A, Config{Addrs: []netip.Addr{c.src}})
		b := wire.NewBurst()
		fill(b, groupFlow(t, sender, p.A, c.src, c.group), shape{3, 1040, 80}, 0xffffff, rand.New(rand.NewPCG(32, 33)), sender.Info().IDs)
		want := mustSend(t, sender, b)
		require.True(t, lines.Scan())
		require.Equal(t, fmt.Sprintf("65534 %v %v 3 2160", c.src, c.group), lines.Text())
		require.NoError(t, cmd.Wait())
		pkts, _ := collect(t, beside, 3)
		require.Equal(t, want, pkts)
		require.NoError(t, beside.Close())
		require.NoError(t, sender.Close())
	}
}

// TestGroupOnLoopback: links on lo hear each other's groups, once.
func TestGroupOnLoopback(t *testing.T) {
	a := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0]
	b := mustOpen(t, Config{Addrs: []netip.Addr{v4b}})[0]
	require.NoError(t, b.JoinGroup(group4))
	burst := wire.NewBurst()
	r := rand.New(rand.NewPCG(34, 35))
	f := flow(t, a, v4a, group4, 0xc008)
	for _, s := range []shape{{1, 64, 64}, {15, 4112, 520}} {
		fill(burst, f, s, 0xffffff, r, a.Info().IDs)
		want := mustSend(t, a, burst)
		pkts, _ := collect(t, b, s.segs)
		require.Equal(t, want, pkts)
	}
	require.NoError(t, b.LeaveGroup(group4))
	mustSend(t, a, burst)
	n, err := b.Recv(make([]wire.Datagram, 4))
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestGroupNoAllocations: sending to a group and receiving from it do not
// allocate.
func TestGroupNoAllocations(t *testing.T) {
	l := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0]
	require.NoError(t, l.JoinGroup(group4))
	b := wire.NewBurst()
	fill(b, flow(t, l, v4a, group4, 0xc008), shape{3, 1040, 80}, 0xffffff, rand.New(rand.NewPCG(42, 43)), l.Info().IDs)
	bs, ds, got := []*wire.Burst{b}, make([]wire.Datagram, 4), 0
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if n, err := l.Send(bs); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		for range 3 { // each socket in turn
			n, err := l.Recv(ds)
			if err != nil {
				t.Fatal(err)
			}
			for i := range ds[:n] {
				got += ds[i].Segments()
			}
		}
		if err := l.Wait(0); err != nil {
			t.Fatal(err)
		}
	}))
	require.Equal(t, 51*3, got)
}

// TestGroupWait: Wait ends for a group joined while it waits, and a link that
// is closed has left its groups.
func TestGroupWait(t *testing.T) {
	p := newPair(t, 1500)
	var a, b *Link
	p.A.Do(func() {
		a = mustOpen(t, Config{Addrs: []netip.Addr{testbed.A4}})[0]
		b = mustOpen(t, Config{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.9")}})[0]
	})
	f := groupFlow(t, a, p.A, testbed.A4, group4)
	burst := wire.NewBurst()
	fill(burst, f, shape{1, 64, 64}, 0xffffff, rand.New(rand.NewPCG(36, 37)), a.Info().IDs)
	waiting := make(chan []string)
	go func() {
		ds := make([]wire.Datagram, 4)
		for {
			n, err := a.Recv(ds)
			if n == 1 && err == nil {
				waiting <- []string{string(ds[0].Payload)}
				return
			}
			if err != nil || a.Wait(hang) != nil {
				waiting <- nil
				return
			}
		}
	}()
	join(t, a, p.A, group4)
	want := mustSend(t, a, burst)
	require.Equal(t, want, <-waiting)
	join(t, b, p.A, groupLink) // an address of one family, a group of the other
	require.True(t, isMember(t, p.A, group4))
	require.True(t, isMember(t, p.A, groupLink))
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.False(t, isMember(t, p.A, group4))
	require.False(t, isMember(t, p.A, groupLink))
	require.ErrorIs(t, a.JoinGroup(group4), link.ErrClosed)
	require.ErrorIs(t, a.LeaveGroup(group4), link.ErrClosed)
}

// TestGroupErrors: what cannot be joined is said, and costs no descriptor.
func TestGroupErrors(t *testing.T) {
	l := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0]
	count := func() int {
		es, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(es)
	}
	before := count()
	require.ErrorContains(t, l.JoinGroup(v4b), "is not a multicast address")
	require.ErrorContains(t, l.LeaveGroup(v4b), "is not a multicast address")
	require.NoError(t, l.LeaveGroup(group4))
	l.ifaces = append(l.ifaces, 0x7fffffff)
	require.ErrorIs(t, l.JoinGroup(group4), syscall.ENODEV)
	l.ifaces = l.ifaces[:1]
	require.Equal(t, before, count())

	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // as the kernel's Soft-RoCE does
	require.NoError(t, err)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Port: wire.Port, Addr: group4.As4()}))
	err = l.JoinGroup(group4)
	require.NoError(t, unix.Close(fd))
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, fmt.Sprintf("UDP port 4791 of 239.1.2.3 is taken by process %d", os.Getpid()))
	for range 50 {
		require.NoError(t, l.JoinGroup(group4))
		require.NoError(t, l.LeaveGroup(group4))
	}
	require.Equal(t, before, count())
}
