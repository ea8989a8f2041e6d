package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/link/udp"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

func TestMain(m *testing.M) {
	testbed.Main(m, testbed.Helpers{
		"open": func(args []string) error {
			links, err := Open(Config{Interface: args[0]})
			if err == nil {
				fmt.Println("open", links[0].Info().Missing)
			}
			return err
		},
		"hold": func(args []string) error {
			if _, err := Open(Config{Interface: args[0], Generic: args[1] == "generic"}); err != nil {
				return err
			}
			fmt.Println("open")
			time.Sleep(time.Minute) // it is killed long before
			return nil
		},
	})
}

// node is a link in a host's namespace.
type node struct {
	linktest.Link
	host *testbed.Host
}

// xdp returns the link itself.
func (n node) xdp() *Link { return n.Link.(*Link) }

// mode is how the program runs on a veth.
type mode struct {
	name    string
	generic bool
}

var modes = []mode{{"native", false}, {"generic", true}}

// requireXDP skips the test where the kernel or the privileges do not allow XDP.
func requireXDP(t testing.TB) {
	t.Helper()
	if err := Privileged(); err != nil {
		t.Skipf("needs XDP: %v", err)
	}
	x, err := loadProgram(1, 1)
	switch {
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		t.Skipf("needs XDP: %v", err)
	case err != nil:
		t.Fatalf("%+v", err)
	}
	x.close()
}

// newPair is a testbed's pair, or skips.
func newPair(t testing.TB, mtu int) *testbed.Pair {
	t.Helper()
	p := testbed.NewPair(t, mtu)
	requireXDP(t)
	return p
}

// openOn opens links in a host's namespace; they are closed when the test ends.
func openOn(t testing.TB, h *testbed.Host, cfg Config) (links []node) {
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

func openOne(t testing.TB, h *testbed.Host, m mode) node {
	t.Helper()
	return openOn(t, h, Config{Interface: testbed.Iface, Generic: m.generic})[0]
}

// udpLink is a link/udp that counts reasons, of which it has none.
type udpLink struct{ *udp.Link }

func (udpLink) Reasons() trace.Counts { return trace.Counts{} }

func openUDP(t testing.TB, h *testbed.Host, addrs ...netip.Addr) (n node) {
	t.Helper()
	h.Do(func() {
		ls, err := udp.Open(udp.Config{Addrs: addrs})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ls[0].Close() })
		n = node{udpLink{ls[0].(*udp.Link)}, h}
	})
	return n
}

func flow(t testing.TB, l node, src, dst netip.Addr) *wire.Flow {
	t.Helper()
	return linktest.Flow(t, l.host, l, src, dst)
}

func burst(l node, f *wire.Flow, qpn uint32, n, size int) *wire.Burst {
	return linktest.Burst(l.Info(), f, qpn, n, size)
}

// resolve waits until a link knows the next hop of a path, so that bursts leave
// as frames.
func resolve(t testing.TB, l node, src, dst netip.Addr) {
	t.Helper()
	tx := l.xdp().tx
	for end := time.Now().Add(linktest.Patience); ; time.Sleep(time.Millisecond) {
		var c hopCache
		if c.find(tx.hops, path{src, dst}) != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no next hop for %v to %v; %d errors", src, dst, tx.hops.failed.Load())
		}
	}
}

// looked waits until a link has looked at a path, and returns whether it has a
// next hop.
func looked(t testing.TB, l node, src, dst netip.Addr) bool {
	t.Helper()
	h := l.xdp().tx.hops
	for end := time.Now().Add(linktest.Patience); ; time.Sleep(time.Millisecond) {
		var c hopCache
		c.find(h, path{src, dst})
		if to, ok := (*h.known.Load())[path{src, dst}]; ok {
			return to != nil
		}
		if time.Now().After(end) {
			t.Fatalf("%v to %v was not looked at", src, dst)
		}
	}
}

// program returns the number of the XDP program on the host's interface.
func programOn(t testing.TB, h *testbed.Host) (id uint32) {
	t.Helper()
	h.Do(func() {
		var err error
		if id, err = hostnet.XDPProgram(h.Index(h.Iface)); err != nil {
			t.Fatal(err)
		}
	})
	return id
}
