package nic

import (
	"slices"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// receive takes what has arrived, up to its budget, and reports whether there
// may be more.
func (s *shard) receive(now int64, by stepper) (more bool) {
	rounds := rxRounds
	if s.shared() {
		rounds = 1
	}
	for range rounds {
		ds := s.ds[:]
		if rounds == 1 && s.big {
			ds = ds[:1]
		}
		n, err := s.link.Recv(ds)
		packets, octets := 0, 0
		for i := range n {
			packets += ds[i].Segments()
			octets += len(ds[i].Payload)
			s.datagram(now, i, by)
		}
		s.big = octets > quantum/4
		s.stats.portRcvBytes += uint64(octets)
		s.stats.portRcvPkts += uint64(packets)
		if s.stats.linkState(err) {
			s.complain("receive", err)
		}
		if err != nil {
			return false
		}
		if n < len(ds) && packets < rxMany {
			return false
		}
	}
	return true
}

// judge is a link that wants to know what became of the packets it gave:
// segment seg of datagram i of the last Recv.
type judge interface {
	Verdict(i, seg int, r trace.Reason)
}

// datagram proves each segment of datagram n of the batch and hands it to its
// queue pair.
//
//gorxe:hot
func (s *shard) datagram(now int64, n int, by stepper) {
	d := &s.ds[n]
	f := from{src: d.Src, dst: d.Dst, tos: d.TOS, ttl: d.TTL, id: d.ID, flags: d.Flags, label: d.FlowLabel}
	learned := s.verify.Learned
	s.stats.rxDatagrams++
	for i := range d.Segments() {
		f.id = d.ID + uint16(i)
		r := s.verify.Examine(now, d, i)
		if r != trace.None {
			if r == trace.DropICRCWindow && s.expects(&f, d.Segment(i)) {
				s.verify.Confirm()
			}
			s.drop(nil, r, nil)
			if r == trace.DropICRC && s.counts[r] == 1 {
				s.n.cfg.Logger.Warn(r.Explain(), "device", s.n.cfg.Name, "shard", s.index, "from", d.Src, "counter", r.String())
			}
		} else if r = s.packet(now, &f, d.Segment(i), by); r == trace.None || r == trace.NoteCNP || (r == trace.DropCNP || r == trace.DropStray) && s.expects(&f, d.Segment(i)) {
			s.verify.Confirm()
		}
		if s.judge != nil {
			s.judge.Verdict(n, i, r)
		}
	}
	if s.verify.Learned != learned {
		s.counts[trace.NoteIDLearned] += s.verify.Learned - learned
		s.rec.Record(trace.Event{Time: now, Reason: trace.NoteIDLearned, Dir: trace.Rx})
	}
}

// expects reports whether a queue pair vouches for a packet: of this shard, one
// that would take it, so that it comes from its peer's address or knows its
// Q_Key; of another, one whose number it knows, and the Q_Key of a datagram's.
func (s *shard) expects(f *from, b []byte) bool {
	p := &s.pkt
	if bth.Parse(b, p) != trace.None {
		return false
	}
	if p.DestQP == bth.QPNMulticast {
		return slices.ContainsFunc(s.n.members(f.dst), func(q *qp) bool { return q.knownBy(p) })
	}
	q := s.n.byQPN(p.DestQP)
	switch {
	case q == nil, q.class == bth.UD && p.Info().Class == bth.ClassCNP: // it tells no Q_Key
		return false
	case q.s == s:
		r := q.admits(f, p)
		return r == trace.None
	}
	return q.knownBy(p)
}

// knownBy reports whether the sender of a packet knows what it must know of a
// queue pair, whichever shard that is of.
func (q *qp) knownBy(p *bth.Packet) bool {
	class := p.Info().Class
	if q.class == bth.UD {
		return class == bth.UD && p.QKey == q.qkey.Load()
	}
	return class == q.class || class == bth.ClassCNP
}

// letters takes what other shards, and queue pairs of this device, sent here.
func (s *shard) letters(now int64, by stepper) {
	if !s.inbox.filled.Load() {
		return
	}
	b, failed := s.inbox.take()
	for i := range b.parcels {
		p := &b.parcels[i]
		s.packet(now, &p.from, b.buf[p.off:p.off+p.n], by)
	}
	for _, c := range failed {
		s.overflow(c)
	}
}

// packet demultiplexes a packet with a valid ICRC and returns why it went no
// further than here, or trace.None. IBA 9.6.1: the checks of the base transport
// header, in its order.
//
//gorxe:hot
func (s *shard) packet(now int64, f *from, b []byte, by stepper) trace.Reason {
	p := &s.pkt
	if r := bth.Parse(b, p); r != trace.None {
		return s.drop(nil, r, nil)
	}
	p.ECN = f.tos & 3
	if p.DestQP == bth.QPNMulticast || f.dst.IsMulticast() {
		return s.multicast(now, f, p, b)
	}
	q := s.last
	if q == nil || q.qpn != p.DestQP {
		if q = s.n.byQPN(p.DestQP); q == nil {
			return s.drop(nil, unknown(p.DestQP), p)
		}
		if q.s != s {
			return s.stray(q.s, f, p, b)
		}
		s.last = q
	}
	r := s.deliver(now, q, f, p, b)
	if r == trace.None && p.Info().Has(bth.Request) && p.Info().Has(bth.Last|bth.Only) {
		q.took(now, by)
	}
	return r
}

// deliver hands a packet to a queue pair of this shard.
//
//gorxe:hot
func (s *shard) deliver(now int64, q *qp, f *from, p *bth.Packet, b []byte) trace.Reason {
	if r := q.admits(f, p); r != trace.None {
		return s.drop(q, r, p)
	}
	if p.Opcode == bth.CNP {
		return s.react(now, q, p)
	}
	if p.ECN == ecnCE {
		s.marked(now, q, p)
	}
	if q.class == bth.UD {
		d := wire.Datagram{Src: f.src, Dst: f.dst, TOS: f.tos, TTL: f.ttl, ID: f.id, Flags: f.flags, FlowLabel: f.label}
		d.PutGRH(&s.grh, len(b))
		p.GRH = s.grh[:]
	}
	s.stats.rcvdPkts++
	s.stats.rcvdBytes += uint64(len(b))
	q.eng.HandlePacket(now, p)
	s.touch(q)
	return trace.None
}

// unknown is the reason for a packet to a number that no queue pair has.
func unknown(n bth.QPN) trace.Reason {
	if n == bth.QPNGSI {
		return trace.DropUnsupported
	}
	return trace.DropQPN
}

// stray hands a packet over to the shard of its queue pair.
func (s *shard) stray(to *shard, f *from, p *bth.Packet, b []byte) trace.Reason {
	if !to.inbox.put(*f, b) {
		return s.drop(nil, trace.DropOverflow, p)
	}
	s.counts[trace.DropStray]++
	to.kick()
	return trace.DropStray
}

// admits checks what does not depend on the state of a conversation: class,
// state, addresses, partition and queue key. C9-8, C9-9 and clause 9.6.1.1.
func (q *qp) admits(f *from, p *bth.Packet) trace.Reason {
	class := p.Info().Class
	if class != q.class && class != bth.ClassCNP {
		return trace.DropClass
	}
	switch q.eng.State() {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
	default:
		return trace.DropState
	}
	switch w := q.eng.Flow(); {
	case w != nil && (f.src != w.Dst || f.dst != w.Src):
		return trace.DropAddress
	case q.class == bth.UD && !f.dst.IsMulticast() && !q.s.n.isOwn(f.dst): // a broadcast, say
		return trace.DropAddress
	}
	if !pkeysMatch(p.PKey, verbs.DefaultPKey) {
		return trace.DropPKey
	}
	if class == bth.UD && p.QKey != q.qkey.Load() {
		return trace.DropQKey
	}
	return trace.None
}

// pkeysMatch compares partition keys: the low 15 bits are equal and not 0, and
// one of the two is a full member. IBA 10.9.1.
func pkeysMatch(a, b uint16) bool {
	return a&0x7fff == b&0x7fff && a&0x7fff != 0 && (a|b)&0x8000 != 0
}
