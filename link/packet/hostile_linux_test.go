package packet

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// TestBadFrames: frames that are no valid RoCEv2 are counted under one reason
// each; what only the ICRC can tell passes the link and fails the exact check.
func TestBadFrames(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
	j := linktest.NewInjector(t, p.A)
	b4 := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 1, 40)
	b6 := burst(a, flow(t, a, testbed.A6, testbed.B6), 0x11, 1, 40)
	ip4 := func(f []byte) wire.IPv4 { return wire.IPv4(f[14:]) }
	ip6 := func(f []byte) wire.IPv6 { return wire.IPv6(f[14:]) }

	for _, c := range []struct {
		name   string
		burst  *wire.Burst
		change func(f []byte) []byte
		want   trace.Reason
	}{
		{"IPv4 checksum", b4, func(f []byte) []byte { f[14+10] ^= 1; return f }, trace.DropIPChecksum},
		{"IPv4 options", b4, func(f []byte) []byte {
			f = append(f[:34:34], append([]byte{1, 1, 1, 1}, f[34:]...)...)
			f[14] = 0x46
			ip4(f).SetTotalLen(ip4(f).TotalLen() + 4)
			ip4(f).SetChecksum()
			return f
		}, trace.DropNotIP},
		{"IPv4 first fragment", b4, func(f []byte) []byte {
			ip4(f).SetFlagsOffset(0x2000)
			ip4(f).SetChecksum()
			return f
		}, trace.DropFragment},
		{"IPv4 UDP length", b4, func(f []byte) []byte { f[39]++; return f }, trace.DropUDPLen},
		{"IPv4 cut", b4, func(f []byte) []byte { return f[:len(f)-1] }, trace.DropShort},
		{"IPv6 UDP length", b6, func(f []byte) []byte { f[59]--; return f }, trace.DropUDPLen},
		{"IPv6 cut", b6, func(f []byte) []byte { return f[:len(f)-1] }, trace.DropShort},
		{"IPv6 first fragment", b6, func(f []byte) []byte {
			f = append(f[:54:54], append([]byte{17, 0, 0, 1, 0, 0, 0, 7}, f[54:]...)...)
			ip6(f).SetNextHeader(44)
			ip6(f).SetPayloadLen(ip6(f).PayloadLen() + 8)
			return f
		}, trace.DropFragment},
	} {
		before := b.Reasons()
		j.Send(c.change(linktest.Frame(c.burst)))
		send(t, a, c.burst)
		match(t, receive(t, b, 1), c.burst)
		want := before
		want[c.want]++
		if got := b.Reasons(); got != want {
			t.Errorf("%s: counts %v, want one more %v", c.name, got, c.want)
		}
	}

	// Any single bit from the source address to the pad.
	for _, bu := range []*wire.Burst{b4, b6} {
		good := linktest.Frame(bu)
		first := len(good) - len(bu.AppendSegment(nil, 0))
		for at := first; at < len(good); at += 3 {
			if at == first+4 {
				continue // FECN, BECN and reserved: not covered
			}
			f := bytes.Clone(good)
			f[at] ^= 1 << (at % 8)
			j.Send(f)
			d := receive(t, b, 1)[0]
			if r := wire.NewVerifier().Check(0, &d, 0); r != trace.DropICRC {
				t.Errorf("octet %d: %v", at, r)
			}
		}
		j.Send(good)
		match(t, receive(t, b, 1), bu) // the frame itself was right
	}
	if b.Stats().RxInvalid != 8 {
		t.Errorf("%+v", b.Stats())
	}
}

// TestOthersFrames: what is not RoCEv2 to one of our addresses on our
// interface neither arrives nor counts. The frame after them does arrive.
func TestOthersFrames(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	other := netip.MustParseAddr("192.0.2.99")
	p.B.AddAddr(netip.PrefixFrom(other, 24)) // the host's, not the link's
	a := openOne(t, p.A, testbed.Iface)
	b := openOn(t, p.B, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.B4, testbed.B6}})[0]
	j := linktest.NewInjector(t, p.A)
	for _, f := range linktest.Families {
		bu := burst(a, flow(t, a, f.A, f.B), 0x11, 1, 40)

		plain := listenUDP(t, p.A, netip.AddrPortFrom(f.A, wire.Port-1))
		if _, err := plain.WriteToUDPAddrPort(make([]byte, 64), netip.AddrPortFrom(f.B, wire.Port-1)); err != nil {
			t.Fatal(err)
		}
		j.Send(linktest.Tag(linktest.Frame(bu), 7))
		otherMAC := linktest.Frame(bu)
		wire.Ethernet(otherMAC).SetDst([6]byte{2, 9, 9, 9, 9, 9})
		j.Send(otherMAC)
		if f.A.Is4() {
			later := linktest.Frame(bu)
			wire.IPv4(later[14:]).SetFlagsOffset(5)
			wire.IPv4(later[14:]).SetChecksum()
			j.Send(later)
			send(t, a, burst(a, flow(t, a, f.A, other), 0x11, 1, 40))
		}
		j.Send(linktest.Tag(linktest.Frame(bu), 0xa000)) // VLAN 0 is ours

		send(t, a, bu)
		match(t, receive(t, b, 2), bu, bu)
	}
	if s := b.Stats(); s.RxPackets != 4 || s.RxInvalid != 0 || b.Reasons() != (trace.Counts{}) {
		t.Errorf("%+v %v", s, b.Reasons())
	}
}

