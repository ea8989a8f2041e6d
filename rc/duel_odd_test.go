package rc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// late delivers a packet of the past once more, perhaps of a connection before.
func (d *duel) late(f *fighter) {
	i := d.moves.n(256)
	if i >= len(d.past) {
		return
	}
	p := d.past[len(d.past)-1-i]
	d.taint()
	if p.DestQP == f.qp.QPN() {
		f.deliver(p)
	} else {
		f.peer.deliver(p)
	}
}

func (d *duel) taint() { d.tainted = true }

// forge delivers a packet that nobody sent: nearly right, or one of the past
// with a field changed.
func (f *fighter) forge() {
	f.d.taint()
	t := &f.d.moves
	p := bth.Packet{Opcode: bth.Opcode(t.n(256)), MigReq: true, PKey: 0xffff, DestQP: f.qp.QPN()}
	near := t.n(256)
	for !p.Opcode.Valid() {
		p.Opcode = p.Opcode / 2 & 0x1f
	}
	if near&0xc0 == 0xc0 && len(f.d.past) > 0 {
		op := p.Opcode
		p = *f.d.past[len(f.d.past)-1-int(op)%len(f.d.past)]
		p.DestQP = f.qp.QPN()
	}
	p.PSN = plus([]bth.PSN{f.r.epsn, f.q.una, f.q.next, f.q.high}[near%4], []int{0, 0, 0, 0, -1, 1, 2, -2, 7, -9, 40, 1 << 22, -1 << 23, 1<<23 - 1, 1 << 12, 3}[near/4%16])
	if near&0xc0 != 0xc0 {
		mtu := int(f.attr.PathMTU)
		what := t.n(256)
		n := []int{0, 1, 4, mtu, mtu, 8, mtu - 1, mtu + 1, 3, mtu / 2, 7, mtu, 12, 5, 1, 0}[what%16]
		p.Payload = bytesOf(n, byte(what))
		p.DMALen = uint32([]int{n, n, n, 0, n + 1, 600, 3 * mtu, mainLen, 1 << 31, 1<<32 - 1, n, 2 * mtu, 1, 8, n - 1, n}[what/16])
		where := t.n(256)
		w := f.regs[0]
		if where&1 != 0 {
			w = f.win
		}
		p.VA, p.RKey = w.iova+uint64([]int{0, 8, 1, w.n - n, w.n - n + 1, w.n, -1, -n, 4096, 1024, 512, -1 << 40, 16, 24, 2048, 0}[where/2%16]), w.key
		if where >= 240 {
			p.RKey ^= 1 << (where % 8 * 4)
		}
		p.AckReq = where&32 == 0
		if p.Info().Has(bth.Response) || p.Opcode >= bth.RCCmpSwap {
			p.Syndrome, p.MSN = bth.Syndrome(t.n(256)), uint32(where)
		}
		p.Inv = f.mw.key + uint32(where&1)
		p.SwapAdd, p.Compare, p.Orig, p.Imm = uint64(what), uint64(where%3), uint64(where)<<40, uint32(what)<<8
		if !p.Info().Has(bth.HasPayload) && what&3 != 3 {
			p.Payload = nil
		}
	}
	p.Pad = uint8(-len(p.Payload) & 3)
	if near == 255 {
		p.Pad ^= 1
	}
	h := p.Info().HdrLen
	b := make([]byte, h+len(p.Payload)+int(p.Pad)+bth.ICRCLen)
	p.PutHeaders(b)
	copy(b[h:], p.Payload)
	q := new(bth.Packet)
	if bth.Parse(b, q) == trace.None {
		f.deliver(q)
	}
}

// drain goes to SQD and back, and changes attributes there.
func (f *fighter) drain() {
	a := verbs.QPAttr{State: verbs.StateSQD}
	how := f.d.moves.n(64)
	switch {
	case f.state == verbs.StateRTS:
		f.modify(&a, verbs.AttrState)
		f.state = verbs.StateSQD
	case f.state != verbs.StateSQD:
		return
	case how%2 == 0:
		a.State = verbs.StateRTS
		f.modify(&a, verbs.AttrState)
		f.state = verbs.StateRTS
	default:
		f.attr.MaxRdAtomic, f.attr.RetryCnt, f.attr.RNRRetry, f.attr.MaxDestRdAtomic = how/2%8, uint8(how/8), uint8(how/8), how*5%8
		a = f.attr
		f.modify(&a, verbs.AttrMaxRdAtomic|verbs.AttrRetryCnt|verbs.AttrRNRRetry|verbs.AttrMaxDestRdAtomic)
		f.r.answers = f.r.answers[max(0, len(f.r.answers)-a.MaxDestRdAtomic):]
		f.q.begun, f.q.rnrs = 0, 0
		for _, w := range f.q.out {
			w.depth = w.depth || w.answered() && a.MaxRdAtomic == 0
		}
		f.d.clean = false
	}
	f.check(nil)
}

// chooseMemory withdraws the region that comes and goes, or gives it back with
// a new key and other rights.
func (f *fighter) chooseMemory() {
	how := f.d.moves.n(16)
	f.d.clean = false
	for i, w := range f.regs {
		if w.key == f.win.key && w.iova == winIOVA {
			f.regs = append(f.regs[:i:i], f.regs[i+1:]...)
			if err := f.mrs.Deregister(w.key); err != nil {
				f.t.Fatal(err)
			}
			f.withdraw()
			break
		}
	}
	if how < 12 {
		f.register(window{iova: winIOVA, at: winAt, n: winLen, access: []verbs.Access{verbs.AccessAll, verbs.AccessLocalWrite, verbs.AccessRemoteRead}[how%3]})
		f.win = f.regs[len(f.regs)-1]
	}
}

// chooseEnd ends a connection, and may begin another.
func (d *duel) chooseEnd(f *fighter, m int) {
	how := d.moves.n(8)
	d.clean = false
	switch {
	case m < 36 && how > 0 && f.state != verbs.StateErr:
		f.room = how
	case m < 36 && f.state != verbs.StateErr:
		f.ended()
		f.modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
		f.check(nil)
	case m == 36: // one side alone begins anew, where it was or elsewhere
		psn := d.psn()
		if how%2 == 0 {
			psn = [2]uint32{f.peer.r.epsn.Uint32(), f.peer.q.next.Uint32()}
		}
		f.reset()
		i := 0
		if f == d.sides[1] {
			i = 1
		}
		d.connectSide(i, psn[0], psn[1])
	case m > 36:
		psn := d.psn()
		if how%2 == 0 { // what is on the way has PSNs of the new one
			psn = [2]uint32{d.sides[0].q.una.Uint32(), d.sides[1].q.una.Uint32()}
		}
		for _, f := range d.sides {
			f.reset()
		}
		d.connect(psn)
	}
}
