package xdp

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

// TestSetAddrs: the program takes packets for the addresses that there are, and the
// stack's sockets send from them; an address that has gone gets nothing and sends
// nothing, not even by a path that is known. An interface that is made anew ends
// it, in words.
func TestSetAddrs(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			var ns *hostnet.Namespace
			p.B.Do(func() {
				var err error
				ns, err = hostnet.CallerNamespace()
				require.NoError(t, err)
			})
			defer ns.Close()
			first := netip.MustParseAddr("192.0.2.78")
			p.B.AddAddr(netip.PrefixFrom(first, 24))
			b := openOn(t, p.B, Config{Interface: testbed.Iface, Addrs: []netip.Addr{first}, Generic: m.generic, In: ns.Do})[0]
			a := openUDP(t, p.A, testbed.A4)
			arrives := func(at netip.Addr) {
				t.Helper()
				bu := burst(a, flow(t, a, testbed.A4, at), 0x11, 3, 64)
				linktest.Send(t, a, bu)
				linktest.Match(t, linktest.Receive(t, b, 3), bu)
				back := burst(b, flow(t, b, at, testbed.A4), 0x12, 3, 64)
				linktest.Send(t, b, back)
				linktest.Receive(t, a, 3)
			}
			arrives(first)
			resolve(t, b, first, testbed.A4)
			old := burst(b, flow(t, b, first, testbed.A4), 0x12, 3, 64)
			serving, err := b.xdp().SetAddrs([]netip.Addr{first, testbed.B4})
			require.NoError(t, err)
			require.Equal(t, []netip.Addr{first, testbed.B4}, serving)
			arrives(testbed.B4)
			arrives(first)

			p.B.Tool("ip", "addr", "del", first.String()+"/24", "dev", testbed.Iface)
			serving, err = b.xdp().SetAddrs([]netip.Addr{testbed.B4, first})
			require.ErrorContains(t, err, "192.0.2.78 is not an address of interface")
			require.Equal(t, []netip.Addr{testbed.B4}, serving)
			n, err := b.Send([]*wire.Burst{old})
			require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
			require.Equal(t, old.Len(), n)
			require.Eventually(t, func() bool { return !looked(t, b, first, testbed.A4) }, linktest.Patience, time.Millisecond)
			arrives(testbed.B4)

			p.B.Tool("ip", "link", "del", testbed.Iface)
			_, err = b.xdp().SetAddrs(nil)
			require.NoError(t, err)
			p.AddWire(testbed.Iface, 1500, nil, []netip.Prefix{netip.PrefixFrom(testbed.B4, 24)})
			serving, err = b.xdp().SetAddrs([]netip.Addr{testbed.B4})
			require.ErrorContains(t, err, "was made anew")
			require.Empty(t, serving)
		})
	}
}
