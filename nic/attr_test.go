package nic

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// TestModifyErrors: what cannot work on the wire is refused with a sentence
// that says what to do.
func TestModifyErrors(t *testing.T) {
	local, six, v4 := netip.MustParseAddr("fe80::ff:fe00:1"), netip.MustParseAddr("2001:db8::2"), here
	b := newBench(t, 1, func(c *Config) {
		c.GIDs = gidsOf(local, v4, six)
		c.Addrs = []netip.Addr{v4, six}
		c.NetDev, c.MTU = "eth0", 1500
	})
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.AttrState|verbs.AttrPort|verbs.AttrPKeyIndex|verbs.AttrAccess))
	rtr := verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
	good := verbs.QPAttr{State: verbs.StateRTR, PathMTU: 1024, DestQPN: 9, AV: verbs.AV{DGID: verbs.GIDOf(there), SGIDIndex: 1}}
	for _, c := range []struct {
		change func(*verbs.QPAttr)
		want   []string
	}{
		{func(a *verbs.QPAttr) { a.AV.SGIDIndex = 3 }, []string{"GID index 3", "0..2"}},
		{func(a *verbs.QPAttr) { a.AV.SGIDIndex = -1 }, []string{"GID index -1"}},
		{func(a *verbs.QPAttr) { a.AV.SGIDIndex = 2 }, []string{"GID 2 is IPv6", "peer's GID is IPv4 (192.0.2.1)", "choose GID index 1", "-g 1"}},
		{func(a *verbs.QPAttr) { a.AV.DGID = verbs.GIDOf(netip.MustParseAddr("2001:db8::1")) }, []string{"GID 1 is IPv4", "choose GID index 2"}},
		{func(a *verbs.QPAttr) { a.AV.SGIDIndex = 0 }, []string{"GID 0 is IPv6 link-local", "choose GID index 1"}},
		{func(a *verbs.QPAttr) { a.AV.SGIDIndex, a.AV.DGID = 0, verbs.GIDOf(netip.MustParseAddr("fe80::1")) }, []string{"not an address of eth0", "no usable IPv6 link-local GID"}},
		{func(a *verbs.QPAttr) { a.AV.DGID = verbs.GID{} }, []string{"all zero"}},
		{func(a *verbs.QPAttr) { a.PathMTU = 4096 }, []string{"path MTU 4096", "active MTU 1024", "eth0 has an MTU of 1500 and needs 4176", "ip link set eth0 mtu 4176"}},
		{func(a *verbs.QPAttr) { a.PathMTU = 1000 }, []string{"1000"}},
		{func(a *verbs.QPAttr) { a.DestQPN = 1 << 24 }, []string{"DestQPN"}},
	} {
		a := good
		c.change(&a)
		err := b.qp.Modify(&a, rtr)
		for _, w := range c.want {
			require.ErrorContains(t, err, w)
		}
		require.Equal(t, verbs.StateInit, b.state(), "a refused Modify changed something")
	}
	require.ErrorContains(t, b.qp.Modify(&good, rtr&^verbs.AttrAV), "needs AV")
	require.ErrorContains(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 2}, verbs.AttrState|verbs.AttrPort), "port 1 only")
	require.ErrorContains(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateInit, PKeyIndex: 1}, verbs.AttrState|verbs.AttrPKeyIndex), "index 0 only")
	require.NoError(t, b.qp.Modify(&good, rtr))
}

// portLink uses one source port only.
type portLink struct {
	*fakeLink
	err error
}

func (l *portLink) ResolvePort(netip.Addr, uint16) (uint16, error) { return 0xc00f, l.err }

