package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gorxe/gorxe/verbs"
)

// arrival is a round of the peer's.
type arrival struct {
	*round
	next int          // of its operations, the next that may take a receive request of rc
	seen map[int]bool // unreliable ones that arrived
	key  uint32       // of its window
}

// receiver is what a session knows of the rounds it receives.
type receiver struct {
	in      *script
	got     map[int]*arrival // that are, or were not long ago
	made    int              // rounds of in
	checked int              // rounds that were right
	given   int              // grants
	lastUC  int              // the last message, as round and number
	lastUD  int
}

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// arrival returns a round of the peer's.
func (s *session) arrival(n int) *arrival {
	for s.made <= n && s.made < s.rounds {
		r := s.in.next()
		s.got[r.n] = &arrival{round: r, seen: map[int]bool{}}
		s.made++
	}
	return s.got[n]
}

// unanswered is how many requests may be so before there are no more grants: a request
// that waits for an answer which was lost does not keep grants behind it from the peer,
// which goes on, until our queue is full.
const unanswered = 64

// grantMore gives the grants that may be given.
func (s *session) grantMore() error {
	for s.given < s.rounds && s.given < s.checked+depth && len(s.expect) < unanswered {
		if err := s.grant(s.given); err != nil {
			return err
		}
		s.given++
	}
	return nil
}

// grant binds the window of a round and tells the peer that it may begin.
func (s *session) grant(n int) error {
	slot := n % depth
	w, m := s.windows[slot], s.mem
	b := w.Bind(m.dst, m.dst.Addr()+uint64(slot*arenaLen), arenaLen, verbs.AccessRemoteWrite)
	bind := verbs.SendWR{ID: id(cBind, n, 0), Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, Bind: b}
	var text [grantLen]byte
	binary.LittleEndian.PutUint32(text[:], b.NewKey)
	binary.LittleEndian.PutUint32(text[4:], uint32(n))
	tell := verbs.SendWR{
		ID: id(cGrant, n, 0), Opcode: verbs.WRWriteImm, Flags: verbs.SendSignaled | verbs.SendInline, Inline: text[:],
		RemoteAddr: s.far.Grants + uint64(slot*grantLen), RKey: s.far.GrantKey, Imm: grantFlag | uint32(n),
	}
	if err := s.post(s.rc, bind, tell); err != nil {
		return fmt.Errorf("grant of round %d: %w", n, err)
	}
	w.SetRKey(b.NewKey)
	s.arrival(n).key = b.NewKey
	return nil
}

// granted takes a grant.
func (s *session) granted(n int) error {
	b := s.mem.grants.Bytes()[n%depth*grantLen:]
	if n != s.allowed || int(binary.LittleEndian.Uint32(b[4:])) != n {
		return fmt.Errorf("a grant of round %d, with %x in memory; %d is next", n, b[:grantLen], s.allowed)
	}
	s.tally.Octets += grantLen
	s.keys[n%depth] = binary.LittleEndian.Uint32(b)
	s.allowed++
	return nil
}

// repost posts receive buffer i to its queue.
func (s *session) repost(i int) (err error) {
	wr := []verbs.RecvWR{{ID: id(cRecv, 0, i), SGL: []verbs.SGE{s.mem.recv.SGE(i*recvLen, recvLen)}}}
	switch {
	case i >= rcRecvs && i < rcRecvs+ucRecvs:
		_, err = s.uc.PostRecv(wr)
	case s.srq != nil:
		_, err = s.srq.PostRecv(wr)
	case i < rcRecvs:
		_, err = s.rc.PostRecv(wr)
	default:
		_, err = s.ud.PostRecv(wr)
	}
	return err
}

// received takes a completion of a receive request.
func (s *session) received(wc *verbs.WC, i int) error {
	if i >= allRecvs {
		return fmt.Errorf("receive request %d", i)
	}
	buf := s.mem.recv.Bytes()[i*recvLen:][:recvLen]
	var err error
	used := min(int(wc.ByteLen), maxSend) // else it is found wrong
	switch wc.QPN {
	case s.rc.QPN():
		if wc.Opcode == verbs.WCRecvWriteImm {
			used = 0
		}
		err = s.receivedRC(wc, buf)
	case s.uc.QPN():
		if wc.Opcode == verbs.WCRecvWriteImm {
			used = 0
		}
		err = s.receivedUC(wc, buf)
	case s.ud.QPN():
		err = s.receivedUD(wc, buf)
	default:
		err = fmt.Errorf("a receive of queue pair %#x", wc.QPN)
	}
	if err != nil {
		return err
	}
	if wc.QPN == s.uc.QPN() {
		used = len(buf) // what was not whole may have begun here before
	} else if err := s.same(buf[used:][:guard], nil, poison); err != nil {
		return fmt.Errorf("behind a message of %d octets: %w", used, err)
	}
	wipe(buf[:used])
	return s.repost(i)
}

