package mem_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/link/mem/memtest"
	"github.com/gorxe/gorxe/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(tb testing.TB, cfg mem.Config) (a, b link.Link) {
	tb.Helper()
	as, bs, err := mem.Pair(mem.Config{}, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return as[0], bs[0]
}

func send(tb testing.TB, l link.Link, bs ...*wire.Burst) {
	tb.Helper()
	want := 0
	for _, b := range bs {
		want += b.Len()
	}
	if n, err := l.Send(bs); n != want || err != nil {
		tb.Fatalf("Send = %d, %v; want %d", n, err, want)
	}
}

func stats(l link.Link) link.Stats { return l.(link.StatsReader).Stats() }

// Bursts of every shape arrive as the receiver's port is told to deliver
// them, with ICRCs that hold for the identifications it shows or hides.
func TestShapes(t *testing.T) {
	shapes := [][]int{{0}, {1}, {16}, {4096}, {512, 512}, {1024, 1024, 1024, 7}, memtest.Equal(128, 256), memtest.Equal(15, 4096)}
	for _, f := range []*wire.Flow{memtest.Flow4(), memtest.Flow6()} {
		for _, cfg := range []mem.Config{{}, {Single: true}, {HideIDs: true}, {Single: true, HideIDs: true}} {
			t.Run(fmt.Sprintf("%v single=%v hide=%v", f.Dst, cfg.Single, cfg.HideIDs), func(t *testing.T) {
				a, b := pair(t, cfg)
				v := wire.NewVerifier()
				ds := make([]wire.Datagram, 200)
				for _, lens := range shapes {
					send(t, a, memtest.Burst(t, memtest.Spec{Flow: f, QPN: 0x10, PSN: 0xfffffe, Op: bth.RCSendMiddle, Lens: lens}))
					n, err := b.Recv(ds)
					want := 1
					if cfg.Single {
						want = len(lens)
					}
					if n != want || err != nil {
						t.Fatalf("Recv = %d, %v; want %d", n, err, want)
					}
					psn := bth.MakePSN(0xfffffe)
					for i := range ds[:n] {
						d := &ds[i]
						if known := f.Dst.Is4() && !cfg.HideIDs; d.IDKnown != known || known && (d.Flags != wire.FlagDF || int(d.ID) != i) {
							t.Errorf("ID %d flags %#x known %v", d.ID, d.Flags, d.IDKnown)
						}
						if d.Src != f.Src || d.Dst != f.Dst || d.SrcPort != f.SrcPort || d.TOS != f.TOS || d.TTL != f.TTL {
							t.Errorf("flow %+v became %+v", f, d)
						}
						for s := range d.Segments() {
							if p := memtest.Check(t, v, d, s); p.PSN != psn {
								t.Fatalf("PSN %v, want %v", p.PSN, psn)
							}
							psn = psn.Add(1)
						}
					}
					if psn != bth.MakePSN(0xfffffe).Add(len(lens)) {
						t.Errorf("packets up to PSN %v arrived", psn)
					}
				}
			})
		}
	}
}

// A payload that Recv lent is not written to before the next Recv, however
// much arrives, and what finds no room is counted.
func TestOverflow(t *testing.T) {
	one := func(psn uint32) *wire.Burst {
		return memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, PSN: psn, Op: bth.RCSendMiddle, Lens: memtest.Equal(15, 4096)})
	}
	for _, c := range []struct {
		name  string
		cfg   mem.Config
		holds int // bursts
	}{
		{"depth", mem.Config{Depth: 3}, 3},
		{"bytes", mem.Config{Bytes: 4 * 62000}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, c.cfg)
			v := wire.NewVerifier()
			ds := make([]wire.Datagram, 1)
			psn, next := uint32(0), uint32(0)
			lost := uint64(0)
			for range 20 { // several times around the ring
				for range c.holds + 2 {
					send(t, a, one(psn))
					psn += 15
				}
				// One datagram stays lent from the round before.
				room := c.holds
				if next > 0 {
					room--
				}
				lost += uint64(c.holds+2-room) * 15
				if got := stats(b).RxDropped; got != lost {
					t.Fatalf("RxDropped %d, want %d", got, lost)
				}
				if next > 0 {
					memtest.Check(t, v, &ds[0], 14)
				}
				next = psn - uint32(c.holds+2)*15
				for range room {
					n, err := b.Recv(ds)
					if n != 1 || err != nil {
						t.Fatalf("Recv = %d, %v", n, err)
					}
					for i := range 15 {
						if p := memtest.Check(t, v, &ds[0], i); p.PSN.Uint32() != next {
							t.Fatalf("PSN %v, want %d", p.PSN, next)
						}
						next++
					}
				}
			}
			if s, r := stats(a), stats(b); s.TxPackets != r.RxPackets+r.RxDropped {
				t.Errorf("sent %d, received %d, dropped %d", s.TxPackets, r.RxPackets, r.RxDropped)
			}
		})
	}
}

