package tap

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// Live captures from links that are in use: captures begin and end at any time
// (Stream), several at once, and while there is none a link costs a look at a
// word. What a capture's reader is too slow for is counted and left out; it never
// holds up a link.
//
// Its captures are those of Capture, but that they take the NIC's word for the
// ICRC, which spares a second look at each packet.
type Live struct {
	// Now is the clock that packets are stamped with; nil means time.Now.
	// It is not changed once links are wrapped.
	Now func() time.Time

	sinks atomic.Pointer[[]*sink] // nil: off
	links []*LiveLink
	names []string

	mu sync.Mutex // starting and stopping
}

// LiveLink is a link.Link that can be captured from.
type LiveLink struct {
	through
	live  *Live
	judge interface {
		Verdict(i, seg int, r trace.Reason)
	} // the link inside, or nil
	mu     sync.Mutex // taken only while there is a capture, and by Close
	scribe scribe
}

var (
	_ link.Link         = (*LiveLink)(nil)
	_ link.StatsReader  = (*LiveLink)(nil)
	_ link.PortResolver = (*LiveLink)(nil)
	_ link.GroupJoiner  = (*LiveLink)(nil)
	_ link.Wrapper      = (*LiveLink)(nil)
)

// WrapAll wraps the links of a NIC's shards, which it owns from then on. It is
// called once, before anything else. The name is that of the interface in
// captures; "" means that of the link.
func (l *Live) WrapAll(ls []link.Link, name string) []link.Link {
	if l.Now == nil {
		l.Now = time.Now
	}
	out := make([]link.Link, len(ls))
	for i, inner := range ls {
		k := &LiveLink{through: through{inner, inner.Info()}, live: l}
		k.judge, _ = inner.(interface {
			Verdict(i, seg int, r trace.Reason)
		})
		k.scribe.init(inner, k.info, i, l.write)
		k.scribe.trusts, k.scribe.full = true, l.full
		l.links = append(l.links, k)
		l.names = append(l.names, shardName(ls, i, name))
		out[i] = k
	}
	return out
}

// LiveOf returns what captures from a link, which may be wrapped in others, or
// nil.
func LiveOf(k link.Link) *Live {
	for {
		if l, ok := k.(*LiveLink); ok {
			return l.live
		}
		w, ok := k.(link.Wrapper)
		if !ok {
			return nil
		}
		k = w.Unwrap()
	}
}

// Captures returns how many are going on.
func (l *Live) Captures() int {
	if s := l.sinks.Load(); s != nil {
		return len(*s)
	}
	return 0
}

// write gives a record to every capture. It is called with a link's lock held.
func (l *Live) write(r *record) {
	if all := l.sinks.Load(); all != nil {
		for _, s := range *all {
			s.put(r)
		}
	}
}

// full reports whether no capture has room for a packet. It then counts as
// dropped by all that are not complete.
func (l *Live) full(iface, octets int) bool {
	all := l.sinks.Load()
	if all == nil {
		return true
	}
	for _, s := range *all {
		if s.room(octets) {
			return false
		}
	}
	for _, s := range *all {
		s.drop(iface)
	}
	return true
}

// add begins to write to a sink.
func (l *Live) add(s *sink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*sink
	if p := l.sinks.Load(); p != nil {
		all = append(all, *p...)
	}
	all = append(all, s)
	l.sinks.Store(&all)
}

// remove ends it: when it returns, the sink has all it will get.
func (l *Live) remove(s *sink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush() // what was received while it was on is its own
	var all []*sink
	for _, x := range *l.sinks.Load() {
		if x != s {
			all = append(all, x)
		}
	}
	if all == nil {
		l.sinks.Store(nil)
	} else {
		l.sinks.Store(&all)
	}
	l.flush() // and nobody who saw the old list is at it any more
}

// flush writes what the links have received last, which they themselves do only
// when they are next used.
func (l *Live) flush() {
	for _, k := range l.links {
		k.mu.Lock()
		k.scribe.flush()
		k.mu.Unlock()
	}
}

// Recv receives from the inner link.
func (l *LiveLink) Recv(ds []wire.Datagram) (int, error) {
	if l.live.sinks.Load() == nil {
		return l.inner.Recv(ds)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scribe.flush()
	n, err := l.inner.Recv(ds)
	if n > 0 && l.live.sinks.Load() != nil {
		l.scribe.took(l.live.Now(), ds[:n])
	}
	return n, err
}

// Verdict tells what the NIC made of segment seg of datagram i of the last
// Recv.
func (l *LiveLink) Verdict(i, seg int, r trace.Reason) {
	if l.judge != nil {
		l.judge.Verdict(i, seg, r)
	}
	if l.live.sinks.Load() == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scribe.judged(i, seg, r)
}

// Send sends by the inner link.
func (l *LiveLink) Send(bs []*wire.Burst) (int, error) {
	if l.live.sinks.Load() == nil {
		return l.inner.Send(bs)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scribe.flush()
	at := l.live.Now() // before an answer can come
	n, err := l.inner.Send(bs)
	l.scribe.sent(at, bs, n)
	return n, err
}

// Close closes the inner link. Captures go on, with nothing to capture.
func (l *LiveLink) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scribe.flush() // buffers end with their link
	return l.inner.Close()
}

// TxNote and RxNote are for a wrapper that captures what this one passes on.
func (l *LiveLink) TxNote(burst, segment int) string {
	if l.scribe.txNotes == nil {
		return ""
	}
	return l.scribe.txNotes.TxNote(burst, segment)
}

// RxNote is TxNote for what was received.
func (l *LiveLink) RxNote(datagram int) string {
	if l.scribe.rxNotes == nil {
		return ""
	}
	return l.scribe.rxNotes.RxNote(datagram)
}
