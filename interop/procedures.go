package main

import (
	"encoding/binary"
	"fmt"

	"github.com/gorxe/gorxe/verbs"
)

// procedures are what the cases of the group verbs do, by name.
var procedures = map[string]func(*world) error{
	"write-200":   func(w *world) error { return w.random(200, verbs.WRWrite) },
	"read-200":    func(w *world) error { return w.random(200, verbs.WRRead) },
	"send-200":    func(w *world) error { return w.random(200, verbs.WRSend) },
	"mixed-20":    func(w *world) error { return w.random(20, verbs.WRWrite, verbs.WRRead, verbs.WRSend) },
	"immediate":   (*world).immediate,
	"zero-length": (*world).zeroLength,
	"atomics":     (*world).atomics,
	"psn-wrap":    (*world).psnWrap,
	"wrong-rkey":  (*world).wrongKey,
	"sizes":       (*world).sizes,
	"lists":       (*world).lists,
	"unsignaled":  (*world).unsignaled,
	"both-ways":   (*world).bothWays,
	"sum":         (*world).sum,
	"depths":      (*world).depths,
	"not-ready":   (*world).notReady,
	"never-ready": (*world).neverReady,
	"vanishes":    (*world).vanishes,
	"restarts":    (*world).restarts,
	"refused":     (*world).refused,
	"refused-own": (*world).refusedHere,
	"guest-netem": (*world).lossy,
	"our-faults":  (*world).lossy,

	"uc-write-30":  overUC(func(w *world) error { return w.random(30, verbs.WRWrite) }),
	"uc-send-30":   overUC(func(w *world) error { return w.random(30, verbs.WRSend) }),
	"uc-immediate": overUC((*world).immediate),
	"uc-sizes":     overUC((*world).sizes),
	"uc-lists":     overUC((*world).lists),
	"uc-psn-wrap":  overUC((*world).psnWrap),
	"uc-dropped":   (*world).ucDropped,
	"uc-loss":      (*world).ucLossy,

	"ud-sizes":   (*world).udSizes,
	"ud-many":    (*world).udMany,
	"ud-reply":   (*world).udReply,
	"ud-qkey":    (*world).udQKey,
	"ud-no-room": (*world).udNoRoom,
	"ud-loss":    (*world).udLossy,

	"srq-rc": (*world).srqRC,
	"srq-ud": (*world).srqUD,

	"srq-late": (*world).srqLate,

	"events":  (*world).events,
	"silent":  (*world).silent,
	"late":    (*world).late,
	"answers": (*world).answers,
	"replies": (*world).replies,
	"strays":  (*world).strayed,

	"windows": (*world).windows,

	"marks":         (*world).jammed,
	"marks-of-ours": (*world).jammed,
	"not-ect":       (*world).jammed,
	"no-marks":      (*world).jammed,
	"slow-line":     (*world).jammed,
	"forged-cnps":   (*world).forgedCNPs,

	"group":       (*world).multicast,
	"mckey":       (*world).mckey,
	"two-of-ours": (*world).twoOfOurs,
}

// models are what the two regions should hold.
type models struct{ req, rsp []byte }

// filled makes regions of random octets on both ends.
func (w *world) filled() (*models, error) {
	m := &models{w.bytes(regionSize), w.bytes(regionSize)}
	if err := w.req.fill(m.req); err != nil {
		return nil, err
	}
	return m, w.rsp.fill(m.rsp)
}

// transfer is a message of random: its data, where it comes from and goes to.
type transfer struct {
	id          uint64
	op          verbs.WROpcode
	reqOff, len int
	rspOff      int
}

// batch is how many requests are posted before their completions are awaited.
// Where a READ may bring data that a WRITE sends on, it is one: without a fence
// nobody promises which data that is.
const batch = 8

// random does n transfers of random lengths between random offsets, the
// operations in turn, and compares memory at both ends.
func (w *world) random(n int, ops ...verbs.WROpcode) error {
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	total, together := 0, batch
	if len(ops) > 1 || w.typ == verbs.UC { // without acknowledgements a guest is soon given too much
		together = 1
	}
	for first := 0; first < n; first += together {
		var ts []transfer
		for i := first; i < min(first+together, n); i++ {
			t := transfer{id: uint64(i), op: ops[i%len(ops)], len: w.length()}
			t.reqOff, t.rspOff = w.rng.IntN(maxMessage), w.rng.IntN(maxMessage)
			ts = append(ts, t)
			total += t.len
		}
		if err := w.move(m, ts); err != nil {
			return err
		}
	}
	w.note = fmt.Sprintf("%d transfers, %d KiB", n, total>>10)
	if err := w.req.check(m.req, 0, regionSize); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	if err := w.rsp.check(m.rsp, 0, regionSize); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	return nil
}

