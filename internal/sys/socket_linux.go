package sys

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// UDPSocket opens a non-blocking UDP socket of the family of a; one for IPv6
// carries no IPv4.
func UDPSocket(a netip.Addr) (int, error) {
	family := unix.AF_INET6
	if a.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if family == unix.AF_INET6 {
		if err := SetInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// Bind binds fd to ap; scope is the interface index of a link-local address.
// The error is a bare errno.
func Bind(fd int, ap netip.AddrPort, scope uint32) error {
	var sa unix.RawSockaddrInet6
	n := putSockaddr(&sa, ap, scope)
	_, _, e := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(n))
	if e != 0 {
		return e
	}
	return nil
}

// LocalPort returns the port fd is bound to.
func LocalPort(fd int) (uint16, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(sa.Port), nil
	case *unix.SockaddrInet6:
		return uint16(sa.Port), nil
	}
	return 0, fmt.Errorf("getsockname: not an Internet socket: %T", sa)
}

// Close closes a descriptor.
func Close(fd int) { _ = unix.Close(fd) }

// SetInt sets an integer socket option; the error names it.
func SetInt(fd, level, opt, v int) error {
	if err := unix.SetsockoptInt(fd, level, opt, v); err != nil {
		return fmt.Errorf("setsockopt %s: %w", optName(level, opt), err)
	}
	return nil
}

var optNames = map[[2]int]string{
	{unix.SOL_SOCKET, unix.SO_REUSEPORT}:           "SO_REUSEPORT",
	{unix.SOL_SOCKET, unix.SO_REUSEADDR}:           "SO_REUSEADDR",
	{unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX}:       "SO_BINDTOIFINDEX (needs Linux 5.7 or CAP_NET_RAW)",
	{unix.SOL_SOCKET, unix.SO_RXQ_OVFL}:            "SO_RXQ_OVFL",
	{unix.SOL_SOCKET, unix.SO_RCVBUF}:              "SO_RCVBUF",
	{unix.SOL_SOCKET, unix.SO_SNDBUF}:              "SO_SNDBUF",
	{unix.IPPROTO_UDP, unix.UDP_GRO}:               "UDP_GRO",
	{unix.IPPROTO_UDP, unix.UDP_SEGMENT}:           "UDP_SEGMENT",
	{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX}:      "UDP_NO_CHECK6_RX",
	{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER}:        "IP_MTU_DISCOVER",
	{unix.IPPROTO_IP, unix.IP_RECVTOS}:             "IP_RECVTOS",
	{unix.IPPROTO_IP, unix.IP_RECVTTL}:             "IP_RECVTTL",
	{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER}:    "IPV6_MTU_DISCOVER",
	{unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG}:        "IPV6_DONTFRAG",
	{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS}:      "IPV6_RECVTCLASS",
	{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT}:    "IPV6_RECVHOPLIMIT",
	{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF}:    "IPV6_MULTICAST_IF",
	{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}:          "IPV6_V6ONLY",
	{unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}:       "SO_ATTACH_FILTER",
	{unix.SOL_SOCKET, soAttachReuseportCBPF}:       "SO_ATTACH_REUSEPORT_CBPF",
	{unix.SOL_PACKET, unix.PACKET_VNET_HDR}:        "PACKET_VNET_HDR",
	{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING}: "PACKET_IGNORE_OUTGOING",
	{unix.SOL_PACKET, unix.PACKET_FANOUT}:          "PACKET_FANOUT",
	{unix.SOL_PACKET, unix.PACKET_FANOUT_DATA}:     "PACKET_FANOUT_DATA",
}

func optName(level, opt int) string {
	if s, ok := optNames[[2]int{level, opt}]; ok {
		return s
	}
	return fmt.Sprintf("level %d option %d", level, opt)
}

const soAttachReuseportCBPF = unix.SO_ATTACH_REUSEPORT_CBPF

// SetReceiveMeta asks for what a receiver of RoCEv2 needs beside the payload:
// traffic class, hop limit, and the count of datagrams that found no room. An
// IPv6 socket also takes datagrams whose UDP checksum is 0, which the kernel
// otherwise drops silently; RoCEv2 senders leave it out.
func SetReceiveMeta(fd int, a netip.Addr) error {
	opts := [][2]int{
		{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT},
		{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX},
	}
	if a.Is4() {
		opts = [][2]int{{unix.IPPROTO_IP, unix.IP_RECVTOS}, {unix.IPPROTO_IP, unix.IP_RECVTTL}}
	}
	for _, o := range append(opts, [2]int{unix.SOL_SOCKET, unix.SO_RXQ_OVFL}) {
		if err := SetInt(fd, o[0], o[1], 1); err != nil {
			return err
		}
	}
	return nil
}

// SetDontFragment makes every packet of fd carry DF, and with it, as long as
// fd is not connected, IPv4 identification 0 (0, 1, 2... in the segments of
// one message). Only the interface's MTU bounds a packet: the path's would be
// learned from ICMP, and a forged message would have the kernel refuse every
// packet to a peer for ten minutes. The path MTU of RDMA is what both ends
// agreed on.
func SetDontFragment(fd int, a netip.Addr) error {
	if a.Is4() {
		return SetInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}
	if err := SetInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE); err != nil {
		return err
	}
	return SetInt(fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1)
}

