package udp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// newPair waits until both ends of a new pair run: before, the kernel throws
// away what they send.
func newPair(t *testing.T, mtu int) *testbed.Pair {
	t.Helper()
	p := testbed.NewPair(t, mtu)
	for _, h := range []*testbed.Host{p.A, p.B} {
		h.Do(func() {
			limit := time.Now().Add(hang)
			for {
				ifc, err := net.InterfaceByName(testbed.Iface)
				require.NoError(t, err)
				if ifc.Flags&net.FlagRunning != 0 {
					return
				}
				require.True(t, time.Now().Before(limit), "the veth pair does not run")
				time.Sleep(time.Millisecond)
			}
		})
	}
	return p
}

// openIn opens a one-shard link in a namespace; it may be used from anywhere,
// except that sending sockets belong to the thread that first resolves their
// port.
func openIn(t *testing.T, h *testbed.Host, cfg Config) (l *Link) {
	t.Helper()
	h.Do(func() { l = mustOpen(t, cfg)[0] })
	return l
}

// run runs a program in a namespace, or skips the test where it is not
// installed.
func run(t *testing.T, h *testbed.Host, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("needs the program %s", args[0])
	}
	h.Do(func() {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	})
}

// capture is an AF_PACKET socket on the far side: it sees what the sockets
// hide.
type capture int

func startCapture(t *testing.T, h *testbed.Host) (c capture) {
	t.Helper()
	h.Do(func() {
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20))
		require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(hang / time.Second)}))
		c = capture(fd)
	})
	return c
}

// next returns the next RoCEv2 packet.
func (c capture) next(t *testing.T) (d wire.Datagram) {
	t.Helper()
	buf := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(int(c), buf, 0)
		require.NoError(t, err, "no packet came")
		if sa, ok := from.(*unix.SockaddrLinklayer); ok && sa.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if wire.ParseFrame(buf[:n], &d) == trace.None {
			return d
		}
	}
}

// TestIdentifications is the premise of sealing bursts: segment k carries IPv4
// identification k and a single 0, with DF; the ICRC is right for exactly what
// is on the wire. The kernel segments at the sender's interface.
func TestIdentifications(t *testing.T) {
	p := newPair(t, 9000)
	run(t, p.A, "ethtool", "-K", testbed.Iface, "tx-udp-segmentation", "off")
	wireside := startCapture(t, p.B)
	for _, c := range []struct {
		name string
		a, b netip.Addr
		opt  Options
	}{
		{"IPv4", testbed.A4, testbed.B4, Options{}},
		{"IPv6", testbed.A6, testbed.B6, Options{}},
		{"IPv4NoGSO", testbed.A4, testbed.B4, Options{NoGSO: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openIn(t, p.A, Config{Addrs: []netip.Addr{c.a}, Options: c.opt})
			r := rand.New(rand.NewPCG(18, 19))
			var f *wire.Flow
			p.A.Do(func() { f = flow(t, l, c.a, c.b, 0xc00a) })
			b := wire.NewBurst()
			for _, s := range []shape{{1, 64, 64}, {2, 64, 64}, {15, 4112, 4112}, {15, 4112, 520}, {1, 4112, 4112}, {62, 1040, 1040}, {64, 80, 20}, {1, 16, 16}} {
				fill(b, f, s, 1, r, l.Info().IDs)
				n, err := l.Send([]*wire.Burst{b})
				require.NoError(t, err)
				require.Equal(t, s.segs, n)
				var ids []uint16
				v := wire.NewVerifier()
				for i, want := range segments(b) {
					d := wireside.next(t)
					require.Equal(t, want, string(d.Payload))
					require.Equal(t, trace.None, v.Check(0, &d, 0), "segment %d", i)
					require.Equal(t, c.a.Is4(), d.IDKnown)
					require.EqualValues(t, 0x6a, d.TOS)
					require.EqualValues(t, 33, d.TTL)
					if c.a.Is4() {
						require.EqualValues(t, wire.FlagDF, d.Flags)
					}
					ids = append(ids, d.ID)
				}
				switch {
				case !c.a.Is4():
				case c.opt.NoGSO:
					require.Equal(t, make([]uint16, s.segs), ids)
				default:
					require.True(t, udptx.CountsIDs(ids), "%v", ids)
				}
			}
		})
	}
}

