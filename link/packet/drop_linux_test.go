package packet

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

// needDropper skips the test where the kernel has no tcx.
func needDropper(t testing.TB, h *testbed.Host) {
	t.Helper()
	h.Do(func() {
		d, err := attachDropper(h.Index("lo"), nil, 1)
		if err != nil {
			t.Skipf("needs tcx programs (Linux 6.6, CAP_BPF): %v", err)
		}
		d.release()
	})
}

// attached returns how many tcx programs a host's interface has.
func attached(t testing.TB, h *testbed.Host, iface string) (n int) {
	t.Helper()
	h.Do(func() {
		r, err := ebpflink.QueryPrograms(ebpflink.QueryOptions{Target: h.Index(iface), Attach: ebpf.AttachTCXIngress})
		if errors.Is(err, ebpf.ErrNotSupported) {
			return // and so none
		}
		if err != nil {
			t.Fatal(err)
		}
		n = len(r.Programs)
	})
	return n
}

// TestDropProgram: what is dropped, frame by frame.
func TestDropProgram(t *testing.T) {
	h := testbed.NewHost(t)
	needDropper(t, h)
	a4, b4 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("255.254.253.252")
	a6, b6 := netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("fe80::ffff:ffff:ffff:ffff")
	const ip, ip6 = 0x0800, 0x86dd
	to := func(f []byte, a netip.Addr) []byte { // frames without a tag
		if a.Is4() {
			copy(f[14+16:], a.AsSlice())
		} else {
			copy(f[14+24:], a.AsSlice())
		}
		return f
	}
	four := func(first, proto byte, frag, port uint16, a netip.Addr) []byte {
		return to(slices.Concat(eth(ip), v4(first, proto, frag, port)), a)
	}
	six := func(next byte, port uint16, a netip.Addr) []byte {
		return to(slices.Concat(eth(ip6), v6(next, port)), a)
	}
	station := func(f []byte) []byte { f[0] = 2; return f }
	near := func(a netip.Addr, octet int) netip.Addr { // another
		b := a.AsSlice()
		b[octet] ^= 0x80
		n, _ := netip.AddrFromSlice(b)
		return n
	}
	all := []netip.Addr{a4, a6, b4, b6}
	for _, c := range []struct {
		name  string
		addrs []netip.Addr
		frame []byte
		want  bool
	}{
		{"IPv4", all, four(0x45, 17, 0x4000, 4791, a4), true},
		{"IPv4, the other address", all, four(0x45, 17, 0x4000, 4791, b4), true},
		{"IPv4 without DF", all, four(0x45, 17, 0, 4791, a4), true},
		{"IPv4, not ours", all, four(0x45, 17, 0x4000, 4791, near(a4, 3)), false},
		{"IPv4, not ours at its other end", all, four(0x45, 17, 0x4000, 4791, near(b4, 0)), false},
		{"IPv4, IPv6 served alone", []netip.Addr{a6}, four(0x45, 17, 0x4000, 4791, a4), false},
		{"IPv4 another port", all, four(0x45, 17, 0x4000, 4790, a4), false},
		{"IPv4 TCP", all, four(0x45, 6, 0x4000, 4791, a4), false},
		{"IPv4 options", all, four(0x46, 17, 0x4000, 4791, a4), false},
		{"IPv4 first fragment", all, four(0x45, 17, 0x2000, 4791, a4), false},
		{"IPv4 later fragment", all, four(0x45, 17, 0x0001, 4791, a4), false},
		{"IPv4 cut", all, four(0x45, 17, 0x4000, 4791, a4)[:41], false},
		{"IPv4 of no length", all, four(0x45, 17, 0x4000, 4791, a4)[:42], true},
		{"IPv4, another station", all, station(four(0x45, 17, 0x4000, 4791, a4)), false},
		{"IPv4, two tags", all, slices.Concat(eth(ip, 0, 0), four(0x45, 17, 0x4000, 4791, a4)[14:]), false},
		{"IPv6", all, six(17, 4791, a6), true},
		{"IPv6, the other address", all, six(17, 4791, b6), true},
		{"IPv6, first octet", all, six(17, 4791, near(a6, 0)), false},
		{"IPv6, fifth octet", all, six(17, 4791, near(a6, 4)), false},
		{"IPv6, ninth octet", all, six(17, 4791, near(b6, 8)), false},
		{"IPv6, last octet", all, six(17, 4791, near(b6, 15)), false},
		{"IPv6, IPv4 served alone", []netip.Addr{a4}, six(17, 4791, a6), false},
		{"IPv6 another port", all, six(17, 4792, a6), false},
		{"IPv6 TCP", all, six(6, 4791, a6), false},
		{"IPv6 cut", all, six(17, 4791, a6)[:61], false},
		{"IPv6 first fragment", all, to(slices.Concat(eth(ip6), v6frag(17, 0, 4791)), a6), false},
		{"ARP", all, to(slices.Concat(eth(0x0806), v4(0x45, 17, 0x4000, 4791)), a4), false},
		{"none served", nil, four(0x45, 17, 0x4000, 4791, a4), false},
		{"none served, IPv6", nil, six(17, 4791, a6), false},
	} {
		h.Do(func() {
			d, err := attachDropper(h.Index("lo"), c.addrs, 1)
			require.NoError(t, err)
			defer d.release()
			got, err := d.prog.Run(&ebpf.RunOptions{Data: c.frame})
			require.NoError(t, err, c.name)
			want := int32(verdictNext)
			if c.want {
				want = verdictDrop
			}
			require.Equal(t, want, int32(got), c.name)
		})
	}
}

