package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Verdict is what becomes of a system call. seccomp(2).
type Verdict uint32

// Verdicts, from the strictest.
const (
	VerdictKill   Verdict = unix.SECCOMP_RET_KILL_PROCESS
	VerdictRefuse Verdict = unix.SECCOMP_RET_ERRNO | Verdict(unix.EPERM)
	VerdictAllow  Verdict = unix.SECCOMP_RET_ALLOW
)

// Call is a system call that a program may make.
type Call struct {
	Number uint32
	// Arg, if it is not nil, is what one of its arguments has to be.
	Arg *ArgCheck
}

// ArgCheck allows a call when the low half of argument Index, of which Mask is
// looked at, is one of Values.
type ArgCheck struct {
	Index  int
	Mask   uint32
	Values []uint32
}

// Policy is a seccomp filter: what is in neither list gets Default.
type Policy struct {
	Allow   []Call
	Kill    []uint32
	Default Verdict
}

// Offsets into struct seccomp_data, and the machine's byte order: the low half of
// an argument comes first on all machines that Go and this list know.
const (
	offNumber, offArch, offArgs = 0, 4, 16

	x32Bit = 0x40000000 // a second set of numbers on amd64

	maxSkip = 255 // of a conditional jump
)

// Program is the policy for the BPF machine of the kernel. Calls by another
// machine's numbers kill the process: the lists mean nothing there.
func (p *Policy) Program() ([]bpf.Instruction, error) {
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(VerdictKill)},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(VerdictKill)},
	}
	var plain []uint32
	for _, c := range p.Allow {
		if c.Arg == nil {
			plain = append(plain, c.Number)
			continue
		}
		b, err := c.block(p.Default)
		if err != nil {
			return nil, err
		}
		code = append(code, b...)
	}
	for _, n := range p.Kill {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: n, SkipFalse: 1}, bpf.RetConstant{Val: uint32(VerdictKill)})
	}
	if len(plain) > maxSkip {
		return nil, fmt.Errorf("sys: %d system calls are more than a filter may jump over", len(plain))
	}
	for i, n := range plain {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: n, SkipTrue: uint8(len(plain) - i)})
	}
	return append(code, bpf.RetConstant{Val: uint32(p.Default)}, bpf.RetConstant{Val: uint32(VerdictAllow)}), nil
}

// block decides about a call with an argument to check, and lets others pass on.
func (c *Call) block(otherwise Verdict) ([]bpf.Instruction, error) {
	k := len(c.Arg.Values)
	if k == 0 || k+5 > maxSkip || c.Arg.Index < 0 || c.Arg.Index > 5 {
		return nil, fmt.Errorf("sys: system call %d: argument %d with %d values cannot be checked", c.Number, c.Arg.Index, k)
	}
	body := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArgs + 8*uint32(c.Arg.Index), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.Arg.Mask},
	}
	for i, v := range c.Arg.Values {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(k - i)})
	}
	body = append(body, bpf.RetConstant{Val: uint32(otherwise)}, bpf.RetConstant{Val: uint32(VerdictAllow)})
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.Number, SkipFalse: uint8(len(body))}}, body...), nil
}

// ErrNoSeccomp: the kernel has no seccomp filters.
var ErrNoSeccomp = errors.New("sys: the kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)")

// Install puts the policy on every thread of the process, for good. Refused calls
// are written to the kernel's log, where it writes any (auditd, or dmesg). The
// process must have no_new_privs (Restrict).
func (p *Policy) Install() error {
	code, err := p.Program()
	if err != nil {
		return err
	}
	raw, err := bpf.Assemble(code)
	if err != nil {
		return fmt.Errorf("sys: seccomp: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_LOG
	tid, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	switch {
	case e == unix.ENOSYS || e == unix.EINVAL:
		return ErrNoSeccomp
	case e != 0:
		return os.NewSyscallError("seccomp", e)
	case tid != 0:
		return fmt.Errorf("sys: seccomp: thread %d has a filter of its own", tid)
	}
	return nil
}
