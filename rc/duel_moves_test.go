package rc

import (
	"github.com/gorxe/gorxe/verbs"
)

// tape is the octets that decide a duel: one for a decision, 0 for the
// uneventful one, which is also what follows when they are used up.
type tape []byte

// n returns a number below n, which is at most 256.
func (t *tape) n(n int) int {
	if len(*t) == 0 {
		return 0
	}
	v := int((*t)[0])
	*t = (*t)[1:]
	return v % n
}

// settings chooses what the two are made of and connect with.
func (d *duel) settings() {
	mtu := []verbs.MTU{256, 1024, 4096, 512, 2048}[d.moves.n(5)]
	retries, timers, depths, odd := d.moves.n(64), d.moves.n(16), d.moves.n(64), d.moves.n(256)
	d.hungry = d.moves.n(16)
	d.conn = func(a *verbs.QPAttr) {
		a.PathMTU = mtu
		a.RetryCnt, a.RNRRetry = uint8(7-retries%8), uint8(7-retries/8)
		a.Timeout = []uint8{14, 1, 0, 20}[timers%4]
		a.MinRNRTimer = []uint8{12, 1, 0, 31}[timers/4]
		a.MaxRdAtomic = []int{4, 1, 2, 16, 0, 3, 8, 128}[depths%8]
		a.MaxDestRdAtomic = a.MaxRdAtomic
		a.FlowControl = odd&1 != 0
	}
	if retries/8 != 0 {
		d.allowed[verbs.WCRNRRetryExcErr] = true
	}
	d.own = [2]func(*verbs.QPAttr){func(*verbs.QPAttr) {}, func(a *verbs.QPAttr) {
		if depths/8 != 0 {
			d.allowed[verbs.WCRemInvReqErr], d.allowed[verbs.WCRetryExcErr] = true, true // what is asked for again may be forgotten
			a.MaxDestRdAtomic = depths/8 - 1
		}
		if odd&2 != 0 {
			a.FlowControl = !a.FlowControl
		}
		if odd&4 != 0 {
			d.allowed[verbs.WCRemInvReqErr] = true
			a.Access &^= []verbs.Access{verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic}[odd%3]
		}
	}}
	for i, f := range d.sides {
		if odd&8 != 0 {
			f.qp.cfg.Window = 1 + odd>>4
		}
		if odd&(16<<i) != 0 {
			f.qp.cfg.Habits = Habits(odd >> 5 & 7)
		}
	}
}

// psn chooses first PSNs: most are about to wrap.
func (d *duel) psn() (p [2]uint32) {
	for i := range p {
		if v := d.moves.n(256); v < 200 {
			p[i] = 0xffffff - uint32(v)
		} else {
			p[i] = uint32(v) * 0x9e377 & 0xffffff
		}
	}
	return p
}

// play makes the moves of the tape.
func (d *duel) play() {
	// What is forged or late, what changes, and what ends may be left out.
	odd := d.moves.n(8)
	for n := 0; len(d.moves) > 0 && n < 300; n++ {
		f := d.sides[d.moves.n(2)]
		m := d.moves.n(40)
		if m > 33 && odd&1 == 0 || m > 28 && odd&2 == 0 || m > 24 && odd&4 == 0 {
			m %= 25
		}
		switch {
		case m < 7:
			f.choosePost()
		case m < 9:
			f.chooseWindow()
		case m < 11:
			f.chooseRecv()
		case m < 14:
			d.pump()
		case m < 17:
			how := d.moves.n(256)
			f.transmit(1+how%3, how>>2&15, []int{0, 0, 1, 5}[how>>6], how)
		case m < 21:
			f.choosePacket()
		case m < 23:
			v := d.moves.n(96)
			f.mishaps = append(f.mishaps, mishap{v / 3, v % 3})
		case m < 25:
			d.advance()
		case m < 28:
			f.forge()
		case m < 29:
			d.late(f)
		case m < 31:
			f.drain()
		case m < 34:
			f.chooseMemory()
		default:
			d.chooseEnd(f, m)
		}
	}
}

// length chooses how long a message is.
func (f *fighter) length() int {
	mtu := int(f.attr.PathMTU)
	v := f.d.moves.n(256)
	switch {
	case v < 32:
		return v
	case v < 64:
		return mtu + v - 48
	case v < 96:
		return 2*mtu + v - 80
	case v < 128:
		return min((v-95)*mtu, mainLen)
	}
	return min(v*40, mainLen)
}

