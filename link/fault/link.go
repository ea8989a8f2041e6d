package fault

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// DefaultHeld bounds the packets that a Link holds each way.
const DefaultHeld = 4096

// Config is what a Link needs besides the link it wraps.
type Config struct {
	Rules Rules
	Seed  uint64
	// Now is the clock, in nanoseconds from any epoch; nil is the monotonic
	// clock of the process (and inside a synctest bubble its own).
	Now func() int64
	// MaxHeld bounds the packets held each way; 0 means DefaultHeld. What
	// finds no room is lost.
	MaxHeld int
}

// Link is a link.Link that breaks another one by rules. Each shard of a NIC
// has one of its own, with its own counts and random numbers.
//
// What a rule loses counts as sent, and what is held too. A held packet leaves
// at the first call of Recv or Send after its time; Wait ends then.
type Link struct {
	inner link.Link
	now   func() int64
	info  link.Info
	inj   *Injector
	named Rules // as given, for NamedCounters
	tx    sender
	rx    receiver

	next    atomic.Int64 // when Wait has to end: the first release, or at once
	waiting atomic.Int64 // until when a Wait sleeps; math.MinInt64 when none does
	full    atomic.Uint64
}

var (
	_ link.Link         = (*Link)(nil)
	_ link.StatsReader  = (*Link)(nil)
	_ link.PortResolver = (*Link)(nil)
	_ link.GroupJoiner  = (*Link)(nil)
)

// Wrap puts rules around a link. The wrapper owns it: Close closes both.
func Wrap(inner link.Link, cfg Config) *Link {
	if cfg.Now == nil {
		epoch := time.Now()
		cfg.Now = func() int64 { return int64(time.Since(epoch)) }
	}
	if cfg.MaxHeld <= 0 {
		cfg.MaxHeld = DefaultHeld
	}
	l := &Link{inner: inner, now: cfg.Now, info: inner.Info(), inj: NewInjector(cfg.Seed, cfg.Now(), cfg.Rules), named: cfg.Rules}
	l.tx.init(l, cfg.MaxHeld)
	l.rx.init(l, cfg.MaxHeld)
	l.next.Store(Never)
	l.waiting.Store(math.MinInt64)
	return l
}

// WrapAll wraps the links of a NIC's shards, each with its own seed.
func WrapAll(ls []link.Link, cfg Config) []link.Link {
	out := make([]link.Link, len(ls))
	for i, l := range ls {
		c := cfg
		c.Seed += uint64(i)
		out[i] = Wrap(l, c)
	}
	return out
}

// Info is that of the inner link.
func (l *Link) Info() link.Info { return l.info }

// Unwrap returns the inner link.
func (l *Link) Unwrap() link.Link { return l.inner }

// Recv fills ds with what arrived, after rules.
func (l *Link) Recv(ds []wire.Datagram) (int, error) {
	now := l.now()
	if err := l.tx.release(now); err != nil {
		return 0, err
	}
	n, err := l.rx.recv(now, ds)
	l.publish()
	return n, err
}

// Send sends bursts by rules. While packets that were taken before wait for
// room in the inner link, it takes none.
func (l *Link) Send(bs []*wire.Burst) (int, error) {
	n, err := l.tx.send(l.now(), bs)
	l.publish()
	return n, err
}

// publish tells Wait when the next held packet leaves.
func (l *Link) publish() {
	next := min(l.rx.next(), l.tx.next())
	l.next.Store(next)
	if next < l.waiting.Load() {
		l.inner.Wake()
	}
}

// Wait blocks as the inner link does, but not past the next release.
func (l *Link) Wait(d time.Duration) error {
	// From here on, until it is known how long to sleep, any release wakes.
	l.waiting.Store(Never)
	defer l.waiting.Store(math.MinInt64)
	if next := l.next.Load(); next != Never {
		now := l.now()
		if next <= now {
			d = 0
		} else if left := time.Duration(next - now); d < 0 || left < d {
			d = left
			l.waiting.Store(next)
		}
	}
	return l.inner.Wait(d)
}

// Wake ends a Wait in progress, or the next one.
func (l *Link) Wake() { l.inner.Wake() }

// Close closes the inner link. Held packets are gone.
func (l *Link) Close() error { return l.inner.Close() }

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
	return fmt.Errorf("fault: the link %s receives no multicast: %w", l.info.Name, errors.ErrUnsupported)
}

// Stats returns the inner link's counters: what was lost here is not among
// its TxPackets, but among its RxPackets.
func (l *Link) Stats() link.Stats {
	if r, ok := l.inner.(link.StatsReader); ok {
		return r.Stats()
	}
	return link.Stats{}
}

// Faults returns what the rules did, in order, and how many packets were lost
// because there was no room to hold them. Anyone may call it.
func (l *Link) Faults() (rules []RuleStats, noRoom uint64) { return l.inj.Stats(), l.full.Load() }

// NamedCounters returns how many packets each direction and effect has hit,
// such as fault_tx_drop, and how many were lost for want of room to hold them.
func (l *Link) NamedCounters() map[string]uint64 {
	rules, full := l.Faults()
	m := map[string]uint64{"fault_no_room": full}
	for i, r := range l.named {
		dir := "both"
		switch r.Dir {
		case trace.Tx:
			dir = "tx"
		case trace.Rx:
			dir = "rx"
		}
		m["fault_"+dir+"_"+r.Effect.String()] += rules[i].Hit
	}
	return m
}

// TxEffects returns what the rules did to segment seg of burst i of the last
// Send.
func (l *Link) TxEffects(i, seg int) Effects { return l.tx.notes.find(i, seg) }

// RxEffects returns what the rules did to datagram i of the last Recv; a
// packet with an effect is a datagram of its own.
func (l *Link) RxEffects(i int) Effects { return l.rx.notes.find(i, 0) }

// TxNote and RxNote are TxEffects and RxEffects in words, for link/tap; empty
// for a packet that was left alone.
func (l *Link) TxNote(i, seg int) string { return l.TxEffects(i, seg).String() }

// RxNote: see TxNote.
func (l *Link) RxNote(i int) string { return l.RxEffects(i).String() }

// notes are the effects of the last call, few if any.
type notes []note

type note struct {
	i, seg  int
	effects Effects
}

func (ns *notes) reset() { *ns = (*ns)[:0] }

func (ns *notes) add(i, seg int, e Effects) {
	if e != 0 {
		*ns = append(*ns, note{i, seg, e})
	}
}

func (ns notes) find(i, seg int) Effects {
	for _, n := range ns {
		if n.i == i && n.seg == seg {
			return n.effects
		}
	}
	return 0
}
