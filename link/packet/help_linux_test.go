package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

func TestMain(m *testing.M) {
	testbed.Main(m, testbed.Helpers{"open": func(args []string) error {
		links, err := Open(Config{Interface: args[0]})
		if err == nil {
			fmt.Println(links[0].Info().Window, links[0].Info().Missing)
		}
		return err
	}})
}

// node is a link in a host's namespace.
type node struct {
	*Link
	host *testbed.Host
}

// openOn opens links in a host's namespace; they are closed when the test
// ends.
func openOn(t *testing.T, h *testbed.Host, cfg Config) (links []node) {
	t.Helper()
	h.Do(func() {
		ls, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls {
			links = append(links, node{l.(*Link), h})
			t.Cleanup(func() { l.Close() })
		}
	})
	return links
}

func openOne(t *testing.T, h *testbed.Host, iface string) node {
	t.Helper()
	return openOn(t, h, Config{Interface: iface})[0]
}

// flow is from src to dst, with a source port that l can use.
func flow(t *testing.T, l node, src, dst netip.Addr) *wire.Flow {
	t.Helper()
	var port uint16
	l.host.Do(func() { // it may open a socket
		var err error
		if port, err = l.ResolvePort(src, 0xc123); err != nil {
			t.Fatal(err)
		}
	})
	return &wire.Flow{Src: src, Dst: dst, SrcPort: port, TOS: 0x6a, TTL: 9}
}

// burst is n sealed SEND_ONLY packets to a queue pair, with size octets of
// payload, the last 20 less, that tell their packets apart.
func burst(l node, f *wire.Flow, qpn uint32, n, size int) *wire.Burst {
	b := wire.NewBurst()
	b.Reset(f, l.Info().MaxSegments, 0)
	for i := range n {
		pay := size
		if i == n-1 && size >= 20 {
			pay -= 20
		}
		if !b.Fits(bth.BTHLen+pay+bth.ICRCLen, 1) {
			panic("the burst is too long for the test")
		}
		h := b.Begin(bth.MakePSN(uint32(i)), 0x04, bth.BTHLen, pay)
		copy(h, []byte{0x04, 0x40, 0xff, 0xff, 0, byte(qpn >> 16), byte(qpn >> 8), byte(qpn), 0x80, 0, 0, byte(i)})
		p := b.Copy(pay)
		for k := range p {
			p[k] = byte(k*7 + i*13 + size)
		}
		b.End()
	}
	b.Seal(l.Info().IDs)
	return b
}

func send(t *testing.T, l node, bs ...*wire.Burst) {
	t.Helper()
	segs, want := 0, 0
	for _, b := range bs {
		want += b.Len()
	}
	segs, err := l.Send(bs)
	if err != nil || segs != want {
		t.Fatalf("sent %d of %d packets: %v", segs, want, err)
	}
}

// patience bounds how long a failing test waits; a passing one does not.
const patience = 10 * time.Second

