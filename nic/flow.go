package nic

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// defaultTTL is the hop limit when the address vector says 0.
const defaultTTL = 64

// checkAttr checks what depends on the device; the engine checks the rest.
func (n *NIC) checkAttr(a *verbs.QPAttr, m verbs.AttrMask) error {
	if m&verbs.AttrPort != 0 && a.Port != 1 {
		return fmt.Errorf("nic: port %d: the device has port 1 only", a.Port)
	}
	if m&verbs.AttrPKeyIndex != 0 && a.PKeyIndex != 0 {
		return fmt.Errorf("nic: P_Key index %d: the table has index 0 only", a.PKeyIndex)
	}
	if p := n.port.Load(); m&verbs.AttrPathMTU != 0 && a.PathMTU.Valid() && a.PathMTU > p.ActiveMTU {
		return fmt.Errorf("nic: path MTU %d is above the port's active MTU %d: %s has an MTU of %d and needs %d (ip link set %[3]s mtu %[5]d), or choose a path MTU of %[2]d",
			a.PathMTU, p.ActiveMTU, n.netDev(), p.MTU, int(a.PathMTU)+headroom)
	}
	return nil
}

func (n *NIC) netDev() string {
	if n.cfg.NetDev == "" {
		return "the link"
	}
	return n.cfg.NetDev
}

// flow makes the address vector's form on the wire.
func (n *NIC) flow(q *qp, a *verbs.QPAttr, m verbs.AttrMask) (*wire.Flow, error) {
	if a.AV.DGID.Addr().IsMulticast() {
		return nil, fmt.Errorf("nic: %v is a multicast address: a connection has one peer", a.AV.DGID.Addr())
	}
	remote := q.eng.Attr().DestQPN
	if m&verbs.AttrDestQPN != 0 {
		remote = a.DestQPN
	}
	f := new(wire.Flow)
	return f, n.route(f, q.s, &a.AV, sourcePort(uint32(q.qpn), remote, a.AV.FlowLabel))
}

// sourcePort is mlx5's: from the flow label if there is one, otherwise from
// the queue pair numbers.
func sourcePort(local, remote, label uint32) uint16 {
	if label == 0 {
		return wire.SourcePort(local, remote)
	}
	return uint16(label&0x3fff^label&0xfc000>>14) | 0xc000
}

// checkPath refuses what cannot work on the wire, the mistakes that otherwise
// show as a retry counter exceeded.
func (n *NIC) checkPath(p *port, index int, src, dst netip.Addr) error {
	switch {
	case dst.IsUnspecified():
		return fmt.Errorf("nic: the peer's GID is all zero: it was not exchanged, or the peer has no GID at its index")
	case src.IsUnspecified():
		return fmt.Errorf("nic: GID %d is empty, its address was removed from %s: %s", index, n.netDev(), n.advise(dst))
	case !sameScope(src, dst):
		return fmt.Errorf("nic: GID %d is %s (%v), the peer's GID is %s (%v): %s", index, kind(src), src, kind(dst), dst, n.advise(dst))
	case !slices.Contains(p.Addrs, src):
		return fmt.Errorf("nic: GID %d (%v) is not an address of %s, so nothing can be sent from it: %s", index, src, n.netDev(), n.advise(dst))
	}
	return nil
}

// kind names an address's family and scope.
func kind(a netip.Addr) string {
	switch {
	case a.Is4():
		return "IPv4"
	case a.IsLinkLocalUnicast():
		return "IPv6 link-local"
	}
	return "IPv6"
}

// advise says which GID goes with a peer's address.
func (n *NIC) advise(peer netip.Addr) string {
	p := n.port.Load()
	if i, err := p.choose(peer); err == nil && i >= 0 && i < len(p.GIDs) {
		return fmt.Sprintf("choose GID index %d (%v; -g %[1]d)", i, p.GIDs[i].GID.Addr())
	}
	return fmt.Sprintf("the table has no usable %s GID; add such an address to %s, or connect by the peer's other addresses", kind(peer), n.netDev())
}

// ChooseGID returns the index of the GID to reach peer from.
func (n *NIC) ChooseGID(peer netip.Addr) (int, error) {
	return n.port.Load().choose(peer)
}

func (p *port) choose(peer netip.Addr) (int, error) {
	if p.ChooseGID != nil {
		return p.ChooseGID(peer)
	}
	peer = peer.Unmap().WithZone("")
	for _, g := range p.GIDs {
		a := g.GID.Addr()
		if kind(a) == kind(peer) && slices.Contains(p.Addrs, a) {
			return g.Index, nil
		}
	}
	return 0, fmt.Errorf("nic: no usable %s GID to reach %v from", kind(peer), peer)
}
