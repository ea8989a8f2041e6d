package mr

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

const bindable = verbs.AccessAll | verbs.AccessMWBind

func allocWindow(t *testing.T, tab *Table, pd PD, typ verbs.MWType) *Window {
	t.Helper()
	w, err := tab.AllocWindow(pd, typ)
	require.NoError(t, err)
	return w
}

// next is a bind of w under its next key.
func next(w *Window, r *Region, off, n uint64, a verbs.Access) verbs.Bind {
	return verbs.Bind{Key: w.Key(), NewKey: verbs.NextRKey(w.Key()), LKey: r.Key, Addr: r.IOVA + off, Length: n, Access: a}
}

// TestWindow: which octets a window gives, to whom and for what.
func TestWindow(t *testing.T) {
	tab := NewTable(1)
	me, other := tab.NewOwner(), tab.NewOwner()
	mem := make([]byte, 4096)
	r := register(t, tab, Region{PD: 7, IOVA: 0x10000, Mem: mem, Access: bindable})
	one, two, zero := allocWindow(t, tab, 7, verbs.MWType1), allocWindow(t, tab, 7, verbs.MWType2), allocWindow(t, tab, 7, verbs.MWType2)
	rw := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	require.Equal(t, trace.None, tab.Bind(7, me, next(one, r, 16, 8, rw)))
	require.Equal(t, trace.None, tab.Bind(7, me, next(two, r, 16, 8, verbs.AccessRemoteAtomic)))
	require.Equal(t, trace.None, tab.Bind(7, me, next(zero, r, 16, 8, rw|verbs.AccessZeroBased)))
	w, ww, a := verbs.AccessRemoteWrite, rw, verbs.AccessRemoteAtomic
	for _, c := range []struct {
		name string
		pd   PD
		as   Owner
		key  uint32
		addr uint64
		n    int
		need verbs.Access
		ok   bool
	}{
		{"all of it", 7, me, one.Key(), 0x10010, 8, ww, true},
		{"an end", 7, me, one.Key(), 0x10017, 1, w, true},
		{"nothing, at the end", 7, me, one.Key(), 0x10018, 0, w, true},
		{"nothing, beyond", 7, me, one.Key(), 0x10019, 0, w, false},
		{"one too many", 7, me, one.Key(), 0x10010, 9, w, false},
		{"one below", 7, me, one.Key(), 0x1000f, 1, w, false},
		{"far below", 7, me, one.Key(), 0, 1, w, false},
		{"wraps", 7, me, one.Key(), math.MaxUint64, 0x10012, w, false},
		{"another domain", 8, me, one.Key(), 0x10010, 8, w, false},
		{"type 1, another queue pair", 7, other, one.Key(), 0x10010, 8, w, true},
		{"type 2", 7, me, two.Key(), 0x10010, 8, a, true},
		{"type 2, another queue pair", 7, other, two.Key(), 0x10010, 8, a, false},
		{"type 2, another domain", 8, me, two.Key(), 0x10010, 8, a, false},
		{"a right it lacks", 7, me, one.Key(), 0x10010, 8, a, false},
		{"one of two rights", 7, me, two.Key(), 0x10010, 8, a | w, false},
		{"the key before", 7, me, one.Key() - 1, 0x10010, 8, w, false},
		{"the key behind", 7, me, one.Key() + 1, 0x10010, 8, w, false},
		{"zero-based", 7, me, zero.Key(), 0, 8, w, true},
		{"zero-based, too many", 7, me, zero.Key(), 1, 8, w, false},
		{"zero-based, by address", 7, me, zero.Key(), 0x10010, 8, w, false},
		{"the region", 7, me, r.Key, 0x10010, 9, w, true},
	} {
		b, why := tab.Remote(c.pd, c.as, c.key, c.addr, c.n, c.need)
		if (why == trace.None) != c.ok || c.ok && (len(b) != c.n || cap(b) != c.n) || !c.ok && (b != nil || why != trace.FailAccess) {
			t.Errorf("%s: %d octets, %v", c.name, len(b), why)
		}
	}
	b, _ := tab.Remote(7, me, zero.Key(), 5, 3, w)
	b[0] = 1
	fresh := allocWindow(t, tab, 7, verbs.MWType1)
	assert.EqualValues(t, 1, mem[16+5], "the octets are not those of the window")
	for _, x := range []*Window{one, two, zero, fresh} { // a program's own lists do not name windows
		_, why := tab.Resolve(7, x.Key(), 0x10010, 8, 0)
		assert.Equal(t, trace.FailAccess, why)
		assert.ErrorIs(t, tab.Deregister(x.Key()), ErrNoKey)
		assert.Nil(t, tab.Lookup(x.Key()))
	}
}

