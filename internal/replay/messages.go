package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// message is one request message as the recorded packets show it. Packets that
// were sent again count once.
type message struct {
	at     int // PSN of its first packet, counted from the direction's base
	pkts   int // PSNs it takes
	opcode bth.Opcode
	length int
	va     uint64
	rkey   uint32
	imm    *uint32
	se     bool
	swap   uint64
	comp   uint64
	data   []byte // SEND and WRITE: as recorded, 0 where no packet was

	takesRecv bool
	trouble   int  // octets before a local error met it (NAK 0x63), or -1
	short     bool // its receive request was (NAK 0x61)
	refused   bool // its memory was (NAK 0x62)
}

func (m *message) op() bth.Op { return m.opcode.Info().Op }

// stream is the requests of one direction.
type stream struct {
	base     bth.PSN
	known    bool // base is the first PSN of the connection
	messages []message
	orphans  map[int]bool // packets of a message whose beginning is not recorded
}

func (s *stream) pos(p bth.PSN) int { return p.Diff(s.base) }

// index returns the message that owns a position, or -1.
func (s *stream) index(pos int) int {
	i, ok := slices.BinarySearchFunc(s.messages, pos, func(m message, pos int) int { return cmp.Compare(m.at, pos) })
	if !ok {
		i--
	}
	if i < 0 || pos >= s.messages[i].at+s.messages[i].pkts {
		return -1
	}
	return i
}

// completed returns how many messages end before a position, where a READ or
// atomic counts when it is accepted.
func (s *stream) completed(pos int) int {
	n, _ := slices.BinarySearchFunc(s.messages, pos, func(m message, pos int) int {
		if m.at+m.pkts <= pos {
			return -1
		}
		return 1
	})
	return n
}

// rebase counts from the PSN at which the connection is known to begin.
func (s *stream) rebase(psn uint32) {
	d := s.base.Diff(bth.MakePSN(psn))
	if len(s.messages) == 0 {
		s.base, d = bth.MakePSN(psn), 0
	}
	if d < 0 || d > 1<<20 {
		return // a QPN used again; the packets know better
	}
	s.base, s.known = s.base.Add(-d), true
	for i := range s.messages {
		s.messages[i].at += d
	}
	orphans := map[int]bool{}
	for o := range s.orphans {
		orphans[o+d] = true
	}
	s.orphans = orphans
}

func packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu) }

// messages finds the request messages of one side.
func (p *plan) messages(side Side) (stream, error) {
	s := stream{orphans: map[int]bool{}}
	mtu := int(p.attr.PathMTU)
	seen := map[int]*bth.Packet{}
	have := false
	for i := range p.conv.events {
		e := &p.conv.events[i]
		if e.from != side || !e.pkt.Info().Has(bth.Request) {
			continue
		}
		if !have {
			s.base, have = e.pkt.PSN, true
		}
		if pos := s.pos(e.pkt.PSN); seen[pos] == nil {
			seen[pos] = &e.pkt
		}
	}
	at := make([]int, 0, len(seen))
	for pos := range seen {
		at = append(at, pos)
	}
	slices.Sort(at)
	end, memory := -1<<30, 0 // after the last message; of all
	for i, pos := range at {
		q := seen[pos]
		if q.Info().Has(bth.Starts) || q.Info().Ext&(bth.ExtRETH|bth.ExtAtomicETH) != 0 {
			if pos < end {
				continue // a READ asked for again from its middle
			}
			m := message{at: pos, pkts: 1, opcode: q.Opcode, trouble: -1}
			m.begin(q, mtu)
			if q.Opcode == bth.RCSendFirst {
				m.measure(seen, at[i:], mtu)
			}
			if memory += m.length; memory > maxMemory {
				return s, fmt.Errorf("the requests of side %v are about more than %d MiB of memory: cut the capture into pieces", side, maxMemory>>20)
			}
			if q.Info().Has(bth.HasPayload) {
				m.data = make([]byte, m.length)
			}
			s.messages = append(s.messages, m)
			end = pos + m.pkts
		} else if pos >= end {
			s.orphans[pos] = true
			continue
		}
		m := &s.messages[len(s.messages)-1]
		if m.data != nil {
			copy(m.data[min(len(m.data), (pos-m.at)*mtu):], q.Payload)
		}
		if q.Info().Has(bth.Ends) {
			m.finish(q)
		}
	}
	return s, nil
}

// begin takes what a message's first packet says.
func (m *message) begin(q *bth.Packet, mtu int) {
	m.length = len(q.Payload)
	switch info := q.Info(); {
	case info.Ext&bth.ExtRETH != 0:
		m.va, m.rkey, m.length = q.VA, q.RKey, int(q.DMALen)
		m.pkts = packets(m.length, mtu)
	case info.Ext&bth.ExtAtomicETH != 0:
		m.va, m.rkey, m.length, m.swap, m.comp = q.VA, q.RKey, 8, q.SwapAdd, q.Compare
	}
}

// measure finds the length of a SEND of several packets: up to its last, or,
// when that was never recorded, to the next message or beyond the capture.
func (m *message) measure(seen map[int]*bth.Packet, at []int, mtu int) {
	m.pkts = at[len(at)-1] - m.at + 2
	m.length = (m.pkts-1)*mtu + 1
	for _, pos := range at[1:] {
		q := seen[pos]
		if q.Info().Has(bth.Last) {
			m.pkts = pos - m.at + 1
			m.length = (m.pkts-1)*mtu + len(q.Payload)
			return
		}
		if !q.Info().Has(bth.Middle) {
			m.pkts = pos - m.at
			m.length = m.pkts * mtu
			return
		}
	}
}

// finish takes what a message's last packet says.
func (m *message) finish(q *bth.Packet) {
	m.se = q.SE
	info := q.Info()
	m.takesRecv = info.Has(bth.TakesRecv)
	if info.Has(bth.HasImm) {
		imm := q.Imm
		m.imm = &imm
	}
}

// workRequest is what makes the engine send a message. Data lie at off of the
// local region.
func (m *message) workRequest(id uint64, off uint64, lkey uint32) verbs.SendWR {
	w := verbs.SendWR{ID: id, Flags: verbs.SendSignaled, RemoteAddr: m.va, RKey: m.rkey}
	if m.length > 0 {
		w.SGL = []verbs.SGE{{Addr: off, Length: uint32(m.length), LKey: lkey}}
	}
	if m.se {
		w.Flags |= verbs.SendSolicited
	}
	switch m.op() {
	case bth.OpSend:
		w.Opcode = verbs.WRSend
	case bth.OpWrite:
		w.Opcode = verbs.WRWrite
	case bth.OpReadReq:
		w.Opcode = verbs.WRRead
	case bth.OpFetchAdd:
		w.Opcode, w.CompareAdd = verbs.WRFetchAdd, m.swap
	case bth.OpCmpSwap:
		w.Opcode, w.CompareAdd, w.Swap = verbs.WRCmpSwap, m.comp, m.swap
	}
	if m.imm != nil {
		w.Imm = *m.imm
		if m.op() == bth.OpSend {
			w.Opcode = verbs.WRSendImm
		} else {
			w.Opcode = verbs.WRWriteImm
		}
	}
	return w
}
