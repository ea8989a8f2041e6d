// Package link is the seam between a NIC and whatever carries its packets.
//
// A link moves bursts out (wire.Burst, sealed) and datagrams in
// (wire.Datagram, unproven). It knows nothing of queue pairs. Its
// implementations are the packages below this one; each Open returns one link
// per shard of the NIC.
//
// The package imports only wire.
package link

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/wire"
)

// ErrClosed is returned by every method of a link that was closed.
var ErrClosed = errors.New("link: closed")

// SendError is what Send returns when the system refused packets of one flow:
// no route, a firewall, a packet larger than the path's MTU. They count as
// sent, as if the wire had lost them, and the other bursts went out: it is a
// thing to report, not a reason to stop. Of several in one call it is the
// first.
type SendError struct {
	Src, Dst netip.Addr
	SrcPort  uint16
	Size     int   // octets of the IP packet, when that is the matter
	MTU      int   // of the path, when Size is more
	Err      error // usually a syscall.Errno
}

func (e *SendError) Error() string {
	s := fmt.Sprintf("link: send from %v port %d to %v: %v", e.Src, e.SrcPort, e.Dst, e.Err)
	if e.MTU != 0 {
		s += fmt.Sprintf(": a packet of %d octets, the path takes %d; choose a smaller path MTU for the queue pair, or raise that of the interface", e.Size, e.MTU)
	}
	return s
}

func (e *SendError) Unwrap() error { return e.Err }

// Link is one shard's way to the network. Recv, Send and Wait are called by
// one goroutine at a time, but Send and Recv may each run beside Wait; Wake
// and Close may be called by anyone at any time.
type Link interface {
	// Info describes the link. It does not change.
	Info() Info

	// Recv fills ds with datagrams that have arrived and returns how many; 0
	// when there are none. It never blocks. Payloads are borrowed until the
	// next Recv.
	Recv(ds []wire.Datagram) (int, error)

	// Send sends sealed bursts, borrowed for the call, and returns how many
	// segments it took, counted through the bursts in order. It never blocks.
	// Fewer than offered, without an error, means that there is no room: Wait
	// then also returns when there is some. A *SendError is about one flow;
	// any other error is about the link.
	Send(bs []*wire.Burst) (int, error)

	// Wait blocks until a datagram may have arrived, there is room after a
	// short send, Wake was called, or d has passed; d < 0 means for ever. It
	// may return early.
	Wait(d time.Duration) error

	// Wake ends a Wait in progress, or the next one.
	Wake()

	// Close releases the link. A second call does nothing.
	Close() error
}

// Info describes a link.
type Info struct {
	Name string // "udp", "packet", "mem"

	// Exact4 and Exact6 tell whether the ICRC check of received packets is
	// exact, or bounded because the IPv4 identification is hidden.
	Exact4, Exact6 bool

	// IDs is what bursts are sealed for.
	IDs wire.IDPolicy

	MaxSegments int // segments in a burst
	MaxBytes    int // octets of UDP payload in a burst, all segments together
	MaxBursts   int // bursts in one Send that are worth handing over at once
	Window      int // packets in flight that the receive buffer bears
	MTU         int // octets of the largest IP packet

	// Missing says what the link does without, why, and what to do about it;
	// one sentence each.
	Missing []string
}

// Stats counts what a link has done, in packets unless said otherwise.
type Stats struct {
	RxPackets, RxBytes uint64
	TxPackets, TxBytes uint64

	RxDropped uint64 // lost here for want of room
	RxInvalid uint64 // refused here as no RoCEv2 packet
	TxErrors  uint64 // taken by Send and refused by the system
	TxShort   uint64 // sends that found too little room, in calls
}

// StatsReader is a link that counts.
type StatsReader interface{ Stats() Stats }

// PortResolver is a link that cannot use every UDP source port. The port is
// part of the ICRC, so a flow asks for its port before it is sealed.
type PortResolver interface {
	// ResolvePort returns the source port that packets from src leave from
	// when want is asked for. The answer for a pair does not change while
	// the link is open.
	ResolvePort(src netip.Addr, want uint16) (uint16, error)
}

// GroupJoiner is a link that can receive what is sent to a multicast address,
// which it otherwise does not. A device joins on one of its links.
//
// What the device itself sent to a group may come back or not: it knows it by
// its source address and drops it, having delivered it by itself. What other
// devices of the same host send should come.
type GroupJoiner interface {
	// JoinGroup begins to receive for a group; ErrClosed, or why the system
	// refuses. A second call for the same group does nothing.
	JoinGroup(group netip.Addr) error
	// LeaveGroup ends it. For a group that was not joined it does nothing.
	LeaveGroup(group netip.Addr) error
}

// Readdresser is a link whose local addresses can change while it is open, as
// those of its interface do. It also follows an interface that went and came
// back with another index, where it says nothing else.
type Readdresser interface {
	// SetAddrs makes addrs the local addresses of the link and of all that were
	// opened with it; it is called on one of them. An address that stays is not
	// disturbed, and one that comes back has the source ports that it had. It
	// returns those that are served, and for the others, as for anything that
	// is missing since, an error that says why; syscall.EADDRNOTAVAIL of an
	// address that IPv6 is still checking for duplicates. None at all is
	// allowed.
	SetAddrs(addrs []netip.Addr) (serving []netip.Addr, err error)
}

// AsReaddresser finds the Readdresser in a link, which may be wrapped; nil when
// there is none.
func AsReaddresser(l Link) Readdresser {
	for {
		if r, ok := l.(Readdresser); ok {
			return r
		}
		w, ok := l.(Wrapper)
		if !ok {
			return nil
		}
		l = w.Unwrap()
	}
}

// Group returns the multicast address a as links use it, IPv4 as 4 octets and
// without a zone, or an error for any other address.
func Group(a netip.Addr) (netip.Addr, error) {
	g := a.Unmap().WithZone("")
	if !g.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%v is not a multicast address; groups are in 224.0.0.0/4 and ff00::/8", a)
	}
	return g, nil
}

// NamedCounters is a link with counters of its own kind beside Stats.
type NamedCounters interface {
	NamedCounters() map[string]uint64
}

// Wrapper is a link around another.
type Wrapper interface {
	Unwrap() Link
}
