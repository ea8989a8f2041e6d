package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/verbs"
)

// Port is what can change of a device's port while the device is open, because
// the interface below it does: its addresses, its MTU, and whether it is up.
type Port struct {
	// Active: the interface is up and has a carrier. While it is not, packets
	// that are sent are lost, and connections retry as for any other loss.
	Active bool

	// GIDs is the GID table, index by index. An address that stays keeps its
	// index, and an entry whose address has gone is empty, its GID all zero,
	// until another address takes it, as in the table of the kernel.
	GIDs []verbs.GIDEntry
	// Addrs are the addresses that packets can really leave from. (Those of all
	// GIDs.)
	Addrs []netip.Addr
	// Scope is the interface index that link-local addresses need.
	Scope uint32
	// ChooseGID returns the index of the GID to reach a peer from. (The first
	// of the peer's family and scope that can be used.)
	ChooseGID func(peer netip.Addr) (int, error)

	MTU       int       // of the interface, in octets (what it was)
	ActiveMTU verbs.MTU // (the largest that MTU bears, or 256)
	SpeedMbit int       // 0 unknown

	// Missing says what the port does without just now, beside what the device
	// always does; one sentence each.
	Missing []string
}

// port is a Port that is in force. Nothing in it changes: readers of the data
// path take it whole, without a lock.
type port struct {
	Port
	own map[netip.Addr]bool // addresses of the GID table: what the device sends to itself
}

// complete checks a Port and fills in what was left out; before is the one so
// far.
func (p *Port) complete(before *Port) error {
	if len(p.GIDs) == 0 {
		return errors.New("nic: the GID table is empty: give the interface an address (ip addr add), or name one")
	}
	for i, g := range p.GIDs {
		if g.Index != i {
			return fmt.Errorf("nic: GID %v stands at %d and has index %d", g.GID.Addr(), i, g.Index)
		}
	}
	p.GIDs = slices.Clone(p.GIDs)
	if p.Addrs == nil {
		for _, g := range p.GIDs {
			if g.GID != (verbs.GID{}) {
				p.Addrs = append(p.Addrs, g.GID.Addr())
			}
		}
	}
	if p.MTU == 0 {
		p.MTU = before.MTU
	}
	if p.ActiveMTU == 0 {
		p.ActiveMTU = max(pathMTU(p.MTU), 256) // as Linux has it, whether that passes or not
	}
	if !p.ActiveMTU.Valid() {
		return fmt.Errorf("nic: %d is no path MTU", p.ActiveMTU)
	}
	return nil
}

// newPort makes a port of its description.
func newPort(p Port) *port {
	out := &port{Port: p, own: make(map[netip.Addr]bool)}
	for _, g := range p.GIDs {
		if g.GID != (verbs.GID{}) {
			out.own[g.GID.Addr()] = true
		}
	}
	return out
}

// firstPort is the port that a device is opened with.
func (c *Config) firstPort() *port {
	return newPort(Port{
		Active: true, GIDs: c.GIDs, Addrs: c.Addrs, Scope: c.Scope, ChooseGID: c.ChooseGID,
		MTU: c.MTU, ActiveMTU: c.ActiveMTU, SpeedMbit: c.SpeedMbit,
	})
}

// Port returns what SetPort set last, or what the device was opened with.
func (n *NIC) Port() Port {
	p := n.port.Load().Port
	p.GIDs, p.Addrs, p.Missing = slices.Clone(p.GIDs), slices.Clone(p.Addrs), slices.Clone(p.Missing)
	return p
}

// SetPort changes the port. Events tell programs what they have to know:
// verbs.EventGIDChange, verbs.EventPortErr and verbs.EventPortActive; each time
// the port goes down counts in link_downed.
//
// What there is goes on as with a NIC whose cable or address was pulled. A
// connection whose own address has gone loses what it sends, and what is sent to
// it, retries, and goes on if the address comes back in time; otherwise it
// ends with verbs.WCRetryExcErr. A connection with a path MTU above the new
// active MTU stays as it is: the interface refuses its longer packets. New
// connections and address handles are refused an address that is not there,
// and a path MTU that is too large.
func (n *NIC) SetPort(p Port) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return err
	}
	old := n.port.Load()
	if err := p.complete(&old.Port); err != nil {
		return err
	}
	n.port.Store(newPort(p))
	for _, s := range n.shards {
		s.mu.Lock()
		s.far = netip.Addr{} // it may be the device's own now
		s.unlock()
	}
	if !slices.Equal(old.GIDs, p.GIDs) {
		n.event(verbs.AsyncEvent{Type: verbs.EventGIDChange})
	}
	switch {
	case old.Active && !p.Active:
		n.downs.Add(1)
		n.event(verbs.AsyncEvent{Type: verbs.EventPortErr})
	case !old.Active && p.Active:
		n.event(verbs.AsyncEvent{Type: verbs.EventPortActive})
	}
	return nil
}

// isOwn reports whether an address is the device's now.
//
//gorxe:hot
func (n *NIC) isOwn(a netip.Addr) bool { return n.port.Load().own[a] }
