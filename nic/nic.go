package nic

import (
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/internal/perm"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// Errors of a NIC. Those of package verbs appear as well.
var (
	// ErrInUse: an object cannot be destroyed while others are made of it.
	ErrInUse = verbs.ErrInUse
	// ErrLimit: the device holds no more objects of that kind.
	ErrLimit = verbs.ErrLimit
	// ErrFailed: the device broke an invariant of its own and stopped.
	ErrFailed = verbs.ErrFailed
)

// NIC is a device: a verbs.Provider. It is safe for concurrent use.
//
//	open --Close--> closed
//	  \--panic in a step--> failed --Close--> closed
type NIC struct {
	cfg    Config
	shards []*shard
	// clients are the users beside the process itself.
	clients atomic.Pointer[[]*Client]
	port    atomic.Pointer[port] // see SetPort
	downs   atomic.Uint64        // times that it went down
	cc      atomic.Pointer[cc.Config]

	notified notifications

	mu       sync.Mutex // objects, below
	rng      *mrand.Rand
	qpnPerm  *perm.Perm
	pds      table[pd]
	mrs      table[region]
	mws      table[window]
	regions  *mr.Table
	cqs      table[cq]
	qps      table[qp]
	srqs     table[srq]
	ahs      table[ah]
	mcast    atomic.Pointer[groups]
	shardQPs [MaxShards]int

	events chan verbs.AsyncEvent
	single bool          // one processor for all goroutines
	yields atomic.Uint32 // empty looks

	end    atomic.Pointer[error] // why the device is no more
	gone   chan struct{}         // closed when end is set
	closed sync.Once

	closeErr error // of the links; set under closed

	evMu   sync.Mutex // guards evDone and sending on events
	evDone bool
	wg     sync.WaitGroup
}

var _ verbs.Provider = (*NIC)(nil)

// Open makes a NIC of links and starts it. On error the links are still the
// caller's.
func Open(cfg Config) (*NIC, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	n := &NIC{
		cfg: cfg, rng: newRand(cfg.Seed),
		events: make(chan verbs.AsyncEvent, eventDepth), gone: make(chan struct{}),
		single: runtime.GOMAXPROCS(0) == 1,
	}
	n.qpnPerm = perm.New(qpnSlotBits, n.rng.Uint64())
	n.regions = mr.NewTable(n.rng.Uint64())
	n.port.Store(cfg.firstPort())
	n.cc.Store(cfg.CC)
	n.notified = notifications{port: longAgo, dest: make(map[netip.Addr]int64)}
	for i, l := range cfg.Links {
		n.shards = append(n.shards, newShard(n, i, l))
	}
	if !cfg.Manual {
		for _, s := range n.shards {
			n.wg.Go(s.run)
		}
	}
	return n, nil
}

// Close ends the device: waiters return verbs.ErrClosed, and so does
// everything called later. Peers are told nothing. Its error is the links', as
// of a capture that could not be written. A second call waits for the first
// and returns the same.
func (n *NIC) Close() error {
	n.closed.Do(func() {
		if n.cfg.AtClose != nil {
			n.cfg.AtClose()
		}
		for _, s := range n.shards {
			s.lockSent()
		}
		n.stop(verbs.ErrClosed) // steps do nothing from now on
		for _, s := range n.shards {
			s.mu.Unlock()
		}
		n.wg.Wait()
		for _, s := range n.shards {
			s.mu.Lock() // a step in progress ends first, and sees a link that is open
			s.dead = true
			n.closeErr = errors.Join(n.closeErr, s.link.Close())
			s.mu.Unlock()
		}
		n.evMu.Lock()
		n.evDone = true
		close(n.events)
		n.evMu.Unlock()
	})
	return n.closeErr
}

// stop marks the device as gone, unless it is already.
func (n *NIC) stop(why error) {
	if n.end.CompareAndSwap(nil, &why) {
		close(n.gone)
		for _, s := range n.shards {
			s.wake() // a waiter, too, may sleep in the link
		}
	}
}

// Err returns nil while the device works, then verbs.ErrClosed or an error
// that wraps ErrFailed.
func (n *NIC) Err() error {
	if e := n.end.Load(); e != nil {
		return *e
	}
	return nil
}

// report tells of an asynchronous event, or drops it when nobody reads.
func (s *shard) report(e verbs.AsyncEvent) { s.n.event(e) }

func (n *NIC) event(e verbs.AsyncEvent) {
	n.evMu.Lock()
	defer n.evMu.Unlock()
	if n.evDone {
		return
	}
	select {
	case n.events <- e:
	default:
	}
}

// Step runs one shard at time now (nanoseconds on Config.Clock's scale) and
// returns when it next wants to be called: now when there is more to do,
// math.MaxInt64 when only a packet or a post can make it move. It is for NICs
// opened with Manual, harmless on others.
func (n *NIC) Step(shard int, now int64) (deadline int64) {
	s := n.shards[shard]
	s.mu.Lock()
	d := s.step(now, byBackground)
	s.mu.Unlock()
	if s.pending() {
		return now
	}
	return d
}

// Shards returns the number of shards.
func (n *NIC) Shards() int { return len(n.shards) }

// Link returns the link of a shard.
func (n *NIC) Link(shard int) link.Link { return n.shards[shard].link }

// Trace returns what a shard's recorder holds, oldest first.
func (n *NIC) Trace(shard int) []trace.Event {
	s := n.shards[shard]
	s.mu.Lock()
	defer s.unlock()
	return s.rec.Events()
}

// Barrier returns when every step that was in progress has ended.
func (n *NIC) Barrier() { n.barrier() }

func (n *NIC) barrier() {
	for _, s := range n.shards {
		s.mu.Lock()
		s.unlock()
	}
}

func noObject(kind string, h verbs.Handle) error {
	return fmt.Errorf("nic: no %s has handle %#x: it was destroyed: %w", kind, uint32(h), verbs.ErrClosed)
}
