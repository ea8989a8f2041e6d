package xdp

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

func TestBadFrames(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			linktest.BadFrames(t, p, openOne(t, p.A, m), openOne(t, p.B, m))
		})
	}
}

func TestOthersFrames(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			b := openOn(t, p.B, Config{Interface: testbed.Iface, Generic: m.generic, Addrs: []netip.Addr{testbed.B4, testbed.B6}})[0]
			linktest.OthersFrames(t, p, openOne(t, p.A, m), b)
		})
	}
}

// TestOthersPass: what is not ours goes on to the stack while the link is open:
// other UDP ports, port 4791 of an address that is not served, and what the
// stack needs to find the way (ARP, neighbour discovery).
func TestOthersPass(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			other := netip.MustParseAddr("192.0.2.99")
			p.B.AddAddr(netip.PrefixFrom(other, 24))
			a := openOne(t, p.A, m)
			b := openOn(t, p.B, Config{Interface: testbed.Iface, Generic: m.generic, Addrs: []netip.Addr{testbed.B4, testbed.B6}})[0]
			for _, to := range []netip.AddrPort{netip.AddrPortFrom(testbed.B4, 4790), netip.AddrPortFrom(testbed.B6, 4792), netip.AddrPortFrom(other, wire.Port)} {
				passes(t, p, to)
			}
			marker := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 1, 8)
			linktest.Send(t, a, marker)
			linktest.Match(t, linktest.Receive(t, b, 1), marker) // and nothing before it
		})
	}
}

// passes fails unless a datagram from host A to an address of B gets to a socket.
func passes(t *testing.T, p *testbed.Pair, to netip.AddrPort) {
	t.Helper()
	rx := linktest.ListenUDP(t, p.B, to)
	from := testbed.A4
	if to.Addr().Is6() {
		from = testbed.A6
	}
	tx := linktest.ListenUDP(t, p.A, netip.AddrPortFrom(from, 0))
	if _, err := tx.WriteToUDPAddrPort([]byte("others'"), to); err != nil {
		t.Fatal(err)
	}
	_ = rx.SetReadDeadline(time.Now().Add(linktest.Patience))
	buf := make([]byte, 100)
	if n, _, err := rx.ReadFromUDPAddrPort(buf); err != nil || string(buf[:n]) != "others'" {
		t.Errorf("to %v: %q %v", to, buf[:n], err)
	}
}

// TestOverflow: what there is no room for is counted, and the link recovers.
func TestOverflow(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 9000)
			a := openOne(t, p.A, m)
			b := openOn(t, p.B, Config{Interface: testbed.Iface, Generic: m.generic, RxChunks: minRxChunks})[0]
			if w := b.Info().Window; w != minRxChunks/2 {
				t.Errorf("window %d", w)
			}
			resolve(t, a, testbed.A4, testbed.B4)
			fl := flow(t, a, testbed.A4, testbed.B4)
			for range 3 {
				const sent = 4 * minRxChunks
				if _, err := b.Recv(nil); err != nil { // it gives back what was lent
					t.Fatal(err)
				}
				before := b.Stats()
				one := burst(a, fl, 0x11, 1, 4096)
				for range sent {
					linktest.Send(t, a, one)
				}
				ds := make([]wire.Datagram, 8)
				var got uint64
				for end := time.Now().Add(linktest.Patience); got+b.Stats().RxDropped-before.RxDropped < sent && time.Now().Before(end); {
					n, err := b.Recv(ds)
					if err != nil {
						t.Fatal(err)
					}
					got += uint64(n)
				}
				s := b.Stats()
				if lost := s.RxDropped - before.RxDropped; lost == 0 || got < minRxChunks/2 || got+lost != sent {
					t.Errorf("received %d, dropped %d of %d; %v", got, lost, sent, b.xdp().NamedCounters())
				}
			}
		})
	}
}

// TestShortSend: a Send that finds no room takes what it can and says so, Wait
// returns when there is room again, and nothing is lost or repeated.
func TestShortSend(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			a, b := openOne(t, p.A, m), openOne(t, p.B, m)
			resolve(t, a, testbed.A4, testbed.B4)
			bu := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 100, 64)
			tx := a.xdp().tx
			all := tx.free
			for _, slots := range []int{0, 3} {
				tx.free = all[:slots:slots]
				n, err := a.Send([]*wire.Burst{bu})
				if err != nil || n < slots || slots == 0 && n != 0 {
					t.Fatalf("%d of %d packets with %d slots: %v", n, bu.Len(), slots, err)
				}
				if short := a.Stats().TxShort; slots == 0 && short != 1 {
					t.Errorf("%d short sends", short)
				}
				if n < bu.Len() {
					if err := a.Wait(-1); err != nil {
						t.Fatal(err)
					}
				}
				for i, d := range linktest.Receive(t, b, n) {
					if int(d.Payload[11]) != i {
						t.Errorf("packet %d is number %d", i, d.Payload[11])
					}
				}
			}
			for end := time.Now().Add(linktest.Patience); len(tx.free) < 3; tx.reap() {
				if time.Now().After(end) {
					t.Fatalf("%d of 3 slots came back", len(tx.free))
				}
			}
		})
	}
}

