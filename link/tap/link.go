package tap

import (
	"errors"
	"fmt"
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
	through
	c   *Capture
	now func() time.Time

	mu     sync.Mutex // Close may come at any time
	closed bool
	scribe scribe
}

var (
	_ link.Link         = (*Link)(nil)
	_ link.StatsReader  = (*Link)(nil)
	_ link.PortResolver = (*Link)(nil)
	_ link.GroupJoiner  = (*Link)(nil)
)

// Wrap makes a link whose packets go to the capture. It owns the inner link:
// Close closes both. The capture stays open for others.
func (c *Capture) Wrap(inner link.Link, cfg Config) *Link {
	l := &Link{through: through{inner, inner.Info()}, c: c, now: cfg.Now}
	if l.now == nil {
		l.now = time.Now
	}
	if cfg.Name == "" {
		cfg.Name = l.info.Name
	}
	l.scribe.init(inner, l.info, c.addInterface(cfg.Name), c.write)
	return l
}

// WrapAll wraps the links of a NIC's shards. Their names get the shard's
// number when there are several.
func (c *Capture) WrapAll(ls []link.Link, cfg Config) []link.Link {
	out := make([]link.Link, len(ls))
	for i, l := range ls {
		one := cfg
		one.Name = shardName(ls, i, cfg.Name)
		out[i] = c.Wrap(l, one)
	}
	return out
}

// shardName names link i of several for a file.
func shardName(ls []link.Link, i int, name string) string {
	if name == "" {
		name = ls[i].Info().Name
	}
	if len(ls) > 1 {
		name = fmt.Sprintf("%s shard %d", name, i)
	}
	return name
}

// Recv receives from the inner link. What it returned the last time is
// written now.
func (l *Link) Recv(ds []wire.Datagram) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scribe.flush()
	n, err := l.inner.Recv(ds)
	if n > 0 {
		l.scribe.took(l.now(), ds[:n])
	}
	return n, err
}

// Verdict tells what the NIC made of segment seg of datagram i of the last
// Recv: trace.None if it took it. It may be called until the next Send or
// Recv.
func (l *Link) Verdict(i, seg int, r trace.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scribe.judged(i, seg, r)
}

// Send sends by the inner link and writes the segments that it took.
func (l *Link) Send(bs []*wire.Burst) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scribe.flush()
	at := l.now() // before an answer can come
	n, err := l.inner.Send(bs)
	l.scribe.sent(at, bs, n)
	return n, err
}

// Close writes what is left, also of the file's buffer, and closes the inner
// link. Its error tells of write errors too.
func (l *Link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.scribe.flush()
	return errors.Join(l.inner.Close(), l.c.leave())
}
