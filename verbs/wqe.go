package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var le = binary.LittleEndian

// Layout of a send WQE: one unit of header, then scatter/gather entries of 16
// octets or inline data, in as many units as they take.
const (
	sqOpcode = 0  // u8
	sqFlags  = 1  // u8
	sqNumSGE = 2  // u8
	sqUnits  = 3  // u8, header included
	sqLen    = 4  // u32, octets of inline data
	sqID     = 8  // u64
	sqRAddr  = 16 // u64
	sqRKey   = 24 // u32
	sqImm    = 28 // u32
	sqCmpAdd = 32 // u64
	sqSwap   = 40 // u64
	sqQPN    = 48 // u32
	sqQKey   = 52 // u32
	sqAH     = 56 // u32
	sqCookie = 60 // u32

	// BIND_MW has other meanings for the words of a request to a peer.
	sqBindAddr   = sqRAddr    // u64
	sqBindKey    = sqRKey     // u32
	sqBindNewKey = sqImm      // u32
	sqBindLen    = sqCmpAdd   // u64
	sqBindLKey   = sqSwap     // u32
	sqBindAccess = sqSwap + 4 // u32
	sgeLen       = 16

	// MaxSendUnits is the longest send WQE: a header and 32 SGEs, or 512
	// octets of inline data.
	MaxSendUnits = 1 + MaxSGE*sgeLen/UnitLen
)

// Layout of a receive WQE: 16 octets of header, then SGEs; a fixed number of
// units for each ring (RecvUnits).
const (
	rqNumSGE = 0 // u32
	rqCookie = 4 // u32
	rqID     = 8 // u64
	rqSGE    = 16

	rqFlushing = 1 // flag: the queue pair is in ERR
)

// RecvUnits returns the units of a receive WQE with up to sge entries.
func RecvUnits(sge int) int { return (rqSGE + sge*sgeLen + UnitLen - 1) / UnitLen }

// SendUnits returns the units of a send WQE with up to sge entries or inline
// octets of data.
func SendUnits(sge, inline int) int { return 1 + (max(sge*sgeLen, inline)+UnitLen-1)/UnitLen }

// Errors of posting.
var (
	// ErrQueueFull: as many work requests are outstanding as the queue has
	// room for. Poll completions, or create the queue pair with a deeper one.
	ErrQueueFull = errors.New("verbs: queue full: poll completions (unsignaled requests are retired by a later signaled one), or create the queue pair with a deeper queue")
	// ErrInvalidWR: a work request that no queue pair can carry out.
	ErrInvalidWR = errors.New("verbs: invalid work request")
	// ErrState: the queue pair's state does not allow the call.
	ErrState = errors.New("verbs: queue pair state")
	// ErrClosed: the device or object was closed.
	ErrClosed = errors.New("verbs: closed")
	// ErrNotSupported: this device does not do that.
	ErrNotSupported = errors.New("verbs: not supported")
	// ErrInUse: an object cannot be destroyed while others are made of it.
	ErrInUse = errors.New("verbs: in use")
	// ErrLimit: no more objects of that kind may be made.
	ErrLimit = errors.New("verbs: limit reached")
	// ErrFailed: the device has stopped, by a fault of its own or because the
	// daemon that it is part of has ended.
	ErrFailed = errors.New("verbs: the device failed")
)

// SendQueue is the producer's side of a send ring.
type SendQueue struct {
	ring      Ring
	prod      uint32
	posted    uint32 // work requests, free running
	maxWR     uint32
	maxSGE    int
	maxInline int
}

// NewSendQueue wraps ring memory for posting with the capabilities c. The ring
// must have room for the largest request that they allow.
func NewSendQueue(mem []byte, c QPCap) (*SendQueue, error) {
	r, ok := MakeRing(mem)
	if !ok {
		return nil, errors.New("verbs: send ring memory has a wrong size or alignment")
	}
	if !within(c.MaxSendWR, MaxQPWR) || !within(c.MaxSendSGE, MaxSGE) || !within(c.MaxInline, MaxInline) {
		return nil, fmt.Errorf("verbs: send queue beyond the limits of a ring: %+v", c)
	}
	if n := SendUnits(c.MaxSendSGE, c.MaxInline); n > int(r.Units()) {
		return nil, fmt.Errorf("verbs: send ring of %d units, a request may take %d", r.Units(), n)
	}
	return &SendQueue{ring: r, maxWR: uint32(c.MaxSendWR), maxSGE: c.MaxSendSGE, maxInline: c.MaxInline}, nil
}

func within(v, limit int) bool { return v >= 0 && v <= limit }

// Reset forgets everything posted; the NIC's side does the same.
func (q *SendQueue) Reset() {
	q.prod, q.posted = 0, 0
	q.ring.prod.Store(0)
}

