package udp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/wire"
)

// JoinGroup implements link.GroupJoiner: it opens a receiving socket for the
// group on each interface that has an address of the link. Needs no privilege
// (before Linux 5.7 CAP_NET_RAW).
func (l *Link) JoinGroup(group netip.Addr) error {
	g, err := link.Group(group)
	if err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	if !l.enter() {
		return link.ErrClosed
	}
	defer l.leave()
	l.groupMu.Lock()
	defer l.groupMu.Unlock()
	if slices.Contains(l.joined, g) {
		return nil
	}
	var socks []rxSock
	err = l.set.cfg.In(func() error {
		for _, ifindex := range l.ifaces {
			fd, err := l.groupSocket(g, ifindex)
			if err != nil {
				closeAll(socks)
				return fmt.Errorf("udp: %w", err)
			}
			socks = append(socks, rxSock{fd: fd, local: g, scope: uint32(ifindex)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.joined = append(l.joined, g)
	l.exchange(nil, socks)
	return nil
}

// LeaveGroup implements link.GroupJoiner.
func (l *Link) LeaveGroup(group netip.Addr) error {
	g, err := link.Group(group)
	if err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	if !l.enter() {
		return link.ErrClosed
	}
	defer l.leave()
	l.groupMu.Lock()
	defer l.groupMu.Unlock()
	l.joined = slices.DeleteFunc(l.joined, func(a netip.Addr) bool { return a == g })
	l.exchange(func(s *rxSock) bool { return s.local == g }, nil)
	return nil
}

// exchange closes the receiving sockets that go, if any, and adds others. groupMu
// is held, so that nobody else changes socks.
func (l *Link) exchange(goes func(*rxSock) bool, others []rxSock) {
	var gone []rxSock
	l.mu.Lock()
	if goes != nil {
		l.socks = slices.DeleteFunc(l.socks, func(s rxSock) bool {
			if goes(&s) {
				gone = append(gone, s)
				return true
			}
			return false
		})
	}
	l.socks = append(l.socks, others...)
	if len(gone) > 0 {
		l.hot, l.turn, l.runs = 0, 0, 0
	}
	l.mu.Unlock()
	l.poll.Set(l.fds())
	closeAll(gone)
}

// fds, called with groupMu held, returns the receiving descriptors in the order of socks.
func (l *Link) fds() []int {
	fds := make([]int, len(l.socks))
	for i := range l.socks {
		fds[i] = l.socks[i].fd
	}
	return fds
}

// groupSocket opens a socket that receives what arrives for a group on an
// interface. Other sockets of the host may do the same.
func (l *Link) groupSocket(g netip.Addr, ifindex int) (int, error) {
	fd, err := sys.UDPSocket(g)
	if err != nil {
		return -1, err
	}
	if err := l.prepareGroup(fd, g, ifindex); err != nil {
		sys.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (l *Link) prepareGroup(fd int, g netip.Addr, ifindex int) error {
	if err := sys.SetReceiveMeta(fd, g); err != nil {
		return err
	}
	if l.merged {
		if err := sys.SetGRO(fd); err != nil {
			return err
		}
	}
	if _, err := sys.SetReceiveBuffer(fd, l.rcvBuf); err != nil {
		return err
	}
	if err := sys.SetReuseAddr(fd); err != nil {
		return err
	}
	if err := sys.BindToInterface(fd, ifindex); err != nil {
		return err
	}
	if err := sys.Bind(fd, netip.AddrPortFrom(g, wire.Port), uint32(ifindex)); err != nil {
		return udptx.BindError(g, wire.Port, err)
	}
	if err := sys.Membership(fd, g, ifindex); err != nil {
		return fmt.Errorf("%v on interface %d: %w", g, ifindex, err)
	}
	return nil
}

func closeAll(socks []rxSock) {
	for _, s := range socks {
		sys.Close(s.fd)
	}
}
