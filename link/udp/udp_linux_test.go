package udp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// Addresses of these tests.
var (
	v4a = testbed.Loopback(0)
	v4b = testbed.Loopback(1)
	v4c = testbed.Loopback(2)
	v6  = netip.MustParseAddr("::1")
)

// hang is how long a test waits for what must happen; it is never reached
// unless the test fails.
const hang = 10 * time.Second

// mustOpen opens a link, or skips where the host cannot: no IPv6, or a port 4791
// that somebody else has.
func mustOpen(t testing.TB, cfg Config) []*Link {
	t.Helper()
	ls, err := Open(cfg)
	for _, a := range cfg.Addrs {
		if a.Is6() && err != nil {
			t.Skipf("needs IPv6 on the loopback interface and its port 4791: %v", err)
		}
	}
	require.NoError(t, err)
	var us []*Link
	for _, l := range ls {
		us = append(us, l.(*Link))
		t.Cleanup(func() { _ = l.Close() })
	}
	return us
}

func flow(t testing.TB, l *Link, src, dst netip.Addr, want uint16) *wire.Flow {
	t.Helper()
	p, err := l.ResolvePort(src, want)
	require.NoError(t, err)
	return &wire.Flow{Src: src, Dst: dst, SrcPort: p, TOS: 0x6a, TTL: 33}
}

// shape is a burst to make: segments of size octets of UDP payload, the last
// of last.
type shape struct{ segs, size, last int }

// fill makes a sealed burst of a shape to qpn, its payload from r, partly a
// snapshot and partly by reference.
func fill(b *wire.Burst, f *wire.Flow, s shape, qpn uint32, r *rand.Rand, ids wire.IDPolicy) {
	b.Reset(f, 0, 0)
	for i := range s.segs {
		n := s.size
		if i == s.segs-1 {
			n = s.last
		}
		n -= bth.BTHLen + bth.ICRCLen // payload
		h := b.Begin(bth.MakePSN(uint32(i)), 4, bth.BTHLen, n)
		clear(h)
		h[0], h[5], h[6], h[7], h[11] = 4, byte(qpn>>16), byte(qpn>>8), byte(qpn), byte(i)
		snap := r.IntN(n + 1)
		p := make([]byte, n)
		for k := range p {
			p[k] = byte(r.Uint32())
		}
		if snap > 0 {
			copy(b.Copy(snap), p)
		}
		b.Ref(p[snap : snap+(n-snap)/2])
		b.Ref(p[snap+(n-snap)/2:])
		b.End()
	}
	b.Seal(ids)
}

// collect receives until n packets have come and returns them as single ones,
// in order; each ICRC has been verified.
func collect(t testing.TB, l *Link, n int) (pkts []string, ds []wire.Datagram) {
	t.Helper()
	v := wire.NewVerifier()
	buf := make([]wire.Datagram, 8)
	limit := time.Now().Add(hang)
	for len(pkts) < n {
		k, err := l.Recv(buf)
		require.NoError(t, err)
		for i := range buf[:k] {
			d := buf[i]
			for s := range d.Segments() {
				require.Equal(t, trace.None, v.Check(0, &d, s), "segment %d of %d, from %v", s, d.Segments(), d.Src)
				pkts = append(pkts, string(d.Segment(s)))
			}
			d.Payload = nil
			ds = append(ds, d)
		}
		if k == 0 {
			require.True(t, time.Now().Before(limit), "%d of %d packets came", len(pkts), n)
			require.NoError(t, l.Wait(time.Second))
		}
	}
	return pkts, ds
}

func segments(bs ...*wire.Burst) (pkts []string) {
	for _, b := range bs {
		for i := range b.Len() {
			pkts = append(pkts, string(b.AppendSegment(nil, i)))
		}
	}
	return pkts
}

func shapes(maxSegs int) []shape {
	var ss []shape
	for _, segs := range []int{1, 2, 3, 15, 62, 120, 127, 128} {
		for _, size := range []int{16, 20, 60, 508, 1040, 2064, 4112} {
			for _, last := range []int{16, size/8*4 + 8, size} {
				if last <= size && segs <= maxSegs && segs*size <= wire.MaxBurstBytes && last >= 16 {
					ss = append(ss, shape{segs, size, last})
				}
			}
		}
	}
	return ss
}

