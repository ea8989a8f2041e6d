package gorxe_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

const patience = 10 * time.Second

// requireLink skips the test where a link cannot be had.
func requireLink(t *testing.T, h *testbed.Host, link string) {
	t.Helper()
	if link == gorxe.LinkXDP {
		requireXDP(t, h)
	}
}

// expect waits for events, in whatever order.
func expect(t *testing.T, dev *verbs.Context, types ...verbs.EventType) {
	t.Helper()
	late := time.After(patience)
	for len(types) > 0 {
		select {
		case e := <-dev.Events():
			types = slices.DeleteFunc(types, func(x verbs.EventType) bool { return x == e.Type })
		case <-late:
			t.Fatalf("no %v", types)
		}
	}
}

// table returns the GID table as text; empty entries are "::".
func table(dev *verbs.Context) string {
	var s []string
	for i, g := range must(dev.GIDs()) {
		if g.Index != i {
			return "wrong indexes"
		}
		s = append(s, g.GID.Addr().String())
	}
	return strings.Join(s, " ")
}

// eventually waits until a device's GID table is as wanted.
func eventually(t *testing.T, dev *verbs.Context, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return table(dev) == want }, patience, time.Millisecond, "the table is %s", table(dev))
}

// another makes one more queue pair of a device.
func another(e *end) *end {
	n := *e
	n.cq = must(e.dev.CreateCQ(verbs.CQConfig{Depth: 256}))
	n.mr = must(e.pd.RegMR(make([]byte, 1<<20), verbs.AccessAll))
	n.qp = must(e.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: n.cq, RecvCQ: n.cq}))
	return &n
}

// connect connects two ends by address, from any thread.
func connect(t *testing.T, a, b *end, toA, toB netip.Addr, o verbs.ConnectOptions) {
	t.Helper()
	la, lb := must(a.qp.Endpoint(toB)), must(b.qp.Endpoint(toA))
	require.NoError(t, a.qp.Connect(la, lb, o))
	require.NoError(t, b.qp.Connect(lb, la, o))
}

// from picks the GID of an address.
func from(t *testing.T, e *end, a netip.Addr) verbs.Endpoint {
	t.Helper()
	for _, g := range must(e.dev.GIDs()) {
		if g.GID.Addr() == a {
			return verbs.Endpoint{QPN: e.qp.QPN(), GID: g.GID, GIDIndex: g.Index}
		}
	}
	t.Fatalf("no GID is %v: %s", a, table(e.dev))
	return verbs.Endpoint{}
}

// patient is for connections that outlive an outage: two seconds, of which one may
// pass after it, since the kernel asks for a neighbour again after a second
// where the first question was lost as the link came up.
func patient() verbs.ConnectOptions {
	o := verbs.DefaultConnectOptions()
	o.Timeout, o.RetryCnt = 16, 7 // 268 ms
	return o
}

// openBoth opens a device on each host of a pair, closed before the pair goes.
func openBoth(t *testing.T, p *testbed.Pair, link string) (a, b *end) {
	t.Helper()
	a = openIn(t, p.A, gorxe.Config{Link: link})
	t.Cleanup(func() { a.dev.Close() })
	b = openIn(t, p.B, gorxe.Config{Link: link})
	t.Cleanup(func() { b.dev.Close() })
	return a, b
}

