package xdp

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/internal/hostnet"
)

// hop is the station that packets of a path are sent to: the peer or a router.
type hop struct {
	mac  [6]byte
	used atomic.Bool // since the last look at all paths
	seen time.Time   // when that was found
}

// hops knows the next hop of each path that leaves by the interface, as the
// kernel's routes and neighbours say. It is filled by a goroutine: until a path
// is known its packets leave by the stack, which finds its neighbour and holds
// them so long. The kernel does not see that we use an entry, so it is told.
type hops struct {
	ifc    *hostnet.Iface
	tables *hostnet.Tables
	known  atomic.Pointer[map[path]*hop] // nil entries leave by the stack

	mu     sync.Mutex
	asked  map[path]bool
	ask    chan struct{}
	stop   chan struct{}
	ended  chan struct{}
	stale  atomic.Bool   // nothing that is known holds any more
	failed atomic.Uint64 // looks that the kernel answered with an error
}

const (
	lookEvery = time.Second          // at all paths
	lookSoon  = 2 * time.Millisecond // at those that the kernel is just resolving
	soonLooks = 50                   // then they have to be asked for again
	forget    = time.Minute          // what was not used for so long
	maxPaths  = 1 << 16              // more leave by the stack
)

func newHops(ifc *hostnet.Iface) (*hops, error) {
	t, err := hostnet.OpenTables()
	if err != nil {
		return nil, err
	}
	h := &hops{
		ifc: ifc, tables: t, asked: make(map[path]bool),
		ask: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	h.known.Store(&map[path]*hop{})
	go h.run()
	return h, nil
}

func (h *hops) close() {
	close(h.stop)
	<-h.ended
	h.tables.Close()
}

// forgetAll has every path looked at anew: the addresses have changed.
func (h *hops) forgetAll() {
	h.stale.Store(true)
	h.known.Store(&map[path]*hop{}) // a look in progress may put them back, but is followed by another
	select {
	case h.ask <- struct{}{}:
	default:
	}
}

// hopCache remembers the last answer.
type hopCache struct {
	in *map[path]*hop
	p  path
	to *hop
}

// find returns the hop of a path or nil; an unknown path will be looked at.
func (c *hopCache) find(h *hops, p path) *hop {
	m := h.known.Load()
	if c.in != m || c.p != p {
		to, ok := (*m)[p]
		if !ok {
			h.want(p)
			return nil
		}
		c.in, c.p, c.to = m, p, to
	}
	if c.to != nil && !c.to.used.Load() {
		c.to.used.Store(true)
	}
	return c.to
}

// want asks for a path.
func (h *hops) want(p path) {
	if !h.mu.TryLock() {
		return // it will be asked for again
	}
	if len(h.asked) < maxPaths {
		h.asked[p] = true
	}
	h.mu.Unlock()
	select {
	case h.ask <- struct{}{}:
	default:
	}
}

// run looks paths up until close.
func (h *hops) run() {
	defer close(h.ended)
	all := time.NewTicker(lookEvery)
	defer all.Stop()
	again := time.NewTimer(0)
	soon := 0
	for {
		now, every := time.Now(), false
		select {
		case <-h.stop:
			return
		case <-h.ask:
			soon = soonLooks
		case <-again.C:
		case now = <-all.C:
			every = true
		}
		if h.look(now, every, soon > 0) {
			soon--
			again.Reset(lookSoon)
		}
	}
}

// look finds the hops of paths that were asked for, and brings the others up to
// date if every is set. It returns whether there are paths to look at again
// soon, which is not asked for without keep.
func (h *hops) look(now time.Time, every, keep bool) (again bool) {
	old := *h.known.Load()
	h.mu.Lock()
	paths := h.asked
	h.asked = make(map[path]bool)
	h.mu.Unlock()
	next := maps.Clone(old)
	stale := h.stale.Swap(false)
	if stale {
		clear(next)
	}
	if every {
		for p, to := range old {
			if stale {
				break
			}
			delete(next, p)
			if to == nil {
				continue // it is asked for again if it is in use
			}
			inUse := to.used.Swap(false)
			if inUse {
				to.seen = now
			}
			if now.Sub(to.seen) < forget {
				next[p] = to
				paths[p] = inUse
			}
		}
	}
	if len(paths) == 0 && len(next) == len(old) && !stale {
		return false
	}
	neighbors, err := h.tables.Neighbors(h.ifc.Index)
	if err != nil {
		h.failed.Add(1)
	}
	for p, inUse := range paths {
		mac, resolving, ok := h.resolve(p, neighbors, inUse)
		switch to := next[p]; {
		case resolving:
			delete(next, p)
			if keep && inUse {
				again = true
				h.mu.Lock()
				h.asked[p] = true
				h.mu.Unlock()
			}
		case !ok:
			next[p] = nil
		case to == nil || to.mac != mac:
			next[p] = &hop{mac: mac, seen: now}
		}
	}
	if !maps.Equal(old, next) {
		h.known.Store(&next)
	}
	return again
}

// resolve returns the station for a path; resolving is set when there will be
// one soon.
func (h *hops) resolve(p path, neighbors map[netip.Addr]hostnet.Neigh, inUse bool) (mac [6]byte, resolving, ok bool) {
	scope := 0
	if p.dst.IsLinkLocalUnicast() {
		scope = h.ifc.Index
	}
	r, err := h.tables.Route(p.dst, p.src, scope)
	if err != nil || r.Iface != h.ifc.Index || r.Local {
		return mac, false, false
	}
	via := p.dst
	if r.Gateway.IsValid() {
		via = r.Gateway
	}
	n := neighbors[via]
	if inUse && n.State != "reachable" && n.State != "permanent" && n.State != "noarp" {
		if h.tables.Use(h.ifc.Index, via) != nil {
			h.failed.Add(1)
		}
	}
	return n.MAC, !n.Valid, n.Valid
}
