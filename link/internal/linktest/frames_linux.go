package linktest

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// BadFrames sends frames to b, a link of the pair's host B, while a sends from
// A: frames that are no valid RoCEv2 are counted under one reason
// each; what only the ICRC can tell passes the link and fails the exact check.
func BadFrames(t *testing.T, p *testbed.Pair, a, b Link) {
	t.Helper()
	j := NewInjector(t, p.A)
	b4 := Burst(a.Info(), Flow(t, p.A, a, testbed.A4, testbed.B4), 0x11, 1, 40)
	b6 := Burst(a.Info(), Flow(t, p.A, a, testbed.A6, testbed.B6), 0x11, 1, 40)
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
		j.Send(c.change(Frame(c.burst)))
		Send(t, a, c.burst)
		Match(t, Receive(t, b, 1), c.burst)
		want := before
		want[c.want]++
		if got := b.Reasons(); got != want {
			t.Errorf("%s: counts %v, want one more %v", c.name, got, c.want)
		}
	}

	// Any single bit from the source address to the pad.
	for _, bu := range []*wire.Burst{b4, b6} {
		good := Frame(bu)
		first := len(good) - len(bu.AppendSegment(nil, 0))
		for at := first; at < len(good); at += 3 {
			if at == first+4 {
				continue // FECN, BECN and reserved: not covered
			}
			f := bytes.Clone(good)
			f[at] ^= 1 << (at % 8)
			j.Send(f)
			d := Receive(t, b, 1)[0]
			if r := wire.NewVerifier().Check(0, &d, 0); r != trace.DropICRC {
				t.Errorf("octet %d: %v", at, r)
			}
		}
		j.Send(good)
		Match(t, Receive(t, b, 1), bu) // the frame itself was right
	}
	if b.Stats().RxInvalid != 8 {
		t.Errorf("%+v", b.Stats())
	}
}

// OthersFrames sends frames to b, which serves the addresses of the pair only, of
// host B, while a sends from A: what is not RoCEv2 to one of our addresses on our
// interface neither arrives nor counts. The frame after them does arrive.
func OthersFrames(t *testing.T, p *testbed.Pair, a, b Link) {
	t.Helper()
	other := netip.MustParseAddr("192.0.2.99")
	p.B.AddAddr(netip.PrefixFrom(other, 24)) // the host's, not the link's
	j := NewInjector(t, p.A)
	for _, f := range Families {
		bu := Burst(a.Info(), Flow(t, p.A, a, f.A, f.B), 0x11, 1, 40)

		plain := ListenUDP(t, p.A, netip.AddrPortFrom(f.A, wire.Port-1))
		if _, err := plain.WriteToUDPAddrPort(make([]byte, 64), netip.AddrPortFrom(f.B, wire.Port-1)); err != nil {
			t.Fatal(err)
		}
		j.Send(Tag(Frame(bu), 7))
		for _, at := range [...]int{1, 3, 4, 5} {
			mac := testbed.MACB
			mac[at] ^= 0x40
			other := Frame(bu)
			wire.Ethernet(other).SetDst(mac)
			j.Send(other)
		}
		if f.A.Is4() {
			later := Frame(bu)
			wire.IPv4(later[14:]).SetFlagsOffset(5)
			wire.IPv4(later[14:]).SetChecksum()
			j.Send(later)
			Send(t, a, Burst(a.Info(), Flow(t, p.A, a, f.A, other), 0x11, 1, 40))
		}
		j.Send(Tag(Frame(bu), 0xa000)) // VLAN 0 is ours

		Send(t, a, bu)
		Match(t, Receive(t, b, 2), bu, bu)
	}
	if s := b.Stats(); s.RxPackets != 4 || s.RxInvalid != 0 || b.Reasons() != (trace.Counts{}) {
		t.Errorf("%+v %v", s, b.Reasons())
	}
}

// ListenUDP opens an ordinary socket in a host's namespace.
func ListenUDP(t testing.TB, h *testbed.Host, addr netip.AddrPort) (c *net.UDPConn) {
	t.Helper()
	h.Do(func() {
		var err error
		if c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// Unreachables reads how many ICMP and ICMPv6 destination unreachables a host
// has sent.
func Unreachables(t testing.TB, h *testbed.Host) (n int) {
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
