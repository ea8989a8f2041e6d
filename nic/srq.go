package nic

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorxe/gorxe/verbs"
)

// srq is a shared receive queue. Queue pairs of several shards may take from
// it; only then is it locked.
type srq struct {
	n      *NIC
	h      verbs.Handle
	slot   uint32
	pd     *pd
	ring   *verbs.RecvRing
	maxSGE int

	feeders atomic.Uint32 // bit per shard
	shared  bool          // written with every shard locked
	mu      sync.Mutex    // guards ring when shared
	failed  bool          // its ring is unusable; guarded like it
	limit   atomic.Int32  // armed when not 0
	users   int           // queue pairs; under NIC.mu
}

// CreateSRQ creates a shared receive queue.
func (n *NIC) CreateSRQ(r verbs.SRQReq) (verbs.SRQInfo, error) {
	return n.createSRQ(r, nil)
}

// createSRQ creates one whose ring is in a client's memory, or with none the
// process's own.
func (n *NIC) createSRQ(r verbs.SRQReq, mem []byte) (verbs.SRQInfo, error) {
	if r.MaxWR < 1 || r.MaxWR > verbs.MaxSRQWR || r.MaxSGE < 1 || r.MaxSGE > verbs.MaxSGE {
		return verbs.SRQInfo{}, fmt.Errorf("nic: a shared receive queue of %d requests with %d entries each, the limits are %d and %d", r.MaxWR, r.MaxSGE, verbs.MaxSRQWR, verbs.MaxSGE)
	}
	if mem == nil {
		mem = verbs.NewRingMem(r.MaxWR * verbs.RecvUnits(r.MaxSGE))
	}
	ring, ok := verbs.NewRecvRing(mem, r.MaxSGE)
	if !ok {
		return verbs.SRQInfo{}, fmt.Errorf("nic: memory of %d octets for a receive ring has a wrong size or alignment", len(mem))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return verbs.SRQInfo{}, err
	}
	p := n.pds.get(r.PD)
	if p == nil {
		return verbs.SRQInfo{}, noObject("protection domain", r.PD)
	}
	slot, h, ok := n.srqs.reserve(MaxSRQ)
	if !ok {
		return verbs.SRQInfo{}, fmt.Errorf("%w: %d shared receive queues; destroy some", ErrLimit, MaxSRQ)
	}
	p.others++
	n.srqs.put(slot, h, &srq{n: n, h: h, slot: slot, pd: p, ring: ring, maxSGE: r.MaxSGE})
	return verbs.SRQInfo{Handle: h, Ring: mem}, nil
}

func (n *NIC) destroySRQ(h verbs.Handle) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.srqs.get(h)
	switch {
	case q == nil:
		return n.missing("shared receive queue", h)
	case q.users > 0:
		return fmt.Errorf("%w: shared receive queue %#x has %d queue pairs; destroy them first", ErrInUse, uint32(h), q.users)
	}
	n.srqs.release(q.slot)
	q.pd.others--
	return nil
}

// ModifySRQ arms the limit of a shared receive queue, or with 0 disarms it.
func (n *NIC) ModifySRQ(h verbs.Handle, limit int) error {
	q := n.srqs.get(h)
	if q == nil || n.Err() != nil {
		return n.missing("shared receive queue", h)
	}
	if limit < 0 || limit > verbs.MaxSRQWR {
		return fmt.Errorf("nic: a limit of %d, the range is 0..%d", limit, verbs.MaxSRQWR)
	}
	n.lockAll()
	defer n.unlockAll()
	q.limit.Store(int32(limit))
	q.check()
	return nil
}

// QuerySRQ returns the limit that is armed, 0 when none is.
func (n *NIC) QuerySRQ(h verbs.Handle) (int, error) {
	q := n.srqs.get(h)
	if q == nil || n.Err() != nil {
		return 0, n.missing("shared receive queue", h)
	}
	return int(q.limit.Load()), nil
}

// check reports the limit once when fewer requests are left. IBA 10.2.9.3.
func (q *srq) check() {
	if l := q.limit.Load(); l != 0 && q.ring.Len() < int(l) {
		q.limit.Store(0)
		q.n.event(verbs.AsyncEvent{Type: verbs.EventSRQLimit, SRQ: q.h})
	}
}

// feed makes a shard one of those whose queue pairs take from the queue; see
// cq.feed.
func (q *srq) feed(s *shard) {
	f := q.feeders.Load()
	q.shared = q.shared || f != 0 && f != 1<<s.index
	q.feeders.Store(f | 1<<s.index)
}

// Fetch takes the next request: a transport.RecvSource. A ring whose producer's
// index makes no sense gives one malformed request, and then none: the event
// tells of it.
//
//gorxe:hot
func (q *srq) Fetch(sgl []verbs.SGE) (id verbs.RecvID, n int, ok bool) {
	if q.shared {
		q.mu.Lock()
		defer q.mu.Unlock()
	}
	id, n, ok = q.ring.Fetch(sgl)
	if n < 0 && q.ring.Broken() && !q.failed {
		q.failed = true
		q.n.event(verbs.AsyncEvent{Type: verbs.EventSRQErr, SRQ: q.h})
	}
	if q.limit.Load() != 0 {
		q.check()
	}
	return id, n, ok
}
