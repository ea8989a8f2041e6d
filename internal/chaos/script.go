package main

import (
	"encoding/binary"
	"math/rand/v2"
)

// A session is between two programs, each of which sends the other what its script
// says: rounds of operations, every length, place and octet of which both can work out
// from the session's seed. The receiver of a round knows what has to be where.

// Dimensions of a session.
const (
	depth    = 3         // rounds that may be under way
	arenaLen = 256 << 10 // octets of a round, at the sender and at the receiver
	wordsLen = 64        // of those the first: words for atomics, at the receiver
	words    = 4
	guard    = 64       // octets between what operations write
	fixedLen = 64 << 10 // octets for READs, which never change
	maxSend  = 32 << 10 // longest SEND
	maxGram  = 4096     // longest datagram, where the path MTU is that
	header   = 16       // octets that tell what an unreliable message is
	poison   = 0xa5     // octets that nothing is written to
)

// kind of an operation.
type kind uint8

const (
	kSend kind = iota
	kSendImm
	kWrite
	kWriteImm
	kRead
	kFetchAdd
	kCmpSwap
	kUCSend
	kUCWrite
	kUCWriteImm
	kUDSend
	kSendInv // the last of each round but one
	kEnd     // the last: everything before it has been placed
	kinds
)

var kindNames = [kinds]string{
	"SEND", "SEND_IMM", "WRITE", "WRITE_IMM", "READ", "FETCH_ADD", "CMP_SWAP",
	"UC_SEND", "UC_WRITE", "UC_WRITE_IMM", "UD_SEND", "SEND_INV", "END",
}

func (k kind) String() string { return kindNames[k] }

// unreliable reports whether an operation may be lost.
func (k kind) unreliable() bool { return k >= kUCSend && k <= kUDSend }

// write reports whether an operation writes to the receiver's arena.
func (k kind) write() bool {
	return k == kWrite || k == kWriteImm || k == kUCWrite || k == kUCWriteImm
}

// receives reports whether an operation over RC takes a receive request.
func (k kind) receives() bool {
	return k == kSend || k == kSendImm || k == kWriteImm || k == kSendInv || k == kEnd
}

// op is an operation of a round.
type op struct {
	kind   kind
	off    int // in the arena of both ends; of a READ and an atomic, of the result
	len    int
	window bool // through the round's memory window
	quiet  bool // not signaled

	from int // READ: offset in the fixed memory

	word     int // atomics
	add      uint64
	cmp, new uint64
	finds    uint64
}

// round is what is sent before the receiver says that all of it was right.
type round struct {
	n     int
	ops   []op
	used  int           // octets of the arena
	words [words]uint64 // afterwards
}

// script makes the rounds of one direction in turn.
type script struct {
	seed  uint64
	side  int // who sends
	gram  int // longest datagram
	n     int
	words [depth][words]uint64 // of the arenas
}

func newScript(seed uint64, side, gram int) *script {
	return &script{seed: seed, side: side, gram: gram}
}

// rounds is how many there are in a session.
func rounds(seed uint64) int {
	return 20 + int(mix(seed^0x726f756e6473)%200)
}

func (s *script) next() *round {
	r := &round{n: s.n, used: wordsLen}
	w := &s.words[s.n%depth]
	rng := rand.New(rand.NewPCG(s.seed+uint64(s.side), uint64(s.n)))
	for range 3 + rng.IntN(10) {
		o := op{kind: kind(rng.IntN(int(kSendInv))), quiet: rng.IntN(2) == 0}
		most := maxSend
		switch o.kind {
		case kUDSend:
			most = s.gram
		case kRead:
			most, o.quiet = fixedLen, false
		case kFetchAdd, kCmpSwap:
			most, o.quiet = 8, false
		}
		o.len = length(rng, most)
		if o.kind == kUCSend || o.kind == kUDSend {
			o.len = max(o.len, header)
		}
		if r.used+o.len+2*guard+8 > arenaLen-2*maxSend {
			break
		}
		switch o.kind {
		case kRead:
			o.from = rng.IntN(fixedLen - o.len + 1)
		case kFetchAdd, kCmpSwap:
			o.atomic(rng, w)
		case kWrite, kWriteImm:
			o.window = rng.IntN(3) == 0
		}
		if o.kind.unreliable() {
			o.quiet = false // the end waits for them
		}
		r.place(o)
	}
	r.place(op{kind: kSendInv, len: length(rng, maxSend), quiet: true})
	r.place(op{kind: kEnd, len: rng.IntN(9)})
	r.words = *w
	s.n++
	return r
}

// place gives an operation its octets of the arena.
func (r *round) place(o op) {
	o.off = r.used + guard
	r.used = (o.off + o.len + guard + 7) &^ 7
	r.ops = append(r.ops, o)
}

// atomic chooses an atomic, and does it.
func (o *op) atomic(rng *rand.Rand, w *[words]uint64) {
	o.len, o.word = 8, rng.IntN(words)
	o.finds = w[o.word]
	if o.kind == kFetchAdd {
		o.add = rng.Uint64()
		w[o.word] += o.add
		return
	}
	o.cmp, o.new = o.finds, rng.Uint64()
	if rng.IntN(3) == 0 {
		o.cmp++ // does not swap
		return
	}
	w[o.word] = o.new
}

// length draws one: a third are short, a third have each order of magnitude as often
// as any other, a third are evenly spread.
func length(rng *rand.Rand, most int) int {
	switch rng.IntN(3) {
	case 0:
		return rng.IntN(65)
	case 1:
		n := 1 << rng.IntN(15)
		return min(n+rng.IntN(n), most)
	}
	return rng.IntN(most + 1)
}

// stream is an endless row of octets.
type stream uint64

// fixed is what a side's fixed memory has in it.
func fixed(seed uint64, side int) stream { return stream(mix(seed ^ uint64(side+1)<<56)) }

// payload is what an operation carries.
func (s *script) payload(n, i int) stream {
	return stream(mix(mix(s.seed^uint64(s.side+3)<<56) + uint64(n)<<16 + uint64(i)))
}

// fill writes the octets from at on.
func (k stream) fill(b []byte, at int) {
	var w [8]byte
	for len(b) > 0 {
		v := mix(uint64(k) + uint64(at>>3)*0x9e3779b97f4a7c15)
		if at&7 == 0 && len(b) >= 8 {
			binary.LittleEndian.PutUint64(b, v)
			b, at = b[8:], at+8
			continue
		}
		binary.LittleEndian.PutUint64(w[:], v)
		n := copy(b, w[at&7:])
		b, at = b[n:], at+n
	}
}

// write puts what an operation carries into b: its payload, of unreliable messages
// behind a header.
func (s *script) write(b []byte, n, i int, k kind) {
	s.payload(n, i).fill(b, 0)
	if k == kUCSend || k == kUDSend {
		binary.LittleEndian.PutUint64(b, s.seed+uint64(s.side))
		binary.LittleEndian.PutUint32(b[8:], uint32(n))
		binary.LittleEndian.PutUint32(b[12:], uint32(i))
	}
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