// Put writes one work request and returns an error if it does not fit or is
// malformed. Publish makes it visible.
func (q *SendQueue) Put(w *SendWR) error { return q.put(w, 0) }

// put is Put with what the request's completion is to return.
func (q *SendQueue) put(w *SendWR, cookie uint32) error {
	n := len(w.SGL) * sgeLen
	if w.Flags&SendInline != 0 {
		if n = len(w.Inline); n > q.maxInline {
			return fmt.Errorf("%w: %d octets of inline data, the queue pair was created for %d (QPCap.MaxInline)", ErrInvalidWR, n, q.maxInline)
		}
		if w.Opcode == WRRead || w.Opcode == WRCmpSwap || w.Opcode == WRFetchAdd {
			return fmt.Errorf("%w: %v returns data and cannot be inline", ErrInvalidWR, w.Opcode)
		}
	} else if len(w.SGL) > q.maxSGE {
		return fmt.Errorf("%w: %d scatter/gather entries, the queue pair was created for %d (QPCap.MaxSendSGE)", ErrInvalidWR, len(w.SGL), q.maxSGE)
	}
	units := uint32(1 + (n+UnitLen-1)/UnitLen)
	if q.posted-q.ring.ret.Load() >= q.maxWR || q.prod+units-q.ring.cons.Load() > q.ring.Units() {
		return ErrQueueFull
	}
	h := q.ring.unit(q.prod)
	h[sqOpcode], h[sqFlags], h[sqUnits] = byte(w.Opcode), byte(w.Flags), byte(units)
	le.PutUint64(h[sqID:], w.ID)
	le.PutUint64(h[sqRAddr:], w.RemoteAddr)
	le.PutUint32(h[sqRKey:], w.RKey)
	le.PutUint32(h[sqImm:], w.Imm)
	le.PutUint64(h[sqCmpAdd:], w.CompareAdd)
	le.PutUint64(h[sqSwap:], w.Swap)
	if w.Opcode == WRBindMW {
		le.PutUint64(h[sqBindAddr:], w.Bind.Addr)
		le.PutUint32(h[sqBindKey:], w.Bind.Key)
		le.PutUint32(h[sqBindNewKey:], w.Bind.NewKey)
		le.PutUint64(h[sqBindLen:], w.Bind.Length)
		le.PutUint32(h[sqBindLKey:], w.Bind.LKey)
		le.PutUint32(h[sqBindAccess:], uint32(w.Bind.Access))
	}
	le.PutUint32(h[sqQPN:], w.RemoteQPN)
	le.PutUint32(h[sqQKey:], w.RemoteQKey)
	le.PutUint32(h[sqAH:], w.AH)
	le.PutUint32(h[sqCookie:], cookie)
	if w.Flags&SendInline != 0 {
		h[sqNumSGE] = 0
		le.PutUint32(h[sqLen:], uint32(n))
		q.ring.copyIn(q.prod+1, w.Inline)
	} else {
		h[sqNumSGE] = byte(len(w.SGL))
		le.PutUint32(h[sqLen:], 0)
		for i, s := range w.SGL {
			putSGE(q.ring.unit(q.prod + 1 + uint32(i/4))[i%4*sgeLen:], s)
		}
	}
	q.prod += units
	q.posted++
	return nil
}

// Publish makes everything put so far visible to the NIC.
func (q *SendQueue) Publish() { q.ring.prod.Store(q.prod) }

func putSGE(b []byte, s SGE) {
	le.PutUint64(b, s.Addr)
	le.PutUint32(b[8:], s.Length)
	le.PutUint32(b[12:], s.LKey)
}

func getSGE(b []byte) SGE {
	return SGE{Addr: le.Uint64(b), Length: le.Uint32(b[8:]), LKey: le.Uint32(b[12:])}
}

// SendWQE is the NIC's copy of a send WQE. The scatter/gather entries go to a
// buffer of the NIC's; inline data stays in the ring, at Index.
type SendWQE struct {
	ID         uint64
	RemoteAddr uint64
	CompareAdd uint64
	Swap       uint64
	RKey       uint32
	Imm        uint32
	RemoteQPN  uint32
	RemoteQKey uint32
	AH         uint32
	Cookie     uint32 // of the program's side, for the completion
	InlineLen  uint32
	Index      uint32 // free-running unit index of the header
	Opcode     WROpcode
	Flags      SendFlags
	NumSGE     uint8
	Units      uint8
}

// Bind is what a BIND_MW asks for.
func (w *SendWQE) Bind() Bind {
	return Bind{Key: w.RKey, NewKey: w.Imm, LKey: uint32(w.Swap), Addr: w.RemoteAddr, Length: w.CompareAdd, Access: Access(w.Swap >> 32)}
}

