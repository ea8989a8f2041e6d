package gorxe

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"syscall"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/packet"
	"github.com/gorxe/gorxe/link/tap"
	"github.com/gorxe/gorxe/link/udp"
	"github.com/gorxe/gorxe/link/xdp"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// Links that Config.Link can ask for.
const (
	LinkAuto   = "auto"
	LinkUDP    = "udp"
	LinkPacket = "packet"
	LinkXDP    = "xdp"
)

// Config says where to put a NIC. Either Interface or Addr is needed; the zero
// value of everything else is a default.
type Config struct {
	// Interface is the network interface to share with the kernel. The GID
	// table is ordered like the kernel's: 0 the link-local EUI-64 of the MAC,
	// then one for each address. The device follows the interface while it is
	// open: addresses that come and go, the MTU, its state, and the interface's
	// own going and coming back (see nic.NIC.SetPort for what that means to
	// programs). An address whose port 4791 is taken is left out, and taken in
	// when it is free.
	Interface string
	// Addr is a single local address instead, such as 127.0.0.1, or any other
	// loopback address: the GID table has only that, whatever happens to it.
	Addr string
	// Addrs chooses among the interface's addresses those that the NIC owns
	// port 4791 of. (All.)
	Addrs []netip.Addr
	// Namespace is the network namespace that the interface is in, by its name
	// (ip-netns(8)) or a path such as /proc/PID/ns/net. Entering it takes
	// CAP_SYS_ADMIN, once. (That of the calling thread.)
	Namespace string

	// Link is how packets travel: udp, an ordinary socket, needs no
	// privilege; packet needs CAP_NET_RAW, and gives an exact check of IPv4
	// packets and the lowest latency; xdp, for physical NICs whose driver
	// shares memory, needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, and the
	// interface for itself. (auto: udp, or packet where that cannot be had.)
	// What the link goes without is in verbs.DeviceAttr.Missing.
	Link string
	// Faults are rules for breaking traffic on purpose, such as "tx drop 1%";
	// package link/fault has the grammar. Seed makes their chances repeatable.
	Faults string
	Seed   uint64
	// CC is the congestion control of the device's queue pairs, as cc.Config.Parse
	// takes it: an algorithm, parameters, or both, such as "none" or
	// "dcqcn,profile=paper,rp_ai_rate=10". That of a daemon's device is the daemon's;
	// rxe cc set changes it. (cc.Default: DCQCN with a ConnectX's parameters.)
	CC string
	// Tap is the path of a pcapng file to write all traffic to.
	Tap string

	Name   string // of the device ("rxe0")
	Shards int    // independent lanes, for as many cores (1)
	// Daemon is the socket of the rxed to attach to; its device has its own link,
	// shards, faults and captures. (The usual one, control.Socket, if a daemon
	// there serves the wanted device, in this network namespace; otherwise a NIC
	// is embedded. DaemonNever: always.) verbs.DeviceAttr.Daemon tells which.
	Daemon string
	// Serve is for a program that serves the device to others (see OpenNIC):
	// the device's own goroutines move it, without waiting to see whether a
	// program steps it in a thread of its own, and what passes its links can be
	// captured at any time (tap.LiveOf).
	Serve bool
	// MaxSL bounds the service levels that the device sends with, for a program
	// that will give up the capability that levels above 6 take. (7)
	MaxSL  uint8
	Logger *slog.Logger // for errors that nobody else is told of (none)
}

// Open opens the device on an interface: that of a daemon (rxed) which serves it, or
// a NIC that this program embeds (see Config.Daemon). What the device does without, and why, is
// in its attributes (verbs.DeviceAttr.Missing).
//
// Errors say what to do: hostnet's for an interface that does not exist lists
// those that do, the links' for a taken port (syscall.EADDRINUSE) says who has
// it, packet.ErrPrivilege and xdp.ErrPrivilege name the capability that is
// missing, xdp.ErrOccupied says which program an interface has already.
func Open(cfg Config) (*verbs.Context, error) {
	return opened(&cfg, func() (*verbs.Context, error) { return asContext(OpenNIC(cfg)) })
}

// OpenNIC is Open for a program that is the device rather than uses it, such as
// one that serves it to other processes (Config.Serve).
func OpenNIC(cfg Config) (*nic.NIC, error) {
	return open(&cfg, opener{udp: udp.Open, packet: packet.Open, xdp: xdp.Open})
}

func asContext(n *nic.NIC, err error) (*verbs.Context, error) {
	if err != nil {
		return nil, err
	}
	return verbs.NewContext(n), nil
}

