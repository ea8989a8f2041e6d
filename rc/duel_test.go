package rc

import (
	"bytes"
	"math"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// duel is a pair of engines under a schedule of moves: both sides request and
// respond, packets are lost, repeated, overtaken, delayed, forged and of earlier
// connections, and what programs do is as odd. Each side has a model that says
// beforehand what every packet does, which completions come and which octets
// change, and what may be sent and must be: duel_requester_test.go and
// duel_acks_test.go, duel_responder_test.go and duel_answers_test.go. The models
// share no arithmetic with the engine, not even that of PSNs. Of its state they
// read which requests it gave up for a local reason, and which local operations it
// carried out, since it chooses the time; how often it restarted; and in how many
// parts it asks for a READ.
type duel struct {
	t     testing.TB
	now   int64
	sides [2]*fighter
	moves tape
	past  []*bth.Packet // delivered or lost, for those that come late

	conn   func(*verbs.QPAttr)    // attributes of both
	own    [2]func(*verbs.QPAttr) // of each
	hungry int                    // rounds at the end in which no receive requests are posted

	// What may go wrong for a good reason.
	tainted  bool     // packets came that the peer did not send now
	troubles int      // packets lost, late or overtaken
	allowed  [32]bool // by verbs.WCStatus
	clean    bool     // neither was reset nor ended on purpose
}

// fighter is one side of a duel and the model of it.
type fighter struct {
	*side
	d    *duel
	peer *fighter

	attr  verbs.QPAttr
	state verbs.QPState
	was   verbs.QPState // when the packet that leaves was made
	want  []byte        // the memory as it must be
	regs  []window      // what is registered
	win   window        // of them, the one that comes and goes
	mw    memWindow
	room  int // of its completion queue; 0 is enough
	id    uint64

	q        requests
	r        responses
	wantSend []verbs.WC
	wantRecv []verbs.WC

	to      []*bth.Packet // on the way to it
	held    []*bth.Packet // overtaken by all of those
	mishaps []mishap
}

// mishap happens to one packet on the way to a side.
type mishap struct{ after, what int }

// window is a region as the model sees it.
type window struct {
	key    uint32
	iova   uint64
	at, n  int // in the arena
	access verbs.Access
}

// An arena: a region that stays, one that comes and goes and is not aligned in
// memory, and between them what nobody may touch.
const (
	mainAt, mainLen = 64, 10240
	winAt, winLen   = mainAt + mainLen + 68, 2052
	arenaLen        = winAt + winLen + 64
	mainIOVA        = 0x10000
	winIOVA         = 0x90000
)

// dist is the distance from b to a in the ring of PSNs.
func dist(a, b bth.PSN) int {
	d := int(a.Uint32()) - int(b.Uint32())
	switch {
	case d >= 1<<23:
		d -= 1 << 24
	case d < -1<<23:
		d += 1 << 24
	}
	return d
}

func plus(p bth.PSN, n int) bth.PSN { return bth.MakePSN(uint32(int(p.Uint32()) + n)) }

// duelBursts are dear to make, and no test runs two duels at once.
var duelBursts [3]*wire.Burst

func newDuel(t testing.TB, moves []byte) *duel {
	d := &duel{t: t, moves: moves, clean: true}
	if duelBursts[0] == nil {
		for i := range duelBursts {
			duelBursts[i] = wire.NewBurst()
		}
	}
	for i := range d.sides {
		c := verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}
		f := &fighter{side: newSide(t, string(rune('a'+i)), bth.QPN(0x11+i), arenaLen, c), d: d}
		if err := f.mrs.Deregister(f.reg.Key); err != nil {
			t.Fatal(err)
		}
		fill(f.mem, uint64(i))
		f.want = bytes.Clone(f.mem)
		f.q.f, f.r.f = f, f
		f.register(window{iova: mainIOVA, at: mainAt, n: mainLen, access: verbs.AccessAll | verbs.AccessMWBind})
		f.allocWindow()
		d.sides[i] = f
	}
	d.sides[0].peer, d.sides[1].peer = d.sides[1], d.sides[0]
	d.settings()
	for _, f := range d.sides {
		f.register(window{iova: winIOVA, at: winAt, n: winLen, access: verbs.AccessAll})
		f.win = f.regs[1]
	}
	d.connect(d.psn())
	return d
}

// logf tells with -v what happens.
func (f *fighter) logf(what string, p *bth.Packet) {
	if !testing.Verbose() {
		return
	}
	if p == nil {
		f.t.Logf("%d %s %s: %v, una %v next %v high %v expects %v", f.d.now, f.name, what, f.state, f.q.una, f.q.next, f.q.high, f.r.epsn)
		return
	}
	f.t.Logf("%d %s %s %v %v, %d octets, DMA %d, syndrome %#x, MSN %d, VA %#x", f.d.now, f.name, what, p.Opcode, p.PSN, len(p.Payload), p.DMALen, uint8(p.Syndrome), p.MSN, p.VA)
}

