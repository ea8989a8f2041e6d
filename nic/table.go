package nic

import (
	"sync/atomic"

	"github.com/gorxe/gorxe/verbs"
)

const (
	handleSlotBits = 20
	handleSlots    = 1<<handleSlotBits - 1 // slot 2^20-1 has no handle

	// reuseAfter is how many slots are freed after one before it is used
	// again, so that what is late for the old object does not meet a new one.
	reuseAfter = 1024
)

// table maps handles to objects of one kind. A handle is a slot plus 1 below
// 12 bits that count the slot's uses. get and at are lock-free; the rest is
// serialised by the caller.
type table[T any] struct {
	slots atomic.Pointer[[]atomic.Pointer[entry[T]]]
	gen   []uint16
	free  []uint32 // oldest first
	used  int      // slots ever used
	live  int
}

type entry[T any] struct {
	h verbs.Handle
	v *T
}

// reserve takes a slot; ok is false when limit objects exist already.
func (t *table[T]) reserve(limit int) (slot uint32, h verbs.Handle, ok bool) {
	if t.live >= min(limit, handleSlots) {
		return 0, 0, false
	}
	if len(t.free) > reuseAfter || len(t.free) > 0 && t.used == handleSlots {
		slot, t.free = t.free[0], t.free[1:]
	} else {
		slot = uint32(t.used)
		t.used++
		t.grow()
	}
	t.live++
	t.gen[slot]++
	return slot, verbs.Handle(uint32(t.gen[slot])<<handleSlotBits | slot + 1), true
}

func (t *table[T]) grow() {
	var old []atomic.Pointer[entry[T]]
	if p := t.slots.Load(); p != nil {
		old = *p
	}
	if t.used <= len(old) {
		return
	}
	s := make([]atomic.Pointer[entry[T]], max(16, 2*len(old)))
	for i := range old {
		s[i].Store(old[i].Load())
	}
	t.slots.Store(&s)
	t.gen = append(t.gen, make([]uint16, len(s)-len(t.gen))...)
}

// put makes an object visible in a reserved slot.
func (t *table[T]) put(slot uint32, h verbs.Handle, v *T) {
	(*t.slots.Load())[slot].Store(&entry[T]{h, v})
}

// release empties a slot.
func (t *table[T]) release(slot uint32) {
	(*t.slots.Load())[slot].Store(nil)
	t.free = append(t.free, slot)
	t.live--
}

// at returns the object in a slot, or nil.
func (t *table[T]) at(slot uint32) *T {
	p := t.slots.Load()
	if p == nil || int(slot) >= len(*p) {
		return nil
	}
	if e := (*p)[slot].Load(); e != nil {
		return e.v
	}
	return nil
}

// get returns the object with a handle, or nil.
func (t *table[T]) get(h verbs.Handle) *T {
	p, slot := t.slots.Load(), uint32(h)&(1<<handleSlotBits-1)-1
	if p == nil || int(slot) >= len(*p) {
		return nil
	}
	if e := (*p)[slot].Load(); e != nil && e.h == h {
		return e.v
	}
	return nil
}