// TestExchange sends bursts of all shapes between two links and within one,
// in each family and with each offload, and compares what arrives.
func TestExchange(t *testing.T) {
	for _, c := range []struct {
		name string
		src  netip.Addr
		dst  netip.Addr
		opt  Options
	}{
		{"IPv4", v4a, v4b, Options{}},
		{"IPv4NoGRO", v4a, v4b, Options{NoGRO: true}},
		{"IPv4NoGSO", v4a, v4b, Options{NoGSO: true}},
		{"IPv4Plain", v4a, v4b, Options{NoGSO: true, NoGRO: true}},
		{"IPv6", v6, v6, Options{}},
		{"IPv6NoGRO", v6, v6, Options{NoGRO: true}},
		{"IPv6NoGSO", v6, v6, Options{NoGSO: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := mustOpen(t, Config{Addrs: []netip.Addr{c.src}, Options: c.opt})[0]
			b := a
			if c.src != c.dst {
				b = mustOpen(t, Config{Addrs: []netip.Addr{c.dst}, Options: c.opt})[0]
			}
			want := wire.IDCount
			if c.opt.NoGSO {
				want = wire.IDZero
			}
			require.Equal(t, want, a.Info().IDs)
			r := rand.New(rand.NewPCG(4791, uint64(len(c.name))))
			f := flow(t, a, c.src, c.dst, 0xc123)
			burst := wire.NewBurst()
			for _, s := range shapes(a.Info().MaxSegments) {
				fill(burst, f, s, 0x123456, r, a.Info().IDs)
				n, err := a.Send([]*wire.Burst{burst})
				require.NoError(t, err)
				require.Equal(t, s.segs, n)
				pkts, ds := collect(t, b, s.segs)
				require.Equal(t, segments(burst), pkts, "%+v", s)
				for _, d := range ds {
					require.Equal(t, wire.Datagram{
						Src: c.src, Dst: c.dst, SrcPort: f.SrcPort, TOS: 0x6a, TTL: 33, SegLen: d.SegLen,
					}, d)
				}
				if c.opt == (Options{}) && a.merged {
					require.Len(t, ds, 1, "%+v: the run stays whole over loopback", s)
				}
			}
		})
	}
}

// TestManyBursts sends more bursts than a system call takes, from several
// ports and addresses, and counts.
func TestManyBursts(t *testing.T) {
	a := mustOpen(t, Config{Addrs: []netip.Addr{v4a, v4c}})[0]
	b := mustOpen(t, Config{Addrs: []netip.Addr{v4b}})[0]
	r := rand.New(rand.NewPCG(1, 2))
	var bs []*wire.Burst
	want := make(map[string]int)
	total, octets := 0, 0
	for i := range 40 {
		src := []netip.Addr{v4a, v4a, v4c}[i%3]
		f := flow(t, a, src, v4b, uint16(0xc000+i/4))
		bs = append(bs, wire.NewBurst())
		if i%7 != 3 { // some stay empty
			fill(bs[i], f, shape{1 + i%5, 256, 100}, uint32(i), r, a.Info().IDs)
			if bs[i].Len() == 1 {
				fill(bs[i], f, shape{1, 100, 100}, uint32(i), r, a.Info().IDs)
			}
		}
		total += bs[i].Len()
		octets += bs[i].Bytes()
		for _, p := range segments(bs[i]) {
			want[p]++
		}
	}
	n, err := a.Send(bs)
	require.NoError(t, err)
	require.Equal(t, total, n)
	pkts, _ := collect(t, b, total)
	for _, p := range pkts {
		want[p]--
	}
	for _, k := range want {
		require.Zero(t, k, "each packet arrives once")
	}
	require.Equal(t, link.Stats{TxPackets: uint64(total), TxBytes: uint64(octets)}, a.Stats())
	require.Equal(t, link.Stats{RxPackets: uint64(total), RxBytes: uint64(octets)}, b.Stats())
}

// TestManyAddresses checks that none of several sockets starves while one is
// always busy, without the help of Wait.
func TestManyAddresses(t *testing.T) {
	addrs := []netip.Addr{v4b, v4c, testbed.Loopback(3)}
	a := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0]
	b := mustOpen(t, Config{Addrs: addrs})[0]
	r := rand.New(rand.NewPCG(3, 4))
	send := func(dst netip.Addr) {
		burst := wire.NewBurst()
		fill(burst, flow(t, a, v4a, dst, 0xc001), shape{1, 64, 64}, 1, r, a.Info().IDs)
		n, err := a.Send([]*wire.Burst{burst})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	for _, dst := range addrs[1:] {
		send(dst)
	}
	seen := make(map[netip.Addr]int)
	ds := make([]wire.Datagram, 1)
	for range 4 * maxHot * len(addrs) { // loopback delivers within Send
		send(addrs[0])
		n, err := b.Recv(ds)
		require.NoError(t, err)
		if n == 1 {
			seen[ds[0].Dst]++
		}
	}
	require.Equal(t, 1, seen[addrs[1]])
	require.Equal(t, 1, seen[addrs[2]])
	require.Greater(t, seen[addrs[0]], 3*maxHot)
}

