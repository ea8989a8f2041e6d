package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// NICCalls is what a program that serves NICs may ask of the kernel once it has
// opened them: what the Go runtime needs, sockets and the memory shared through
// them, and reading and writing files. With raw, its links have packet or XDP
// sockets, and BPF programs whose maps change with the addresses.
//
// It may not run programs, make processes, map memory to be executed, look into
// other processes, change namespaces or mounts, or have sockets of other families.
func NICCalls(raw bool) *Policy {
	families := []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	p := &Policy{Default: VerdictRefuse, Kill: hostile}
	if raw {
		families = append(families, unix.AF_PACKET, unix.AF_XDP)
		p.Allow = append(p.Allow, Call{Number: unix.SYS_BPF})
	}
	for _, list := range [][]uint32{runtimeCalls, ioCalls, socketCalls, fileCalls, machineCalls} {
		for _, n := range list {
			p.Allow = append(p.Allow, Call{Number: n})
		}
	}
	const all = 1<<32 - 1
	check := func(call uint32, arg int, mask uint32, values ...uint32) {
		p.Allow = append(p.Allow, Call{call, &ArgCheck{arg, mask, values}})
	}
	check(unix.SYS_SOCKET, 0, all, families...)
	check(unix.SYS_SOCKETPAIR, 0, all, unix.AF_UNIX)
	check(unix.SYS_CLONE, 0, unix.CLONE_THREAD, unix.CLONE_THREAD) // threads, no processes
	check(unix.SYS_MMAP, 2, unix.PROT_EXEC, 0)
	check(unix.SYS_MPROTECT, 2, unix.PROT_EXEC, 0)
	check(unix.SYS_TGKILL, 0, all, uint32(os.Getpid()))                    // preemption
	check(unix.SYS_PRCTL, 0, all, unix.PR_SET_VMA, unix.PR_SET_TIMERSLACK) // the runtime names its memory; waits that end in time
	check(unix.SYS_IOCTL, 1, 0xff00, unix.SIOCETHTOOL&^0xff)               // of interfaces
	check(unix.SYS_PRLIMIT64, 0, all, 0, uint32(os.Getpid()))              // its own
	return p
}

// hostile are calls that this program has no place in it for: whoever makes one is
// not it.
var hostile = []uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT,
}

// runtimeCalls are the Go runtime's: threads, memory, signals, time.
var runtimeCalls = []uint32{
	unix.SYS_FUTEX, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_GETTID, unix.SYS_GETPID,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RESTART_SYSCALL,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE, unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_CAPGET,
	unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETGROUPS, unix.SYS_GETPPID,
}

// ioCalls move octets and wait for them.
var ioCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_LSEEK,
	unix.SYS_CLOSE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_FCNTL, unix.SYS_PIPE2, unix.SYS_SPLICE, unix.SYS_SENDFILE,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_PPOLL, unix.SYS_EVENTFD2,
}

// socketCalls are those of sockets that are there.
var socketCalls = []uint32{
	unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT4, unix.SYS_CONNECT, unix.SYS_SHUTDOWN,
	unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT,
	unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_SENDMMSG, unix.SYS_RECVMMSG,
}

// fileCalls are for the configuration, the control sockets' files, captures, and
// memory to share.
var fileCalls = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FSTATFS, unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2,
	unix.SYS_GETCWD, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UNLINKAT, unix.SYS_UMASK,
	unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_MEMFD_CREATE, unix.SYS_PIDFD_OPEN,
}
