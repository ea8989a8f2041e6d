package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
)

// siblings are the links of one Open.
type siblings struct {
	mu    sync.Mutex // of SetAddrs; taken before any groupMu
	cfg   Config
	port  uint16
	links []*Link
}

// SetAddrs implements link.Readdresser. A socket stays as long as its address does
// on the same interface; groups that are joined follow the interfaces that have
// the addresses.
func (l *Link) SetAddrs(addrs []netip.Addr) (serving []netip.Addr, err error) {
	addrs, err = checkAddrs(addrs)
	if err != nil {
		return nil, err
	}
	s := l.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.links {
		if !x.enter() {
			return nil, link.ErrClosed
		}
		defer x.leave()
		x.groupMu.Lock()
		defer x.groupMu.Unlock()
	}
	serving, ifaces, err := s.receiveOn(addrs)
	for _, x := range s.links {
		sends, serr := x.tx.SetAddrs(serving)
		if serr != nil {
			err = errors.Join(err, fmt.Errorf("udp: %w", serr))
			s.drop(serving, sends)
			serving = sends
		}
	}
	for _, x := range s.links {
		if gerr := x.follow(indexes(ifaces)); gerr != nil {
			err = errors.Join(err, gerr)
		}
		x.poll.Wake() // it waits for other descriptors now
	}
	return serving, err
}

// receiveOn opens and closes receiving sockets. The groupMu of all links are held.
func (s *siblings) receiveOn(addrs []netip.Addr) (serving []netip.Addr, ifaces []hostnet.Iface, err error) {
	err = s.cfg.In(func() (err error) {
		var want []rxSock
		var there []netip.Addr
		for _, a := range addrs {
			ifc, aerr := hostnet.InterfaceWith(a)
			scope, serr := udptx.Scope(a)
			if aerr = errors.Join(aerr, serr); aerr != nil {
				err = errors.Join(err, fmt.Errorf("udp: %w", aerr))
				continue
			}
			there, ifaces = append(there, a), append(ifaces, ifc)
			want = append(want, rxSock{local: a.WithZone(""), scope: scope})
		}
		has := func(all []rxSock, one *rxSock) bool {
			for i := range all { // not the whole element: Recv counts drops in it
				if all[i].local == one.local && all[i].scope == one.scope {
					return true
				}
			}
			return false
		}
		for _, l := range s.links { // before others take their place
			l.exchange(func(k *rxSock) bool { return !k.local.IsMulticast() && !has(want, k) }, nil)
		}
		for i, a := range there {
			if !has(s.links[0].socks, &want[i]) {
				got, _, aerr := openAddr(s.links, netip.AddrPortFrom(a, s.port), &s.cfg)
				if aerr != nil {
					err = errors.Join(err, fmt.Errorf("udp: %w", aerr))
					continue
				}
				for i, l := range s.links {
					l.exchange(nil, got.socks[i:i+1])
				}
			}
			serving = append(serving, a)
		}
		return err
	})
	return serving, ifaces, err
}

// drop ends receiving on addresses that cannot be sent from.
func (s *siblings) drop(from, to []netip.Addr) {
	for _, a := range from {
		if slices.Contains(to, a) {
			continue
		}
		for _, l := range s.links {
			l.exchange(func(k *rxSock) bool { return k.local == a.WithZone("") }, nil)
		}
	}
}

// follow brings the sockets of groups to the interfaces that there are now.
func (l *Link) follow(ifaces []int) (err error) {
	if slices.Equal(l.ifaces, ifaces) {
		return nil
	}
	var more []rxSock
	_ = l.set.cfg.In(func() error {
		for _, g := range l.joined {
			for _, i := range ifaces {
				if slices.Contains(l.ifaces, i) {
					continue
				}
				fd, gerr := l.groupSocket(g, i)
				if gerr != nil {
					err = errors.Join(err, fmt.Errorf("udp: %w", gerr))
					continue
				}
				more = append(more, rxSock{fd: fd, local: g, scope: uint32(i)})
			}
		}
		return nil
	})
	l.ifaces = ifaces
	l.exchange(func(k *rxSock) bool { return k.local.IsMulticast() && !slices.Contains(ifaces, int(k.scope)) }, more)
	return err
}
