package mr

import (
	"errors"
	"math"
	"testing"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

func register(t *testing.T, tab *Table, r Region) *Region {
	t.Helper()
	p, err := tab.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Which octets a key gives, to whom and for what. B05: an address and length
// that wrap 2^64 give none.
func TestResolve(t *testing.T) {
	tab := NewTable(1)
	mem := make([]byte, 4096)
	r := register(t, tab, Region{PD: 7, IOVA: 0x10000, Mem: mem, Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead})
	top := register(t, tab, Region{PD: 7, IOVA: -0x400 & math.MaxUint64, Mem: mem[:0x400], Access: verbs.AccessAll})
	empty := register(t, tab, Region{PD: 7, IOVA: 0x10000, Access: verbs.AccessAll})
	for _, c := range []struct {
		name string
		pd   PD
		key  uint32
		addr uint64
		n    int
		need verbs.Access
		ok   bool
	}{
		{"all of it", 7, r.Key, 0x10000, 4096, verbs.AccessRemoteRead, true},
		{"a middle", 7, r.Key, 0x10001, 4094, verbs.AccessLocalWrite, true},
		{"nothing, at the end", 7, r.Key, 0x11000, 0, 0, true},
		{"nothing, beyond", 7, r.Key, 0x11001, 0, 0, false},
		{"one too many", 7, r.Key, 0x10001, 4096, 0, false},
		{"one below", 7, r.Key, 0xffff, 1, 0, false},
		{"wraps", 7, r.Key, 0xfffffffffffffc00, 0x400, 0, false},
		{"wraps into it", 7, r.Key, math.MaxUint64 - 0xf, 0x10020, 0, false},
		{"another domain", 8, r.Key, 0x10000, 1, 0, false},
		{"a permission it lacks", 7, r.Key, 0x10000, 1, verbs.AccessRemoteWrite, false},
		{"two, of which it has one", 7, r.Key, 0x10000, 1, verbs.AccessRemoteRead | verbs.AccessRemoteAtomic, false},
		{"key of another use", 7, r.Key ^ 1, 0x10000, 1, 0, false},
		{"key of another slot", 7, r.Key ^ 0x100, 0x10000, 1, 0, false},
		{"key 0", 7, 0, 0x10000, 1, 0, false},
		{"up to the top", 7, top.Key, 0xfffffffffffffc00, 0x400, verbs.AccessRemoteWrite, true},
		{"over the top", 7, top.Key, 0xfffffffffffffc00, 0x401, verbs.AccessRemoteWrite, false},
		{"none of an empty region", 7, empty.Key, 0x10000, 0, verbs.AccessRemoteWrite, true},
		{"one of an empty region", 7, empty.Key, 0x10000, 1, verbs.AccessRemoteWrite, false},
	} {
		b, why := tab.Resolve(c.pd, c.key, c.addr, c.n, c.need)
		if (why == trace.None) != c.ok || c.ok && (len(b) != c.n || cap(b) != c.n) || !c.ok && (b != nil || why != trace.FailAccess) {
			t.Errorf("%s: %d octets, %v", c.name, len(b), why)
		}
	}
	b, _ := tab.Resolve(7, r.Key, 0x10005, 3, 0)
	b[0] = 1
	if mem[5] != 1 {
		t.Error("the octets are not those of the region")
	}
}

// A region that would wrap the address space is refused.
func TestRegisterWraps(t *testing.T) {
	tab := NewTable(1)
	if _, err := tab.Register(Region{IOVA: math.MaxUint64 - 2, Mem: make([]byte, 4)}); err == nil {
		t.Error("a region that wraps")
	}
	if tab.Len() != 0 {
		t.Error("it took a slot")
	}
}

// Keys are unique while they live, and a withdrawn one gives nothing.
func TestKeys(t *testing.T) {
	tab := NewTable(5)
	live := map[uint32]*Region{}
	for i := range 1000 {
		r := register(t, tab, Region{PD: 1, IOVA: uint64(i), Mem: make([]byte, 1)})
		if live[r.Key] != nil {
			t.Fatalf("key %#x twice", r.Key)
		}
		live[r.Key] = r
	}
	if tab.Len() != 1000 {
		t.Fatal(tab.Len())
	}
	for key, r := range live {
		if tab.Lookup(key) != r {
			t.Fatalf("key %#x is another's", key)
		}
	}
	for key := range live {
		if err := tab.Deregister(key); err != nil {
			t.Fatal(err)
		}
		if err := tab.Deregister(key); !errors.Is(err, ErrNoKey) {
			t.Fatalf("twice: %v", err)
		}
		if tab.Lookup(key) != nil {
			t.Fatal("still there")
		}
		r := register(t, tab, Region{PD: 1, Mem: make([]byte, 1)})
		if r.Key == key {
			t.Fatalf("key %#x was given to another region", key)
		}
	}
}

// TestKeyOfOldRegion: a key that was deregistered gives nothing, however many
// regions come and go after it; 256 uses of one slot were enough once.
func TestKeyOfOldRegion(t *testing.T) {
	tab := NewTable(3)
	old := register(t, tab, Region{PD: 7, IOVA: 0x1000, Mem: make([]byte, 16), Access: verbs.AccessAll})
	stays := register(t, tab, Region{PD: 7, Mem: make([]byte, 16)})
	if err := tab.Deregister(old.Key); err != nil {
		t.Fatal(err)
	}
	for i := range 256 * reuseAfter {
		r := register(t, tab, Region{PD: 7, IOVA: 0x1000, Mem: make([]byte, 16), Access: verbs.AccessAll})
		if _, why := tab.Resolve(7, old.Key, 0x1000, 1, 0); why == trace.None {
			t.Fatalf("the key works again after %d regions", i+1)
		}
		if err := tab.Deregister(r.Key); err != nil {
			t.Fatal(err)
		}
	}
	if tab.Lookup(stays.Key) != stays || tab.Len() != 1 || tab.used > reuseAfter+3 {
		t.Error(tab.Len(), tab.used)
	}
}

// Two tables give other keys to the same slots: they cannot be guessed from
// the order of registration.
func TestKeysDependOnSeed(t *testing.T) {
	a, b := NewTable(1), NewTable(2)
	same := 0
	for range 100 {
		if register(t, a, Region{}).Key == register(t, b, Region{}).Key {
			same++
		}
	}
	if same > 2 {
		t.Errorf("%d of 100 keys are the same", same)
	}
}

func TestResolveDoesNotAllocate(t *testing.T) {
	tab := NewTable(1)
	r := register(t, tab, Region{PD: 1, IOVA: 1, Mem: make([]byte, 64)})
	if n := testing.AllocsPerRun(100, func() { tab.Resolve(1, r.Key, 1, 64, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
