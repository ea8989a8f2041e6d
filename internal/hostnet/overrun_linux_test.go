package hostnet

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/internal/testbed"
)

// TestMonitorLoss: when the kernel had to drop messages, the news may have been
// among them, so it is told that there is some.
func TestMonitorLoss(t *testing.T) {
	defer goleak.VerifyNone(t)
	testbed.NewPair(t, 1500).A.Do(func() {
		m, err := subscribe(testbed.Iface)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.sock.SetReceiveBufferSize(1<<12, false); err != nil {
			t.Fatal(err)
		}
		set := func(name string, mtu int) {
			l, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetMTU(l, mtu)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50 { // nobody reads yet
			set("lo", 2000+i)
		}
		set(testbed.Iface, 1400) // is lost
		go m.run()
		defer m.Close()
		select {
		case <-m.Changed():
		case <-time.After(10 * time.Second):
			t.Error("nothing is told")
		}
	})
}
