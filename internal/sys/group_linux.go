package sys

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Membership makes fd's host a member of a multicast group on an interface,
// which the host tells the network (IGMP, MLD), until fd is closed. One socket
// may have 20 IPv4 memberships (net.ipv4.igmp_max_memberships).
func Membership(fd int, group netip.Addr, ifindex int) error {
	var err error
	if group.Is4() {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(ifindex)})
	} else {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(ifindex)})
	}
	return os.NewSyscallError("join the group", err)
}

// SetReuseAddr lets fd share a multicast address and port with sockets of any
// user that have the option too; each gets a copy of what arrives.
func SetReuseAddr(fd int) error { return SetInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }

// BindToInterface restricts fd to an interface, given by index. Needs
// CAP_NET_RAW before Linux 5.7.
func BindToInterface(fd, ifindex int) error {
	return SetInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, ifindex)
}

// SetMulticastInterface says where fd, an IPv6 socket, sends multicast from.
// An IPv4 socket sends it from the interface that has its source address.
func SetMulticastInterface(fd, ifindex int) error {
	return SetInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, ifindex)
}
