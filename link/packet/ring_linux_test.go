package packet

import (
	"encoding/binary"
	"errors"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// TestWithoutRing: what other tests show holds without the ring as well.
func TestWithoutRing(t *testing.T) {
	refuseRing = true
	defer func() { refuseRing = false }()
	for name, f := range map[string]func(t *testing.T){
		"SuperPackets": TestSuperPackets, "SegmentedWire": TestSegmentedWire, "VLAN": TestVLAN, "PriorityTag": TestPriorityTag,
		"Shards": TestShards, "Loopback": TestLoopback, "NoAllocations": TestNoAllocations, "BadFrames": TestBadFrames,
		"OthersFrames": TestOthersFrames, "Overflow": TestOverflow, "DownAndUp": TestDownAndUp, "Close": TestClose,
		"Groups": TestGroups, "GroupShards": TestGroupShards, "GroupConcurrentUse": TestGroupConcurrentUse,
	} {
		t.Run(name, f)
	}
}

// arrived waits until n more frames have reached the sockets than when it was
// called last; the link's count of dropped ones must not be asked for meanwhile.
func arrived(t *testing.T, l node, n int) {
	t.Helper()
	for end := time.Now().Add(linktest.Patience); n > 0; {
		for _, in := range l.rx.in {
			s, err := unix.GetsockoptTpacketStats(in.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
			if err != nil || s.Drops != 0 || time.Now().After(end) {
				t.Fatalf("%d frames are missing, %d dropped, %v", n, s.Drops, err)
			}
			n -= int(s.Packets)
		}
	}
	if n < 0 {
		t.Fatalf("%d frames too many", -n)
	}
}

// TestBorrowed: datagrams stay as they are until the next Recv, however much
// arrives meanwhile, and turn to zeros when the link is closed.
func TestBorrowed(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a := openOne(t, p.A, testbed.Iface)
	b := openOn(t, p.B, Config{Interface: testbed.Iface, RcvBuf: 1})[0] // the smallest rings
	slots := b.rx.rings.long.Slots()
	fl := flow(t, a, testbed.A4, testbed.B4)
	var bs []*wire.Burst
	for i := range slots {
		bs = append(bs, burst(a, fl, 0x11, 15, 4000+4*i))
	}
	late := burst(a, fl, 0x11, 2, 4000)
	send(t, a, late)
	receive(t, b, 2)
	arrived(t, b, 1)
	ds := make([]wire.Datagram, slots)
	for range 3 {
		quiet(t, b) // and every slot is the kernel's
		send(t, a, bs...)
		arrived(t, b, slots)
		for _, bu := range bs { // those that come later wait in their slots
			if k, err := b.Recv(ds[:1]); k != 1 || err != nil {
				t.Fatalf("%d datagrams, %v", k, err)
			}
			match(t, ds[:1], bu)
		}
		quiet(t, b)
		send(t, a, bs...)
		arrived(t, b, slots)
		if k, err := b.Recv(ds); k != slots || err != nil {
			t.Fatalf("%d of %d datagrams, %v", k, slots, err)
		}
		before := b.Stats().RxDropped
		send(t, a, late, late) // there is no slot
		for end := time.Now().Add(linktest.Patience); b.Stats().RxDropped-before != 2; {
			if time.Now().After(end) {
				t.Fatalf("%d packets dropped, want 2", b.Stats().RxDropped-before)
			}
		}
		match(t, ds, bs...)
		quiet(t, b)
		send(t, a, late)
		match(t, receive(t, b, 2), late)
		arrived(t, b, 1)
	}
	send(t, a, late, late, late)
	arrived(t, b, 3)
	k, err := b.Recv(ds)
	if k == 0 || err != nil {
		t.Fatalf("%d datagrams, %v", k, err)
	}
	b.Close()
	for _, d := range ds[:k] {
		if !reflect.DeepEqual(d.Payload, make([]byte, len(d.Payload))) {
			t.Error("a payload survived Close")
		}
	}
	linktest.MustClosed(t, b)
}

// mixed is bursts of which some fit into short slots, some do not, and some just
// do; the queue pair number is the place of each.
func mixed(a node, f *wire.Flow) (bs []*wire.Burst) {
	for _, s := range [][2]int{{1, 8}, {15, 4096}, {1, 4096}, {2, 2000}, {2, 2200}, {1, 8}, {1, 20}, {60, 1024}, {60, 1024}, {60, 8}, {1, 4180}, {1, 4184}, {1, 4188}, {1, 4192}, {1, 4196}, {1, 4200}, {1, 4204}, {1, 4208}, {1, 4212}, {1, 4216}, {1, 4220}, {3, 1000}} {
		bs = append(bs, burst(a, f, uint32(len(bs)), s[0], s[1]))
	}
	return bs
}

// TestOrder: runs and single packets come out of their rings in the order in
// which they came, whole.
func TestOrder(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
	for _, f := range linktest.Families {
		bs := mixed(a, flow(t, a, f.A, f.B))
		packets := 0
		for _, bu := range bs {
			packets += bu.Len()
		}
		send(t, a, bs[0])
		receive(t, b, 1)
		arrived(t, b, 1)
		for range 3 {
			send(t, a, bs...)
			arrived(t, b, len(bs))
			match(t, receive(t, b, packets), bs...)
		}
	}
}

// fakeLane shows its frames from the given looks on.
type fakeLane struct {
	frames [][]byte
	looks  *int // at any lane
	from   int
}

func (l *fakeLane) Peek() []byte {
	*l.looks++
	if len(l.frames) == 0 || *l.looks < l.from {
		return nil
	}
	return l.frames[0]
}

func (l *fakeLane) Take() { l.frames = l.frames[1:] }

// TestOrderBetweenLooks: whenever a run and a single packet behind it, or the other
// way round, arrive while they are looked for, they come in order.
func TestOrderBetweenLooks(t *testing.T) {
	one, two := make([]byte, slotHeader), make([]byte, slotHeader)
	binary.NativeEndian.PutUint32(one[slotNsec:], 1)
	binary.NativeEndian.PutUint32(two[slotNsec:], 2)
	for a := 1; a < 8; a++ {
		for b := a; b < 8; b++ {
			for _, runFirst := range []bool{true, false} {
				looks := 0
				x, y := &fakeLane{[][]byte{one}, &looks, a}, &fakeLane{[][]byte{two}, &looks, b}
				long, short := x, y
				if !runFirst {
					long, short = y, x
				}
				var got []byte
				for len(got) < 2 {
					if f := first(long, short); f != nil {
						got = append(got, f[slotNsec])
					}
				}
				if got[0] != 1 || got[1] != 2 {
					t.Errorf("seen from looks %d and %d on, run first %v: %v", a, b, runFirst, got)
				}
			}
		}
	}
}

// TestOrderOnArrival: the same while they arrive.
func TestOrderOnArrival(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a, b := openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface)
	bs := mixed(a, flow(t, a, testbed.A4, testbed.B4))
	const rounds, ahead = 1000, 2
	var done sync.WaitGroup
	room := make(chan struct{}, ahead) // or they would find no slot
	done.Go(func() {
		runtime.LockOSThread()
		var all, one unix.CPUSet // a thread that moves overtakes itself
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			t.Error(err)
		}
		for i := 0; one.Count() == 0; i++ {
			if all.IsSet(i) {
				one.Set(i)
			}
		}
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
		}
		for range rounds {
			room <- struct{}{}
			for i := range bs {
				if _, err := a.Send(bs[i : i+1]); err != nil {
					t.Error(err)
				}
			}
		}
	})
	ds := make([]wire.Datagram, 8)
	next := 0
	for end := time.Now().Add(3 * linktest.Patience); next < rounds*len(bs) && time.Now().Before(end); {
		n, err := b.Recv(ds)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds[:n] {
			if got, want := int(d.Payload[7]), next%len(bs); got != want {
				t.Fatalf("frame %d: burst %d came, want %d", next, got, want)
			}
			if next++; next%len(bs) == 0 {
				<-room
			}
		}
		if n == 0 {
			sys.Yield()
		}
	}
	if next != rounds*len(bs) {
		t.Fatalf("%d frames of %d came: %+v", next, rounds*len(bs), b.Stats())
	}
	done.Wait()
}

