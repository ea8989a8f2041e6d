package devinfo

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Device is what can be asked about itself; *verbs.Context is one.
type Device interface {
	Device() (verbs.DeviceAttr, error)
	Port() (verbs.PortAttr, error)
	GIDs() ([]verbs.GIDEntry, error)
	Close() error
}

// Host is where the answers come from.
type Host struct {
	Ifaces []hostnet.Iface
	Owners []hostnet.PortOwner // of UDP port 4791
	Probe  func(gorxe.Config) (Device, error)
	NoIPv6 func(iface string) string // why there is none, or ""; may be nil
}

// ThisHost returns the host that runs the program, as it is now.
func ThisHost() (*Host, error) {
	ifaces, err := hostnet.Interfaces()
	if err != nil {
		return nil, err
	}
	owners, err := hostnet.PortOwners(wire.Port)
	if err != nil {
		return nil, err
	}
	return &Host{Ifaces: ifaces, Owners: owners, NoIPv6: hostnet.NoIPv6, Probe: func(c gorxe.Config) (Device, error) {
		d, err := gorxe.Probe(c)
		if err != nil {
			return nil, err // not a Device that is a nil *verbs.Context
		}
		return d, nil
	}}, nil
}

// Info is what there is to know about a device.
type Info struct {
	Attr  verbs.DeviceAttr
	Port  verbs.PortAttr
	GIDs  []verbs.GIDEntry
	Iface hostnet.Iface

	Addrs      []netip.Addr        // that the device owns port 4791 of
	Owners     []hostnet.PortOwner // who has it now
	Auto       bool                // the link was not asked for by name
	OtherLinks []string            // that the device could have instead
	NoIPv6     string              // why the interface has none, and what helps
	Notes      []string            // what it does without; a sentence each
}

// Find returns the interface that name stands for, and what a device there is
// called: name is an interface's, or a device's, which are called rxe0, rxe1...
// in the order of the interfaces that can carry one. A name that is neither
// comes back as it is. device is empty where there can be none.
func Find(ifaces []hostnet.Iface, name string) (ifc, device string) {
	ifc = name
	k := 0
	for i := range ifaces {
		one := &ifaces[i]
		if fit(one) != nil {
			if one.Name == name {
				return name, ""
			}
			continue
		}
		called := fmt.Sprintf("rxe%d", k)
		k++
		switch name {
		case one.Name: // also one that is called like a device
			return name, called
		case called:
			ifc, device = one.Name, called
		}
	}
	return ifc, device
}

// Describe returns the device that cfg is for or, when cfg names no interface
// and no address, one for each interface that could carry one. Devices are
// called as Find calls them, and cfg may name one so. It may return both devices and an error, for those that it could
// not describe. The error for an interface that does not exist wraps
// hostnet.ErrNoInterface and lists those that do.
func (h *Host) Describe(cfg gorxe.Config) ([]Info, error) {
	if cfg.Interface != "" || cfg.Addr != "" {
		if cfg.Interface != "" {
			cfg.Interface, cfg.Name = Find(h.Ifaces, cfg.Interface)
		} else if k := h.with(cfg.Addr); k >= 0 {
			_, cfg.Name = Find(h.Ifaces, h.Ifaces[k].Name)
		}
		i, err := h.describe(cfg)
		if err != nil {
			return nil, err
		}
		return []Info{i}, nil
	}
	var all []Info
	var errs, unfit []error
	for _, ifc := range h.Ifaces {
		if err := fit(&ifc); err != nil {
			unfit = append(unfit, err)
			continue
		}
		cfg.Interface, cfg.Name = Find(h.Ifaces, ifc.Name)
		i, err := h.describe(cfg)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ifc.Name, err))
			continue
		}
		all = append(all, i)
	}
	if len(all) == 0 && len(errs) == 0 {
		return nil, fmt.Errorf("no interface can carry a device:\n%w", errors.Join(unfit...))
	}
	return all, errors.Join(errs...)
}

// with returns the index of the interface with an address, or -1; lo has all of
// 127.0.0.0/8.
func (h *Host) with(addr string) int {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(h.Ifaces, func(i hostnet.Iface) bool { return i.Has(a) || i.Loopback && a.IsLoopback() })
}

// fit says why an interface cannot carry a device.
func fit(i *hostnet.Iface) error {
	switch {
	case !i.Up:
		return fmt.Errorf("%s is down; bring it up with 'ip link set %[1]s up'", i.Name)
	case len(i.Addrs) == 0:
		return fmt.Errorf("%s has no IP address; add one with 'ip addr add ADDRESS/BITS dev %[1]s'", i.Name)
	case hostnet.PathMTU(i.MTU) == 0:
		return fmt.Errorf("%s has an MTU of %d, too small for RoCEv2; raise it with 'ip link set %[1]s mtu 1500'", i.Name, i.MTU)
	}
	return nil
}

func (h *Host) describe(cfg gorxe.Config) (i Info, err error) {
	d, err := h.Probe(cfg)
	if err != nil {
		return i, err
	}
	defer d.Close()
	if i.Attr, err = d.Device(); err != nil {
		return i, err
	}
	if i.Port, err = d.Port(); err != nil {
		return i, err
	}
	if i.GIDs, err = present(d.GIDs()); err != nil {
		return i, err
	}
	k := slices.IndexFunc(h.Ifaces, func(f hostnet.Iface) bool { return f.Name == i.Port.NetDev })
	if k < 0 {
		return i, fmt.Errorf("the device is on %s, which has gone", i.Port.NetDev)
	}
	i.Iface = h.Ifaces[k]
	i.Auto = cfg.Link == gorxe.LinkAuto || cfg.Link == ""
	if h.NoIPv6 != nil {
		i.NoIPv6 = h.NoIPv6(i.Iface.Name)
	}
	i.carrier()
	i.addrs(&cfg)
	for _, o := range h.Owners {
		if slices.ContainsFunc(i.Addrs, o.Has) {
			i.Owners = append(i.Owners, o)
		}
	}
	i.note(h.otherLinks(&cfg, &i))
	return i, nil
}

