package nic

import (
	"fmt"

	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/verbs"
)

// window is a memory window; under NIC.mu.
type window struct {
	slot uint32
	pd   *pd
	w    *mr.Window
}

// AllocMW allocates a memory window. Queue pairs bind it.
func (n *NIC) AllocMW(r verbs.MWReq) (verbs.MWInfo, error) {
	if r.Type != verbs.MWType1 && r.Type != verbs.MWType2 {
		return verbs.MWInfo{}, fmt.Errorf("nic: memory windows of type %d: %w: there are 1 and 2", r.Type, verbs.ErrNotSupported)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return verbs.MWInfo{}, err
	}
	p := n.pds.get(r.PD)
	if p == nil {
		return verbs.MWInfo{}, noObject("protection domain", r.PD)
	}
	slot, h, ok := n.mws.reserve(MaxMW)
	if !ok {
		return verbs.MWInfo{}, fmt.Errorf("%w: %d memory windows; deallocate some", ErrLimit, MaxMW)
	}
	w, err := n.regions.AllocWindow(p.id, r.Type)
	if err != nil {
		n.mws.release(slot)
		return verbs.MWInfo{}, err
	}
	p.mws++
	n.mws.put(slot, h, &window{slot: slot, pd: p, w: w})
	return verbs.MWInfo{Handle: h, RKey: w.Key()}, nil
}

// deallocMW frees a window, bound or not. All shards stand still for it, so when it
// returns no step binds it or uses memory through it.
func (n *NIC) deallocMW(h verbs.Handle) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.mws.get(h)
	if w == nil {
		return n.missing("memory window", h)
	}
	n.mws.release(w.slot)
	w.pd.mws--
	n.lockAll()
	n.regions.FreeWindow(w.w)
	n.unlockAll()
	return nil
}