// TestZeroChecksumIPv6 is report B93: RoCEv2 senders leave the UDP checksum
// out, and the kernel drops that silently over IPv6 unless told otherwise.
func TestZeroChecksumIPv6(t *testing.T) {
	l := mustOpen(t, Config{Addrs: []netip.Addr{v6}})[0]
	fd, err := sys.UDPSocket(v6)
	require.NoError(t, err)
	defer sys.Close(fd)
	require.NoError(t, unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX, 1))
	require.NoError(t, sys.Bind(fd, netip.AddrPortFrom(v6, 0), 0))
	port, err := sys.LocalPort(fd)
	require.NoError(t, err)
	b := wire.NewBurst()
	fill(b, &wire.Flow{Src: v6, Dst: v6, SrcPort: port}, shape{1, 64, 64}, 1, rand.New(rand.NewPCG(5, 6)), wire.IDZero)
	require.NoError(t, unix.Sendto(fd, b.AppendSegment(nil, 0), 0, &unix.SockaddrInet6{Port: wire.Port, Addr: v6.As16()}))
	pkts, _ := collect(t, l, 1)
	require.Equal(t, segments(b), pkts)
}

func TestTaken(t *testing.T) {
	for _, shards := range []int{1, 2} {
		mustOpen(t, Config{Addrs: []netip.Addr{v4a, v4b}[shards-1 : shards], Shards: shards})
	}
	for _, a := range []netip.Addr{v4a, v4b} {
		for _, shards := range []int{1, 4} {
			_, err := Open(Config{Addrs: []netip.Addr{v4c, a}, Shards: shards})
			require.ErrorIs(t, err, syscall.EADDRINUSE)
			require.ErrorContains(t, err, "UDP port 4791 of "+a.String()+" is taken")
			require.ErrorContains(t, err, fmt.Sprintf("process %d (", os.Getpid()))
			ls, err := Open(Config{Addrs: []netip.Addr{v4c}}) // the failed Open let go of it
			require.NoError(t, err)
			require.NoError(t, ls[0].Close())
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "no local address"},
		{Config{Addrs: []netip.Addr{netip.IPv4Unspecified()}}, "must be definite"},
		{Config{Addrs: []netip.Addr{netip.MustParseAddr("fe80::1")}}, "fe80::1%eth0"},
		{Config{Addrs: []netip.Addr{v4a, v4a}}, "given twice"},
		{Config{Addrs: []netip.Addr{v4a}, Shards: 17}, "1 to 16"},
		{Config{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.77")}}, "no interface has the address 192.0.2.77"},
		{Config{Addrs: []netip.Addr{netip.MustParseAddr("fe80::1%gorxe-none")}}, "no interface has the address"},
	} {
		_, err := Open(c.cfg)
		require.ErrorContains(t, err, c.want)
	}
}

func TestCloseWhileWaiting(t *testing.T) {
	l := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0]
	done := make(chan error)
	go func() {
		for {
			if err := l.Wait(-1); err != nil {
				done <- err
				return
			}
		}
	}()
	for !l.poll.Waiting() {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	select {
	case err := <-done:
		require.ErrorIs(t, err, link.ErrClosed)
	case <-time.After(hang):
		t.Fatal("Wait did not end")
	}
	_, err := l.Recv(make([]wire.Datagram, 1))
	require.ErrorIs(t, err, link.ErrClosed)
	_, err = l.Send([]*wire.Burst{wire.NewBurst()})
	require.ErrorIs(t, err, link.ErrClosed)
	_, err = l.ResolvePort(v4a, 0xc000)
	require.ErrorIs(t, err, link.ErrClosed)
	require.ErrorIs(t, l.Wait(0), link.ErrClosed)
	l.Wake()
	mustOpen(t, Config{Addrs: []netip.Addr{v4a}}) // the port is free again
}

// TestCloseReleases opens and closes with sending sockets in use and counts
// descriptors.
func TestCloseReleases(t *testing.T) {
	count := func() int {
		es, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(es)
	}
	before := count()
	for range 20 {
		ls, err := Open(Config{Addrs: []netip.Addr{v4a, v4b}, Shards: 2})
		require.NoError(t, err)
		for _, l := range ls {
			_, err := l.(*Link).ResolvePort(v4a, 0xc000)
			require.NoError(t, err)
			require.NoError(t, l.Close())
		}
	}
	require.Less(t, count(), before+20)
}

func TestWake(t *testing.T) {
	l := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0]
	l.Wake()
	require.NoError(t, l.Wait(-1)) // a Wake before counts
	done := make(chan error)
	go func() { done <- l.Wait(-1) }()
	for !l.poll.Waiting() {
		time.Sleep(time.Millisecond)
	}
	l.Wake()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(hang):
		t.Fatal("Wait did not end")
	}
}

