package xdp

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
)

// groups are the multicast groups that the links of one Open have joined.
// Membership is that of a UDP socket for each, which is not bound, so that the
// stack hands it nothing; the program then takes the group's packets.
type groups struct {
	mu      sync.Mutex
	members map[netip.Addr]member
}

// member is a joined group.
type member struct {
	fd int   // of the socket that is the host's membership
	by *Link // who joined
}

// JoinGroup begins to receive for a group. One link of an Open can do so; the
// packets come to the link of whichever queue the interface puts them on.
func (l *Link) JoinGroup(group netip.Addr) error {
	return l.changeGroup(group, l.dev.join)
}

// LeaveGroup ends it.
func (l *Link) LeaveGroup(group netip.Addr) error {
	return l.changeGroup(group, l.dev.leave)
}

func (l *Link) changeGroup(group netip.Addr, change func(l *Link, g netip.Addr) error) error {
	g, err := link.Group(group)
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if !l.gate.Enter() {
		return link.ErrClosed
	}
	defer l.leave()
	if err := change(l, g); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	return nil
}

func (d *device) join(l *Link, g netip.Addr) error {
	gs := &d.groups
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if m, ok := gs.members[g]; ok {
		if m.by != l {
			return fmt.Errorf("another link of this device has joined %v; a device joins a group once", g)
		}
		return nil
	}
	if len(gs.members) == maxGroups {
		return fmt.Errorf("join %v: %d groups are joined, and the XDP program has no room for more; use --link udp", g, maxGroups)
	}
	fd := -1
	err := d.in(func() (err error) {
		if fd, err = sys.UDPSocket(g); err != nil {
			return err
		}
		if err := sys.Membership(fd, g, d.ifc.Index); err != nil {
			sys.Close(fd)
			return fmt.Errorf("%v: %w", g, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.prog.serve(g, groupMAC(g)); err != nil {
		sys.Close(fd)
		return err
	}
	gs.members[g] = member{fd, l}
	return nil
}

func (d *device) leave(l *Link, g netip.Addr) error {
	gs := &d.groups
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if m, ok := gs.members[g]; ok && m.by == l {
		d.forget(g)
	}
	return nil
}

// leaveAll leaves all groups of a link that is closed.
func (d *device) leaveAll(l *Link) {
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	for g, m := range d.groups.members {
		if m.by == l {
			d.forget(g)
		}
	}
}

func (d *device) forget(g netip.Addr) {
	d.prog.ignore(g)
	sys.Close(d.groups.members[g].fd)
	delete(d.groups.members, g)
}

// groupMAC returns the MAC address of a multicast group. RFC 1112 section 6.4,
// RFC 2464 section 7.
func groupMAC(g netip.Addr) (m [6]byte) {
	if g.Is4() {
		a := g.As4()
		return [6]byte{0x01, 0x00, 0x5e, a[1] & 0x7f, a[2], a[3]}
	}
	a := g.As16()
	return [6]byte{0x33, 0x33, a[12], a[13], a[14], a[15]}
}