// stackSaw returns the lines that count the UDP packets that a host's stack has
// received; those that a socket's filter drops are errors there.
func stackSaw(t *testing.T, h *testbed.Host) (lines []string) {
	t.Helper()
	for line := range strings.Lines(procNet(t, h, "snmp") + procNet(t, h, "snmp6")) {
		if strings.HasPrefix(line, "Udp:") || strings.HasPrefix(line, "Udp6") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestStackSpared: the stack sees nothing of what a link receives, and all of
// it once the link is closed; and what concerns others on the same interface,
// another link and an ordinary socket of the same port, still comes.
func TestStackSpared(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	needDropper(t, p.B)
	second, plain4, plain6 := netip.MustParsePrefix("192.0.2.12/24"), netip.MustParsePrefix("192.0.2.13/24"), netip.MustParsePrefix("fd00:2::13/64")
	for _, a := range []netip.Prefix{second, plain4, plain6} {
		p.B.AddAddr(a)
	}
	a := openOne(t, p.A, testbed.Iface)
	bs := openOn(t, p.B, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.B4, testbed.B6}, Shards: 2})
	other := openOn(t, p.B, Config{Interface: testbed.Iface, Addrs: []netip.Addr{second.Addr()}})[0]
	for _, m := range bs[0].Info().Missing {
		require.NotContains(t, m, "tcx")
	}
	require.Equal(t, 2, attached(t, p.B, testbed.Iface))
	to := func(dst netip.Addr, n int) *wire.Burst {
		src := testbed.A4
		if dst.Is6() {
			src = testbed.A6
		}
		return burst(a, flow(t, a, src, dst), 0x10, n, 1024)
	}
	exchange := func(l node, dst netip.Addr) {
		t.Helper()
		one, many := to(dst, 1), to(dst, 20)
		send(t, a, one, many)
		match(t, receive(t, l, 21), one, many)
	}
	for _, dst := range []netip.Addr{testbed.B4, testbed.B6} {
		exchange(bs[0], dst) // the neighbours know each other now
	}
	exchange(other, second.Addr())

	before := stackSaw(t, p.B)
	for range 3 {
		for _, dst := range []netip.Addr{testbed.B4, testbed.B6} {
			exchange(bs[0], dst)
		}
		exchange(other, second.Addr())
	}
	require.Equal(t, before, stackSaw(t, p.B))

	for _, dst := range []netip.Addr{plain4.Addr(), plain6.Addr()} {
		c := linktest.ListenUDP(t, p.B, netip.AddrPortFrom(dst, wire.Port))
		send(t, a, to(dst, 1))
		c.SetReadDeadline(time.Now().Add(linktest.Patience))
		_, err := io.ReadAtLeast(c, make([]byte, 2048), 1)
		require.NoError(t, err, "a socket on %v is starved", dst)
	}

	bs[0].Close()
	require.Equal(t, 2, attached(t, p.B, testbed.Iface), "the device's other link is open")
	require.NoError(t, bs[1].Close())
	require.Equal(t, 1, attached(t, p.B, testbed.Iface))
	before = stackSaw(t, p.B)
	c := linktest.ListenUDP(t, p.B, netip.AddrPortFrom(testbed.B4, wire.Port))
	send(t, a, to(testbed.B4, 1))
	c.SetReadDeadline(time.Now().Add(linktest.Patience))
	_, err := io.ReadAtLeast(c, make([]byte, 2048), 1)
	require.NoError(t, err, "packets are dropped for a link that is closed")
	require.NotEqual(t, before, stackSaw(t, p.B), "what this test counts is not what the stack sees")
	exchange(other, second.Addr())
	other.Close()
	require.Zero(t, attached(t, p.B, testbed.Iface))
}

