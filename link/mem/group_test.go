package mem_test

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/link/mem/memtest"
	"github.com/gorxe/gorxe/wire"
)

// groups are one group of each kind, and who sends to it.
var groups = []struct{ src, group string }{
	{"192.0.2.1", "239.1.2.3"},
	{"2001:db8::1", "ff02::114"},
	{"2001:db8::1", "ff0e::1:2"},
}

func attach(t testing.TB, n *mem.Network, cfg mem.Config, addrs ...string) []link.Link {
	t.Helper()
	for _, a := range addrs {
		cfg.Addrs = append(cfg.Addrs, netip.MustParseAddr(a))
	}
	ls, err := n.Attach(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, l := range ls {
			l.Close()
		}
	})
	return ls
}

func join(t testing.TB, l link.Link, group string) {
	t.Helper()
	if err := l.(link.GroupJoiner).JoinGroup(netip.MustParseAddr(group)); err != nil {
		t.Fatal(err)
	}
}

func leave(t testing.TB, l link.Link, group string) {
	t.Helper()
	if err := l.(link.GroupJoiner).LeaveGroup(netip.MustParseAddr(group)); err != nil {
		t.Fatal(err)
	}
}

// expect checks how many datagrams to dst each link has.
func expect(t *testing.T, dst string, want map[link.Link]int) {
	t.Helper()
	v := wire.NewVerifier()
	ds := make([]wire.Datagram, 8)
	for l, k := range want {
		n, err := l.Recv(ds)
		if n != k || err != nil {
			t.Fatalf("Recv = %d, %v; want %d", n, err, k)
		}
		for i := range ds[:n] {
			if ds[i].Dst != netip.MustParseAddr(dst) {
				t.Errorf("to %v, want %v", ds[i].Dst, dst)
			}
			for s := range ds[i].Segments() {
				memtest.Check(t, v, &ds[i], s)
			}
		}
	}
}

// A burst to a group comes once to every port that joined, on the link that
// joined, whatever queue pair it names, and not back to its sender.
func TestGroups(t *testing.T) {
	for _, g := range groups {
		n := mem.NewNetwork()
		a := attach(t, n, mem.Config{}, "192.0.2.1", "2001:db8::1")[0]
		b := attach(t, n, mem.Config{Shards: 4}, "192.0.2.2")
		c := attach(t, n, mem.Config{Single: true}, "192.0.2.3")[0]
		d := attach(t, n, mem.Config{}, "192.0.2.4")[0]
		burst := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow(g.src, g.group), QPN: 0xffffff, Op: bth.UDSendOnly, Lens: []int{64, 64, 8}})

		send(t, a, burst) // nobody is there
		join(t, a, g.group)
		join(t, b[1], g.group)
		join(t, b[1], g.group+zone(g.group))
		join(t, c, g.group)
		send(t, a, burst)
		expect(t, g.group, map[link.Link]int{a: 0, b[0]: 0, b[1]: 1, b[2]: 0, b[3]: 0, c: 3, d: 0})
		if s := stats(a); s.TxPackets != 6 || s.TxErrors != 0 {
			t.Errorf("sender: %+v", s)
		}

		leave(t, b[1], g.group)
		leave(t, b[1], g.group)
		leave(t, b[0], g.group)
		send(t, a, burst)
		expect(t, g.group, map[link.Link]int{b[1]: 0, c: 3})
		join(t, b[2], g.group) // another link may have it now
		c.Close()
		send(t, a, burst)
		expect(t, g.group, map[link.Link]int{b[1]: 0, b[2]: 1})
		if u := n.Unknown(); u != 0 {
			t.Errorf("%d packets to an unknown address", u)
		}
	}
}

func zone(group string) string {
	if netip.MustParseAddr(group).Is6() {
		return "%eth0"
	}
	return ""
}

// Each port drops for itself.
func TestGroupOverflow(t *testing.T) {
	n := mem.NewNetwork()
	a := attach(t, n, mem.Config{}, "192.0.2.1")[0]
	b := attach(t, n, mem.Config{Depth: 1}, "192.0.2.2")[0]
	c := attach(t, n, mem.Config{}, "192.0.2.3")[0]
	join(t, b, "239.0.0.1")
	join(t, c, "239.0.0.1")
	burst := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow("192.0.2.1", "239.0.0.1"), QPN: 0xffffff, Op: bth.UDSendOnly, Lens: []int{8}})
	send(t, a, burst, burst, burst)
	expect(t, "239.0.0.1", map[link.Link]int{b: 1, c: 3})
	if stats(b).RxDropped != 2 || stats(c).RxDropped != 0 {
		t.Errorf("dropped %d and %d, want 2 and 0", stats(b).RxDropped, stats(c).RxDropped)
	}
}

func TestGroupErrors(t *testing.T) {
	n := mem.NewNetwork()
	a := attach(t, n, mem.Config{Shards: 2}, "192.0.2.1")
	one := a[0].(link.GroupJoiner)
	for _, bad := range []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("255.255.255.255")} {
		if one.JoinGroup(bad) == nil || one.LeaveGroup(bad) == nil {
			t.Errorf("%v is no group", bad)
		}
	}
	if err := one.JoinGroup(netip.MustParseAddr("::ffff:239.0.0.1")); err != nil { // as in a GID
		t.Error(err)
	}
	if a[1].(link.GroupJoiner).JoinGroup(netip.MustParseAddr("239.0.0.1")) == nil {
		t.Error("two links of a port joined one group")
	}
	if _, err := n.Attach(mem.Config{Addrs: []netip.Addr{netip.MustParseAddr("239.0.0.1")}}); err == nil {
		t.Error("a port with a group for an address")
	}
	a[0].Close()
	if !errors.Is(one.JoinGroup(netip.MustParseAddr("239.0.0.2")), link.ErrClosed) || !errors.Is(one.LeaveGroup(netip.MustParseAddr("239.0.0.1")), link.ErrClosed) {
		t.Error("joined and left after Close")
	}
}

// Members come and go while others send: each datagram is whole, and the
// member that stays gets all of them.
func TestGroupChurn(t *testing.T) {
	const bursts = 500
	n := mem.NewNetwork()
	a := attach(t, n, mem.Config{}, "192.0.2.1")[0]
	stays := attach(t, n, mem.Config{}, "192.0.2.2")[0]
	moves := attach(t, n, mem.Config{Depth: bursts}, "192.0.2.3")[0]
	join(t, stays, "239.0.0.1")
	burst := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow("192.0.2.1", "239.0.0.1"), QPN: 0xffffff, Op: bth.UDSendOnly, Lens: []int{8}})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range bursts {
			j, g := moves.(link.GroupJoiner), netip.MustParseAddr("239.0.0.1")
			if err := errors.Join(j.JoinGroup(g), j.LeaveGroup(g)); err != nil {
				t.Error(err)
			}
		}
	})
	for range bursts {
		send(t, a, burst)
	}
	wg.Wait()
	v := wire.NewVerifier()
	ds := make([]wire.Datagram, bursts+1)
	for _, l := range []link.Link{stays, moves} {
		k, err := l.Recv(ds)
		if l == stays && k != bursts || err != nil {
			t.Errorf("Recv = %d, %v; want %d", k, err, bursts)
		}
		for i := range ds[:k] {
			memtest.Check(t, v, &ds[i], 0)
		}
	}
}
