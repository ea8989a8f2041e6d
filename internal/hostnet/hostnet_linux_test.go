package hostnet_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.Main(m, testbed.Helpers{"namespace": namespaceHelper, "caps": func([]string) error {
		c, err := hostnet.Capabilities()
		fmt.Printf("%+v\n", c)
		return err
	}, "owners": func([]string) error {
		o, err := hostnet.PortOwners(4791)
		fmt.Println(o)
		return err
	}})
}

// TestInterfaces compares with the standard library's own reading.
func TestInterfaces(t *testing.T) {
	want, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		got, err := hostnet.Interface(w.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got.Index != w.Index || got.MTU != w.MTU || got.Up != (w.Flags&net.FlagUp != 0) {
			t.Errorf("%+v, want %+v", got, w)
		}
		addrs, err := w.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		if len(addrs) != len(got.Addrs) {
			t.Fatalf("%s: %v, want %v", w.Name, got.Addrs, addrs)
		}
		for i, a := range addrs {
			if a.String() != got.Addrs[i].String() {
				t.Errorf("%s: address %d is %v, want %v", w.Name, i, got.Addrs[i], a)
			}
		}
	}
}

func TestMissingInterface(t *testing.T) {
	_, err := hostnet.Interface("nosuch0")
	if !errors.Is(err, hostnet.ErrNoInterface) || !strings.Contains(err.Error(), `"nosuch0"`) || !strings.Contains(err.Error(), "lo") {
		t.Errorf("%v", err)
	}
	if _, err := hostnet.InterfaceWith(netip.MustParseAddr("203.0.113.77")); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v", err)
	}
}

func TestHost(t *testing.T) {
	p := testbed.NewPair(t, 4200)
	p.A.AddAddr(netip.MustParsePrefix("198.51.100.1/32"))
	p.A.Tool("ip", "route", "add", "203.0.113.0/24", "via", testbed.B4.String(), "mtu", "1400")
	p.A.Tool("ping", "-c1", "-W5", testbed.B4.String())
	p.A.Do(func() {
		i, err := hostnet.Interface(testbed.Iface)
		if err != nil {
			t.Fatal(err)
		}
		if i.MAC != testbed.MACA || i.MTU != 4200 || !i.Up || i.State != "up" || i.Speed != 10000 || i.Loopback {
			t.Errorf("%+v", i)
		}
		var gids []string
		for _, g := range i.GIDs() {
			gids = append(gids, g.IP.String())
		}
		if got, want := strings.Join(gids, " "), "fe80::ff:fe00:a 192.0.2.1 198.51.100.1 fd00:2::1"; got != want {
			t.Errorf("GIDs %s, want %s", got, want)
		}
		if g, err := hostnet.ChooseGID(i.GIDs(), netip.MustParseAddr("203.0.113.9")); err != nil || g.IP != testbed.A4 {
			t.Errorf("GID by route: %v %v", g, err)
		}
		for z, want := range map[string]bool{testbed.Iface: true, strconv.Itoa(i.Index): true, "lo": false, "77": false} {
			w, err := hostnet.InterfaceWith(testbed.A6.WithZone(z))
			if (err == nil) != want || want && w.Name != testbed.Iface {
				t.Errorf("interface with %v%%%s: %v %v", testbed.A6, z, w.Name, err)
			}
		}
		if w, err := hostnet.InterfaceWith(testbed.A6); err != nil || w.Name != testbed.Iface {
			t.Errorf("interface with %v: %v %v", testbed.A6, w.Name, err)
		}

		var none netip.Addr
		for _, c := range []struct {
			dst, src, wantSrc, gw netip.Addr
			mtu                   int
			local                 bool
		}{
			{testbed.B4, none, testbed.A4, none, 4200, false},
			{testbed.B6, none, testbed.A6, none, 4200, false},
			{testbed.B4, netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.1"), none, 4200, false},
			{netip.MustParseAddr("203.0.113.9"), none, testbed.A4, testbed.B4, 1400, false},
			{testbed.A4, none, testbed.A4, none, 65536, true},
		} {
			r, err := hostnet.Route(c.dst, c.src, 0)
			if err != nil || r.Gateway != c.gw || r.MTU != c.mtu || r.Local != c.local ||
				!c.local && r.Iface != i.Index || !c.src.IsValid() && r.Src != c.wantSrc {
				t.Errorf("route to %v from %v: %+v %v", c.dst, c.src, r, err)
			}
		}
		if _, err := hostnet.Route(netip.MustParseAddr("8.8.8.8"), none, 0); err == nil || !strings.Contains(err.Error(), "no route to 8.8.8.8") {
			t.Errorf("unroutable: %v", err)
		}
		if r, err := hostnet.Route(netip.MustParseAddr("fe80::1"), none, i.Index); err != nil || r.Iface != i.Index {
			t.Errorf("link-local route: %+v %v", r, err)
		}

		n, ok, err := hostnet.Neighbor(i.Index, testbed.B4)
		if err != nil || !ok || !n.Valid || n.MAC != testbed.MACB {
			t.Errorf("neighbour: %+v %v %v", n, ok, err)
		}
		if _, ok, err := hostnet.Neighbor(i.Index, netip.MustParseAddr("192.0.2.77")); ok || err != nil {
			t.Errorf("unknown neighbour: %v %v", ok, err)
		}
	})
}

func TestCapabilities(t *testing.T) {
	h := testbed.NewHost(t) // so this test runs with every capability
	for as, want := range map[testbed.As]string{
		testbed.AsNobody: "{NetRaw:false NetAdmin:false BPF:false}",
		testbed.AsTest:   "{NetRaw:true NetAdmin:true BPF:true}",
	} {
		if out, err := h.Run(h.Helper(as, "caps")); err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%v: %s %v, want %s", as, out, err, want)
		}
	}
}

