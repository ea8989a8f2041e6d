package hostnet_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
)

// watched is a monitor of an interface of a host.
type watched struct {
	t *testing.T
	h *testbed.Host
	m *hostnet.Monitor
}

func watch(t *testing.T, h *testbed.Host, name string) *watched {
	w := &watched{t: t, h: h}
	h.Do(func() {
		var err error
		if w.m, err = hostnet.Watch(name); err != nil {
			t.Fatal(err)
		}
	})
	return w
}

// until waits for news until the interface is as wanted.
func (w *watched) until(what string, is func(hostnet.Iface, error) bool) {
	w.t.Helper()
	late := time.After(10 * time.Second)
	for {
		select {
		case <-w.m.Changed():
		case <-late:
			w.t.Fatalf("no news of: %s", what)
		}
		var ifc hostnet.Iface
		var err error
		w.h.Do(func() { ifc, err = hostnet.Interface(testbed.Iface) })
		if is(ifc, err) {
			return
		}
	}
}

// run changes the host's interface, by netlink.
func (w *watched) run(f func(l netlink.Link) error) {
	w.t.Helper()
	w.h.Do(func() {
		l, err := netlink.LinkByName(testbed.Iface)
		if err == nil {
			err = f(l)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	})
}

// TestMonitor: every kind of change is told, also of an interface that goes and
// comes back, and those of others are not.
func TestMonitor(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := testbed.NewPair(t, 1500)
	w := watch(t, p.A, testbed.Iface)
	defer w.m.Close()
	extra := netip.MustParsePrefix("192.0.2.77/24")
	p.A.AddAddr(extra)
	w.until("an address", func(i hostnet.Iface, _ error) bool { return i.Has(extra.Addr()) })
	w.run(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1400) })
	w.until("the MTU", func(i hostnet.Iface, _ error) bool { return i.MTU == 1400 })
	p.B.SetUp(false)
	w.until("no carrier", func(i hostnet.Iface, _ error) bool { return i.Up && !i.Live })
	p.B.SetUp(true)
	w.until("a carrier", func(i hostnet.Iface, _ error) bool { return i.Live })
	p.A.SetUp(false)
	w.until("down", func(i hostnet.Iface, _ error) bool { return !i.Up && !i.Live })
	p.A.SetUp(true)
	w.until("up", func(i hostnet.Iface, _ error) bool { return i.Live && i.Has(testbed.A6) })

	other := watch(t, p.A, "lo")
	defer other.m.Close()
	w.run(netlink.LinkDel)
	w.until("gone", func(_ hostnet.Iface, err error) bool { return errors.Is(err, hostnet.ErrNoInterface) })
	p.AddWire(testbed.Iface, 1300, nil, nil)
	w.until("back", func(i hostnet.Iface, err error) bool { return err == nil && i.MTU == 1300 && i.Live })
	p.A.AddAddr(extra)
	w.until("an address of the new one", func(i hostnet.Iface, _ error) bool { return i.Has(extra.Addr()) })
	select {
	case <-other.m.Changed():
		t.Error("lo has not changed")
	default:
	}
}

// TestMonitorClose: it ends while nothing happens, and while something does.
func TestMonitorClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := testbed.NewPair(t, 1500).A
	for i := range 20 {
		w := watch(t, h, testbed.Iface)
		if i%2 == 1 {
			w.run(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1400+i) })
		}
		w.m.Close()
		w.m.Close()
		for range w.m.Changed() { // and then it is closed
		}
	}
}

// TestMonitorOverrun: when the kernel had to drop messages it is told all the
// same that something changed.
func TestMonitorOverrun(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := testbed.NewPair(t, 1500).A
	w := watch(t, h, testbed.Iface)
	defer w.m.Close()
	// Changes by the thousand, while the monitor may read: whether it loses some
	// is up to it. The last one must be told.
	for i := range 2000 {
		w.run(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1000+i%2) })
	}
	w.run(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1234) })
	w.until("the last MTU", func(i hostnet.Iface, _ error) bool { return i.MTU == 1234 })
}
