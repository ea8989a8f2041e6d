package mr

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gorxe/gorxe/internal/perm"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// PD is a protection domain.
type PD uint32

// Region is a registered memory region. What is public of it does not change once
// it is in a Table.
type Region struct {
	PD     PD
	IOVA   uint64 // address of the first octet
	Mem    []byte
	Access verbs.Access
	Key    uint32 // L_Key and R_Key

	windows int32   // bound to it, atomically; -1 once it is deregistered
	window  *Window // the entry is not a region but a window
}

// Table holds the regions and windows of a device. A key is 24 bits of slot, through a
// keyed permutation, above 8 bits that count how often the slot was used.
type Table struct {
	perm  *perm.Perm
	slots atomic.Pointer[[]atomic.Pointer[Region]]
	gen   []uint8
	free  []uint32 // oldest first
	used  int

	owners atomic.Uint64
}

const (
	keySlotBits = 24

	// reuseAfter is how many slots are freed after one before it is used
	// again, so that a key comes back only after so many times 256 regions:
	// who still holds it must not meet a stranger's memory.
	reuseAfter = 1024
)

// MaxRegions is how many regions a table holds.
const MaxRegions = 1<<keySlotBits - 1

// NewTable returns an empty table whose keys depend on seed.
func NewTable(seed uint64) *Table {
	t := &Table{perm: perm.New(keySlotBits, seed)}
	s := make([]atomic.Pointer[Region], 0)
	t.slots.Store(&s)
	return t
}

// Errors of registration.
var (
	ErrNoKey = errors.New("mr: no region has this key")
	ErrFull  = errors.New("mr: the region table is full")
	ErrBound = errors.New("mr: memory windows are bound to the region")
)

// Register adds a region and returns it with its key. The memory is held until
// Deregister.
func (t *Table) Register(r Region) (*Region, error) {
	if uint64(len(r.Mem)) > 0 && r.IOVA+uint64(len(r.Mem))-1 < r.IOVA {
		return nil, fmt.Errorf("mr: region of %d octets at %#x wraps the address space", len(r.Mem), r.IOVA)
	}
	slot, err := t.take()
	if err != nil {
		return nil, err
	}
	r.Key = t.nextKey(slot)
	p := &r
	(*t.slots.Load())[slot].Store(p)
	return p, nil
}

// take takes a slot: one that rested long enough, or a new one.
func (t *Table) take() (slot uint32, err error) {
	slots := *t.slots.Load()
	switch {
	case len(t.free) > reuseAfter || len(t.free) > 0 && t.used == MaxRegions:
		slot, t.free = t.free[0], t.free[1:]
	case t.used < MaxRegions:
		slot = uint32(t.used)
		if t.used == len(slots) {
			grown := make([]atomic.Pointer[Region], max(64, 2*len(slots)))
			for i := range slots {
				grown[i].Store(slots[i].Load())
			}
			slots = grown
			t.slots.Store(&grown)
			t.gen = append(t.gen, make([]uint8, len(grown)-len(t.gen))...)
		}
		t.used++
	default:
		return 0, ErrFull
	}
	return slot, nil
}

// nextKey returns the key for another use of a slot.
func (t *Table) nextKey(slot uint32) uint32 {
	t.gen[slot]++
	return t.perm.Map(slot)<<8 | uint32(t.gen[slot])
}

// Deregister removes the region with this key, unless windows are bound to it
// (ErrBound). A step that has looked it up
// may still use it: the caller waits for steps in progress before it lets go
// of the memory.
func (t *Table) Deregister(key uint32) error {
	slot := t.perm.Unmap(key >> 8)
	r := t.Lookup(key)
	switch {
	case r == nil:
		return ErrNoKey
	case !atomic.CompareAndSwapInt32(&r.windows, 0, -1):
		return ErrBound
	}
	(*t.slots.Load())[slot].Store(nil)
	t.free = append(t.free, slot)
	return nil
}

// Len returns how many regions and windows there are.
func (t *Table) Len() int { return t.used - len(t.free) }

// Lookup returns the region with this key, or nil.
//
//gorxe:hot
func (t *Table) Lookup(key uint32) *Region {
	if r := t.at(key); r != nil && r.Key == key && r.window == nil {
		return r
	}
	return nil
}

// at returns what is in the slot of a key, or nil.
func (t *Table) at(key uint32) *Region {
	slot := t.perm.Unmap(key >> 8)
	if s := *t.slots.Load(); int(slot) < len(s) {
		return s[slot].Load()
	}
	return nil
}

// Resolve returns the n octets at addr of the region with this key, if it
// belongs to pd and permits need. Otherwise the reason is trace.FailAccess.
// With need 0 any region of the domain may be read. Windows are for peers alone:
// their keys give nothing here (IBA 10.6.7).
//
//gorxe:hot
func (t *Table) Resolve(pd PD, key uint32, addr uint64, n int, need verbs.Access) ([]byte, trace.Reason) {
	return t.at(key).resolve(pd, key, addr, n, need)
}

// resolve is Resolve for what is in the slot of a key, nil for nothing.
func (r *Region) resolve(pd PD, key uint32, addr uint64, n int, need verbs.Access) ([]byte, trace.Reason) {
	if r == nil || r.Key != key || r.window != nil || r.PD != pd || r.Access&need != need {
		return nil, trace.FailAccess
	}
	off := addr - r.IOVA // wraps to something huge when addr is below
	if off > uint64(len(r.Mem)) || uint64(n) > uint64(len(r.Mem))-off {
		return nil, trace.FailAccess
	}
	return r.Mem[off : off+uint64(n) : off+uint64(n)], trace.None
}

// Remote is Resolve for a peer of the queue pair that is as: a window's key is as
// good as a region's.
//
//gorxe:hot
func (t *Table) Remote(pd PD, as Owner, key uint32, addr uint64, n int, need verbs.Access) ([]byte, trace.Reason) {
	r := t.at(key)
	if r != nil && r.window != nil {
		return r.window.resolve(pd, as, key, addr, n, need)
	}
	return r.resolve(pd, key, addr, n, need)
}
