package packet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/wire"
)

// Open returns one link per shard. Errors: hostnet.ErrNoInterface, an address
// that is not the interface's, ErrPrivilege, and udptx's error for a port
// 4791 that somebody has (syscall.EADDRINUSE), each wrapped in what to do.
func Open(cfg Config) ([]link.Link, error) {
	links, err := open(cfg, wire.Port)
	if err != nil {
		return nil, fmt.Errorf("packet: %w", err)
	}
	return links, nil
}

// Probe describes the links that Open would return, without the port: it needs
// nobody to let go of it, and receives nothing.
func Probe(cfg Config) (link.Info, error) {
	cfg.Shards = 1
	links, err := open(cfg, 0) // any port that is free
	if err != nil {
		return link.Info{}, fmt.Errorf("packet: %w", err)
	}
	defer links[0].Close()
	return links[0].Info(), nil
}

func open(cfg Config, port uint16) (links []link.Link, err error) {
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	if cfg.Shards < 0 || cfg.Shards > maxShards {
		return nil, fmt.Errorf("%d shards: 1 to %d are possible", cfg.Shards, maxShards)
	}
	if cfg.RcvBuf == 0 {
		cfg.RcvBuf = defaultRcvBuf
	}
	ifc, err := hostnet.Interface(cfg.Interface)
	if err != nil {
		return nil, err
	}
	addrs, err := chooseAddrs(&ifc, cfg.Addrs)
	if err != nil {
		return nil, err
	}
	lo, err := loopback()
	if err != nil {
		return nil, err
	}
	fds, err := openSockets(cfg.Shards, acceptFilter(ifc.Index, lo, nil), cfg.RcvBuf)
	if err != nil {
		return nil, err
	}
	hold, err := holdPort(addrs, port)
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	hold.users.Store(int32(len(fds)))
	groups := &groups{iface: ifc.Index, lo: lo, members: make(map[netip.Addr]member)}
	for i, fd := range fds {
		l, err := newLink(fd, cfg.RcvBuf, &ifc, addrs)
		if err != nil {
			for _, l := range links {
				_ = l.Close()
			}
			closeAll(fds[i:])
			for range fds[i:] {
				hold.release()
			}
			return nil, err
		}
		l.hold, l.groups = hold, groups
		groups.links = append(groups.links, l)
		links = append(links, l)
	}
	return links, nil
}

// chooseAddrs returns the addresses to serve, link-local ones with their zone.
func chooseAddrs(ifc *hostnet.Iface, want []netip.Addr) (addrs []netip.Addr, err error) {
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

func loopback() (index int, err error) {
	all, err := hostnet.Interfaces()
	if err != nil {
		return 0, err
	}
	for _, i := range all {
		if i.Loopback {
			return i.Index, nil
		}
	}
	return 0, nil // no frame has index 0
}

// holder owns port 4791 of the local addresses for all links of an Open, so
// that the stack is quiet about it and nobody else can have it.
type holder struct {
	fds   []int
	users atomic.Int32
}

func holdPort(addrs []netip.Addr, port uint16) (*holder, error) {
	h := new(holder)
	for _, a := range addrs {
		fd, err := holdSocket(a, port)
		if err != nil {
			closeAll(h.fds)
			return nil, err
		}
		h.fds = append(h.fds, fd)
	}
	return h, nil
}

// holdSocket binds a UDP socket to a port that drops all it gets. UDP_GRO
// tells the kernel not to cut a super-packet up before it drops it.
func holdSocket(a netip.Addr, port uint16) (int, error) {
	scope, err := udptx.Scope(a)
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
	_ = sys.SetGRO(fd) // Linux 5.0; without it is only slower
	if err := sys.Bind(fd, netip.AddrPortFrom(a.WithZone(""), port), scope); err != nil {
		sys.Close(fd)
		return -1, udptx.BindError(a, port, err)
	}
	return fd, nil
}

// release gives up one link's share.
func (h *holder) release() {
	if h.users.Add(-1) == 0 {
		closeAll(h.fds)
	}
}
