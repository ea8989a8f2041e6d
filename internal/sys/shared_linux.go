package sys

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmapStep bounds how much memory one munmap gives back: the more, the longer
// page faults of other threads wait for it.
const unmapStep = 1 << 20

// discardStep bounds how much memory one madvise gives back: it is a system call of
// about 100 us.
const discardStep = 256 << 10

// PageRound returns n rounded up to whole pages.
func PageRound(n int) int {
	p := os.Getpagesize()
	return (n + p - 1) &^ (p - 1)
}

// NewShared makes memory to share with another process: a memfd of n octets, whole
// pages, all there (so that nobody meets SIGBUS when memory is short) and sealed
// against shrinking, growing and other seals, and a mapping of it here.
// memfd_create(2), fcntl(2).
func NewShared(name string, n int) (fd int, mem []byte, err error) {
	if n <= 0 || n&(os.Getpagesize()-1) != 0 {
		return -1, nil, fmt.Errorf("sys: shared memory of %d octets", n)
	}
	const noexec = 0x8 // MFD_NOEXEC_SEAL, Linux 6.3
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|noexec)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err = unix.Ftruncate(fd, int64(n)); err != nil {
		return -1, nil, os.NewSyscallError("ftruncate", err)
	}
	for {
		if err = unix.Fallocate(fd, 0, 0, int64(n)); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return -1, nil, os.NewSyscallError("fallocate", err)
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return -1, nil, os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	mem, err = MapShared(fd, n)
	return fd, mem, err
}

// MapShared maps n octets of shared memory.
func MapShared(fd, n int) ([]byte, error) {
	b, err := mmap(nil, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd)
	return b, os.NewSyscallError("mmap", err)
}

// SharedSize returns the size of memory that another process sent, and an error
// when it could shrink under us: touching what is gone raises SIGBUS.
func SharedSize(fd int) (int64, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, os.NewSyscallError("fcntl F_GET_SEALS", err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return 0, errors.New("sys: shared memory that is not sealed against shrinking")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return st.Size, nil
}

// Reserve returns n octets of address space, whole pages, with nothing in it: an
// address to know before there is memory for it (MapAt).
func Reserve(n int) ([]byte, error) {
	b, err := mmap(nil, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE, -1)
	return b, os.NewSyscallError("mmap", err)
}

// MapAt maps shared memory where Reserve made place.
func MapAt(place []byte, fd int) error {
	_, err := mmap(unsafe.Pointer(&place[0]), len(place), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED, fd)
	return os.NewSyscallError("mmap", err)
}

// Discard gives the memory behind a shared mapping back to the system, in steps,
// though others may still have it mapped, or hold its descriptor: they find zeros,
// and what they write then is their own. madvise(2), MADV_REMOVE.
func Discard(mem []byte) error {
	for len(mem) > 0 {
		n := min(len(mem), discardStep)
		if err := unix.Madvise(mem[:n], unix.MADV_REMOVE); err != nil {
			return os.NewSyscallError("madvise", err)
		}
		mem = mem[n:]
	}
	return nil
}

func mmap(at unsafe.Pointer, n, prot, flags, fd int) ([]byte, error) {
	p, err := unix.MmapPtr(fd, 0, at, uintptr(n), prot, flags)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Unmap gives back a mapping of MapShared, NewShared or Reserve, in steps: nothing
// may use it any more.
func Unmap(mem []byte) {
	for len(mem) > 0 {
		n := min(len(mem), unmapStep)
		_ = unix.MunmapPtr(unsafe.Pointer(&mem[0]), uintptr(n))
		mem = mem[n:]
	}
}
