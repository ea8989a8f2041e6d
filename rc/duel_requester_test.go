package rc

import (
	"bytes"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// requests is the model of a requester: what may be sent, and what each response
// does.
type requests struct {
	f               *fighter
	out             []*request // posted and not completed
	tail            bth.PSN
	una, next, high bth.PSN
	reads           []request // READs and atomics in flight, by their PSNs
	lsn             int
	posts           uint32

	limit     int // LSN of the first message without a credit
	unlimited bool

	rewind  bool // it may go back to una
	begun   int  // restarts since progress
	signs   int  // of them after NAKs, since progress, a timeout or an RNR wait
	rnrs    int  // RNR NAKs since progress
	waiting bool // for what one asked for
	until   int64
	gap     bool  // a NAK restarted it, and it has not hurried since, nor progressed
	gapAt   int64 // when
	since   int64 // progress, or the first of what is in flight left
	stopped bool  // the last response met a READ or atomic that is not answered
	counted trace.Counts
}

// request is a posted send request.
type request struct {
	verbs.SendWR
	n     int
	first bth.PSN
	pkts  int
	lsn   int
	bad   verbs.WCStatus // the local rule it breaks
	ran   bool           // a local operation that was carried out
	index uint32         // in the engine
	prot  bool           // a key of it was withdrawn, or is none
	depth bool           // READs were forbidden meanwhile
}

func (w *request) end() bth.PSN { return plus(w.first, w.pkts) }

func (w *request) answered() bool { return w.Opcode >= verbs.WRRead && w.Opcode <= verbs.WRFetchAdd }

func (w *request) takesRecv() bool {
	return w.Opcode == verbs.WRSend || w.Opcode == verbs.WRSendImm || w.Opcode == verbs.WRWriteImm || w.Opcode == verbs.WRSendInv
}

func (w *request) local() bool { return w.Opcode == verbs.WRBindMW || w.Opcode == verbs.WRLocalInv }

func (q *requests) start(psn bth.PSN) {
	*q = requests{f: q.f, tail: psn, una: psn, next: psn, high: psn, since: q.f.d.now, counted: *q.f.qp.Counts()}
}

// postSend gives a request to the engine and to the model, if the ring has room.
func (f *fighter) postSend(w verbs.SendWR) {
	f.id++
	w.ID = f.id
	if f.sq.Put(&w) != nil {
		return
	}
	f.sq.Publish()
	q := &f.q
	r := &request{SendWR: w, n: octets(w.SGL) + len(w.Inline), first: q.tail, pkts: 1, lsn: q.lsn, index: q.posts}
	q.posts++
	mtu, msgs := int(f.attr.PathMTU), 1
	if r.local() {
		r.pkts, msgs = 0, 0
	} else if w.Opcode != verbs.WRCmpSwap && w.Opcode != verbs.WRFetchAdd {
		r.pkts = max(1, (r.n+mtu-1)/mtu)
	} else if r.n != 8 {
		r.bad = verbs.WCLocLenErr
	}
	if r.answered() && f.attr.MaxRdAtomic == 0 && r.bad == 0 {
		r.bad = verbs.WCLocQPOpErr
	}
	if part := f.qp.req.readPart; w.Opcode == verbs.WRRead && part > 0 {
		msgs = (r.pkts + part - 1) / part
	}
	q.lsn += msgs
	q.tail = r.end()
	q.out = append(q.out, r)
	f.logf("posts "+w.Opcode.String(), nil)
	f.withdraw()
	if r.bad != 0 || r.prot {
		f.d.allowed[verbs.WCLocLenErr], f.d.allowed[verbs.WCLocQPOpErr], f.d.allowed[verbs.WCLocProtErr] = true, true, true
	}
	if f.state == verbs.StateErr {
		f.ended()
	}
	f.qp.Doorbell(f.d.now)
	f.check(nil)
}

// withdraw marks the requests that hold a key which is none, or not any more.
func (f *fighter) withdraw() {
	for _, w := range f.q.out {
		for _, s := range w.SGL {
			need := verbs.Access(0)
			if w.answered() {
				need = verbs.AccessLocalWrite
			}
			if _, ok := f.own(s.LKey, s.Addr, int(s.Length), need); !ok {
				w.prot = true
			}
		}
	}
}

func (f *fighter) postRecv(sgl []verbs.SGE) {
	f.id++
	w := verbs.RecvWR{ID: f.id, SGL: sgl}
	if f.rq.Put(&w) != nil {
		return
	}
	f.rq.Publish()
	f.r.posted = append(f.r.posted, &w)
	if f.state == verbs.StateErr {
		f.ended()
	}
	f.qp.Doorbell(f.d.now)
	f.check(nil)
}

// sent checks a request packet that left.
func (q *requests) sent(p *bth.Packet) {
	f, t := q.f, q.f.t
	switch {
	case f.was == verbs.StateErr:
		t.Fatalf("%s sends in ERR", f.name)
	case f.state == verbs.StateErr:
		return // since; the model has forgotten what it was about
	}
	if q.waiting {
		t.Fatalf("%s sends %v %v before its RNR wait is over", f.name, p.Opcode, p.PSN)
	}
	if p.PSN != q.next && p.PSN == q.una && q.rewind {
		q.next, q.rewind, q.reads = q.una, false, nil
	}
	if p.PSN != q.next {
		t.Fatalf("%s sends PSN %v, not %v; %v is not acknowledged", f.name, p.PSN, q.next, q.una)
	}
	var w *request
	before := false // there is a READ or atomic that is not finished
	for _, x := range q.out {
		if d := dist(p.PSN, x.first); d >= 0 && d < x.pkts {
			w = x
			break
		}
		before = before || x.answered()
	}
	if w == nil {
		t.Fatalf("%s sends PSN %v, which nothing posted has", f.name, p.PSN)
	}
	if q.next == q.una {
		q.since = f.d.now
	}
	i, fresh := dist(p.PSN, w.first), p.PSN == q.high
	switch {
	case i == 0 && w.Flags&verbs.SendFence != 0 && before:
		t.Fatalf("%s sends %v of a fenced request before what it waits for is done", f.name, p.PSN)
	case i == 0 && fresh && f.state == verbs.StateSQD:
		t.Fatalf("%s begins a message in SQD", f.name)
	}
	n := 1
	if w.answered() {
		n = q.sentRead(p, w, i)
		q.reads = append(q.reads, request{first: p.PSN, pkts: n})
		if len(q.reads) > max(1, f.attr.MaxRdAtomic) {
			t.Fatalf("%s has %d READs and atomics in flight", f.name, len(q.reads))
		}
	} else {
		q.sentData(p, w, i)
	}
	q.credit(p, w, i)
	q.next = plus(q.next, n)
	if dist(q.next, q.high) > 0 {
		q.high = q.next
	}
}

// sentData checks packet i of a SEND or WRITE.
func (q *requests) sentData(p *bth.Packet, w *request, i int) {
	f, mtu := q.f, int(q.f.attr.PathMTU)
	off := i * mtu
	n := min(mtu, w.n-off)
	want := form{kind: send, first: i == 0, last: i == w.pkts-1}
	if w.Opcode == verbs.WRWrite || w.Opcode == verbs.WRWriteImm {
		want.kind = write
	}
	want.imm = want.last && (w.Opcode == verbs.WRSendImm || w.Opcode == verbs.WRWriteImm)
	want.inv = want.last && w.Opcode == verbs.WRSendInv
	if got := formOf(p.Opcode); got != want {
		f.t.Fatalf("%s sends %v as packet %d of %d of %v", f.name, p.Opcode, i, w.pkts, w.Opcode)
	}
	if want.last && !p.AckReq || want.imm && p.Imm != w.Imm || want.inv && p.Inv != w.Imm {
		f.t.Fatalf("%s: header %+v", f.name, *p)
	}
	if want.kind == write && want.first && (p.VA != w.RemoteAddr || p.RKey != w.RKey || int(p.DMALen) != w.n) {
		f.t.Fatalf("%s: WRITE of %d octets to %#x with key %#x says %+v", f.name, w.n, w.RemoteAddr, w.RKey, *p)
	}
	data := w.Inline
	if w.Flags&verbs.SendInline == 0 {
		from, ok := f.pieces(w.SGL, 0, w.n, 0)
		if !ok {
			from, ok = f.pieces(w.SGL, off, n, 0) // a key of the rest was withdrawn
			from = append([][]byte{make([]byte, off)}, from...)
		}
		if !ok {
			f.t.Fatalf("%s sends octets that it may not read", f.name)
		}
		data = bytes.Join(from, nil)
	}
	if !bytes.Equal(p.Payload, data[off:off+n]) {
		f.t.Fatalf("%s: packet %d of %v has other octets than were posted", f.name, i, w.Opcode)
	}
}

// sentRead checks a READ request from packet i on, or an atomic. It returns for
// how many PSNs it asks.
func (q *requests) sentRead(p *bth.Packet, w *request, i int) int {
	f, mtu := q.f, int(q.f.attr.PathMTU)
	off, n := i*mtu, int(p.DMALen)
	want := form{kind: read, first: true, last: true}
	switch w.Opcode {
	case verbs.WRCmpSwap:
		want.kind = cmpSwap
	case verbs.WRFetchAdd:
		want.kind = fetchAdd
	}
	if formOf(p.Opcode) != want || p.VA != w.RemoteAddr+uint64(off) || p.RKey != w.RKey || len(p.Payload) > 0 {
		f.t.Fatalf("%s: %v of %d octets at %#x from packet %d on is asked for by %+v", f.name, w.Opcode, w.n, w.RemoteAddr, i, *p)
	}
	if want.kind != read {
		swap, compare := w.CompareAdd, uint64(0)
		if want.kind == cmpSwap {
			swap, compare = w.Swap, w.CompareAdd
		}
		if p.SwapAdd != swap || want.kind == cmpSwap && p.Compare != compare {
			f.t.Fatalf("%s: %v %#x %#x says %+v", f.name, w.Opcode, w.CompareAdd, w.Swap, *p)
		}
		return 1
	}
	if off+n > w.n || n == 0 && w.n > 0 || off+n < w.n && n%mtu != 0 {
		f.t.Fatalf("%s: READ of %d octets asks for %d at %d", f.name, w.n, n, off)
	}
	return max(1, (n+mtu-1)/mtu)
}

// credit checks that packet i of w has the credit that it needs. IBA 9.7.7.2.
func (q *requests) credit(p *bth.Packet, w *request, i int) {
	if !q.f.attr.FlowControl || q.unlimited || !w.takesRecv() || w.lsn < q.limit {
		return
	}
	if i == 0 && w.lsn > q.limit && q.next != q.una || i > 0 && dist(q.una, w.first) <= 0 || !p.AckReq {
		q.f.t.Fatalf("%s sends packet %d of message %d with credits up to %d", q.f.name, i, w.lsn, q.limit)
	}
}
