package xdp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

// TestBursts: bursts of every shape arrive packet by packet, over frames that
// fit a chunk and frames that do not, from and to a link of the same kind and
// from and to sockets.
func TestBursts(t *testing.T) {
	for _, m := range modes {
		for _, mtu := range []int{1500, 9000} {
			t.Run(fmt.Sprintf("%s MTU %d", m.name, mtu), func(t *testing.T) {
				p := newPair(t, mtu)
				a := openOne(t, p.A, m)
				frames := openOne(t, p.B, m)
				for _, peer := range []string{"xdp", "udp"} {
					b := frames
					if peer == "udp" {
						frames.Close()
						b = openUDP(t, p.B, testbed.B4, testbed.B6)
					}
					for _, f := range linktest.Families {
						resolve(t, a, f.A, f.B)
						if peer == "xdp" {
							resolve(t, b, f.B, f.A)
						}
						for range 3 {
							exchange(t, a, b, f.A, f.B, mtu)
							exchange(t, b, a, f.B, f.A, mtu)
						}
					}
				}
				if s := a.Stats(); s.RxInvalid+s.RxDropped+s.TxErrors != 0 || s.RxPackets != s.TxPackets || s.RxBytes != s.TxBytes {
					t.Errorf("%+v %v %v", s, a.Reasons(), a.xdp().NamedCounters())
				}
				if got, all := a.xdp().tx.packets.Load(), a.Stats().TxPackets; got != all {
					t.Errorf("%d of %d packets left as frames", got, all)
				}
				if r := a.xdp().NamedCounters()["xdp_rx_runs"]; (r > 0) != m.generic {
					t.Errorf("%d runs", r)
				}
				if j := a.xdp().rx.joined.Load(); (j > 0) != (mtu == 9000 || m.generic) {
					t.Errorf("%d packets in several pieces", j)
				}
			})
		}
	}
}

// exchange sends bursts one way.
func exchange(t *testing.T, from, to node, src, dst netip.Addr, mtu int) {
	t.Helper()
	fl := flow(t, from, src, dst)
	shapes := [][2]int{{1, 0}, {1, 1024}, {60, 1024}, {2, 21}, {64, 8}}
	if mtu > 4096 {
		shapes = append(shapes, [2]int{15, 4096}, [2]int{1, 3900}, [2]int{2, 3800})
	}
	var bs []*wire.Burst
	total := 0
	for _, s := range shapes {
		b := burst(from, fl, 0x11, s[0], s[1])
		bs, total = append(bs, b), total+s[0]
	}
	linktest.Send(t, from, bs...)
	linktest.MatchPackets(t, linktest.Receive(t, to, total), bs...)
}

// TestFirstPackets: what is sent before the next hop is known leaves by the
// stack, and arrives just the same; from then on frames leave.
func TestFirstPackets(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 9000)
			a, b := openOne(t, p.A, m), openOne(t, p.B, m)
			for _, f := range linktest.Families {
				fl := flow(t, a, f.A, f.B)
				bs := []*wire.Burst{burst(a, fl, 0x11, 1, 100), burst(a, fl, 0x11, 15, 4096), burst(a, fl, 0x11, 60, 64)}
				before := a.xdp().tx.packets.Load()
				linktest.Send(t, a, bs...)
				if n := a.xdp().tx.packets.Load() - before; n != 0 {
					t.Errorf("%d packets left as frames to nobody", n)
				}
				linktest.Match(t, linktest.Receive(t, b, 76), bs...)
				resolve(t, a, f.A, f.B)
				linktest.Send(t, a, bs...)
				if n := a.xdp().tx.packets.Load() - before; n != 76 {
					t.Errorf("%d packets left as frames", n)
				}
				linktest.Match(t, linktest.Receive(t, b, 76), bs...)
			}
		})
	}
}

