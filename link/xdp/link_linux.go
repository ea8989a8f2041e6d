package xdp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// device is what the links of one Open share.
type device struct {
	ifc     hostnet.Iface
	in      func(func() error) error
	links   []*Link
	addrMu  sync.Mutex   // of SetAddrs
	addrs   []netip.Addr // link-local ones with their zone
	native  bool         // the program runs in the driver
	sg      bool         // sockets take packets in several pieces
	mtu     int          // octets of the largest IP packet
	driver  hostnet.XDPFeatures
	refused error // why the driver refuses zero copy, which it has
	chunks  int   // of a queue, for arriving packets

	prog   *program
	hops   *hops
	hold   *udptx.Holder
	groups groups
	users  atomic.Int32
}

// release gives up one link's share.
func (d *device) release() {
	d.hold.Release()
	if d.users.Add(-1) == 0 {
		d.prog.close()
		d.hops.close()
	}
}

// Link is one shard's queues. It is a link.Link, link.StatsReader,
// link.NamedCounters, link.PortResolver, link.GroupJoiner and link.Readdresser.
type Link struct {
	info  link.Info
	gate  sys.Gate // of every descriptor and all memory below
	dev   *device
	poll  *sys.Poller
	socks []*sys.XSK
	rx    receiver
	tx    *sender
	first bool // it shows the device's counters

	final finalCounts // what a closed link shows
}

var (
	_ link.Link          = (*Link)(nil)
	_ link.StatsReader   = (*Link)(nil)
	_ link.NamedCounters = (*Link)(nil)
	_ link.PortResolver  = (*Link)(nil)
	_ link.GroupJoiner   = (*Link)(nil)
	_ link.Readdresser   = (*Link)(nil)
)

// Info describes the link.
func (l *Link) Info() link.Info { return l.info }

// Recv fills ds with datagrams that have arrived, at most 64 in a call. It also
// tries again to send what the kernel had no room for.
func (l *Link) Recv(ds []wire.Datagram) (int, error) {
	if !l.gate.Enter() {
		return 0, link.ErrClosed
	}
	l.tx.retry()
	n := l.rx.recv(ds)
	l.leave()
	return n, nil
}

// Send sends sealed bursts. A path whose next hop is not known yet, is not on
// this interface, or is a group, is taken by the stack, whose errors are those
// of link/udp. An interface that is down refuses everything.
func (l *Link) Send(bs []*wire.Burst) (int, error) {
	if !l.gate.Enter() {
		return 0, link.ErrClosed
	}
	n, err := l.tx.send(bs)
	l.leave()
	return n, err
}

// How long Wait sleeps at once while the kernel has something of ours that it
// does not tell about: frames that it could not send yet, or has sent but not
// returned.
const (
	tryAgain  = time.Millisecond
	roomCheck = 50 * time.Microsecond
)

// Wait blocks as link.Link describes.
func (l *Link) Wait(d time.Duration) error {
	if !l.gate.Enter() {
		return link.ErrClosed
	}
	defer l.leave()
	limit := func(most time.Duration) {
		if d < 0 || d > most {
			d = most
		}
	}
	if l.tx.retry() {
		limit(tryAgain)
	}
	if l.tx.full.Load() {
		limit(roomCheck)
	}
	_, err := l.poll.Wait(d, l.tx.stack.Blocked())
	return err
}

// Wake ends a Wait in progress, or the next one.
func (l *Link) Wake() {
	if l.gate.Enter() {
		l.poll.Wake()
		l.leave()
	}
}

// ResolvePort returns the source port that packets from src leave from when
// want is asked for: those that leave by the stack do so from a socket.
func (l *Link) ResolvePort(src netip.Addr, want uint16) (uint16, error) {
	if !l.gate.Enter() {
		return 0, link.ErrClosed
	}
	defer l.leave()
	return l.tx.stack.ResolvePort(src, want)
}

// Close releases the link. The port is free and the program gone when the last
// link of the same Open is closed.
func (l *Link) Close() error {
	if l.gate.Close() {
		l.poll.Wake()
		l.leave()
	}
	return nil
}

// leave ends a use of the descriptors; the last one out after Close releases
// them.
func (l *Link) leave() {
	if !l.gate.Leave() {
		return
	}
	l.final.store(l)
	l.dev.leaveAll(l)
	l.poll.Close()
	for _, x := range l.socks {
		x.Close()
	}
	l.tx.stack.Close()
	l.dev.release()
}

// Reasons returns why frames were refused: the sum of Stats.RxInvalid by
// reason.
func (l *Link) Reasons() (c trace.Counts) {
	for i := range c {
		c[i] = l.rx.reasons[i].Load()
	}
	return c
}