func open(cfg *Config, o opener) (n *nic.NIC, err error) {
	ns, blind, err := enter(cfg, o.show)
	if err != nil {
		return nil, fmt.Errorf("gorxe: %w", err)
	}
	err = ns.Do(func() (err error) {
		n, err = openIn(cfg, o, &watcher{cfg: *cfg, ns: ns, blind: blind})
		return err
	})
	if err != nil {
		ns.Close()
	}
	return n, err
}

// openIn opens a device in the network namespace that it is in. The watcher looks
// after it.
func openIn(cfg *Config, o opener, w *watcher) (*nic.NIC, error) {
	if !o.show {
		w.subscribe() // before the interface is looked at, so that nothing is missed
	}
	n, err := openWatched(cfg, o, w)
	if err != nil {
		w.unsubscribe()
	}
	return n, err
}

func openWatched(cfg *Config, o opener, w *watcher) (*nic.NIC, error) {
	control, err := cfg.control()
	if err != nil {
		return nil, err
	}
	rules, err := fault.Parse(cfg.Faults)
	if err != nil {
		return nil, fmt.Errorf("gorxe: faults: %w", err)
	}
	p, links, missing, err := openPlace(cfg, o, w.ns)
	if err != nil {
		return nil, fmt.Errorf("gorxe: %w", err)
	}
	if len(rules) > 0 {
		links = fault.WrapAll(links, fault.Config{Rules: rules, Seed: cfg.Seed})
	}
	if cfg.Tap != "" {
		c, err := tap.Create(cfg.Tap)
		if err != nil {
			closeLinks(links)
			return nil, fmt.Errorf("gorxe: %w", err)
		}
		links = c.WrapAll(links, tap.Config{})
		c.CloseWithLinks()
	}
	lease := nic.DefaultSpin
	if cfg.Serve {
		lease = 0
		links = new(tap.Live).WrapAll(links, cfg.Name) // for its operator
	}
	n, err := nic.Open(nic.Config{
		Name: cfg.Name, Links: links, GIDs: p.table(), Addrs: p.bare(), Scope: uint32(p.ifc.Index), ChooseGID: p.chooser(),
		NetDev: p.ifc.Name, MTU: p.ifc.MTU, SpeedMbit: p.ifc.Speed, Spin: nic.DefaultSpin, Lease: lease,
		Missing: append(missing, w.without...), Logger: cfg.Logger, MaxSL: min(maxSL(), cmp.Or(cfg.MaxSL, 7)),
		Manual: o.show, AtClose: w.close, CC: control,
	})
	if err != nil {
		closeLinks(links)
		return nil, fmt.Errorf("gorxe: %w", err)
	}
	if err := w.start(n, p, links[0]); err != nil {
		_ = n.Close()
		return nil, fmt.Errorf("gorxe: %w", err)
	}
	return n, nil
}

// control returns the congestion control that CC asks for, nil for the default.
func (cfg *Config) control() (*cc.Config, error) {
	if cfg.CC == "" {
		return nil, nil
	}
	c := cc.Default()
	if err := c.Parse(cfg.CC); err != nil {
		return nil, fmt.Errorf("gorxe: congestion control: %w", err)
	}
	return &c, nil
}

// openPlace finds the place of a device and opens its links. An interface may lose
// an address between the two; then both are done again.
func openPlace(cfg *Config, o opener, ns *hostnet.Namespace) (p *place, links []link.Link, missing []string, err error) {
	const tries = 10
	for range tries {
		if p, err = newPlace(cfg); err != nil {
			return nil, nil, nil, err
		}
		p.ns = ns
		if links, missing, err = o.links(cfg, p); err == nil || !p.whole {
			break
		}
		if now, nerr := hostnet.Interface(p.ifc.Name); nerr != nil || slices.Equal(now.Addrs, p.ifc.Addrs) {
			break
		}
	}
	return p, links, missing, err
}

// maxSL is the highest service level that this program may send with: SO_PRIORITY
// above 6 takes a capability. socket(7).
func maxSL() uint8 {
	if c, err := hostnet.Capabilities(); err == nil && !c.NetAdmin && !c.NetRaw {
		return 6
	}
	return 7
}

func closeLinks(links []link.Link) {
	for _, l := range links {
		_ = l.Close()
	}
}

// openReady opens sockets on the addresses that are ready. IPv6 link-local ones
// may not be: the kernel looks for duplicates first, for a second or two. The
// NIC then goes without them, until they are, and says so.
func (p *place) openReady(open func() ([]link.Link, error)) (links []link.Link, err error) {
	links, err = open()
	all, rest := p.addrs, slices.DeleteFunc(slices.Clone(p.addrs), netip.Addr.IsLinkLocalUnicast)
	if !errors.Is(err, syscall.EADDRNOTAVAIL) || len(rest) == 0 || len(rest) == len(all) {
		return links, err
	}
	p.addrs = rest
	links, err2 := open()
	if err2 != nil {
		p.addrs = all
		return nil, err
	}
	p.missing = []string{fmt.Sprintf("link-local addresses are not used: %v", err)}
	return links, nil
}

