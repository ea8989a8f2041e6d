package tap

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// Config is what a Link needs besides the link it wraps.
type Config struct {
	// Name is the interface's name in the file; "" means that of the link.
	Name string
	// Now is the clock that packets are stamped with; nil means time.Now.
	Now func() time.Time
}

// Link is a link.Link that writes what passes another one to a Capture.
type Link struct {
	inner link.Link
	c     *Capture
	id    int
	info  link.Info
	now   func() time.Time

	// What link/fault tells about the last Send and Recv; nil of other links.
	txNotes interface {
		TxNote(burst, segment int) string
	}
	rxNotes interface{ RxNote(datagram int) string }

	mu       sync.Mutex // Close may come at any time
	closed   bool
	v        *wire.Verifier
	received []received
	at       time.Time // of received
	verdicts []trace.Reason
	frame    []byte
}

// received is a datagram of the last Recv that is not in the file yet.
type received struct {
	wire.Datagram
	note  string
	first int // of its segments' verdicts
}

// untold is the verdict of a segment that the NIC said nothing about.
const untold = trace.NumReasons

var (
	_ link.Link         = (*Link)(nil)
	_ link.StatsReader  = (*Link)(nil)
	_ link.PortResolver = (*Link)(nil)
	_ link.GroupJoiner  = (*Link)(nil)
)

// Wrap makes a link whose packets go to the capture. It owns the inner link:
// Close closes both. The capture stays open for others.
func (c *Capture) Wrap(inner link.Link, cfg Config) *Link {
	l := &Link{inner: inner, c: c, info: inner.Info(), now: cfg.Now, v: wire.NewVerifier()}
	if l.now == nil {
		l.now = time.Now
	}
	if cfg.Name == "" {
		cfg.Name = l.info.Name
	}
	l.id = c.addInterface(cfg.Name)
	l.txNotes, _ = inner.(interface {
		TxNote(burst, segment int) string
	})
	l.rxNotes, _ = inner.(interface{ RxNote(datagram int) string })
	return l
}

// WrapAll wraps the links of a NIC's shards. Their names get the shard's
// number when there are several.
func (c *Capture) WrapAll(ls []link.Link, cfg Config) []link.Link {
	out := make([]link.Link, len(ls))
	for i, l := range ls {
		one := cfg
		if one.Name == "" {
			one.Name = l.Info().Name
		}
		if len(ls) > 1 {
			one.Name = fmt.Sprintf("%s shard %d", one.Name, i)
		}
		out[i] = c.Wrap(l, one)
	}
	return out
}

// Info is that of the inner link.
func (l *Link) Info() link.Info { return l.info }

// Unwrap returns the inner link.
func (l *Link) Unwrap() link.Link { return l.inner }

// Recv receives from the inner link. What it returned the last time is
// written now.
func (l *Link) Recv(ds []wire.Datagram) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushReceived()
	n, err := l.inner.Recv(ds)
	if n == 0 {
		return n, err
	}
	l.at = l.now()
	for i := range ds[:n] {
		r := received{Datagram: ds[i], first: len(l.verdicts)}
		if l.rxNotes != nil {
			r.note = l.rxNotes.RxNote(i)
		}
		for range ds[i].Segments() {
			l.verdicts = append(l.verdicts, untold)
		}
		l.received = append(l.received, r)
	}
	return n, err
}

// Verdict tells what the NIC made of segment seg of datagram i of the last
// Recv: trace.None if it took it. It may be called until the next Send or
// Recv.
func (l *Link) Verdict(i, seg int, r trace.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i < len(l.received) && seg < l.received[i].Segments() {
		l.verdicts[l.received[i].first+seg] = r
	}
}

// Send sends by the inner link and writes the segments that it took.
func (l *Link) Send(bs []*wire.Burst) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushReceived()
	at := l.now() // before an answer can come
	n, err := l.inner.Send(bs)
	left := n
	for i, b := range bs {
		for seg := range b.Segs[:min(left, b.Len())] {
			l.writeSent(at, b, i, seg)
		}
		left -= min(left, b.Len())
	}
	return n, err
}

