package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// A NIC in another process cannot see the memory of a slice that the program
// registers. It uses a shadow instead, memory of both, under the same key and
// address, and this package copies: what is sent from the program to the shadow
// when the request is posted, what was received or read from the shadow to the
// program when its completion is polled.
//
//	PostSend  SEND, WRITE    program --> shadow    sendTrack gives READs and
//	Poll      READ, atomics  program <-- shadow    atomics, recvTrack receives,
//	Poll      receives       program <-- shadow    cookies that come back in CQEs
//
// A program that reaches its memory only through completions sees no difference
// but the time it takes. Two requests must not use the same octets at once when
// one of them writes there, as ever: here what arrived may be lost by that.
//
// Locks are taken in this order: those of a queue pair or shared queue,
// bounce.life, CQ.mu, a track's, then bounce.mu or shadowed.mu, for a moment each.

// bounce is what a Context knows of shadowed regions and the queues that may
// name them.
type bounce struct {
	on atomic.Bool // there is or was a shadowed region: posting and polling look here only

	mu      sync.RWMutex
	regions map[uint32]*shadowed // by L_Key
	qps     map[uint32]*QP       // by number, not destroyed

	// life is held while a queue pair is made or destroyed, so that the number
	// of one that is destroyed is not another's before it has settled.
	life sync.Mutex
}

// shadowed is a region whose memory the NIC does not see.
type shadowed struct {
	iova, size uint64

	// Copies hold mu shared; who ends the region waits for them and sets gone.
	mu          sync.RWMutex
	gone        bool
	mem, shadow []byte
}

// add makes the region of info known if it has a shadow, and returns it, or nil
// when it has none.
func (b *bounce) add(info *MRInfo, a Access) (*shadowed, error) {
	switch {
	case info.Shadow == nil:
		return nil, nil
	case len(info.Shadow) != len(info.Mem):
		return nil, fmt.Errorf("verbs: a shadow of %d octets for a memory region of %d", len(info.Shadow), len(info.Mem))
	case a&(AccessRemoteWrite|AccessRemoteRead|AccessRemoteAtomic|AccessMWBind) != 0:
		return nil, errors.New("verbs: peers cannot reach a slice of this program through a device of another process: use AllocMR")
	}
	r := &shadowed{iova: info.IOVA, size: uint64(len(info.Mem)), mem: info.Mem, shadow: info.Shadow}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.regions == nil {
		b.regions = make(map[uint32]*shadowed)
	}
	b.regions[info.LKey] = r
	b.on.Store(true)
	return r, nil
}

// remove forgets an ended region, unless its key is another's already.
func (b *bounce) remove(lkey uint32, r *shadowed) {
	b.mu.Lock()
	if b.regions[lkey] == r {
		delete(b.regions, lkey)
	}
	b.mu.Unlock()
	r.mu.Lock()
	r.mem, r.shadow = nil, nil // a track may hold r for longer
	r.mu.Unlock()
}

// end forbids copies, and waits for those under way; or allows them again, when
// the region could not be deregistered.
func (r *shadowed) end(gone bool) {
	r.mu.Lock()
	r.gone = gone || r.shadow == nil // it was deregistered before
	r.mu.Unlock()
}

func (b *bounce) addQP(q *QP) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.qps == nil {
		b.qps = make(map[uint32]*QP)
	}
	b.qps[q.info.QPN] = q
}

func (b *bounce) removeQP(q *QP) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.qps[q.info.QPN] == q {
		delete(b.qps, q.info.QPN)
	}
}

func (b *bounce) qp(qpn uint32) *QP {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.qps[qpn]
}

// piece is a scatter/gather entry: n octets, at offset off of r, or of memory
// that is not shadowed when r is nil.
type piece struct {
	r   *shadowed
	off int
	n   int
}

// piece finds the region of an entry. An entry that does not lie in its region
// is left to the NIC, which fails the request.
func (b *bounce) piece(s *SGE) piece {
	b.mu.RLock()
	r := b.regions[s.LKey]
	b.mu.RUnlock()
	p := piece{n: int(s.Length)}
	if r == nil || p.n == 0 {
		return p
	}
	if off := s.Addr - r.iova; off <= r.size && uint64(s.Length) <= r.size-off {
		p.r, p.off = r, int(off)
	}
	return p
}