// TestBindRefused: what may not be bound is not, changes nothing, and does not
// hold the region.
func TestBindRefused(t *testing.T) {
	tab := NewTable(1)
	me := tab.NewOwner()
	mem := make([]byte, 4096)
	mk := func(pd PD, a verbs.Access) *Region {
		return register(t, tab, Region{PD: pd, IOVA: 0x10000, Mem: mem, Access: a})
	}
	r, plain, readonly, strange := mk(7, bindable), mk(7, verbs.AccessAll), mk(7, verbs.AccessMWBind|verbs.AccessRemoteRead), mk(8, bindable)
	top := register(t, tab, Region{PD: 7, IOVA: -0x1000 & math.MaxUint64, Mem: mem, Access: bindable})
	one, two := allocWindow(t, tab, 7, verbs.MWType1), allocWindow(t, tab, 7, verbs.MWType2)
	foreign1 := allocWindow(t, tab, 8, verbs.MWType1)
	foreign, bound := allocWindow(t, tab, 8, verbs.MWType2), allocWindow(t, tab, 7, verbs.MWType2)
	require.Equal(t, trace.None, tab.Bind(7, me, next(bound, top, 0, 8, verbs.AccessRemoteWrite)))
	w := verbs.AccessRemoteWrite
	with := func(b verbs.Bind, f func(b *verbs.Bind)) verbs.Bind { f(&b); return b }
	for name, b := range map[string]verbs.Bind{
		"one octet beyond":        next(one, r, 1, 4096, w),
		"begins beyond":           next(one, r, 4097, 1, w),
		"one octet below":         next(one, r, math.MaxUint64, 8, w),
		"wraps (B07)":             next(one, r, 16, ^uint64(7), w),
		"wraps to its end":        next(one, r, ^uint64(0xffff), 0x11000, w),
		"over the top":            next(one, top, 0x800, 0x801, w),
		"no MW_BIND":              next(one, plain, 0, 8, verbs.AccessRemoteRead),
		"no local write":          next(one, readonly, 0, 8, w),
		"no local write, atomics": next(one, readonly, 0, 8, verbs.AccessRemoteAtomic),
		"local right":             next(one, r, 0, 8, verbs.AccessLocalWrite),
		"bind right":              next(one, r, 0, 8, verbs.AccessMWBind),
		"unknown right":           next(one, r, 0, 8, 1<<20),
		"region of another":       next(one, strange, 0, 8, w),
		"window of another":       next(foreign, strange, 0, 8, w),
		"window of another, ours": next(foreign, r, 0, 8, w),
		"unbinds another's":       with(next(foreign1, r, 0, 0, 0), func(b *verbs.Bind) { b.LKey = 0 }),
		"zero-based type 1":       next(one, r, 0, 8, w|verbs.AccessZeroBased),
		"bound type 2":            next(bound, r, 0, 8, w),
		"type 2, no length":       next(two, r, 0, 0, w),
		"another slot's key":      with(next(one, r, 0, 8, w), func(b *verbs.Bind) { b.NewKey ^= 0x100 }),
		"not its key":             with(next(one, r, 0, 8, w), func(b *verbs.Bind) { b.Key ^= 1 }),
		"a region's key":          with(next(one, r, 0, 8, w), func(b *verbs.Bind) { b.Key, b.NewKey = r.Key, r.Key }),
		"no region":               with(next(one, r, 0, 8, w), func(b *verbs.Bind) { b.LKey ^= 1 }),
		"a window's key":          with(next(one, r, 0, 8, w), func(b *verbs.Bind) { b.LKey = bound.Key() }),
	} {
		keys := []uint32{one.Key(), two.Key(), foreign.Key(), foreign1.Key(), bound.Key()}
		assert.Equal(t, trace.FailMemory, tab.Bind(7, me, b), name)
		assert.Equal(t, keys, []uint32{one.Key(), two.Key(), foreign.Key(), foreign1.Key(), bound.Key()}, name)
	}
	assert.Equal(t, trace.None, tab.Bind(7, me, next(one, readonly, 0, 8, verbs.AccessRemoteRead)), "reading needs no local write")
	assert.Equal(t, trace.None, tab.Bind(7, me, next(one, top, 0, 4096, w)), "up to the top")
	for _, x := range []*Region{r, plain, readonly, strange} {
		assert.NoError(t, tab.Deregister(x.Key), "nothing is bound to it")
	}
	assert.ErrorIs(t, tab.Deregister(top.Key), ErrBound)
}