// TestFlow: an address vector becomes what goes on the wire.
func TestFlow(t *testing.T) {
	local := netip.MustParseAddr("fe80::2")
	pl := &portLink{fakeLink: newFakeLink()}
	for _, c := range []struct {
		link link.Link
		port func(q *qp) uint16
	}{
		{newFakeLink(), func(q *qp) uint16 { return wire.SourcePort(uint32(q.qpn), peerQPN) }},
		{pl, func(*qp) uint16 { return 0xc00f }},
	} {
		x := open(t, []link.Link{c.link}, here, func(c *Config) {
			c.GIDs, c.Scope, c.Manual = gidsOf(here, local), 7, true
		})
		defer x.close()
		q := x.nic.qps.at(0)
		require.Nil(t, q)
		x.newQP(x.cq)
		q = x.nic.qps.at(0)
		f, err := x.nic.flow(q, &verbs.QPAttr{DestQPN: peerQPN, AV: verbs.AV{DGID: verbs.GIDOf(there), TrafficClass: 0x68}}, verbs.AttrDestQPN)
		require.NoError(t, err)
		require.Equal(t, wire.Flow{Src: here, Dst: there, SrcPort: c.port(q), TOS: 0x68, TTL: 64}, *f)
		f, err = x.nic.flow(q, &verbs.QPAttr{DestQPN: peerQPN, AV: verbs.AV{DGID: verbs.GIDOf(netip.MustParseAddr("fe80::1")), SGIDIndex: 1, HopLimit: 3}}, verbs.AttrDestQPN)
		require.NoError(t, err)
		require.Equal(t, wire.Flow{Src: local, Dst: netip.MustParseAddr("fe80::1"), SrcPort: c.port(q), TTL: 3, Scope: 7}, *f)
	}
	require.Equal(t, uint16(0x2345^0x4)|0xc000, sourcePort(1, 2, 0x12345), "a flow label given is folded, not the numbers")
	pl.err = fmt.Errorf("no sockets")
	x := open(t, []link.Link{pl}, here, func(c *Config) { c.Manual = true })
	defer x.close()
	x.newQP(x.cq)
	_, err := x.nic.flow(x.nic.qps.at(0), &verbs.QPAttr{AV: verbs.AV{DGID: verbs.GIDOf(there)}}, 0)
	require.ErrorContains(t, err, "no sockets")
}

// TestConfigErrors: Open refuses what makes no NIC.
func TestConfigErrors(t *testing.T) {
	links := []link.Link{newFakeLink()}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{GIDs: gidsOf(here)}, "0 links"},
		{Config{Links: make([]link.Link, 17), GIDs: gidsOf(here)}, "17 links"},
		{Config{Links: links}, "GID table is empty"},
		{Config{Links: links, GIDs: []verbs.GIDEntry{{Index: 1}}}, "has index 1"},
		{Config{Links: links, GIDs: gidsOf(here), MTU: 300}, "300 is too small"},
	} {
		_, err := Open(c.cfg)
		require.ErrorContains(t, err, c.want)
	}
}

// TestPathMTU: as Linux computes it.
func TestPathMTU(t *testing.T) {
	for mtu, want := range map[int]verbs.MTU{300: 0, 336: 256, 1500: 1024, 4175: 2048, 4176: 4096, 9000: 4096, 65536: 4096} {
		require.Equal(t, want, pathMTU(mtu), mtu)
	}
}

// TestQueries: what the device says of itself.
func TestQueries(t *testing.T) {
	a, _ := pairWith(t, mem.Config{Shards: 2, HideIDs: true, MTU: 1500}, func(c *Config) { c.Missing = []string{"one thing"} })
	d, err := a.ctx.Device()
	require.NoError(t, err)
	require.Equal(t, "rxe0", d.Name)
	require.Equal(t, 2, d.Shards)
	require.Equal(t, "mem", d.Link)
	require.Contains(t, d.ICRC, "IPv6 exact, IPv4 bounded")
	require.Equal(t, []string{"one thing"}, d.Missing)
	require.True(t, d.AtomicHCA)
	p, err := a.ctx.Port()
	require.NoError(t, err)
	require.Equal(t, verbs.MTU(1024), p.ActiveMTU)
	require.Equal(t, 1500, p.NetMTU)
	g, err := a.ctx.GIDs()
	require.NoError(t, err)
	require.Equal(t, "0000:0000:0000:0000:0000:ffff:c000:0201", g[0].GID.String())
	_, err = a.ctx.ChooseGID(netip.MustParseAddr("2001:db8::9"))
	require.ErrorContains(t, err, "no usable IPv6 GID")
}
