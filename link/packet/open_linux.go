package packet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/internal/hostnet"
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
// nobody to let go of it, and receives nothing. For a moment the interface has
// a tcx program that drops nothing.
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
	if cfg.In == nil {
		cfg.In = func(f func() error) error { return f() }
	}
	ifc, err := hostnet.Interface(cfg.Interface)
	if err != nil {
		return nil, err
	}
	addrs, err := udptx.ChooseAddrs(&ifc, cfg.Addrs)
	if err != nil {
		return nil, err
	}
	lo, err := loopback()
	if err != nil {
		return nil, err
	}
	ins, window, missing, err := openInlets(&cfg, func(of length) program { return acceptFilter(of, ifc.Index, lo, nil) })
	if err != nil {
		return nil, err
	}
	hold, err := udptx.HoldPort(addrs, port, len(ins), true)
	if err != nil {
		closeAll(ins)
		return nil, err
	}
	groups := &groups{name: ifc.Name, in: cfg.In, iface: ifc.Index, lo: lo, members: make(map[netip.Addr]member)}
	for i, in := range ins {
		l, err := newLink(in, &ifc, udptx.Config{Addrs: addrs, In: cfg.In})
		if err != nil {
			for _, l := range links {
				_ = l.Close()
			}
			closeAll(ins[i:])
			for range ins[i:] {
				hold.Release()
			}
			return nil, err
		}
		l.info.Window, l.info.Missing = window, slices.Concat(missing, l.info.Missing)
		l.hold, l.groups = hold, groups
		groups.links = append(groups.links, l)
		links = append(links, l)
	}
	spare(groups.links, &ifc, addrs, port)
	return links, nil
}

// spare attaches the dropper of links, now that they receive. A probe's drops
// nothing.
func spare(links []*Link, ifc *hostnet.Iface, addrs []netip.Addr, port uint16) {
	addrs = bare(addrs)
	if port != wire.Port {
		addrs = nil
	}
	d, err := attachDropper(ifc.Index, addrs, len(links))
	for _, l := range links {
		if err == nil {
			l.drop = d
		} else {
			l.info.Missing = append(l.info.Missing, undropped(ifc, err))
		}
	}
}

// bare returns addresses without their zones, as they are in packets.
func bare(addrs []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		out[i] = a.WithZone("")
	}
	return out
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
