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

// TotalMemory returns how many octets of memory the system has, 0 if it does not
// say. sysinfo(2).
func TotalMemory() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(i.Totalram) * int64(i.Unit)
}