// TestInvalidateRefused: nothing but a bound window of type 2 is invalidated,
// and that by its queue pair alone. B50.
func TestInvalidateRefused(t *testing.T) {
	tab := NewTable(1)
	me, other := tab.NewOwner(), tab.NewOwner()
	r := register(t, tab, Region{PD: 7, IOVA: 0x10000, Mem: make([]byte, 64), Access: bindable})
	one, two, free := allocWindow(t, tab, 7, verbs.MWType1), allocWindow(t, tab, 7, verbs.MWType2), allocWindow(t, tab, 7, verbs.MWType2)
	require.Equal(t, trace.None, tab.Bind(7, me, next(one, r, 0, 64, verbs.AccessRemoteRead)))
	require.Equal(t, trace.None, tab.Bind(7, me, next(two, r, 0, 64, verbs.AccessRemoteRead)))
	for name, bad := range map[string]struct {
		pd  PD
		as  Owner
		key uint32
	}{
		"a region":           {7, me, r.Key},
		"type 1":             {7, me, one.Key()},
		"free":               {7, me, free.Key()},
		"free, by nobody":    {7, 0, free.Key()},
		"another queue pair": {7, other, two.Key()},
		"another domain":     {8, me, two.Key()},
		"the key before":     {7, me, two.Key() - 1},
		"nothing":            {7, me, 0},
	} {
		assert.False(t, tab.Invalidate(bad.pd, bad.as, bad.key), name)
	}
	for _, w := range []*Window{one, two} {
		_, why := tab.Remote(7, me, w.Key(), 0x10000, 64, verbs.AccessRemoteRead)
		assert.Equal(t, trace.None, why)
	}
	assert.True(t, tab.Invalidate(7, me, two.Key()))
	_, why := tab.Remote(7, me, two.Key(), 0x10000, 64, verbs.AccessRemoteRead)
	assert.Equal(t, trace.FailAccess, why)
	assert.False(t, tab.Invalidate(7, me, two.Key()), "twice")
}

// TestWindowLife: a region is held by what is bound to it, and let go by each
// way in which that ends.
func TestWindowLife(t *testing.T) {
	tab := NewTable(1)
	me := tab.NewOwner()
	a := register(t, tab, Region{PD: 7, IOVA: 0x10000, Mem: make([]byte, 64), Access: bindable})
	b := register(t, tab, Region{PD: 7, IOVA: 0x20000, Mem: make([]byte, 64), Access: bindable})
	one, two := allocWindow(t, tab, 7, verbs.MWType1), allocWindow(t, tab, 7, verbs.MWType2)
	require.Equal(t, 4, tab.Len())
	first := one.Key()
	require.Equal(t, trace.None, tab.Bind(7, me, next(one, a, 0, 64, verbs.AccessRemoteRead)))
	require.Equal(t, verbs.NextRKey(first), one.Key())
	require.Equal(t, trace.None, tab.Bind(7, me, next(two, a, 0, 64, verbs.AccessRemoteRead)))
	require.ErrorIs(t, tab.Deregister(a.Key), ErrBound)
	require.Equal(t, trace.None, tab.Bind(7, me, next(one, b, 0, 64, verbs.AccessRemoteRead)))
	require.ErrorIs(t, tab.Deregister(a.Key), ErrBound, "the other is bound to it")
	require.True(t, tab.Invalidate(7, me, two.Key()))
	require.NoError(t, tab.Deregister(a.Key))
	require.ErrorIs(t, tab.Deregister(b.Key), ErrBound)
	unbind := verbs.Bind{Key: one.Key(), NewKey: verbs.NextRKey(one.Key())}
	require.Equal(t, trace.None, tab.Bind(7, me, unbind))
	require.Equal(t, trace.None, tab.Bind(7, me, next(two, b, 0, 64, verbs.AccessRemoteRead)))
	tab.FreeWindow(two)
	_, why := tab.Remote(7, me, two.Key(), 0x20000, 1, 0)
	require.Equal(t, trace.FailAccess, why)
	require.Equal(t, trace.FailMemory, tab.Bind(7, me, next(two, b, 0, 64, verbs.AccessRemoteRead)))
	require.False(t, tab.Invalidate(7, me, two.Key()))
	require.NoError(t, tab.Deregister(b.Key))
	tab.FreeWindow(one)
	require.Zero(t, tab.Len())
}

