package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
)

// SetAddrs implements link.Readdresser, but for an interface that comes back with
// another index: the sockets are tied to the one that has gone, so such a link
// serves nothing any more, and says so.
func (l *Link) SetAddrs(addrs []netip.Addr) (serving []netip.Addr, err error) {
	d := l.dev
	for _, x := range d.links {
		if !x.gate.Enter() {
			return nil, link.ErrClosed
		}
		defer x.leave()
	}
	d.addrMu.Lock()
	defer d.addrMu.Unlock()
	var ifc hostnet.Iface
	err = d.in(func() (err error) {
		serving, ifc, err = d.hostSide(addrs)
		return err
	})
	for _, x := range d.links {
		var serr error
		if serving, serr = x.tx.stack.SetAddrs(serving); serr != nil {
			err = errors.Join(err, fmt.Errorf("xdp: %w", serr))
		}
	}
	for _, a := range d.addrs {
		if !slices.Contains(serving, a) {
			d.prog.ignore(a)
		}
	}
	d.addrs = nil
	for _, a := range serving {
		if perr := d.prog.serve(a, ifc.MAC); perr != nil {
			err = errors.Join(err, fmt.Errorf("xdp: %w", perr))
			continue
		}
		d.addrs = append(d.addrs, a)
	}
	d.hops.forgetAll()
	for _, x := range d.links {
		x.poll.Wake()
	}
	return slices.Clone(d.addrs), err
}

// hostSide holds the port of the addresses that the interface has.
func (d *device) hostSide(addrs []netip.Addr) (holding []netip.Addr, ifc hostnet.Iface, err error) {
	if ifc, err = hostnet.Interface(d.ifc.Name); errors.Is(err, hostnet.ErrNoInterface) && len(addrs) == 0 {
		err = nil
	}
	if err == nil && ifc.Index != 0 && ifc.Index != d.ifc.Index {
		err = fmt.Errorf("the interface %s was made anew, and AF_XDP sockets stay with the old one: open the device again, or use --link udp or packet", ifc.Name)
	}
	if err != nil {
		_, herr := d.hold.SetAddrs(nil)
		return nil, ifc, fmt.Errorf("xdp: %w", errors.Join(err, herr))
	}
	var has []netip.Addr
	for _, a := range addrs {
		one, aerr := udptx.ChooseAddrs(&ifc, []netip.Addr{a})
		if aerr != nil {
			err = errors.Join(err, aerr)
			continue
		}
		has = append(has, one...)
	}
	holding, herr := d.hold.SetAddrs(has)
	if err = errors.Join(err, herr); err != nil {
		err = fmt.Errorf("xdp: %w", err)
	}
	return holding, ifc, err
}
