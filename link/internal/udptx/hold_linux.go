package udptx

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
)

// ChooseAddrs returns the addresses of an interface to serve, link-local ones with
// their zone: those that are wanted, or all.
func ChooseAddrs(ifc *hostnet.Iface, want []netip.Addr) (addrs []netip.Addr, err error) {
	if len(want) == 0 {
		for _, p := range ifc.Addrs {
			want = append(want, p.Addr())
		}
	}
	if len(want) == 0 {
		return nil, fmt.Errorf("interface %s has no IP address; add one with 'ip addr add ADDRESS/BITS dev %s'", ifc.Name, ifc.Name)
	}
	for _, a := range want {
		a = a.Unmap().WithZone("")
		if !ifc.Has(a) {
			var have []string
			for _, p := range ifc.Addrs {
				have = append(have, p.Addr().String())
			}
			return nil, fmt.Errorf("%v is not an address of interface %s, which has %s", a, ifc.Name, strings.Join(have, ", "))
		}
		if a.IsLinkLocalUnicast() && a.Is6() {
			a = a.WithZone(ifc.Name)
		}
		if !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

// Holder owns a UDP port of local addresses for all links of an Open, so that
// the stack is quiet about it and nobody else can have it. It drops what it
// gets.
type Holder struct {
	fds   []int
	users atomic.Int32
}

// HoldPort binds the port of each address, for a number of links. merge lets the
// kernel merge datagrams to it (see sys.SetGRO) before anybody sees them.
func HoldPort(addrs []netip.Addr, port uint16, links int, merge bool) (*Holder, error) {
	h := new(Holder)
	h.users.Store(int32(links))
	for _, a := range addrs {
		fd, err := holdSocket(a, port, merge)
		if err != nil {
			h.close()
			return nil, err
		}
		h.fds = append(h.fds, fd)
	}
	return h, nil
}

// holdSocket binds a UDP socket to a port that drops all it gets. UDP_GRO
// tells the kernel not to cut a super-packet up before it drops it.
func holdSocket(a netip.Addr, port uint16, merge bool) (int, error) {
	scope, err := Scope(a)
	if err != nil {
		return -1, err
	}
	fd, err := sys.UDPSocket(a)
	if err != nil {
		return -1, err
	}
	if err := sys.AttachFilter(fd, sys.DropAll); err != nil {
		sys.Close(fd)
		return -1, err
	}
	if merge {
		_ = sys.SetGRO(fd) // Linux 5.0; without it is only slower
	}
	if err := sys.Bind(fd, netip.AddrPortFrom(a.WithZone(""), port), scope); err != nil {
		sys.Close(fd)
		return -1, BindError(a, port, err)
	}
	return fd, nil
}

// Release gives up one link's share; the last one frees the port.
func (h *Holder) Release() {
	if h.users.Add(-1) == 0 {
		h.close()
	}
}

func (h *Holder) close() {
	for _, fd := range h.fds {
		sys.Close(fd)
	}
}
