package nic

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// groups is which queue pairs are attached to which multicast address. It is
// copied to be changed: receivers read it without a lock.
type groups map[netip.Addr][]*qp

// members returns the queue pairs attached to a group.
func (n *NIC) members(a netip.Addr) []*qp {
	if g := n.mcast.Load(); g != nil {
		return (*g)[a]
	}
	return nil
}

// AttachMulticast makes a UD queue pair receive what is sent to a group. The
// first of a group makes the device join it. Attaching again changes nothing.
func (n *NIC) AttachMulticast(h verbs.Handle, group verbs.GID) error {
	a := group.Addr()
	if !a.IsMulticast() {
		return fmt.Errorf("nic: %v is not a multicast address (IPv4 224.0.0.0/4, IPv6 ff00::/8)", a)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return err
	}
	q := n.qps.get(h)
	switch m := n.members(a); {
	case q == nil:
		return n.missing("queue pair", h)
	case q.class != bth.UD:
		return fmt.Errorf("nic: a %v queue pair has no multicast: %w; create it with type UD", q.class, verbs.ErrNotSupported)
	case slices.Contains(m, q):
		return nil
	case len(m) >= maxGroupQPs:
		return fmt.Errorf("%w: %d queue pairs are attached to %v", ErrLimit, len(m), a)
	case len(m) == 0:
		if err := n.join(a); err != nil {
			return err
		}
	}
	n.setMembers(a, append(slices.Clone(n.members(a)), q))
	return nil
}

// DetachMulticast ends what AttachMulticast began.
func (n *NIC) DetachMulticast(h verbs.Handle, group verbs.GID) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.qps.get(h)
	if q == nil {
		return n.missing("queue pair", h)
	}
	if !slices.Contains(n.members(group.Addr()), q) {
		return fmt.Errorf("nic: queue pair %#06x is not attached to %v", uint32(q.qpn), group.Addr())
	}
	return n.detach(q, group.Addr())
}

// detachAll takes a queue pair out of every group. NIC.mu is held.
func (n *NIC) detachAll(q *qp) (err error) {
	g := n.mcast.Load()
	if g == nil {
		return nil
	}
	for a, m := range *g {
		if slices.Contains(m, q) {
			err = errors.Join(err, n.detach(q, a))
		}
	}
	return err
}

func (n *NIC) detach(q *qp, a netip.Addr) error {
	left := slices.DeleteFunc(slices.Clone(n.members(a)), func(x *qp) bool { return x == q })
	n.setMembers(a, left)
	if j, ok := n.shards[0].link.(link.GroupJoiner); ok && len(left) == 0 {
		if err := j.LeaveGroup(a); err != nil && !errors.Is(err, link.ErrClosed) {
			return fmt.Errorf("nic: leaving %v: %w", a, err)
		}
	}
	return nil
}

// join makes the device receive for a group, on the link of shard 0.
func (n *NIC) join(a netip.Addr) error {
	if len(n.groupsNow()) >= MaxGroups {
		return fmt.Errorf("%w: the device is in %d multicast groups", ErrLimit, MaxGroups)
	}
	j, ok := n.shards[0].link.(link.GroupJoiner)
	if !ok {
		return fmt.Errorf("nic: link %s has no multicast: %w", n.shards[0].info.Name, verbs.ErrNotSupported)
	}
	if err := j.JoinGroup(a); err != nil {
		return fmt.Errorf("nic: joining %v at %s: %w", a, n.netDev(), err)
	}
	return nil
}

func (n *NIC) groupsNow() groups {
	if g := n.mcast.Load(); g != nil {
		return *g
	}
	return nil
}

func (n *NIC) setMembers(a netip.Addr, m []*qp) {
	g := groups{}
	maps.Copy(g, n.groupsNow())
	if g[a] = m; len(m) == 0 {
		delete(g, a)
	}
	n.mcast.Store(&g)
}

// multicast delivers a packet to every queue pair attached to its group: to
// those of this shard here, and by the inbox of each other shard to that's.
// What came by the inbox goes no further. A queue pair does not get what it sent
// itself. It returns trace.None when one here took it, otherwise
// trace.DropStray when others may, or why none did. Annex A17.4.5; IBA 10.5.2.1.
func (s *shard) multicast(now int64, f *from, p *bth.Packet, b []byte) trace.Reason {
	members := s.n.members(f.dst)
	switch {
	case !f.dst.IsMulticast() || p.DestQP != bth.QPNMulticast:
		return s.drop(nil, trace.DropAddress, p)
	case len(members) == 0:
		return s.drop(nil, trace.DropGroup, p)
	case !f.handed && s.n.isOwn(f.src):
		return s.drop(nil, trace.DropLoopback, p)
	}
	mine := s.n.isOwn(f.src)
	told := uint32(1 << s.index)
	why := trace.DropLoopback // what nobody but its sender is here for
	for _, q := range members {
		r := trace.DropLoopback
		switch {
		case mine && q.qpn == p.SrcQP && p.Info().Class == bth.UD:
		case q.s == s:
			r = s.deliver(now, q, f, p, b)
		case !f.handed && told>>q.s.index&1 == 0:
			told |= 1 << q.s.index
			r = s.stray(q.s, f, p, b)
		}
		if r == trace.None || r == trace.DropStray && why != trace.None || why == trace.DropLoopback {
			why = r
		}
	}
	return why
}

// loopback hands the first k segments of a burst, which have left for a
// multicast group, to the queue pairs of this device.
func (s *shard) loopback(b *wire.Burst, k int) {
	told := uint32(0)
	for _, q := range s.n.members(b.Flow.Dst) {
		if told>>q.s.index&1 != 0 {
			continue
		}
		told |= 1 << q.s.index
		n := q.s.inbox.putBurst(b, k)
		s.stats.hairpin += uint64(n)
		s.counts[trace.DropOverflow] += uint64(k - n)
		if q.s != s {
			q.s.kick()
		}
	}
}
