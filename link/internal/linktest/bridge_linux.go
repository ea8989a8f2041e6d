package linktest

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gorxe/gorxe/internal/testbed"
)

// The ports of a bridge, towards host A and host B of its pair.
const (
	PortA = "porta"
	PortB = "portb"
)

// Bridge makes a pair of hosts with a bridge in a third one between them:
//
//	A veth0 ---- porta [ br0 of m ] portb ---- veth0 B
//
// It skips the test where the kernel has no bridges.
func Bridge(t testing.TB, mtu string) (p *testbed.Pair, m *testbed.Host) {
	t.Helper()
	m = testbed.NewHost(t)
	out, err := m.Run(m.Command(testbed.AsTest, "ip", "link", "add", "br0", "type", "bridge"))
	if strings.Contains(out, "Unknown device type") || strings.Contains(out, "not supported") {
		t.Skip("needs bridges: the kernel has none (CONFIG_BRIDGE)")
	}
	if err != nil {
		t.Fatalf("ip link add: %v\n%s", err, out)
	}
	p = &testbed.Pair{A: testbed.NewHost(t), B: testbed.NewHost(t)}
	p.A.V4, p.A.V6, p.A.MAC = testbed.A4, testbed.A6, testbed.MACA
	p.B.V4, p.B.V6, p.B.MAC = testbed.B4, testbed.B6, testbed.MACB
	for port, h := range map[string]*testbed.Host{PortA: p.A, PortB: p.B} {
		h.Iface = testbed.Iface
		m.Tool("ip", "link", "add", port, "mtu", mtu, "type", "veth", "peer", "name", h.Iface, "mtu", mtu,
			"address", net.HardwareAddr(h.MAC[:]).String(), "netns", h.Name())
		m.Tool("ip", "link", "set", port, "master", "br0", "up")
		h.Tool("ip", "link", "set", h.Iface, "addrgenmode", "none") // no link-local address, which is not usable at once
		h.SetUp(true)                                               // gives it the IPv6 address as well
		h.AddAddr(netip.PrefixFrom(h.V4, 24))
	}
	m.Tool("ip", "link", "set", "br0", "mtu", mtu, "up")
	for _, h := range []*testbed.Host{p.A, p.B} {
		running(t, h)
	}
	return p, m
}

// running waits until a host's interface runs: before, the kernel throws away
// what it sends.
func running(t testing.TB, h *testbed.Host) {
	t.Helper()
	h.Do(func() {
		for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
			ifc, err := net.InterfaceByName(h.Iface)
			if err != nil {
				t.Fatal(err)
			}
			if ifc.Flags&net.FlagRunning != 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s does not run", h.Iface)
			}
		}
	})
}
