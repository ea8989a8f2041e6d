package testbed

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Refusal is a system call that the kernel shall not carry out for this process,
// as one without a feature, or a sandbox, does not: a call with this number and
// the arguments named fails with Errno, or, if that is 0, does nothing and
// succeeds.
type Refusal struct {
	Call  uint32         // unix.SYS_SOCKET
	Args  map[int]uint32 // number of an argument, from 0 -> its low half
	Errno unix.Errno
}

// Refusals by names, for helpers that are another process.
var Refusals = map[string][]Refusal{
	"gso":    {{unix.SYS_GETSOCKOPT, map[int]uint32{1: unix.IPPROTO_UDP, 2: unix.UDP_SEGMENT}, unix.ENOPROTOOPT}},
	"gro":    {{unix.SYS_SETSOCKOPT, map[int]uint32{1: unix.IPPROTO_UDP, 2: unix.UDP_GRO}, unix.ENOPROTOOPT}},
	"bpf":    {{unix.SYS_BPF, nil, unix.EPERM}},
	"packet": {{unix.SYS_SOCKET, map[int]uint32{0: unix.AF_PACKET}, unix.EPERM}},
	"ipv6":   {{unix.SYS_SOCKET, map[int]uint32{0: unix.AF_INET6}, unix.EAFNOSUPPORT}},
	"xdp":    {{unix.SYS_SOCKET, map[int]uint32{0: unix.AF_XDP}, unix.EAFNOSUPPORT}},
	// What net.core.rmem_max does for who may not pass it: buffers stay as they are.
	"rcvbuf": {
		{unix.SYS_SETSOCKOPT, map[int]uint32{1: unix.SOL_SOCKET, 2: unix.SO_RCVBUFFORCE}, unix.EPERM},
		{unix.SYS_SETSOCKOPT, map[int]uint32{1: unix.SOL_SOCKET, 2: unix.SO_RCVBUF}, 0},
	},
}

// Refuse makes the kernel refuse calls to this process from now on, and to what
// it starts. It is for helpers: nothing takes it back. seccomp(2).
func Refuse(refusals ...Refusal) error {
	const (
		number, args = 0, 16 // offsets into struct seccomp_data
		argLen       = 8
		allow, errno = 0x7fff0000, 0x00050000
	)
	var code []unix.SockFilter
	ret := func(v uint32) { code = append(code, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v}) }
	// need skips the next n instructions unless a value is the one wanted.
	need := func(offset, wanted uint32, n int) {
		code = append(code,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(n), K: wanted})
	}
	for _, r := range refusals {
		rest := 2*len(r.Args) + 1
		need(number, r.Call, rest)
		for i, v := range r.Args {
			rest -= 2
			need(uint32(args+argLen*i), v, rest)
		}
		ret(errno | uint32(r.Errno))
	}
	ret(allow)
	runtime.LockOSThread() // the filter is set by the thread that gave up gaining privileges, for all
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	f := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)))
	if e != 0 {
		return os.NewSyscallError("seccomp", e)
	}
	return nil
}

// RefuseNamed is Refuse of some of Refusals.
func RefuseNamed(names ...string) error {
	if len(names) == 0 {
		return nil
	}
	var all []Refusal
	for _, n := range names {
		r, ok := Refusals[n]
		if !ok {
			return fmt.Errorf("testbed: no refusal %q", n)
		}
		all = append(all, r...)
	}
	return Refuse(all...)
}
