package xdp

import (
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

// opener opens a link on a host's interface.
func opener(m mode) linktest.Opener {
	return func(t testing.TB, h *testbed.Host) linktest.Link { return openOne(t, h, m) }
}

// socketOpener opens a link/udp, whose super-packets the kernel makes.
func socketOpener(t testing.TB, h *testbed.Host) linktest.Link { return openUDP(t, h, h.V4, h.V6) }

// TestMarks: no mark is lost or spread. Nothing is merged on an interface with an
// XDP program: in the driver it comes before GRO, and with one behind the driver
// netif_elide_gro (net/core/dev.c) leaves GRO out.
func TestMarks(t *testing.T) {
	for _, m := range modes {
		for name, send := range map[string]linktest.Opener{"from frames": opener(m), "from sockets": socketOpener} {
			t.Run(m.name+" "+name, func(t *testing.T) {
				linktest.Marks(t, newPair(t, 9000), send, opener(m))
			})
		}
	}
}

// TestMarksForwarded: nor where a bridge merges packets; the driver's program has
// them cut up again, the one behind it sees runs.
func TestMarksForwarded(t *testing.T) {
	t.Run("native", func(t *testing.T) {
		requireXDP(t)
		linktest.MarksForwarded(t, socketOpener, opener(modes[0]), linktest.Families[1:])
	})
	t.Run("generic", func(t *testing.T) {
		requireXDP(t)
		linktest.MarksForwarded(t, socketOpener, opener(modes[1]), nil, "on", "list")
	})
}

// TestQueued: marks that queueing disciplines make come as they were made.
func TestQueued(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			requireXDP(t)
			linktest.Queued(t, socketOpener, opener(m))
		})
	}
}

// TestClasses: every packet has its own traffic class on the wire, in frames and
// where the stack sends it.
func TestClasses(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 9000)
			a := openOne(t, p.A, m)
			linktest.Classes(t, p, a, func(f linktest.Family) { resolve(t, a, f.A, f.B) })
			if n := a.xdp().tx.stack.Stats().TxPackets; n != 0 {
				t.Errorf("%d packets did not leave as frames", n)
			}
		})
	}
	t.Run("stack", func(t *testing.T) {
		p := newPair(t, 9000)
		a := openOne(t, p.A, modes[0])
		linktest.Classes(t, p, byStack{a}, nil)
		if n := a.xdp().tx.packets.Load(); n != 0 {
			t.Errorf("%d packets left as frames", n)
		}
	})
}

// byStack sends all that a link sends as it sends what has no frame yet.
type byStack struct{ node }

func (l byStack) Send(bs []*wire.Burst) (int, error) { return l.xdp().tx.stack.Send(bs) }
