package testbed

import (
	"fmt"
	"net/netip"
	"os"
)

// MaxLoopback is how many loopback addresses a process has.
const MaxLoopback = 16

// Loopback returns the loopback address i, 0 to MaxLoopback-1, of this process.
// UDP port 4791 has one owner per address, so tests that run at once in two
// processes must not share an address. It lies in 127.0.1.0 to 127.255.254.255:
// never one that programs use by themselves. Every address of 127.0.0.0/8 is a
// local one on Linux; elsewhere it has to be configured.
func Loopback(i int) netip.Addr { return loopback(os.Getpid(), i) }

// loopback gives processes different addresses unless their numbers are a
// multiple of 2^20-32 apart.
func loopback(pid, i int) netip.Addr {
	if i < 0 || i >= MaxLoopback {
		panic(fmt.Sprintf("testbed: loopback address %d is not in 0..%d", i, MaxLoopback-1))
	}
	n := uint32(pid)%(1<<20-32) + 16
	n = n*MaxLoopback + uint32(i)
	return netip.AddrFrom4([4]byte{127, byte(n >> 16), byte(n >> 8), byte(n)})
}
