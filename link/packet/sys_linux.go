package packet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
)

// openSockets opens n packet sockets that share the frames accept lets in.
// When it returns, each frame from then on is in exactly one of them.
func openSockets(n int, accept program, rcvBuf int) (fds []int, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	for range n {
		fd, err := openSocket(rcvBuf)
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
	}
	if n > 1 {
		if err := joinFanout(fds); err != nil {
			return fds, err
		}
	}
	for _, fd := range fds {
		if err := sys.AttachFilter(fd, accept); err != nil {
			return fds, err
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		sys.Close(fd)
	}
}

// openSocket opens a packet socket on all interfaces that lets nothing in
// yet.
func openSocket(rcvBuf int) (int, error) {
	// Protocol 0: nothing arrives before bind, so nothing unfiltered.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return -1, privilegeError()
	}
	if err != nil {
		return -1, os.NewSyscallError("socket AF_PACKET", err)
	}
	if err := setUp(fd, rcvBuf); err != nil {
		sys.Close(fd)
		return -1, err
	}
	return fd, nil
}

func setUp(fd, rcvBuf int) error {
	if err := sys.AttachFilter(fd, sys.DropAll); err != nil {
		return err
	}
	if err := sys.SetInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return err
	}
	// Linux 4.20; before it the filter turns the echo away, only later.
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if _, err := sys.SetReceiveBuffer(fd, rcvBuf); err != nil {
		return err
	}
	// All protocols: the taps of a single one come after tc's ingress, where
	// a program may drop what the stack need not see.
	all := unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL)}
	return os.NewSyscallError("bind AF_PACKET", unix.Bind(fd, &all))
}

func privilegeError() error {
	self, err := os.Executable()
	if err != nil {
		self = "PROGRAM"
	}
	return fmt.Errorf("%w, which packet sockets need: run as root, grant it with 'setcap cap_net_raw+ep %s', or use --link udp, which needs no privilege",
		ErrPrivilege, self)
}

// joinFanout makes the sockets a group of which one gets each frame, by the
// destination queue pair number.
func joinFanout(fds []int) error {
	id := 0
	for i, fd := range fds {
		flags := 0
		if i == 0 {
			flags = unix.PACKET_FANOUT_FLAG_UNIQUEID
		}
		if err := sys.SetInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, id|(unix.PACKET_FANOUT_CBPF|flags)<<16); err != nil {
			return err
		}
		if i == 0 {
			v, err := unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
			if err != nil {
				return os.NewSyscallError("getsockopt PACKET_FANOUT", err)
			}
			id = v & 0xffff
		}
	}
	return sys.Attach(fds[0], unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, fanoutFilter(nil))
}

// drops returns how many frames fd had no room for since the last call.
func drops(fd int) uint64 {
	s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// bears returns how many packets in flight the receive buffer of fd bears: 64
// with the usual unprivileged limit, 512 with a large buffer, where more gains
// nothing. The kernel charges a packet of 4096 octets that arrives alone with
// up to twice its length. If the buffer is not the wanted one, missing says
// why.
func bears(fd, wanted int) (window int, missing []string) {
	const charge, least, most = 8192, 64, 512
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return least, nil
	}
	window = max(least, min(most, n/charge))
	if n < 2*wanted { // the kernel doubles what it is asked for
		missing = append(missing, fmt.Sprintf("the receive buffer is %d octets instead of %d and bears %d packets in flight, not %d: without CAP_NET_ADMIN net.core.rmem_max limits it; allow more with 'sysctl -w net.core.rmem_max=%d'", n/2, wanted, window, most, wanted))
	}
	return window, missing
}
