package xdp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/linktest"
)

var (
	group4 = netip.MustParseAddr("239.129.2.3") // its MAC address is that of 239.1.2.3 too
	group6 = netip.MustParseAddr("ff0e::4791:1")
)

// TestGroups: packets to a group come while it is joined, to the link that
// joined it, and its host is a member so long.
func TestGroups(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			a, b := openOne(t, p.A, m), openOne(t, p.B, m)
			for _, c := range []struct {
				src, dst, like netip.Addr
			}{
				{testbed.A4, group4, netip.MustParseAddr("239.1.2.3")},
				{testbed.A6, group6, netip.MustParseAddr("ff0e::1:4791:1")},
			} {
				fl, like := flow(t, a, c.src, c.dst), flow(t, a, c.src, c.like)
				fl.Scope, like.Scope = uint32(p.A.Index(testbed.Iface)), uint32(p.A.Index(testbed.Iface))
				bu, other := burst(a, fl, 0xffffff, 3, 200), burst(a, like, 0xffffff, 1, 8)
				for range 2 {
					linktest.Send(t, a, bu) // to nobody
					p.B.Do(func() {
						for range 2 {
							if err := b.xdp().JoinGroup(c.dst); err != nil {
								t.Fatal(err)
							}
						}
					})
					if !isMember(p.B, c.dst) {
						t.Errorf("not a member of %v", c.dst)
					}
					linktest.Send(t, a, other, bu)
					linktest.Match(t, linktest.Receive(t, b, 3), bu)
					if err := b.xdp().LeaveGroup(c.dst); err != nil {
						t.Fatal(err)
					}
					if isMember(p.B, c.dst) {
						t.Errorf("still a member of %v", c.dst)
					}
				}
			}
			looked(t, a, testbed.A4, testbed.B4)
			if known := *a.xdp().tx.hops.known.Load(); len(known) != 1 || a.xdp().tx.packets.Load() != 0 {
				t.Errorf("groups have next hops: %v; %d frames", known, a.xdp().tx.packets.Load())
			}
			b.Close()
			if err := b.xdp().JoinGroup(group4); err != link.ErrClosed {
				t.Errorf("join after Close: %v", err)
			}
		})
	}
}

// TestGroupErrors: what cannot be joined, and that a closed link leaves.
func TestGroupErrors(t *testing.T) {
	p := newPair(t, 1500)
	p.A.Tool("ethtool", "-L", testbed.Iface, "rx", "2", "tx", "2")
	ls := openOn(t, p.A, Config{Interface: testbed.Iface, Shards: 2})
	join := func(l node, g netip.Addr) (err error) {
		p.A.Do(func() { err = l.xdp().JoinGroup(g) })
		return err
	}
	if err := join(ls[0], testbed.A4); err == nil || !strings.Contains(err.Error(), "224.0.0.0/4") {
		t.Errorf("joined an address: %v", err)
	}
	if err := join(ls[0], group4); err != nil {
		t.Fatal(err)
	}
	if err := join(ls[1], group4); err == nil || !strings.Contains(err.Error(), "another link") {
		t.Errorf("joined twice: %v", err)
	}
	if err := ls[1].xdp().LeaveGroup(group4); err != nil || !isMember(p.A, group4) {
		t.Errorf("left by a link that had not joined: %v", err)
	}
	g := group4.As4()
	for i := range maxGroups - 1 {
		g[2], g[3] = 100, byte(i)
		if err := join(ls[0], netip.AddrFrom4(g)); err != nil {
			t.Fatalf("group %d: %v", i+2, err)
		}
	}
	if err := join(ls[0], group6); err == nil || !strings.Contains(err.Error(), "256 groups") {
		t.Errorf("joined too many: %v", err)
	}
	ls[0].Close()
	if isMember(p.A, group4) {
		t.Error("a closed link's host is a member")
	}
	if err := join(ls[1], group4); err != nil {
		t.Errorf("join after another link has left: %v", err)
	}
}

// isMember asks the kernel whether a host's interface is in a group.
func isMember(h *testbed.Host, g netip.Addr) bool {
	return strings.Contains(h.Tool("ip", "maddress", "show", "dev", testbed.Iface), " "+g.String()+"\n")
}
