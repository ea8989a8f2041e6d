package mr

import (
	"sync/atomic"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// Owner is a queue pair as far as windows of type 2 go: such a window belongs
// to the queue pair that bound it. It is never given out twice, so a window does
// not outlive its queue pair in the hands of another.
type Owner uint64

// NewOwner returns an Owner that nobody had before.
func (t *Table) NewOwner() Owner { return Owner(t.owners.Add(1)) }

// Window is a memory window: a key to a part of a region with rights of its
// own. Its key shares the numbers of regions' keys, of which bind after bind
// changes the low 8 bits.
//
//	type 1:  unbound <--Bind--> bound --Bind--> bound to something else
//	type 2:  free --Bind--> bound --Invalidate--> free
//
// Steps of several shards use a window at once, without a lock. Whoever changes
// it first looks at it and then claims what it looked at: seq is odd while it
// changes, and what was read is good if seq stayed even and the same. Who meets
// a change is refused as if it had come after it: the old key is at its end and
// nobody has been told the new one.
type Window struct {
	PD   PD
	Type verbs.MWType

	slot   uint32
	seq    atomic.Uint32
	key    atomic.Uint32
	access atomic.Uint32
	owner  atomic.Uint64
	addr   atomic.Uint64 // of the first octet, as peers count
	off    atomic.Uint64 // of the first octet, in the region
	length atomic.Uint64
	region atomic.Pointer[Region] // nil when not bound
}

// Key returns the window's key as it is.
func (w *Window) Key() uint32 { return w.key.Load() }

// AllocWindow adds a window that is bound to nothing.
func (t *Table) AllocWindow(pd PD, typ verbs.MWType) (*Window, error) {
	slot, err := t.take()
	if err != nil {
		return nil, err
	}
	w := &Window{PD: pd, Type: typ, slot: slot}
	key := t.nextKey(slot)
	w.key.Store(key)
	(*t.slots.Load())[slot].Store(&Region{Key: key, window: w})
	return w, nil
}

// FreeWindow removes a window, bound or not, while the caller keeps all steps from
// running: a bind in progress would hold the region for ever.
func (t *Table) FreeWindow(w *Window) {
	(*t.slots.Load())[w.slot].Store(nil)
	if r := w.region.Swap(nil); r != nil {
		r.release()
	}
	t.gen[w.slot] = uint8(w.Key())
	t.free = append(t.free, w.slot)
}

// window returns the window with this key, or nil, and its seq to claim it with.
func (t *Table) window(key uint32) (*Window, uint32) {
	if r := t.at(key); r != nil && r.window != nil {
		w := r.window
		if s := w.seq.Load(); s&1 == 0 && w.key.Load() == key {
			return w, s
		}
	}
	return nil, 0
}

// windowAccess are the rights that a window may have.
const windowAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessZeroBased

// Bind binds a window for the queue pair of pd that is as, or unbinds it, and
// gives it its new key; otherwise it returns trace.FailMemory and changes
// nothing. IBA 10.6.7.2, C10-72 to C10-75.
func (t *Table) Bind(pd PD, as Owner, b verbs.Bind) trace.Reason {
	w, s := t.window(b.Key)
	if w == nil || w.PD != pd || (b.Key^b.NewKey)>>8 != 0 || b.Access&^windowAccess != 0 {
		return trace.FailMemory
	}
	if w.Type == verbs.MWType1 {
		if b.Access&verbs.AccessZeroBased != 0 {
			return trace.FailMemory
		}
	} else if w.region.Load() != nil || b.Length == 0 { // invalidate it first; unbinding is invalidating
		return trace.FailMemory
	}
	var r *Region
	var off uint64
	if b.Length > 0 {
		r = t.Lookup(b.LKey)
		switch {
		case r == nil || r.PD != pd || r.Access&verbs.AccessMWBind == 0:
			return trace.FailMemory
		case b.Access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && r.Access&verbs.AccessLocalWrite == 0:
			return trace.FailMemory
		}
		off = b.Addr - r.IOVA // wraps to something huge when it is below
		if n := uint64(len(r.Mem)); off > n || b.Length > n-off || !r.retain() {
			return trace.FailMemory
		}
	}
	if !w.seq.CompareAndSwap(s, s+1) {
		if r != nil {
			r.release()
		}
		return trace.FailMemory
	}
	addr := b.Addr
	if b.Access&verbs.AccessZeroBased != 0 {
		addr = 0
	}
	w.key.Store(b.NewKey)
	w.access.Store(uint32(b.Access))
	w.owner.Store(uint64(as))
	w.addr.Store(addr)
	w.off.Store(off)
	w.length.Store(b.Length)
	old := w.region.Swap(r)
	w.seq.Store(s + 2)
	if old != nil {
		old.release()
	}
	return trace.None
}

// Invalidate frees a bound window of type 2 for the queue pair of pd that bound
// it. Otherwise it reports false and changes nothing: a region that was
// registered is never invalidated, as in Linux, nor a window of type 1 (IBA
// o10-37.2.26).
func (t *Table) Invalidate(pd PD, as Owner, key uint32) bool {
	w, s := t.window(key)
	if w == nil || w.PD != pd || w.Type != verbs.MWType2 || Owner(w.owner.Load()) != as || w.region.Load() == nil {
		return false
	}
	if !w.seq.CompareAndSwap(s, s+1) {
		return false
	}
	old := w.region.Swap(nil)
	w.seq.Store(s + 2)
	if old != nil {
		old.release()
	}
	return true
}

// resolve is Resolve for a peer of the queue pair that is as.
//
//gorxe:hot
func (w *Window) resolve(pd PD, as Owner, key uint32, addr uint64, n int, need verbs.Access) ([]byte, trace.Reason) {
	s := w.seq.Load()
	r, length := w.region.Load(), w.length.Load()
	off := addr - w.addr.Load()
	start := w.off.Load()
	switch {
	case w.PD != pd || w.key.Load() != key || verbs.Access(w.access.Load())&need != need:
		return nil, trace.FailAccess
	case r == nil || w.Type == verbs.MWType2 && Owner(w.owner.Load()) != as:
		return nil, trace.FailAccess
	case off > length || uint64(n) > length-off:
		return nil, trace.FailAccess
	case s&1 != 0 || w.seq.Load() != s:
		return nil, trace.FailAccess
	}
	off += start
	return r.Mem[off : off+uint64(n) : off+uint64(n)], trace.None
}

// retain counts a window that is bound to the region; it reports false when the
// region is being deregistered.
func (r *Region) retain() bool {
	for {
		n := atomic.LoadInt32(&r.windows)
		if n < 0 {
			return false
		}
		if atomic.CompareAndSwapInt32(&r.windows, n, n+1) {
			return true
		}
	}
}

func (r *Region) release() { atomic.AddInt32(&r.windows, -1) }
