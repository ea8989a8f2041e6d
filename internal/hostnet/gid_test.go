package hostnet

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func table() []GID {
	i := Iface{Name: "eth0", MAC: [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56}}
	for _, p := range []string{
		"10.1.0.5/16", "10.1.2.5/24", "172.16.0.1/12", "2001:db8::5/64", "fe80::5054:ff:fe12:3456/64", "fe80::7/64",
	} {
		i.Addrs = append(i.Addrs, netip.MustParsePrefix(p))
	}
	return i.GIDs()
}

// The kernel's table of such an interface, from ib_cache_gid_set_default_gid
// and enum_all_gids_of_dev: the default first and only once.
func TestGIDTable(t *testing.T) {
	want := []string{
		"fe80:0000:0000:0000:5054:00ff:fe12:3456",
		"0000:0000:0000:0000:0000:ffff:0a01:0005",
		"0000:0000:0000:0000:0000:ffff:0a01:0205",
		"0000:0000:0000:0000:0000:ffff:ac10:0001",
		"2001:0db8:0000:0000:0000:0000:0000:0005",
		"fe80:0000:0000:0000:0000:0000:0000:0007",
	}
	got := table()
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d: %v", len(got), len(want), got)
	}
	for i, g := range got {
		if g.String() != want[i] || g.Index != i || g.Type != "RoCE v2" || g.Iface != "eth0" || g.Default != (i == 0) {
			t.Errorf("entry %d: %+v %v, want %s", i, g, g, want[i])
		}
	}
}

func TestChooseGID(t *testing.T) {
	for _, c := range []struct {
		name, peer, routeSrc string
		want                 int
	}{
		{"same subnet", "172.16.9.9", "", 3},
		{"longest prefix", "10.1.2.9", "10.1.0.5", 2},
		{"shorter prefix", "10.1.3.9", "", 1},
		{"4-in-6", "::ffff:172.16.9.9", "", 3},
		{"through a gateway", "8.8.8.8", "172.16.0.1", 3},
		{"route leaves elsewhere", "8.8.8.8", "9.9.9.9", 1},
		{"no route", "8.8.8.8", "", 1},
		{"IPv6", "2001:db8::9", "", 4},
		{"IPv6 through a gateway", "2a00::1", "", 4},
		{"link-local takes a configured one", "fe80::99", "", 5},
		{"own address", "10.1.2.5", "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := chooseGID(table(), addr(c.peer), func() netip.Addr {
				a, _ := netip.ParseAddr(c.routeSrc)
				return a
			})
			if err != nil || g.Index != c.want {
				t.Errorf("chose %d %v (%v), want %d", g.Index, g.IP, err, c.want)
			}
		})
	}
}

// B79: entry 0 never for a peer that is not link-local, families never mixed.
func TestChooseGIDRefuses(t *testing.T) {
	only4 := table()[:2]
	for _, c := range []struct {
		gids []GID
		peer string
		say  string
	}{
		{table()[:1], "2001:db8::9", "IPv6 address on eth0"},
		{table()[:1], "10.0.0.1", "IPv4 address on eth0"},
		{only4, "2001:db8::9", "0 fe80::5054:ff:fe12:3456, 1 10.1.0.5"},
		{only4, "127.0.0.1", "IPv4"},
		{nil, "10.0.0.1", "empty"},
	} {
		g, err := chooseGID(c.gids, addr(c.peer), func() netip.Addr { return netip.Addr{} })
		if !errors.Is(err, ErrNoGID) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%v for %s: chose %v, %v", c.gids, c.peer, g.IP, err)
		}
	}
	if g, err := chooseGID(only4, addr("fe80::1"), nil); err != nil || g.Index != 0 {
		t.Errorf("link-local peer: %v %v", g, err)
	}
}

// Figures of Linux's rxe: 1500 gives 1024, 4200 and 9000 give 4096.
func TestPathMTU(t *testing.T) {
	for mtu, want := range map[int]int{
		68: 0, 335: 0, 336: 256, 591: 256, 592: 512, 1103: 512, 1104: 1024, 1500: 1024,
		2127: 1024, 2128: 2048, 4175: 2048, 4176: 4096, 4200: 4096, 9000: 4096, 65536: 4096,
	} {
		if got := PathMTU(mtu); got != want {
			t.Errorf("PathMTU(%d) = %d, want %d", mtu, got, want)
		}
	}
}

// TestUpdateGIDs: addresses keep their index, gaps are filled from the first on,
// and entry 0 is the default's.
func TestUpdateGIDs(t *testing.T) {
	def, mac2 := netip.MustParseAddr("fe80::ff:fe00:1"), netip.MustParseAddr("fe80::ff:fe00:2")
	a, b, c, d := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	var none netip.Addr
	gids := func(ips ...netip.Addr) (out []GID) {
		for i, ip := range ips {
			out = append(out, GID{Index: i, IP: ip, Default: i == 0})
		}
		return out
	}
	for _, x := range []struct {
		name            string
		old, now, after []netip.Addr
	}{
		{"nothing", []netip.Addr{def, a, b}, []netip.Addr{def, a, b}, []netip.Addr{def, a, b}},
		{"another order", []netip.Addr{def, a, b}, []netip.Addr{def, b, a}, []netip.Addr{def, a, b}},
		{"one goes", []netip.Addr{def, a, b, c}, []netip.Addr{def, a, c}, []netip.Addr{def, a, none, c}},
		{"one comes into a gap", []netip.Addr{def, a, none, c}, []netip.Addr{def, a, c, d}, []netip.Addr{def, a, d, c}},
		{"into the first gap", []netip.Addr{def, none, none, c}, []netip.Addr{def, c, d}, []netip.Addr{def, d, none, c}},
		{"at the end", []netip.Addr{def, a}, []netip.Addr{def, a, b, c}, []netip.Addr{def, a, b, c}},
		{"one for another", []netip.Addr{def, a, b}, []netip.Addr{def, c, b}, []netip.Addr{def, c, b}},
		{"all go", []netip.Addr{def, a, b}, nil, []netip.Addr{def, none, none}},
		{"another MAC", []netip.Addr{def, a}, []netip.Addr{mac2, a}, []netip.Addr{mac2, a}},
	} {
		got := UpdateGIDs(gids(x.old...), gids(x.now...))
		if len(got) != len(x.after) {
			t.Errorf("%s: %v", x.name, got)
			continue
		}
		for i, g := range got {
			if g.Index != i || g.IP != x.after[i] || g.IP.IsValid() && g.Default != (i == 0) {
				t.Errorf("%s: entry %d is %+v, want %v", x.name, i, g, x.after[i])
			}
		}
	}
	if g, err := ChooseGID(gids(def, none, c), d); err != nil || g.IP != c {
		t.Errorf("%v, %v", g, err)
	}
}
