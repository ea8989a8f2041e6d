package sys

import (
	"errors"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NetnsCookie returns the number of the network namespace that a socket was made
// in, which no other has. SO_NETNS_COOKIE, Linux 5.14; 0 where there is none.
func NetnsCookie(c *net.UnixConn) (cookie uint64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		cookie, _ = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	})
	return cookie
}

// PeerCred returns who is at the other end of a unix socket, as it was when it
// connected. SO_PEERCRED, unix(7).
func PeerCred(c *net.UnixConn) (pid int32, uid, gid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(cerr, os.NewSyscallError("getsockopt SO_PEERCRED", err)); err != nil {
		return 0, 0, 0, err
	}
	return cred.Pid, cred.Uid, cred.Gid, nil
}

// PeerGroups returns the supplementary groups of who is at the other end of a unix
// socket. SO_PEERGROUPS, Linux 4.13; none where there is none.
func PeerGroups(c *net.UnixConn) (gids []uint32) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		n := uint32(0) // octets; the first call says how many there are
		get := func(b []uint32) error {
			_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(unsafe.Pointer(&n)), 0)
			if errno != 0 {
				return errno
			}
			return nil
		}
		if err := get(nil); errors.Is(err, unix.ERANGE) && n > 0 && n <= 4*65536 {
			gids = make([]uint32, n/4)
			if get(gids) != nil {
				gids = nil
			}
		}
	})
	return gids
}

// Rights returns the control message that passes descriptors. unix(7).
func Rights(fds ...int) []byte { return unix.UnixRights(fds...) }

// RightsSpace is room for the control message of n descriptors.
func RightsSpace(n int) int { return unix.CmsgSpace(4 * n) }

// ParseRights returns the descriptors that a control message brought, which are
// the caller's to close.
func ParseRights(oob []byte) (fds []int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, os.NewSyscallError("control message", err)
	}
	for i := range msgs {
		if msgs[i].Header.Level == unix.SOL_SOCKET && msgs[i].Header.Type == unix.SCM_RIGHTS {
			got, err := unix.ParseUnixRights(&msgs[i])
			if err != nil {
				return fds, os.NewSyscallError("control message", err)
			}
			fds = append(fds, got...)
		}
	}
	return fds, nil
}

// CloseFDs closes descriptors.
func CloseFDs(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// MsgTruncated are the flags of a received message that was cut, or lost control
// messages. recvmsg(2).
const MsgTruncated = unix.MSG_TRUNC | unix.MSG_CTRUNC

// NetnsCookieHere returns the number of the calling thread's network namespace, 0
// where the kernel has none.
func NetnsCookieHere() uint64 {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	c, _ := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return c
}
