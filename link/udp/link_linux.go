package udp

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/wire"
)

// Link is one shard of a NIC's UDP sockets. It is a link.Link, a
// link.PortResolver, a link.GroupJoiner, a link.Readdresser and a link.StatsReader.
type Link struct {
	info   link.Info
	gate   sys.Gate
	poll   *sys.Poller
	tx     *udptx.Sender
	merged bool // sockets have UDP_GRO

	// of Recv
	rx    *sys.RxBatch
	ready atomic.Uint64
	mu    sync.Mutex
	socks []rxSock // those of the addresses, then those of groups
	hot   int      // had something last
	turn  int      // of the others, looked at last
	runs  int      // calls in a row that hot has served
	idle  int      // calls in a row that found nothing on hot
	many  bool     // the last datagrams did not come one by one

	// of JoinGroup, LeaveGroup and SetAddrs
	set     *siblings
	groupMu sync.Mutex   // held by whoever changes socks; taken before mu
	ifaces  []int        // indexes of the interfaces that have the addresses
	joined  []netip.Addr // groups
	rcvBuf  int

	rxPackets, rxBytes, rxDropped, rxInvalid, rxErrors atomic.Uint64
}

// rxSock is the receiving socket of one address, or of one group on one
// interface.
type rxSock struct {
	fd      int
	local   netip.Addr // destination of what it receives
	scope   uint32     // index of the interface of a link-local one, or of a group
	dropped uint32     // the kernel's count when last seen
}

var (
	_ link.Link         = (*Link)(nil)
	_ link.PortResolver = (*Link)(nil)
	_ link.GroupJoiner  = (*Link)(nil)
	_ link.Readdresser  = (*Link)(nil)
	_ link.StatsReader  = (*Link)(nil)
)

// Info implements link.Link.
func (l *Link) Info() link.Info { return l.info }

// Stats implements link.StatsReader.
func (l *Link) Stats() link.Stats {
	s := l.tx.Stats()
	s.RxPackets, s.RxBytes = l.rxPackets.Load(), l.rxBytes.Load()
	s.RxDropped, s.RxInvalid = l.rxDropped.Load(), l.rxInvalid.Load()
	return s
}

// SendErrors returns how many bursts the system refused, by errno.
func (l *Link) SendErrors() map[syscall.Errno]uint64 { return l.tx.Errors() }

// enter begins the use of descriptors; leave ends it.
func (l *Link) enter() bool { return l.gate.Enter() }

func (l *Link) leave() {
	if l.gate.Leave() {
		l.release()
	}
}

// Recv implements link.Link; the package comment says which sockets it looks
// at.
//
//gorxe:hot
func (l *Link) Recv(ds []wire.Datagram) (int, error) {
	if !l.enter() {
		return 0, link.ErrClosed
	}
	defer l.leave()
	if len(ds) == 0 {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.socks) == 0 {
		return 0, nil
	}
	if l.ready.Load() != 0 {
		if n, err := l.recvReady(ds); n != 0 || err != nil {
			return n, err
		}
	}
	if l.runs >= maxHot && len(l.socks) > 1 {
		if n, err := l.recvTurn(ds); n != 0 || err != nil {
			return n, err
		}
		l.runs = 0
		return l.recv(l.hot, ds)
	}
	n, err := l.recv(l.hot, ds)
	if n != 0 || err != nil {
		l.idle = 0
		return n, err
	}
	if l.idle++; l.idle%othersEvery != 0 || len(l.socks) == 1 {
		return 0, nil
	}
	return l.recvTurn(ds)
}

// recvReady tries the sockets that Wait saw readable.
func (l *Link) recvReady(ds []wire.Datagram) (int, error) {
	ready := l.ready.Swap(0)
	for i := 0; i < len(l.socks); i++ {
		if ready>>min(i, 63)&1 == 0 {
			continue
		}
		n, err := l.recv(i, ds)
		if i < 63 {
			ready &^= 1 << i
		}
		if n != 0 || err != nil {
			l.ready.Or(ready)
			return n, err
		}
	}
	return 0, nil
}