// TestWindowChanges: who meets a window while another shard changes it is
// refused, and changes nothing.
func TestWindowChanges(t *testing.T) {
	tab := NewTable(1)
	me := tab.NewOwner()
	r := register(t, tab, Region{PD: 7, IOVA: 0x10000, Mem: make([]byte, 64), Access: bindable})
	one, two := allocWindow(t, tab, 7, verbs.MWType1), allocWindow(t, tab, 7, verbs.MWType2)
	for _, w := range []*Window{one, two} {
		require.Equal(t, trace.None, tab.Bind(7, me, next(w, r, 0, 64, verbs.AccessRemoteRead)))
		w.seq.Add(1)
		_, why := tab.Remote(7, me, w.Key(), 0x10000, 64, verbs.AccessRemoteRead)
		require.Equal(t, trace.FailAccess, why)
		require.Equal(t, trace.FailMemory, tab.Bind(7, me, next(w, r, 0, 64, verbs.AccessRemoteRead)))
		require.False(t, tab.Invalidate(7, me, w.Key()))
		w.seq.Add(1)
		_, why = tab.Remote(7, me, w.Key(), 0x10000, 64, verbs.AccessRemoteRead)
		require.Equal(t, trace.None, why)
	}
}

// TestWindowKey: a slot's next use has another key than the last bind of a
// window that was there.
func TestWindowKey(t *testing.T) {
	tab := NewTable(1)
	w := allocWindow(t, tab, 7, verbs.MWType1)
	for range 5 {
		require.Equal(t, trace.None, tab.Bind(7, 0, verbs.Bind{Key: w.Key(), NewKey: verbs.NextRKey(w.Key())}))
	}
	tab.FreeWindow(w)
	for {
		r := register(t, tab, Region{PD: 7})
		if r.Key>>8 == w.Key()>>8 {
			require.Equal(t, verbs.NextRKey(w.Key()), r.Key)
			return
		}
		require.NoError(t, tab.Deregister(r.Key))
	}
}

// TestWindowsRace: while queue pairs of several shards bind a window, peers get
// octets of the region that their key is for, whole ranges, or nothing.
func TestWindowsRace(t *testing.T) {
	tab := NewTable(1)
	a := register(t, tab, Region{PD: 7, IOVA: 0x10000, Mem: make([]byte, 64), Access: bindable})
	b := register(t, tab, Region{PD: 7, IOVA: 0x10000, Mem: make([]byte, 128), Access: bindable})
	for i := range a.Mem {
		a.Mem[i] = 'a'
	}
	for i := range b.Mem {
		b.Mem[i] = 'b'
	}
	w := allocWindow(t, tab, 7, verbs.MWType1)
	even := w.Key()&1 == 0 // keys of this parity are never a's
	stop := make(chan struct{})
	done := make(chan int)
	binder := func() {
		n := 0
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			k := w.Key()
			r := a
			if k&1 == 1 == even { // the next has the parity of the first
				r = b
			}
			if tab.Bind(7, 0, verbs.Bind{Key: k, NewKey: verbs.NextRKey(k), LKey: r.Key, Addr: 0x10000, Length: uint64(len(r.Mem)), Access: verbs.AccessRemoteRead}) == trace.None {
				n++
			}
		}
	}
	go binder()
	go binder()
	got := map[byte]int{}
	for got['a'] < 20000 || got['b'] < 2000 {
		k := w.Key()
		want, n := byte('a'), 64
		if k&1 == 0 == even {
			want, n = 'b', 128
		}
		m, why := tab.Remote(7, 0, k, 0x10000, n, verbs.AccessRemoteRead)
		if why == trace.None {
			if m[0] != want || m[n-1] != want {
				t.Fatalf("%c under a key of %c", m[0], want)
			}
			got[want]++
		}
		if k == w.Key() && w.region.Load() != nil {
			if _, why := tab.Remote(7, 0, k, 0x10000, 129, verbs.AccessRemoteRead); why == trace.None {
				t.Fatal("more than either has")
			}
		}
	}
	close(stop)
	t.Log(<-done, <-done, "binds", got)
	tab.FreeWindow(w)
	require.NoError(t, tab.Deregister(a.Key))
	require.NoError(t, tab.Deregister(b.Key))
}

// TestWindowsDoNotAllocate: neither binding and invalidating nor using.
func TestWindowsDoNotAllocate(t *testing.T) {
	tab := NewTable(1)
	me := tab.NewOwner()
	r := register(t, tab, Region{PD: 7, IOVA: 0x10000, Mem: make([]byte, 64), Access: bindable})
	w := allocWindow(t, tab, 7, verbs.MWType2)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if tab.Bind(7, me, next(w, r, 0, 64, verbs.AccessRemoteRead)) != trace.None {
			t.Fatal("not bound")
		}
		if _, why := tab.Remote(7, me, w.Key(), 0x10000, 64, verbs.AccessRemoteRead); why != trace.None {
			t.Fatal(why)
		}
		if !tab.Invalidate(7, me, w.Key()) {
			t.Fatal("not invalidated")
		}
	}))
}
