package devinfo

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.Main(m, testbed.Helpers{"describe": func([]string) error {
		h, err := ThisHost()
		if err != nil {
			return err
		}
		all, err := h.Describe(gorxe.Config{})
		if err != nil {
			return err
		}
		for i := range all {
			if err := all[i].WriteText(os.Stdout, true); err != nil {
				return err
			}
		}
		return WriteGIDs(os.Stdout, all)
	}})
}

// TestThisHost describes whatever runs the test, with whatever privilege.
func TestThisHost(t *testing.T) {
	h, err := ThisHost()
	require.NoError(t, err)
	addr := testbed.Loopback(0).String()
	all, err := h.Describe(gorxe.Config{Addr: addr})
	require.NoError(t, err)
	require.Len(t, all, 1)
	i := &all[0]
	require.Equal(t, "lo", i.Iface.Name)
	require.True(t, i.Port.Active)
	require.Equal(t, addr, i.GIDs[0].GID.Addr().String())
	caps, err := hostnet.Capabilities()
	require.NoError(t, err)
	require.Equal(t, !caps.NetRaw, strings.Contains(strings.Join(i.Notes, "\n"), "CAP_NET_RAW"))
	require.Equal(t, caps.NetRaw, slices.Contains(i.OtherLinks, gorxe.LinkPacket))
	require.NotEqual(t, slices.Contains(i.OtherLinks, gorxe.LinkXDP), strings.Contains(strings.Join(i.Notes, "\n"), "link xdp"))

	_, err = h.Describe(gorxe.Config{Interface: "nosuch0"})
	require.ErrorIs(t, err, hostnet.ErrNoInterface)
	require.ErrorContains(t, err, "this host has lo")
}

// TestNamespace: as root and as nobody, with the port free and taken.
func TestNamespace(t *testing.T) {
	p := testbed.NewPair(t, 4200)
	run := func(as testbed.As) string {
		out, err := p.A.Run(p.A.Helper(as, "describe"))
		require.NoError(t, err, out)
		return out
	}
	root := run(testbed.AsTest)
	for _, want := range []string{
		"hca_id:\trxe0\n", "hca_id:\trxe1\n", "\tnode_guid:\t\t\t0000:00ff:fe00:000a\n", "\t\t\tactive_mtu:\t\t4096 (5)\n",
		"\t\t\tactive_speed:\t\t10.0 Gbps (8)\n", "\t\t\tGID[  1]:\t\t::ffff:192.0.2.1, RoCE v2\n", "\tother_links:\t\t\tpacket",
		"\tnetdev:\t\t\t\tveth0, MTU 4200, 10000 Mbit/s\n", "\tudp_port_4791:\t\t\tfree\n",
		"rxe1\t1\t2\tfd00:0002:0000:0000:0000:0000:0000:0001\t\t\tv2\tveth0\n",
	} {
		require.Contains(t, root, want)
	}
	require.Equal(t, 2, strings.Count(root, "udp_port_4791:\t\t\tfree"))

	var held net.PacketConn
	p.A.Do(func() {
		var err error
		held, err = net.ListenPacket("udp", testbed.A4.String()+":4791")
		require.NoError(t, err)
	})
	defer held.Close()
	require.Contains(t, run(testbed.AsTest), fmt.Sprintf("192.0.2.1: process %d (", os.Getpid()))
	nobody := run(testbed.AsNobody)
	require.Contains(t, nobody, fmt.Sprintf("192.0.2.1: user %d: ", os.Getuid()))
	require.Contains(t, nobody, "setcap cap_net_raw+ep")
	require.Contains(t, nobody, "CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW")
	require.Equal(t, 1, strings.Count(nobody, "taken, so a device cannot be opened"))
	require.Equal(t, gidsOf(root), gidsOf(nobody))
}

func gidsOf(out string) string { return out[strings.Index(out, "DEV\t"):] }