// receivedRC checks a message over RC: it must be the next one of the script.
func (s *session) receivedRC(wc *verbs.WC, buf []byte) error {
	if wc.Flags&verbs.WCWithImm != 0 && wc.Imm&grantFlag == grantFlag {
		return s.granted(int(wc.Imm &^ grantFlag))
	}
	n := s.checked
	r := s.arrival(n)
	if r == nil {
		return fmt.Errorf("a message after the last round: %+v", *wc)
	}
	for r.next < len(r.ops) && !r.ops[r.next].kind.receives() {
		r.next++
	}
	i := r.next
	o := &r.ops[i] // the last one receives
	r.next++
	bad := func(err error) error {
		return fmt.Errorf("round %d, operation %d, %v of %d octets, completes as %+v: %w", n, i, o.kind, o.len, *wc, err)
	}
	opcode, flags, imm := verbs.WCRecv, verbs.WCFlags(0), uint32(0)
	switch o.kind {
	case kSendImm, kEnd:
		flags, imm = verbs.WCWithImm, immFlag|uint32(n)<<8|uint32(i)
	case kWriteImm:
		opcode, flags, imm = verbs.WCRecvWriteImm, verbs.WCWithImm, immFlag|uint32(n)<<8|uint32(i)
	case kSendInv:
		flags, imm = verbs.WCWithInv, r.key
	}
	if wc.Opcode != opcode || wc.Flags&(verbs.WCWithImm|verbs.WCWithInv) != flags || flags != 0 && wc.Imm != imm || int(wc.ByteLen) != o.len {
		return bad(fmt.Errorf("not as opcode %v, flags %v, %#x", opcode, flags, imm))
	}
	if opcode == verbs.WCRecv {
		if err := s.same(buf[:o.len], s.payload(n, i, o), poison); err != nil {
			return bad(err)
		}
	}
	if o.kind == kEnd {
		if err := s.checkRound(r); err != nil {
			return fmt.Errorf("round %d: %w", n, err)
		}
		return nil
	}
	if o.kind != kWriteImm { // counted with its data
		s.tally.Ops[o.kind.String()]++
	}
	return nil
}

// payload is what an operation of the peer's carries.
func (s *session) payload(n, i int, o *op) []byte {
	b := make([]byte, o.len)
	s.in.write(b, n, i, o.kind)
	return b
}

// receivedUC checks a message over UC, receivedUD one over UD: what arrives is whole,
// and in order.
func (s *session) receivedUC(wc *verbs.WC, buf []byte) error {
	if wc.Opcode == verbs.WCRecvWriteImm {
		n, i := int(wc.Imm&^immFlag)>>8, int(wc.Imm&0xff)
		r, o, err := s.unreliable(n, i, kUCWriteImm, &s.lastUC)
		if err != nil || int(wc.ByteLen) != o.len {
			return fmt.Errorf("a WRITE over UC completes as %+v: %w", *wc, err)
		}
		if n >= s.checked {
			arena := s.mem.dst.Bytes()[n%depth*arenaLen:]
			if err := s.same(arena[o.off:o.off+o.len], s.payload(n, i, o), poison); err != nil {
				return fmt.Errorf("round %d, operation %d, %v of %d octets: %w", n, i, o.kind, o.len, err)
			}
		}
		r.seen[i] = true
		return nil
	}
	return s.headed(wc, buf[:min(len(buf), int(wc.ByteLen))], kUCSend, &s.lastUC)
}

func (s *session) receivedUD(wc *verbs.WC, buf []byte) error {
	if wc.Flags&verbs.WCGRH == 0 || wc.SrcQP != s.far.UD.QPN || wc.ByteLen < verbs.GRHLen || int(wc.ByteLen) > len(buf) {
		return fmt.Errorf("a datagram completes as %+v; the peer's queue pair is %#x", *wc, s.far.UD.QPN)
	}
	return s.headed(wc, buf[verbs.GRHLen:wc.ByteLen], kUDSend, &s.lastUD)
}

