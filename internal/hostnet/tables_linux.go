package hostnet

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Tables asks the kernel for routes and neighbours. It stays in the network
// namespace that it was opened in, whichever thread uses it. One goroutine at
// a time.
type Tables struct{ h *netlink.Handle }

// here is the calling thread's namespace.
var here = Tables{&netlink.Handle{}}

// OpenTables opens the tables of the calling thread's network namespace.
func OpenTables() (*Tables, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("hostnet: open a netlink socket: %w", err)
	}
	return &Tables{h}, nil
}

// Close releases them.
func (t *Tables) Close() { t.h.Close() }

// Neighbors returns the neighbour table of the interface with the given index,
// both families.
func (t *Tables) Neighbors(iface int) (map[netip.Addr]Neigh, error) {
	all, err := dump("neighbours", func() ([]netlink.Neigh, error) { return t.h.NeighList(iface, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	m := make(map[netip.Addr]Neigh, len(all))
	for _, e := range all {
		n := Neigh{State: neighState(e.State)}
		copy(n.MAC[:], e.HardwareAddr)
		n.Valid = len(e.HardwareAddr) == 6 && e.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0
		if ip := toAddr(e.IP); ip.IsValid() {
			m[ip] = n
		}
	}
	return m, nil
}

// Use tells the kernel that a neighbour is in use, as if its stack had a packet
// for it: a stale entry is checked, a missing one looked for. Needs
// CAP_NET_ADMIN.
func (t *Tables) Use(iface int, ip netip.Addr) error {
	err := t.h.NeighSet(&netlink.Neigh{LinkIndex: iface, IP: ip.AsSlice(), Flags: netlink.NTF_USE})
	if err != nil {
		return fmt.Errorf("hostnet: ask for neighbour %v: %w", ip, err)
	}
	return nil
}

// XDPProgram returns the number of the XDP program on the interface with the
// given index; 0 when there is none.
func XDPProgram(iface int) (id uint32, err error) {
	l, err := netlink.LinkByIndex(iface)
	if err != nil {
		return 0, fmt.Errorf("hostnet: interface %d: %w", iface, err)
	}
	if x := l.Attrs().Xdp; x != nil {
		return x.ProgId, nil
	}
	return 0, nil
}