// TestForeignFrames: frames for other addresses and such as are no RoCEv2 cost
// slots, not turns: Recv goes on to those behind them.
func TestForeignFrames(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	a := openOne(t, p.A, testbed.Iface)
	b := openOne(t, p.B, testbed.Iface)
	bu := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 1, 40)
	send(t, a, bu)
	receive(t, b, 1)
	arrived(t, b, 1)
	bad := linktest.Frame(bu)
	bad[wire.EthernetLen+10] ^= 1 // the checksum
	j := linktest.NewInjector(t, p.A)
	ds := make([]wire.Datagram, 1)
	for _, n := range []int{1, maxLook - 1, maxLook, maxLook + 1} {
		quiet(t, b)
		before := b.Reasons()[trace.DropIPChecksum]
		for range n {
			j.Send(bad)
		}
		send(t, a, bu)
		arrived(t, b, n+1)
		looks := 1
		for ; ; looks++ {
			k, err := b.Recv(ds)
			if err != nil || looks > 3 {
				t.Fatalf("%d looks, %v", looks, err)
			}
			if k == 1 {
				break
			}
		}
		match(t, ds, bu)
		if want := 1 + n/maxLook; looks != want || b.Reasons()[trace.DropIPChecksum]-before != uint64(n) {
			t.Errorf("%d frames before it: %d looks, want %d; %v", n, looks, want, b.Reasons())
		}
	}
}

