package sys

import "golang.org/x/sys/unix"

// Yield lets other threads of the machine run: what a loop that polls owes
// them. sched_yield(2).
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