// TestRetry: what the kernel did not send when it was told to is sent by a Recv
// or a Wait that comes later.
func TestRetry(t *testing.T) {
	p := newPair(t, 1500)
	a, b := openOne(t, p.A, modes[0]), openOne(t, p.B, modes[0])
	resolve(t, a, testbed.A4, testbed.B4)
	bu := burst(a, flow(t, a, testbed.A4, testbed.B4), 0x11, 20, 64)
	tx := a.xdp().tx
	for _, by := range []func(){
		func() { _, _ = a.Recv(make([]wire.Datagram, 1)) },
		func() { _ = a.Wait(time.Microsecond) },
	} {
		tx.frames(bu, tx.hop(bu))
		tx.x.Tx.Submit() // and no kick
		by()
		if n := tx.x.Tx.Pending(); n != 0 {
			t.Fatalf("%d frames are still there", n)
		}
		linktest.Match(t, linktest.Receive(t, b, 20), bu)
	}
}

// TestSendBuffer: the kernel may have copies of all slots at once.
func TestSendBuffer(t *testing.T) {
	p := newPair(t, 9000)
	a := openOne(t, p.A, modes[0])
	n, err := unix.GetsockoptInt(a.xdp().socks[0].FD, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil || n < txSlots*12<<10 {
		t.Errorf("the send buffer is %d octets: %v", n, err)
	}
}

// TestQuiet: the stack answers nothing for the port while the link is open.
func TestQuiet(t *testing.T) {
	p := newPair(t, 1500)
	b := openOne(t, p.B, modes[0])
	b.xdp().dev.prog.ignore(testbed.B4) // so that the holder gets it
	c := linktest.ListenUDP(t, p.A, netip.AddrPortFrom(testbed.A4, 0))
	if _, err := c.WriteToUDPAddrPort(make([]byte, 64), netip.AddrPortFrom(testbed.B4, wire.Port)); err != nil {
		t.Fatal(err)
	}
	passes(t, p, netip.AddrPortFrom(testbed.B4, 4790)) // the other is through the stack by now
	if n := linktest.Unreachables(t, p.B); n != 0 {
		t.Errorf("%d ICMP unreachables were sent", n)
	}
}

// TestDownAndUp: a link lives on when its interface goes down and comes back.
func TestDownAndUp(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			a, b := openOne(t, p.A, m), openOne(t, p.B, m)
			for round := range 2 {
				for _, f := range linktest.Families {
					resolve(t, b, f.B, f.A)
					bu := burst(b, flow(t, b, f.B, f.A), 0x11, 3, 1024)
					linktest.Send(t, b, bu)
					linktest.Match(t, linktest.Receive(t, a, 3), bu)
				}
				if round == 1 {
					break
				}
				p.B.SetUp(false)
				bu := burst(b, flow(t, b, testbed.B4, testbed.A4), 0x12, 1, 1024)
				var err error
				for range 3 { // the first ones wait in the ring
					var n int
					if n, err = b.Send([]*wire.Burst{bu}); n != 1 {
						t.Errorf("Send while down: %d %v", n, err)
					}
				}
				if err == nil || !strings.Contains(err.Error(), "network is down") && !strings.Contains(err.Error(), "unreachable") {
					t.Errorf("Send while down: %v", err)
				}
				if n, err := b.Recv(make([]wire.Datagram, 1)); n != 0 || err != nil {
					t.Errorf("Recv while down: %d %v", n, err)
				}
				if err := b.Wait(time.Millisecond); err != nil {
					t.Errorf("Wait while down: %v", err)
				}
				p.B.SetUp(true)
				for end := time.Now().Add(linktest.Patience); b.xdp().tx.x.Tx.Pending() > 0; { // receiving sends them, too
					if _, err := b.Recv(make([]wire.Datagram, 1)); err != nil || time.Now().After(end) {
						t.Fatalf("what waited is not sent after the return: %v", err)
					}
				}
				marker := burst(b, flow(t, b, testbed.B4, testbed.A4), 0x13, 1, 1024)
				for end := time.Now().Add(linktest.Patience); ; {
					if _, err := b.Send([]*wire.Burst{marker}); err == nil && drained(t, a, 0x13) {
						break
					}
					if time.Now().After(end) {
						t.Fatal("nothing is sent after the return")
					}
					_ = b.Wait(time.Millisecond)
				}
			}
		})
	}
}

// drained takes what has arrived and reports whether there was a packet for a
// queue pair.
func drained(t *testing.T, l node, qpn byte) (seen bool) {
	t.Helper()
	ds := make([]wire.Datagram, 8)
	for {
		n, err := l.Recv(ds)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return seen
		}
		for _, d := range ds[:n] {
			seen = seen || d.Payload[7] == qpn
		}
	}
}