// TestFollow: while a stream runs, addresses come and go, the MTU changes, and the
// interface goes down for a fifth of a second. The stream goes on, indexes do
// not move, and events tell.
func TestFollow(t *testing.T) {
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket, gorxe.LinkXDP} {
		t.Run(link, func(t *testing.T) {
			p := testbed.NewPair(t, 4200)
			requireLink(t, p.A, link)
			a, b := openBoth(t, p, link)
			small := patient()
			small.PathMTU = 1024
			connect(t, a, b, p.A.V4, p.B.V4, small)
			s := startStream(t, a, b)
			s.goesOn()

			const first = "fe80::ff:fe00:a 192.0.2.1 fd00:2::1"
			require.Equal(t, first, table(a.dev))
			extra := netip.MustParseAddr("192.0.2.77")
			p.A.AddAddr(netip.PrefixFrom(extra, 24))
			expect(t, a.dev, verbs.EventGIDChange)
			require.Equal(t, first+" 192.0.2.77", table(a.dev))
			s.goesOn()
			a2, b2 := another(a), another(b)
			la, lb := from(t, a2, extra), from(t, b2, p.B.V4)
			require.NoError(t, a2.qp.Connect(la, lb, small))
			require.NoError(t, b2.qp.Connect(lb, la, small))
			s2 := startStream(t, b2, a2)
			s2.goesOn()

			p.A.Tool("ip", "addr", "del", p.A.V6.String()+"/64", "dev", p.A.Iface)
			expect(t, a.dev, verbs.EventGIDChange)
			require.Equal(t, "fe80::ff:fe00:a 192.0.2.1 :: 192.0.2.77", table(a.dev))
			err := another(a).qp.Connect(verbs.Endpoint{GIDIndex: 2}, verbs.Endpoint{QPN: 0x1000, GID: verbs.GIDOf(p.B.V6)}, small)
			require.ErrorContains(t, err, "GID 2 is empty, its address was removed from "+p.A.Iface)
			p.A.AddAddr(netip.MustParsePrefix("192.0.2.78/24"))
			expect(t, a.dev, verbs.EventGIDChange)
			require.Equal(t, "fe80::ff:fe00:a 192.0.2.1 192.0.2.78 192.0.2.77", table(a.dev))
			s.goesOn()
			s2.goesOn()
			s2.stop()

			p.A.Tool("ip", "link", "set", p.A.Iface, "mtu", "1500")
			require.Eventually(t, func() bool { return must(a.dev.Port()).ActiveMTU == 1024 }, patience, time.Millisecond)
			require.Equal(t, 1500, must(a.dev.Port()).NetMTU)
			big := verbs.DefaultConnectOptions()
			big.PathMTU = 4096
			err = another(a).qp.Connect(from(t, a, extra), verbs.Endpoint{QPN: 0x1000, GID: verbs.GIDOf(p.B.V4)}, big)
			require.ErrorContains(t, err, "above the port's active MTU 1024")
			s.goesOn()
			p.A.Tool("ip", "link", "set", p.A.Iface, "mtu", "4200")
			require.Eventually(t, func() bool { return must(a.dev.Port()).ActiveMTU == 4096 }, patience, time.Millisecond)

			downed := must(a.dev.Counters())["link_downed"]
			p.A.SetUp(false)
			expect(t, a.dev, verbs.EventPortErr)
			port := must(a.dev.Port())
			require.False(t, port.Active)
			require.Equal(t, "PORT_DOWN (1)", port.State)
			require.Equal(t, downed+1, must(a.dev.Counters())["link_downed"])
			time.Sleep(200 * time.Millisecond) // the length of the outage
			p.A.SetUp(true)
			expect(t, a.dev, verbs.EventPortActive)
			require.True(t, must(a.dev.Port()).Active)
			s.goesOn()
			s.stop()
			p.B.SetUp(false)
			expect(t, a.dev, verbs.EventPortErr) // no carrier
			p.B.SetUp(true)
			expect(t, a.dev, verbs.EventPortActive)
		})
	}
}

// TestOutage6: a stream over IPv6 survives as well, although the interface loses its
// addresses as it goes down: when they are back, so are the source ports.
func TestOutage6(t *testing.T) {
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket, gorxe.LinkXDP} {
		t.Run(link, func(t *testing.T) {
			p := testbed.NewPair(t, 1500)
			requireLink(t, p.A, link)
			a, b := openBoth(t, p, link)
			connect(t, a, b, p.A.V6, p.B.V6, patient())
			s := startStream(t, a, b)
			s.goesOn()
			p.A.SetUp(false)
			expect(t, a.dev, verbs.EventPortErr, verbs.EventGIDChange)
			require.Equal(t, "fe80::ff:fe00:a 192.0.2.1 ::", table(a.dev))
			time.Sleep(200 * time.Millisecond) // the length of the outage
			p.A.SetUp(true)
			expect(t, a.dev, verbs.EventPortActive)
			s.goesOn()
			s.stop()
			eventually(t, a.dev, "fe80::ff:fe00:a 192.0.2.1 fd00:2::1")
		})
	}
}

