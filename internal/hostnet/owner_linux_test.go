package hostnet

import (
	"net/netip"
	"strings"
	"testing"
)

func TestOwnerText(t *testing.T) {
	for _, c := range []struct {
		o    PortOwner
		want string
	}{
		{PortOwner{PID: 7, Command: "rxed", UID: 0}, "process 7 (rxed): stop it, or use another address"},
		{PortOwner{UID: 0, Kernel: true, Devices: []string{"rxe0"}}, "the kernel's Soft-RoCE: remove it with `rdma link delete rxe0`"},
		{PortOwner{UID: 0, Kernel: true, Devices: []string{"rxe0", "rxe1"}}, "`rdma link delete rxe0` and `rdma link delete rxe1`"},
		{PortOwner{UID: 0, Devices: []string{"rxe0"}}, "`rdma link delete rxe0`"},
		{PortOwner{UID: 0, Kernel: true}, "the kernel, probably its Soft-RoCE"},
		{PortOwner{UID: 1000}, "user 1000"},
		{PortOwner{UID: -1}, "`rdma link delete NAME`"},
	} {
		if got := c.o.String(); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s, want %s", c.o, got, c.want)
		}
	}
}

func TestOwnerHas(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		owner, a netip.Addr
		want     bool
	}{
		{a, a, true},
		{a, netip.MustParseAddr("::ffff:192.0.2.1"), true},
		{a, netip.MustParseAddr("192.0.2.2"), false},
		{netip.IPv4Unspecified(), a, true},
		{netip.IPv6Unspecified(), a, true}, // the error of a bind says so too
		{netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::1%eth0"), true},
		{netip.Addr{}, a, false},
	} {
		if got := (PortOwner{Addr: c.owner}).Has(c.a); got != c.want {
			t.Errorf("owner of %v has %v: %v", c.owner, c.a, got)
		}
	}
}

func TestParseProcUDP(t *testing.T) {
	for line, want := range map[string]procUDP{
		"  366: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 12345 2 0000000000000000 0":                               {netip.MustParseAddr("127.0.0.1"), 4791, 1000, "12345"},
		"  366: 000080FE00000000FF005450040302FE:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 99 2 0 0": {netip.MustParseAddr("fe80::5054:ff:fe02:304"), 4791, 0, "99"},
		"  366: 0000000000000000FFFF0000010200C0:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 98 2 0 0": {netip.MustParseAddr("192.0.2.1"), 4791, 0, "98"},
	} {
		if l, ok := parseProcUDP(line); !ok || l != want {
			t.Errorf("%q: %+v %v, want %+v", line, l, ok, want)
		}
	}
	for _, bad := range []string{"", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops", "1: zz:12B7 a b c d e 0 f 1 1"} {
		if _, ok := parseProcUDP(bad); ok {
			t.Errorf("%q was understood", bad)
		}
	}
}
