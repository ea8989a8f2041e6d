package udptx

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
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
	port  uint16
	merge bool
	users atomic.Int32

	mu  sync.Mutex
	fds map[held]int // nil when closed
}

// held is an address whose port is held; scope is the interface's index of a
// link-local one.
type held struct {
	addr  netip.Addr // without zone
	scope uint32
}

// HoldPort binds the port of each address, for a number of links. merge lets the
// kernel merge datagrams to it (see sys.SetGRO) before anybody sees them.
func HoldPort(addrs []netip.Addr, port uint16, links int, merge bool) (*Holder, error) {
	h := &Holder{port: port, merge: merge, fds: make(map[held]int)}
	h.users.Store(int32(links))
	if _, err := h.SetAddrs(addrs); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// SetAddrs changes the addresses whose port is held, and returns those of which it
// is. It runs in the network namespace of the link.
func (h *Holder) SetAddrs(addrs []netip.Addr) (holding []netip.Addr, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fds == nil {
		return nil, link.ErrClosed
	}
	want := make(map[held]bool)
	for _, a := range addrs {
		if scope, err := Scope(a); err == nil {
			want[held{a.WithZone(""), scope}] = true
		}
	}
	for k, fd := range h.fds {
		if !want[k] {
			sys.Close(fd)
			delete(h.fds, k)
		}
	}
	for _, a := range addrs {
		if herr := h.hold(a); herr != nil {
			err = errors.Join(err, herr)
			continue
		}
		holding = append(holding, a)
	}
	return holding, err
}

// hold holds the port of one more address. The lock is held.
func (h *Holder) hold(a netip.Addr) error {
	scope, err := Scope(a)
	if err != nil {
		return err
	}
	k := held{a.WithZone(""), scope}
	if _, ok := h.fds[k]; ok {
		return nil
	}
	fd, err := holdSocket(k, h.port, h.merge)
	if err != nil {
		return err
	}
	h.fds[k] = fd
	return nil
}

// holdSocket binds a UDP socket to a port that drops all it gets. UDP_GRO
// tells the kernel not to cut a super-packet up before it drops it.
func holdSocket(k held, port uint16, merge bool) (int, error) {
	fd, err := sys.UDPSocket(k.addr)
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
	if err := sys.Bind(fd, netip.AddrPortFrom(k.addr, port), k.scope); err != nil {
		sys.Close(fd)
		return -1, BindError(k.addr, port, err)
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
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fd := range h.fds {
		sys.Close(fd)
	}
	h.fds = nil
}