func TestPortOwners(t *testing.T) {
	h := testbed.NewHost(t)
	h.Do(func() {
		if o, err := hostnet.PortOwners(4791); err != nil || len(o) != 0 {
			t.Fatalf("free port: %v %v", o, err)
		}
		own4, own6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
		for _, a := range []string{"127.0.0.1:4791", "[::1]:4791"} {
			c, err := net.ListenPacket("udp", a)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		o, err := hostnet.PortOwners(4791)
		if err != nil || len(o) != 2 || o[0].Addr != own4 || o[1].Addr != own6 {
			t.Fatalf("%v %v", o, err)
		}
		for _, x := range o {
			if x.PID != os.Getpid() || x.UID != os.Getuid() || !strings.Contains(x.String(), fmt.Sprintf("process %d (", os.Getpid())) {
				t.Errorf("%+v, want process %d", x, os.Getpid())
			}
		}
		if x := hostnet.FindPortOwner(own6, 4791); x.PID != os.Getpid() || x.Addr != own6 {
			t.Errorf("owner of %v: %+v", own6, x)
		}
		if x := hostnet.FindPortOwner(netip.MustParseAddr("127.0.0.2"), 4791); x.PID != 0 || x.UID != -1 {
			t.Errorf("owner of a free address: %+v", x)
		}
		out, err := h.Run(h.Helper(testbed.AsNobody, "owners"))
		if err != nil || strings.Count(out, "user 0") != 2 {
			t.Errorf("as nobody: %s %v", out, err)
		}

		everywhere, err := net.ListenPacket("udp", "0.0.0.0:4792")
		if err != nil {
			t.Fatal(err)
		}
		defer everywhere.Close()
		if x := hostnet.FindPortOwner(own4, 4792); x.PID != os.Getpid() {
			t.Errorf("a socket bound to every address: %+v", x)
		}
	})
}

// TestXDPFeatures: what the kernel says of drivers that are known here.
func TestXDPFeatures(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	p.A.Do(func() {
		of := func(index int) hostnet.XDPFeatures {
			f, err := hostnet.XDP(index)
			if err != nil {
				t.Fatal(err)
			}
			f.ZCPieces = 0 // of no meaning without zero copy
			return f
		}
		lo := of(p.A.Index("lo"))
		if !lo.Known {
			t.Skip("needs the generic netlink family netdev (Linux 6.3)")
		}
		if want := (hostnet.XDPFeatures{Known: true}); lo != want {
			t.Errorf("lo: %+v", lo)
		}
		if f, want := of(p.A.Index(testbed.Iface)), (hostnet.XDPFeatures{Known: true, Native: true, Pieces: true}); f != want {
			t.Errorf("veth: %+v", f)
		}
		if _, err := hostnet.XDP(1 << 20); err == nil || !strings.Contains(err.Error(), "interface 1048576") {
			t.Errorf("an interface that is not there: %v", err)
		}
	})
}