// Name puts into a completion what tells the program which request it is of.
func (w *SendWQE) Name(wc *WC) { wc.ID, wc.cookie = w.ID, w.Cookie }

// SendRing is the NIC's side of a send ring. It trusts nothing in it: indexes
// are its own copies, and a WQE is read once.
type SendRing struct {
	ring Ring
	next uint32 // next unit to fetch
	ret  uint32 // first unit not retired
	wrs  uint32 // work requests retired
}

// NewSendRing returns the NIC's side of ring memory.
func NewSendRing(mem []byte) (*SendRing, bool) {
	r, ok := MakeRing(mem)
	return &SendRing{ring: r}, ok
}

// Reset forgets everything fetched and posted.
func (r *SendRing) Reset() {
	r.next, r.ret, r.wrs = 0, 0, 0
	r.ring.prod.Store(0)
	r.ring.cons.Store(0)
	r.ring.ret.Store(0)
}

// Fetch copies the next WQE. more is false when there is none; ok is false
// when what stands there is not a WQE, which ends the queue.
//
//gorxe:hot
func (r *SendRing) Fetch(w *SendWQE, sgl []SGE) (more, ok bool) {
	prod := r.ring.prod.Load()
	avail := prod - r.next
	if avail == 0 {
		return false, true
	}
	if prod-r.ret > r.ring.Units() {
		return true, false
	}
	var h [UnitLen]byte
	copy(h[:], r.ring.unit(r.next))
	*w = SendWQE{
		ID: le.Uint64(h[sqID:]), RemoteAddr: le.Uint64(h[sqRAddr:]), CompareAdd: le.Uint64(h[sqCmpAdd:]),
		Swap: le.Uint64(h[sqSwap:]), RKey: le.Uint32(h[sqRKey:]), Imm: le.Uint32(h[sqImm:]),
		RemoteQPN: le.Uint32(h[sqQPN:]), RemoteQKey: le.Uint32(h[sqQKey:]), AH: le.Uint32(h[sqAH:]),
		Cookie: le.Uint32(h[sqCookie:]), InlineLen: le.Uint32(h[sqLen:]), Index: r.next, Opcode: WROpcode(h[sqOpcode]), Flags: SendFlags(h[sqFlags]),
		NumSGE: h[sqNumSGE], Units: h[sqUnits],
	}
	need := int(w.NumSGE) * sgeLen
	if w.Flags&SendInline != 0 {
		if w.NumSGE != 0 || w.InlineLen > MaxInline {
			return true, false
		}
		need = int(w.InlineLen)
	} else if w.InlineLen != 0 {
		return true, false
	}
	if int(w.NumSGE) > len(sgl) || uint32(w.Units) > avail || 1+(need+UnitLen-1)/UnitLen != int(w.Units) {
		return true, false
	}
	for i := range int(w.NumSGE) {
		sgl[i] = getSGE(r.ring.unit(r.next + 1 + uint32(i/4))[i%4*sgeLen:])
	}
	r.next += uint32(w.Units)
	return true, true
}

// Inline copies len(b) octets of a WQE's inline data from offset off on.
func (r *SendRing) Inline(b []byte, w *SendWQE, off int) { r.ring.copyOut(b, w.Index+1, off) }

// Retire gives the units of the oldest WQE back to the producer.
func (r *SendRing) Retire(w *SendWQE) {
	r.ret += uint32(w.Units)
	r.wrs++
	r.ring.cons.Store(r.ret)
	r.ring.ret.Store(r.wrs)
}

// Pending reports whether something was posted that was not fetched.
func (r *SendRing) Pending() bool { return r.ring.prod.Load() != r.next }

// RecvQueue is the producer's side of a receive ring.
type RecvQueue struct {
	ring   Ring
	prod   uint32
	stride uint32
	maxWR  uint32
	maxSGE int
}

// NewRecvQueue wraps ring memory for posting wr requests of up to sge entries.
// The ring must have room for all of them.
func NewRecvQueue(mem []byte, wr, sge int) (*RecvQueue, error) {
	r, ok := MakeRing(mem)
	if !ok {
		return nil, errors.New("verbs: receive ring memory has a wrong size or alignment")
	}
	if !within(wr, MaxQPWR) || !within(sge, MaxSGE) {
		return nil, fmt.Errorf("verbs: receive queue of %d requests of %d entries is beyond the limits of a ring", wr, sge)
	}
	if n := wr * RecvUnits(sge); n > int(r.Units()) {
		return nil, fmt.Errorf("verbs: receive ring of %d units, its requests may take %d", r.Units(), n)
	}
	return &RecvQueue{ring: r, stride: uint32(RecvUnits(sge)), maxWR: uint32(wr), maxSGE: sge}, nil
}