// TestFollowVLAN: a device on a VLAN interface follows that, and what befalls the
// one below it.
func TestFollowVLAN(t *testing.T) {
	p := testbed.NewPair(t, 4200)
	a4, b4 := netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("198.51.100.2/24")
	vlan := p.A.AddVLAN(7, a4)
	p.B.AddVLAN(7, b4)
	dev, err := gorxe.Open(gorxe.Config{Interface: vlan, Namespace: p.A.Name()})
	require.NoError(t, err)
	defer dev.Close()
	p.A.Tool("ip", "link", "set", p.A.Iface, "mtu", "1500") // no VLAN is above its parent
	require.Eventually(t, func() bool { return must(dev.Port()).ActiveMTU == 1024 }, patience, time.Millisecond)
	p.A.SetUp(false)
	expect(t, dev, verbs.EventPortErr)
	p.A.SetUp(true)
	expect(t, dev, verbs.EventPortActive)
}

// TestAddressGone: a connection whose own address is removed goes on if it comes
// back in time, and otherwise ends as any that hears nothing.
func TestAddressGone(t *testing.T) {
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket, gorxe.LinkXDP} {
		t.Run(link, func(t *testing.T) {
			p := testbed.NewPair(t, 1500)
			requireLink(t, p.A, link)
			extra := netip.MustParseAddr("192.0.2.77")
			p.A.AddAddr(netip.PrefixFrom(extra, 24))
			a, b := openBoth(t, p, link)
			o := patient()
			la, lb := from(t, a, extra), from(t, b, p.B.V4)
			require.NoError(t, a.qp.Connect(la, lb, o))
			require.NoError(t, b.qp.Connect(lb, la, o))
			s := startStream(t, a, b)
			s.goesOn()
			without := "fe80::ff:fe00:a 192.0.2.1 :: fd00:2::1"
			if table(a.dev) == "fe80::ff:fe00:a 192.0.2.1 fd00:2::1 192.0.2.77" {
				without = "fe80::ff:fe00:a 192.0.2.1 fd00:2::1 ::"
			}
			p.A.Tool("ip", "addr", "del", "192.0.2.77/24", "dev", p.A.Iface)
			eventually(t, a.dev, without)
			p.A.AddAddr(netip.PrefixFrom(extra, 24))
			s.goesOn()

			p.A.Tool("ip", "addr", "del", "192.0.2.77/24", "dev", p.A.Iface)
			eventually(t, a.dev, without)
			s.quit.Store(true)
			var wrong *verbs.StatusError
			require.Eventually(t, func() bool { return must(a.qp.Query()).State == verbs.StateErr }, patience, time.Millisecond)
			require.NoError(t, b.dev.Close())
			s.wg.Wait()
			require.ErrorAs(t, s.err[0], &wrong)
			require.Equal(t, verbs.WCRetryExcErr, wrong.Status)
			require.Positive(t, must(a.dev.Counters())["link_tx_errors"])
		})
	}
}