// TestShards sends to many queue pairs and checks that each shard receives
// its own.
func TestShards(t *testing.T) {
	for _, shards := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			a := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0]
			ls := mustOpen(t, Config{Addrs: []netip.Addr{v4b}, Shards: shards})
			r := rand.New(rand.NewPCG(7, 8))
			want := make([][]string, shards)
			b := wire.NewBurst()
			for i := range 200 {
				qpn := r.Uint32() & 0xffffff
				fill(b, flow(t, a, v4a, v4b, uint16(0xc000+i)), shape{1 + i%3, 80, 80}, qpn, r, a.Info().IDs)
				n, err := a.Send([]*wire.Burst{b})
				require.NoError(t, err)
				require.Equal(t, b.Len(), n)
				s := int(qpn&15) % shards
				want[s] = append(want[s], segments(b)...)
			}
			for s, l := range ls {
				pkts, _ := collect(t, l, len(want[s]))
				require.Equal(t, want[s], pkts)
				n, err := l.Recv(make([]wire.Datagram, 1))
				require.NoError(t, err)
				require.Zero(t, n)
			}
		})
	}
}

func TestResolvePort(t *testing.T) {
	l := mustOpen(t, Config{Addrs: []netip.Addr{v4a, v4b}})[0]
	p, err := l.ResolvePort(v4a, 0xc123)
	require.NoError(t, err)
	again, err := l.ResolvePort(v4a, 0xd123) // same low bits
	require.NoError(t, err)
	require.Equal(t, p, again)

	// A port that somebody has: another with the same low bits.
	fd, err := sys.UDPSocket(v4b)
	require.NoError(t, err)
	defer sys.Close(fd)
	require.NoError(t, sys.Bind(fd, netip.AddrPortFrom(v4b, 0xc777), 0))
	p, err = l.ResolvePort(v4b, 0xc777)
	require.NoError(t, err)
	require.NotEqual(t, uint16(0xc777), p)
	require.Equal(t, uint16(7), p&15)
	require.GreaterOrEqual(t, p, uint16(0xc000))
	p, err = l.ResolvePort(v4b, wire.Port+1)
	require.NoError(t, err)
	require.Equal(t, uint16(wire.Port+1), p)

	_, err = l.ResolvePort(v4c, 0xc000)
	require.ErrorContains(t, err, "not an address of this link")

	// What was not resolved is refused, for its ICRC would be wrong.
	b := wire.NewBurst()
	fill(b, &wire.Flow{Src: v4a, Dst: v4b, SrcPort: 0xd123}, shape{2, 64, 64}, 1, rand.New(rand.NewPCG(9, 9)), wire.IDCount)
	n, err := l.Send([]*wire.Burst{b})
	require.Equal(t, 2, n)
	require.ErrorContains(t, err, "ResolvePort")
	fill(b, &wire.Flow{Src: v4c, Dst: v4b, SrcPort: 0xc000}, shape{1, 64, 64}, 1, rand.New(rand.NewPCG(9, 9)), wire.IDCount)
	_, err = l.Send([]*wire.Burst{b})
	require.ErrorContains(t, err, "not an address of this link")
}