// writeSent writes segment seg of burst i.
func (l *Link) writeSent(at time.Time, b *wire.Burst, i, seg int) {
	f := b.Flow
	l.frame = l.frame[:0]
	d := wire.Datagram{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, TOS: f.TOS, TTL: f.TTL, Payload: b.AppendSegment(l.frame, seg)}
	l.frame = d.Payload
	id := uint16(0)
	if l.info.IDs == wire.IDCount {
		id = uint16(seg)
	}
	r := record{iface: l.id, at: at, flags: flagOutbound}
	if l.txNotes != nil {
		r.comment = faultComment("", l.txNotes.TxNote(i, seg))
	}
	n := len(l.frame)
	l.frame = appendFrame(l.frame, &d, 0, id, wire.FlagDF)
	r.frame = l.frame[n:]
	l.c.write(&r)
}

// flushReceived writes what the last Recv returned. The lock is held.
func (l *Link) flushReceived() {
	for i := range l.received {
		r := &l.received[i]
		for seg := range r.Segments() {
			l.writeReceived(r, seg)
		}
		*r = received{} // let go of the buffer
	}
	l.received, l.verdicts = l.received[:0], l.verdicts[:0]
}

func (l *Link) writeReceived(r *received, seg int) {
	icrc := l.v.Check(l.at.UnixNano(), &r.Datagram, seg)
	comment := icrcComment(icrc)
	id, flags := r.ID+uint16(seg), r.Flags
	if r.Src.Is4() && !r.IDKnown {
		var ok bool
		if id, flags, ok = wire.SolveID(&r.Datagram, seg); ok {
			comment += fmt.Sprintf("; IPv4 ID %d solved for", id)
		} else {
			id, flags = uint16(seg), wire.FlagDF
			comment += fmt.Sprintf("; IPv4 ID not seen, %d assumed", id)
		}
	}
	if v := l.verdicts[r.first+seg]; v != untold {
		comment += verdictComment(v)
	}
	l.frame = appendFrame(l.frame[:0], &r.Datagram, seg, id, flags)
	l.c.write(&record{
		iface: l.id, at: l.at, flags: flagInbound, frame: l.frame,
		comment: faultComment(comment, r.note),
	})
}

func icrcComment(r trace.Reason) string {
	switch r {
	case trace.None:
		return "ICRC ok"
	case trace.DropICRC:
		return "ICRC bad"
	case trace.DropICRCWindow:
		return "ICRC ok only for an IPv4 ID out of the peer's window"
	}
	return "ICRC not checked: " + r.Explain()
}

func verdictComment(r trace.Reason) string {
	switch {
	case r == trace.None:
		return "; taken"
	case r.IsDrop():
		return fmt.Sprintf("; dropped, %v: %s", r, r.Explain())
	}
	return fmt.Sprintf("; %v: %s", r, r.Explain())
}

func faultComment(s, note string) string {
	switch {
	case note == "":
		return s
	case s == "":
		return "fault rule: " + note
	}
	return s + "; fault rule: " + note
}

// Wait waits on the inner link.
func (l *Link) Wait(d time.Duration) error { return l.inner.Wait(d) }

// Wake wakes the inner link.
func (l *Link) Wake() { l.inner.Wake() }

// Close writes what is left, also of the file's buffer, and closes the inner
// link. Its error tells of write errors too.
func (l *Link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.flushReceived()
	return errors.Join(l.inner.Close(), l.c.leave())
}

// ResolvePort asks the inner link, or returns want.
func (l *Link) ResolvePort(src netip.Addr, want uint16) (uint16, error) {
	if r, ok := l.inner.(link.PortResolver); ok {
		return r.ResolvePort(src, want)
	}
	return want, nil
}

// JoinGroup asks the inner link; errors.ErrUnsupported of one that has no
// groups.
func (l *Link) JoinGroup(group netip.Addr) error {
	if j, ok := l.inner.(link.GroupJoiner); ok {
		return j.JoinGroup(group)
	}
	return l.noGroups()
}

// LeaveGroup asks the inner link.
func (l *Link) LeaveGroup(group netip.Addr) error {
	if j, ok := l.inner.(link.GroupJoiner); ok {
		return j.LeaveGroup(group)
	}
	return l.noGroups()
}

func (l *Link) noGroups() error {
	return fmt.Errorf("tap: the link %s receives no multicast: %w", l.info.Name, errors.ErrUnsupported)
}

// Stats returns the inner link's counters.
func (l *Link) Stats() link.Stats {
	if r, ok := l.inner.(link.StatsReader); ok {
		return r.Stats()
	}
	return link.Stats{}
}