// SetHopLimit gives what fd sends to single hosts a hop limit.
func SetHopLimit(fd int, a netip.Addr, n int) error {
	if a.Is4() {
		return SetInt(fd, unix.IPPROTO_IP, unix.IP_TTL, n)
	}
	return SetInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, n)
}

// MarkPriority4 gives what the IPv4 socket fd sends a traffic class and a
// priority (skb->priority). A message that has a traffic class of its own
// (TxMeta without Marked) does not get the priority: the kernel derives one
// from the class, and before Linux 6.14 there is no message with both. Priority
// 7 needs CAP_NET_RAW or CAP_NET_ADMIN, EPERM otherwise.
func MarkPriority4(fd int, tos, priority uint8) syscall.Errno {
	// In this order: a traffic class sets the priority as well.
	if e := setsockopt(fd, unix.IPPROTO_IP, unix.IP_TOS, tos); e != 0 {
		return e
	}
	return setsockopt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, priority)
}

// MarkPriority6 gives what the IPv6 socket fd sends a priority, whatever the
// traffic class of a message. For priority 7 see MarkPriority4.
func MarkPriority6(fd int, priority uint8) syscall.Errno {
	return setsockopt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, priority)
}

func setsockopt(fd, level, opt int, v uint8) syscall.Errno {
	n := int32(v)
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt), uintptr(unsafe.Pointer(&n)), 4, 0)
	return e
}

// SetReceiveBuffer asks for a receive buffer of n octets, past the system's
// limit where the process may, and returns what the kernel gave: by its
// accounting twice what was asked for.
func SetReceiveBuffer(fd, n int) (int, error) {
	return setBuffer(fd, n, unix.SO_RCVBUF, unix.SO_RCVBUFFORCE)
}

// SetSendBuffer does the same for the send buffer.
func SetSendBuffer(fd, n int) (int, error) {
	return setBuffer(fd, n, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE)
}

func setBuffer(fd, n, opt, force int) (int, error) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, n) != nil {
		if err := SetInt(fd, unix.SOL_SOCKET, opt, n); err != nil {
			return 0, err
		}
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, opt)
	return got, os.NewSyscallError("getsockopt", err)
}

// SetGRO lets fd receive runs of equal datagrams in one piece (Linux 5.0).
func SetGRO(fd int) error { return SetInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) }

// SetReusePort lets fd share its address with other sockets of this user.
// Set after Bind, the bind itself was exclusive.
func SetReusePort(fd int) error { return SetInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }

// AttachReuseportFilter sets the program that picks the receiver in the group
// that fd is in; it sees the UDP payload and returns an index, in order of
// binding.
func AttachReuseportFilter(fd int, prog []bpf.Instruction) error {
	return Attach(fd, unix.SOL_SOCKET, soAttachReuseportCBPF, prog)
}

// AttachFilter sets the socket filter of fd.
func AttachFilter(fd int, prog []bpf.Instruction) error {
	return Attach(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, prog)
}

// DropAll is a socket filter that lets nothing in.
var DropAll = []bpf.Instruction{bpf.RetConstant{Val: 0}}

// Attach gives fd a program by a socket option that takes one; the error names
// the option.
func Attach(fd, level, opt int, prog []bpf.Instruction) error {
	raw, err := bpf.Assemble(prog)
	if err != nil {
		return err
	}
	f := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		f[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	err = unix.SetsockoptSockFprog(fd, level, opt, &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]})
	if err != nil {
		return fmt.Errorf("setsockopt %s: %w", optName(level, opt), err)
	}
	return nil
}

// putSockaddr fills sa, which holds an IPv4 socket address too, and returns
// its length.
func putSockaddr(sa *unix.RawSockaddrInet6, ap netip.AddrPort, scope uint32) uint32 {
	port := ap.Port()
	if ap.Addr().Is4() {
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		s4.Family = unix.AF_INET
		*(*[2]byte)(unsafe.Pointer(&s4.Port)) = [2]byte{byte(port >> 8), byte(port)}
		s4.Addr = ap.Addr().As4()
		return unix.SizeofSockaddrInet4
	}
	sa.Family = unix.AF_INET6
	*(*[2]byte)(unsafe.Pointer(&sa.Port)) = [2]byte{byte(port >> 8), byte(port)}
	sa.Flowinfo = 0
	sa.Addr = ap.Addr().As16()
	sa.Scope_id = scope
	return unix.SizeofSockaddrInet6
}

// getSockaddr reads sa; no zone.
func getSockaddr(sa *unix.RawSockaddrInet6) (netip.Addr, uint16) {
	p := (*[2]byte)(unsafe.Pointer(&sa.Port)) // at the same place in both
	port := uint16(p[0])<<8 | uint16(p[1])
	if sa.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr), port
	}
	return netip.AddrFrom16(sa.Addr), port
}