// TestQuiet: while the link is open the stack answers nothing; once it is
// closed it does again, so the test can tell.
func TestQuiet(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	b := openOne(t, p.B, testbed.Iface)
	for _, f := range linktest.Families {
		c := dial(t, p.A, f.B)
		for range 3 {
			if _, err := c.Write(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
		}
		receive(t, b, 3) // the first two are through the stack by now
	}
	if n := unreachables(t, p.B); n != 0 {
		t.Errorf("%d ICMP unreachables were sent", n)
	}
	b.Close()
	for _, f := range linktest.Families {
		c := dial(t, p.A, f.B)
		if _, err := c.Write(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(linktest.Patience))
		if _, err := c.Read(make([]byte, 64)); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: a closed link's port does not refuse: %v", f.Name, err)
		}
	}
	if n := unreachables(t, p.B); n != 2 {
		t.Errorf("%d ICMP unreachables after Close, want 2", n)
	}
}

func dial(t *testing.T, h *testbed.Host, to netip.Addr) (c net.Conn) {
	t.Helper()
	h.Do(func() {
		var err error
		if c, err = net.Dial("udp", netip.AddrPortFrom(to, wire.Port).String()); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// unreachables reads how many ICMP and ICMPv6 destination unreachables a host
// has sent.
func unreachables(t *testing.T, h *testbed.Host) (n int) {
	t.Helper()
	read := func(file, name string) string {
		b, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var heads []string
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if f[0] == name {
				return f[1] // snmp6: name, value
			}
			if f[0] == "Icmp:" && heads == nil {
				heads = f // snmp: a line of names, then one of values
			} else if f[0] == "Icmp:" {
				for i, h := range heads {
					if h == name {
						return f[i]
					}
				}
			}
		}
		t.Fatalf("%s has no %s", file, name)
		return ""
	}
	h.Do(func() {
		for file, name := range map[string]string{"snmp": "OutDestUnreachs", "snmp6": "Icmp6OutDestUnreachs"} {
			v, err := strconv.Atoi(read(file, name))
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
	})
	return n
}

// TestOverflow: what the receive buffer has no room for is counted.
func TestOverflow(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a := openOne(t, p.A, testbed.Iface)
	b := openOn(t, p.B, Config{Interface: testbed.Iface, RcvBuf: 64 << 10})[0]
	fl := flow(t, a, testbed.A4, testbed.B4)
	const sent = 200
	bu := burst(a, fl, 0x11, 1, 4096)
	for range sent {
		send(t, a, bu)
	}
	ds := make([]wire.Datagram, 8)
	var got uint64
	for end := time.Now().Add(linktest.Patience); got+b.Stats().RxDropped < sent; {
		n, err := b.Recv(ds)
		if err != nil {
			t.Fatal(err)
		}
		if got += uint64(n); time.Now().After(end) {
			break
		}
	}
	if s := b.Stats(); s.RxDropped == 0 || s.RxPackets != got || got+s.RxDropped != sent || got == 0 {
		t.Errorf("received %d, %+v", got, s)
	}
	if w := b.Info().Window; w != 64 {
		t.Errorf("window %d with a small buffer", w)
	}
}

// TestDownAndUp: a link lives on when its interface goes down and comes back.
func TestDownAndUp(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
	for range 2 {
		for _, f := range linktest.Families {
			bu := burst(a, flow(t, a, f.A, f.B), 0x11, 3, 1024)
			send(t, a, bu)
			match(t, receive(t, b, 3), bu)
		}
		p.B.SetUp(false)
		if n, err := b.Recv(make([]wire.Datagram, 1)); n != 0 || err != nil {
			t.Errorf("Recv while down: %d %v", n, err)
		}
		// Nothing may be pending now, or Wait would spin.
		fds := []unix.PollFd{{Fd: int32(b.rx.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
			t.Errorf("poll while down: %#x %v", fds[0].Revents, err)
		}
		if err := b.Wait(time.Millisecond); err != nil {
			t.Errorf("Wait while down: %v", err)
		}
		p.B.SetUp(true)
		waitCarrier(t, p.A)
	}
}

// waitCarrier waits until a host's interface can send: the kernel tells of a
// peer's return a little later.
func waitCarrier(t *testing.T, h *testbed.Host) {
	t.Helper()
	for end := time.Now().Add(linktest.Patience); ; time.Sleep(time.Millisecond) {
		out := h.Tool("ip", "-o", "link", "show", h.Iface)
		if strings.Contains(out, "state UP") {
			return
		}
		if time.Now().After(end) {
			t.Fatal(fmt.Sprint("no carrier: ", out))
		}
	}
}
