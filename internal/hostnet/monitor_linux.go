package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Monitor tells that an interface has changed: its addresses, MTU, flags,
// carrier, MAC address or name, or that it came or went. What it is now Interface
// says. An interface need not exist to be watched.
type Monitor struct {
	name    string
	index   int // 0 while it does not exist
	sock    *nl.NetlinkSocket
	changed chan struct{}
	quit    chan struct{}
	ended   chan struct{}
}

// Watch watches the interface called name in the calling thread's network
// namespace, from whatever thread the Monitor is used later.
func Watch(name string) (*Monitor, error) {
	m, err := subscribe(name)
	if err == nil {
		go m.run()
	}
	return m, err
}

func subscribe(name string) (*Monitor, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("hostnet: watch %s: subscribe to netlink: %w", name, err)
	}
	m := &Monitor{name: name, sock: s, changed: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	if l, err := netlink.LinkByName(name); err == nil { // once subscribed, so that nothing is missed
		m.index = l.Attrs().Index
	}
	return m, nil
}

// Changed is ready when the interface may have changed since it was last
// received from. It is closed by Close.
func (m *Monitor) Changed() <-chan struct{} { return m.changed }

// Close ends the watch. A second call does nothing.
func (m *Monitor) Close() {
	select {
	case <-m.quit:
	default:
		close(m.quit)
		m.sock.Close()
	}
	<-m.ended
}

func (m *Monitor) run() {
	defer close(m.ended)
	defer close(m.changed)
	var first time.Time // of the changes not told yet
	for {
		m.expect(first)
		msgs, from, err := m.sock.Receive()
		mine := false
		switch {
		case err == nil:
			mine = from.Pid == nl.PidKernel && m.concerns(msgs)
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS): // the kernel had more to tell than there was room for
			m.index, mine = 0, true
		default:
			mine = true
			select { // whatever it is, it must not be asked for all the time
			case <-m.quit:
				return
			case <-time.After(tooLong):
			}
		}
		switch {
		case mine && first.IsZero():
			first = time.Now()
		case first.IsZero() || mine && time.Since(first) < tooLong:
		case errors.Is(err, unix.EAGAIN) || time.Since(first) >= tooLong:
			first = time.Time{}
			select {
			case m.changed <- struct{}{}:
			default: // it is told already
			}
		}
	}
}

// expect sets how long the next Receive waits.
func (m *Monitor) expect(first time.Time) {
	var tv unix.Timeval // for ever
	if !first.IsZero() {
		wait := max(time.Millisecond, min(settled, tooLong-time.Since(first)))
		tv = unix.NsecToTimeval(int64(wait))
	}
	_ = m.sock.SetReceiveTimeout(&tv)
}

// concerns reports whether messages are about the interface, and follows its
// index. After a loss of messages the index is not known, and any address may be
// its own until a message about it comes.
func (m *Monitor) concerns(msgs []syscall.NetlinkMessage) (mine bool) {
	for _, msg := range msgs {
		if len(msg.Data) < 8 {
			continue
		}
		index := int(binary.NativeEndian.Uint32(msg.Data[4:])) // ifi_index, ifa_index
		switch msg.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			if len(msg.Data) < unix.SizeofIfInfomsg {
				continue
			}
			named := linkName(msg.Data[unix.SizeofIfInfomsg:]) == m.name
			mine = mine || named || index == m.index
			switch {
			case named && msg.Header.Type == unix.RTM_NEWLINK:
				m.index = index
			case index == m.index: // gone, or called something else now
				m.index = 0
			}
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			mine = mine || index == m.index || m.index == 0
		}
	}
	return mine
}

// linkName finds the name among the attributes of a message about an interface.
func linkName(b []byte) string {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return ""
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_IFNAME {
			return strings.TrimRight(string(a.Value), "\x00")
		}
	}
	return ""
}