func (f *fighter) sgeOf(addr uint64, n int, key uint32) verbs.SGE {
	return verbs.SGE{Addr: addr, Length: uint32(n), LKey: key}
}

// list chooses up to four pieces of memory, n octets together; some are empty,
// and have any key.
func (f *fighter) list(n int) (sgl []verbs.SGE) {
	how := f.d.moves.n(256)
	if n == 0 && how&3 == 0 {
		return nil
	}
	at, w := how*37, f.regs[0]
	if how&64 != 0 && n <= winLen {
		w = f.win
	}
	cut := func(k int) {
		at %= w.n - k + 1
		sgl = append(sgl, f.sgeOf(w.iova+uint64(at), k, w.key))
		n -= k
		at += k + how%5
	}
	for range how & 3 {
		switch how >> 2 & 3 {
		case 0:
			cut(n / 2)
		case 1:
			sgl = append(sgl, verbs.SGE{LKey: 99})
		default:
			cut(min(n, 1+how%7))
		}
	}
	cut(n)
	if how == 255 {
		sgl[0].LKey ^= 1
	}
	return sgl
}

// choosePost posts a send request.
func (f *fighter) choosePost() {
	how := f.d.moves.n(256)
	w := verbs.SendWR{Flags: verbs.SendSignaled, Imm: uint32(how) * 0x01010101}
	w.Opcode = []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRRead, verbs.WRFetchAdd, verbs.WRWriteImm, verbs.WRCmpSwap, verbs.WRSendImm, verbs.WRRead}[how%8]
	if how&8 != 0 {
		w.Flags |= verbs.SendFence
	}
	if how&0x70 == 0x70 {
		w.Flags &^= verbs.SendSignaled
	}
	there := f.peer.regs[0]
	if how&0x80 != 0 {
		there = f.peer.win
	}
	n := 8
	if w.Opcode < verbs.WRCmpSwap {
		n = f.length()
	} else if how == 0xf3 {
		n = 9
	}
	if how&0x8f == 0x81 || how&0x8f == 0x82 { // by a memory window, which may come or go meanwhile
		f.d.allowed[verbs.WCRemAccessErr] = true
		if there = f.peer.mw.window; there.n == 0 {
			there.n = winLen
		}
	}
	if there.n < n {
		there = f.peer.regs[0]
	}
	at := f.d.moves.n(256) * 41 % (there.n - n + 1)
	if n == 8 && w.Opcode >= verbs.WRCmpSwap {
		at &^= 7
		if there.iova == winIOVA {
			f.d.allowed[verbs.WCRemInvReqErr] = true
		}
		w.CompareAdd, w.Swap = uint64(at/8%3), uint64(how)
	}
	w.RemoteAddr, w.RKey = there.iova+uint64(at), there.key
	if how&0x30 == 0x30 && n <= 64 && w.Opcode <= verbs.WRSendImm {
		w.Flags |= verbs.SendInline
		w.Inline = bytesOf(n, byte(how))
	} else {
		w.SGL = f.list(n)
	}
	if f.state != verbs.StateReset {
		f.postSend(w)
	}
}

// chooseRecv posts receive requests, some of them short.
func (f *fighter) chooseRecv() {
	how := f.d.moves.n(256)
	for range 1 + how%4 {
		n := mainLen
		if how >= 128 {
			n = f.length()
			f.d.allowed[verbs.WCRemInvReqErr], f.d.allowed[verbs.WCLocLenErr] = true, true
		}
		sgl := f.list(n)
		if how&64 != 0 || !f.readable(sgl) {
			f.d.allowed[verbs.WCRemOpErr], f.d.allowed[verbs.WCLocProtErr] = true, true
		}
		f.postRecv(sgl)
	}
}

func (f *fighter) readable(sgl []verbs.SGE) bool {
	_, ok := f.pieces(sgl, 0, octets(sgl), verbs.AccessLocalWrite)
	return ok
}

// choosePacket delivers, loses or repeats one packet on the way to a side.
func (f *fighter) choosePacket() {
	how := f.d.moves.n(256)
	if len(f.to) == 0 {
		return
	}
	i := how / 4 % len(f.to)
	p := f.to[i]
	if i > 0 {
		f.d.troubles++
	}
	if how%4 != 3 {
		f.to = append(f.to[:i:i], f.to[i+1:]...)
	}
	if how%4 == 2 {
		f.d.troubles++
		f.d.past = append(f.d.past, p)
		return
	}
	f.deliver(p)
}
