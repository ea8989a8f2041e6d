package verbs

import "sync"

// sendTrack holds a send queue's READs and atomics into shadowed regions, in
// the order they were posted, until a completion covers them: their own, or of
// unsignaled ones a later one of the queue. For that every request posted while
// there are any has a cookie, which counts up.
type sendTrack struct {
	mu     sync.Mutex
	seq    uint32 // the last cookie
	ring   []pendingRead
	head   int // the oldest
	n      int
	limit  int // requests that may be outstanding
	maxSGE int
}

type pendingRead struct {
	cookie uint32
	pieces []piece // those in shadowed regions
}

// put puts a request into the queue, and the READ's entries, if it is one, into
// the track, which then may be full.
//
//gorxe:hot
func (t *sendTrack) put(b *bounce, sq *SendQueue, w *SendWR, reads []SGE) (full bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	staged := false
	if len(reads) > 0 && len(reads) <= t.maxSGE {
		staged = t.stage(b, reads)
	}
	var cookie uint32
	if staged || t.n > 0 {
		if t.seq++; t.seq == 0 {
			t.seq = 1
		}
		cookie = t.seq
	}
	if err := sq.put(w, cookie); err != nil || !staged {
		return false, err
	}
	t.at(t.n).cookie = cookie
	t.n++
	return t.n > t.limit, nil
}

// trim makes room in a track that is full. There was room in the queue, so the
// oldest request is done.
func (t *sendTrack) trim() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n > t.limit {
		t.pop(true)
	}
}

// at returns the i-th entry, the oldest first.
func (t *sendTrack) at(i int) *pendingRead { return &t.ring[(t.head+i)%len(t.ring)] }

// stage notes the shadowed ones of a READ's entries behind the last of the
// track, and reports whether there are any.
func (t *sendTrack) stage(b *bounce, sgl []SGE) bool {
	var e *pendingRead
	for i := range sgl {
		p := b.piece(&sgl[i])
		if p.r == nil {
			continue
		}
		if e == nil {
			if t.n == len(t.ring) {
				t.grow()
			}
			e = t.at(t.n)
			e.pieces = e.pieces[:0]
		}
		e.pieces = append(e.pieces, p)
	}
	return e != nil
}

func (t *sendTrack) grow() {
	old := len(t.ring)
	n := min(max(8, 2*old), t.limit+1)
	ring := make([]pendingRead, n)
	pieces := make([]piece, (n-old)*t.maxSGE)
	for i := range ring {
		if i < old {
			ring[i] = *t.at(i)
			continue
		}
		k := (i - old) * t.maxSGE
		ring[i].pieces = pieces[k : k : k+t.maxSGE]
	}
	t.ring, t.head = ring, 0
}

// pop forgets the oldest entry, and copies what it read if it went well.
func (t *sendTrack) pop(good bool) {
	e := t.at(0)
	for i := range e.pieces {
		if good {
			e.pieces[i].in(e.pieces[i].n)
		}
	}
	clear(e.pieces)
	t.head = (t.head + 1) % len(t.ring)
	t.n--
}

// done says that the request with a cookie has completed, well or not. Those
// before it have completed well: else they had a completion of their own.
func (t *sendTrack) done(cookie uint32, good bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.n > 0 {
		ahead := int32(t.at(0).cookie - cookie)
		if ahead > 0 {
			break
		}
		t.pop(ahead < 0 || good)
	}
}

// clear forgets everything.
func (t *sendTrack) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.n > 0 {
		t.pop(false)
	}
}

// recvTrack holds the requests of a receive queue that name shadowed regions,
// until they complete. A cookie is a slot's number plus one: requests of a
// shared queue complete in any order.
//
// A request that a queue pair took from a shared queue and lost, since it was
// destroyed in the middle of a message, completes nowhere. Its slot is free
// again when the last queue pair of the shared queue is destroyed.
type recvTrack struct {
	mu     sync.Mutex
	slots  []recvSlot
	free   []uint32 // numbers of slots not in use
	maxSGE int
	users  int // queue pairs of a shared queue
}

type recvSlot struct {
	pieces []piece // all of the request, nil when not in use
	room   []piece
	at     uint32 // index in the ring
}

// put puts a request into the queue and, if it names shadowed regions, into the
// track. The queue's lock is held.
//
//gorxe:hot
func (t *recvTrack) put(b *bounce, rq *RecvQueue, w *RecvWR) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	cookie := t.add(b, w.SGL, rq.prod)
	err := rq.put(w, cookie)
	if err != nil && cookie != 0 {
		t.release(cookie - 1)
	}
	return err
}

// add returns the cookie of a request, 0 when it names no shadowed region.
func (t *recvTrack) add(b *bounce, sgl []SGE, at uint32) uint32 {
	if len(sgl) == 0 || len(sgl) > t.maxSGE {
		return 0
	}
	if len(t.free) == 0 {
		t.grow()
	}
	i := t.free[len(t.free)-1]
	s := &t.slots[i]
	any := false
	for k := range sgl {
		s.room[k] = b.piece(&sgl[k])
		any = any || s.room[k].r != nil
	}
	if !any {
		return 0
	}
	t.free = t.free[:len(t.free)-1]
	s.pieces, s.at = s.room[:len(sgl)], at
	return i + 1
}

func (t *recvTrack) grow() {
	old := len(t.slots)
	n := max(16, 2*old)
	slots, free := make([]recvSlot, n), make([]uint32, 0, n)
	copy(slots, t.slots)
	room := make([]piece, (n-old)*t.maxSGE)
	for i := n - 1; i >= old; i-- {
		slots[i].room, room = room[:t.maxSGE:t.maxSGE], room[t.maxSGE:]
		free = append(free, uint32(i))
	}
	t.slots, t.free = slots, free
}

func (t *recvTrack) release(i uint32) {
	s := &t.slots[i]
	clear(s.pieces)
	s.pieces = nil
	t.free = append(t.free, i)
}

// done says that the request with a cookie has completed, with n octets in its
// entries.
func (t *recvTrack) done(cookie uint32, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := cookie - 1
	if uint64(i) >= uint64(len(t.slots)) || t.slots[i].pieces == nil {
		return
	}
	for k := range t.slots[i].pieces {
		p := &t.slots[i].pieces[k]
		m := min(n, p.n)
		p.in(m)
		n -= m
	}
	t.release(i)
}

// clear forgets everything.
func (t *recvTrack) clear() { t.sweep(func(*recvSlot) bool { return true }) }

func (t *recvTrack) sweep(drop func(*recvSlot) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.slots {
		if s := &t.slots[i]; s.pieces != nil && drop(s) {
			t.release(uint32(i))
		}
	}
}

// join counts a queue pair of a shared queue.
func (t *recvTrack) join() {
	t.mu.Lock()
	t.users++
	t.mu.Unlock()
}

// leave ends one. After the last, what the NIC took from the ring and nobody has
// told of will never complete.
func (t *recvTrack) leave(rq *RecvQueue) {
	t.mu.Lock()
	t.users--
	last := t.users == 0
	t.mu.Unlock()
	if last {
		cons := rq.ring.cons.Load()
		t.sweep(func(s *recvSlot) bool { return int32(cons-s.at) > 0 })
	}
}
