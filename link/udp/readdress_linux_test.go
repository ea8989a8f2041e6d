package udp

import (
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/wire"
)

// TestSetAddrs: addresses come and go under both links of a device, down to none;
// what is taken is left out, and what stays is served all the time.
func TestSetAddrs(t *testing.T) {
	a, b, c := testbed.Loopback(2), testbed.Loopback(3), testbed.Loopback(4)
	links := mustOpen(t, Config{Addrs: []netip.Addr{a}, Shards: 2})
	far := mustOpen(t, Config{Addrs: []netip.Addr{v4b}})[0]
	r := rand.New(rand.NewPCG(36, 37))
	arrives := func(at netip.Addr, by *Link, qpn uint32) {
		t.Helper()
		burst := wire.NewBurst()
		fill(burst, flow(t, far, v4b, at, 0xc009), shape{3, 1024, 100}, qpn, r, far.Info().IDs)
		want := mustSend(t, far, burst)
		got, _ := collect(t, by, 3)
		require.Equal(t, want, got)
	}
	arrives(a, links[0], 0x100)
	serving, err := links[1].SetAddrs([]netip.Addr{a, b})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{a, b}, serving)
	for _, at := range serving {
		arrives(at, links[0], 0x100)
		arrives(at, links[1], 0x101)
	}
	_, err = Open(Config{Addrs: []netip.Addr{b}})
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	other := mustOpen(t, Config{Addrs: []netip.Addr{c}})[0]
	serving, err = links[0].SetAddrs([]netip.Addr{b, c})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "taken by process")
	require.Equal(t, []netip.Addr{b}, serving)
	arrives(b, links[1], 0x103)
	mustOpen(t, Config{Addrs: []netip.Addr{a}}) // is free
	require.NoError(t, other.Close())

	serving, err = links[0].SetAddrs(nil)
	require.NoError(t, err)
	require.Empty(t, serving)
	n, err := links[0].Recv(make([]wire.Datagram, 4))
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, links[0].Wait(0))
	serving, err = links[0].SetAddrs([]netip.Addr{c})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{c}, serving)
	arrives(c, links[0], 0x102)

	_, err = links[0].SetAddrs([]netip.Addr{netip.IPv4Unspecified()})
	require.ErrorContains(t, err, "not the address of an interface")
	require.NoError(t, links[1].Close())
	_, err = links[0].SetAddrs([]netip.Addr{a})
	require.ErrorIs(t, err, link.ErrClosed)
}

// TestSetAddrsGroups: a joined group follows the interface, also through its going
// and coming back, and sockets that are needed later are opened in the
// namespace of the link.
func TestSetAddrsGroups(t *testing.T) {
	p := newPair(t, 1500)
	var ns *hostnet.Namespace
	p.B.Do(func() {
		var err error
		ns, err = hostnet.CallerNamespace()
		require.NoError(t, err)
	})
	defer ns.Close()
	var b *Link
	require.NoError(t, ns.Do(func() error {
		b = mustOpen(t, Config{Addrs: []netip.Addr{p.B.V4}, In: ns.Do})[0]
		return nil
	}))
	require.NoError(t, b.JoinGroup(group4)) // from any thread
	require.True(t, isMember(t, p.B, group4))
	flow(t, b, p.B.V4, p.A.V4, 0xc001)

	p.B.Tool("ip", "link", "del", testbed.Iface)
	serving, err := b.SetAddrs([]netip.Addr{p.B.V4})
	require.ErrorContains(t, err, "no interface has the address")
	require.Empty(t, serving)
	require.False(t, isMember(t, p.B, group4))
	p.AddWire(testbed.Iface, 1500, []netip.Prefix{netip.PrefixFrom(p.A.V4, 24)}, []netip.Prefix{netip.PrefixFrom(p.B.V4, 24)})
	serving, err = b.SetAddrs([]netip.Addr{p.B.V4})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{p.B.V4}, serving)
	require.True(t, isMember(t, p.B, group4))
	a := openIn(t, p.A, Config{Addrs: []netip.Addr{p.A.V4}})
	burst := wire.NewBurst()
	fill(burst, groupFlow(t, a, p.A, p.A.V4, group4), shape{2, 1024, 64}, 0xffffff, rand.New(rand.NewPCG(38, 39)), a.Info().IDs)
	want := mustSend(t, a, burst)
	got, _ := collect(t, b, 2)
	require.Equal(t, want, got)
	require.NoError(t, b.LeaveGroup(group4))
	require.False(t, isMember(t, p.B, group4))
}