// TestRefusedBurst checks that packets the system refuses do not stop others.
func TestRefusedBurst(t *testing.T) {
	for _, opt := range []Options{{}, {NoGSO: true}} {
		l := mustOpen(t, Config{Addrs: []netip.Addr{v4a, v4b}, Options: opt})[0]
		r := rand.New(rand.NewPCG(10, 11))
		ids := l.Info().IDs
		bad, good := wire.NewBurst(), wire.NewBurst()
		// A loopback address cannot reach another host: EINVAL.
		fill(bad, flow(t, l, v4a, netip.MustParseAddr("192.0.2.1"), 0xc001), shape{3, 64, 64}, 1, r, ids)
		fill(good, flow(t, l, v4a, v4b, 0xc001), shape{2, 64, 64}, 1, r, ids)
		n, err := l.Send([]*wire.Burst{good, bad, good})
		require.Equal(t, 7, n)
		var se *link.SendError
		require.ErrorAs(t, err, &se)
		require.Equal(t, v4a, se.Src)
		require.Equal(t, "192.0.2.1", se.Dst.String())
		require.NotErrorIs(t, err, link.ErrClosed)
		pkts, _ := collect(t, l, 4)
		require.Equal(t, segments(good, good), pkts)
		require.EqualValues(t, 3, l.Stats().TxErrors)
		require.EqualValues(t, 4, l.Stats().TxPackets)
		var total uint64
		for _, n := range l.SendErrors() {
			total += n
		}
		require.EqualValues(t, 1, total)
		require.NoError(t, l.Close())
	}
}

func TestInfo(t *testing.T) {
	lo, err := os.ReadFile("/sys/class/net/lo/mtu")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("needs /sys, which is not mounted, to know the MTU of lo")
	}
	require.NoError(t, err)
	i := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0].Info()
	require.Equal(t, "udp", i.Name)
	require.False(t, i.Exact4)
	require.True(t, i.Exact6)
	require.Contains(t, []int{64, 128}, i.MaxSegments)
	require.Equal(t, 65000, i.MaxBytes)
	require.Equal(t, 8, i.MaxBursts)
	require.Equal(t, strings.TrimSpace(string(lo)), fmt.Sprint(i.MTU))

	small := mustOpen(t, Config{Addrs: []netip.Addr{v4b}, RcvBuf: 106496})[0].Info()
	require.Equal(t, 64, small.Window)
	require.Contains(t, strings.Join(small.Missing, "\n"), "net.core.rmem_max")
	off := mustOpen(t, Config{Addrs: []netip.Addr{v4c}, Options: Options{NoGSO: true}})[0].Info()
	require.Contains(t, strings.Join(off.Missing, "\n"), "segmentation offload")
}

func TestWindow(t *testing.T) {
	for _, c := range [][2]int{{0, 16}, {212992, 64}, {425984, 128}, {4 << 20, 512}, {1 << 30, 512}} {
		require.Equal(t, c[1], window(c[0]))
	}
}

// TestDropsCounted fills a receive buffer: what the kernel dropped is counted.
func TestDropsCounted(t *testing.T) {
	a := mustOpen(t, Config{Addrs: []netip.Addr{v4a}})[0]
	b := mustOpen(t, Config{Addrs: []netip.Addr{v4b}, RcvBuf: 1})[0]
	r := rand.New(rand.NewPCG(12, 13))
	burst := wire.NewBurst()
	f := flow(t, a, v4a, v4b, 0xc001)
	fill(burst, f, shape{1, 1040, 1040}, 1, r, a.Info().IDs)
	const sent = 50
	got := 0
	ds := make([]wire.Datagram, 4)
	drain := func() {
		for {
			n, err := b.Recv(ds)
			require.NoError(t, err)
			if n == 0 {
				return
			}
			got += n
		}
	}
	for range sent {
		_, err := a.Send([]*wire.Burst{burst})
		require.NoError(t, err)
	}
	drain()
	_, err := a.Send([]*wire.Burst{burst}) // carries the count
	require.NoError(t, err)
	drain()
	require.Less(t, got, sent+1)
	require.EqualValues(t, sent+1-got, b.Stats().RxDropped)
}

// TestNoAllocations asserts that sending and receiving allocate nothing.
func TestNoAllocations(t *testing.T) {
	for _, src := range []netip.Addr{v4a, v6} {
		for _, opt := range []Options{{}, {NoGSO: true, NoGRO: true}} {
			l := mustOpen(t, Config{Addrs: []netip.Addr{src}, Options: opt})[0]
			f := flow(t, l, src, src, 0xc001)
			r := rand.New(rand.NewPCG(14, 15))
			bs := []*wire.Burst{wire.NewBurst(), wire.NewBurst()}
			fill(bs[0], f, shape{15, 4112, 4112}, 1, r, l.Info().IDs)
			fill(bs[1], f, shape{1, 64, 64}, 1, r, l.Info().IDs)
			ds := make([]wire.Datagram, 8)
			got := 0
			allocs := testing.AllocsPerRun(50, func() {
				if n, err := l.Send(bs); n != 16 || err != nil {
					t.Fatal(n, err)
				}
				for {
					n, err := l.Recv(ds)
					if err != nil {
						t.Fatal(err)
					}
					if n == 0 {
						break
					}
					for i := range ds[:n] {
						got += ds[i].Segments()
					}
				}
				if err := l.Wait(0); err != nil {
					t.Fatal(err)
				}
			})
			require.Zero(t, allocs)
			require.Equal(t, 51*16, got)
			require.NoError(t, l.Close())
		}
	}
}

