package linktest

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// Link is a link that counts.
type Link interface {
	link.Link
	link.StatsReader
	link.PortResolver
	Reasons() trace.Counts
}

// Family is the addresses of one family of a testbed's pair.
type Family struct {
	Name string
	A, B netip.Addr
}

// Families are both.
var Families = []Family{{"IPv4", testbed.A4, testbed.B4}, {"IPv6", testbed.A6, testbed.B6}}

// Flow is from src to dst, with a source port that l can use.
func Flow(t testing.TB, h *testbed.Host, l link.PortResolver, src, dst netip.Addr) *wire.Flow {
	t.Helper()
	var port uint16
	h.Do(func() { // it may open a socket
		var err error
		if port, err = l.ResolvePort(src, 0xc123); err != nil {
			t.Fatal(err)
		}
	})
	return &wire.Flow{Src: src, Dst: dst, SrcPort: port, TOS: 0x6a, TTL: 9}
}

// Burst is n sealed SEND_ONLY packets to a queue pair, with size octets of
// payload, the last 20 less, that tell their packets apart.
func Burst(i link.Info, f *wire.Flow, qpn uint32, n, size int) *wire.Burst {
	b := wire.NewBurst()
	b.Reset(f, i.MaxSegments, 0)
	for k := range n {
		pay := size
		if k == n-1 && size >= 20 {
			pay -= 20
		}
		if !b.Fits(bth.BTHLen+pay+bth.ICRCLen, 1) {
			panic("the burst is too long for the test")
		}
		h := b.Begin(bth.MakePSN(uint32(k)), 0x04, bth.BTHLen, pay)
		copy(h, []byte{0x04, 0x40, 0xff, 0xff, 0, byte(qpn >> 16), byte(qpn >> 8), byte(qpn), 0x80, 0, 0, byte(k)})
		p := b.Copy(pay)
		for j := range p {
			p[j] = byte(j*7 + k*13 + size)
		}
		b.End()
	}
	b.Seal(i.IDs)
	return b
}

// Send sends bursts, all of them.
func Send(t testing.TB, l link.Link, bs ...*wire.Burst) {
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

// Patience bounds how long a failing test waits; a passing one does not.
const Patience = 10 * time.Second

// Receive takes datagrams until they hold n packets. Each is a copy.
func Receive(t testing.TB, l Link, n int) (out []wire.Datagram) {
	t.Helper()
	ds := make([]wire.Datagram, 8)
	for end := time.Now().Add(Patience); n > 0; {
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

// Match fails unless the datagrams are exactly the bursts' packets, in order,
// with exact ICRCs, in frames that are not a VLAN's.
func Match(t testing.TB, ds []wire.Datagram, bs ...*wire.Burst) {
	t.Helper()
	for i := range ds {
		d := &ds[i]
		priority := len(d.L2) == wire.EthernetLen+wire.VLANLen && wire.VLAN(d.L2[wire.EthernetLen:]).VID() == 0
		if d.IDKnown != d.Src.Is4() || len(d.L2) != wire.EthernetLen && !priority {
			t.Fatalf("datagram %+v has not the headers of its frame", d)
		}
	}
	MatchPackets(t, ds, bs...)
}

// MatchPackets is Match for a link that may not see frames.
func MatchPackets(t testing.TB, ds []wire.Datagram, bs ...*wire.Burst) {
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
			if d.Src != f.Src || d.Dst != f.Dst || d.SrcPort != f.SrcPort || d.TOS != f.TOS || d.TTL != f.TTL {
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

// Injector sends hand-made frames from a host.
type Injector struct {
	t  testing.TB
	fd int
	to unix.SockaddrLinklayer
}

// NewInjector returns one on a host's interface.
func NewInjector(t testing.TB, h *testbed.Host) *Injector {
	j := &Injector{t: t, to: unix.SockaddrLinklayer{Ifindex: h.Index(h.Iface)}}
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

// SendRun sends a run of IPv4 segments as one frame, for the kernel to cut up
// where it must. udp is the offset of the UDP header.
func (j *Injector) SendRun(frame []byte, udp, segLen int) {
	j.t.Helper()
	const vnetLen, gsoUDPL4 = 10, 5 // virtio 1.2, section 5.1.6
	vnet := make([]byte, vnetLen, vnetLen+len(frame))
	vnet[0], vnet[1] = 1, gsoUDPL4 // the checksum is to be filled in
	for at, v := range map[int]int{2: udp + wire.UDPLen, 4: segLen, 6: udp, 8: 6} {
		binary.NativeEndian.PutUint16(vnet[at:], uint16(v))
	}
	if err := unix.SetsockoptInt(j.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		j.t.Fatal(err)
	}
	j.Send(append(vnet, frame...))
	if err := unix.SetsockoptInt(j.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 0); err != nil {
		j.t.Fatal(err)
	}
}

// Send sends one frame.
func (j *Injector) Send(frame []byte) {
	j.t.Helper()
	if err := unix.Sendto(j.fd, frame, 0, &j.to); err != nil {
		j.t.Fatal(err)
	}
}

// Frame is a valid frame from A to B that carries the packets of b.
func Frame(b *wire.Burst) []byte {
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

// MustClosed fails unless every method says that the link is closed.
func MustClosed(t testing.TB, l Link) {
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

// Tag puts an 802.1Q tag into a frame.
func Tag(f []byte, tci uint16) []byte {
	return slices.Concat(f[:12], be16(wire.EtherTypeVLAN), be16(tci), f[12:])
}

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