// TestInterfaceComesBack: a device goes on existing when its interface is deleted,
// and works again with the next of that name.
func TestInterfaceComesBack(t *testing.T) {
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket} {
		t.Run(link, func(t *testing.T) {
			p := testbed.NewPair(t, 1500)
			a, b := openBoth(t, p, link)
			connect(t, a, b, p.A.V4, p.B.V4, verbs.DefaultConnectOptions())
			before := p.A.Index(p.A.Iface)
			s := startStream(t, a, b)
			s.goesOn()
			s.stop()
			p.A.Tool("ip", "link", "del", p.A.Iface)
			for _, d := range []*verbs.Context{a.dev, b.dev} {
				expect(t, d, verbs.EventPortErr, verbs.EventGIDChange)
				require.False(t, must(d.Port()).Active)
				require.Contains(t, strings.Join(must(d.Device()).Missing, "\n"), "is gone")
			}
			require.Equal(t, "fe80::ff:fe00:a :: ::", table(a.dev))
			_, err := another(a).qp.Endpoint(p.B.V4)
			require.ErrorIs(t, err, hostnet.ErrNoGID)

			p.AddWire(p.A.Iface, 4200, []netip.Prefix{netip.PrefixFrom(p.A.V4, 24)}, []netip.Prefix{netip.PrefixFrom(p.B.V4, 24)})
			require.NotEqual(t, before, p.A.Index(p.A.Iface))
			for _, d := range []*verbs.Context{a.dev, b.dev} {
				expect(t, d, verbs.EventPortActive)
				require.NotContains(t, strings.Join(must(d.Device()).Missing, "\n"), "is gone")
			}
			require.Eventually(t, func() bool {
				return strings.Contains(table(a.dev), "192.0.2.1") && strings.Contains(table(b.dev), "192.0.2.2")
			}, patience, time.Millisecond)
			a, b = another(a), another(b)
			connect(t, a, b, p.A.V4, p.B.V4, verbs.DefaultConnectOptions())
			s = startStream(t, a, b)
			s.goesOn()
			s.stop()
		})
	}
}

// freebind lets a socket have an address that the host has not.
func freebind(_, _ string, c syscall.RawConn) (err error) {
	cerr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_IP, ipFreebind, 1) })
	return errors.Join(err, cerr)
}

const ipFreebind = 15 // IP_FREEBIND; ip(7)

// TestPortTaken: an address whose port somebody has is not used, which is said,
// until the port is free.
func TestPortTaken(t *testing.T) {
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket, gorxe.LinkXDP} {
		t.Run(link, func(t *testing.T) {
			p := testbed.NewPair(t, 1500)
			requireLink(t, p.A, link)
			a := openIn(t, p.A, gorxe.Config{Link: link})
			defer a.dev.Close()
			extra := netip.MustParseAddr("192.0.2.77")
			var c *net.UDPConn
			p.A.Do(func() {
				// A socket can be bound to an address before the host has it.
				lc := net.ListenConfig{Control: freebind}
				pc, err := lc.ListenPacket(t.Context(), "udp4", netip.AddrPortFrom(extra, wire.Port).String())
				require.NoError(t, err)
				c = pc.(*net.UDPConn)
			})
			defer c.Close()
			p.A.AddAddr(netip.PrefixFrom(extra, 24))
			eventually(t, a.dev, "fe80::ff:fe00:a 192.0.2.1 fd00:2::1 192.0.2.77")
			missing := func() string { return strings.Join(must(a.dev.Device()).Missing, "\n") }
			require.Contains(t, missing(), "UDP port 4791 of 192.0.2.77 is taken by process")
			err := a.qp.Connect(from(t, a, extra), verbs.Endpoint{QPN: 0x1000, GID: verbs.GIDOf(p.B.V4)}, verbs.DefaultConnectOptions())
			require.ErrorContains(t, err, "nothing can be sent from it")
			require.NoError(t, c.Close())
			require.Eventually(t, func() bool { return !strings.Contains(missing(), "192.0.2.77") }, patience, 10*time.Millisecond)
			require.NoError(t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
			require.NoError(t, a.qp.Connect(from(t, a, extra), verbs.Endpoint{QPN: 0x1000, GID: verbs.GIDOf(p.B.V4)}, verbs.DefaultConnectOptions()))
		})
	}
}