// TestTrafficClass puts every traffic class, DSCP and ECN, on the wire, with and
// without a service level, in single packets and in runs, and receives it.
func TestTrafficClass(t *testing.T) {
	p := newPair(t, 1500)
	run(t, p.A, "ethtool", "-K", testbed.Iface, "tx-udp-segmentation", "off")
	wireside := startCapture(t, p.B)
	for _, c := range [][2]netip.Addr{{testbed.A4, testbed.B4}, {testbed.A6, testbed.B6}} {
		a := openIn(t, p.A, Config{Addrs: []netip.Addr{c[0]}})
		b := openIn(t, p.B, Config{Addrs: []netip.Addr{c[1]}})
		burst := wire.NewBurst()
		r := rand.New(rand.NewPCG(38, 39))
		for i := range 258 {
			tos := i % 256
			for _, priority := range []uint8{0, 5} {
				var f *wire.Flow
				p.A.Do(func() { f = flow(t, a, c[0], c[1], 0xc009) })
				f.TOS, f.TTL, f.Priority = uint8(tos), uint8(255-tos), priority
				if f.TTL == 0 {
					f.TTL = 1
				}
				if i >= 256 {
					f.TTL = 64 // the usual one, after others
				}
				fill(burst, f, shape{1 + tos%2, 64, 64}, 1, r, a.Info().IDs)
				want := mustSend(t, a, burst)
				for i := range want {
					d := wireside.next(t)
					require.Equal(t, want[i], string(d.Payload))
					require.Equal(t, []uint8{f.TOS, f.TTL}, []uint8{d.TOS, d.TTL})
				}
				pkts, ds := collect(t, b, len(want))
				require.Equal(t, want, pkts)
				for _, d := range ds {
					require.Equal(t, []uint8{f.TOS, f.TTL}, []uint8{d.TOS, d.TTL})
				}
			}
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// TestSegmentedWire receives, through a socket, segments that the wire kept
// apart: identifications 0 to n-1, hidden, one datagram each.
func TestSegmentedWire(t *testing.T) {
	p := newPair(t, 9000)
	run(t, p.A, "ethtool", "-K", testbed.Iface, "tx-udp-segmentation", "off")
	exchangeAcross(t, p, func(t *testing.T, segs int, ds []wire.Datagram) { require.Len(t, ds, segs) })
}

// TestWholeWire is the same where super-packets cross the wire whole.
func TestWholeWire(t *testing.T) {
	p := newPair(t, 9000)
	exchangeAcross(t, p, func(t *testing.T, segs int, ds []wire.Datagram) { require.Len(t, ds, 1) })
}

func exchangeAcross(t *testing.T, p *testbed.Pair, check func(t *testing.T, segs int, ds []wire.Datagram)) {
	lla, llb := linkLocal(t, p.A), linkLocal(t, p.B)
	for _, c := range [][2]netip.Addr{{testbed.A4, testbed.B4}, {testbed.A6, testbed.B6}, {lla, llb}} {
		a := openIn(t, p.A, Config{Addrs: []netip.Addr{c[0]}})
		b := openIn(t, p.B, Config{Addrs: []netip.Addr{c[1]}})
		require.Equal(t, 9000, a.Info().MTU)
		var f *wire.Flow
		p.A.Do(func() { f = flow(t, a, c[0].WithZone(""), c[1].WithZone(""), 0xc00b) })
		r := rand.New(rand.NewPCG(20, 21))
		burst := wire.NewBurst()
		for _, s := range []shape{{1, 64, 64}, {15, 4112, 4112}, {62, 1040, 400}, {64, 80, 80}} {
			fill(burst, f, s, 1, r, a.Info().IDs)
			n, err := a.Send([]*wire.Burst{burst})
			require.NoError(t, err)
			require.Equal(t, s.segs, n)
			pkts, ds := collect(t, b, s.segs)
			require.Equal(t, segments(burst), pkts)
			check(t, s.segs, ds)
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// linkLocal gives the host's interface a link-local address; with its zone.
func linkLocal(t *testing.T, h *testbed.Host) netip.Addr {
	a := netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: 9, 15: h.MAC[5]})
	run(t, h, "ip", "address", "add", a.String()+"/64", "dev", testbed.Iface, "nodad")
	return a.WithZone(testbed.Iface)
}

// TestTooLarge sends packets larger than the interface takes: the error says
// what is wrong, and other packets are not held up.
func TestTooLarge(t *testing.T) {
	p := newPair(t, 1500)
	for _, c := range []struct {
		a, b netip.Addr
		size int
	}{{testbed.A4, testbed.B4, 4112 + 28}, {testbed.A6, testbed.B6, 4112 + 48}} {
		for _, group := range []netip.Addr{group4, group6, groupLink} {
			if group.Is4() != c.a.Is4() {
				continue
			}
			l := openIn(t, p.A, Config{Addrs: []netip.Addr{c.a}})
			f := groupFlow(t, l, p.A, c.a, group)
			b := wire.NewBurst()
			fill(b, f, shape{1, 4112, 4112}, 1, rand.New(rand.NewPCG(40, 41)), l.Info().IDs)
			p.A.Do(func() {
				_, err := l.Send([]*wire.Burst{b})
				require.ErrorContains(t, err, fmt.Sprintf("a packet of %d octets, the path takes 1500", c.size))
			})
			require.NoError(t, l.Close())
		}
		for _, segs := range []int{1, 3} {
			b := openIn(t, p.B, Config{Addrs: []netip.Addr{c.b}})
			p.A.Do(func() {
				l := mustOpen(t, Config{Addrs: []netip.Addr{c.a}})[0]
				r := rand.New(rand.NewPCG(22, 23))
				f := flow(t, l, c.a, c.b, 0xc00c)
				bad, good := wire.NewBurst(), wire.NewBurst()
				fill(bad, f, shape{segs, 4112, 4112}, 1, r, l.Info().IDs)
				fill(good, f, shape{2, 1040, 1040}, 1, r, l.Info().IDs)
				n, err := l.Send([]*wire.Burst{bad, good})
				require.Equal(t, segs+2, n)
				var se *link.SendError
				require.ErrorAs(t, err, &se)
				require.ErrorIs(t, err, syscall.EMSGSIZE)
				require.Equal(t, 1500, se.MTU)
				require.Equal(t, c.size, se.Size)
				require.ErrorContains(t, err, fmt.Sprintf("a packet of %d octets, the path takes 1500", c.size))
				require.Equal(t, map[syscall.Errno]uint64{syscall.EMSGSIZE: 1}, l.SendErrors())
				pkts, _ := collect(t, b, 2)
				require.Equal(t, segments(good), pkts)
				require.NoError(t, l.Close())
			})
			require.NoError(t, b.Close())
		}
	}
}

// TestForgedICMP: messages that a packet was too large, or that nobody listens,
// do not keep packets from leaving. The kernel believes the first of them, which
// shows that they were well made.
func TestForgedICMP(t *testing.T) {
	p := newPair(t, 1500)
	for _, c := range []struct {
		a, b netip.Addr
		mtu  int
	}{{testbed.A4, testbed.B4, 552}, {testbed.A6, testbed.B6, 1280}} {
		b := openIn(t, p.B, Config{Addrs: []netip.Addr{c.b}})
		a := openIn(t, p.A, Config{Addrs: []netip.Addr{c.a}})
		var f *wire.Flow
		p.A.Do(func() { f = flow(t, a, c.a, c.b, 0xc00f) })
		forge(t, p.B, f, c.mtu)
		p.A.Do(func() {
			for limit := time.Now().Add(hang); ; time.Sleep(time.Millisecond) {
				mtu, err := sys.PathMTU(c.a, c.b, 0)
				require.NoError(t, err)
				if mtu == c.mtu {
					return
				}
				require.True(t, time.Now().Before(limit), "the kernel takes the path MTU to be %d", mtu)
			}
		})
		for _, segs := range []int{1, 3} {
			bu := wire.NewBurst()
			fill(bu, f, shape{segs, 1400, 1400}, 1, rand.New(rand.NewPCG(26, 27)), a.Info().IDs)
			n, err := a.Send([]*wire.Burst{bu})
			require.NoError(t, err)
			require.Equal(t, segs, n)
			pkts, _ := collect(t, b, segs)
			require.Equal(t, segments(bu), pkts)
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// forge sends a flow's sender ICMP errors about a packet of it: too large for
// the path, port unreachable, host unreachable.
func forge(t *testing.T, from *testbed.Host, f *wire.Flow, mtu int) {
	t.Helper()
	const quoted = 1400
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: f.Src.As16()}
	family, proto := unix.AF_INET6, unix.IPPROTO_ICMPV6
	types := [][2]byte{{2, 0}, {1, 4}, {1, 3}} // RFC 4443
	ip := make([]byte, wire.IPv6Len, wire.IPv6Len+wire.UDPLen)
	if f.Src.Is4() {
		sa = &unix.SockaddrInet4{Addr: f.Src.As4()}
		family, proto = unix.AF_INET, unix.IPPROTO_ICMP
		types = [][2]byte{{3, 4}, {3, 3}, {3, 1}} // RFC 792, RFC 1191
		ip = ip[:wire.IPv4Len]
		h := wire.IPv4(ip)
		h[0] = 0x45
		h.SetTotalLen(quoted)
		h.SetFlagsOffset(wire.FlagDF)
		h.SetProtocol(wire.ProtoUDP)
		h.SetSrc(f.Src.As4())
		h.SetDst(f.Dst.As4())
		h.SetChecksum()
	} else {
		h := wire.IPv6(ip)
		h.SetClassFlow(0, 0)
		h.SetPayloadLen(quoted - wire.IPv6Len)
		h.SetNextHeader(wire.ProtoUDP)
		h.SetSrc(f.Src.As16())
		h.SetDst(f.Dst.As16())
	}
	udp := wire.UDP(ip[len(ip) : len(ip)+wire.UDPLen])
	udp.SetSrcPort(f.SrcPort)
	udp.SetDstPort(wire.Port)
	udp.SetLength(quoted - len(ip))
	quote := append(ip, udp...)
	from.Do(func() {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		require.NoError(t, err)
		defer unix.Close(fd)
		for _, k := range types {
			m := append([]byte{k[0], k[1], 0, 0, 0, 0, 0, 0}, quote...)
			binary.BigEndian.PutUint16(m[6:], uint16(mtu)) // IPv6 has 32 bits there
			if f.Src.Is4() {
				binary.BigEndian.PutUint16(m[2:], checksum(m)) // the kernel does that for ICMPv6
			}
			require.NoError(t, unix.Sendto(fd, m, 0, sa))
		}
	})
}

// checksum is that of RFC 1071 over an even number of octets.
func checksum(b []byte) uint16 {
	var s uint32
	for ; len(b) > 0; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	s = s>>16 + s&0xffff
	return ^uint16(s + s>>16)
}

// TestUnreachable has no route to the destination.
func TestUnreachable(t *testing.T) {
	p := newPair(t, 1500)
	p.A.Do(func() {
		l := mustOpen(t, Config{Addrs: []netip.Addr{testbed.A4}})[0]
		b := wire.NewBurst()
		fill(b, flow(t, l, testbed.A4, netip.MustParseAddr("198.51.100.1"), 0xc00d), shape{2, 64, 64}, 1, rand.New(rand.NewPCG(24, 25)), l.Info().IDs)
		n, err := l.Send([]*wire.Burst{b})
		require.Equal(t, 2, n)
		require.ErrorIs(t, err, syscall.ENETUNREACH)
		require.ErrorContains(t, err, "to 198.51.100.1: network is unreachable")
	})
}

// TestShortSend fills a tiny send buffer behind a neighbour that does not
// answer, and checks that Wait waits for room, and that nothing is lost or
// sent twice.
func TestShortSend(t *testing.T) {
	p := newPair(t, 9000)
	run(t, p.B, "ip", "link", "set", testbed.Iface, "arp", "off") // B does not answer
	for _, opt := range []Options{{}, {NoGSO: true}} {
		b := openIn(t, p.B, Config{Addrs: []netip.Addr{testbed.B4}})
		a := openIn(t, p.A, Config{Addrs: []netip.Addr{testbed.A4}, SndBuf: 1, Options: opt})
		var f *wire.Flow
		p.A.Do(func() { f = flow(t, a, testbed.A4, testbed.B4, 0xc00e) })
		r := rand.New(rand.NewPCG(26, 27))
		var bs []*wire.Burst
		total := 0
		for range 20 {
			bs = append(bs, wire.NewBurst())
			fill(bs[len(bs)-1], f, shape{3, 520, 520}, 1, r, a.Info().IDs)
			total += 3
		}
		sent, err := a.Send(bs)
		require.NoError(t, err)
		require.Greater(t, sent, 0)
		require.Less(t, sent, total)
		require.NotZero(t, a.Stats().TxShort)
		fds := []unix.PollFd{{Fd: int32(a.tx.Blocked()), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		require.NoError(t, err)
		require.Zero(t, n, "no room yet")

		run(t, p.A, "ip", "neighbour", "replace", testbed.B4.String(), "lladdr", mac(testbed.MACB), "dev", testbed.Iface, "nud", "permanent")
		limit := time.Now().Add(hang)
		var got, want []string
		for _, burst := range bs {
			want = append(want, segments(burst)...)
		}
		var rest []*wire.Burst
		for sent < total {
			require.NoError(t, a.Wait(hang))
			require.True(t, time.Now().Before(limit))
			// What did not leave is filled again, as an engine does.
			rest = rest[:0]
			for k := sent; k < total; {
				burst := wire.NewBurst()
				burst.Reset(f, 0, 0)
				for ; k < total && burst.Len() < 3; k++ {
					pkt := want[k]
					h := burst.Begin(bth.MakePSN(0), 4, 12, len(pkt)-16)
					copy(h, pkt)
					copy(burst.Copy(len(pkt)-16), pkt[12:])
					burst.End()
				}
				burst.Seal(a.Info().IDs)
				rest = append(rest, burst)
			}
			n, err := a.Send(rest)
			require.NoError(t, err)
			sent += n
		}
		require.Negative(t, a.tx.Blocked())
		pkts, _ := collect(t, b, total)
		for _, pkt := range pkts {
			got = append(got, pkt[:len(pkt)-4]) // sealed anew, for another place in its burst
		}
		for i := range want {
			want[i] = want[i][:len(want[i])-4]
		}
		require.Equal(t, want, got)
		require.EqualValues(t, total, a.Stats().TxPackets)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		run(t, p.A, "ip", "neighbour", "del", testbed.B4.String(), "dev", testbed.Iface)
	}
}

func mac(m [6]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}