// TestPeerMoves: a peer whose MAC address changes is found again, and one that
// leaves the network costs no more than its packets.
func TestPeerMoves(t *testing.T) {
	p := newPair(t, 1500)
	a, b := openOne(t, p.A, modes[0]), openUDP(t, p.B, testbed.B4)
	resolve(t, a, testbed.A4, testbed.B4)
	bu := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 1, 100)
	linktest.Send(t, a, bu)
	linktest.Receive(t, b, 1)
	p.B.Tool("ip", "link", "set", testbed.Iface, "address", "02:00:00:00:00:77")
	p.A.Tool("ip", "neigh", "replace", testbed.B4.String(), "lladdr", "02:00:00:00:00:77", "dev", testbed.Iface, "nud", "reachable")
	for end := time.Now().Add(linktest.Patience); ; time.Sleep(10 * time.Millisecond) {
		before := a.xdp().tx.packets.Load()
		linktest.Send(t, a, bu)
		if drained(t, b, 0x11) && a.xdp().tx.packets.Load() > before {
			break // as a frame
		}
		if time.Now().After(end) {
			t.Fatal("frames still go to the old address")
		}
	}
	p.B.Tool("ip", "link", "set", testbed.Iface, "arp", "off")
	p.A.Tool("ip", "neigh", "replace", testbed.B4.String(), "dev", testbed.Iface, "nud", "failed")
	for end := time.Now().Add(linktest.Patience); ; time.Sleep(10 * time.Millisecond) {
		if m := *a.xdp().tx.hops.known.Load(); m[path{testbed.A4, testbed.B4}] == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("frames still go to a neighbour that is gone")
		}
		_, _ = a.Send([]*wire.Burst{bu})
	}
}

// TestOtherWays: peers behind a router get frames, those behind another
// interface are reached by the stack.
func TestOtherWays(t *testing.T) {
	p := newPair(t, 1500)
	far, beside := netip.MustParsePrefix("198.51.100.1/32"), netip.MustParsePrefix("203.0.113.2/24")
	p.AddWire("veth1", 1500, []netip.Prefix{netip.MustParsePrefix("203.0.113.1/24")}, []netip.Prefix{beside})
	p.B.AddAddr(far)
	p.A.Tool("ip", "route", "add", far.String(), "via", testbed.B4.String())
	for _, misleading := range []netip.Addr{far.Addr(), beside.Addr()} {
		p.A.Tool("ip", "neigh", "add", misleading.String(), "lladdr", "02:00:00:00:00:99", "dev", testbed.Iface, "nud", "permanent")
	}
	a, b := openOne(t, p.A, modes[0]), openUDP(t, p.B, testbed.B4, far.Addr(), beside.Addr())
	resolve(t, a, testbed.A4, far.Addr())
	if looked(t, a, testbed.A4, beside.Addr()) {
		t.Error("a peer on another interface has a next hop on this one")
	}
	for _, c := range []struct {
		dst    netip.Addr
		frames uint64
	}{{far.Addr(), 4}, {beside.Addr(), 0}} {
		fl := flow(t, a, testbed.A4, c.dst)
		before := a.xdp().tx.packets.Load()
		for range 2 {
			bu := burst(a, fl, 0x11, 2, 100)
			linktest.Send(t, a, bu)
			linktest.MatchPackets(t, linktest.Receive(t, b, 2), bu)
		}
		if n := a.xdp().tx.packets.Load() - before; n != c.frames {
			t.Errorf("to %v: %d frames, want %d", c.dst, n, c.frames)
		}
	}
}

// TestQueues: a link takes what comes by any of its queues, and several links
// take all of it between them.
func TestQueues(t *testing.T) {
	for _, m := range modes {
		for _, shards := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s %d", m.name, shards), func(t *testing.T) {
				p := newPair(t, 1500)
				for _, h := range []*testbed.Host{p.A, p.B} {
					h.Tool("ethtool", "-L", testbed.Iface, "rx", "2", "tx", "2")
				}
				as := openOn(t, p.A, Config{Interface: testbed.Iface, Generic: m.generic, Shards: 2})
				bs := openOn(t, p.B, Config{Interface: testbed.Iface, Generic: m.generic, Shards: shards})
				if len(bs) != shards {
					t.Fatalf("%d links", len(bs))
				}
				for i, a := range as { // a veth's queue is that of the sender, or the first
					to := bs[i%shards]
					if m.generic {
						to = bs[0]
					}
					for _, f := range linktest.Families {
						resolve(t, a, f.A, f.B)
						bu := burst(a, flow(t, a, f.A, f.B), 0x11, 5, 1024)
						linktest.Send(t, a, bu)
						linktest.Match(t, linktest.Receive(t, to, 5), bu)
					}
				}
				var missed uint64
				for _, b := range bs {
					missed += b.xdp().NamedCounters()["xdp_rx_no_socket"]
				}
				if missed != 0 {
					t.Errorf("%d packets came by a queue without a socket", missed)
				}
			})
		}
	}
}

