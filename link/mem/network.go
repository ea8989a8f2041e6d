package mem

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/wire"
)

// Defaults of Config.
const (
	DefaultDepth = 1024    // datagrams
	DefaultBytes = 4 << 20 // octets; 64 of the largest bursts
	DefaultMTU   = 4200    // octets; bears a path MTU of 4096
	maxShards    = 16      // what the four shard bits of a QPN tell apart
	window       = 512     // packets in flight; at MTU 4200 half of DefaultBytes
)

// Config describes a port. The zero value of each field but Addrs is a
// default.
type Config struct {
	Addrs  []netip.Addr // the port's own; a zone is ignored
	Shards int          // links of the port, 1 to 16; 0 means 1
	Depth  int          // datagrams that each link's receive ring holds
	Bytes  int          // octets that it holds, at least those of one burst
	MTU    int          // octets of the largest IP packet that the port sends

	// Single delivers the segments of a burst one by one, as a receiver
	// without receive offload gets them.
	Single bool
	// HideIDs delivers without the IPv4 header, as a UDP socket does, so that
	// the identification has to be solved for.
	HideIDs bool
}

// Network is a switch that knows which port has which address. The zero value
// is a network without ports. It is safe for concurrent use.
type Network struct {
	mu      sync.Mutex // serialises changes of the tables
	ports   atomic.Pointer[map[netip.Addr]*port]
	groups  atomic.Pointer[map[netip.Addr][]*Link] // at most one link of a port
	unknown atomic.Uint64
}

// port is the links of one Attach.
type port struct {
	addrs []netip.Addr
	links []*Link
	open  atomic.Int32 // links not closed
}

// NewNetwork returns a network without ports.
func NewNetwork() *Network { return new(Network) }

// Pair returns the links of two ports on a network of their own. A port
// without addresses gets 192.0.2.1 and 2001:db8::1, the second 192.0.2.2 and
// 2001:db8::2.
func Pair(a, b Config) (as, bs []link.Link, err error) {
	if len(a.Addrs) == 0 {
		a.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	}
	if len(b.Addrs) == 0 {
		b.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}
	}
	n := NewNetwork()
	if as, err = n.Attach(a); err != nil {
		return nil, nil, err
	}
	if bs, err = n.Attach(b); err != nil {
		return nil, nil, err
	}
	return as, bs, nil
}

// Attach adds a port and returns its links, one per shard. The port is gone,
// and its addresses free, when all of them are closed.
func (n *Network) Attach(cfg Config) ([]link.Link, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &port{addrs: cfg.Addrs}
	p.open.Store(int32(cfg.Shards))
	out := make([]link.Link, cfg.Shards)
	for i := range out {
		l := newLink(n, p, &cfg)
		p.links = append(p.links, l)
		out[i] = l
	}
	if err := n.add(p); err != nil {
		return nil, err
	}
	return out, nil
}

// Unknown returns how many packets went to an address that no open link has. A
// group without members is no such address.
func (n *Network) Unknown() uint64 { return n.unknown.Load() }

// complete fills in defaults and checks the rest.
func (c *Config) complete() error {
	if len(c.Addrs) == 0 {
		return errors.New("mem: a port needs at least one address")
	}
	addrs := make([]netip.Addr, len(c.Addrs))
	for i, a := range c.Addrs {
		if !a.IsValid() {
			return errors.New("mem: an address is not valid")
		}
		if a.IsMulticast() {
			return fmt.Errorf("mem: %v is a multicast address; a port joins groups with JoinGroup", a)
		}
		addrs[i] = a.Unmap().WithZone("")
	}
	c.Addrs = addrs
	for _, f := range []struct {
		v        *int
		def, min int
		name     string
	}{
		{&c.Shards, 1, 1, "Shards"},
		{&c.Depth, DefaultDepth, 1, "Depth"},
		{&c.Bytes, DefaultBytes, ringSize(wire.MaxBurstBytes), "Bytes"},
		{&c.MTU, DefaultMTU, 576, "MTU"},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < f.min {
			return fmt.Errorf("mem: %s is %d, must be at least %d", f.name, *f.v, f.min)
		}
	}
	if c.Shards > maxShards {
		return fmt.Errorf("mem: Shards is %d, must be at most %d", c.Shards, maxShards)
	}
	return nil
}

// add enters a port under its addresses, in a copy of the table: senders read
// the table without a lock.
func (n *Network) add(p *port) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := clone(&n.ports)
	for _, a := range p.addrs {
		if t[a] != nil {
			return fmt.Errorf("mem: address %v is taken on this network", a)
		}
		t[a] = p
	}
	n.ports.Store(&t)
	return nil
}

func (n *Network) remove(p *port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := clone(&n.ports)
	for _, a := range p.addrs {
		delete(t, a)
	}
	n.ports.Store(&t)
}

// join makes l a member of a group.
func (n *Network) join(l *Link, g netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed.Load() {
		return link.ErrClosed
	}
	t := clone(&n.groups)
	for _, m := range t[g] {
		if m == l {
			return nil
		}
		if m.port == l.port {
			return fmt.Errorf("mem: another link of this port has joined %v; a port joins a group once", g)
		}
	}
	t[g] = append(slices.Clip(t[g]), l)
	n.groups.Store(&t)
	return nil
}

// part ends l's membership of the groups for which leaves holds.
func (n *Network) part(l *Link, leaves func(netip.Addr) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := clone(&n.groups)
	for g, ms := range t {
		i := slices.Index(ms, l)
		if i < 0 || !leaves(g) {
			continue
		}
		if t[g] = slices.Delete(slices.Clone(ms), i, i+1); len(t[g]) == 0 {
			delete(t, g)
		}
	}
	n.groups.Store(&t)
}

// members returns the links that joined a group.
func (n *Network) members(g netip.Addr) []*Link {
	if t := n.groups.Load(); t != nil {
		return (*t)[g]
	}
	return nil
}

// clone returns a copy of a table.
func clone[V any](p *atomic.Pointer[map[netip.Addr]V]) map[netip.Addr]V {
	t := make(map[netip.Addr]V)
	if old := p.Load(); old != nil {
		maps.Copy(t, *old)
	}
	return t
}

// lookup returns the port that has an address, or nil.
func (n *Network) lookup(a netip.Addr) *port {
	if t := n.ports.Load(); t != nil {
		return (*t)[a]
	}
	return nil
}