func (f *fighter) register(w window) {
	r, err := f.mrs.Register(mr.Region{PD: 1, IOVA: w.iova, Mem: f.mem[w.at : w.at+w.n : w.at+w.n], Access: w.access})
	if err != nil {
		f.t.Fatal(err)
	}
	w.key = r.Key
	f.regs = append(f.regs, w)
}

// connect takes both sides, in RESET, up to RTS.
func (d *duel) connect(psn [2]uint32) {
	for i := range d.sides {
		d.connectSide(i, psn[i], psn[1-i])
	}
}

func (d *duel) connectSide(i int, sq, rq uint32) {
	f := d.sides[i]
	a := verbs.QPAttr{
		Access: verbs.AccessAll, PathMTU: 256, DestQPN: uint32(f.peer.qp.QPN()), SQPSN: sq, RQPSN: rq, MaxRdAtomic: 4, MaxDestRdAtomic: 4,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
	d.conn(&a)
	d.own[i](&a)
	flow := &wire.Flow{Src: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}), Dst: netip.AddrFrom4([4]byte{192, 0, 2, byte(2 - i)}), SrcPort: 0xc001}
	for _, s := range []struct {
		to verbs.QPState
		m  verbs.AttrMask
	}{{verbs.StateInit, toInit}, {verbs.StateRTR, toRTR}, {verbs.StateRTS, toRTS}} {
		a.State = s.to
		if err := f.qp.Modify(d.now, &a, s.m, flow); err != nil {
			d.t.Fatal(err)
		}
	}
	f.attr, f.state = a, verbs.StateRTS
	f.q.start(bth.MakePSN(sq))
	f.r.start(bth.MakePSN(rq))
}

// reset takes a side to RESET, and its program's rings with it.
func (f *fighter) reset() {
	f.modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState)
	f.sq.Reset()
	f.rq.Reset()
	f.state, f.room = verbs.StateReset, 0
	f.q.out, f.r.posted, f.r.held, f.r.fatal = nil, nil, nil, nil
}

func (f *fighter) modify(a *verbs.QPAttr, m verbs.AttrMask) {
	if err := f.qp.Modify(f.d.now, a, m, nil); err != nil {
		f.t.Fatalf("%s: %v", f.name, err)
	}
}

// deliver gives a side a packet, after its model.
func (f *fighter) deliver(p *bth.Packet) {
	f.d.past = append(f.d.past, p)
	f.logf("gets", p)
	q := *p
	q.Payload = bytes.Clone(p.Payload)
	switch f.state {
	case verbs.StateRTS, verbs.StateSQD:
		switch op := p.Opcode; {
		case op > 0x1f:
		case op >= bth.RCReadRespFirst && op <= bth.RCAtomicAck:
			f.q.response(p)
		default:
			f.r.request(p)
		}
	}
	f.qp.HandlePacket(f.d.now, &q)
	fill(q.Payload, 9) // it was borrowed for the call
	f.check(p)
	f.logf("then", nil)
}

// timer moves a side's time.
func (f *fighter) timer() {
	f.q.timer()
	f.logf("timer", nil)
	f.qp.HandleTimer(f.d.now)
	f.check(nil)
}

// find resolves a key.
func (f *fighter) find(key uint32, va uint64, n int, need verbs.Access) (at int, ok bool) {
	for _, w := range f.regs {
		if w.key != key {
			continue
		}
		off := va - w.iova
		if va < w.iova || off > uint64(w.n) || uint64(n) > uint64(w.n)-off || w.access&need != need {
			return 0, false
		}
		return w.at + int(off), true
	}
	return 0, false
}

// own is find for the program's own requests.
func (f *fighter) own(key uint32, va uint64, n int, need verbs.Access) (at int, ok bool) {
	if key == f.mw.key {
		return 0, false
	}
	return f.find(key, va, n, need)
}

// pieces are the places in the arena behind n octets at off of a list.
func (f *fighter) pieces(sgl []verbs.SGE, off, n int, need verbs.Access) (out [][]byte, ok bool) {
	for _, s := range sgl {
		if n == 0 {
			break
		}
		k := min(int(s.Length)-off, n)
		if k <= 0 {
			off -= int(s.Length)
			continue
		}
		at, ok := f.own(s.LKey, s.Addr+uint64(off), k, need)
		if !ok {
			return nil, false
		}
		out = append(out, f.want[at:at+k])
		n -= k
		off = 0
	}
	return out, n == 0
}

