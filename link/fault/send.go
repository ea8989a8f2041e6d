package fault

import (
	"math"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// outBursts is how many bursts are built before they are sent.
const outBursts = 8

// sender is the sending half of a Link. A burst that no rule hits goes on as
// it is. From any other, what is left is copied into bursts of its own, sealed
// anew: identifications restart in each burst.
//
// Each packet is judged once. So what was judged and the inner link does not
// take is held, due at once, and Send takes nothing more before it is gone.
type sender struct {
	l     *Link
	hold  *Hold[txMeta]
	dec   []Decision // of the burst at hand
	out   []*wire.Burst
	built int // of pool, used by out
	pool  [outBursts]built
	stuck bool // the inner link had no room for what is due
	buf   []byte
	notes notes
}

// built is a burst of ours.
type built struct {
	*wire.Burst
	flow wire.Flow
	bit  Decision // Corrupt: a burst of one packet to flip a bit of
}

// txMeta is what a held packet needs to be sent.
type txMeta struct {
	flow   wire.Flow
	kind   wire.BurstKind
	qpn    bth.QPN
	psn    bth.PSN
	opcode bth.Opcode
	fate   Decision
}

func (s *sender) init(l *Link, held int) {
	s.l, s.hold = l, NewHold[txMeta](held)
	s.dec = make([]Decision, 0, wire.MaxSegments)
	for i := range s.pool {
		s.pool[i].Burst = wire.NewBurst()
	}
}

// next returns when a held packet is due. While the inner link is full it is
// that link's Wait that ends when there is room.
func (s *sender) next() int64 {
	if s.stuck {
		return Never
	}
	return s.hold.Next()
}

// send judges and sends bursts, and returns how many segments it judged: those
// that it lost or holds are taken too.
func (s *sender) send(now int64, bs []*wire.Burst) (int, error) {
	s.notes.reset()
	if err := s.release(now); err != nil || s.stuck {
		return 0, err
	}
	n := 0
	for i, b := range bs {
		if b.Len() == 0 {
			continue
		}
		if s.stuck {
			return n, nil // the rest was not judged, and is offered again
		}
		if s.judge(now, b) && !s.hold.waitsWithin(b.Len()) {
			s.out = append(s.out, b)
			for range b.Segs {
				s.hold.Passed()
			}
		} else {
			for k := range s.dec {
				s.notes.add(i, k, s.dec[k].Effects)
			}
			if err := s.pick(now, b); err != nil {
				return n, err
			}
		}
		n += b.Len()
		if s.hold.Next() <= now { // some have been overtaken
			if err := s.drain(now); err != nil {
				return n, err
			}
		}
	}
	return n, s.flush()
}

// judge decides about each segment, and reports whether all pass.
func (s *sender) judge(now int64, b *wire.Burst) (clean bool) {
	clean = true
	s.dec = s.dec[:0]
	for i := range b.Segs {
		d := s.l.inj.Process(now, trace.Tx, b.Header(i), b.Segs[i].Len)
		clean = clean && d.Effects == 0
		s.dec = append(s.dec, d)
	}
	return clean
}

// pick sends what the decisions leave of a burst.
func (s *sender) pick(now int64, b *wire.Burst) error {
	for i := range b.Segs {
		d := &s.dec[i]
		if d.Lost {
			continue
		}
		seg := &b.Segs[i]
		m := txMeta{flow: *b.Flow, kind: b.Kind, qpn: b.QPN, psn: seg.PSN, opcode: seg.Opcode, fate: *d}
		if d.Effects.Has(CE) {
			m.flow.TOS |= wire.ECNCE
		}
		s.buf = b.AppendSegment(s.buf[:0], i)
		for range 1 + d.Copies {
			if d.Held() {
				s.keep(&m, s.buf, d)
			} else if err := s.emit(&m, s.buf); err != nil {
				return err
			}
		}
		if !d.Held() {
			s.hold.Passed()
			if err := s.drain(now); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep holds a copy of a packet.
func (s *sender) keep(m *txMeta, pkt []byte, d *Decision) {
	h := s.hold.Put(d)
	if h == nil {
		s.l.full.Add(1)
		return
	}
	h.Meta, h.Pkt = *m, append(h.Pkt, pkt...)
}

// release sends what is due, and nothing while the inner link stays full.
func (s *sender) release(now int64) error {
	s.stuck = false
	if s.hold.Next() > now {
		return nil
	}
	if err := s.drain(now); err != nil {
		return err
	}
	return s.flush()
}

// drain moves what is due into bursts.
func (s *sender) drain(now int64) error {
	for !s.stuck {
		h := s.hold.Pop(now)
		if h == nil {
			return nil
		}
		err := s.emit(&h.Meta, h.Pkt)
		s.hold.Free(h)
		if err != nil {
			return err
		}
	}
	return nil
}

// emit appends a packet to the last burst that is being built, or to a new
// one.
func (s *sender) emit(m *txMeta, pkt []byte) error {
	if s.stuck {
		s.keep(m, pkt, &Decision{Release: math.MinInt64})
		return nil
	}
	corrupt := m.fate.Effects.Has(Corrupt)
	var b *built
	if s.built > 0 && !corrupt {
		if b = &s.pool[s.built-1]; s.out[len(s.out)-1] != b.Burst || !b.takes(m, len(pkt)) {
			b = nil
		}
	}
	if b == nil {
		if s.built == len(s.pool) {
			if err := s.flush(); err != nil {
				return err
			}
			if s.stuck {
				return s.emit(m, pkt)
			}
		}
		b = &s.pool[s.built]
		s.built++
		b.flow, b.bit = m.flow, Decision{}
		if corrupt {
			b.bit = m.fate
		}
		b.Reset(&b.flow, s.l.info.MaxSegments, s.l.info.MaxBytes)
		b.Kind, b.QPN = m.kind, m.qpn
		s.out = append(s.out, b.Burst)
	}
	body := pkt[:len(pkt)-bth.ICRCLen]
	copy(b.Begin(m.psn, m.opcode, len(body), 0), body)
	b.End()
	return nil
}

// takes reports whether a packet can follow in the burst.
func (b *built) takes(m *txMeta, n int) bool {
	f, g := &b.flow, &m.flow
	return !b.bit.Effects.Has(Corrupt) && b.Fits(n, 0) && b.Kind == m.kind && b.QPN == m.qpn &&
		f.Dst == g.Dst && f.Src == g.Src && f.SrcPort == g.SrcPort && f.TOS == g.TOS && f.TTL == g.TTL && f.Scope == g.Scope && f.Priority == g.Priority
}

// flush sends the bursts, and holds what the inner link does not take.
func (s *sender) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	for i := range s.pool[:s.built] {
		b := &s.pool[i]
		b.Seal(s.l.info.IDs)
		b.bit.Flip(b.Vec()[0]) // a burst of one snapshot is one piece
	}
	n, err := s.l.inner.Send(s.out)
	if err == nil {
		s.keepRest(n)
	}
	clear(s.out) // the callers' bursts are theirs again
	s.out, s.built = s.out[:0], 0
	return err
}

// keepRest holds what follows the first n segments of out.
func (s *sender) keepRest(n int) {
	for _, b := range s.out {
		if n >= b.Len() {
			n -= b.Len()
			continue
		}
		fate := Decision{}
		for i := range s.pool[:s.built] {
			if s.pool[i].Burst == b {
				fate = s.pool[i].bit
			}
		}
		for i := n; i < b.Len(); i++ {
			seg := &b.Segs[i]
			m := txMeta{flow: *b.Flow, kind: b.Kind, qpn: b.QPN, psn: seg.PSN, opcode: seg.Opcode, fate: fate}
			s.buf = b.AppendSegment(s.buf[:0], i)
			fate.Flip(s.buf) // back: it will be flipped again
			s.keep(&m, s.buf, &Decision{Release: math.MinInt64})
		}
		n = 0
		s.stuck = true
	}
}
