package wire

import (
	"encoding/binary"

	"github.com/gorxe/gorxe/bth"
)

// Limits of a burst: what one UDP send with segmentation offload takes.
const (
	MaxSegments   = 128   // UDP_MAX_SEGMENTS of Linux 6.9 and later; Info of a link may say less
	MaxBurstBytes = 65000 // below 65507 (IPv4) and 65487 (IPv6), for all segments together
	maxVec        = 1000  // below UIO_MAXIOV
)

// BurstKind tells what an engine put into a burst, so that it can take back
// what a link did not send.
type BurstKind uint8

const (
	KindRequest BurstKind = iota
	KindResponse
	KindCNP // not an engine's: a congestion notification of the device
)

// Segment is one packet of a burst.
type Segment struct {
	PSN     bth.PSN
	Opcode  bth.Opcode
	Len     int // UDP payload octets: headers, payload, pad, ICRC
	hdr     int // offset of the BTH in scratch
	hdrLen  int // headers and snapshot payload, contiguous from hdr
	tail    int // offset of pad and ICRC in scratch
	tailLen int
	ref0    int // payload by reference: refs[ref0:ref1]
	ref1    int
}

// Burst is a run of packets of one flow, equal in length except that the last
// may be shorter. Headers, pads, ICRCs and snapshot payload stand in its
// scratch; other payload is referenced. An engine fills it (Begin, then Copy
// or Ref, then End), Seal computes the ICRCs, a link sends it.
//
// A burst is borrowed for each of these calls; no link keeps it.
type Burst struct {
	Flow *Flow
	Kind BurstKind
	QPN  bth.QPN // local queue pair, for the recorder and for counters
	Segs []Segment

	// Mark is the engine's own: the highest PSN it had sent before this burst.
	Mark bth.PSN

	// MaxSegs and MaxBytes bound the burst; Reset sets them.
	MaxSegs  int
	MaxBytes int
	limit    int // of IPBytes; 0 is none

	// Urgent asks an engine for what no pacer holds back, and nothing else: ACKs,
	// NAKs, answers to atomics. Reset clears it.
	Urgent bool

	scratch []byte
	refs    [][]byte
	vec     [][]byte
	bytes   int
	open    bool // the last piece of vec ends at len(scratch)
	closed  bool // a shorter segment ended the run
}

// NewBurst returns an empty burst with all the memory it will ever need.
func NewBurst() *Burst {
	b := &Burst{
		Segs: make([]Segment, 0, MaxSegments), scratch: make([]byte, 0, MaxBurstBytes+512),
		refs: make([][]byte, 0, maxVec), vec: make([][]byte, 0, maxVec+2),
	}
	b.Reset(nil, 0, 0)
	return b
}

// Reset empties the burst for a flow. A limit of 0 means the largest.
func (b *Burst) Reset(f *Flow, maxSegs, maxBytes int) {
	if maxSegs <= 0 || maxSegs > MaxSegments {
		maxSegs = MaxSegments
	}
	if maxBytes <= 0 || maxBytes > MaxBurstBytes {
		maxBytes = MaxBurstBytes
	}
	b.Flow, b.MaxSegs, b.MaxBytes = f, maxSegs, maxBytes
	b.Segs, b.scratch = b.Segs[:0], b.scratch[:0]
	clear(b.refs) // let go of users' memory
	clear(b.vec)
	b.refs, b.vec = b.refs[:0], b.vec[:0]
	b.bytes, b.limit, b.open, b.closed, b.Urgent, b.Kind, b.QPN = 0, 0, false, false, false, KindRequest, 0
}

// Limit bounds the burst to so many octets of IP packets, or fewer if that was said
// before. One segment always fits.
func (b *Burst) Limit(octets int) {
	if octets = max(1, octets); b.limit == 0 || octets < b.limit {
		b.limit = octets
	}
}

// IPBytes returns the octets of all segments together, from their IP headers.
func (b *Burst) IPBytes() int { return b.bytes + len(b.Segs)*b.Flow.HeaderLen() }

// Len returns the number of segments.
func (b *Burst) Len() int { return len(b.Segs) }

// Bytes returns the octets of all segments together.
func (b *Burst) Bytes() int { return b.bytes }

// SegLen returns the UDP payload length of each segment but the last.
func (b *Burst) SegLen() int {
	if len(b.Segs) == 0 {
		return 0
	}
	return b.Segs[0].Len
}

