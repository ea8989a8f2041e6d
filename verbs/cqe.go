package verbs

import (
	"errors"
	"sync/atomic"

	"github.com/gorxe/gorxe/trace"
)

// Layout of a CQE: one unit.
const (
	cqID     = 0  // u64
	cqStatus = 8  // u8
	cqOpcode = 9  // u8
	cqFlags  = 10 // u8
	cqReason = 11 // u8
	cqVendor = 12 // u32
	cqLen    = 16 // u32
	cqImm    = 20 // u32
	cqQPN    = 24 // u32
	cqSrcQP  = 28 // u32
	cqCookie = 32 // u32
)

const (
	cqArmed     = 1
	cqArmedSol  = 2
	cqOverflown = 4
)

// CompQueue is the consumer's side of a completion ring.
type CompQueue struct {
	ring Ring
	next uint32
}

// NewCompQueue wraps ring memory for polling.
func NewCompQueue(mem []byte) (*CompQueue, error) {
	r, ok := MakeRing(mem)
	if !ok {
		return nil, errors.New("verbs: completion ring memory has a wrong size or alignment")
	}
	return &CompQueue{ring: r}, nil
}

// Take moves completions from the ring to wc and returns how many: none when the
// memory was taken back meanwhile by a NIC in another process, and is zeros.
//
//gorxe:hot
func (q *CompQueue) Take(wc []WC) int {
	n := int(min(q.ready(), uint32(len(wc))))
	for i := range n {
		b := q.ring.unit(q.next + uint32(i))
		wc[i] = WC{
			ID: le.Uint64(b[cqID:]), Status: WCStatus(b[cqStatus]), Opcode: WCOpcode(b[cqOpcode]), Flags: WCFlags(b[cqFlags]),
			Reason: trace.Reason(b[cqReason]), VendorErr: le.Uint32(b[cqVendor:]), ByteLen: le.Uint32(b[cqLen:]),
			Imm: le.Uint32(b[cqImm:]), QPN: le.Uint32(b[cqQPN:]), SrcQP: le.Uint32(b[cqSrcQP:]),
			cookie: le.Uint32(b[cqCookie:]),
		}
	}
	if n > 0 {
		if q.ready() == 0 { // the index goes before what it is of
			return 0
		}
		q.next += uint32(n)
		q.ring.cons.Store(q.next)
	}
	return n
}

// Arm asks the NIC to notify at the next completion, or the next solicited
// or failed one. Poll again after arming: what came before does not notify.
func (q *CompQueue) Arm(solicited bool) {
	v := uint32(cqArmed)
	if solicited {
		v = cqArmedSol
	}
	q.ring.flag.Or(v)
}

// ready returns how many completions wait to be taken. An index that is further than
// the ring is long is nobody's: the memory is gone.
//
//gorxe:hot
func (q *CompQueue) ready() uint32 { return q.ring.ahead(q.next) }

// Empty reports whether nothing waits to be taken.
func (q *CompQueue) Empty() bool { return q.ring.ahead(q.ring.cons.Load()) == 0 }

// Overflown reports whether a completion was lost because the ring was full.
func (q *CompQueue) Overflown() bool { return q.ring.flag.Load()&cqOverflown != 0 }

// Notifications is a word in the ring that counts how often the NIC has notified a
// consumer in another process, which waits for that on it by futex(2): load it,
// Arm, look once more, wait while it is what it was.
func (q *CompQueue) Notifications() *atomic.Uint32 { return q.ring.note }

// CompRing is the NIC's side of a completion ring.
type CompRing struct {
	ring Ring
	prod uint32
}

// NewCompRing returns the NIC's side of ring memory.
func NewCompRing(mem []byte) (*CompRing, bool) {
	r, ok := MakeRing(mem)
	return &CompRing{ring: r}, ok
}

// Push adds a completion. It returns false, and marks the ring overflown,
// when there is no room.
//
//gorxe:hot
func (r *CompRing) Push(w *WC) bool {
	if r.prod-r.ring.cons.Load() >= r.ring.Units() {
		r.ring.flag.Or(cqOverflown)
		return false
	}
	b := r.ring.unit(r.prod)
	le.PutUint64(b[cqID:], w.ID)
	b[cqStatus], b[cqOpcode], b[cqFlags], b[cqReason] = byte(w.Status), byte(w.Opcode), byte(w.Flags), byte(w.Reason)
	le.PutUint32(b[cqVendor:], w.VendorErr)
	le.PutUint32(b[cqLen:], w.ByteLen)
	le.PutUint32(b[cqImm:], w.Imm)
	le.PutUint32(b[cqQPN:], w.QPN)
	le.PutUint32(b[cqSrcQP:], w.SrcQP)
	le.PutUint32(b[cqCookie:], w.cookie)
	r.prod++
	r.ring.prod.Store(r.prod)
	return true
}

// Notifications is the word that CompQueue.Notifications returns.
func (r *CompRing) Notifications() *atomic.Uint32 { return r.ring.note }

// Disarm takes the request to notify, if there is one that a completion with
// this solicited bit satisfies.
func (r *CompRing) Disarm(solicited bool) bool {
	f := r.ring.flag.Load()
	if f&cqArmed == 0 && (f&cqArmedSol == 0 || !solicited) {
		return false
	}
	r.ring.flag.And(^uint32(cqArmed | cqArmedSol))
	return true
}
