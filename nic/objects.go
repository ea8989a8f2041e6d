package nic

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/verbs"
)

// pageSize is what memory of the device's making is aligned to.
const pageSize = 4096

// pd is a protection domain; under NIC.mu.
type pd struct {
	slot     uint32
	id       mr.PD
	mrs, mws int
	qps      int
	others   int // shared receive queues and address handles
}

// region is a registered memory region; under NIC.mu.
type region struct {
	slot uint32
	pd   *pd
	key  uint32
}

// AllocPD allocates a protection domain.
func (n *NIC) AllocPD() (verbs.Handle, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return 0, err
	}
	slot, h, ok := n.pds.reserve(MaxPD)
	if !ok {
		return 0, fmt.Errorf("%w: %d protection domains; destroy some", ErrLimit, MaxPD)
	}
	n.pds.put(slot, h, &pd{slot: slot, id: mr.PD(h)})
	return h, nil
}

func (n *NIC) destroyPD(h verbs.Handle) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pds.get(h)
	switch {
	case p == nil:
		return n.missing("protection domain", h)
	case p.mrs > 0 || p.mws > 0 || p.qps > 0 || p.others > 0:
		return fmt.Errorf("%w: protection domain %#x has %d memory regions, %d memory windows, %d queue pairs, %d shared receive queues and address handles; destroy them first", ErrInUse, uint32(h), p.mrs, p.mws, p.qps, p.others)
	}
	n.pds.release(p.slot)
	return nil
}

// RegMR registers memory. The device holds it until the region is destroyed.
//
// Memory that the device makes is heap memory too: it is without pointers, so
// the collector does not look into it, and it stays valid for as long as
// anybody has a slice of it, even after Deregister.
func (n *NIC) RegMR(r verbs.MRReq) (verbs.MRInfo, error) {
	if r.Mem == nil && r.Len < 0 || len(r.Mem) > 0 && r.Len > len(r.Mem) {
		return verbs.MRInfo{}, fmt.Errorf("nic: a region of %d octets in memory of %d", r.Len, len(r.Mem))
	}
	if r.Mem == nil && r.Len > 0 {
		var err error
		if r.Mem, err = pages(r.Len); err != nil {
			return verbs.MRInfo{}, err
		}
	}
	if r.DefaultIOVA {
		r.IOVA = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.Mem))))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return verbs.MRInfo{}, err
	}
	p := n.pds.get(r.PD)
	if p == nil {
		return verbs.MRInfo{}, noObject("protection domain", r.PD)
	}
	slot, h, ok := n.mrs.reserve(MaxMR)
	if !ok {
		return verbs.MRInfo{}, fmt.Errorf("%w: %d memory regions; deregister some, or register larger ones", ErrLimit, MaxMR)
	}
	reg, err := n.regions.Register(mr.Region{PD: p.id, IOVA: r.IOVA, Mem: r.Mem, Access: r.Access})
	if err != nil {
		n.mrs.release(slot)
		return verbs.MRInfo{}, err
	}
	p.mrs++
	n.mrs.put(slot, h, &region{slot: slot, pd: p, key: reg.Key})
	return verbs.MRInfo{Handle: h, Mem: r.Mem, IOVA: r.IOVA, LKey: reg.Key, RKey: reg.Key}, nil
}

// deregister ends a region. When it returns, no step uses the memory. It refuses
// while windows are bound to the region, as ibv_dereg_mr does.
func (n *NIC) deregister(h verbs.Handle) error {
	n.mu.Lock()
	r := n.mrs.get(h)
	if r == nil {
		n.mu.Unlock()
		return n.missing("memory region", h)
	}
	err := n.regions.Deregister(r.key)
	if errors.Is(err, mr.ErrBound) {
		n.mu.Unlock()
		return fmt.Errorf("%w: %w %#x; unbind, invalidate or deallocate them first", ErrInUse, err, uint32(h))
	}
	n.mrs.release(r.slot)
	r.pd.mrs--
	n.mu.Unlock()
	n.barrier()
	return err
}

// Destroy frees an object. It refuses while others are made of it.
func (n *NIC) Destroy(k verbs.ObjectKind, h verbs.Handle) error {
	switch k {
	case verbs.KindPD:
		return n.destroyPD(h)
	case verbs.KindMR:
		return n.deregister(h)
	case verbs.KindMW:
		return n.deallocMW(h)
	case verbs.KindCQ:
		return n.destroyCQ(h)
	case verbs.KindQP:
		return n.destroyQP(h)
	case verbs.KindSRQ:
		return n.destroySRQ(h)
	case verbs.KindAH:
		return n.destroyAH(h)
	}
	return fmt.Errorf("nic: objects of kind %d: %w", k, verbs.ErrNotSupported)
}
