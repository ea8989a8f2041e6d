package sys

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait = 0 // FUTEX_WAIT, of all processes that share the memory
	futexWake = 1
)

// FutexWait blocks until FutexWake is called on w in any process that shares its
// memory, w is not v, or d has passed; d < 0 means for ever. It may return early, and
// does after longestWait.
// futex(2). A wake never blocks and needs no descriptor, so the one who waits can
// do the one who wakes no harm.
func FutexWait(w *atomic.Uint32, v uint32, d time.Duration) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(v), uintptr(unsafe.Pointer(bounded(d))), 0, 0)
}

// FutexWake wakes everybody who waits on w.
func FutexWake(w *atomic.Uint32) {
	_, _, _ = unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, math.MaxInt32)
}
