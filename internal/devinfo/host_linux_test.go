package devinfo

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
)

func TestMain(m *testing.M) {
	// lacks: interface, link, what the kernel is to refuse.
	testbed.Main(m, testbed.Helpers{"lacks": func(args []string) error {
		if err := testbed.RefuseNamed(args[2:]...); err != nil {
			return err
		}
		h, err := ThisHost()
		if err != nil {
			return err
		}
		all, err := h.Describe(gorxe.Config{Interface: args[0], Link: args[1]})
		if err != nil {
			return err
		}
		fmt.Println(all[0].Attr.Link)
		for _, n := range all[0].Notes {
			fmt.Println(n)
		}
		return nil
	}, "describe": func([]string) error {
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
	require.Equal(t, 2, strings.Count(nobody, "\tlink:\t\t\t\tudp, chosen by auto: it needs no privilege"))
	require.Equal(t, 1, strings.Count(nobody, "taken, so a device cannot be opened"))
	require.Equal(t, gidsOf(root), gidsOf(nobody))
}

// asMapped is as root of a new user namespace, in the network namespace of another.
const asMapped = testbed.As(-1)

// TestLacks: whatever a device has to do without is said in one line, with what
// follows and what helps, and nothing else is said.
func TestLacks(t *testing.T) {
	p := testbed.NewPair(t, 4200)
	quiet := testbed.NewPair(t, 4200).A // without IPv6
	quiet.Tool("sysctl", "-q", "-w", "net.ipv6.conf.veth0.disable_ipv6=1")
	const bounded = "so link packet cannot be used, and the ICRC check of IPv4 packets is bounded (one damaged packet in 2^22 passes, not one in 2^32); "
	const hidden = "a UDP socket hides the identification of IPv4 packets, so the ICRC check of those is bounded (one damaged packet in 2^22 passes, not one in 2^32); --link packet and IPv6 check exactly"
	const noXDP = "link xdp, which is for NICs whose driver shares memory with it, cannot be used: "
	for _, c := range []struct {
		name string
		in   *testbed.Host
		as   testbed.As
		args []string // interface, link, refusals
		says []string // the link, then how each line begins and, after " ... ", ends
	}{
		{"nothing", p.A, testbed.AsTest, []string{"veth0", "packet"}, []string{"packet"}},
		{"udp by choice", p.A, testbed.AsTest, []string{"veth0", "auto"}, []string{"udp", hidden}},
		{"nobody", p.A, testbed.AsNobody, []string{"veth0", "auto"}, []string{
			"udp", "CAP_NET_RAW is missing, " + bounded + "run as root, or 'setcap cap_net_raw+ep /",
			noXDP + "missing privilege: AF_XDP also needs CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW: run as root, ",
		}},
		{"user namespace", p.A, asMapped, []string{"veth0", "auto"}, []string{
			"udp", "packet sockets are refused (socket AF_PACKET: operation not permitted) in spite of CAP_NET_RAW, " + bounded + "run outside of what refuses them: ",
			noXDP + "missing privilege: the kernel refuses BPF or AF_XDP (operation not permitted) although this process has the capabilities; this process is in a user namespace, where BPF cannot be had: run it as root of the host",
		}},
		{"loopback", p.A, testbed.AsNobody, []string{"lo", "auto"}, []string{"udp", "CAP_NET_RAW is missing, ", "GID 0 is not an address of lo, so connections cannot be made from it; use another index, or "}},
		{"no packet sockets", p.A, testbed.AsTest, []string{"veth0", "auto", "packet"}, []string{
			"udp", "packet sockets are refused (socket AF_PACKET: operation not permitted) in spite of CAP_NET_RAW, " + bounded + "run outside of what refuses them: ",
		}},
		{"BPF refused", p.A, testbed.AsTest, []string{"veth0", "udp", "bpf"}, []string{
			"udp", hidden, noXDP + "missing privilege: the kernel refuses BPF or AF_XDP (operation not permitted) although this process has the capabilities; a security module or a sandbox ",
		}},
		{"no AF_XDP", p.A, testbed.AsTest, []string{"veth0", "udp", "xdp"}, []string{
			"udp", hidden, noXDP + "the kernel has no AF_XDP sockets (Linux 4.18, CONFIG_XDP_SOCKETS)",
		}},
		{"no segmentation", p.A, testbed.AsTest, []string{"veth0", "packet", "gso"}, []string{
			"packet", "no UDP segmentation offload: the kernel has no UDP_SEGMENT (Linux 4.18): protocol not available; every packet is a datagram of its own, several times slower",
		}},
		{"no merging", p.A, testbed.AsTest, []string{"veth0", "udp", "gro"}, []string{
			"udp", "no UDP receive offload: ", hidden,
		}},
		{"small buffers", p.A, testbed.AsTest, []string{"veth0", "udp", "rcvbuf"}, []string{
			"udp", "receive buffer of 208 KiB bears 64 packets in flight, not 512; allow more with `sysctl -w net.core.rmem_max=", hidden,
		}},
		{"no IPv6 on the interface", quiet, testbed.AsTest, []string{"veth0", "packet"}, []string{
			"packet", "IPv6 is switched off on veth0, so GID 0 cannot be used and IPv6 peers cannot be reached; 'sysctl -w net.ipv6.conf.veth0.disable_ipv6=0' switches it on",
		}},
		{"no IPv6 in the kernel", quiet, testbed.AsTest, []string{"veth0", "udp", "ipv6"}, []string{
			"udp", hidden, "IPv6 is switched off on veth0, so GID 0 ",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			as := c.as
			if as == asMapped {
				as = testbed.AsTest
			}
			cmd := c.in.Helper(as, "lacks", c.args...)
			if c.as == asMapped {
				only := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: only}
			}
			out, err := c.in.Run(cmd)
			require.NoError(t, err, out)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Len(t, lines, len(c.says), out)
			for i, want := range c.says {
				require.True(t, strings.HasPrefix(lines[i], want), "%s\nbegins otherwise than\n%s", lines[i], want)
			}
		})
	}
}

func gidsOf(out string) string { return out[strings.Index(out, "DEV\t"):] }