// TestCloseBesideRecv: closing a link that somebody receives from in a loop, with
// frames arriving, ends the loop.
func TestCloseBesideRecv(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	before := descriptors(t)
	a := openOne(t, p.A, testbed.Iface)
	bu := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 2, 64)
	for range 20 {
		b := openOne(t, p.B, testbed.Iface)
		var wg sync.WaitGroup
		wg.Go(func() {
			ds := make([]wire.Datagram, 4)
			for sum := byte(0); ; {
				n, err := b.Recv(ds)
				if errors.Is(err, link.ErrClosed) {
					return
				}
				for _, d := range ds[:n] {
					for _, c := range d.Payload {
						sum += c
					}
				}
			}
		})
		for range 20 {
			send(t, a, bu)
		}
		b.Close()
		wg.Wait()
	}
	a.Close()
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// TestLessMemory: a ring that the kernel has no memory for is asked for again,
// half as long.
func TestLessMemory(t *testing.T) {
	full := errors.New("full")
	for _, c := range []struct {
		want, room, got int
		why             error
	}{{18, 100, 18, nil}, {18, 18, 18, nil}, {18, 17, 9, full}, {18, 1, 1, full}, {18, 0, 0, full}, {1, 0, 0, full}} {
		got, why := most(c.want, func(n int) error {
			if n > c.room {
				return full
			}
			return nil
		})
		if got != c.got || why != c.why {
			t.Errorf("%+v: got %d, %v", c, got, why)
		}
	}
}

// BenchmarkRecv is what a look at a link costs: with nothing there, and with a
// small packet, of which most is the sending.
func BenchmarkRecv(b *testing.B) {
	for name, noRing := range map[string]bool{"ring": false, "system call": true} {
		p := testbed.NewPair(b, 9000)
		a, far := openPair(b, p, Config{Interface: testbed.Iface, noRing: noRing})
		ds := make([]wire.Datagram, 8)
		b.Run(name+"/nothing", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n, err := far.Recv(ds); n != 0 || err != nil {
					b.Fatal(n, err)
				}
			}
		})
		bs := []*wire.Burst{linktest.Burst(a.Info(), linktest.Flow(b, p.A, a, testbed.A4, testbed.B4), 0x11, 1, 8)}
		b.Run(name+"/packet", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				linktest.Send(b, a, bs...)
				for n := 0; n == 0; {
					n, _ = far.Recv(ds)
				}
			}
		})
	}
}

func openPair(b *testing.B, p *testbed.Pair, cfg Config) (l, far *Link) {
	for h, to := range map[*testbed.Host]**Link{p.A: &l, p.B: &far} {
		h.Do(func() {
			ls, err := Open(cfg)
			if err != nil {
				b.Fatal(err)
			}
			*to = ls[0].(*Link)
			b.Cleanup(func() { ls[0].Close() })
		})
	}
	return l, far
}