// recvTurn tries the next of the sockets that are not hot.
func (l *Link) recvTurn(ds []wire.Datagram) (int, error) {
	l.turn = (l.turn + 1) % len(l.socks)
	if l.turn == l.hot {
		l.turn = (l.turn + 1) % len(l.socks)
	}
	return l.recv(l.turn, ds)
}

// recv takes datagrams from socket i, which becomes the hot one if there are
// any.
func (l *Link) recv(i int, ds []wire.Datagram) (int, error) {
	s := &l.socks[i]
	var got int
	var errno syscall.Errno
	if l.many {
		got, errno = l.rx.Recv(s.fd, len(ds))
	} else {
		got, errno = l.rx.RecvOne(s.fd)
	}
	switch errno {
	case 0:
	case syscall.EAGAIN, syscall.EINTR:
		l.many = false
		return 0, nil
	case syscall.EBADF, syscall.ENOTSOCK, syscall.EINVAL, syscall.EFAULT:
		return 0, fmt.Errorf("udp: receive on %v: %w", s.local, errno)
	default: // a pending error of the socket: reported once, nothing is lost
		l.rxErrors.Add(1)
		return 0, nil
	}
	n, packets, octets := 0, 0, 0
	var m sys.RxMessage
	for k := range got {
		l.rx.Take(k, &m)
		if m.HasDrops && m.Dropped != s.dropped {
			l.rxDropped.Add(uint64(m.Dropped - s.dropped))
			s.dropped = m.Dropped
		}
		if m.Truncated {
			l.rxInvalid.Add(1)
			continue
		}
		d := &ds[n]
		*d = wire.Datagram{Src: m.From, Dst: s.local, SrcPort: m.Port, TOS: m.TOS, TTL: m.TTL, Payload: m.Payload}
		if m.Segment < len(m.Payload) {
			d.SegLen = m.Segment
		}
		n++
		packets += d.Segments()
		octets += len(m.Payload)
	}
	l.many = packets > 2 || l.idle == 0
	l.rxPackets.Add(uint64(packets))
	l.rxBytes.Add(uint64(octets))
	if l.hot == i {
		l.runs++
	} else {
		l.hot, l.runs = i, 1
	}
	return n, nil
}

// Send implements link.Link. Bursts of more than Info().MaxSegments segments
// or MaxBytes octets are refused.
func (l *Link) Send(bs []*wire.Burst) (int, error) {
	if !l.enter() {
		return 0, link.ErrClosed
	}
	defer l.leave()
	n, err := l.tx.Send(bs)
	if l.tx.Blocked() >= 0 && l.poll.Waiting() {
		l.poll.Wake() // so that it waits for room as well
	}
	return n, err
}

// ResolvePort implements link.PortResolver: the port that packets from src
// with source port want leave from, one of 16 per address.
func (l *Link) ResolvePort(src netip.Addr, want uint16) (uint16, error) {
	if !l.enter() {
		return 0, link.ErrClosed
	}
	defer l.leave()
	return l.tx.ResolvePort(src, want)
}

// Wait implements link.Link.
func (l *Link) Wait(d time.Duration) error {
	if !l.enter() {
		return link.ErrClosed
	}
	defer l.leave()
	ready, err := l.poll.Wait(d, l.tx.Blocked())
	if ready != 0 {
		l.ready.Or(ready)
	}
	return err
}

// Wake implements link.Link.
func (l *Link) Wake() {
	if l.enter() {
		defer l.leave()
		l.poll.Wake()
	}
}

// Close implements link.Link. It waits for nobody; a Wait in progress ends,
// and the last call still running releases the sockets.
func (l *Link) Close() error {
	if l.gate.Close() {
		l.poll.Wake()
		l.leave()
	}
	return nil
}

// release closes all descriptors.
func (l *Link) release() {
	closeAll(l.socks)
	if l.poll != nil {
		l.poll.Close()
	}
	if l.tx != nil {
		l.tx.Close()
	}
}