// carrier corrects the state of the port: a NIC does not watch its interface.
func (i *Info) carrier() {
	if s := i.Iface.State; s != "up" && s != "unknown" { // lo has no state
		i.Port.State, i.Port.Active = "PORT_DOWN (1)", false
	}
}

func (i *Info) addrs(cfg *gorxe.Config) {
	if cfg.Addr != "" {
		for _, g := range i.GIDs {
			i.Addrs = append(i.Addrs, g.GID.Addr())
		}
		return
	}
	for _, p := range i.Iface.Addrs {
		i.Addrs = append(i.Addrs, p.Addr())
	}
}

// otherLinks looks for the links that were not chosen, and returns why the
// device cannot have some of them.
func (h *Host) otherLinks(cfg *gorxe.Config, i *Info) (errs []error) {
	for _, name := range [...]string{gorxe.LinkUDP, gorxe.LinkPacket, gorxe.LinkXDP} {
		if name == i.Attr.Link {
			continue
		}
		other := *cfg
		other.Link = name
		d, err := h.Probe(other)
		if err != nil {
			if !i.known(name) {
				errs = append(errs, fmt.Errorf("link %s, %s, cannot be used: %s", name, virtues[name], because(name, err)))
			}
			continue
		}
		i.OtherLinks = append(i.OtherLinks, name)
		if err := d.Close(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// known reports whether the device has said itself why it has not another link,
// or does not miss it: lo has no use for xdp.
func (i *Info) known(link string) bool {
	return link == gorxe.LinkXDP && i.Iface.Loopback ||
		slices.ContainsFunc(i.Attr.Missing, func(s string) bool { return strings.Contains(s, "link "+link+" cannot be used") })
}

// because is an error of opening a link, without the names of packages.
func because(name string, err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "gorxe: "), name+": ")
}

// hidesIDs reports whether the device's link hides the identification of packets
// that it receives.
func (i *Info) hidesIDs() bool {
	return i.Attr.Link == gorxe.LinkUDP && slices.ContainsFunc(i.Addrs, netip.Addr.Is4)
}

// WhyAuto says why auto takes a link.
func WhyAuto(link string) string {
	if link == gorxe.LinkUDP {
		return "it needs no privilege, and moves long messages fastest"
	}
	return "udp cannot be used" // and Missing says why
}

var virtues = map[string]string{
	gorxe.LinkUDP:    "which needs no privilege",
	gorxe.LinkPacket: "which checks the ICRC of every packet exactly and has the lowest latency",
	gorxe.LinkXDP:    "which is for NICs whose driver shares memory with it",
}

// note collects what the device does without.
func (i *Info) note(otherLinks []error) {
	i.Notes = slices.Clone(i.Attr.Missing)
	add := func(format string, args ...any) { i.Notes = append(i.Notes, fmt.Sprintf(format, args...)) }
	ifc := &i.Iface
	if i.hidesIDs() && slices.Contains(i.OtherLinks, gorxe.LinkPacket) { // see wire.Verifier; where packet cannot be had, Missing has said so
		add("a UDP socket hides the identification of IPv4 packets, so the ICRC check of those is bounded (one damaged packet in 2^22 passes, not one in 2^32); --link packet and IPv6 check exactly")
	}
	for _, err := range otherLinks {
		add("%v", err)
	}
	if !i.Port.Active {
		add("%s has no carrier (its state is %s), so no packet leaves or arrives; see to the cable or to whatever is at its other end", ifc.Name, ifc.State)
	}
	if i.Port.ActiveMTU < i.Port.MaxMTU {
		const jumbo = 4200 // as RoCE networks commonly have for a path MTU of 4096
		add("a path MTU of %d is not possible because %s has an MTU of %d, so packets carry no more than %d octets and large messages are slower; if every switch and peer takes it: 'ip link set %s mtu %d'",
			i.Port.MaxMTU, ifc.Name, ifc.MTU, i.Port.ActiveMTU, ifc.Name, jumbo)
	}
	for _, g := range i.GIDs {
		switch {
		case i.usable(g):
		case g.GID.Addr().Is6() && i.NoIPv6 != "":
			what, remedy, _ := strings.Cut(i.NoIPv6, "; ")
			add("%s, so GID %d cannot be used and IPv6 peers cannot be reached; %s", what, g.Index, remedy)
		default:
			add("GID %d is not an address of %s, so connections cannot be made from it; use another index, or add the address with 'ip addr add %v/64 dev %s'",
				g.Index, ifc.Name, g.GID.Addr(), ifc.Name)
		}
	}
}

// usable tells whether packets can leave from a GID.
func (i *Info) usable(g verbs.GIDEntry) bool { return slices.Contains(i.Addrs, g.GID.Addr()) }

// present leaves out the entries of a GID table whose address has gone, as the
// tools of rdma-core do.
func present(gids []verbs.GIDEntry, err error) ([]verbs.GIDEntry, error) {
	return slices.DeleteFunc(gids, func(g verbs.GIDEntry) bool { return g.GID == verbs.GID{} }), err
}
