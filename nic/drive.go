package nic

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
)

const (
	// driveRounds is how often a caller steps for what others posted
	// meanwhile, before it leaves that to the background.
	driveRounds = 4
	// maxNap bounds how long a shard is deaf when its callers, who have polled for
	// eight times as long, just stop. Each end of a nap takes a processor from
	// somebody who may be polling on it: at 4 ms the slowest hundredth of short
	// messages took a fifth longer.
	maxNap = 16 * time.Millisecond
	// errNap is the pause after an error of the link.
	errNap = 10 * time.Millisecond

	longAgo = math.MinInt64 / 2
)

// background is what the goroutine of a shard and everybody else tell each
// other.
//
//	        lease lapsed             nothing to do
//	napping ------------> stepping ---------------> asleep in the link
//	   ^                    |   ^                       |
//	   +---- callers step --+   +-- packet, deadline, --+
//	         or a waiter            wake
//	         sleeps in the link
type background struct {
	caller   atomic.Int64 // when a caller last came to step: its lease
	deadline atomic.Int64 // what the last step returned
	until    atomic.Int64 // when the sleep ends by itself
	asleep   atomic.Bool
	alarm    chan struct{} // ends a nap, or the next one

	met   atomic.Uint64 // how often a caller found somebody stepping
	steps atomic.Uint64 // of the background

	since    atomic.Int64 // when a waiter began to step, and to sleep in the link, or never; see sleep.go
	bed      sync.Mutex   // of who sleeps in the link
	sleepers atomic.Int32 // waiters that others must wake
}

func (b *background) init() {
	b.alarm = make(chan struct{}, 1)
	b.caller.Store(longAgo)
	b.deadline.Store(never)
	b.since.Store(never)
}

// driven reports whether a waiter looks after the shard.
func (b *background) driven() bool { return b.since.Load() != never }

// drive steps the shard in the caller's own thread, unless somebody else is at
// it: whoever holds the lock looks again after unlocking, so what was posted
// before this call is not lost. A caller that finds the background at it has
// the lease all the same, or the two would go on together. It reports whether
// packets moved.
//
//gorxe:hot
func (s *shard) drive(by stepper) (moved bool) {
	for range driveRounds {
		now := s.n.cfg.Clock()
		s.bg.caller.Store(now)
		if !s.mu.TryLock() {
			s.bg.met.Add(1)
			return moved
		}
		before := s.stats.moved()
		d := s.step(now, by)
		moved = moved || s.stats.moved() != before
		s.mu.Unlock()
		s.hasten(d)
		if !s.pending() {
			return moved
		}
	}
	s.kick()
	return moved
}

// hasten ends the sleep in the link of who would sleep beyond what a step of
// another thread has found to be the deadline.
func (s *shard) hasten(deadline int64) {
	if s.bg.asleep.Load() && deadline < s.bg.until.Load() {
		s.link.Wake()
	}
}

// post makes sure that what was just left for the shard is looked at.
func (s *shard) post() {
	if s.n.cfg.Manual {
		s.kick()
	} else {
		s.drive(byPoster)
	}
}

// unlock ends any hold of mu but a step's.
func (s *shard) unlock() {
	s.mu.Unlock()
	if s.pending() {
		s.post()
	}
}

// kick makes the background take over at once: the caller will not step.
func (s *shard) kick() {
	if s.n.cfg.Manual {
		if s.n.cfg.Kick != nil {
			s.n.cfg.Kick(s.index)
		}
		return
	}
	s.bg.caller.Store(longAgo)
	s.wake()
}

// wake ends the background's sleep or nap.
func (s *shard) wake() {
	if s.bg.asleep.Load() {
		s.link.Wake()
	}
	s.rouse()
}

// run is the background goroutine. It leaves the shard to callers as long as one
// has come by within the lease or is at it just now, but not what was left while
// it held the lock itself.
func (s *shard) run() {
	spin, lease := int64(s.n.cfg.Spin), int64(s.n.cfg.Lease)
	nap := nap{s: s}
	active := int64(longAgo) // when a step last moved a packet
	left := false            // something was, while this goroutine stepped
	for s.n.end.Load() == nil {
		now := s.n.cfg.Clock()
		if !left && (s.bg.driven() || now-s.bg.caller.Load() < lease) {
			nap.longer(now)
			continue
		}
		if lease == 0 {
			s.mu.Lock()
		} else if !s.mu.TryLock() {
			nap.take(s.n.cfg.Lease)
			continue
		}
		nap.length = 0
		before := s.stats.moved()
		d := s.step(now, byBackground)
		moved := s.stats.moved() != before
		s.mu.Unlock()
		s.bg.steps.Add(1)
		s.hasten(d) // a waiter may have come
		left = s.pending()
		if moved {
			active = now
		}
		switch {
		case lease == 0 && spin > 0 && (moved || d <= now || left || now-active < spin):
			s.n.serve()
		case moved && (d <= now || spin > 0):
			runtime.Gosched()
		case d <= now || left || now-active < spin:
			s.n.yield()
		default:
			if err := s.sleep(context.Background(), d, nil); err != nil {
				if errors.Is(err, link.ErrClosed) {
					return
				}
				nap.take(errNap)
			}
		}
	}
}

// nap is how the background stays out of its callers' way: they step the
// shard, and a sleep in the link would end at each packet they poll for.
type nap struct {
	s      *shard
	timer  *time.Timer
	length time.Duration
}

// longer naps, an eighth longer than the last time.
func (p *nap) longer(now int64) {
	most := maxNap
	if since := p.s.bg.since.Load(); since != never {
		most = min(max(maxNap, time.Duration(now-since)), maxDriven)
	}
	p.length = min(max(p.length+p.length/8, p.s.n.cfg.Lease), most)
	d := p.length
	if left := time.Duration(p.s.bg.deadline.Load() - now); left > 0 {
		d = min(d, max(left, p.s.n.cfg.Lease))
	}
	p.take(d)
}

func (p *nap) take(d time.Duration) {
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.timer.C:
	case <-p.s.bg.alarm:
	case <-p.s.n.gone:
	}
	p.timer.Stop()
}

// How many looks in a row that found nothing share one runtime.Gosched, and one
// sched_yield.
const (
	goschedEvery = 32
	yieldEvery   = 2
)

// yield lets other programs run, and after a while other goroutines: spinning
// without it starves whoever is to answer. Gosched wakes a thread that looks for
// work, which costs more than all the rest of a look at an empty link. While
// packets keep coming the runtime's own preemption does, every 10 ms.
func (n *NIC) yield() {
	looks := n.yields.Add(1)
	if n.single || looks%goschedEvery == 0 {
		runtime.Gosched()
	}
	if looks%yieldEvery == 0 {
		sys.Yield()
	}
}

// serve is yield for a device whose users are other processes: each of them may wait
// for what this step has done, and for its processor.
func (n *NIC) serve() {
	if n.single || n.yields.Add(1)%goschedEvery == 0 {
		runtime.Gosched()
	}
	sys.Yield()
}

// busy begins the count of looks that found nothing again.
func (n *NIC) busy() {
	if n.yields.Load() != 0 {
		n.yields.Store(0)
	}
}