// TestLostQueue: packets by a queue that has no socket are counted.
func TestLostQueue(t *testing.T) {
	p := newPair(t, 1500)
	a, b := openOne(t, p.A, modes[0]), openOne(t, p.B, modes[0])
	resolve(t, a, testbed.A4, testbed.B4)
	if err := b.xdp().dev.prog.sockets.Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	linktest.Send(t, a, burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 5, 64))
	for end := time.Now().Add(linktest.Patience); b.Stats().RxDropped != 5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", b.Stats())
		}
	}
}

// TestVLAN: a link on a VLAN interface, which has no native mode.
func TestVLAN(t *testing.T) {
	p := newPair(t, 9000)
	a4, b4 := netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("198.51.100.2/24")
	a6, b6 := netip.MustParsePrefix("fd00:5::1/64"), netip.MustParsePrefix("fd00:5::2/64")
	va, vb := p.A.AddVLAN(5, a4, a6), p.B.AddVLAN(5, b4, b6)
	a, b := openOn(t, p.A, Config{Interface: va})[0], openOn(t, p.B, Config{Interface: vb})[0]
	for _, f := range [][2]netip.Addr{{a4.Addr(), b4.Addr()}, {a6.Addr(), b6.Addr()}} {
		resolve(t, a, f[0], f[1])
		fl := flow(t, a, f[0], f[1])
		bs := []*wire.Burst{burst(a, fl, 0x11, 15, 4096), burst(a, fl, 0x11, 1, 1)}
		linktest.Send(t, a, bs...)
		linktest.Match(t, linktest.Receive(t, b, 16), bs...)
	}
}

// TestLoopback: a link on lo receives, and sends by the stack, which does not
// believe frames with loopback addresses.
func TestLoopback(t *testing.T) {
	p := newPair(t, 1500)
	l1, l2 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	a := openOn(t, p.A, Config{Interface: "lo", Addrs: []netip.Addr{l1, netip.IPv6Loopback()}})[0]
	b := openUDP(t, p.A, l2)
	for range 3 {
		exchange(t, a, b, l1, l2, 65536)
		exchange(t, b, a, l2, l1, 65536)
	}
	if n := a.xdp().tx.packets.Load(); n != 0 {
		t.Errorf("%d frames", n)
	}
}

// TestNoAllocations: neither Send, in frames of one and of two pieces, nor a
// Recv that brings them or nothing allocates.
func TestNoAllocations(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 9000)
			a, b := openOne(t, p.A, m), openOne(t, p.B, m)
			ds := make([]wire.Datagram, 8)
			const runs = 20
			for _, f := range linktest.Families {
				resolve(t, a, f.A, f.B)
				fl := flow(t, a, f.A, f.B)
				bs := []*wire.Burst{burst(a, fl, 0x11, 4, 1024), burst(a, fl, 0x11, 4, 4096)}
				got := 0
				if n := testing.AllocsPerRun(runs, func() {
					if n, err := a.Send(bs); n != 8 || err != nil {
						t.Fatal(n, err)
					}
					for k := 0; k < 8; {
						n, _ := b.Recv(ds)
						k += n
						got += n
					}
				}); n != 0 || got != 8*(runs+1) {
					t.Errorf("%s: %v allocations a round, %d datagrams", f.Name, n, got)
				}
			}
			if n := testing.AllocsPerRun(runs, func() { _, _ = b.Recv(ds) }); n != 0 {
				t.Errorf("%v allocations in an empty Recv", n)
			}
		})
	}
}