// headed checks an unreliable message that has a header.
func (s *session) headed(wc *verbs.WC, b []byte, k kind, last *int) error {
	if len(b) < header || le64(b) != s.in.seed+uint64(s.in.side) {
		return fmt.Errorf("%v: no message of this session: %+v, %x", k, *wc, b[:min(len(b), header)])
	}
	n, i := int(binary.LittleEndian.Uint32(b[8:])), int(binary.LittleEndian.Uint32(b[12:]))
	r, o, err := s.unreliable(n, i, k, last)
	if err != nil {
		return err
	}
	if err := s.same(b, s.payload(n, i, o), poison); err != nil {
		return fmt.Errorf("round %d, operation %d, %v of %d octets: %w", n, i, k, o.len, err)
	}
	r.seen[i] = true
	return nil
}

// unreliable finds the operation of an unreliable message, which must come after the
// last one.
func (s *session) unreliable(n, i int, k kind, last *int) (*arrival, *op, error) {
	r := s.arrival(n)
	if r == nil || n > s.checked+depth || i >= len(r.ops) || r.ops[i].kind != k {
		return nil, nil, fmt.Errorf("%v: round %d has no such operation %d, or is long ago (%d)", k, n, i, s.checked)
	}
	at := n<<8 | i + 1
	if at <= *last {
		return nil, nil, fmt.Errorf("%v: round %d, operation %d arrives after %#x: twice, or out of order", k, n, i, *last)
	}
	*last = at
	return r, &r.ops[i], nil
}

// checkRound compares the whole arena of a round that has ended with what has to be
// there, makes it ready for another, and grants that.
func (s *session) checkRound(r *arrival) error {
	arena := s.mem.dst.Bytes()[r.n%depth*arenaLen:][:arenaLen]
	want := make([]byte, r.used)
	wipe(want)
	for w, v := range r.words {
		if have := le64(arena[8*w:]); have != v {
			return fmt.Errorf("word %d is %#x, not %#x", w, have, v)
		}
	}
	at := wordsLen
	for i := range r.ops {
		o := &r.ops[i]
		switch {
		case o.kind.unreliable():
			// What nothing tells of arrived if all of it is there.
			if r.seen[i] || o.kind == kUCWrite && bytes.Equal(arena[o.off:o.off+o.len], s.payload(r.n, i, o)) {
				s.tally.Ops[o.kind.String()]++
			} else {
				s.tally.Lost[o.kind.String()]++
			}
		case o.kind.write() || o.kind == kEnd:
			s.tally.Ops[o.kind.String()]++
		}
		if !o.kind.write() {
			continue
		}
		p := want[o.off : o.off+o.len]
		s.in.write(p, r.n, i, o.kind)
		if !o.kind.unreliable() || r.seen[i] {
			continue
		}
		// Some of it may be missing.
		if err := s.same(arena[at:o.off], want[at:o.off], poison); err != nil {
			return fmt.Errorf("before operation %d, at %d: %w", i, at, err)
		}
		if err := s.some(arena[o.off:o.off+o.len], p); err != nil {
			return fmt.Errorf("operation %d, %v of %d octets: %w", i, o.kind, o.len, err)
		}
		at = o.off + o.len
	}
	if err := s.same(arena[at:r.used], want[at:], poison); err != nil {
		return fmt.Errorf("at %d: %w", at, err)
	}
	wipe(arena[wordsLen:r.used])
	s.tally.Rounds++
	s.checked++
	delete(s.got, r.n-depth)
	return s.grantMore()
}

// same compares octets, with a single one where want is nil.
func (s *session) same(got, want []byte, one byte) error {
	s.tally.Octets += uint64(len(got))
	if want != nil && bytes.Equal(got, want) {
		return nil
	}
	for i, b := range got {
		w := one
		if want != nil {
			w = want[i]
		}
		if b != w {
			return fmt.Errorf("octet %d of %d is %#02x, not %#02x: %d are wrong", i, len(got), b, w, wrong(got, want, one))
		}
	}
	return nil
}

func wrong(got, want []byte, one byte) (n int) {
	for i, b := range got {
		if want != nil && b != want[i] || want == nil && b != one {
			n++
		}
	}
	return n
}

// some compares octets of which any may be missing.
func (s *session) some(got, want []byte) error {
	s.tally.Octets += uint64(len(got))
	for i, b := range got {
		if b != want[i] && b != poison {
			return fmt.Errorf("octet %d of %d is %#02x, neither %#02x nor untouched", i, len(got), b, want[i])
		}
	}
	return nil
}
