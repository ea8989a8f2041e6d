package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// TryMemory tells whether the system would give this process n octets more.
func TryMemory(n int) error {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return unix.Munmap(b)
}
