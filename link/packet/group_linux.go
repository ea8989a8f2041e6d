package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
)

// groups are the multicast groups that the links of one Open have joined.
//
// The packet sockets take frames of these groups and of no others. Membership
// itself, and with it the reports to the network and the interface's address
// filter, is that of a UDP socket for each group; it is not bound, so the
// stack hands it nothing, and to multicast the stack never answers.
type groups struct {
	name  string                   // of the interface
	in    func(func() error) error // runs what opens sockets
	lo    int                      // index
	links []*Link

	mu      sync.Mutex
	iface   int // index
	members map[netip.Addr]member
}

// JoinGroup begins to receive for a group. One link of an Open can do so.
func (l *Link) JoinGroup(group netip.Addr) error {
	return l.changeGroup(group, l.groups.join)
}

// LeaveGroup ends it.
func (l *Link) LeaveGroup(group netip.Addr) error {
	return l.changeGroup(group, l.groups.leave)
}

func (l *Link) changeGroup(group netip.Addr, change func(by int, g netip.Addr) error) error {
	g, err := link.Group(group)
	if err != nil {
		return fmt.Errorf("packet: %w", err)
	}
	if !l.gate.Enter() {
		return link.ErrClosed
	}
	defer l.leave()
	if err := change(slices.Index(l.groups.links, l), g); err != nil {
		return fmt.Errorf("packet: %w", err)
	}
	return nil
}

func (gs *groups) join(by int, g netip.Addr) error {
	open := gs.enter()
	defer leaveAll(open)
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if m, ok := gs.members[g]; ok {
		if m.link != by {
			return fmt.Errorf("another link of this device has joined %v; a device joins a group once", g)
		}
		return nil
	}
	if len(gs.members) == maxGroups {
		return fmt.Errorf("join %v: %d groups are joined, and the filter of packets has no room for more; use --link udp", g, maxGroups)
	}
	fd, err := gs.membership(g)
	if err != nil {
		return err
	}
	gs.members[g] = member{fd, by}
	if err := gs.apply(open); err != nil {
		gs.remove(g)
		return errors.Join(err, gs.apply(open))
	}
	gs.links[by].rx.add(g)
	return nil
}

// membership opens the socket that is the host's membership of a group.
func (gs *groups) membership(g netip.Addr) (fd int, err error) {
	err = gs.in(func() error {
		if fd, err = sys.UDPSocket(g); err != nil {
			return err
		}
		if err := sys.Membership(fd, g, gs.iface); err != nil {
			sys.Close(fd)
			return fmt.Errorf("%v: %w", g, err)
		}
		return nil
	})
	return fd, err
}

func (gs *groups) leave(by int, g netip.Addr) error {
	open := gs.enter()
	defer leaveAll(open)
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if m, ok := gs.members[g]; !ok || m.link != by {
		return nil
	}
	gs.remove(g)
	gs.links[by].rx.drop(g)
	return gs.apply(open)
}

// release leaves all groups of a link that is closed. Links of the same Open
// that are not may still get frames of them, and drop those like all that are
// for somebody else.
func (gs *groups) release(by int) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for g, m := range gs.members {
		if m.link == by {
			gs.remove(g)
		}
	}
}

func (gs *groups) remove(g netip.Addr) {
	sys.Close(gs.members[g].fd)
	delete(gs.members, g)
}

// enter begins a use of the descriptors of every link that is open. It comes
// before mu: the last to leave a closed link takes mu for release.
func (gs *groups) enter() (open []*Link) {
	for _, l := range gs.links {
		if l.gate.Enter() {
			open = append(open, l)
		}
	}
	return open
}

func leaveAll(open []*Link) {
	for _, l := range open {
		l.leave()
	}
}

// apply tells the kernel what the packet sockets take.
func (gs *groups) apply(open []*Link) error {
	if len(gs.links) > 1 && len(open) > 0 {
		for _, t := range open[0].rx.in {
			if err := sys.Attach(t.fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, fanoutFilter(gs.members)); err != nil {
				return err
			}
		}
	}
	// What this host sends to a group is seen only as it leaves.
	ignore := 1
	if len(gs.members) > 0 && gs.iface != gs.lo {
		ignore = 0
	}
	for _, l := range open {
		for _, t := range l.rx.in {
			if err := sys.AttachFilter(t.fd, acceptFilter(t.of, gs.iface, gs.lo, gs.members)); err != nil {
				return err
			}
			_ = unix.SetsockoptInt(t.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, ignore) // Linux 4.20; before it they are always seen
		}
	}
	return nil
}