// place is where a NIC is put: an interface, and addresses on it.
type place struct {
	ns      *hostnet.Namespace // nil: the one that every thread is in
	ifc     hostnet.Iface
	gids    []hostnet.GID
	addrs   []netip.Addr // to own; link-local ones with their zone
	whole   bool         // the whole interface, not just an address
	missing []string     // what it goes without just now
}

// in is how links run what must be done in the namespace.
func (p *place) in() func(func() error) error {
	if p.ns == nil {
		return nil
	}
	return p.ns.Do
}

func newPlace(cfg *Config) (*place, error) {
	switch {
	case cfg.Interface != "" && cfg.Addr != "":
		return nil, errors.New("both Interface and Addr are set; one of them says where the NIC is")
	case cfg.Interface != "":
		return onInterface(cfg)
	case cfg.Addr != "":
		return onAddr(cfg.Addr)
	}
	return nil, errors.New("neither Interface nor Addr is set; name an interface, or an address such as 127.0.0.1")
}

func onInterface(cfg *Config) (*place, error) {
	ifc, err := hostnet.Interface(cfg.Interface)
	if err != nil {
		return nil, err
	}
	if !ifc.Up {
		return nil, fmt.Errorf("interface %s is down; bring it up with 'ip link set %[1]s up'", ifc.Name)
	}
	p := &place{ifc: ifc, gids: ifc.GIDs(), whole: true}
	want := cfg.Addrs
	if want == nil {
		for _, a := range ifc.Addrs {
			want = append(want, a.Addr())
		}
	}
	if len(want) == 0 {
		return nil, fmt.Errorf("interface %s has no IP address; add one with 'ip addr add ADDRESS/BITS dev %[1]s'", ifc.Name)
	}
	for _, a := range want {
		if !ifc.Has(a) {
			return nil, fmt.Errorf("%v is not an address of %s, which has %v", a, ifc.Name, ifc.Addrs)
		}
		p.own(a)
	}
	return p, nil
}

func onAddr(text string) (*place, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", text, err)
	}
	ifc, err := interfaceOf(a)
	if err != nil {
		return nil, err
	}
	p := &place{ifc: ifc, gids: []hostnet.GID{{IP: a.Unmap().WithZone(""), Type: hostnet.GIDType, Iface: ifc.Name}}}
	p.own(a)
	return p, nil
}

// interfaceOf returns the interface with an address; lo has all of 127.0.0.0/8.
func interfaceOf(a netip.Addr) (hostnet.Iface, error) {
	ifc, err := hostnet.InterfaceWith(a)
	if err == nil || !a.Unmap().IsLoopback() {
		return ifc, err
	}
	all, lerr := hostnet.Interfaces()
	if lerr != nil {
		return hostnet.Iface{}, lerr
	}
	for _, i := range all {
		if i.Loopback {
			return i, nil
		}
	}
	return hostnet.Iface{}, err
}

// own adds an address to those of the NIC.
func (p *place) own(a netip.Addr) {
	a = a.Unmap().WithZone("")
	if a.Is6() && a.IsLinkLocalUnicast() {
		a = a.WithZone(p.ifc.Name)
	}
	p.addrs = append(p.addrs, a)
}

// bare returns the addresses without zones.
func (p *place) bare() []netip.Addr {
	out := make([]netip.Addr, len(p.addrs))
	for i, a := range p.addrs {
		out[i] = a.WithZone("")
	}
	return out
}

// table returns the GID table in verbs' words.
func (p *place) table() []verbs.GIDEntry {
	out := make([]verbs.GIDEntry, len(p.gids))
	for i, g := range p.gids {
		out[i] = verbs.GIDEntry{Index: i, GID: verbs.GID(g.Raw()), Type: g.Type, Interface: g.Iface}
	}
	return out
}

// chooser picks among the GIDs that can be used. For a single address the
// NIC's own choice will do.
func (p *place) chooser() func(netip.Addr) (int, error) {
	if !p.whole {
		return nil
	}
	bare := p.bare()
	usable := slices.DeleteFunc(slices.Clone(p.gids), func(g hostnet.GID) bool { return !slices.Contains(bare, g.IP) })
	return func(peer netip.Addr) (int, error) {
		var g hostnet.GID
		err := p.ns.Do(func() (err error) {
			g, err = hostnet.ChooseGID(usable, peer)
			return err
		})
		return g.Index, err
	}
}