func scatter(to [][]byte, b []byte) {
	for _, x := range to {
		b = b[copy(x, b):]
	}
}

// excused fails the test if something ended that nothing was wrong with.
func (d *duel) excused(name string, s verbs.WCStatus) {
	if d.t.Helper(); !d.tainted && d.clean && !d.allowed[s] {
		d.t.Fatalf("%s: %v, and nothing was wrong", name, s)
	}
}

// ended is what the models make of a side in ERR: everything is flushed.
func (f *fighter) ended() {
	f.state = verbs.StateErr
	f.d.allowed[verbs.WCRetryExcErr] = true // of the peer, which hears no more
	for _, w := range f.q.out {
		f.wantSend = append(f.wantSend, verbs.WC{ID: w.ID, Status: verbs.WCWRFlushErr})
	}
	if f.r.held != nil {
		f.wantRecv = append(f.wantRecv, verbs.WC{ID: f.r.held.ID, Status: verbs.WCWRFlushErr})
	}
	for _, r := range f.r.posted {
		f.wantRecv = append(f.wantRecv, verbs.WC{ID: r.ID, Status: verbs.WCWRFlushErr})
	}
	f.q.out, f.r.posted, f.r.held = nil, nil, nil
}

// check compares a side with its model after a call; p is the packet that was
// handled, or nil.
func (f *fighter) check(p *bth.Packet) {
	f.q.restarts(p)
	f.q.locals()
	if f.qp.State() == verbs.StateErr && f.state != verbs.StateErr && !f.q.gaveUp() && !f.r.withdrawn() {
		f.t.Fatalf("%s is in ERR and nothing was wrong", f.name)
	}
	if s := f.qp.State(); s != f.state {
		f.t.Fatalf("%s is in %v, not %v", f.name, s, f.state)
	}
	f.completions()
	if !bytes.Equal(f.mem, f.want) {
		for i := range f.mem {
			if f.mem[i] != f.want[i] {
				f.t.Fatalf("%s: octet %d of the arena is %#x, not %#x", f.name, i, f.mem[i], f.want[i])
			}
		}
	}
	if f.state == verbs.StateRTS || f.state == verbs.StateSQD {
		if e := &f.qp.resp; e.epsn != f.r.epsn || e.msn != f.r.msn {
			f.t.Fatalf("%s expects PSN %v after %d messages, not %v after %d", f.name, e.epsn, e.msn, f.r.epsn, f.r.msn)
		}
		if una := f.qp.req.una; una != f.q.una {
			f.t.Fatalf("%s: acknowledged up to %v, not %v", f.name, una, f.q.una)
		}
		if f.q.next != f.q.una && !f.q.rewind && f.attr.Timeout != 0 && f.qp.Deadline() == math.MaxInt64 {
			f.t.Fatalf("%s: packets are in flight and no timer runs", f.name)
		}
	} else if f.qp.Deadline() != math.MaxInt64 {
		f.t.Fatalf("%s: a timer runs in %v", f.name, f.state)
	}
	n := len(f.wcs)
	f.wcs = f.wcs[:0]
	if f.room > 0 && n > 0 {
		if f.room -= min(n, f.room); f.room == 0 && f.state != verbs.StateErr {
			f.overflow()
		}
	}
}

// overflow is what a NIC does to a queue pair whose completion queue is full.
func (f *fighter) overflow() {
	f.ended()
	f.qp.Fail(f.d.now, trace.FailCQOverflow)
	f.check(nil)
}

// completions compares those since the last call with the models'.
func (f *fighter) completions() {
	for i := range f.wcs {
		w := &f.wcs[i]
		list := &f.wantSend
		if w.Opcode&verbs.WCRecv != 0 {
			list = &f.wantRecv
		}
		if len(*list) == 0 {
			f.t.Fatalf("%s: a completion of nothing: %+v", f.name, *w)
		}
		want := (*list)[0]
		*list = (*list)[1:]
		ok := w.ID == want.ID && w.Status == want.Status && w.QPN == uint32(f.qp.QPN())
		if want.Status == verbs.WCSuccess {
			want.QPN = w.QPN
			ok = *w == want
		} else if want.Status != verbs.WCWRFlushErr {
			f.d.excused(f.name, want.Status)
		}
		if !ok {
			f.t.Fatalf("%s: completion %+v, not %+v", f.name, *w, want)
		}
	}
	if len(f.wantSend)+len(f.wantRecv) > 0 {
		f.t.Fatalf("%s: missing completions %+v %+v", f.name, f.wantSend, f.wantRecv)
	}
}
