package xdp

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

// TestBursts: bursts of every shape arrive packet by packet, over frames that
// fit a chunk and frames that do not, from and to a link of the same kind and
// from and to sockets.
func TestBursts(t *testing.T) {
	for _, m := range modes {
		for _, mtu := range []int{1500, 9000} {
			t.Run(fmt.Sprintf("%s MTU %d", m.name, mtu), func(t *testing.T) {
				p := newPair(t, mtu)
				// Generic mode sees runs that a veth's other end did not cut.
				p.B.Tool("ethtool", "-K", testbed.Iface, "tx-udp-segmentation", "off")
				a := openOne(t, p.A, m)
				frames := openOne(t, p.B, m)
				for _, peer := range []string{"xdp", "udp"} {
					b := frames
					if peer == "udp" {
						frames.Close()
						b = openUDP(t, p.B, testbed.B4, testbed.B6)
					}
					for _, f := range linktest.Families {
						resolve(t, a, f.A, f.B)
						if peer == "xdp" {
							resolve(t, b, f.B, f.A)
						}
						for range 3 {
							exchange(t, a, b, f.A, f.B, mtu)
							exchange(t, b, a, f.B, f.A, mtu)
						}
					}
				}
				if s := a.Stats(); s.RxInvalid+s.RxDropped+s.TxErrors != 0 || s.RxPackets != s.TxPackets || s.RxBytes != s.TxBytes {
					t.Errorf("%+v %v %v", s, a.Reasons(), a.xdp().NamedCounters())
				}
				if got, all := a.xdp().tx.packets.Load(), a.Stats().TxPackets; got != all {
					t.Errorf("%d of %d packets left as frames", got, all)
				}
				if j := a.xdp().rx.joined.Load(); (j > 0) != (mtu == 9000) {
					t.Errorf("%d packets in several pieces", j)
				}
			})
		}
	}
}

// exchange sends bursts one way.
func exchange(t *testing.T, from, to node, src, dst netip.Addr, mtu int) {
	t.Helper()
	fl := flow(t, from, src, dst)
	shapes := [][2]int{{1, 0}, {1, 1024}, {60, 1024}, {2, 21}, {64, 8}}
	if mtu > 4096 {
		shapes = append(shapes, [2]int{15, 4096}, [2]int{1, 3900}, [2]int{2, 3800})
	}
	var bs []*wire.Burst
	total := 0
	for _, s := range shapes {
		b := burst(from, fl, 0x11, s[0], s[1])
		bs, total = append(bs, b), total+s[0]
	}
	linktest.Send(t, from, bs...)
	linktest.MatchPackets(t, linktest.Receive(t, to, total), bs...)
}
