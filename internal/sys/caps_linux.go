package sys

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Caps is a set of capabilities, one bit each. capabilities(7).
type Caps uint64

// Capabilities that a software NIC may need.
const (
	CapNetAdmin Caps = 1 << unix.CAP_NET_ADMIN
	CapNetRaw   Caps = 1 << unix.CAP_NET_RAW
	CapBPF      Caps = 1 << unix.CAP_BPF
	CapSetPCap  Caps = 1 << unix.CAP_SETPCAP
	CapSetUID   Caps = 1 << unix.CAP_SETUID
	CapSetGID   Caps = 1 << unix.CAP_SETGID
)

var capNames = [...]string{
	unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_NET_RAW: "CAP_NET_RAW", unix.CAP_BPF: "CAP_BPF",
	unix.CAP_SETPCAP: "CAP_SETPCAP", unix.CAP_SETUID: "CAP_SETUID", unix.CAP_SETGID: "CAP_SETGID",
}

// String names the capabilities, or says "none".
func (c Caps) String() string {
	var out []string
	for i := range 64 {
		if c>>i&1 == 0 {
			continue
		}
		name := fmt.Sprintf("capability %d", i)
		if i < len(capNames) && capNames[i] != "" {
			name = capNames[i]
		}
		out = append(out, name)
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, " ")
}

// Privileges is what a process shall be left with.
type Privileges struct {
	Keep     Caps  // of the capabilities that it has; all others go
	UID, GID int   // to become; -1 stays as it is
	Groups   []int // supplementary ones, if UID or GID is not -1
}

// ErrThreads: the program was built with cgo, where threads may exist that Go does
// not know of.
var ErrThreads = errors.New("sys: rights cannot be given up by all threads of a program that was built with cgo: build it with CGO_ENABLED=0")

// Restrict gives up everything but r, for good: capabilities, the bounding and
// ambient sets, and what running another program could bring (no_new_privs). What
// a capability lacks for is said in left: it is no error to have little to begin
// with.
//
// All of these belong to a thread, not to the process, and Go runs on many. So
// every call is made by all of them at once (syscall.AllThreadsSyscall stops the
// others meanwhile); threads made later inherit from one of them. Doing it early
// on the only thread is not possible: there is no such moment in a Go program, and
// devices want their privileges first.
func Restrict(r Privileges) (left []string, err error) {
	have, err := capget()
	if err != nil {
		return nil, err
	}
	if err := allThreads("prctl PR_CAP_AMBIENT_CLEAR_ALL", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	if have&CapSetPCap != 0 {
		if err := dropBounding(); err != nil {
			return nil, err
		}
	} else {
		left = append(left, "the bounding set stays as it is, for want of CAP_SETPCAP; with no_new_privs nothing can use it")
	}
	if err := become(r); err != nil {
		return nil, err
	}
	if err := capset(r.Keep & have); err != nil {
		return nil, err
	}
	return left, allThreads("prctl PR_SET_NO_NEW_PRIVS", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
}

// Effective returns the capabilities of the calling thread.
func Effective() (Caps, error) { return capget() }

func dropBounding() error {
	for i := range uintptr(64) {
		on, _, e := unix.Syscall(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, i, 0)
		if e == unix.EINVAL {
			return nil // past the last one that the kernel knows
		}
		if on == 0 {
			continue
		}
		if err := allThreads("prctl PR_CAPBSET_DROP", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// become changes the user and groups, keeping capabilities for the while.
func become(r Privileges) error {
	if r.UID < 0 && r.GID < 0 {
		return nil
	}
	if err := allThreads("prctl PR_SET_KEEPCAPS", unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0); err != nil {
		return err
	}
	// These of package syscall are for all threads.
	if err := syscall.Setgroups(r.Groups); err != nil {
		return fmt.Errorf("%w; CAP_SETGID is needed to change groups", os.NewSyscallError("setgroups", err))
	}
	if r.GID >= 0 {
		if err := syscall.Setresgid(r.GID, r.GID, r.GID); err != nil {
			return fmt.Errorf("%w; CAP_SETGID is needed to become group %d", os.NewSyscallError("setresgid", err), r.GID)
		}
	}
	if r.UID >= 0 {
		if err := syscall.Setresuid(r.UID, r.UID, r.UID); err != nil {
			return fmt.Errorf("%w; CAP_SETUID is needed to become user %d", os.NewSyscallError("setresuid", err), r.UID)
		}
	}
	return nil
}

func capget() (Caps, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&hdr, &d[0]); err != nil {
		return 0, os.NewSyscallError("capget", err)
	}
	return Caps(d[1].Permitted)<<32 | Caps(d[0].Permitted), nil
}

// capset makes c the effective and permitted set of all threads, and empties the
// inheritable one.
func capset(c Caps) error {
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	d := &[2]unix.CapUserData{
		{Effective: uint32(c), Permitted: uint32(c)},
		{Effective: uint32(c >> 32), Permitted: uint32(c >> 32)},
	}
	return allThreads("capset", unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(d)), 0)
}

// allThreads makes a system call on every thread of the process. Each is interrupted
// for it and goes back to what it waits for, which is the moment that longestWait tells
// of: the next call does not come at once.
//
//go:uintptrescapes
func allThreads(name string, trap, a1, a2, a3 uintptr) error {
	time.Sleep(time.Millisecond)
	_, _, e := syscall.AllThreadsSyscall6(trap, a1, a2, a3, 0, 0, 0)
	switch e {
	case 0:
		return nil
	case syscall.ENOTSUP:
		return ErrThreads
	}
	return os.NewSyscallError(name, e)
}

// Monotonic returns nanoseconds of CLOCK_MONOTONIC.
func Monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // every kernel has it
	return ts.Nano()
}
