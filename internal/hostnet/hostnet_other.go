//go:build !linux

package hostnet

import (
	"fmt"
	"net"
	"net/netip"
)

// Interfaces returns all interfaces in the order of their indexes. State is
// derived from the flags; Speed is unknown.
func Interfaces() ([]Iface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("hostnet: read interfaces: %w", err)
	}
	out := make([]Iface, 0, len(all))
	for _, n := range all {
		i := Iface{
			Name: n.Name, Index: n.Index, MTU: n.MTU, Up: n.Flags&net.FlagUp != 0, State: "down",
			Loopback: n.Flags&net.FlagLoopback != 0,
		}
		if n.Flags&net.FlagRunning != 0 {
			i.State, i.Live = "up", i.Up
		}
		copy(i.MAC[:], n.HardwareAddr)
		addrs, err := n.Addrs()
		if err != nil {
			return nil, fmt.Errorf("hostnet: read addresses of %s: %w", n.Name, err)
		}
		for _, v4 := range [...]bool{true, false} {
			for _, a := range addrs {
				ipn, ok := a.(*net.IPNet)
				if !ok {
					continue
				}
				if p, ok := toPrefix(ipn); ok && p.Addr().Is4() == v4 {
					i.Addrs = append(i.Addrs, p)
				}
			}
		}
		out = append(out, i)
	}
	return out, nil
}

// Route is only available on Linux.
func Route(netip.Addr, netip.Addr, int) (RouteInfo, error) { return RouteInfo{}, ErrNotLinux }

// Neighbor is only available on Linux.
func Neighbor(int, netip.Addr) (Neigh, bool, error) { return Neigh{}, false, ErrNotLinux }

// Capabilities is only available on Linux.
func Capabilities() (Caps, error) { return Caps{}, ErrNotLinux }

// PacketSockets is only available on Linux.
func PacketSockets() error { return ErrNotLinux }

// InUserNamespace is false: only Linux has them.
func InUserNamespace() bool { return false }

// NoIPv6 is "": only Linux is asked.
func NoIPv6(string) string { return "" }

// Namespace is only available on Linux.
type Namespace struct{}

// OpenNamespace is only available on Linux.
func OpenNamespace(string) (*Namespace, error) { return nil, ErrNotLinux }

// CallerNamespace returns nil: only Linux has network namespaces.
func CallerNamespace() (*Namespace, error) { return nil, nil }

// Name returns "".
func (*Namespace) Name() string { return "" }

// Do runs f.
func (*Namespace) Do(f func() error) error { return f() }

// Close does nothing.
func (*Namespace) Close() {}

// Monitor is only available on Linux.
type Monitor struct{}

// Watch is only available on Linux.
func Watch(string) (*Monitor, error) { return nil, ErrNotLinux }

// Changed returns nil.
func (*Monitor) Changed() <-chan struct{} { return nil }

// Close does nothing.
func (*Monitor) Close() {}

// PortOwners is only available on Linux.
func PortOwners(uint16) ([]PortOwner, error) { return nil, ErrNotLinux }

func softRoCE() []string { return nil }
