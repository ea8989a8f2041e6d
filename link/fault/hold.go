package fault

import "math"

// Never is the release time of nothing.
const Never = math.MaxInt64

// Hold keeps copies of packets until they leave: those of one direction, in
// the order of their release. T is what a packet needs besides its octets to
// be sent on. Its memory grows to what was needed at once, at most the bound
// it was made with, and is used again. It is sans-IO; one goroutine at a time
// may use it.
type Hold[T any] struct {
	slots  []Held[T]
	free   []int32
	order  []int32 // held, by release time and then by arrival
	behind int     // how many of order wait for others to pass
}

// Held is a packet in a Hold.
type Held[T any] struct {
	Meta    T
	Pkt     []byte // BTH to ICRC
	Effects Effects
	release int64
	behind  int
	slot    int32
}

// NewHold returns a Hold for at most n packets.
func NewHold[T any](n int) *Hold[T] {
	h := &Hold[T]{slots: make([]Held[T], n), free: make([]int32, n), order: make([]int32, 0, n)}
	for i := range h.free {
		h.free[i] = int32(n - 1 - i)
		h.slots[i].slot = int32(i)
	}
	return h
}

// Put takes a packet to hold, and returns it for its Meta and Pkt to be set:
// Pkt is empty and has the memory of an earlier packet to append to. It
// returns nil when there is no room.
func (h *Hold[T]) Put(d *Decision) *Held[T] {
	if len(h.free) == 0 {
		return nil
	}
	i := h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	p := &h.slots[i]
	p.release, p.behind, p.Effects, p.Pkt = d.Release, d.Behind, d.Effects, p.Pkt[:0]
	if p.behind > 0 {
		h.behind++
	}
	h.insert(i)
	return p
}

// insert enters slot i into the order, after those of the same release.
func (h *Hold[T]) insert(i int32) {
	h.order = append(h.order, i)
	at := len(h.order) - 1
	for ; at > 0 && h.slots[h.order[at-1]].release > h.slots[i].release; at-- {
		h.order[at] = h.order[at-1]
	}
	h.order[at] = i
}

// Passed tells the Hold that a later packet went by. Held packets that waited
// for that are due.
func (h *Hold[T]) Passed() {
	if h.behind == 0 {
		return
	}
	for at := 0; at < len(h.order); at++ {
		i := h.order[at]
		p := &h.slots[i]
		if p.behind == 0 {
			continue
		}
		if p.behind--; p.behind == 0 {
			h.behind--
			p.release = math.MinInt64
			copy(h.order[at:], h.order[at+1:])
			h.order = h.order[:len(h.order)-1]
			h.insert(i) // at or before its old place: the loop meets no packet twice
		}
	}
}

// waitsWithin reports whether a held packet leaves before n more have passed.
func (h *Hold[T]) waitsWithin(n int) bool {
	if h.behind == 0 {
		return false
	}
	for _, i := range h.order {
		if b := h.slots[i].behind; b > 0 && b < n {
			return true
		}
	}
	return false
}

// Next returns when the next packet is due, Never when none is held.
func (h *Hold[T]) Next() int64 {
	if len(h.order) == 0 {
		return Never
	}
	return h.slots[h.order[0]].release
}

// Len returns how many packets are held.
func (h *Hold[T]) Len() int { return len(h.order) }

// Pop returns the next packet that is due at now, nil when there is none. It
// is the caller's until Free.
func (h *Hold[T]) Pop(now int64) *Held[T] {
	if h.Next() > now || len(h.order) == 0 {
		return nil
	}
	p := &h.slots[h.order[0]]
	if p.behind > 0 {
		h.behind--
		p.behind = 0
	}
	copy(h.order, h.order[1:])
	h.order = h.order[:len(h.order)-1]
	return p
}

// Free gives a popped packet's memory back.
func (h *Hold[T]) Free(p *Held[T]) { h.free = append(h.free, p.slot) }
