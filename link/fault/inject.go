package fault

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// Decision is what happens to one packet. The zero value lets it pass.
type Decision struct {
	Effects Effects // that hit; none: the packet passes untouched
	Rule    int     // the first rule that hit, when Effects is not empty
	Lost    bool    // the packet ends here
	Copies  int     // times it is sent besides the first
	Bit     int     // with Corrupt: the bit to flip, octet Bit/8 from the BTH's first, see Flip

	// Release is when a packet that is held leaves, on the clock of
	// Process's now; one that is not held has now.
	Release int64
	// Behind, when above 0, lets it leave earlier: as soon as so many later
	// packets of its direction have passed.
	Behind int
}

// Held reports whether the packet has to wait.
func (d *Decision) Held() bool {
	return d.Effects&(1<<Delay|1<<Reorder|1<<Rate) != 0 && !d.Lost
}

// Flip corrupts a packet as decided; without Corrupt it does nothing.
func (d *Decision) Flip(pkt []byte) {
	if d.Effects.Has(Corrupt) && d.Bit/8 < len(pkt) {
		pkt[d.Bit/8] ^= 1 << (d.Bit % 8)
	}
}

// RuleStats counts what one rule did.
type RuleStats struct {
	Rule    string
	Matched uint64 // packets that matched its direction, keys and time
	Hit     uint64 // packets that it had its effect on
	Lost    uint64 // packets that it lost
}

// Injector decides the fate of packets by rules. It is sans-IO: it has no
// clock, lock or buffer. One goroutine at a time may call Process; Stats may
// be called by anyone.
type Injector struct {
	rules []state
	start int64
	seen  [2]seenTable // by direction
	keyed bool         // a rule asks for seen
}

// state is a rule at work.
type state struct {
	Rule
	rng                [2]*rand.Rand // by direction
	matched, hit, lost atomic.Uint64
	free               [2]int64 // Rate: when the line has sent all it has, by direction
}

// NewInjector returns an injector. Cut counts from start, in nanoseconds on
// the clock that Process is given.
func NewInjector(seed uint64, start int64, rs Rules) *Injector {
	in := &Injector{rules: make([]state, len(rs)), start: start}
	for i := range rs {
		s := &in.rules[i]
		s.Rule = rs[i]
		for d := range s.rng {
			s.rng[d] = rand.New(rand.NewPCG(seed, uint64(i)<<1|uint64(d)))
		}
		in.keyed = in.keyed || s.Seen != 0
	}
	if in.keyed {
		in.seen[0].init()
		in.seen[1].init()
	}
	return in
}

// Process decides about a packet, BTH to ICRC, that goes dir (trace.Tx or
// trace.Rx) at time now in nanoseconds. pkt need only hold the BTH; n is the
// length of the whole. A packet too short for a BTH passes.
//
//gorxe:hot
func (in *Injector) Process(now int64, dir trace.Dir, pkt []byte, n int) Decision {
	d := Decision{Release: now}
	if len(in.rules) == 0 || len(pkt) < bth.BTHLen {
		return d
	}
	h := bth.BTH(pkt)
	way := 0
	if dir == trace.Rx {
		way = 1
	}
	times := uint32(0)
	if in.keyed {
		times = in.seen[way].count(h)
	}
	for i := range in.rules {
		s := &in.rules[i]
		if s.Dir != trace.Local && s.Dir != dir || !s.matches(h) || s.Seen != 0 && s.Seen != times ||
			s.Effect == Cut && !s.cuts(now-in.start) {
			continue
		}
		if !s.chosen(way) {
			continue
		}
		if d.Effects == 0 {
			d.Rule = i
		}
		d.Effects |= 1 << s.Effect
		s.apply(now, way, n, &d)
		if d.Lost {
			s.lost.Add(1)
			break
		}
	}
	return d
}

// Stats returns the counters of each rule, in order.
func (in *Injector) Stats() []RuleStats {
	out := make([]RuleStats, len(in.rules))
	for i := range in.rules {
		s := &in.rules[i]
		out[i] = RuleStats{Rule: s.Rule.String(), Matched: s.matched.Load(), Hit: s.hit.Load(), Lost: s.lost.Load()}
	}
	return out
}

func (s *state) matches(h bth.BTH) bool {
	if s.HasQPN && h.DestQP() != s.QPN {
		return false
	}
	if s.HasPSN {
		// Distances from the first, modulo 2^24: a range may wrap, and may
		// hold more than half of all PSNs.
		span := (s.PSN[1].Uint32() - s.PSN[0].Uint32()) & bth.PSNMask
		if (h.PSN().Uint32()-s.PSN[0].Uint32())&bth.PSNMask > span {
			return false
		}
	}
	o := h.Opcode()
	return s.Opcode == "" || s.opcodes[o/64]>>(o%64)&1 != 0
}

func (s *state) cuts(since int64) bool {
	return since >= int64(s.Span[0]) && since < int64(s.Span[1])
}

// chosen counts a match and decides whether it is hit.
func (s *state) chosen(way int) bool {
	m := s.matched.Add(1)
	switch {
	case s.First != 0 && m > uint64(s.First),
		s.Every != 0 && m%uint64(s.Every) != 0,
		s.Limit != 0 && s.hit.Load() >= uint64(s.Limit),
		s.Chance != always && s.rng[way].Uint64N(always) >= uint64(s.Chance):
		return false
	}
	s.hit.Add(1)
	return true
}

func (s *state) apply(now int64, way, n int, d *Decision) {
	switch s.Effect {
	case Drop, Cut:
		d.Lost = true
	case Dup:
		d.Copies++
	case Reorder:
		d.Behind = max(d.Behind, s.By)
		d.Release += int64(s.Within)
	case Delay:
		d.Release += int64(s.Span[0]) + int64(s.rng[way].Uint64N(uint64(s.Span[1]-s.Span[0])+1))
	case Corrupt:
		d.Bit = corruptBit(s.rng[way], n)
	case Rate:
		// The queue holds what the line will send until it is free.
		free := max(s.free[way], now)
		queued := (free - now) * s.Bits / (8 * 1e9) // below 2^60: the grammar bounds both
		if queued+int64(n) > int64(s.Buf) {
			d.Lost = true
			return
		}
		s.free[way] = free + int64(n)*8*1e9/s.Bits
		d.Release += s.free[way] - now
	}
}

// corruptBit draws a bit of a packet of n octets, but none of the BTH's octet
// 4, which the ICRC does not cover.
func corruptBit(rng *rand.Rand, n int) int {
	const masked = 4
	bit := int(rng.Uint64N(uint64(max(n, bth.BTHLen)-1) * 8))
	if bit >= masked*8 {
		bit += 8
	}
	return bit
}

// seenTable counts passages by packet. It has two generations of bounded
// size, so that it forgets the oldest and needs no memory later on.
type seenTable struct{ young, old map[uint64]uint32 }

const seenKept = 32768 // packets in a generation

func (t *seenTable) init() {
	t.young, t.old = make(map[uint64]uint32, seenKept), make(map[uint64]uint32, seenKept)
}

// count returns how often the packet has passed, this time included.
func (t *seenTable) count(h bth.BTH) uint32 {
	key := uint64(h.DestQP())<<24 | uint64(h.PSN().Uint32())
	if h.Opcode().Info().Has(bth.Response) {
		key |= 1 << 48
	}
	n, ok := t.young[key]
	if !ok {
		n = t.old[key]
		if len(t.young) == seenKept {
			t.young, t.old = t.old, t.young
			clear(t.young)
		}
	}
	n++
	t.young[key] = n
	return n
}
