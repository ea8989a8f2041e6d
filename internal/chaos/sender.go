package main

import (
	"fmt"

	"github.com/gorxe/gorxe/verbs"
)

// sending is a round of ours under way.
type sending struct {
	*round
	leaving int // of UC and UD, posted and not gone
	end     bool
}

// sender is what a session knows of the rounds it sends.
type sender struct {
	out     *script
	sent    map[int]*sending
	begun   int           // rounds
	ended   int           // rounds whose end has completed
	allowed int           // rounds that the peer has granted
	keys    [depth]uint32 // of the windows that those may use
}

// sendMore begins the rounds that may begin, each behind the end of the one before.
func (s *session) sendMore() error {
	for s.begun < s.allowed && s.begun < s.ended+depth {
		if r := s.sent[s.begun-1]; r != nil && !r.end {
			break
		}
		if err := s.begin(); err != nil {
			return fmt.Errorf("round %d: %w", s.begun, err)
		}
		s.begun++
	}
	return nil
}

// begin posts a round but its end.
func (s *session) begin() error {
	r := &sending{round: s.out.next()}
	s.sent[r.n] = r
	base := r.n % depth * arenaLen
	arena := s.mem.src.Bytes()[base : base+arenaLen]
	wipe(arena[:r.used])
	var wrs []verbs.SendWR
	for i := range r.ops {
		o := &r.ops[i]
		wr := s.request(r, i, base)
		switch {
		case o.kind == kUCSend, o.kind == kUCWrite, o.kind == kUCWriteImm:
			wr.ID = id(cUC, r.n, i)
			r.leaving++
			if err := s.post(s.uc, wr); err != nil {
				return err
			}
		case o.kind == kUDSend:
			wr.ID = id(cUD, r.n, i)
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = s.ah.Handle(), s.far.UD.QPN, qkey
			r.leaving++
			if err := s.post(s.ud, wr); err != nil {
				return err
			}
		case o.kind != kEnd:
			wrs = append(wrs, wr)
		}
	}
	if err := s.post(s.rc, wrs...); err != nil {
		return err
	}
	return s.finish(r)
}

// request makes one of an operation, and puts what it carries into the arena.
func (s *session) request(r *sending, i, base int) verbs.SendWR {
	o := &r.ops[i]
	mem := s.mem.src.Bytes()[base+o.off:][:o.len]
	if o.kind != kRead && o.kind != kFetchAdd && o.kind != kCmpSwap {
		s.out.write(mem, r.n, i, o.kind)
	}
	wr := verbs.SendWR{ID: id(cRC, r.n, i), Flags: verbs.SendSignaled}
	if o.len > 0 {
		wr.SGL = []verbs.SGE{s.mem.src.SGE(base+o.off, o.len)}
	}
	if o.quiet {
		wr.Flags = 0
	}
	imm := immFlag | uint32(r.n)<<8 | uint32(i)
	switch o.kind {
	case kSend, kUCSend, kUDSend:
		wr.Opcode = verbs.WRSend
	case kSendImm, kEnd:
		wr.Opcode, wr.Imm = verbs.WRSendImm, imm
	case kSendInv:
		wr.Opcode, wr.Imm = verbs.WRSendInv, s.keys[r.n%depth]
	case kWrite, kUCWrite:
		wr.Opcode = verbs.WRWrite
	case kWriteImm, kUCWriteImm:
		wr.Opcode, wr.Imm = verbs.WRWriteImm, imm
	case kRead:
		wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRead, s.far.Fixed+uint64(o.from), s.far.FixedKey
	case kFetchAdd:
		wr.Opcode, wr.CompareAdd = verbs.WRFetchAdd, o.add
	case kCmpSwap:
		wr.Opcode, wr.CompareAdd, wr.Swap = verbs.WRCmpSwap, o.cmp, o.new
	}
	switch {
	case o.kind.write():
		wr.RemoteAddr, wr.RKey = s.far.Dst+uint64(base+o.off), s.far.DstKey
		if o.window {
			wr.RKey = s.keys[r.n%depth]
		}
	case o.kind == kFetchAdd || o.kind == kCmpSwap:
		wr.RemoteAddr, wr.RKey = s.far.Dst+uint64(base+8*o.word), s.far.DstKey
	}
	return wr
}

// left takes note that an unreliable message has gone.
func (s *session) left(n int) error {
	r := s.sent[n]
	if r == nil || r.leaving == 0 {
		return fmt.Errorf("round %d: a message has gone that was not sent", n)
	}
	r.leaving--
	return s.finish(r)
}

// finish posts the end of a round when all its unreliable messages have gone.
func (s *session) finish(r *sending) error {
	if r.leaving > 0 || r.end {
		return nil
	}
	r.end = true
	return s.post(s.rc, s.request(r, len(r.ops)-1, r.n%depth*arenaLen))
}

// completed checks what a request of a round brought.
func (s *session) completed(n, i int) error {
	r := s.sent[n]
	if r == nil || i >= len(r.ops) {
		return fmt.Errorf("round %d, operation %d completes, which was not posted", n, i)
	}
	o := &r.ops[i]
	got := s.mem.src.Bytes()[n%depth*arenaLen+o.off:]
	switch o.kind {
	case kRead:
		want := make([]byte, o.len)
		fixed(s.seed, 1-s.side).fill(want, o.from)
		if err := s.same(got[:o.len], want, poison); err != nil {
			return fmt.Errorf("round %d, READ of %d octets at %d: %w", n, o.len, o.from, err)
		}
		s.tally.Ops[o.kind.String()]++
	case kFetchAdd, kCmpSwap:
		if v := le64(got); v != o.finds {
			return fmt.Errorf("round %d, %v of word %d finds %#x, not %#x", n, o.kind, o.word, v, o.finds)
		}
		s.tally.Octets += 8
		s.tally.Ops[o.kind.String()]++
	case kEnd:
		delete(s.sent, n)
		s.ended++
	}
	return nil
}