// Fits reports whether a segment with n octets of UDP payload, gathered from
// at most pieces references, can follow.
func (b *Burst) Fits(n, pieces int) bool {
	if len(b.Segs) == 0 {
		return true
	}
	return !b.closed && len(b.Segs) < b.MaxSegs && n <= b.Segs[0].Len && b.bytes+n <= b.MaxBytes &&
		len(b.vec)+pieces+1 < maxVec && (b.limit == 0 || b.IPBytes()+n+b.Flow.HeaderLen() <= b.limit)
}

// Begin starts a segment: hdr octets of headers, pay octets of payload, and
// the pad that follows from pay. It returns the headers to fill, every octet.
//
// Preconditions: Fits(hdr+pay+pad+4, ...) holds.
//
//gorxe:hot
func (b *Burst) Begin(psn bth.PSN, op bth.Opcode, hdr, pay int) []byte {
	n := hdr + pay + -pay&3 + bth.ICRCLen
	if len(b.Segs) > 0 && n < b.Segs[0].Len {
		b.closed = true
	}
	b.Segs = append(b.Segs, Segment{
		PSN: psn, Opcode: op, Len: n, hdr: len(b.scratch), hdrLen: hdr, ref0: len(b.refs), ref1: len(b.refs),
	})
	b.bytes += n
	return b.grow(hdr)
}

// grow appends n octets of scratch to the gather list.
func (b *Burst) grow(n int) []byte {
	off := len(b.scratch)
	b.scratch = b.scratch[:off+n]
	if last := len(b.vec) - 1; b.open {
		p := b.vec[last]
		b.vec[last] = b.scratch[off-len(p) : off+n : off+n]
	} else {
		b.vec = append(b.vec, b.scratch[off:off+n:off+n])
		b.open = true
	}
	return b.scratch[off : off+n]
}

// Copy returns n octets of scratch for the payload of the current segment: a
// snapshot that nobody else can change. All Copy calls come before Ref.
func (b *Burst) Copy(n int) []byte {
	b.Segs[len(b.Segs)-1].hdrLen += n
	return b.grow(n)
}

// Ref adds payload by reference. Until the burst has been sent it must not
// change, or the ICRC will be wrong.
func (b *Burst) Ref(p []byte) {
	if len(p) == 0 {
		return
	}
	b.refs = append(b.refs, p)
	b.vec = append(b.vec, p)
	b.open = false
	b.Segs[len(b.Segs)-1].ref1++
}

// End finishes the segment: pad octets of 0 and room for the ICRC.
func (b *Burst) End() {
	s := &b.Segs[len(b.Segs)-1]
	s.tail, s.tailLen = len(b.scratch), s.Len-s.hdrLen
	for _, r := range b.refs[s.ref0:s.ref1] {
		s.tailLen -= len(r)
	}
	clear(b.grow(s.tailLen))
}

// Seal computes the ICRC of every segment.
//
//gorxe:hot
func (b *Burst) Seal(ids IDPolicy) {
	var n int
	var prefix uint32
	v4 := b.Flow.Src.Is4()
	for i := range b.Segs {
		s := &b.Segs[i]
		if s.Len != n {
			n = s.Len
			prefix = b.Flow.prefix(n)
		}
		st := prefix
		if v4 && ids == IDCount {
			st ^= idState(uint16(i))
		}
		h := b.scratch[s.hdr : s.hdr+s.hdrLen]
		st = crcLong(crcBTH(st, h), h[bth.BTHLen:])
		for _, r := range b.refs[s.ref0:s.ref1] {
			st = crcLong(st, r)
		}
		tail := b.scratch[s.tail : s.tail+s.tailLen]
		st = crcShort(st, tail[:len(tail)-bth.ICRCLen])
		binary.LittleEndian.PutUint32(tail[len(tail)-bth.ICRCLen:], ^st)
	}
}

// Vec returns the gather list of all segments in wire order. It is borrowed
// until the next change of the burst.
func (b *Burst) Vec() [][]byte { return b.vec }

// AppendSegment appends the octets of segment i, BTH to ICRC, to dst.
func (b *Burst) AppendSegment(dst []byte, i int) []byte {
	s := &b.Segs[i]
	dst = append(dst, b.scratch[s.hdr:s.hdr+s.hdrLen]...)
	for _, r := range b.refs[s.ref0:s.ref1] {
		dst = append(dst, r...)
	}
	return append(dst, b.scratch[s.tail:s.tail+s.tailLen]...)
}

// Header returns the headers of segment i, from the BTH, and the snapshot
// payload that follows them. It is borrowed until the next change of the burst.
func (b *Burst) Header(i int) []byte {
	s := &b.Segs[i]
	return b.scratch[s.hdr : s.hdr+s.hdrLen : s.hdr+s.hdrLen]
}
