package nic

import (
	"math"
	"math/bits"
)

const (
	tickBits    = 14 // a tick is 16.384 us
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelLevels = 5 // 1 ms, 67 ms, 4.3 s, 4.6 min, 4.9 h a turn

	// never is the deadline of nothing.
	never = math.MaxInt64
)

// timer is one queue pair's place in a wheel. It is armed lazily: at may be
// earlier than the engine's deadline, which is looked at again when it is due.
type timer struct {
	at         int64 // nanoseconds; valid when armed
	q          *qp
	next, prev *timer
	level      uint8
	slot       uint8
	armed      bool
}

// wheel is a hierarchical timing wheel: a slot of level l spans 64^l ticks.
// Arming and removing are O(1), finding the next deadline is a look at one
// word a level. A slot of a level above 0 is spread over the levels below when
// time reaches it.
type wheel struct {
	tick  int64 // reached so far
	used  [wheelLevels]uint64
	slots [wheelLevels][wheelSlots]*timer
}

// arm puts t into the wheel at a time, or moves it there.
func (w *wheel) arm(t *timer, at int64) {
	w.remove(t)
	t.at, t.armed = at, true
	w.insert(t)
}

func (w *wheel) insert(t *timer) {
	delta := max(t.at>>tickBits, w.tick) - w.tick
	level := 0
	for level < wheelLevels-1 && delta >= 1<<(wheelBits*(level+1)) {
		level++
	}
	// What lies beyond a turn of the top level waits in its last slot.
	delta = min(delta, 1<<(wheelBits*wheelLevels)-1)
	slot := (w.tick + delta) >> (wheelBits * level) & (wheelSlots - 1)
	t.level, t.slot = uint8(level), uint8(slot)
	head := &w.slots[level][slot]
	t.prev, t.next = nil, *head
	if t.next != nil {
		t.next.prev = t
	}
	*head = t
	w.used[level] |= 1 << slot
}

// remove takes t out of the wheel, if it is in there.
func (w *wheel) remove(t *timer) {
	if !t.armed {
		return
	}
	t.armed = false
	if t.next != nil {
		t.next.prev = t.prev
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		head := &w.slots[t.level][t.slot]
		*head = t.next
		if *head == nil {
			w.used[t.level] &^= 1 << t.slot
		}
	}
	t.next, t.prev = nil, nil
}

// advance moves the wheel to now and appends what is due to dst, removed from
// the wheel.
func (w *wheel) advance(now int64, dst []*qp) []*qp {
	target := max(now>>tickBits, w.tick)
	for {
		t := w.nextTick()
		if t > target {
			w.tick = target
			return dst
		}
		w.tick = t
		for level := wheelLevels - 1; level > 0; level-- {
			if t&(1<<(wheelBits*level)-1) == 0 {
				w.cascade(level)
			}
		}
		head := w.slots[0][t&(wheelSlots-1)]
		for x := head; x != nil; {
			next := x.next
			if x.at <= now {
				w.remove(x)
				dst = append(dst, x.q)
			}
			x = next
		}
		if t == target {
			return dst
		}
	}
}

// cascade spreads the slot of a level that time has reached.
func (w *wheel) cascade(level int) {
	slot := w.tick >> (wheelBits * level) & (wheelSlots - 1)
	x := w.slots[level][slot]
	w.slots[level][slot] = nil
	w.used[level] &^= 1 << slot
	for x != nil {
		next := x.next
		w.insert(x)
		x = next
	}
}

// next returns the first tick at which a slot of a level is reached that holds
// something, or never.
func (w *wheel) next(level int) int64 {
	used := w.used[level]
	if used == 0 {
		return never
	}
	pos := w.tick >> (wheelBits * level)
	if level > 0 {
		pos++ // the slot of the present was spread: what is in it waits for the next turn
	}
	pos += int64(bits.TrailingZeros64(bits.RotateLeft64(used, -int(pos&(wheelSlots-1)))))
	return pos << (wheelBits * level)
}

func (w *wheel) nextTick() int64 {
	t := int64(never)
	for level := range w.used {
		t = min(t, w.next(level))
	}
	return t
}

// deadline returns the time, in nanoseconds, at which advance has something
// to do, or never.
func (w *wheel) deadline() int64 {
	d := int64(never)
	if t := w.next(0); t != never {
		for x := w.slots[0][t&(wheelSlots-1)]; x != nil; x = x.next {
			d = min(d, x.at)
		}
	}
	for level := 1; level < wheelLevels; level++ {
		if t := w.next(level); t != never {
			d = min(d, t<<tickBits)
		}
	}
	return d
}
