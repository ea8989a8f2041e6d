package packet

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/wire"
)

// namespaceOf opens the namespace of a host.
func namespaceOf(t *testing.T, h *testbed.Host) (ns *hostnet.Namespace) {
	h.Do(func() {
		var err error
		if ns, err = hostnet.CallerNamespace(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(ns.Close)
	return ns
}

// TestSetAddrs: both links of a device follow the addresses of their interface,
// down to none, and the tcx program does; a port that is taken is left out, and
// so is an address that the interface has not. Then the interface itself is
// made anew, while a group is joined.
func TestSetAddrs(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	ns := namespaceOf(t, p.B)
	extra, taken := netip.MustParseAddr("192.0.2.78"), netip.MustParseAddr("192.0.2.79")
	p.B.AddAddr(netip.PrefixFrom(extra, 24))
	p.B.AddAddr(netip.PrefixFrom(taken, 24))
	b := openOn(t, p.B, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.B4}, Shards: 2, In: ns.Do})
	a := openOne(t, p.A, testbed.Iface)
	arrives := func(at netip.Addr, qpn uint32) {
		t.Helper()
		bu := burst(a, flow(t, a, testbed.A4, at), qpn, 3, 64)
		send(t, a, bu)
		match(t, receive(t, b[qpn%2], 3), bu)
	}
	arrives(testbed.B4, 0x100)
	serving, err := b[1].SetAddrs([]netip.Addr{testbed.B4, extra})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{testbed.B4, extra}, serving)
	arrives(testbed.B4, 0x101)
	arrives(extra, 0x100)

	fd := -1
	p.B.Do(func() {
		var err error
		fd, err = sys.UDPSocket(taken)
		require.NoError(t, err)
		require.NoError(t, sys.Bind(fd, netip.AddrPortFrom(taken, wire.Port), 0))
	})
	defer sys.Close(fd)
	serving, err = b[0].SetAddrs([]netip.Addr{extra, taken, netip.MustParseAddr("192.0.2.200")})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	var who *udptx.TakenError
	require.ErrorAs(t, err, &who)
	require.ErrorContains(t, err, "192.0.2.200 is not an address of interface")
	require.Equal(t, []netip.Addr{extra}, serving)
	arrives(extra, 0x103)

	group := netip.MustParseAddr("239.1.2.3")
	require.NoError(t, b[0].JoinGroup(group)) // from any thread
	serving, err = b[0].SetAddrs(nil)
	require.NoError(t, err)
	require.Empty(t, serving)
	_, err = b[0].ResolvePort(extra, 0xc001)
	require.ErrorContains(t, err, "not an address of this link")

	p.B.Tool("ip", "link", "del", testbed.Iface)
	serving, err = b[0].SetAddrs(nil)
	require.NoError(t, err)
	require.Empty(t, serving)
	serving, err = b[0].SetAddrs([]netip.Addr{extra})
	require.ErrorIs(t, err, hostnet.ErrNoInterface)
	require.Empty(t, serving)
	p.AddWire(testbed.Iface, 1500, []netip.Prefix{netip.PrefixFrom(testbed.A4, 24)}, []netip.Prefix{netip.PrefixFrom(extra, 24)})
	waitCarrier(t, p.B)
	require.NoError(t, a.Close())
	a = openOn(t, p.A, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.A4}, RcvBuf: 1})[0]
	serving, err = b[1].SetAddrs([]netip.Addr{extra})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{extra}, serving)
	arrives(extra, 0x100)
	arrives(extra, 0x101)
	require.True(t, isMember(t, p.B, group))
	bu := burst(a, groupFlow(t, a, testbed.A4, group), 0xffffff, 3, 64)
	send(t, a, bu)
	match(t, receive(t, b[0], 3), bu)

	require.NoError(t, b[1].Close())
	_, err = b[0].SetAddrs([]netip.Addr{extra})
	require.ErrorIs(t, err, link.ErrClosed)
}

// TestSetAddrsDropper: the tcx program drops for the addresses that are served, and
// for no others.
func TestSetAddrsDropper(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	needDropper(t, p.B)
	ns := namespaceOf(t, p.B)
	extra := netip.MustParseAddr("192.0.2.78")
	p.B.AddAddr(netip.PrefixFrom(extra, 24))
	b := openOn(t, p.B, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.B4}, In: ns.Do})[0]
	a := openOne(t, p.A, testbed.Iface)
	for _, c := range []struct{ serve, free netip.Addr }{{testbed.B4, extra}, {extra, testbed.B4}} {
		_, err := b.SetAddrs([]netip.Addr{c.serve})
		require.NoError(t, err)
		require.Equal(t, 1, attached(t, p.B, testbed.Iface))
		fd := -1
		p.B.Do(func() { // somebody else's now
			var err error
			fd, err = sys.UDPSocket(c.free)
			require.NoError(t, err)
			require.NoError(t, sys.Bind(fd, netip.AddrPortFrom(c.free, wire.Port), 0))
		})
		bu := burst(a, flow(t, a, testbed.A4, c.free), 0x11, 1, 64)
		send(t, a, bu)
		buf := make([]byte, 2048)
		ready, err := sys.NewPoller([]int{fd})
		require.NoError(t, err)
		got, err := ready.Wait(linktest.Patience, -1)
		require.NoError(t, err)
		require.NotZero(t, got, "%v gets nothing", c.free)
		n, err := syscall.Read(fd, buf)
		require.NoError(t, err)
		require.Equal(t, bu.Bytes(), n)
		ready.Close()
		sys.Close(fd)
		mine := burst(a, flow(t, a, testbed.A4, c.serve), 0x11, 2, 64)
		send(t, a, mine)
		match(t, receive(t, b, 2), mine)
	}
}
