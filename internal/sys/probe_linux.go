package sys

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// ProbeSegmentation returns how many datagrams one send from a may hold: what
// UDP_MAX_SEGMENTS of the running kernel is (128 since Linux 6.9, 64 before).
// It sends one message to itself. The error says why there is no segmentation
// offload.
func ProbeSegmentation(a netip.Addr, scope uint32) (int, error) {
	fd, err := UDPSocket(a)
	if err != nil {
		return 0, err
	}
	defer Close(fd)
	if _, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT); err != nil {
		return 0, fmt.Errorf("the kernel has no UDP_SEGMENT (Linux 4.18): %w", err)
	}
	if err := AttachFilter(fd, DropAll); err != nil {
		return 0, err
	}
	if err := Bind(fd, netip.AddrPortFrom(a, 0), scope); err != nil {
		return 0, fmt.Errorf("bind to %v: %w", a, err)
	}
	port, err := LocalPort(fd)
	if err != nil {
		return 0, err
	}
	b := NewTxBatch(1, 1)
	for n := 128; n >= 64; n /= 2 {
		b.Reset()
		b.Add(&TxMeta{To: netip.AddrPortFrom(a, port), Scope: scope, Segment: 16})
		b.Piece(make([]byte, 16*n))
		switch _, e := b.Send(fd); e {
		case unix.EINVAL: // too many segments
		case unix.EIO, unix.EOPNOTSUPP:
			return 0, fmt.Errorf("the route to %v refuses UDP segmentation (IPsec, or a device without checksums): %w", a, e)
		case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL:
			return 64, nil // not tried: what every kernel with UDP_SEGMENT takes
		default: // sent, or refused after the check (interface down, firewall)
			return n, nil
		}
	}
	return 0, errors.New("UDP_SEGMENT is refused: EINVAL")
}

// PathMTU returns the kernel's idea of the path MTU from src to dst, in octets
// of IP packet. A multicast destination needs the interface it is sent from in
// scope.
func PathMTU(src, dst netip.Addr, scope uint32) (int, error) {
	fd, err := UDPSocket(dst)
	if err != nil {
		return 0, err
	}
	defer Close(fd)
	if err := Bind(fd, netip.AddrPortFrom(src, 0), scope); err != nil {
		return 0, err
	}
	if dst.Is6() && dst.IsMulticast() {
		if err := SetMulticastInterface(fd, int(scope)); err != nil {
			return 0, err
		}
	}
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: 9, Addr: dst.As16(), ZoneId: scope}
	level, opt := unix.IPPROTO_IPV6, unix.IPV6_MTU
	if dst.Is4() {
		sa, level, opt = &unix.SockaddrInet4{Port: 9, Addr: dst.As4()}, unix.IPPROTO_IP, unix.IP_MTU
	}
	if err := unix.Connect(fd, sa); err != nil {
		return 0, os.NewSyscallError("connect", err)
	}
	mtu, err := unix.GetsockoptInt(fd, level, opt)
	return mtu, os.NewSyscallError("getsockopt", err)
}
