package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// dump runs a netlink dump again while the kernel says that its tables
// changed under it.
func dump[T any](what string, f func() ([]T, error)) ([]T, error) {
	const tries = 20
	for n := 0; ; n++ {
		r, err := f()
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) || n == tries {
			return nil, fmt.Errorf("hostnet: read %s from the kernel: %w", what, err)
		}
	}
}

// Interfaces returns all interfaces in the order of their indexes.
func Interfaces() ([]Iface, error) {
	links, err := dump("interfaces", netlink.LinkList)
	if err != nil {
		return nil, err
	}
	addrs, err := dump("addresses", func() ([]netlink.Addr, error) {
		return netlink.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	out := make([]Iface, 0, len(links))
	for _, l := range links {
		a := l.Attrs()
		i := Iface{
			Name: a.Name, Index: a.Index, MTU: a.MTU, Up: a.Flags&net.FlagUp != 0,
			Live:  a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0,
			State: a.OperState.String(), Speed: speed(a.Name), Loopback: a.Flags&net.FlagLoopback != 0,
		}
		copy(i.MAC[:], a.HardwareAddr)
		for _, ad := range addrs {
			if p, ok := toPrefix(ad.IPNet); ok && ad.LinkIndex == i.Index {
				i.Addrs = append(i.Addrs, p)
			}
		}
		out = append(out, i)
	}
	return out, nil
}

// speed asks the driver for the speed in Mbit/s; 0 when it does not say.
func speed(name string) int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	// struct ethtool_cmd: command at 0, speed at 12 (two octets), its upper
	// half at 28.
	var cmd [44]byte
	*(*uint32)(unsafe.Pointer(&cmd)) = unix.ETHTOOL_GSET
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	req.data = unsafe.Pointer(&cmd)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); e != 0 {
		return 0
	}
	lo, hi := *(*uint16)(unsafe.Pointer(&cmd[12])), *(*uint16)(unsafe.Pointer(&cmd[28]))
	v := uint32(hi)<<16 | uint32(lo)
	if v == 0xffffffff || v == 0xffff { // SPEED_UNKNOWN
		return 0
	}
	return int(v)
}

// Route returns how packets from src to dst leave. src may be the zero
// address; iface is the index of the interface they must leave by, which a
// link-local dst needs, or 0.
func Route(dst, src netip.Addr, iface int) (RouteInfo, error) {
	return here.Route(dst, src, iface)
}

// Route is the function Route in the Tables' namespace.
func (t *Tables) Route(dst, src netip.Addr, iface int) (RouteInfo, error) {
	dst = dst.Unmap()
	opt := &netlink.RouteGetOptions{OifIndex: iface}
	if src.IsValid() {
		opt.SrcAddr = src.Unmap().AsSlice()
	}
	rs, err := t.h.RouteGetWithOptions(dst.AsSlice(), opt)
	if err != nil {
		return RouteInfo{}, fmt.Errorf("hostnet: no route to %v: %w; see 'ip route get %v'", dst, err, dst)
	}
	if len(rs) == 0 {
		return RouteInfo{}, fmt.Errorf("hostnet: no route to %v", dst)
	}
	r := rs[0]
	info := RouteInfo{
		Iface: r.LinkIndex, Src: toAddr(r.Src), Gateway: toAddr(r.Gw), MTU: r.MTU, Local: r.Type == unix.RTN_LOCAL,
	}
	if v, ok := r.Via.(*netlink.Via); ok && !info.Gateway.IsValid() {
		info.Gateway = toAddr(v.Addr)
	}
	if info.MTU == 0 {
		l, err := t.h.LinkByIndex(r.LinkIndex)
		if err != nil {
			return RouteInfo{}, fmt.Errorf("hostnet: interface of the route to %v: %w", dst, err)
		}
		info.MTU = l.Attrs().MTU
	}
	return info, nil
}

// Neighbor returns the neighbour entry for ip on the interface with the given
// index; ok is false when there is none.
func Neighbor(iface int, ip netip.Addr) (n Neigh, ok bool, err error) {
	all, err := here.Neighbors(iface)
	n, ok = all[ip.Unmap()]
	return n, ok, err
}

func neighState(s int) string {
	switch s {
	case netlink.NUD_INCOMPLETE:
		return "incomplete"
	case netlink.NUD_REACHABLE:
		return "reachable"
	case netlink.NUD_STALE:
		return "stale"
	case netlink.NUD_DELAY:
		return "delay"
	case netlink.NUD_PROBE:
		return "probe"
	case netlink.NUD_FAILED:
		return "failed"
	case netlink.NUD_NOARP:
		return "noarp"
	case netlink.NUD_PERMANENT:
		return "permanent"
	}
	return "none"
}
