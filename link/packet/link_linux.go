package packet

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// Link is one shard's packet sockets and its sending sockets. It is a
// link.Link, link.StatsReader, link.PortResolver, link.GroupJoiner and
// link.Readdresser.
type Link struct {
	info   link.Info
	closed atomic.Bool
	gate   sys.Gate // of every descriptor below
	poll   *sys.Poller
	rx     *receiver
	tx     *udptx.Sender
	drop   *dropper // nil where there is none
	hold   *udptx.Holder
	groups *groups
}

var (
	_ link.Link         = (*Link)(nil)
	_ link.StatsReader  = (*Link)(nil)
	_ link.PortResolver = (*Link)(nil)
	_ link.GroupJoiner  = (*Link)(nil)
	_ link.Readdresser  = (*Link)(nil)
)

// newLink makes a link of an inlet, which it owns unless it fails.
func newLink(in inlet, ifc *hostnet.Iface, sends udptx.Config) (*Link, error) {
	tx, err := udptx.New(sends)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, t := range in {
		fds = append(fds, t.fd)
	}
	poll, err := sys.NewPoller(fds)
	if err != nil {
		tx.Close()
		return nil, err
	}
	return &Link{
		info: link.Info{
			Name: "packet", Exact4: true, Exact6: true, IDs: tx.IDs(),
			MaxSegments: tx.MaxSegments(), MaxBytes: wire.MaxBurstBytes, MaxBursts: udptx.MaxBursts,
			MTU: ifc.MTU, Missing: tx.Missing(),
		},
		poll: poll, rx: newReceiver(in, bare(sends.Addrs)), tx: tx,
	}, nil
}

// Info describes the link.
func (l *Link) Info() link.Info { return l.info }

// Recv fills ds with datagrams that have arrived, at most 64 in a call. While
// there are none it is a few loads. What it has lent out turns to zeros when the
// link is closed.
func (l *Link) Recv(ds []wire.Datagram) (int, error) {
	if len(ds) == 0 {
		return 0, nil
	}
	if l.rx.rings != nil { // which takes no descriptor, so there is no gate
		if l.closed.Load() {
			return 0, link.ErrClosed
		}
		if l.rx.rings.idle() {
			return 0, nil
		}
		return l.rx.look(ds), nil
	}
	if !l.gate.Enter() {
		return 0, link.ErrClosed
	}
	n, err := l.rx.recv(ds)
	l.leave()
	return n, err
}

// Send sends sealed bursts; see udptx for its errors.
func (l *Link) Send(bs []*wire.Burst) (int, error) {
	if !l.gate.Enter() {
		return 0, link.ErrClosed
	}
	n, err := l.tx.Send(bs)
	l.leave()
	return n, err
}

// Wait blocks as link.Link describes.
func (l *Link) Wait(d time.Duration) error {
	if !l.gate.Enter() {
		return link.ErrClosed
	}
	_, err := l.poll.Wait(d, l.tx.Blocked())
	l.leave()
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
// want is asked for.
func (l *Link) ResolvePort(src netip.Addr, want uint16) (uint16, error) {
	if !l.gate.Enter() {
		return 0, link.ErrClosed
	}
	defer l.leave()
	return l.tx.ResolvePort(src, want)
}

// Stats returns what the link has done. Frames that were for somebody else
// are not counted.
func (l *Link) Stats() link.Stats {
	open := l.gate.Enter()
	s := l.tx.Stats()
	l.rx.stats(&s, open)
	if open {
		l.leave()
	}
	return s
}

// Reasons returns why frames were refused, in frames: the sum of
// Stats.RxInvalid by reason.
func (l *Link) Reasons() (c trace.Counts) {
	for i := range c {
		c[i] = l.rx.reasons[i].Load()
	}
	return c
}

// Close releases the link. The port is free when the last link of the same
// Open is closed.
func (l *Link) Close() error {
	if l.gate.Close() {
		l.closed.Store(true)
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
	l.drop.release()
	l.poll.Close()
	l.rx.close()
	l.tx.Close()
	l.hold.Release()
	l.groups.release(slices.Index(l.groups.links, l))
}
