package packet

import (
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

// TestSuperPackets: bursts arrive whole with their segment size, whatever
// their shape, in both directions.
func TestSuperPackets(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
	for _, f := range linktest.Families {
		t.Run(f.Name, func(t *testing.T) {
			for _, dir := range []struct {
				from, to node
				src, dst netip.Addr
			}{{a, b, f.A, f.B}, {b, a, f.B, f.A}} {
				fl := flow(t, dir.from, dir.src, dir.dst)
				var bs []*wire.Burst
				for _, s := range [][2]int{{1, 0}, {1, 4096}, {15, 4096}, {60, 1024}, {2, 21}, {64, 8}} {
					bs = append(bs, burst(dir.from, fl, 0x11, s[0], s[1]))
				}
				total := 0
				for _, b := range bs {
					total += b.Len()
				}
				send(t, dir.from, bs...)
				got := receive(t, dir.to, total)
				match(t, got, bs...)
				if len(got) != len(bs) {
					t.Errorf("%d bursts arrived in %d datagrams", len(bs), len(got))
				}
				for i, d := range got {
					want := bs[i].SegLen()
					if bs[i].Len() == 1 {
						want = 0
					}
					if d.SegLen != want || d.ID != 0 || f.A.Is4() && d.Flags != wire.FlagDF {
						t.Errorf("burst %d: segment size %d, want %d; ID %d flags %#x", i, d.SegLen, want, d.ID, d.Flags)
					}
				}
			}
		})
	}
	if s := b.Stats(); s.RxPackets != s.TxPackets || s.RxBytes != s.TxBytes || s.RxPackets == 0 || s.RxInvalid+s.RxDropped+s.TxErrors != 0 {
		t.Errorf("%+v", s)
	}
}

// TestSegmentedWire: a sender without segmentation offload puts single packets
// on the wire, numbered, and the ICRC holds for each. Where the receiver's GRO
// merges them again it holds as well.
func TestSegmentedWire(t *testing.T) {
	for _, gro := range []string{"off", "on"} {
		t.Run("GRO "+gro, func(t *testing.T) {
			p := testbed.NewPair(t, 9000)
			p.A.Tool("ethtool", "-K", testbed.Iface, "tx-udp-segmentation", "off")
			p.B.Tool("ethtool", "-K", testbed.Iface, "gro", gro, "rx-udp-gro-forwarding", gro)
			a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
			for _, f := range linktest.Families {
				fl := flow(t, a, f.A, f.B)
				bs := []*wire.Burst{burst(a, fl, 0x11, 15, 4096), burst(a, fl, 0x11, 60, 1024)}
				send(t, a, bs...)
				got := receive(t, b, 75)
				match(t, got, bs...)
				if gro == "on" {
					continue
				}
				for i, d := range got {
					id := uint16(i)
					if i >= 15 {
						id -= 15
					}
					if d.SegLen != 0 || f.A.Is4() && d.ID != id {
						t.Errorf("%s packet %d: segment size %d, ID %d, want %d", f.Name, i, d.SegLen, d.ID, id)
					}
				}
			}
		})
	}
}

// TestVLAN: a link on a VLAN interface carries super-packets, and a link on
// the interface below sees nothing of them although it serves the same
// address.
func TestVLAN(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a4, b4 := netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("198.51.100.2/24")
	a6, b6 := netip.MustParsePrefix("fd00:5::1/64"), netip.MustParsePrefix("fd00:5::2/64")
	va, vb := p.A.AddVLAN(5, a4, a6), p.B.AddVLAN(5, b4, b6)
	a, b := openOne(t, p.A, va), openOne(t, p.B, vb)
	below := openOne(t, p.B, testbed.Iface)
	below.rx.add(b4.Addr())
	below.rx.add(b6.Addr())
	plain := openOne(t, p.A, testbed.Iface)
	for _, f := range [][2]netip.Addr{{a4.Addr(), b4.Addr()}, {a6.Addr(), b6.Addr()}} {
		fl := flow(t, a, f[0], f[1])
		bs := []*wire.Burst{burst(a, fl, 0x11, 15, 4096), burst(a, fl, 0x11, 1, 1)}
		send(t, a, bs...)
		match(t, receive(t, b, 16), bs...)
	}
	marker := burst(plain, flow(t, plain, testbed.A4, testbed.B4), 0x12, 1, 8)
	send(t, plain, marker)
	match(t, receive(t, below, 1), marker) // and nothing before it
	if s := b.Stats(); s.RxPackets != 32 {
		t.Errorf("%+v", s)
	}
}

// TestPriorityTag: a run in a frame with a tag for VLAN 0 arrives, whether the
// kernel cuts it up or not, and the tag is not in the way.
func TestPriorityTag(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
	bu := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 5, 1024)
	f := linktest.Tag(linktest.Frame(bu), 0xa000)
	linktest.NewInjector(t, p.A).SendRun(f, wire.EthernetLen+wire.VLANLen+wire.IPv4Len, bu.SegLen())
	match(t, receive(t, b, 5), bu)
}