// receive takes datagrams until they hold n packets. Each is a copy.
func receive(t *testing.T, l node, n int) (out []wire.Datagram) {
	t.Helper()
	ds := make([]wire.Datagram, 8)
	for end := time.Now().Add(patience); n > 0; {
		got, err := l.Recv(ds)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds[:got] {
			n -= d.Segments()
			d.Payload = append([]byte(nil), d.Payload...)
			d.L2 = append([]byte(nil), d.L2...)
			out = append(out, d)
		}
		if got > 0 {
			continue
		}
		if time.Now().After(end) {
			t.Fatalf("%d packets are missing; %+v %v", n, l.Stats(), l.Reasons())
		}
		if err := l.Wait(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if n < 0 {
		t.Fatalf("%d packets too many", -n)
	}
	return out
}

// match fails unless the datagrams are exactly the bursts' packets, in order,
// with exact ICRCs.
func match(t *testing.T, ds []wire.Datagram, bs ...*wire.Burst) {
	t.Helper()
	v := wire.NewVerifier()
	at, seg := 0, 0
	for _, b := range bs {
		for i := range b.Len() {
			if at == len(ds) {
				t.Fatal("packets are missing")
			}
			d := &ds[at]
			f := b.Flow
			if d.Src != f.Src || d.Dst != f.Dst || d.SrcPort != f.SrcPort || d.TOS != f.TOS || d.TTL != f.TTL ||
				d.IDKnown != f.Src.Is4() || len(d.L2) != wire.EthernetLen {
				t.Fatalf("datagram %+v does not belong to flow %+v", d, f)
			}
			if got, want := d.Segment(seg), b.AppendSegment(nil, i); string(got) != string(want) {
				t.Fatalf("packet %d of a burst: %d octets differ from the %d sent", i, len(got), len(want))
			}
			if r := v.Check(0, d, seg); r != trace.None {
				t.Fatalf("packet %d of a burst: %v", i, r)
			}
			if seg++; seg == d.Segments() {
				at, seg = at+1, 0
			}
		}
	}
	if at != len(ds) {
		t.Fatalf("%d datagrams too many", len(ds)-at)
	}
}

// injector sends hand-made frames from a host.
type injector struct {
	t  *testing.T
	fd int
	to unix.SockaddrLinklayer
}

func newInjector(t *testing.T, h *testbed.Host) *injector {
	j := &injector{t: t, to: unix.SockaddrLinklayer{Ifindex: h.Index(h.Iface)}}
	h.Do(func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		j.fd = fd
	})
	t.Cleanup(func() { unix.Close(j.fd) })
	return j
}

// sendRun sends a run of IPv4 segments as one frame, for the kernel to cut up
// where it must. udp is the offset of the UDP header.
func (j *injector) sendRun(frame []byte, udp, segLen int) {
	j.t.Helper()
	vnet := make([]byte, vnetLen, vnetLen+len(frame))
	vnet[0], vnet[vnetGSOType] = 1, gsoUDPL4 // the checksum is to be filled in
	for at, v := range map[int]int{2: udp + wire.UDPLen, vnetGSOSize: segLen, 6: udp, 8: 6} {
		binary.NativeEndian.PutUint16(vnet[at:], uint16(v))
	}
	if err := unix.SetsockoptInt(j.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		j.t.Fatal(err)
	}
	j.send(append(vnet, frame...))
	if err := unix.SetsockoptInt(j.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 0); err != nil {
		j.t.Fatal(err)
	}
}

func (j *injector) send(frame []byte) {
	j.t.Helper()
	if err := unix.Sendto(j.fd, frame, 0, &j.to); err != nil {
		j.t.Fatal(err)
	}
}

// frame is a valid frame from A to B that carries the packets of b.
func frame(b *wire.Burst) []byte {
	var pkt []byte
	for i := range b.Len() {
		pkt = b.AppendSegment(pkt, i)
	}
	f := make([]byte, wire.EthernetLen, 200)
	wire.Ethernet(f).SetDst(testbed.MACB)
	wire.Ethernet(f).SetSrc(testbed.MACA)
	n := wire.UDPLen + len(pkt)
	if b.Flow.Src.Is4() {
		wire.Ethernet(f).SetEtherType(wire.EtherTypeIPv4)
		ip := make(wire.IPv4, wire.IPv4Len)
		ip[0] = 0x45
		ip.SetTOS(b.Flow.TOS)
		ip.SetTotalLen(wire.IPv4Len + n)
		ip.SetFlagsOffset(wire.FlagDF)
		ip.SetTTL(b.Flow.TTL)
		ip.SetProtocol(wire.ProtoUDP)
		ip.SetSrc(b.Flow.Src.As4())
		ip.SetDst(b.Flow.Dst.As4())
		ip.SetChecksum()
		f = append(f, ip...)
	} else {
		wire.Ethernet(f).SetEtherType(wire.EtherTypeIPv6)
		ip := make(wire.IPv6, wire.IPv6Len)
		ip.SetClassFlow(b.Flow.TOS, 0)
		ip.SetPayloadLen(n)
		ip.SetNextHeader(wire.ProtoUDP)
		ip.SetHopLimit(b.Flow.TTL)
		ip.SetSrc(b.Flow.Src.As16())
		ip.SetDst(b.Flow.Dst.As16())
		f = append(f, ip...)
	}
	udp := make(wire.UDP, wire.UDPLen)
	udp.SetSrcPort(b.Flow.SrcPort)
	udp.SetDstPort(wire.Port)
	udp.SetLength(n)
	return append(append(f, udp...), pkt...)
}

// mustClosed fails unless every method says that the link is closed.
func mustClosed(t *testing.T, l node) {
	t.Helper()
	_, e1 := l.Recv(make([]wire.Datagram, 1))
	_, e2 := l.Send(nil)
	e3 := l.Wait(-1)
	_, e4 := l.ResolvePort(netip.IPv6Unspecified(), 1)
	for _, e := range [...]error{e1, e2, e3, e4} {
		if !errors.Is(e, link.ErrClosed) {
			t.Errorf("after Close: %v", e)
		}
	}
	l.Wake()
	l.Stats()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// listenUDP opens an ordinary socket in a host's namespace.
func listenUDP(t *testing.T, h *testbed.Host, addr netip.AddrPort) (c *net.UDPConn) {
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
