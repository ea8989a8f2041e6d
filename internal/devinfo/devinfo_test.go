package devinfo

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/packet"
	"github.com/gorxe/gorxe/link/xdp"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// stub is a link with a description only.
type stub struct{ info link.Info }

func (s stub) Info() link.Info                 { return s.info }
func (stub) Recv([]wire.Datagram) (int, error) { return 0, nil }
func (stub) Send([]*wire.Burst) (int, error)   { return 0, nil }
func (stub) Wait(time.Duration) error          { return nil }
func (stub) Wake()                             {}
func (stub) Close() error                      { return nil }

func prefixes(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// madeUp is a host of four interfaces, of which two can carry a device, with an
// unprivileged user before it, and a daemon and the kernel on the port.
func madeUp() *Host {
	h := &Host{
		Ifaces: []hostnet.Iface{
			{Name: "lo", Index: 1, MTU: 65536, State: "unknown", Loopback: true},
			{
				Name: "eth0", Index: 2, MTU: 1500, MAC: [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56}, Up: true, State: "up", Speed: 25000,
				Addrs: prefixes("192.0.2.7/24", "2001:db8::7/64", "fe80::5054:ff:fe12:3456/64"),
			},
			{
				Name: "eth1", Index: 3, MTU: 9000, MAC: [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x57}, Up: true, State: "lowerlayerdown",
				Addrs: prefixes("198.51.100.7/24"),
			},
			{Name: "eth2", Index: 4, MTU: 1500, Up: true, State: "up"},
			{Name: "slip0", Index: 5, MTU: 296, Up: true, State: "up", Addrs: prefixes("203.0.113.1/32")},
		},
		Owners: []hostnet.PortOwner{
			{Addr: netip.MustParseAddr("198.51.100.7"), PID: 7, Command: "rxed"},
			{Addr: netip.IPv6Unspecified(), UID: 1000},
		},
	}
	h.Probe = func(c gorxe.Config) (Device, error) {
		if c.Link == gorxe.LinkPacket {
			return nil, packet.ErrPrivilege
		}
		if c.Link == gorxe.LinkXDP {
			return nil, xdp.ErrOccupied
		}
		if c.Interface == "eth9" {
			return nil, errors.New("eth9 burns")
		}
		k := slices.IndexFunc(h.Ifaces, func(i hostnet.Iface) bool {
			return i.Name == c.Interface || c.Addr != "" && i.Has(netip.MustParseAddr(c.Addr))
		})
		if k < 0 {
			return nil, hostnet.ErrNoInterface
		}
		ifc := &h.Ifaces[k]
		var gids []verbs.GIDEntry
		for _, g := range ifc.GIDs() {
			gids = append(gids, verbs.GIDEntry{Index: g.Index, GID: verbs.GID(g.Raw()), Type: g.Type, Interface: ifc.Name})
		}
		if c.Addr != "" {
			gids = []verbs.GIDEntry{{GID: verbs.GIDOf(netip.MustParseAddr(c.Addr)), Type: hostnet.GIDType, Interface: ifc.Name}}
		}
		info := link.Info{Name: "udp", Exact6: true, MTU: ifc.MTU, Missing: []string{"no turbo: the switch is off; it is slow; press the switch"}}
		d, err := nic.Open(nic.Config{
			Name: c.Name, Links: []link.Link{stub{info}}, GIDs: gids, NetDev: ifc.Name, MTU: ifc.MTU, SpeedMbit: ifc.Speed, Manual: true,
		})
		if err != nil {
			return nil, err
		}
		return verbs.NewContext(d), nil
	}
	return h
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "%s; go test -update writes it anew", path)
}

// TestGolden shows everything there is.
func TestGolden(t *testing.T) {
	all, err := madeUp().Describe(gorxe.Config{})
	require.NoError(t, err)
	require.Len(t, all, 2)
	var text, js, gids, gidsJSON bytes.Buffer
	require.NoError(t, all[0].WriteText(&text, true))
	require.NoError(t, all[1].WriteText(&text, false))
	for i := range all {
		require.NoError(t, all[i].WriteJSON(&js))
	}
	require.NoError(t, WriteGIDs(&gids, all))
	require.NoError(t, WriteGIDsJSON(&gidsJSON, all))
	golden(t, "devinfo.txt", text.Bytes())
	golden(t, "devinfo.json", js.Bytes())
	golden(t, "gids.txt", gids.Bytes())
	golden(t, "gids.json", gidsJSON.Bytes())
	for _, b := range [][]byte{js.Bytes(), gidsJSON.Bytes()} {
		for line := range bytes.Lines(b) {
			require.True(t, json.Valid(line), "%s", line)
		}
	}
}

var value = regexp.MustCompile(`^(\t*[^:]*:\t*).*\n`)

// layout takes the values out of the text, and what is as long as a device has
// flags or GIDs.
func layout(text string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t\t\t\t\t") && !strings.Contains(line, "NO SUPPORT") || strings.Contains(line, "GID[") && !strings.Contains(line, "GID[  0]") {
			continue
		}
		out = append(out, value.ReplaceAllString(line, "$1"))
	}
	return out
}

