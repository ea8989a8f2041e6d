package nic

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

// portNode is a node with two addresses of which the second can be taken away.
func portNode(t *testing.T) (x *node, here, extra, there netip.Addr) {
	here, extra, there = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.3"), netip.MustParseAddr("192.0.2.2")
	links, _, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(t, err)
	x = open(t, links, here, func(c *Config) { c.GIDs = gidsOf(here, extra); c.MTU = 4200 })
	t.Cleanup(func() { require.NoError(t, x.nic.Close()) })
	return x, here, extra, there
}

// TestSetPort: what programs are told, by events and by what they ask for.
func TestSetPort(t *testing.T) {
	x, here, extra, _ := portNode(t)
	attr := func() verbs.PortAttr {
		p, err := x.nic.QueryPort()
		require.NoError(t, err)
		return p
	}
	p := x.nic.Port()
	require.True(t, p.Active)
	require.NoError(t, x.nic.SetPort(p))
	require.Empty(t, x.events(), "nothing has changed")

	p.Active = false
	require.NoError(t, x.nic.SetPort(p))
	require.Equal(t, []verbs.EventType{verbs.EventPortErr}, x.events())
	require.Equal(t, "PORT_DOWN (1)", attr().State)
	require.False(t, attr().Active)
	require.EqualValues(t, 1, counter(t, x, "link_downed"))

	p.Active, p.GIDs, p.MTU, p.ActiveMTU = true, append(gidsOf(here), verbs.GIDEntry{Index: 1}), 1500, 0
	p.Addrs, p.SpeedMbit, p.Missing = nil, 2500, []string{"a little something"}
	require.NoError(t, x.nic.SetPort(p))
	require.Equal(t, []verbs.EventType{verbs.EventGIDChange, verbs.EventPortActive}, x.events())
	require.Equal(t, "PORT_ACTIVE (4)", attr().State)
	require.Equal(t, verbs.MTU(1024), attr().ActiveMTU)
	require.Equal(t, []int{1500, 2500, 2}, []int{attr().NetMTU, attr().SpeedMbit, attr().GIDTblLen})
	require.EqualValues(t, 1, counter(t, x, "link_downed"))
	gids, err := x.nic.GIDs()
	require.NoError(t, err)
	require.Equal(t, verbs.GIDEntry{Index: 1}, gids[1])
	require.Equal(t, []netip.Addr{here}, x.nic.Port().Addrs)
	d, err := x.nic.QueryDevice()
	require.NoError(t, err)
	require.Contains(t, d.Missing, "a little something")

	p.MTU = 300
	require.NoError(t, x.nic.SetPort(p))
	require.Equal(t, verbs.MTU(256), attr().ActiveMTU)

	for _, c := range []struct {
		change func(*Port)
		want   string
	}{
		{func(p *Port) { p.GIDs = nil }, "GID table is empty"},
		{func(p *Port) { p.GIDs = []verbs.GIDEntry{{Index: 1, GID: verbs.GIDOf(extra)}} }, "stands at 0 and has index 1"},
		{func(p *Port) { p.ActiveMTU = 1000 }, "no path MTU"},
	} {
		bad := x.nic.Port()
		c.change(&bad)
		require.ErrorContains(t, x.nic.SetPort(bad), c.want)
	}
	require.Equal(t, verbs.MTU(256), attr().ActiveMTU, "a refused port changed something")
	require.NoError(t, x.nic.Close())
	require.ErrorIs(t, x.nic.SetPort(p), verbs.ErrClosed)
}

// TestSetPortPaths: new connections and address handles are refused what is not
// there any more; what is there already stays as it is.
func TestSetPortPaths(t *testing.T) {
	x, here, extra, there := portNode(t)
	q := x.newQP(x.cq)
	remote := verbs.Endpoint{QPN: 0x1000, GID: verbs.GIDOf(there)}
	o := verbs.DefaultConnectOptions()
	o.PathMTU = 4096
	require.NoError(t, q.Connect(verbs.Endpoint{QPN: q.QPN(), GIDIndex: 1}, remote, o))

	p := x.nic.Port()
	p.GIDs, p.Addrs = append(gidsOf(here), verbs.GIDEntry{Index: 1}), nil
	p.MTU, p.ActiveMTU = 1500, 0
	require.NoError(t, x.nic.SetPort(p))
	_, err := x.pd.CreateAH(verbs.AV{SGIDIndex: 1, DGID: remote.GID})
	require.ErrorContains(t, err, "GID 1 is empty, its address was removed from mem")
	require.ErrorContains(t, err, "choose GID index 0")
	other := x.newQP(x.cq)
	require.ErrorContains(t, other.Connect(verbs.Endpoint{QPN: other.QPN()}, remote, o), "above the port's active MTU 1024")
	a, err := q.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.StateRTS, a.State)
	require.Equal(t, verbs.MTU(4096), a.PathMTU)
	require.Equal(t, 1, a.AV.SGIDIndex)

	p.GIDs = gidsOf(here, extra)
	p.Addrs = []netip.Addr{here} // it is in the table but not served
	require.NoError(t, x.nic.SetPort(p))
	_, err = x.pd.CreateAH(verbs.AV{SGIDIndex: 1, DGID: remote.GID})
	require.ErrorContains(t, err, "nothing can be sent from it")
	p.Addrs = nil
	require.NoError(t, x.nic.SetPort(p))
	_, err = x.pd.CreateAH(verbs.AV{SGIDIndex: 1, DGID: remote.GID})
	require.NoError(t, err)
}

// TestSetPortOwn: what is sent to an address that has become the device's own does
// not leave it, although packets went out to that address before, and the other
// way round.
func TestSetPortOwn(t *testing.T) {
	x, here, extra, _ := portNode(t)
	with := x.nic.Port()
	without := x.nic.Port()
	without.GIDs, without.Addrs = gidsOf(here), nil
	a, b := x.newQP(x.cq), x.newQP(x.cq)
	o := verbs.DefaultConnectOptions()
	o.Timeout, o.RetryCnt = 10, 7
	la, lb := verbs.Endpoint{QPN: a.QPN(), GID: verbs.GIDOf(here)}, verbs.Endpoint{QPN: b.QPN(), GID: verbs.GIDOf(extra), GIDIndex: 1}
	require.NoError(t, a.Connect(la, lb, o))
	require.NoError(t, b.Connect(lb, la, o))
	require.NoError(t, x.nic.SetPort(without))
	post(t, a, verbs.SendWR{
		Opcode: verbs.WRWrite, SGL: []verbs.SGE{x.mr.SGE(0, 64)}, RemoteAddr: x.mr.Addr() + 4096, RKey: x.mr.RKey(), Flags: verbs.SendSignaled,
	})
	require.Eventually(t, func() bool { return counter(t, x, "sent_pkts") > 0 }, 10*time.Second, time.Millisecond)
	require.Zero(t, counter(t, x, "hairpin_pkts"))
	require.NoError(t, x.nic.SetPort(with))
	good(t, x.cq, 1)
	require.Positive(t, counter(t, x, "hairpin_pkts"))
}

// TestAtClose: what looks after the device is told once, and may still use it.
func TestAtClose(t *testing.T) {
	links, _, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(t, err)
	times := 0
	var x *node
	x = open(t, links, netip.MustParseAddr("192.0.2.1"), func(c *Config) {
		c.AtClose = func() {
			times++
			require.NoError(t, x.nic.SetPort(x.nic.Port()))
		}
	})
	require.NoError(t, x.nic.Close())
	require.NoError(t, x.nic.Close())
	require.Equal(t, 1, times)
}