// countNext attaches a program behind those that an interface has, and returns
// a function that tells how many packets have come so far, those of 300 octets or
// more: not what hosts say of themselves.
func countNext(t *testing.T, h *testbed.Host) func() (n uint64) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // length
		asm.JLT.Imm(asm.R2, 300, "end"),
		asm.LoadMapValue(asm.R1, m.FD(), 0),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, verdictNext).WithSymbol("end"),
		asm.Return(),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { prog.Close() })
	h.Do(func() {
		at, err := ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: h.Index(h.Iface), Program: prog, Attach: ebpf.AttachTCXIngress})
		require.NoError(t, err)
		t.Cleanup(func() { at.Close() })
	})
	return func() (n uint64) {
		require.NoError(t, m.Lookup(uint32(0), &n))
		return n
	}
}

// TestTagsAndStations: packets of a VLAN pass to whom they are for although a
// link of the interface serves the address, so do other stations'; those with
// a mere priority are the link's.
func TestTagsAndStations(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	needDropper(t, p.B)
	a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
	passed := countNext(t, p.B)
	j := linktest.NewInjector(t, p.A)
	for _, f := range linktest.Families {
		marker := burst(a, flow(t, a, f.A, f.B), 0x11, 1, 8)
		send(t, a, marker)
		receive(t, b, 1)
		good := linktest.Frame(burst(a, flow(t, a, f.A, f.B), 0x11, 1, 300))
		stranger := slices.Clone(good)
		stranger[5] ^= 1
		for _, c := range []struct {
			name   string
			frame  []byte
			passes uint64
			comes  int
		}{
			{"plain", good, 0, 1},
			{"priority", linktest.Tag(good, 0xa000), 0, 1},
			{"VLAN 5", linktest.Tag(good, 5), 1, 0},
			{"VLAN 4095", linktest.Tag(good, 0xffff), 1, 0},
			{"VLAN 5 in priority", linktest.Tag(linktest.Tag(good, 5), 0xa000), 1, 0},
			{"another station", stranger, 1, 0},
		} {
			before := passed()
			j.Send(c.frame)
			send(t, a, marker)
			receive(t, b, c.comes+1)
			require.Equal(t, c.passes, passed()-before, "%s, %s", f.Name, c.name)
		}
	}
}

// TestKilled: nothing is left of a process that dies without a word.
func TestKilled(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	needDropper(t, p.B)
	cmd := p.B.Helper(testbed.AsTest, "hold", testbed.Iface)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	p.B.Start(cmd)
	_, err = io.ReadFull(out, make([]byte, len(ready)))
	require.NoError(t, err)
	require.Equal(t, 1, attached(t, p.B, testbed.Iface))
	require.Contains(t, procNet(t, p.B, "packet"), " 3 ")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // that it was killed
	for end := time.Now().Add(linktest.Patience); attached(t, p.B, testbed.Iface) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the program is still attached")
		}
	}
	require.NotContains(t, procNet(t, p.B, "packet"), " 3 ")
	p.B.Do(func() {
		o, err := hostnet.PortOwners(wire.Port)
		require.NoError(t, err)
		require.Empty(t, o)
	})
	l := openOne(t, p.B, testbed.Iface)
	a := openOne(t, p.A, testbed.Iface)
	bu := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 3, 64)
	send(t, a, bu)
	match(t, receive(t, l, 3), bu)
}

// TestInterfaceGone: an interface that is removed takes its program along, and
// the link closes as ever.
func TestInterfaceGone(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	needDropper(t, p.B)
	before := descriptors(t)
	b := openOne(t, p.B, testbed.Iface)
	p.B.Tool("ip", "link", "del", testbed.Iface)
	n, err := b.Recv(make([]wire.Datagram, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, b.Close())
	require.Equal(t, before, descriptors(t))
}
