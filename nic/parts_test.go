package nic

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// TestWheel compares the wheel with a list: what is due is found, at its
// time, once, and the deadline is never later than the first timer.
func TestWheel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w wheel
		now := rapid.Int64Range(0, 1<<50).Draw(t, "start")
		w.tick = now >> tickBits
		timers := make([]timer, 20)
		for i := range timers {
			timers[i].q = &qp{index: uint32(i)}
		}
		want := map[uint32]int64{}
		span := rapid.Custom(func(t *rapid.T) int64 {
			return rapid.Int64Range(0, 1<<rapid.IntRange(1, 46).Draw(t, "bits")).Draw(t, "span")
		})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := uint32(rapid.IntRange(0, len(timers)-1).Draw(t, "timer"))
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				at := now + span.Draw(t, "in") - 1000
				w.arm(&timers[i], at)
				want[i] = at
			case 2:
				w.remove(&timers[i])
				delete(want, i)
			case 3:
				first := int64(never)
				for _, at := range want {
					first = min(first, at)
				}
				if d := w.deadline(); d > first || first == never && d != never {
					t.Fatalf("deadline %d, the first timer is at %d", d, first)
				}
				now += span.Draw(t, "pass")
				var due []uint32
				for _, q := range w.advance(now, nil) {
					due = append(due, q.index)
				}
				var expect []uint32
				for j, at := range want {
					if at <= now {
						expect = append(expect, j)
						delete(want, j)
					}
				}
				slices.Sort(due)
				slices.Sort(expect)
				if !slices.Equal(due, expect) {
					t.Fatalf("at %d due %v, expected %v", now, due, expect)
				}
			}
		}
	})
}

// TestWheelSleeps: following deadlines alone leads to a far timer in few
// steps, not one for each slot.
func TestWheelSleeps(t *testing.T) {
	var w wheel
	x := timer{q: &qp{}}
	const at = 3_600_000_000_123
	w.arm(&x, at)
	steps := 0
	for now := int64(0); ; steps++ {
		now = w.deadline()
		if len(w.advance(now, nil)) == 1 {
			require.Equal(t, int64(at), now)
			break
		}
	}
	require.LessOrEqual(t, steps, wheelLevels)
}

// TestTable: handles of dead objects find nothing, slots are not used again
// soon, and the limit is a limit.
func TestTable(t *testing.T) {
	var tab table[int]
	v := 7
	add := func() (uint32, verbs.Handle) {
		slot, h, ok := tab.reserve(3000)
		require.True(t, ok)
		tab.put(slot, h, &v)
		return slot, h
	}
	slot, h := add()
	require.Equal(t, &v, tab.get(h))
	require.Equal(t, &v, tab.at(slot))
	tab.release(slot)
	require.Nil(t, tab.get(h))
	for i := range 3 * reuseAfter {
		s, h2 := add()
		require.NotEqual(t, h, h2)
		if s == slot {
			require.GreaterOrEqual(t, i, reuseAfter)
		}
		tab.release(s)
	}
	require.Nil(t, tab.get(h))
	require.Nil(t, tab.get(0))
	require.Nil(t, tab.get(1<<32-1))
	for range 3000 {
		add()
	}
	_, _, ok := tab.reserve(3000)
	require.False(t, ok)
}

// TestInboxBounds: an inbox takes what it has room for, in order.
func TestInboxBounds(t *testing.T) {
	var b inbox
	big := make([]byte, inboxBytes/4)
	for range 4 {
		require.True(t, b.put(from{}, big))
	}
	require.False(t, b.put(from{}, big[:1]))
	got, _ := b.take()
	require.Len(t, got.parcels, 4)
	require.False(t, b.filled.Load())
	for i := range inboxSegs {
		require.True(t, b.put(from{tos: uint8(i)}, big[:1]))
	}
	w := wire.NewBurst()
	w.Reset(&wire.Flow{Src: here, Dst: there}, 0, 0)
	w.Begin(bth.PSN{}, bth.RCAck, 16, 0)
	w.End()
	require.Zero(t, b.putBurst(w, w.Len()))
	got, _ = b.take()
	for i, p := range got.parcels {
		require.Equal(t, uint8(i), p.tos)
	}
}

// TestFIFO keeps order while it grows and wraps.
func TestFIFO(t *testing.T) {
	var f fifo[qp]
	next, want := uint32(0), uint32(0)
	for round := range 200 {
		for range round % 37 {
			f.push(&qp{index: next})
			next++
		}
		for range round % 31 {
			if f.len() > 0 {
				require.Equal(t, want, f.pop().index)
				want++
			}
		}
	}
	require.Equal(t, int(next-want), f.len())
}
