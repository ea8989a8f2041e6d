package packet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
)

// SetAddrs implements link.Readdresser. Received packets are for the new addresses
// from the next look on. Without the capabilities that the tcx program needs,
// which a process may have given up since Open, the program goes.
func (l *Link) SetAddrs(addrs []netip.Addr) (serving []netip.Addr, err error) {
	gs := l.groups
	open := gs.enter()
	defer leaveAll(open)
	if len(open) < len(gs.links) {
		return nil, link.ErrClosed
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	moved, serving, err := l.hostSide(addrs)
	for _, x := range gs.links {
		var serr error
		if serving, serr = x.tx.SetAddrs(serving); serr != nil {
			err = errors.Join(err, fmt.Errorf("packet: %w", serr))
		}
	}
	if moved {
		err = errors.Join(err, gs.move(open))
	}
	for i, x := range gs.links {
		to := bare(serving)
		for g, m := range gs.members {
			if m.link == i {
				to = append(to, g)
			}
		}
		x.rx.set(to)
		x.poll.Wake()
	}
	derr := gs.in(func() error { return l.drop.follow(gs.iface, bare(serving)) })
	if derr != nil {
		err = errors.Join(err, fmt.Errorf("packet: %w", derr))
	}
	return serving, err
}

// hostSide finds the interface, which may have moved to another index, and holds
// the port of the addresses that it has.
func (l *Link) hostSide(addrs []netip.Addr) (moved bool, holding []netip.Addr, err error) {
	gs := l.groups
	err = gs.in(func() error {
		ifc, err := hostnet.Interface(gs.name)
		switch {
		case err == nil:
		case !errors.Is(err, hostnet.ErrNoInterface):
			return fmt.Errorf("packet: %w", err)
		case len(addrs) == 0:
			err = nil // none are missing
		}
		moved = ifc.Index != 0 && ifc.Index != gs.iface
		if moved {
			gs.iface = ifc.Index
		}
		var has []netip.Addr
		for _, a := range addrs {
			one, aerr := udptx.ChooseAddrs(&ifc, []netip.Addr{a})
			if aerr != nil {
				if ifc.Index != 0 { // otherwise that is said once
					err = errors.Join(err, aerr)
				}
				continue
			}
			has = append(has, one...)
		}
		var aerr error
		holding, aerr = l.hold.SetAddrs(has)
		if err = errors.Join(err, aerr); err != nil {
			err = fmt.Errorf("packet: %w", err)
		}
		return err
	})
	return moved, holding, err
}

// move ties the sockets to the interface's new index. The lock is held.
func (gs *groups) move(open []*Link) (err error) {
	for g, m := range gs.members {
		fd, gerr := gs.membership(g)
		if gerr != nil {
			err = errors.Join(err, gerr)
			continue
		}
		sys.Close(m.fd)
		gs.members[g] = member{fd, m.link}
	}
	if err = errors.Join(err, gs.apply(open)); err != nil {
		err = fmt.Errorf("packet: the interface %s has come back with index %d: %w", gs.name, gs.iface, err)
	}
	return err
}