func benchmark(b *testing.B, s shape, bursts int, opt Options) {
	l := mustOpen(b, Config{Addrs: []netip.Addr{v4a}, Options: opt})[0]
	r := rand.New(rand.NewPCG(16, 17))
	f := flow(b, l, v4a, v4a, 0xc001)
	bs := make([]*wire.Burst, bursts)
	octets := 0
	for i := range bs {
		bs[i] = wire.NewBurst()
		fill(bs[i], f, s, 1, r, l.Info().IDs)
		octets += bs[i].Bytes()
	}
	ds := make([]wire.Datagram, 8)
	b.SetBytes(int64(octets))
	b.ReportAllocs()
	packets := 0
	for b.Loop() {
		if _, err := l.Send(bs); err != nil {
			b.Fatal(err)
		}
		for got := 0; got < s.segs*bursts; {
			n, err := l.Recv(ds)
			if err != nil {
				b.Fatal(err)
			}
			if n == 0 {
				b.Fatal("lost on loopback")
			}
			for i := range ds[:n] {
				got += ds[i].Segments()
			}
		}
		packets += s.segs * bursts
	}
	b.ReportMetric(float64(packets)/b.Elapsed().Seconds(), "packets/s")
}

func BenchmarkSuper4096(b *testing.B) { benchmark(b, shape{15, 4112, 4112}, 4, Options{}) }
func BenchmarkSuper1024(b *testing.B) { benchmark(b, shape{62, 1040, 1040}, 4, Options{}) }
func BenchmarkSuper64(b *testing.B)   { benchmark(b, shape{64, 80, 80}, 4, Options{}) }
func BenchmarkSingle64(b *testing.B)  { benchmark(b, shape{1, 80, 80}, 1, Options{}) }
func BenchmarkPlain4096(b *testing.B) {
	benchmark(b, shape{15, 4112, 4112}, 4, Options{NoGSO: true, NoGRO: true})
}
func BenchmarkEmptyRecv1(b *testing.B) { benchmarkEmpty(b, v4a) }
func BenchmarkEmptyRecv3(b *testing.B) { benchmarkEmpty(b, v4a, v4b, v4c) }

func benchmarkEmpty(b *testing.B, addrs ...netip.Addr) {
	l := mustOpen(b, Config{Addrs: addrs})[0]
	ds := make([]wire.Datagram, 8)
	for b.Loop() {
		if n, err := l.Recv(ds); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// TestConcurrentUse runs Send, Recv, Wait, Wake, the joining of groups and Close
// of one link beside each other, as a NIC does, until each has seen it closed.
func TestConcurrentUse(t *testing.T) {
	l := mustOpen(t, Config{Addrs: []netip.Addr{v4a, v4b}})[0]
	b := wire.NewBurst()
	fill(b, flow(t, l, v4a, v4b, 0xc001), shape{3, 64, 64}, 1, rand.New(rand.NewPCG(28, 29)), l.Info().IDs)
	got := make(chan struct{}, 1)
	ds := make([]wire.Datagram, 4)
	done := make(chan error)
	loop := func(f func() error) {
		go func() {
			for {
				if err := f(); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	loop(func() error { _, err := l.Send([]*wire.Burst{b}); return err })
	loop(func() error {
		n, err := l.Recv(ds)
		if n > 0 {
			select {
			case got <- struct{}{}:
			default:
			}
		}
		return err
	})
	loop(func() error { l.Wake(); _ = l.Stats(); return l.Wait(-1) })
	loop(func() error { return errors.Join(l.JoinGroup(group4), l.LeaveGroup(group4)) })
	select {
	case <-got:
	case <-time.After(hang):
		t.Error("nothing came")
	}
	require.NoError(t, l.Close())
	for range 4 {
		require.ErrorIs(t, <-done, link.ErrClosed)
	}
}
