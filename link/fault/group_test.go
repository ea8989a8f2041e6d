package fault_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/link/mem/memtest"
	"github.com/gorxe/gorxe/wire"
)

// A group is joined on the inner link, and what comes from it is under the
// rules like any other packet.
func TestGroups(t *testing.T) {
	r := newRig(t, "rx drop psn=2", mem.Config{})
	g := netip.MustParseAddr("239.1.2.3")
	burst := memtest.Burst(t, memtest.Spec{Flow: memtest.Flow("192.0.2.1", "239.1.2.3"), QPN: 0xffffff, PSN: 1, Op: bth.UDSendOnly, Lens: memtest.Equal(3, 64)})
	r.send(burst)
	r.expect("[]")
	if err := r.f.JoinGroup(g); err != nil {
		t.Fatal(err)
	}
	r.send(burst)
	r.expect("[[1] [3]]")
	if err := r.f.LeaveGroup(g); err != nil {
		t.Fatal(err)
	}
	r.send(burst)
	r.expect("[]")
}

// noGroups is a link that has none.
type noGroups struct{ link.Link }

func TestNoGroups(t *testing.T) {
	a, _, err := mem.Pair(mem.Config{}, mem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := fault.Wrap(noGroups{a[0]}, fault.Config{})
	g := netip.MustParseAddr("239.1.2.3")
	for _, err := range []error{l.JoinGroup(g), l.LeaveGroup(g)} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	}
	if n, err := l.Recv(make([]wire.Datagram, 1)); n != 0 || err != nil {
		t.Error(n, err)
	}
}
