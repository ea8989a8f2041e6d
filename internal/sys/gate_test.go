package sys

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestGate(t *testing.T) {
	var g Gate
	for range 2 {
		if !g.Enter() {
			t.Fatal("an open gate")
		}
	}
	if g.Leave() {
		t.Fatal("released while open")
	}
	if !g.Close() || g.Close() || g.Enter() {
		t.Fatal("a closing gate")
	}
	if g.Leave() { // Close's own
		t.Fatal("released while in use")
	}
	if !g.Leave() || g.Enter() || g.Close() {
		t.Fatal("the last one out releases, once")
	}
}

// TestGateRace checks under contention that release happens once, after
// everybody has left.
func TestGateRace(t *testing.T) {
	for range 200 {
		var g Gate
		var inside, released atomic.Int32
		leave := func() {
			if g.Leave() {
				if released.Add(1) != 1 || inside.Load() != 0 {
					t.Error("released early or twice")
				}
			}
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 20 {
					if g.Enter() {
						inside.Add(1)
						inside.Add(-1)
						leave()
					}
				}
				if i < 2 && g.Close() {
					leave()
				}
			})
		}
		wg.Wait()
		if released.Load() != 1 {
			t.Fatal(released.Load())
		}
	}
}