// TestTentative: an IPv6 address is used as soon as the kernel has found that nobody
// else has it.
func TestTentative(t *testing.T) {
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket} {
		t.Run(link, func(t *testing.T) {
			p := testbed.NewPair(t, 1500)
			a := openIn(t, p.A, gorxe.Config{Link: link})
			defer a.dev.Close()
			p.A.Do(func() {
				require.NoError(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+testbed.Iface+"/accept_dad", []byte("1"), 0))
			})
			p.A.Tool("ip", "addr", "add", "fd00:2::9/64", "dev", testbed.Iface)
			eventually(t, a.dev, "fe80::ff:fe00:a 192.0.2.1 fd00:2::1 fd00:2::9")
			missing := func() string { return strings.Join(must(a.dev.Device()).Missing, "\n") }
			require.Contains(t, missing(), "IPv6 is still checking it for duplicates")
			require.Eventually(t, func() bool { return !strings.Contains(missing(), "fd00:2::9") }, patience, 10*time.Millisecond)
			require.NoError(t, a.qp.Connect(from(t, a, netip.MustParseAddr("fd00:2::9")), verbs.Endpoint{QPN: 0x1000, GID: verbs.GIDOf(p.B.V6)}, verbs.DefaultConnectOptions()))
		})
	}
}

// TestNamespace: devices in named namespaces, opened and used from threads that
// are not in them.
func TestNamespace(t *testing.T) {
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket, gorxe.LinkXDP} {
		t.Run(link, func(t *testing.T) {
			p := testbed.NewPair(t, 4200)
			requireLink(t, p.A, link)
			open := func(h *testbed.Host) *end {
				dev, err := gorxe.Open(gorxe.Config{Interface: h.Iface, Namespace: h.Name(), Link: link})
				require.NoError(t, err)
				t.Cleanup(func() { dev.Close() })
				return newEnd(dev)
			}
			a, b := open(p.A), open(p.B)
			for _, six := range []bool{false, true} {
				toA, toB := p.A.V4, p.B.V4
				if six {
					toA, toB = p.A.V6, p.B.V6
				}
				a, b := another(a), another(b)
				connect(t, a, b, toA, toB, verbs.DefaultConnectOptions())
				s := startStream(t, a, b)
				s.goesOn()
				s.stop()
			}
			p.A.AddAddr(netip.MustParsePrefix("192.0.2.77/24"))
			expect(t, a.dev, verbs.EventGIDChange)
		})
	}
	_, err := gorxe.Open(gorxe.Config{Interface: "lo", Namespace: "nosuch"})
	require.ErrorIs(t, err, hostnet.ErrNoNamespace)
	h := testbed.NewHost(t)
	_, err = gorxe.Open(gorxe.Config{Interface: "nosuch0", Namespace: h.Name()})
	require.ErrorIs(t, err, hostnet.ErrNoInterface)
	dev, err := gorxe.Probe(gorxe.Config{Addr: "127.0.0.1", Namespace: h.Name()})
	require.NoError(t, err)
	require.NoError(t, dev.Close())
}

// TestCloseBesideChanges: a device closes while its interface changes, and leaves
// nothing behind.
func TestCloseBesideChanges(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	ns := p.A.Name()
	stop, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	end := func() { once.Do(func() { close(stop) }); <-done }
	defer end()
	go func() {
		defer close(done)
		extra := netip.MustParsePrefix("192.0.2.77/24")
		for { // not by a program: what is forked has all sockets until it runs
			select {
			case <-stop:
				return
			default:
			}
			p.A.AddAddr(extra)
			p.A.DelAddr(extra)
		}
	}()
	opened := 0
	for i := range 12 {
		dev, err := gorxe.Open(gorxe.Config{Interface: testbed.Iface, Namespace: ns, Link: [...]string{gorxe.LinkUDP, gorxe.LinkPacket}[i%2], Shards: 1 + i%3})
		if err != nil { // it goes and comes faster than anything can be opened
			require.ErrorContains(t, err, "192.0.2.77")
			continue
		}
		opened++
		time.Sleep(time.Duration(i) * 5 * time.Millisecond) // at another point of the changes each time
		require.NoError(t, dev.Close())
	}
	require.Positive(t, opened)
}
