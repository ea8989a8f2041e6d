package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ErrNotLinux is returned by what only Linux can answer.
var ErrNotLinux = errors.New("hostnet: only available on Linux")

// ErrNoInterface is wrapped by the error for an interface that does not exist.
var ErrNoInterface = errors.New("no such network interface")

// Iface is a network interface. Name, Index, MTU and Up are always known.
type Iface struct {
	Name  string
	Index int
	MTU   int // octets of the largest IP packet
	MAC   [6]byte
	Up    bool   // administratively up
	Live  bool   // and with a carrier: packets can pass
	State string // operational state: "up", "down", "unknown", "lowerlayerdown"...
	Speed int    // Mbit/s; 0 when unknown

	// Loopback is set for lo.
	Loopback bool

	// Addrs are the interface's addresses with their prefix lengths, link
	// local ones included, in the kernel's order: IPv4, then IPv6. IPv4 is
	// four octets, never 4-in-6, and no address has a zone.
	Addrs []netip.Prefix
}

// Has reports whether a is one of the interface's addresses. lo has all of its
// IPv4 prefix, 127.0.0.0/8.
func (i *Iface) Has(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool {
		return p.Addr() == a || i.Loopback && a.Is4() && p.Contains(a)
	})
}

// RouteInfo is how packets to a destination leave.
type RouteInfo struct {
	Iface   int        // index of the outgoing interface
	Src     netip.Addr // source address the kernel prefers
	Gateway netip.Addr // next hop; not valid when the destination is on the link
	MTU     int        // octets of the largest IP packet on the path, as far as known
	Local   bool       // the destination is this host
}

// Neigh is a neighbour table entry.
type Neigh struct {
	MAC   [6]byte
	Valid bool   // MAC can be used
	State string // "reachable", "stale", "failed"...
}

// Interface returns the interface called name. The error for a missing one
// wraps ErrNoInterface and lists those that exist.
func Interface(name string) (Iface, error) {
	all, err := Interfaces()
	if err != nil {
		return Iface{}, err
	}
	names := make([]string, 0, len(all))
	for _, i := range all {
		if i.Name == name {
			return i, nil
		}
		names = append(names, i.Name)
	}
	return Iface{}, fmt.Errorf("hostnet: %w: %q; this host has %s", ErrNoInterface, name, strings.Join(names, ", "))
}

// InterfaceWith returns the interface that has address a; with a zone, the name
// or the index of an interface, only that one.
func InterfaceWith(a netip.Addr) (Iface, error) {
	all, err := Interfaces()
	if err != nil {
		return Iface{}, err
	}
	var have []string
	for _, i := range all {
		if z := a.Zone(); z != "" && z != i.Name && z != strconv.Itoa(i.Index) {
			continue
		}
		if i.Has(a) {
			return i, nil
		}
		for _, p := range i.Addrs {
			have = append(have, p.Addr().String())
		}
	}
	return Iface{}, fmt.Errorf("hostnet: no interface has the address %v (see `ip address`); this host has %s", a, strings.Join(have, ", "))
}

// PathMTU returns the path MTU of an RDMA device on an interface with the
// given MTU: the largest of 256 to 4096 that leaves 80 octets for headers,
// as Linux computes it (rxe_mtu_int_to_enum after rxe_param.h's
// RXE_MAX_HDR_LENGTH). 0 means that not even 256 fits.
func PathMTU(mtu int) int {
	const headers = 80
	for _, p := range [...]int{4096, 2048, 1024, 512, 256} {
		if p+headers <= mtu {
			return p
		}
	}
	return 0
}

// toAddr converts the address of an older API; the result is not valid when
// a is no address.
func toAddr(a net.IP) netip.Addr {
	r, _ := netip.AddrFromSlice(a)
	return r.Unmap()
}

// toPrefix converts an address with its mask.
func toPrefix(n *net.IPNet) (netip.Prefix, bool) {
	a := toAddr(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a, ones), a.IsValid()
}
