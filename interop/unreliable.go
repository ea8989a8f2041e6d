package main

import (
	"bytes"
	"fmt"

	"github.com/gorxe/gorxe/verbs"
)

// overUC makes a procedure one over unreliable connections.
func overUC(run func(*world) error) func(*world) error {
	return func(w *world) error {
		w.typ = verbs.UC
		return run(w)
	}
}

// can returns the operations that the queue pairs have: UC has no READ.
func (w *world) can(ops ...verbs.WROpcode) []verbs.WROpcode {
	if w.typ != verbs.UC {
		return ops
	}
	var out []verbs.WROpcode
	for _, op := range ops {
		if op != verbs.WRRead {
			out = append(out, op)
		}
	}
	return out
}

// settle waits until all that was sent over UC has arrived: there a completion
// says that it has left. Behind an empty SEND it has.
func (w *world) settle() error {
	if w.typ != verbs.UC {
		return nil
	}
	const id = 1 << 40
	if err := w.postRecv(work{id: id}); err != nil {
		return err
	}
	if err := w.post(work{id: id, op: verbs.WRSend}); err != nil {
		return err
	}
	if _, err := w.req.done(id); err != nil {
		return err
	}
	_, err := w.rsp.done(id)
	return err
}

// ucDropped sends what an unreliable connection cannot deliver: the requester
// completes all the same, the responder drops it, no memory but that of an
// earlier packet of the message changes, and both queue pairs live on.
func (w *world) ucDropped() error {
	w.typ = verbs.UC
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	addr, key := w.rsp.mem.Addr(), w.rsp.mem.RKey()
	for i, c := range []struct {
		name string
		r    work
		room int // of a receive request, 0 for none
	}{
		{"WRITE, wrong rkey", work{op: verbs.WRWrite, len: 100, remote: addr, rkey: key ^ 0x5a00}, 0},
		{"WRITE of several packets, wrong rkey", work{op: verbs.WRWrite, len: 5000, remote: addr, rkey: key ^ 0x5a00}, 0},
		{"WRITE beyond", work{op: verbs.WRWrite, len: 5000, remote: addr + regionSize - 4999, rkey: key}, 0},
		{"SEND without a receive request", work{op: verbs.WRSend, len: 100}, 0},
		{"SEND of several packets without a receive request", work{op: verbs.WRSend, len: 5000}, 0},
		{"WRITE with immediate data, wrong rkey", work{op: verbs.WRWriteImm, len: 100, imm: 7, remote: addr, rkey: key ^ 0x5a00}, 0},
	} {
		r := c.r
		r.id = uint64(i)
		if err := w.post(r); err != nil {
			return err
		}
		if _, err := w.req.done(r.id); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if wc, err := w.rsp.side.poll(1, w.silence/4); err != nil || len(wc) > 0 {
			return fmt.Errorf("responder: %s completes as %+v, %w", c.name, wc, err)
		}
		if err := w.states(verbs.StateRTS, verbs.StateRTS); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := w.rsp.check(m.rsp, 0, regionSize); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		ok := transfer{id: r.id, op: verbs.WRSend, len: 4000, reqOff: 1000 * i, rspOff: 100000 + 5000*i}
		if err := w.move(m, []transfer{ok}); err != nil {
			return fmt.Errorf("a SEND after %s: %w", c.name, err)
		}
	}
	return nil
}

// ucLossy sends messages over a network that loses packets: what is received
// is whole and in order, what is not is counted.
func (w *world) ucLossy() error {
	w.typ = verbs.UC
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	const together, slots = 20, 32768
	sent, got, odd := 0, 0, 0
	for round := range 12 {
		if err := w.connect(w.rng.Uint32() & 0xffffff); err != nil {
			return err
		}
		m, err := w.filled()
		if err != nil {
			return err
		}
		// SENDs and WRITEs with immediate data in turn; each WRITE has a place of its
		// own in the first half.
		var ws []work
		for i := range together {
			if err := w.postRecv(work{id: uint64(i), off: received + i*slots, len: slots}); err != nil {
				return err
			}
			r := work{id: uint64(i), op: verbs.WRSendImm, off: w.rng.IntN(maxMessage - slots), len: 1 + w.rng.IntN(12*int(w.mtu)), imm: uint32(i)}
			if i%2 == 1 {
				r.op, r.remote, r.rkey = verbs.WRWriteImm, w.rsp.mem.Addr()+uint64(i*slots), w.rsp.mem.RKey()
			}
			r.len = min(r.len, slots)
			ws = append(ws, r)
		}
		sent += together
		if err := w.post(ws...); err != nil {
			return err
		}
		if err := w.req.all(together); err != nil {
			return err
		}
		wc, err := w.rsp.side.poll(together, w.silence)
		if err != nil {
			return err
		}
		n, o, err := w.whole(m, ws, wc, slots)
		if err != nil {
			return err
		}
		got, odd = got+n, odd+o
		w.note = fmt.Sprintf("%d messages, %d arrived, %d again or out of order", sent, got, odd)
		for _, e := range []*end{w.req, w.rsp} {
			if err := e.qp.Destroy(); err != nil {
				return err
			}
		}
		if round >= 3 && got < sent {
			break
		}
	}
	// Few, since rxe takes nothing more on a queue pair after half a WRITE.
	if got == sent || got < sent/10 {
		return fmt.Errorf("the network was to lose some: %s", w.note)
	}
	to, from, err := w.lost()
	if err != nil {
		return err
	}
	w.note += fmt.Sprintf("; lost %d packets to the guest, %d from it", to, from)
	return nil
}

// whole checks messages that were received, and returns how many different ones
// there are, and how many come again or too late: each has all its octets in the place of its receive request, or its
// own. At our end they are in order and none is there twice; rxe takes whatever
// begins a message.
func (w *world) whole(m *models, ws []work, wc []verbs.WC, slots int) (n, odd int, err error) {
	_, rxe := w.rsp.side.(kernel)
	last, seen := -1, map[int]bool{}
	for k := range wc {
		c := &wc[k]
		if err := c.Err(); err != nil {
			return 0, 0, err
		}
		i := int(c.Imm)
		if i >= len(ws) || i <= last && !rxe {
			return 0, 0, fmt.Errorf("responder: message %d comes after message %d", i, last)
		}
		if i <= last {
			odd++
		}
		last, seen[i] = max(i, last), true
		r, off := &ws[i], received+int(c.ID)*slots
		want := verbs.WCRecv
		if r.op == verbs.WRWriteImm {
			want, off = verbs.WCRecvWriteImm, int(r.remote-w.rsp.mem.Addr())
		}
		if c.Opcode != want || int(c.ByteLen) != r.len {
			return 0, 0, fmt.Errorf("responder: %v of %d octets completes as %+v", r.op, r.len, *c)
		}
		got, err := w.rsp.mem.Read(off, r.len)
		if err != nil {
			return 0, 0, err
		}
		if !bytes.Equal(got, m.req[r.off:r.off+r.len]) {
			return 0, 0, fmt.Errorf("responder: %v %d of %d octets is not what was sent", r.op, i, r.len)
		}
	}
	return len(seen), odd, nil
}
