package verbs

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestBells rings from several goroutines while another takes: nothing is
// lost.
func TestBells(t *testing.T) {
	var b Bells
	require.False(t, b.Rung())
	const n = 3000
	var wg sync.WaitGroup
	ring := func(seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, i := range r.Perm(n) {
			b.Ring(uint32(i) * (MaxBells / n))
		}
	}
	for seed := range uint64(3) {
		wg.Go(func() { ring(seed) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	got := map[uint32]bool{}
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		for _, i := range b.Take(nil, MaxBells) {
			got[i] = true
		}
	}
	require.Len(t, got, n)
	require.False(t, b.Rung())
	b.Ring(MaxBells - 1)
	require.Equal(t, []uint32{MaxBells - 1}, b.Take(nil, MaxBells))
}

// A short Take leaves the rest rung, and loses none of it.
func TestBellsBudget(t *testing.T) {
	var b Bells
	for i := uint32(0); i < MaxBells; i += 7 {
		b.Ring(i)
	}
	got := map[uint32]bool{}
	var buf []uint32
	for b.Rung() {
		buf = b.Take(buf[:0], 64)
		require.NotEmpty(t, buf)
		require.LessOrEqual(t, len(buf), 64+63)
		for _, i := range buf {
			require.False(t, got[i])
			got[i] = true
		}
	}
	require.Len(t, got, (MaxBells+6)/7)
}

// Whatever the other side of shared memory writes, Take ends and returns numbers
// that there are.
func TestBellsOfGarbage(t *testing.T) {
	mem := make([]uint64, BellBlockLen/8)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), BellBlockLen)
	r := rand.New(rand.NewPCG(1, 2))
	blocks, ok := BellBlocks(raw, 1)
	require.True(t, ok)
	for range 200 {
		for i := range mem {
			if r.IntN(3) == 0 {
				mem[i] = r.Uint64()
			}
		}
		for k := 0; blocks[0].Bells.Rung(); k++ {
			require.Less(t, k, MaxBells)
			for _, i := range blocks[0].Bells.Take(nil, 1000) {
				require.Less(t, i, uint32(MaxBells))
			}
		}
	}
	_, ok = BellBlocks(raw[:BellBlockLen-1], 1)
	require.False(t, ok, "too short")
	_, ok = BellBlocks(raw[1:], 1)
	require.False(t, ok, "not aligned")
}

// The layout is the documented one.
func TestBellBlockLayout(t *testing.T) {
	var b BellBlock
	require.EqualValues(t, 64, unsafe.Offsetof(b.Bells))
	require.EqualValues(t, 128-64, unsafe.Offsetof(b.Bells.mid))
	require.EqualValues(t, 640-64, unsafe.Offsetof(b.Bells.leaf))
	require.Equal(t, 640+4096*8, BellBlockLen)
}

// Summaries that promise bits where there are none cost no more looks than bits do:
// a step takes a few of them, not all 4096 words.
func TestBellsThatLie(t *testing.T) {
	var b Bells
	for i := range b.mid {
		b.mid[i].Store(^uint64(0))
	}
	b.top.Store(^uint64(0))
	b.leaf[4095].Store(1)
	looks := 0
	for got := []uint32(nil); len(got) == 0; looks++ {
		require.True(t, b.Rung())
		before := 0
		for i := range b.mid {
			before += bits.OnesCount64(b.mid[i].Load())
		}
		got = b.Take(nil, 64)
		for i := range b.mid {
			before -= bits.OnesCount64(b.mid[i].Load())
		}
		require.LessOrEqual(t, before, 64+1)
		if len(got) > 0 {
			require.Equal(t, []uint32{MaxBells - 64}, got)
		}
	}
	require.Equal(t, 64, looks)
	require.False(t, b.Rung())
}
