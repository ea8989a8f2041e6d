package main

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/testbed"
)

// TestNamespaces: one daemon has devices in two network namespaces, goes on serving
// them when it has given up what took it there, and follows their interfaces; and
// the filter of system calls lets it.
func TestNamespaces(t *testing.T) {
	needsThreads(t)
	for link, caps := range map[string]string{"udp": none, "packet": "0000000000002000", "xdp": "0000008000003000"} {
		t.Run(link, func(t *testing.T) { namespaces(t, link, caps) })
	}
}

func namespaces(t *testing.T, link, caps string) {
	net := testbed.NewPair(t, 4500)
	p := newPlace(t)
	device := func(h *testbed.Host) string {
		return fmt.Sprintf("[[device]]\ninterface = %q\nnamespace = %q\nlink = %q\n", h.Iface, h.Name(), link)
	}
	d := p.launch(nil, "-c", p.file("[process]\nseccomp = \"kill\"\n"+device(net.A)+device(net.B)))
	if ready := d.wait("msg=ready|^rxed: "); strings.Contains(ready, "privilege") {
		t.Skip(ready)
	}
	want := stripped()
	want["CapPrm"], want["CapEff"] = caps, caps
	d.rights(want)
	ctx := ctxFor(t)
	a, b := couple(t, p, "rxe0", "rxe1")
	require.NoError(t, write(ctx, a, b, 1<<20))

	// Its interface goes down and comes back, and gets an address.
	net.A.SetUp(false)
	require.Eventually(t, func() bool { return !up(d, "rxe0") }, patience, time.Millisecond)
	net.A.SetUp(true)
	require.Eventually(t, func() bool { return up(d, "rxe0") }, patience, time.Millisecond)
	require.NoError(t, write(ctx, a, b, 1<<20), "as before")
	net.A.AddAddr(netip.MustParsePrefix("192.0.2.77/24"))
	require.Eventually(t, func() bool {
		i, err := d.admin.Device(ctx, "rxe0")
		require.NoError(t, err)
		for _, g := range i.GIDs {
			if g.Address == netip.MustParseAddr("192.0.2.77") {
				return true
			}
		}
		return false
	}, patience, time.Millisecond)
	d.rights(want)
	x, y := couple(t, p, "rxe0", "rxe1")
	require.NoError(t, write(ctx, x, y, 1000))
	d.signal(syscall.SIGTERM)
	require.Equal(t, exitStopped, d.exit())
}

func up(d *process, device string) bool {
	i, err := d.admin.Device(ctxFor(d.t), device)
	require.NoError(d.t, err)
	return i.Active
}

// TestNoNamespace: the error lists what there is.
func TestNoNamespace(t *testing.T) {
	name := testbed.NewHost(t).Name()
	p := newPlace(t)
	d := p.launch(nil, "-d", "lo", "--namespace", "no-such")
	require.Equal(t, exitFailed, d.exit())
	require.Contains(t, d.text(), `network namespace: "no-such"`)
	require.Contains(t, d.text(), "device rxe0 (lo in no-such): ")
	require.Contains(t, d.text(), name)
}