// Datagrams that fill the ring to its last octet: the next one begins at the
// start.
func TestExactFill(t *testing.T) {
	a, b := pair(t, mem.Config{Bytes: 16 * 4096})
	ds := make([]wire.Datagram, 1)
	v := wire.NewVerifier()
	psn, next := uint32(0), uint32(0)
	put := func() {
		send(t, a, memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, PSN: psn, Op: bth.RCSendMiddle, Lens: []int{4096 - bth.BTHLen - bth.ICRCLen}}))
		psn++
	}
	for range 16 {
		put()
	}
	for range 3 * 16 {
		for range 2 { // the second takes back what the first lent
			n, err := b.Recv(ds)
			if n != 1 || err != nil {
				t.Fatalf("Recv = %d, %v", n, err)
			}
			if p := memtest.Check(t, v, &ds[0], 0); p.PSN.Uint32() != next {
				t.Fatalf("PSN %v, want %d", p.PSN, next)
			}
			next++
			if next > 1 {
				put()
			}
		}
	}
	if s := stats(b); s.RxDropped != 0 {
		t.Errorf("%d dropped", s.RxDropped)
	}
}

func TestSteering(t *testing.T) {
	n := mem.NewNetwork()
	a, err := n.Attach(mem.Config{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	if err != nil {
		t.Fatal(err)
	}
	for shards := 1; shards <= 16; shards++ {
		f := memtest.Flow("192.0.2.1", "192.0.2.9")
		bs, err := n.Attach(mem.Config{Addrs: []netip.Addr{f.Dst}, Shards: shards})
		if err != nil {
			t.Fatal(err)
		}
		for qpn := bth.QPN(0xabcde0); qpn < 0xabcdf0; qpn++ {
			send(t, a[0], memtest.Burst(t, memtest.Spec{Flow: f, QPN: qpn, Op: bth.RCSendOnly, Lens: []int{8}}))
			for i, l := range bs {
				k, err := l.Recv(make([]wire.Datagram, 4))
				if want := i == int(qpn&0xf)%shards; err != nil || (k == 1) != want {
					t.Errorf("%d shards: QPN %#x, shard %d received %d", shards, qpn, i, k)
				}
			}
		}
		for _, l := range bs { // frees the address for the next round
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestNetwork(t *testing.T) {
	n := mem.NewNetwork()
	port := func(cfg mem.Config, addrs ...string) ([]link.Link, error) {
		for _, a := range addrs {
			cfg.Addrs = append(cfg.Addrs, netip.MustParseAddr(a))
		}
		return n.Attach(cfg)
	}
	a, err := port(mem.Config{MTU: 1500}, "192.0.2.1", "2001:db8::1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := port(mem.Config{Shards: 2}, "192.0.2.2", "fe80::2%eth0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := port(mem.Config{}, "192.0.2.3", "192.0.2.2"); err == nil {
		t.Error("an address was given twice")
	}
	for _, cfg := range []mem.Config{{Shards: 17}, {Shards: -1}, {Depth: -1}, {Bytes: 100}, {MTU: 100}} {
		if _, err := port(cfg, "192.0.2.7"); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	if _, err := port(mem.Config{}); err == nil {
		t.Error("a port without address was accepted")
	}
	to := func(dst string, qpn bth.QPN, size int) *wire.Burst {
		return memtest.Burst(t, memtest.Spec{Flow: memtest.Flow("192.0.2.1", dst), QPN: qpn, Op: bth.RCSendOnly, Lens: []int{size, size}})
	}
	send(t, a[0], to("192.0.2.3", 2, 8)) // the refused port left nothing behind
	if got := n.Unknown(); got != 2 {
		t.Errorf("Unknown %d, want 2", got)
	}
	f6 := memtest.Flow("2001:db8::1", "fe80::2")
	send(t, a[0], memtest.Burst(t, memtest.Spec{Flow: f6, QPN: 2, Op: bth.RCSendOnly, Lens: []int{8}}))
	send(t, a[0], to("192.0.2.1", 2, 8)) // to itself
	for _, l := range []link.Link{a[0], b[0]} {
		if k, err := l.Recv(make([]wire.Datagram, 4)); k != 1 || err != nil {
			t.Errorf("Recv = %d, %v; want 1", k, err)
		}
	}
	// 1500 octets: 20 IP, 8 UDP, 12 BTH, 4 ICRC leave 1456.
	send(t, a[0], to("192.0.2.2", 2, 1456))
	send(t, a[0], to("192.0.2.2", 2, 1457))
	if s := stats(a[0]); s.TxErrors != 2 || stats(b[0]).RxDropped != 0 {
		t.Errorf("TxErrors %d, want 2", s.TxErrors)
	}
	if err := b[1].Close(); err != nil {
		t.Fatal(err)
	}
	send(t, a[0], to("192.0.2.2", 3, 8)) // the closed shard
	if got := n.Unknown(); got != 4 {
		t.Errorf("Unknown %d, want 4", got)
	}
	if k, err := b[0].Recv(make([]wire.Datagram, 4)); k != 1 || err != nil {
		t.Errorf("Recv of the shard left open = %d, %v", k, err)
	}
}

func TestClosed(t *testing.T) {
	a, b := pair(t, mem.Config{})
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	b.Wake()
	_, r := b.Recv(make([]wire.Datagram, 1))
	_, s := b.Send(nil)
	for _, err := range []error{r, s, b.Wait(-1)} {
		if !errors.Is(err, link.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
	if err := a.Wait(0); err != nil {
		t.Error(err)
	}
}

// Wait costs exactly the time it is told to, and ends early for an arrival, a
// Wake and a Close.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, mem.Config{})
		took := func(d time.Duration) (time.Duration, error) {
			start := time.Now()
			err := b.Wait(d)
			return time.Since(start), err
		}
		for _, d := range []time.Duration{0, time.Microsecond, time.Hour} {
			if got, err := took(d); got != d || err != nil {
				t.Errorf("Wait(%v) took %v, %v", d, got, err)
			}
		}
		after := func(d time.Duration, f func()) { time.AfterFunc(d, f) }
		burst := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendOnly, Lens: []int{8}})
		after(time.Second, func() { a.Send([]*wire.Burst{burst}) })
		if got, err := took(-1); got != time.Second || err != nil {
			t.Errorf("arrival after %v, %v", got, err)
		}
		if got, err := took(time.Hour); got != 0 || err != nil { // not received yet
			t.Errorf("Wait with a datagram there took %v, %v", got, err)
		}
		if n, _ := b.Recv(make([]wire.Datagram, 2)); n != 1 {
			t.Errorf("received %d", n)
		}
		after(2*time.Second, b.Wake)
		if got, err := took(time.Hour); got != 2*time.Second || err != nil {
			t.Errorf("Wake after %v, %v", got, err)
		}
		b.Wake()
		if got, _ := took(time.Hour); got != 0 {
			t.Errorf("Wake before Wait: took %v", got)
		}
		after(3*time.Second, func() { b.Close() })
		if got, err := took(-1); got != 3*time.Second || !errors.Is(err, link.ErrClosed) {
			t.Errorf("Close after %v, %v", got, err)
		}
	})
}

// Many senders into one ring: nothing is lost or mixed up.
func TestConcurrentSenders(t *testing.T) {
	const senders, bursts, segs = 4, 50, 3
	n := mem.NewNetwork()
	rx, err := n.Attach(mem.Config{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.99")}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range senders {
		src := fmt.Sprintf("192.0.2.%d", i+1)
		ls, err := n.Attach(mem.Config{Addrs: []netip.Addr{netip.MustParseAddr(src)}})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for k := range bursts {
				b := memtest.Burst(t, memtest.Spec{
					Flow: memtest.Flow(src, "192.0.2.99"), QPN: bth.QPN(i), PSN: uint32(k * segs), Op: bth.RCSendMiddle, Lens: memtest.Equal(segs, 64),
				})
				if got, err := ls[0].Send([]*wire.Burst{b}); got != segs || err != nil {
					t.Errorf("Send = %d, %v", got, err)
				}
			}
		})
	}
	var next [senders]uint32
	v := wire.NewVerifier()
	ds := make([]wire.Datagram, 8)
	for got := 0; got < senders*bursts*segs; {
		k, err := rx[0].Recv(ds)
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			if err := rx[0].Wait(-1); err != nil {
				t.Fatal(err)
			}
		}
		for i := range ds[:k] {
			for s := range ds[i].Segments() {
				p := memtest.Check(t, v, &ds[i], s)
				if p.PSN.Uint32() != next[p.DestQP] {
					t.Fatalf("sender %d: PSN %v, want %d", p.DestQP, p.PSN, next[p.DestQP])
				}
				next[p.DestQP]++
				got++
			}
		}
	}
	wg.Wait()
}

func TestNoAllocations(t *testing.T) {
	for _, cfg := range []mem.Config{{}, {Single: true}} {
		a, b := pair(t, cfg)
		join(t, b, "239.0.0.1")
		bs := []*wire.Burst{
			memtest.Burst(t, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(15, 4096)}),
			memtest.Burst(t, memtest.Spec{Flow: memtest.Flow("192.0.2.1", "239.0.0.1"), QPN: 0xffffff, Op: bth.UDSendOnly, Lens: []int{1024}}),
		}
		ds := make([]wire.Datagram, 16)
		if avg := testing.AllocsPerRun(200, func() {
			a.Send(bs)
			b.Wait(time.Second)
			b.Recv(ds)
			b.Wait(time.Nanosecond)
		}); avg != 0 {
			t.Errorf("single=%v: %v allocations a round", cfg.Single, avg)
		}
	}
}

func BenchmarkSendRecv(b *testing.B) {
	tx, rx := pair(b, mem.Config{})
	bs := []*wire.Burst{memtest.Burst(b, memtest.Spec{Flow: memtest.Flow4(), QPN: 1, Op: bth.RCSendMiddle, Lens: memtest.Equal(15, 4096)})}
	ds := make([]wire.Datagram, 4)
	b.SetBytes(int64(bs[0].Bytes()))
	b.ReportAllocs()
	for b.Loop() {
		tx.Send(bs)
		rx.Recv(ds)
	}
}
