package sys

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fakeRing is the memory of a ring, and where its parts are, as a kernel gives
// them: indexes far apart, entries last.
func fakeRing(size, entries int) ([]byte, *unix.XDPRingOffset) {
	const at = 256
	words := make([]uint64, (at+size*entries)/8) // aligned
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)),
		&unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 128, Desc: at}
}

// joined returns the two sides of one ring, whose indexes start at from.
func joined(entries int, from uint32) (p *Producer[uint64], c *Consumer[uint64], flag *uint32) {
	m, off := fakeRing(8, entries)
	es, prod, cons, flag := view[uint64](m, off, entries)
	*prod, *cons = from, from
	p, c = new(Producer[uint64]), new(Consumer[uint64])
	p.init(es, prod, cons, flag)
	c.init(es, prod, cons)
	return p, c, flag
}

// TestRings: what one side puts the other finds, in order and only once it was
// submitted; the room there is, is what was released; and indexes wrap.
func TestRings(t *testing.T) {
	for _, from := range []uint32{0, 5, 1<<32 - 3} {
		p, c, flag := joined(4, from)
		next, seen := uint64(0), uint64(0)
		for round := range 20 {
			n := round % 5
			if got := p.Free(4); got != 4 {
				t.Fatalf("room for %d in an empty ring", got)
			}
			for range n {
				p.Put(next)
				next++
			}
			if c.Avail() != 0 || p.Pending() != 0 {
				t.Fatalf("%d entries before Submit, %d pending", c.Avail(), p.Pending())
			}
			p.Submit()
			if got := p.Free(4); got != 4-n || p.Pending() != n {
				t.Fatalf("room for %d of 4 beside %d, %d pending", got, n, p.Pending())
			}
			if got := c.Avail(); got != n {
				t.Fatalf("%d of %d entries", got, n)
			}
			for i := range n {
				if got := c.At(i); got != seen+uint64(i) {
					t.Fatalf("entry %d is %d", seen, got)
				}
			}
			first := n / 2 // in two parts
			c.Release(first)
			if got := c.Avail(); got != n-first || p.Pending() != n-first {
				t.Fatalf("%d entries left of %d, %d pending", got, n-first, p.Pending())
			}
			if n > first && c.At(0) != seen+uint64(first) {
				t.Fatalf("entry %d is %d", seen+uint64(first), c.At(0))
			}
			c.Release(n - first)
			seen += uint64(n)
		}
		if p.NeedWakeup() {
			t.Error("woken up for nothing")
		}
		*flag = unix.XDP_RING_NEED_WAKEUP
		if !p.NeedWakeup() {
			t.Error("the flag is not seen")
		}
	}
}

// TestRingThreads: two threads over one ring, under the race detector too.
func TestRingThreads(t *testing.T) {
	p, c, _ := joined(8, 1<<32-100)
	const total = 20000
	go func() {
		for next := uint64(0); next < total; {
			n := p.Free(1)
			for ; n > 0 && next < total; n-- {
				p.Put(next)
				next++
			}
			p.Submit()
			if n == 0 {
				runtime.Gosched()
			}
		}
	}()
	for seen := uint64(0); seen < total; {
		n := c.Refresh()
		for i := range n {
			if got := c.At(i); got != seen {
				t.Fatalf("entry %d is %d", seen, got)
			}
			seen++
		}
		if n > 0 {
			c.Release(n)
		} else {
			runtime.Gosched()
		}
	}
}

func TestChannels(t *testing.T) {
	if rx, tx, err := Channels("lo"); rx != 1 || tx != 1 || err != nil { // its driver does not say
		t.Error(rx, tx, err)
	}
	if _, _, err := Channels("gorxe-none"); err == nil {
		t.Error("an interface that does not exist has queues")
	}
}
