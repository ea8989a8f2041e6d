package udp

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/trace"
)

// counted is a link that counts reasons, of which it has none.
type counted struct{ *Link }

func (counted) Reasons() trace.Counts { return trace.Counts{} }

// opener opens a link on the addresses of a host.
func opener(o Options) linktest.Opener {
	return func(t testing.TB, h *testbed.Host) (l linktest.Link) {
		h.Do(func() { l = counted{mustOpen(t, Config{Addrs: []netip.Addr{h.V4, h.V6}, Options: o})[0]} })
		return l
	}
}

// TestMarks: whatever the kernel merges, no mark is lost or spread.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      Options
		merged []string
	}{{"merged", Options{}, []string{"on", "list"}}, {"single", Options{NoGRO: true}, nil}} {
		t.Run(c.name, func(t *testing.T) {
			linktest.Marks(t, newPair(t, 9000), opener(c.o), opener(c.o), c.merged...)
		})
	}
}

// TestMarksForwarded: nor where a bridge merges packets. A list of them is not for
// sockets: udp_unexpected_gso has it cut up.
func TestMarksForwarded(t *testing.T) {
	linktest.MarksForwarded(t, opener(Options{}), opener(Options{}), nil, "on")
}

// TestQueued: marks that queueing disciplines make come as they were made.
func TestQueued(t *testing.T) {
	linktest.Queued(t, opener(Options{}), opener(Options{}))
}

// TestClasses: every packet has its own traffic class, on the wire.
func TestClasses(t *testing.T) {
	for _, o := range []Options{{}, {NoGSO: true}} {
		t.Run(fmt.Sprintf("NoGSO=%v", o.NoGSO), func(t *testing.T) {
			p := newPair(t, 9000)
			linktest.Classes(t, p, opener(o)(t, p.A), nil)
		})
	}
}
