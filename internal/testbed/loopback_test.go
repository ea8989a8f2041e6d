package testbed

import (
	"net/netip"
	"os"
	"testing"
)

// TestLoopback: addresses of different processes differ, and none is one of
// those at the ends of the range that programs use.
func TestLoopback(t *testing.T) {
	seen := map[netip.Addr][2]int{}
	low, high := netip.MustParseAddr("127.0.1.0"), netip.MustParseAddr("127.255.254.255")
	for _, pid := range []int{0, 1, 2, 15, 16, 255, 256, 257, 4096, 65535, 65536, 65537, 1<<20 - 34, 1<<20 - 33} {
		for i := range MaxLoopback {
			a := loopback(pid, i)
			if old, ok := seen[a]; ok {
				t.Fatalf("%v for process %d, %d and for %v", a, pid, i, old)
			}
			seen[a] = [2]int{pid, i}
			if a.Less(low) || high.Less(a) {
				t.Fatalf("%v for process %d, %d", a, pid, i)
			}
		}
	}
	for pid, want := range map[int]string{0: "127.0.1.0", 1<<20 - 33: "127.255.254.240", 1<<20 - 32: "127.0.1.0", 1 << 22: "127.0.9.0"} {
		if got := loopback(pid, 0); got != netip.MustParseAddr(want) {
			t.Errorf("process %d: %v, want %v", pid, got, want)
		}
	}
	if Loopback(3) != loopback(os.Getpid(), 3) {
		t.Errorf("%v is not of this process", Loopback(3))
	}
	for _, i := range []int{-1, MaxLoopback} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("address %d exists", i)
				}
			}()
			Loopback(i)
		}()
	}
}