// out copies from the program to the shadow.
//
//gorxe:hot
func (p *piece) out() {
	if p.r == nil {
		return
	}
	p.r.mu.RLock()
	if !p.r.gone {
		copy(p.r.shadow[p.off:p.off+p.n], p.r.mem[p.off:])
	}
	p.r.mu.RUnlock()
}

// in copies the first n octets from the shadow to the program.
//
//gorxe:hot
func (p *piece) in(n int) {
	if p.r == nil {
		return
	}
	p.r.mu.RLock()
	if !p.r.gone {
		copy(p.r.mem[p.off:p.off+n], p.r.shadow[p.off:])
	}
	p.r.mu.RUnlock()
}

// putShadowed is SendQueue.Put where there may be shadowed regions. sqMu is
// held.
//
//gorxe:hot
func (q *QP) putShadowed(w *SendWR) error {
	b := &q.pd.ctx.bounce
	var reads []SGE
	switch w.Opcode {
	case WRRead, WRCmpSwap, WRFetchAdd:
		reads = w.SGL
	}
	full, err := q.sends.put(b, q.sq, w, reads)
	if full {
		// What has completed and was not polled, or never will be since it is
		// unsignaled: its memory is the NIC's, so it may as well change now.
		q.sendCQ.settleQP(q)
		q.sends.trim()
	}
	if err != nil || reads != nil || w.Flags&SendInline != 0 {
		return err
	}
	// Before Publish, so before the NIC looks.
	for i := range w.SGL {
		p := b.piece(&w.SGL[i])
		p.out()
	}
	return nil
}

// receives returns the track of the queue that q's receive requests come from.
func (q *QP) receives() *recvTrack {
	if q.srq != nil {
		return &q.srq.recvs
	}
	return &q.recvs
}

// settle copies to the program what completions say has arrived, before they
// are returned. c.mu is held: completions of a queue settle in their order.
//
//gorxe:hot
func (c *CQ) settle(wc []WC) {
	for i := range wc {
		w := &wc[i]
		if w.cookie == 0 {
			continue
		}
		if q := c.ctx.bounce.qp(w.QPN); q != nil {
			q.settle(w)
		}
		w.cookie = 0
	}
}

func (q *QP) settle(w *WC) {
	good := w.Status == WCSuccess
	switch {
	case w.Opcode&WCRecv == 0:
		q.sends.done(w.cookie, good)
	case good && w.Opcode == WCRecv:
		q.receives().done(w.cookie, int(w.ByteLen))
	default: // failed, or the data is where a WRITE put it
		q.receives().done(w.cookie, 0)
	}
}

// settleQP settles what has completed of a queue pair and was not polled, since
// the queue pair is about to be no more or to begin anew. The NIC adds nothing
// of it any more.
func (c *CQ) settleQP(q *QP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.q.ring
	n := min(r.prod.Load()-c.q.next, r.Units())
	for i := range n {
		u := r.unit(c.q.next + i)
		w := WC{
			Status: WCStatus(u[cqStatus]), Opcode: WCOpcode(u[cqOpcode]), ByteLen: le.Uint32(u[cqLen:]),
			QPN: le.Uint32(u[cqQPN:]), cookie: le.Uint32(u[cqCookie:]),
		}
		if w.cookie == 0 || w.QPN != q.info.QPN {
			continue
		}
		q.settle(&w)
		le.PutUint32(u[cqCookie:], 0) // who polls it finds it settled
	}
}

// forget settles a queue pair that was reset or destroyed, and drops what will
// never complete. sqMu and rqMu are held.
func (q *QP) forget() {
	if !q.pd.ctx.bounce.on.Load() {
		return
	}
	q.sendCQ.settleQP(q)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.settleQP(q)
	}
	q.sends.clear()
	if q.srq == nil {
		q.recvs.clear()
	}
}
