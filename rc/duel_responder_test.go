package rc

import (
	"encoding/binary"
	"slices"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// responses is the model of a responder: what each request does, and what may
// be answered.
type responses struct {
	f        *fighter
	begin    bth.PSN
	epsn     bth.PSN
	msn      uint32
	op       message // in progress
	va       uint64  // of a WRITE in progress
	rkey     uint32
	left     int
	total    int
	held     *verbs.RecvWR
	got      int
	posted   []*verbs.RecvWR
	answers  []*answer // newest last
	nakked   bool
	mayNAK   bool // a gap was not reported yet
	mayRNR   bool // nor that a receive request is missing
	mayACK   bool // something asked for an ACK, of ackTo at most
	ackTo    bth.PSN
	beyond   bth.PSN
	owes     bool // an ACK of owed or later, or a response behind it
	owed     bth.PSN
	fatal    *fatal // NAK that must leave
	finished bool   // it has left
	untold   bool   // it ended without one; what is due still leaves
}

// answer is a READ or atomic that was carried out.
type answer struct {
	atomic bool
	first  bth.PSN
	pkts   int
	va     uint64
	rkey   uint32
	n      int
	value  uint64
	done   bool  // answered to its end at least once
	again  bool  // to be answered again
	starts []int // packets that an answer may begin with
	ends   []int // octets that one may end at
}

// fatal is the NAK that ends a responder.
type fatal struct {
	from, to bth.PSN // it names one of these
	syndrome bth.Syndrome
}

// message is a kind of request.
type message int

const (
	none message = iota
	send
	write
	read
	cmpSwap
	fetchAdd
	unknown
)

// form is what an opcode says: kind, position in the message, immediate data or
// a key to invalidate.
type form struct {
	kind        message
	first, last bool
	imm, inv    bool
}

// forms are the requests of IBA table 38.
var forms = map[bth.Opcode]form{
	0x00: {send, true, false, false, false},
	0x01: {send, false, false, false, false},
	0x02: {send, false, true, false, false},
	0x03: {send, false, true, true, false},
	0x04: {send, true, true, false, false},
	0x05: {send, true, true, true, false},
	0x06: {write, true, false, false, false},
	0x07: {write, false, false, false, false},
	0x08: {write, false, true, false, false},
	0x09: {write, false, true, true, false},
	0x0a: {write, true, true, false, false},
	0x0b: {write, true, true, true, false},
	0x0c: {read, true, true, false, false},
	0x13: {cmpSwap, true, true, false, false},
	0x14: {fetchAdd, true, true, false, false},
	0x16: {send, false, true, false, true},
	0x17: {send, true, true, false, true},
}

// formOf returns the form of an opcode.
func formOf(op bth.Opcode) form {
	if f, ok := forms[op]; ok {
		return f
	}
	return form{kind: unknown, first: true, last: true}
}

func (r *responses) start(psn bth.PSN) { *r = responses{f: r.f, begin: psn, epsn: psn} }

// request is what a request packet does.
func (r *responses) request(p *bth.Packet) {
	switch d := dist(p.PSN, r.epsn); {
	case d > 0:
		if !r.nakked || dist(p.PSN, r.beyond) >= 0 {
			r.beyond = plus(p.PSN, 1)
		}
		if !r.nakked && !r.mayRNR { // that says already what to send again
			r.nakked, r.mayNAK = true, true
		}
		return
	case d < 0:
		r.nakked = false
		r.duplicate(p)
		return
	}
	if p.AckReq && formOf(p.Opcode).kind <= write || r.mayNAK || r.mayRNR { // an ACK may have made way for a NAK that is out of date now
		r.allowACK(p.PSN)
	}
	r.nakked = r.mayNAK // one that has not left is brought up to date
	syndrome, recv := r.refuse(p)
	switch {
	case syndrome == 0:
		syndrome, recv = r.carryOut(p)
	case syndrome.Kind() == bth.KindRNR:
		r.nakked, r.mayNAK, r.mayRNR = r.f.qp.cfg.Habits&NAKBehindRNR == 0, false, true
		return
	}
	if syndrome == 0 {
		return
	}
	if r.untold = syndrome == untold; !r.untold {
		r.fatal = &fatal{r.epsn, r.epsn, syndrome}
		r.f.d.excused(r.f.name, verbs.WCRemInvReqErr+verbs.WCStatus(syndrome-invalid))
	}
	if r.held != nil && recv != verbs.WCSuccess {
		r.f.wantRecv = append(r.f.wantRecv, verbs.WC{ID: r.held.ID, Status: recv})
		r.held = nil
	}
	r.f.ended()
}

const (
	invalid     = bth.Syndrome(0x61)
	access      = bth.Syndrome(0x62)
	operational = bth.Syndrome(0x63)
	untold      = bth.Syndrome(0xff) // none: the message is delivered, but a key cannot be invalidated
)

// refuse says why the expected packet is refused, and what its receive request
// says of it. It takes that. IBA 9.7.4.1.
func (r *responses) refuse(p *bth.Packet) (bth.Syndrome, verbs.WCStatus) {
	f := formOf(p.Opcode)
	mtu, n := int(r.f.attr.PathMTU), len(p.Payload)
	if f.first != (r.op == none) || !f.first && r.op != f.kind {
		return invalid, 0
	}
	may := r.f.attr.Access
	switch {
	case f.kind == unknown,
		f.kind == write && may&verbs.AccessRemoteWrite == 0,
		f.kind == read && may&verbs.AccessRemoteRead == 0,
		f.kind >= cmpSwap && may&verbs.AccessRemoteAtomic == 0:
		return invalid, 0
	}
	switch {
	case f.kind == send && f.first, f.kind == write && f.imm:
		if len(r.posted) == 0 {
			return 0x20 | bth.Syndrome(r.f.attr.MinRNRTimer), 0
		}
		r.held, r.posted, r.got = r.posted[0], r.posted[1:], 0
	case f.kind >= read:
		if n := len(r.answers); n >= r.f.attr.MaxDestRdAtomic && (n == 0 || !r.answers[0].done) {
			return invalid, 0
		}
	}
	long := !f.first || !f.last
	switch {
	case int(p.Pad) != (4-n%4)%4, f.kind >= read && n != 0, n > mtu, !f.last && n != mtu, f.last && long && n == 0:
		return invalid, 0
	case f.kind == send && n > octets(r.held.SGL)-r.got:
		return invalid, verbs.WCLocLenErr
	case f.kind == write && f.first && f.last && int(p.DMALen) != n,
		f.kind == write && f.first && !f.last && (int(p.DMALen) <= n || p.DMALen > 1<<31),
		f.kind == write && !f.first && !f.last && r.left <= n,
		f.kind == write && !f.first && f.last && r.left != n,
		f.kind == read && p.DMALen > 1<<31,
		f.kind >= cmpSwap && p.VA%8 != 0:
		return invalid, 0
	}
	need, length := verbs.AccessRemoteWrite, int(p.DMALen)
	switch f.kind {
	case read:
		need = verbs.AccessRemoteRead
	case cmpSwap, fetchAdd:
		need, length = verbs.AccessRemoteAtomic, 8
	}
	if f.kind != send && f.first && length > 0 {
		if _, ok := r.f.find(p.RKey, p.VA, length, need); !ok {
			return access, 0
		}
	}
	return 0, 0
}

func octets(sgl []verbs.SGE) (n int) {
	for _, s := range sgl {
		n += int(s.Length)
	}
	return n
}

// carryOut does what an accepted packet asks for; memory may still be in the way.
func (r *responses) carryOut(p *bth.Packet) (bth.Syndrome, verbs.WCStatus) {
	f := formOf(p.Opcode)
	n, pkts := len(p.Payload), 1
	switch f.kind {
	case send:
		to, ok := r.f.pieces(r.held.SGL, r.got, n, verbs.AccessLocalWrite)
		if !ok {
			return operational, verbs.WCLocProtErr
		}
		scatter(to, p.Payload)
		if r.got += n; f.inv && !r.f.invalidate(p.Inv) {
			r.epsn = plus(r.epsn, 1) // it has arrived, and may be acknowledged
			return untold, verbs.WCRemInvReqErr
		}
	case write:
		if f.first {
			r.va, r.rkey, r.left, r.total = p.VA, p.RKey, int(p.DMALen), int(p.DMALen)
		}
		if n > 0 {
			at, ok := r.f.find(r.rkey, r.va, n, verbs.AccessRemoteWrite)
			if !ok {
				return access, 0
			}
			copy(r.f.want[at:], p.Payload)
		}
		r.va += uint64(n)
		r.left -= n
	default:
		a := &answer{first: p.PSN, pkts: 1, va: p.VA, rkey: p.RKey, n: int(p.DMALen), starts: []int{0}, ends: []int{int(p.DMALen)}}
		if f.kind == read {
			a.pkts = max(1, (a.n+int(r.f.attr.PathMTU)-1)/int(r.f.attr.PathMTU))
			pkts = a.pkts
		} else {
			at, _ := r.f.find(p.RKey, p.VA, 8, verbs.AccessRemoteAtomic)
			if at%8 != 0 {
				return invalid, 0
			}
			word := r.f.want[at : at+8]
			a.atomic, a.value = true, binary.NativeEndian.Uint64(word)
			if f.kind == fetchAdd {
				binary.NativeEndian.PutUint64(word, a.value+p.SwapAdd)
			} else if a.value == p.Compare {
				binary.NativeEndian.PutUint64(word, p.SwapAdd)
			}
		}
		r.answers = append(r.answers, a)
		if len(r.answers) > r.f.attr.MaxDestRdAtomic {
			r.answers = r.answers[1:]
		}
	}
	r.epsn = plus(r.epsn, pkts)
	r.mayRNR = false
	if r.mayNAK && dist(r.epsn, r.beyond) >= 0 { // it was but a change of order
		r.mayNAK, r.nakked = false, false
	}
	if p.AckReq && f.kind <= write {
		r.owes, r.owed = true, p.PSN
	}
	if r.op = none; !f.last {
		r.op = f.kind
		return 0, 0
	}
	r.msn = (r.msn + 1) % (1 << 24)
	if f.kind == send || f.kind == write && f.imm {
		wc := verbs.WC{ID: r.held.ID, Opcode: verbs.WCRecv, ByteLen: uint32(r.got), SrcQP: r.f.attr.DestQPN}
		if f.kind == write {
			wc.Opcode, wc.ByteLen = verbs.WCRecvWriteImm, uint32(r.total)
		}
		if f.imm {
			wc.Flags, wc.Imm = verbs.WCWithImm, p.Imm
		} else if f.inv {
			wc.Flags, wc.Imm = verbs.WCWithInv, p.Inv
		}
		r.f.wantRecv = append(r.f.wantRecv, wc)
		r.held = nil
	}
	return 0, 0
}

// allowACK lets an ACK say that all up to psn was carried out.
func (r *responses) allowACK(psn bth.PSN) {
	if !r.mayACK || dist(psn, r.ackTo) > 0 {
		r.mayACK, r.ackTo = true, psn
	}
}

// duplicate is what a request does that was carried out before: nothing, but
// that a READ may be answered within what it was.
func (r *responses) duplicate(p *bth.Packet) {
	f := formOf(p.Opcode)
	a := r.answerTo(p.PSN)
	if f.kind == read && a != nil {
		r.allowACK(plus(p.PSN, -1)) // if there is no answer any more
	} else if p.AckReq && f.kind <= write {
		// What was carried out since, but no READ or atomic behind it: its answer may
		// have been lost.
		to := plus(r.epsn, -1)
		for _, b := range r.answers {
			if dist(b.first, p.PSN) > 0 && dist(b.first, to) <= 0 {
				to = plus(b.first, -1)
			}
		}
		r.allowACK(to)
	}
	switch {
	case p.Opcode <= bth.RCWriteOnlyImm && p.AckReq && dist(p.PSN, r.epsn) > -1<<22: // nearer than what may wrap
		if !r.owes || dist(p.PSN, r.owed) > 0 {
			r.owes, r.owed = true, p.PSN
		}
		return
	case a != nil && a.atomic && (f.kind == cmpSwap || f.kind == fetchAdd):
		a.again = true
		return
	case a == nil || f.kind != read || a.atomic || len(p.Payload) > 0 || p.Pad != 0:
		return
	}
	i := dist(p.PSN, a.first)
	off := i * int(r.f.attr.PathMTU)
	if p.RKey == a.rkey && p.VA == a.va+uint64(off) && off+int(p.DMALen) <= a.n {
		a.starts, a.ends, a.again = append(a.starts, i), append(a.ends, off+int(p.DMALen)), true
	}
}

// answerTo returns the newest answer that covers a PSN.
func (r *responses) answerTo(psn bth.PSN) *answer {
	for _, a := range slices.Backward(r.answers) {
		if d := dist(psn, a.first); d >= 0 && d < a.pkts {
			return a
		}
	}
	return nil
}