// move posts transfers together, awaits them, and compares what each changed.
func (w *world) move(m *models, ts []transfer) error {
	var sent, received []uint64
	for _, t := range ts {
		if t.op == verbs.WRSend {
			if err := w.postRecv(work{id: t.id, off: t.rspOff, len: t.len}); err != nil {
				return err
			}
			received = append(received, t.id)
		}
	}
	for _, t := range ts {
		if err := w.post(work{id: t.id, op: t.op, off: t.reqOff, len: t.len, remote: w.rsp.mem.Addr() + uint64(t.rspOff), rkey: w.rsp.mem.RKey()}); err != nil {
			return err
		}
		sent = append(sent, t.id)
		// In order, as the operations are carried out.
		if t.op == verbs.WRRead {
			copy(m.req[t.reqOff:], m.rsp[t.rspOff:t.rspOff+t.len])
		} else {
			copy(m.rsp[t.rspOff:], m.req[t.reqOff:t.reqOff+t.len])
		}
	}
	if _, err := w.req.done(sent...); err != nil {
		return err
	}
	wc, err := w.rsp.done(received...)
	if err != nil {
		return err
	}
	for i, c := range wc {
		for _, t := range ts {
			if t.id == received[i] && int(c.ByteLen) != t.len {
				return fmt.Errorf("responder: receive %d has %d octets, not %d", t.id, c.ByteLen, t.len)
			}
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	for _, t := range ts {
		e, model, off := w.rsp, m.rsp, t.rspOff
		if t.op == verbs.WRRead {
			e, model, off = w.req, m.req, t.reqOff
		}
		if err := e.check(model, off, t.len); err != nil {
			return fmt.Errorf("%v %d of %d octets: %w", t.op, t.id, t.len, err)
		}
	}
	return nil
}

// immediate sends data with immediate data, by SEND and by WRITE, of one
// packet and of several.
func (w *world) immediate() error {
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	id := uint64(0)
	for _, n := range []int{0, 1, 5, 1024, 9999} {
		for _, op := range []verbs.WROpcode{verbs.WRSendImm, verbs.WRWriteImm} {
			id++
			imm := uint32(0x11223344) + uint32(id)
			off := int(id) << 14
			want := verbs.WCRecv
			if op == verbs.WRWriteImm {
				want = verbs.WCRecvWriteImm
			}
			// A WRITE consumes the request, but not its buffer.
			if err := w.postRecv(work{id: id, off: off, len: n}); err != nil {
				return err
			}
			if err := w.post(work{id: id, op: op, off: 77, len: n, imm: imm, remote: w.rsp.mem.Addr() + uint64(off), rkey: w.rsp.mem.RKey()}); err != nil {
				return err
			}
			if _, err := w.req.done(id); err != nil {
				return err
			}
			wc, err := w.rsp.done(id)
			if err != nil {
				return err
			}
			c := wc[0]
			if c.Flags&verbs.WCWithImm == 0 || c.Imm != imm || c.Opcode != want || int(c.ByteLen) != n {
				return fmt.Errorf("responder: %v of %d octets with %#x completes as %+v", op, n, imm, c)
			}
			copy(m.rsp[off:], m.req[77:77+n])
			if err := w.rsp.check(m.rsp, off, n); err != nil {
				return fmt.Errorf("%v: %w", op, err)
			}
		}
	}
	return nil
}

// zeroLength does operations without data, which need no right key.
func (w *world) zeroLength() error {
	if err := w.ready(4096); err != nil {
		return err
	}
	before := w.bytes(4096)
	if err := w.req.fill(before); err != nil {
		return err
	}
	if err := w.rsp.fill(before); err != nil {
		return err
	}
	for i, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRRead, verbs.WRSend, verbs.WRRead, verbs.WRWrite} {
		id := uint64(i)
		if op == verbs.WRSend {
			if err := w.postRecv(work{id: id, off: 0, len: 128}); err != nil {
				return err
			}
		}
		if err := w.post(work{id: id, op: op, remote: w.rsp.mem.Addr(), rkey: w.rsp.mem.RKey()}); err != nil {
			return err
		}
		if _, err := w.req.done(id); err != nil {
			return fmt.Errorf("%v: %w", op, err)
		}
		if op == verbs.WRSend {
			wc, err := w.rsp.done(id)
			if err != nil {
				return err
			}
			if wc[0].ByteLen != 0 {
				return fmt.Errorf("responder: %d octets received, none sent", wc[0].ByteLen)
			}
		}
	}
	if err := w.req.check(before, 0, 4096); err != nil {
		return err
	}
	return w.rsp.check(before, 0, 4096)
}

// atomics does FetchAdd and CmpSwap on a value whose octets all differ, so
// that a wrong order of octets shows.
func (w *world) atomics() error {
	if err := w.ready(4096); err != nil {
		return err
	}
	const first = 0x0102030405060708
	value := uint64(first)
	if err := w.rsp.fill(word(value)); err != nil {
		return err
	}
	steps := []struct {
		op        verbs.WROpcode
		add, swap uint64
		after     uint64
	}{
		{verbs.WRFetchAdd, 0x1010101010101010, 0, first + 0x1010101010101010},
		{verbs.WRFetchAdd, ^uint64(0), 0, first + 0x1010101010101010 - 1},
		{verbs.WRCmpSwap, first, 0xdead, first + 0x1010101010101010 - 1}, // does not compare
		{verbs.WRCmpSwap, first + 0x1010101010101010 - 1, first, first},
		{verbs.WRFetchAdd, 0, 0, first},
	}
	for i, s := range steps {
		id := uint64(i)
		if err := w.post(work{id: id, op: s.op, off: 64, len: 8, add: s.add, swap: s.swap, remote: w.rsp.mem.Addr(), rkey: w.rsp.mem.RKey()}); err != nil {
			return err
		}
		if _, err := w.req.done(id); err != nil {
			return fmt.Errorf("%v: %w", s.op, err)
		}
		old, err := w.req.mem.Read(64, 8)
		if err != nil {
			return err
		}
		if got := binary.NativeEndian.Uint64(old); got != value {
			return fmt.Errorf("step %d, %v: returned %#016x, not %#016x", i, s.op, got, value)
		}
		now, err := w.rsp.mem.Read(0, 8)
		if err != nil {
			return err
		}
		if got := binary.NativeEndian.Uint64(now); got != s.after {
			return fmt.Errorf("step %d, %v: memory holds %#016x, not %#016x", i, s.op, got, s.after)
		}
		value = s.after
	}
	return nil
}

func word(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

// psnWrap starts sixteen packets before PSNs wrap, with messages that straddle
// that point both ways.
func (w *world) psnWrap() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	for i, ops := range [][]verbs.WROpcode{{verbs.WRWrite, verbs.WRRead}, {verbs.WRRead, verbs.WRSend}, {verbs.WRSend, verbs.WRWrite}} {
		ops = w.can(ops...)
		if err := w.connect(0xfffff0); err != nil {
			return err
		}
		m, err := w.filled()
		if err != nil {
			return err
		}
		var ts []transfer
		for k := range 4 { // 10 packets each: the second one wraps
			ts = append(ts, transfer{id: uint64(i*4 + k), op: ops[k%len(ops)], len: 10*int(w.mtu) - 3, reqOff: 1000 + k<<17, rspOff: 3000 + k<<17})
		}
		if err := w.move(m, ts); err != nil {
			return fmt.Errorf("%v first: %w", ops[0], err)
		}
	}
	return nil
}

// wrongKey reaches for memory with a wrong key, and beyond the end with the
// right one: the requester is told of a remote access error, both queue pairs
// are in ERR, and memory has not changed.
func (w *world) wrongKey() error {
	if err := w.setUp(4096); err != nil {
		return err
	}
	before := w.bytes(4096)
	if err := w.rsp.fill(before); err != nil {
		return err
	}
	key, addr := w.rsp.mem.RKey(), w.rsp.mem.Addr()
	for i, r := range []work{
		{op: verbs.WRWrite, len: 100, remote: addr, rkey: key ^ 0x5a00},
		{op: verbs.WRWrite, len: 3000, remote: addr, rkey: key ^ 0x5a},
		{op: verbs.WRRead, len: 100, remote: addr, rkey: key ^ 0x5a00},
		{op: verbs.WRFetchAdd, len: 8, remote: addr, rkey: key ^ 0x5a00, add: 1},
		{op: verbs.WRWrite, len: 100, remote: addr + 4096 - 99, rkey: key},
		{op: verbs.WRRead, len: 100, remote: addr - 1, rkey: key},
	} {
		if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
			return err
		}
		r.id = uint64(i)
		if err := w.post(r); err != nil {
			return err
		}
		wc, err := w.req.take(1)
		if err != nil {
			return err
		}
		if wc[0].ID != r.id || wc[0].Status != verbs.WCRemAccessErr {
			return fmt.Errorf("requester: %v with a wrong key or range completes with %v, not %v (case %d)", r.op, wc[0].Status, verbs.WCRemAccessErr, i)
		}
		for _, e := range []*end{w.req, w.rsp} {
			st, err := e.qp.State()
			if err != nil {
				return err
			}
			if st != verbs.StateErr {
				return fmt.Errorf("%s: queue pair is in %v, not ERR, after case %d (%v)", e.name, st, i, r.op)
			}
		}
		if err := w.rsp.idle(); err != nil {
			return err
		}
		if err := w.rsp.check(before, 0, 4096); err != nil {
			return err
		}
	}
	return nil
}

// Rounds of lossy transfers: enough to be worth looking at, and a limit.
const (
	minRounds = 2
	maxRounds = 12
)

// lossy moves a megabyte each way by WRITE, READ and SEND, again until packets
// were lost both ways.
func (w *world) lossy() error {
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	for round := range maxRounds {
		for i, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRRead, verbs.WRSend} {
			off := w.rng.IntN(maxMessage)
			t := transfer{id: uint64(round*3 + i), op: op, len: maxMessage, reqOff: maxMessage - off, rspOff: off}
			if err := w.move(m, []transfer{t}); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		to, from, err := w.lost()
		if err != nil {
			return err
		}
		w.note = fmt.Sprintf("%d MiB; lost %d packets to the guest, %d from it", 3*(round+1), to, from)
		if round+1 >= minRounds && to > 0 && from > 0 {
			return nil
		}
	}
	return fmt.Errorf("the network was to lose packets both ways: %s", w.note)
}
