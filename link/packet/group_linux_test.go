package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/wire"
)

var (
	group4    = netip.MustParseAddr("239.1.2.3")
	group6    = netip.MustParseAddr("ff0e::4791:1")
	groupLink = netip.MustParseAddr("ff02::4791:1")
)

func joinGroup(t *testing.T, group netip.Addr, ls ...node) {
	t.Helper()
	for _, l := range ls {
		l.host.Do(func() {
			if err := l.JoinGroup(group); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func leaveGroup(t *testing.T, group netip.Addr, ls ...node) {
	t.Helper()
	for _, l := range ls {
		if err := l.LeaveGroup(group); err != nil {
			t.Fatal(err)
		}
	}
}

func groupFlow(t *testing.T, l node, src, group netip.Addr) *wire.Flow {
	f := flow(t, l, src, group)
	f.Scope = uint32(l.groups.iface)
	return f
}

// quiet fails unless the links have received nothing. Call it after something
// sent later has come.
func quiet(t *testing.T, ls ...node) {
	t.Helper()
	for i, l := range ls {
		if n, err := l.Recv(make([]wire.Datagram, 4)); n != 0 || err != nil {
			t.Errorf("link %d: %d datagrams, %v", i, n, err)
		}
	}
}

// procNet reads a file of /proc/net in a host's namespace.
func procNet(t *testing.T, h *testbed.Host, name string) (text string) {
	t.Helper()
	h.Do(func() {
		b, err := os.ReadFile("/proc/thread-self/net/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	})
	return text
}

// isMember reports whether a host is in a group.
func isMember(t *testing.T, h *testbed.Host, group netip.Addr) bool {
	t.Helper()
	if group.Is4() {
		a := group.As4() // the kernel prints the number in the host's byte order
		return strings.Contains(procNet(t, h, "igmp"), fmt.Sprintf("%02X%02X%02X%02X", a[3], a[2], a[1], a[0]))
	}
	return strings.Contains(procNet(t, h, "igmp6"), fmt.Sprintf("%x", group.As16()))
}

// icmpSent returns the lines that count what a host sent by ICMP of errors.
func icmpSent(t *testing.T, h *testbed.Host) (lines []string) {
	t.Helper()
	for line := range strings.Lines(procNet(t, h, "snmp") + procNet(t, h, "snmp6")) {
		if strings.HasPrefix(line, "Icmp:") || strings.HasPrefix(line, "Icmp6OutDestUnreachs") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestGroups sends to a group that is joined on the far host by two links, on
// the near one by another, and on the far host by one on another interface.
// The first three get every packet once, with exact ICRCs, the last and a link
// that did not join get none; after leaving nobody does. The hosts answer
// nothing.
func TestGroups(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a2, b2, b3 := netip.MustParsePrefix("192.0.2.11/24"), netip.MustParsePrefix("192.0.2.12/24"), netip.MustParsePrefix("192.0.2.13/24")
	p.A.AddAddr(a2)
	p.B.AddAddr(b2)
	p.B.AddAddr(b3)
	p.AddWire("veth1", 9000, []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24")}, []netip.Prefix{netip.MustParsePrefix("198.51.100.2/24")})
	on := func(h *testbed.Host, addrs ...netip.Addr) node {
		return openOn(t, h, Config{Interface: testbed.Iface, Addrs: addrs})[0]
	}
	a, near := on(p.A, testbed.A4, testbed.A6), on(p.A, a2.Addr())
	far, other, not := on(p.B, testbed.B4, testbed.B6), on(p.B, b2.Addr()), on(p.B, b3.Addr())
	apart := openOne(t, p.B, "veth1")
	before := fmt.Sprint(icmpSent(t, p.A), icmpSent(t, p.B))
	for _, c := range []struct{ src, group, alike netip.Addr }{
		{testbed.A4, group4, netip.MustParseAddr("ff0e::ef01:203")},
		{testbed.A6, group6, netip.MustParseAddr("ff0e::1:4791:1")},
		{testbed.A6, groupLink, netip.MustParseAddr("ff05::4791:1")},
	} {
		t.Run(c.group.String(), func(t *testing.T) {
			f := groupFlow(t, a, c.src, c.group)
			bs := []*wire.Burst{burst(a, f, 0xffffff, 1, 8), burst(a, f, 0xffffff, 15, 4096), burst(a, f, 0xffffff, 60, 1024)}
			marker := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 1, 8)
			send(t, a, bs...) // nobody has joined
			send(t, a, marker)
			match(t, receive(t, far, 1), marker)

			joinGroup(t, c.group, near, far, far, other, apart)
			joinGroup(t, c.alike, not) // what the filter cannot tell from the group
			if !isMember(t, p.B, c.group) {
				t.Error("the far host is no member")
			}
			for range 3 {
				send(t, a, bs...)
				send(t, a, marker)
				match(t, receive(t, far, 77), append(bs, marker)...)
				match(t, receive(t, other, 76), bs...)
				match(t, receive(t, near, 76), bs...)
				quiet(t, far, other, near, apart, not, a)
			}

			leaveGroup(t, c.group, near, far, far, other, apart, not)
			leaveGroup(t, c.alike, not)
			if isMember(t, p.B, c.group) {
				t.Error("the far host is still a member")
			}
			send(t, a, bs...)
			send(t, a, marker)
			match(t, receive(t, far, 1), marker)
			quiet(t, far, other, near, apart, not)
		})
	}
	if after := fmt.Sprint(icmpSent(t, p.A), icmpSent(t, p.B)); after != before {
		t.Errorf("the stack answered:\n%s\nbefore\n%s", after, before)
	}
	for i, l := range []node{a, near, far, other, not, apart} {
		if s := l.Stats(); s.RxDropped+s.RxInvalid+s.TxErrors != 0 {
			t.Errorf("link %d: %+v", i, s)
		}
	}
}

// TestGroupShards: a group's packets arrive on the link that joined, whatever
// their queue pair.
func TestGroupShards(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	a := openOne(t, p.A, testbed.Iface)
	bs := openOn(t, p.B, Config{Interface: testbed.Iface, Shards: 4})
	joinGroup(t, group4, bs[2])
	joinGroup(t, group6, bs[1])
	if err := bs[0].JoinGroup(group4); err == nil {
		t.Error("two links joined one group")
	}
	leaveGroup(t, group4, bs[0]) // which has not joined
	for _, c := range []struct {
		src, group netip.Addr
		to         node
	}{{testbed.A4, group4, bs[2]}, {testbed.A6, group6, bs[1]}} {
		f := groupFlow(t, a, c.src, c.group)
		for _, qpn := range []uint32{0xffffff, 0x10, 0x11} {
			b := burst(a, f, qpn, 5, 1024)
			send(t, a, b)
			match(t, receive(t, c.to, 5), b)
		}
		uni := flow(t, a, testbed.A4, testbed.B4) // still spread
		for i, l := range bs {
			b := burst(a, uni, uint32(0x100+i), 1, 64)
			send(t, a, b)
			match(t, receive(t, l, 1), b)
		}
	}
	bs[2].Close()
	if isMember(t, p.B, group4) || !isMember(t, p.B, group6) {
		t.Error("closing a link must leave its groups, and only those")
	}
	for _, l := range bs {
		l.Close()
	}
	if isMember(t, p.B, group6) {
		t.Error("a group is still joined after Close")
	}
	if err := bs[1].JoinGroup(group6); !errors.Is(err, link.ErrClosed) {
		t.Error(err)
	}
	if err := bs[1].LeaveGroup(group6); !errors.Is(err, link.ErrClosed) {
		t.Error(err)
	}
}

// TestGroupOnLoopback: groups on lo are heard on lo, once, and not by a link
// on another interface that has joined the same group.
func TestGroupOnLoopback(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	l1, l2 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	one := openOn(t, p.A, Config{Interface: "lo", Addrs: []netip.Addr{l1, netip.IPv6Loopback()}})[0]
	two := openOn(t, p.A, Config{Interface: "lo", Addrs: []netip.Addr{l2}})[0]
	veth := openOne(t, p.A, testbed.Iface)
	joinGroup(t, group4, two, veth) // Linux has no IPv6 multicast on lo
	f := groupFlow(t, one, l1, group4)
	bs := []*wire.Burst{burst(one, f, 0xffffff, 1, 64), burst(one, f, 0xffffff, 15, 4096)}
	send(t, one, bs...)
	match(t, receive(t, two, 16), bs...)
	quiet(t, one, two, veth)
}

// TestGroupLimits: errors cost no descriptor, and there is room for as many
// groups as the documentation says.
func TestGroupLimits(t *testing.T) {
	h := testbed.NewHost(t)
	ls := openOn(t, h, Config{Interface: "lo", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Shards: 2})
	full := make(map[netip.Addr]member)
	for i := range maxGroups {
		full[netip.AddrFrom4([4]byte{239, 9, byte(i >> 8), byte(i)})] = member{link: 1}
	}
	if err := sys.Attach(ls[0].rx.in[0].fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, fanoutFilter(full)); err != nil {
		t.Error(err)
	}
	for _, l := range ls {
		l.Close()
	}

	l := openOn(t, h, Config{Interface: "lo", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})[0]
	before := descriptors(t)
	if err := l.JoinGroup(testbed.A4); err == nil {
		t.Error("a unicast address was joined")
	}
	if err := l.LeaveGroup(testbed.A4); err == nil {
		t.Error("a unicast address was left")
	}
	l.groups.iface = 0x7fffffff
	if err := l.JoinGroup(group4); !errors.Is(err, unix.ENODEV) {
		t.Error(err)
	}
	l.groups.iface = l.groups.lo
	joinGroup(t, group4, l)
	leaveGroup(t, group4, l)
	if err := sys.AttachFilter(l.rx.in[1].fd, acceptFilter(long, l.groups.iface, l.groups.lo, full)); err != nil {
		t.Error(err)
	}
	none := l.groups.members
	l.groups.members = full
	if err := l.JoinGroup(group4); err == nil || !strings.Contains(err.Error(), "256 groups") {
		t.Error(err)
	}
	l.groups.members = none
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// TestGroupConcurrentUse joins and leaves on two links of a device while they
// receive, wait and close.
func TestGroupConcurrentUse(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	before := descriptors(t)
	a := openOne(t, p.A, testbed.Iface)
	f := groupFlow(t, a, testbed.A4, group4)
	b := burst(a, f, 0xffffff, 2, 64)
	for range 5 {
		ls := openOn(t, p.B, Config{Interface: testbed.Iface, Shards: 2})
		var wg sync.WaitGroup
		for i, l := range ls {
			g := []netip.Addr{group4, group6}[i]
			for _, step := range []func() error{
				func() error { _, err := l.Recv(make([]wire.Datagram, 4)); return err },
				func() error { return l.Wait(-1) },
				func() error { return errors.Join(l.JoinGroup(g), l.LeaveGroup(g)) },
			} {
				wg.Go(func() {
					p.B.Do(func() {
						for {
							if err := step(); err != nil {
								if !errors.Is(err, link.ErrClosed) {
									t.Error(err)
								}
								return
							}
						}
					})
				})
			}
		}
		for range 50 {
			send(t, a, b)
		}
		for _, l := range ls {
			l.Close()
		}
		wg.Wait()
	}
	a.Close()
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if isMember(t, p.B, group4) || isMember(t, p.B, group6) {
		t.Error("groups are still joined")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}
