package cc

import "testing"

func TestAdaptive(t *testing.T) {
	a := new(Adaptive)
	a.Start(0, Path{Limit: 512})
	if a.Window(0) != 512 {
		t.Fatal("does not start at its limit")
	}
	for _, want := range []int{256, 128, 64, 32, 32, 32} {
		a.OnLoss(0, LossNAK)
		if got := a.Window(0); got != want {
			t.Fatalf("after a loss: %d, want %d", got, want)
		}
	}
	acked := 0
	for a.Window(0) < 512 {
		before := a.Window(0)
		a.OnAck(0, 1, 0)
		acked++
		if got := a.Window(0); got < before || got > before+max(1, before/8) {
			t.Fatalf("grew from %d to %d at once", before, got)
		}
		if acked > 10000 {
			t.Fatal("does not come back")
		}
	}
	// An eighth for each windowful: 512 needs some 8*(512-32) packets.
	if acked < 3000 || acked > 5000 {
		t.Errorf("came back after %d packets", acked)
	}
	a.OnAck(0, 1<<20, 0)
	if a.Window(0) != 512 {
		t.Error("beyond its limit")
	}
	s := new(Adaptive)
	if s.Start(0, Path{Limit: 4}); s.Window(0) != 4 {
		t.Error("small limit")
	} else if s.OnLoss(0, LossNAK); s.Window(0) != 4 {
		t.Errorf("a limit below the minimum: %d after a loss", s.Window(0))
	}
}
