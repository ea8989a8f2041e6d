package verbs

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// A ring is control octets followed by a power of two of units. Indexes run
// freely (u32, they wrap); the unit of index i is i modulo the number of
// units. The producer stores its index with release after it wrote the units
// before it; the consumer loads with acquire.
//
//	octet 0    producer index
//	octet 64   consumer index
//	octet 68   entries consumed (send rings: work requests retired)
//	octet 128  flags (completion rings: 1 armed, 2 armed for solicited, 4 overflow;
//	           receive rings: 1 flushing)
//	octet 132  notifications (completion rings between processes)
//	octet 192  first unit
const (
	ringProducer = 0
	ringConsumer = 64
	ringRetired  = 68
	ringFlags    = 128
	ringNotes    = 132
	ringHeader   = 192

	// UnitLen is the length of a unit: a cache line.
	UnitLen = 64
)

// Ring is a view of ring memory; both sides have their own.
type Ring struct {
	mem  []byte // units only
	prod *atomic.Uint32
	cons *atomic.Uint32
	ret  *atomic.Uint32
	flag *atomic.Uint32
	note *atomic.Uint32
	mask uint32
}

// RingBytes returns the memory a ring of units units takes, rounded up to a
// power of two of them.
func RingBytes(units int) int { return ringHeader + ceilPow2(units)*UnitLen }

// NewRingMem returns zeroed heap memory for a ring, aligned to 8 octets.
func NewRingMem(units int) []byte { return NewRingBytes(RingBytes(units)) }

// NewRingBytes is NewRingMem for n octets, a result of RingBytes.
func NewRingBytes(n int) []byte {
	w := make([]uint64, n/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), n)
}

// MakeRing returns a view of ring memory. The length of mem decides the number
// of units, which must be a power of two; mem must be aligned to 8 octets.
func MakeRing(mem []byte) (Ring, bool) {
	units := (len(mem) - ringHeader) / UnitLen
	if len(mem) < ringHeader+UnitLen || units&(units-1) != 0 || uintptr(unsafe.Pointer(&mem[0]))&7 != 0 {
		return Ring{}, false
	}
	at := func(off int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&mem[off])) }
	return Ring{
		mem: mem[ringHeader : ringHeader+units*UnitLen], prod: at(ringProducer), cons: at(ringConsumer),
		ret: at(ringRetired), flag: at(ringFlags), note: at(ringNotes), mask: uint32(units - 1),
	}, true
}

// Units returns the number of units.
func (r *Ring) Units() uint32 { return r.mask + 1 }

// ahead returns how far the producer is ahead of an index, 0 when that is further
// than there are units.
//
//gorxe:hot
func (r *Ring) ahead(i uint32) uint32 {
	if n := r.prod.Load() - i; n <= r.Units() {
		return n
	}
	return 0
}

// unit returns the octets of the unit with free-running index i.
func (r *Ring) unit(i uint32) []byte {
	off := int(i&r.mask) * UnitLen
	return r.mem[off : off+UnitLen : off+UnitLen]
}

// copyIn writes b into consecutive units from index i on.
func (r *Ring) copyIn(i uint32, b []byte) {
	off := int(i&r.mask) * UnitLen
	n := copy(r.mem[off:], b)
	copy(r.mem, b[n:])
}

// copyOut reads len(b) octets from octet off of index i on.
func (r *Ring) copyOut(b []byte, i uint32, off int) {
	start := (int(i&r.mask)*UnitLen + off) & (len(r.mem) - 1)
	n := copy(b, r.mem[start:])
	copy(b[n:], r.mem)
}

func ceilPow2(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