// Reset forgets everything posted.
func (q *RecvQueue) Reset() {
	q.prod = 0
	q.ring.prod.Store(0)
}

// Put writes one receive request; Publish makes it visible.
func (q *RecvQueue) Put(w *RecvWR) error { return q.put(w, 0) }

// put is Put with what the request's completion is to return.
func (q *RecvQueue) put(w *RecvWR, cookie uint32) error {
	if len(w.SGL) > q.maxSGE {
		return fmt.Errorf("%w: %d scatter/gather entries, the queue was created for %d (MaxRecvSGE)", ErrInvalidWR, len(w.SGL), q.maxSGE)
	}
	if q.prod-q.ring.cons.Load() >= q.maxWR*q.stride {
		return ErrQueueFull
	}
	var b [rqSGE + MaxSGE*sgeLen]byte
	le.PutUint32(b[rqNumSGE:], uint32(len(w.SGL)))
	le.PutUint32(b[rqCookie:], cookie)
	le.PutUint64(b[rqID:], w.ID)
	for i, s := range w.SGL {
		putSGE(b[rqSGE+i*sgeLen:], s)
	}
	q.ring.copyIn(q.prod, b[:rqSGE+len(w.SGL)*sgeLen])
	q.prod += q.stride
	return nil
}

// Publish makes everything put so far visible to the NIC.
func (q *RecvQueue) Publish() { q.ring.prod.Store(q.prod) }

// flushing reports whether the NIC flushes what is posted, and so wants to
// hear of it.
func (q *RecvQueue) flushing() bool { return q.ring.flag.Load()&rqFlushing != 0 }

// RecvID is what a receive request's completion says of it.
type RecvID struct {
	ID     uint64
	Cookie uint32 // of the program's side
}

// Name puts into a completion what tells the program which request it is of.
func (r RecvID) Name(wc *WC) { wc.ID, wc.cookie = r.ID, r.Cookie }

// RecvRing is the NIC's side of a receive ring.
type RecvRing struct {
	ring   Ring
	next   uint32
	stride uint32
	broken bool // the producer's index made no sense
}

// NewRecvRing returns the NIC's side of ring memory for WQEs of up to sge
// entries.
func NewRecvRing(mem []byte, sge int) (*RecvRing, bool) {
	r, ok := MakeRing(mem)
	return &RecvRing{ring: r, stride: uint32(RecvUnits(sge))}, ok
}

// Reset forgets everything.
func (r *RecvRing) Reset() {
	r.next, r.broken = 0, false
	r.ring.prod.Store(0)
	r.ring.cons.Store(0)
}

// SetFlushing tells the producer to ring the doorbell after posting, since
// what it posts is to be flushed.
func (r *RecvRing) SetFlushing(on bool) {
	if on {
		r.ring.flag.Or(rqFlushing)
	} else {
		r.ring.flag.And(^uint32(rqFlushing))
	}
}

// Broken reports whether the producer's index made no sense: the ring gives
// nothing any more until Reset.
func (r *RecvRing) Broken() bool { return r.broken }

// Len returns how many requests wait, at most as many as there is room for.
func (r *RecvRing) Len() int {
	if r.broken {
		return 0
	}
	return int(min(r.ring.prod.Load()-r.next, r.ring.Units()) / r.stride)
}

// Fetch takes the next request: what names it, and its entries into sgl. ok is false
// when there is none. n is -1 when what stands there is not a WQE; when that is
// so because the producer's index is further ahead than the ring has room for,
// it is the last.
//
//gorxe:hot
func (r *RecvRing) Fetch(sgl []SGE) (id RecvID, n int, ok bool) {
	avail := r.ring.prod.Load() - r.next
	if avail < r.stride || r.broken {
		return RecvID{}, 0, false
	}
	var h [rqSGE]byte
	copy(h[:], r.ring.unit(r.next))
	id = RecvID{ID: le.Uint64(h[rqID:]), Cookie: le.Uint32(h[rqCookie:])}
	k := le.Uint32(h[rqNumSGE:])
	n = int(k)
	r.broken = avail > r.ring.Units()
	if r.broken || k > uint32(len(sgl)) || RecvUnits(int(k)) > int(r.stride) {
		k, n = 0, -1
	}
	var b [sgeLen]byte
	for i := range int(k) {
		r.ring.copyOut(b[:], r.next, rqSGE+i*sgeLen)
		sgl[i] = getSGE(b[:])
	}
	r.next += r.stride
	r.ring.cons.Store(r.next)
	return id, n, true
}
