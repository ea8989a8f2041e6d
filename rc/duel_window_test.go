package rc

import (
	"github.com/gorxe/gorxe/verbs"
)

// memWindow is a side's memory window of type 2 as the model sees it: the key
// that it has, and what it gives access to while it is bound.
type memWindow struct {
	window
	bound bool
}

func (f *fighter) allocWindow() {
	w, err := f.mrs.AllocWindow(1, verbs.MWType2)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mw.key = w.Key()
}

// invalidate frees the window, if it is bound and has this key.
func (f *fighter) invalidate(key uint32) bool {
	if !f.mw.bound || f.mw.key != key {
		return false
	}
	f.mw.bound = false
	for i := range f.regs {
		if f.regs[i].key == key {
			f.regs = append(f.regs[:i:i], f.regs[i+1:]...)
			break
		}
	}
	return true
}

// bind binds the window. IBA 10.6.7.2.
func (f *fighter) bind(b verbs.Bind) bool {
	r := f.regs[0]
	off := b.Addr - r.iova
	if f.mw.bound || b.Key != f.mw.key || b.NewKey>>8 != b.Key>>8 || b.LKey != r.key || b.Length == 0 || off > uint64(r.n) || b.Length > uint64(r.n)-off {
		return false
	}
	f.mw.bound = true
	f.mw.window = window{key: b.NewKey, iova: b.Addr, at: r.at + int(off), n: int(b.Length), access: b.Access}
	if b.Access&verbs.AccessZeroBased != 0 {
		f.mw.iova = 0
	}
	f.regs = append(f.regs, f.mw.window)
	return true
}

// chooseWindow posts what binds the window or has it invalidated, at this end or
// by a SEND to the other.
func (f *fighter) chooseWindow() {
	how := f.d.moves.n(256)
	f.d.allowed[verbs.WCMWBindErr], f.d.allowed[verbs.WCRemInvReqErr], f.d.allowed[verbs.WCRemAccessErr] = true, true, true
	w := verbs.SendWR{Flags: verbs.SendSignaled}
	if how&4 != 0 {
		w.Flags |= verbs.SendFence
	}
	switch how % 4 {
	case 0, 1:
		w.Opcode = verbs.WRBindMW
		w.Bind = verbs.Bind{Key: f.mw.key, NewKey: f.mw.key ^ f.mw.key&0xff | uint32(how), LKey: f.regs[0].key, Addr: mainIOVA + uint64(how*8), Length: uint64(how * 16), Access: verbs.AccessAll &^ verbs.AccessLocalWrite}
		switch how >> 3 & 7 {
		case 0:
			w.Bind.Access |= verbs.AccessZeroBased
		case 1:
			w.Bind.Access = verbs.AccessRemoteRead
		case 2:
			w.Bind.Length = mainLen
		}
	case 2:
		w.Opcode, w.Imm = verbs.WRLocalInv, f.mw.key
	default:
		w.Opcode, w.Imm = verbs.WRSendInv, f.peer.mw.key
		w.SGL = f.list(f.length())
	}
	if how >= 240 {
		w.Imm ^= 1 << (how & 7)
		w.Bind.Key = w.Imm
	}
	f.postSend(w)
}

// locals carries out in the model the local operations that the engine has
// carried out since the last call, or failed at.
func (q *requests) locals() {
	e := &q.f.qp.req
	before, other := false, false
	for _, w := range q.out {
		if !w.local() {
			before, other = before || w.answered(), true
		}
		if !w.local() || w.ran || w.bad != 0 || int32(e.tail-w.index) <= 0 {
			continue
		}
		x := e.at(w.index)
		if !x.ran && x.Bad == verbs.WCSuccess {
			continue
		}
		if w.Flags&verbs.SendFence != 0 && (before || other && w.Opcode == verbs.WRLocalInv) {
			q.f.t.Fatalf("%s: %v is carried out before what it waits for", q.f.name, w.Opcode)
		}
		ok := false
		if w.Opcode == verbs.WRBindMW {
			ok = q.f.bind(w.Bind)
		} else {
			ok = q.f.invalidate(w.Imm)
		}
		if ok != x.ran {
			q.f.t.Fatalf("%s: %v %+v of key %#x: done %v, not %v", q.f.name, w.Opcode, w.Bind, w.Imm, x.ran, ok)
		}
		if w.ran = ok; !ok {
			w.bad = verbs.WCMWBindErr
		}
	}
	q.retire()
}