// TestLayout compares with what rdma-core's ibv_devinfo (44) printed of a
// Soft-RoCE device: every name, tab and line.
func TestLayout(t *testing.T) {
	all, err := madeUp().Describe(gorxe.Config{Interface: "eth0"})
	require.NoError(t, err)
	for name, verbose := range map[string]bool{"ibv_devinfo-v.txt": true, "ibv_devinfo.txt": false} {
		theirs, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, all[0].WriteText(&b, verbose))
		want := layout(strings.TrimSuffix(string(theirs), "\n"))
		got := layout(b.String())
		require.Greater(t, len(got), len(want))
		require.Equal(t, want, got[:len(want)])
		require.Equal(t, "\tlink:\t\t\t\t", strings.TrimRight(got[len(want)], "\n"))
	}
}

// TestOneDevice: what the flags choose.
func TestOneDevice(t *testing.T) {
	h := madeUp()
	all, err := h.Describe(gorxe.Config{Addr: "192.0.2.7"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "rxe0", all[0].Attr.Name)
	require.Len(t, all[0].GIDs, 1)
	require.Len(t, all[0].Owners, 1) // the one of every address

	h.Owners = nil
	all, err = h.Describe(gorxe.Config{Interface: "eth0"})
	require.NoError(t, err)
	require.Empty(t, all[0].Owners)

	_, err = h.Describe(gorxe.Config{Interface: "eth0", Link: gorxe.LinkPacket})
	require.ErrorIs(t, err, packet.ErrPrivilege)
	_, err = h.Describe(gorxe.Config{Interface: "eth8"})
	require.ErrorIs(t, err, hostnet.ErrNoInterface)
}

// TestNames: a device has the same name however it is asked for, and can be
// asked for by it.
func TestNames(t *testing.T) {
	h := madeUp()
	all, err := h.Describe(gorxe.Config{})
	require.NoError(t, err)
	for i, want := range []string{"eth0", "eth1"} {
		name := fmt.Sprintf("rxe%d", i)
		require.Equal(t, name, all[i].Attr.Name)
		for _, by := range []string{want, name} {
			one, err := h.Describe(gorxe.Config{Interface: by})
			require.NoError(t, err)
			require.Equal(t, name, one[0].Attr.Name)
			require.Equal(t, want, one[0].Port.NetDev)
		}
	}
	h.Ifaces = slices.Insert(h.Ifaces, 1, hostnet.Iface{Name: "eth9", Up: true, MTU: 1500, Addrs: prefixes("203.0.113.9/24")}) // burns
	all, err = h.Describe(gorxe.Config{})
	require.Error(t, err)
	require.Equal(t, "rxe1", all[0].Attr.Name, "a device that cannot be described keeps its number")
	all, err = h.Describe(gorxe.Config{Addr: "198.51.100.7"})
	require.NoError(t, err)
	require.Equal(t, "rxe2", all[0].Attr.Name)
	for by, want := range map[string][2]string{
		"rxe0": {"eth9", "rxe0"}, "rxe2": {"eth1", "rxe2"}, "rxe3": {"rxe3", ""}, "eth2": {"eth2", ""}, "nosuch": {"nosuch", ""},
	} {
		ifc, device := Find(h.Ifaces, by)
		require.Equal(t, want, [2]string{ifc, device}, by)
	}
	h.Ifaces[4].Name, h.Ifaces[4].Addrs = "rxe0", prefixes("203.0.113.8/24") // an interface's name comes first
	ifc, device := Find(h.Ifaces, "rxe0")
	require.Equal(t, "rxe0 rxe3", ifc+" "+device)
}

// TestNoDevice: each interface is told what it lacks; one that fails does not
// hide the others.
func TestNoDevice(t *testing.T) {
	h := madeUp()
	h.Ifaces = append(h.Ifaces, hostnet.Iface{Name: "eth9", Up: true, MTU: 1500, Addrs: prefixes("203.0.113.9/24")})
	all, err := h.Describe(gorxe.Config{})
	require.ErrorContains(t, err, "eth9 burns")
	require.Len(t, all, 2)

	h.Ifaces = slices.DeleteFunc(h.Ifaces, func(i hostnet.Iface) bool { return fit(&i) == nil })
	_, err = h.Describe(gorxe.Config{})
	require.ErrorContains(t, err, "ip link set lo up")
	require.ErrorContains(t, err, "ip addr add ADDRESS/BITS dev eth2")
	require.ErrorContains(t, err, "ip link set slip0 mtu 1500")
}

// The kernel's own choices (ib_get_eth_speed), then those beyond it.
func TestRate(t *testing.T) {
	for mbit, want := range map[int]string{
		0: "1X (1) 2.5 Gbps (1)", 1000: "1X (1) 2.5 Gbps (1)", 10000: "1X (1) 10.0 Gbps (8)", 20000: "4X (2) 5.0 Gbps (2)",
		25000: "1X (1) 25.0 Gbps (32)", 40000: "4X (2) 10.0 Gbps (8)", 100000: "4X (2) 25.0 Gbps (32)",
		200000: "4X (2) 50.0 Gbps (64)", 400000: "4X (2) 100.0 Gbps (128)",
	} {
		w, s := rate(mbit)
		require.Equal(t, want, w+" "+s, "%d Mbit/s", mbit)
	}
}

// TestPresent: entries whose address has gone are not shown, and the others keep
// their index.
func TestPresent(t *testing.T) {
	a, b := verbs.GIDOf(netip.MustParseAddr("192.0.2.1")), verbs.GIDOf(netip.MustParseAddr("192.0.2.2"))
	got, err := present([]verbs.GIDEntry{{GID: a}, {Index: 1}, {Index: 2, GID: b}}, nil)
	require.NoError(t, err)
	require.Equal(t, []verbs.GIDEntry{{GID: a}, {Index: 2, GID: b}}, got)
}
