package sys

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// machineCalls are calls that only this machine has, or names so.
var machineCalls = []uint32{unix.SYS_FSTATAT}
