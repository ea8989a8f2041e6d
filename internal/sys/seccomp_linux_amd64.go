package sys

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// machineCalls are calls that only this machine has, or names so.
var machineCalls = []uint32{
	unix.SYS_NEWFSTATAT, unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT, unix.SYS_POLL,
	unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_READLINK, unix.SYS_UNLINK, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN,
}
