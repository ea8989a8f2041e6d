package mem

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/wire"
)

// Link is one shard of a port: a link.Link, link.GroupJoiner and
// link.StatsReader.
type Link struct {
	net  *Network
	port *port
	cfg  Config
	ring ring

	wake   chan struct{} // holds a token when Wait has to return
	done   chan struct{} // closed by Close
	closed atomic.Bool
	timer  *time.Timer // of Wait; made there, so that it belongs to Wait's synctest bubble

	txPackets, txBytes, txErrors atomic.Uint64
}

var (
	_ link.Link        = (*Link)(nil)
	_ link.GroupJoiner = (*Link)(nil)
	_ link.StatsReader = (*Link)(nil)
)

func newLink(n *Network, p *port, cfg *Config) *Link {
	return &Link{
		net: n, port: p, cfg: *cfg, ring: newRing(cfg.Depth, cfg.Bytes),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Info describes the link.
func (l *Link) Info() link.Info {
	return link.Info{
		Name: "mem", Exact4: !l.cfg.HideIDs, Exact6: true, IDs: wire.IDCount,
		MaxSegments: wire.MaxSegments, MaxBytes: wire.MaxBurstBytes, MaxBursts: 8,
		Window: min(window, l.cfg.Depth), MTU: l.cfg.MTU,
	}
}

// Recv fills ds with datagrams that have arrived; their payloads are borrowed
// until the next Recv. It never blocks and never writes to a payload it lent.
func (l *Link) Recv(ds []wire.Datagram) (int, error) {
	if l.closed.Load() {
		return 0, link.ErrClosed
	}
	return l.ring.pop(ds), nil
}

// Send copies bursts to their receivers. It takes every segment: one too long
// for the MTU is counted in TxErrors, one to an unknown address in
// Network.Unknown, and one that finds no room in the receiver's RxDropped. A
// burst to a group goes to every port that joined it, except the link's own.
func (l *Link) Send(bs []*wire.Burst) (int, error) {
	if l.closed.Load() {
		return 0, link.ErrClosed
	}
	n := 0
	for _, b := range bs {
		if b.Len() == 0 {
			continue
		}
		n += b.Len()
		l.txPackets.Add(uint64(b.Len()))
		l.txBytes.Add(uint64(b.Bytes()))
		hdr := wire.IPv6Len + wire.UDPLen
		if b.Flow.Dst.Is4() {
			hdr = wire.IPv4Len + wire.UDPLen
		}
		if hdr+b.SegLen() > l.cfg.MTU {
			l.txErrors.Add(uint64(b.Len()))
			continue
		}
		if b.Flow.Dst.IsMulticast() {
			for _, m := range l.net.members(b.Flow.Dst) {
				if m.port != l.port {
					m.deliver(b)
				}
			}
			continue
		}
		if p := l.net.lookup(b.Flow.Dst); p == nil || !p.shard(b).deliver(b) {
			l.net.unknown.Add(uint64(b.Len()))
		}
	}
	return n, nil
}

// shard returns the link for a burst: by the low four bits of the destination
// QPN of its first segment. Segments for other shards among it are strays,
// which the NIC hands over.
func (p *port) shard(b *wire.Burst) *Link {
	return p.links[int(bth.BTH(b.Vec()[0]).DestQP()&0xf)%len(p.links)]
}

// deliver copies a burst into the ring; false when the link is closed.
func (l *Link) deliver(b *wire.Burst) bool {
	f := b.Flow
	d := wire.Datagram{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, TOS: f.TOS, TTL: f.TTL}
	if f.Dst.Is4() && !l.cfg.HideIDs {
		d.IDKnown, d.Flags = true, wire.FlagDF
	}
	r := &l.ring
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	if l.cfg.Single {
		r.pushSingly(d, b)
	} else {
		r.pushWhole(d, b)
	}
	r.mu.Unlock()
	l.Wake()
	return true
}

// pushWhole stores a burst as one datagram. The lock is held.
func (r *ring) pushWhole(d wire.Datagram, b *wire.Burst) {
	e := r.reserve(b.Bytes())
	if e == nil {
		r.dropped += uint64(b.Len())
		return
	}
	if b.Len() > 1 {
		d.SegLen = b.SegLen()
	}
	d.Payload = e.Payload
	at := d.Payload
	for _, p := range b.Vec() {
		at = at[copy(at, p):]
	}
	e.Datagram = d
}

// pushSingly stores each segment of a burst as a datagram. The lock is held.
func (r *ring) pushSingly(d wire.Datagram, b *wire.Burst) {
	for i := range b.Segs {
		e := r.reserve(b.Segs[i].Len)
		if e == nil {
			r.dropped++
			continue
		}
		d.Payload = b.AppendSegment(e.Payload[:0], i)
		if d.IDKnown {
			d.ID = uint16(i)
		}
		e.Datagram = d
	}
}

// JoinGroup begins to receive what other ports send to a group. A port joins a
// group on one of its links.
func (l *Link) JoinGroup(group netip.Addr) error {
	g, err := link.Group(group)
	if err != nil {
		return fmt.Errorf("mem: %w", err)
	}
	return l.net.join(l, g)
}

// LeaveGroup ends it.
func (l *Link) LeaveGroup(group netip.Addr) error {
	g, err := link.Group(group)
	if err != nil {
		return fmt.Errorf("mem: %w", err)
	}
	if l.closed.Load() {
		return link.ErrClosed
	}
	l.net.part(l, func(a netip.Addr) bool { return a == g })
	return nil
}

// Wait blocks until a datagram may have arrived, Wake was called, the link
// was closed, or d has passed; d < 0 means for ever.
func (l *Link) Wait(d time.Duration) error {
	if l.closed.Load() {
		return link.ErrClosed
	}
	if d == 0 || l.ring.waiting() {
		return nil
	}
	var expired <-chan time.Time
	if d > 0 {
		if l.timer == nil {
			l.timer = time.NewTimer(d)
		} else {
			l.timer.Reset(d)
		}
		defer l.timer.Stop()
		expired = l.timer.C
	}
	select {
	case <-l.wake:
	case <-expired:
	case <-l.done:
		return link.ErrClosed
	}
	return nil
}

// Wake ends a Wait in progress, or the next one.
func (l *Link) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Close ends the link and any Wait in it. The port's addresses are free when
// its last link is closed. Payloads lent by Recv stay valid.
func (l *Link) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.ring.mu.Lock()
	l.ring.closed = true
	l.ring.mu.Unlock()
	close(l.done)
	l.net.part(l, func(netip.Addr) bool { return true })
	if l.port.open.Add(-1) == 0 {
		l.net.remove(l.port)
	}
	return nil
}

// Stats returns the link's counters. TxPackets includes what was lost on the
// way.
func (l *Link) Stats() link.Stats {
	l.ring.mu.Lock()
	defer l.ring.mu.Unlock()
	return link.Stats{
		RxPackets: l.ring.rxPackets, RxBytes: l.ring.rxBytes, RxDropped: l.ring.dropped,
		TxPackets: l.txPackets.Load(), TxBytes: l.txBytes.Load(), TxErrors: l.txErrors.Load(),
	}
}