// TestShards: a packet arrives on the link that the low bits of its queue
// pair number name, and only there.
func TestShards(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	a := openOne(t, p.A, testbed.Iface)
	bs := openOn(t, p.B, Config{Interface: testbed.Iface, Shards: 4})
	if len(bs) != 4 {
		t.Fatalf("%d links", len(bs))
	}
	for _, f := range linktest.Families {
		fl := flow(t, a, f.A, f.B)
		for qpn := uint32(0xabcde0); qpn < 0xabcdf0; qpn++ {
			b := burst(a, fl, qpn, 5, 1024)
			send(t, a, b)
			match(t, receive(t, bs[qpn%4], 5), b)
		}
	}
	for i, l := range bs {
		if s := l.Stats(); s.RxPackets != 2*4*5 {
			t.Errorf("shard %d: %+v", i, s)
		}
	}
}

// TestLoopback: on lo each packet is seen once, by the link that has its
// address; and a link on another interface hears its own addresses, whose
// packets travel over lo.
func TestLoopback(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	l1, l2 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	one := openOn(t, p.A, Config{Interface: "lo", Addrs: []netip.Addr{l1, netip.IPv6Loopback()}})[0]
	two := openOn(t, p.A, Config{Interface: "lo", Addrs: []netip.Addr{l2}})[0]
	veth := openOne(t, p.A, testbed.Iface)
	for _, c := range []struct {
		from, to node
		src, dst netip.Addr
	}{
		{one, two, l1, l2},
		{two, one, l2, l1},
		{one, one, l1, l1},
		{one, one, netip.IPv6Loopback(), netip.IPv6Loopback()},
		{veth, veth, testbed.A4, testbed.A4},
		{veth, veth, testbed.A6, testbed.A6},
	} {
		fl := flow(t, c.from, c.src, c.dst)
		bs := []*wire.Burst{burst(c.from, fl, 0x11, 15, 4096), burst(c.from, fl, 0x11, 1, 100)}
		before := c.to.Stats().RxPackets
		send(t, c.from, bs...)
		match(t, receive(t, c.to, 16), bs...)
		if got := c.to.Stats().RxPackets - before; got != 16 {
			t.Errorf("%v to %v: %d packets", c.src, c.dst, got)
		}
	}
	for _, l := range []node{one, two, veth} {
		if n, err := l.Recv(make([]wire.Datagram, 8)); n != 0 || err != nil {
			t.Errorf("%v: %d datagrams too many, %v", *l.rx.addrs.Load(), n, err)
		}
	}
}

// TestNoAllocations: neither an empty Recv nor one that brings datagrams
// allocates.
func TestNoAllocations(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
	const runs = 10
	joinGroup(t, group4, b)
	for _, f := range append(linktest.Families, linktest.Family{Name: "group", A: testbed.A4, B: group4}) {
		bu := burst(a, flow(t, a, f.A, f.B), 0x11, 4, 1024)
		for range runs + 1 { // AllocsPerRun warms up with one
			send(t, a, bu)
		}
		ds := make([]wire.Datagram, 1)
		got := 0
		if n := testing.AllocsPerRun(runs, func() {
			for k := 0; k == 0; { // they are on their way
				k, _ = b.Recv(ds)
				got += k
			}
		}); n != 0 || got != runs+1 {
			t.Errorf("%s: %v allocations a Recv, %d datagrams", f.Name, n, got)
		}
	}
	ds := make([]wire.Datagram, 8)
	if n := testing.AllocsPerRun(runs, func() { _, _ = b.Recv(ds) }); n != 0 {
		t.Errorf("%v allocations in an empty Recv", n)
	}
}
