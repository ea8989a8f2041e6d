package packet

import (
	"fmt"
	"net"
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
	p := testbed.NewPair(t, 1500)
	linktest.BadFrames(t, p, openOne(t, p.A, testbed.Iface), openOne(t, p.B, testbed.Iface))
}

func TestOthersFrames(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	a := openOne(t, p.A, testbed.Iface)
	b := openOn(t, p.B, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.B4, testbed.B6}})[0]
	linktest.OthersFrames(t, p, a, b)
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
	if n := linktest.Unreachables(t, p.B); n != 0 {
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
	if n := linktest.Unreachables(t, p.B); n != 2 {
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

// TestOverflow: what the receive buffer has no room for is counted.
func TestOverflow(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	a := openOne(t, p.A, testbed.Iface)
	b := openOn(t, p.B, Config{Interface: testbed.Iface, RcvBuf: 64 << 10})[0]
	fl := flow(t, a, testbed.A4, testbed.B4)
	const sent = 200
	bu := burst(a, fl, 0x11, 1, 4096)
	send(t, a, bu)
	receive(t, b, 1) // or the kernel drops what waits for the neighbour's address
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
	if s := b.Stats(); s.RxDropped == 0 || s.RxPackets != got+1 || got+s.RxDropped != sent || got == 0 {
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
		var fds []unix.PollFd
		for _, in := range b.rx.in {
			fds = append(fds, unix.PollFd{Fd: int32(in.fd), Events: unix.POLLIN})
		}
		if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
			t.Errorf("poll while down: %+v %v", fds, err)
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
