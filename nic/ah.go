package nic

import (
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// ah is an address handle: a flow for each shard, since a flow caches what it
// was sealed with and the source port is the link's to choose.
type ah struct {
	slot  uint32
	pd    *pd
	flows []wire.Flow // by shard; used with the shard's lock held
}

// CreateAH makes an address handle.
func (n *NIC) CreateAH(h verbs.Handle, av *verbs.AV) (verbs.Handle, error) {
	if av.SL > 7 {
		return 0, fmt.Errorf("nic: service level %d, the range is 0..7", av.SL)
	}
	if err := n.Err(); err != nil {
		return 0, err
	}
	a := &ah{flows: make([]wire.Flow, len(n.shards))}
	for i, s := range n.shards {
		// mlx5 sends what has no flow label from the first port of its range
		// (mlx5_get_roce_udp_sport_min): a datagram has no pair of numbers.
		if err := n.route(&a.flows[i], s, av, sourcePort(0, 0, av.FlowLabel)); err != nil {
			return 0, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return 0, err
	}
	if a.pd = n.pds.get(h); a.pd == nil {
		return 0, noObject("protection domain", h)
	}
	slot, handle, ok := n.ahs.reserve(MaxAH)
	if !ok {
		return 0, fmt.Errorf("%w: %d address handles; destroy some", ErrLimit, MaxAH)
	}
	a.slot = slot
	a.pd.others++
	n.ahs.put(slot, handle, a)
	return handle, nil
}

func (n *NIC) destroyAH(h verbs.Handle) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.ahs.get(h)
	if a == nil {
		return n.missing("address handle", h)
	}
	n.ahs.release(a.slot)
	a.pd.others--
	return nil
}

// addresses is the address handles as the queue pairs of one shard see them: a
// ud.Addresses.
type addresses struct{ s *shard }

// Flow returns what an address handle stands for, or nil.
//
//gorxe:hot
func (x addresses) Flow(d mr.PD, handle uint32) *wire.Flow {
	a := x.s.n.ahs.get(verbs.Handle(handle))
	if a == nil || a.pd.id != d {
		return nil
	}
	return &a.flows[x.s.index]
}

// route fills in an address vector's form on the wire, for the link of a shard.
func (n *NIC) route(f *wire.Flow, s *shard, av *verbs.AV, port uint16) error {
	p := n.port.Load()
	if av.SGIDIndex < 0 || av.SGIDIndex >= len(p.GIDs) {
		return fmt.Errorf("nic: GID index %d: the table has 0..%d", av.SGIDIndex, len(p.GIDs)-1)
	}
	src, dst := p.GIDs[av.SGIDIndex].GID.Addr(), av.DGID.Addr()
	if err := n.checkPath(p, av.SGIDIndex, src, dst); err != nil {
		return err
	}
	if av.SL > n.cfg.MaxSL && av.SL <= 7 { // the system would refuse each packet
		return fmt.Errorf("nic: service level %d: this program may use 0..%d; more needs CAP_NET_ADMIN or CAP_NET_RAW (run as root)", av.SL, n.cfg.MaxSL)
	}
	mbps, ok := av.StaticRate.Mbps()
	if !ok {
		return fmt.Errorf("nic: static rate %d means nothing: it takes a code of ibv_rate, such as 2 (2.5 Gb/s), 3 (10 Gb/s) or 7 (40 Gb/s), or 0 for none", av.StaticRate)
	}
	*f = wire.Flow{Src: src, Dst: dst, SrcPort: port, TOS: av.TrafficClass, TTL: av.HopLimit, Priority: av.SL, Rate: int64(mbps) * 1e6}
	if f.TTL == 0 {
		f.TTL = defaultTTL
	}
	if dst.IsLinkLocalUnicast() || dst.IsMulticast() {
		f.Scope = p.Scope
	}
	if r, ok := s.link.(link.PortResolver); ok && !p.own[dst] {
		var err error
		if f.SrcPort, err = r.ResolvePort(src, port); err != nil {
			return fmt.Errorf("nic: no source port from %v: %w", src, err)
		}
	}
	return nil
}

// sameScope reports whether a packet can go from one address to another.
func sameScope(src, dst netip.Addr) bool {
	return src.Is4() == dst.Is4() && (dst.IsMulticast() || src.IsLinkLocalUnicast() == dst.IsLinkLocalUnicast())
}
