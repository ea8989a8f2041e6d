package packet

import (
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
)

// opener opens a link on a host's interface, with rings or without.
func opener(noRing bool) linktest.Opener {
	return func(t testing.TB, h *testbed.Host) (l linktest.Link) {
		h.Do(func() {
			ls, err := Open(Config{Interface: h.Iface, noRing: noRing})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ls[0].Close() })
			l = ls[0].(*Link)
		})
		return l
	}
}

// TestMarks: whatever the kernel merges, no mark is lost or spread.
func TestMarks(t *testing.T) {
	for name, noRing := range map[string]bool{"rings": false, "calls": true} {
		t.Run(name, func(t *testing.T) {
			linktest.Marks(t, testbed.NewPair(t, 9000), opener(noRing), opener(noRing), "on", "list")
		})
	}
}

// TestMarksForwarded: nor where a bridge merges packets.
func TestMarksForwarded(t *testing.T) {
	linktest.MarksForwarded(t, opener(false), opener(false), nil, "on", "list")
}

// TestQueued: marks that queueing disciplines make come as they were made.
func TestQueued(t *testing.T) { linktest.Queued(t, opener(false), opener(false)) }

// TestClasses: every packet has its own traffic class, on the wire.
func TestClasses(t *testing.T) {
	p := testbed.NewPair(t, 9000)
	linktest.Classes(t, p, opener(false)(t, p.A), nil)
}
