package gorxe_test

import (
	"errors"
	"net/netip"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/xdp"
	"github.com/gorxe/gorxe/verbs"
)

// openIn opens a NIC on a host's interface.
func openIn(t *testing.T, h *testbed.Host, cfg gorxe.Config) (e *end) {
	t.Helper()
	cfg.Interface = h.Iface
	h.Do(func() {
		dev, err := gorxe.Open(cfg)
		require.NoError(t, err)
		e = newEnd(dev)
	})
	return e
}

// join connects two ends of two hosts, the first by a peer address of a
// family.
func join(t *testing.T, a, b *end, ha, hb *testbed.Host, toA, toB netip.Addr) {
	t.Helper()
	var la, lb verbs.Endpoint
	ha.Do(func() { la = must(a.qp.Endpoint(toB)) })
	hb.Do(func() { lb = must(b.qp.Endpoint(toA)) })
	ha.Do(func() { require.NoError(t, a.qp.Connect(la, lb, verbs.ConnectOptions{})) })
	hb.Do(func() { require.NoError(t, b.qp.Connect(lb, la, verbs.ConnectOptions{})) })
}

// TestInterface: NICs on the interfaces of two hosts, over every link and
// family, one and two shards. The wire between them is the kernel's.
func TestInterface(t *testing.T) {
	for _, c := range []struct {
		name   string
		shards int
		a, b   string
		six    bool
	}{
		{"udp IPv4", 1, gorxe.LinkUDP, gorxe.LinkUDP, false},
		{"udp IPv6", 1, gorxe.LinkAuto, gorxe.LinkUDP, true},
		{"packet IPv4", 1, gorxe.LinkPacket, gorxe.LinkPacket, false},
		{"packet and udp IPv6", 1, gorxe.LinkPacket, gorxe.LinkUDP, true},
		{"two shards", 2, gorxe.LinkUDP, gorxe.LinkPacket, false},
		{"xdp IPv4", 1, gorxe.LinkXDP, gorxe.LinkXDP, false},
		{"xdp and udp IPv6", 1, gorxe.LinkXDP, gorxe.LinkUDP, true},
		{"two shards, xdp and packet", 2, gorxe.LinkXDP, gorxe.LinkPacket, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testbed.NewPair(t, 4200)
			if c.a == gorxe.LinkXDP {
				requireXDP(t, p.A)
				p.A.Tool("ethtool", "-L", testbed.Iface, "rx", strconv.Itoa(c.shards), "tx", strconv.Itoa(c.shards))
			}
			a := openIn(t, p.A, gorxe.Config{Link: c.a, Shards: c.shards})
			defer a.dev.Close()
			b := openIn(t, p.B, gorxe.Config{Link: c.b, Shards: c.shards})
			defer b.dev.Close()
			gids := must(a.dev.GIDs())
			require.Equal(t, "fe80::ff:fe00:a", gids[0].GID.Addr().String())
			require.Equal(t, p.A.V4, gids[1].GID.Addr())
			require.Equal(t, p.A.V6, gids[2].GID.Addr())
			require.Equal(t, verbs.MTU(4096), must(a.dev.Port()).ActiveMTU)
			toA, toB := p.A.V4, p.B.V4
			if c.six {
				toA, toB = p.A.V6, p.B.V6
			}
			join(t, a, b, p.A, p.B, toA, toB)
			for i := range a.mr.Bytes() {
				a.mr.Bytes()[i] = byte(i * 13 >> 4)
			}
			for range 20 {
				must(a.qp.PostSend([]verbs.SendWR{{
					Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1<<20)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled,
				}}))
				a.wait()
			}
			m, mb := must(a.dev.Counters()), must(b.dev.Counters()) // and b's last step is over, for the race detector
			require.Equal(t, a.mr.Bytes(), b.mr.Bytes())
			require.Zero(t, m["retry_exceeded_err"])
			require.Zero(t, mb["icrc_error"])
			require.GreaterOrEqual(t, m["sent_pkts"], 8*m["tx_bursts"], "super-packets are short")
		})
	}
}

// requireXDP skips the test where XDP cannot be used.
func requireXDP(t *testing.T, h *testbed.Host) {
	t.Helper()
	var err error
	h.Do(func() { _, err = gorxe.Probe(gorxe.Config{Interface: h.Iface, Link: gorxe.LinkXDP}) })
	if errors.Is(err, xdp.ErrPrivilege) || errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skipf("needs XDP: %v", err)
	}
	require.NoError(t, err)
}

// TestGIDMistakes: the wrong GID index is an error of Modify, not a timeout.
func TestGIDMistakes(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	a := openIn(t, p.A, gorxe.Config{})
	defer a.dev.Close()
	b := openIn(t, p.B, gorxe.Config{})
	defer b.dev.Close()
	local := verbs.Endpoint{QPN: a.qp.QPN(), GIDIndex: 2}
	remote := verbs.Endpoint{QPN: b.qp.QPN(), GID: verbs.GIDOf(p.B.V4)}
	p.A.Do(func() {
		err := a.qp.Connect(local, remote, verbs.ConnectOptions{})
		require.ErrorContains(t, err, "GID 2 is IPv6")
		require.ErrorContains(t, err, "choose GID index 1")
	})
	require.NoError(t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
	o := verbs.DefaultConnectOptions()
	o.PathMTU = 4096
	local.GIDIndex = 1
	require.ErrorContains(t, a.qp.Connect(local, remote, o), "has an MTU of 1500 and needs 4176")
}
