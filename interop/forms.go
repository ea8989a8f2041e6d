package main

import (
	"fmt"

	"github.com/gorxe/gorxe/verbs"
)

// sizes moves messages of lengths around packets' by every operation, and a
// long one of each.
func (w *world) sizes() error {
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	id := uint64(0)
	for _, n := range []int{3, int(w.mtu) - 1, int(w.mtu), int(w.mtu) + 1, 4095, 4097, 12345, regionSize - 4} {
		for _, op := range w.can(verbs.WRWrite, verbs.WRRead, verbs.WRSend) {
			id++
			if err := w.move(m, []transfer{{id: id, op: op, len: n, reqOff: int(id) % 4, rspOff: 3 - int(id)%4}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// lists gathers and scatters: up to 32 pieces of unequal lengths, odd places
// and any order, on either side of a message.
func (w *world) lists() error {
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	for i, n := range []int{2, 3, 7, 32} {
		for k, op := range w.can(verbs.WRWrite, verbs.WRRead, verbs.WRSend) {
			id := uint64(i*3 + k)
			if err := w.listed(m, id, op, n); err != nil {
				return fmt.Errorf("%v with %d pieces: %w", op, n, err)
			}
		}
	}
	return nil
}

// pieces cuts n pieces in random order, apart from each other, and says how
// many octets they have.
func (w *world) pieces(n int) (out [][2]int, total int) {
	for _, i := range w.rng.Perm(n) {
		l := 1 + w.rng.IntN(64)
		if i%3 == 0 {
			l = 1 + w.rng.IntN(9000)
		}
		out = append(out, [2]int{i<<14 + w.rng.IntN(5000), l})
		total += l
	}
	return out, total
}

func (w *world) listed(m *models, id uint64, op verbs.WROpcode, n int) error {
	list, total := w.pieces(n)
	far := [][2]int{{1<<20 - 5, total}}
	if op == verbs.WRSend { // a list there too, with room to spare
		far, _ = w.pieces(31 - n%8)
		far = append(far, [2]int{1<<20 - 5, total})
		if err := w.postRecv(work{id: id, pieces: far}); err != nil {
			return err
		}
	}
	if err := w.post(work{id: id, op: op, pieces: list, remote: w.rsp.mem.Addr() + uint64(far[0][0]), rkey: w.rsp.mem.RKey()}); err != nil {
		return err
	}
	if _, err := w.req.done(id); err != nil {
		return err
	}
	if op == verbs.WRSend {
		if _, err := w.rsp.done(id); err != nil {
			return err
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	from, src, to, dst := m.req, list, m.rsp, far
	e := w.rsp
	if op == verbs.WRRead {
		from, src, to, dst, e = m.rsp, far, m.req, list, w.req
	}
	var data []byte
	for _, s := range src {
		data = append(data, from[s[0]:s[0]+s[1]]...)
	}
	for _, s := range dst {
		data = data[copy(to[s[0]:s[0]+s[1]], data):]
	}
	return e.check(to, 0, regionSize)
}

// unsignaled posts requests that do not complete before one that does, inline data
// among them, whose memory is written over at once.
func (w *world) unsignaled() error {
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	const n, size = 16, 5000
	for round := range 4 {
		var received []uint64
		for i := range n {
			id := uint64(round*n + i)
			r := work{id: id, op: verbs.WRWrite, off: i * size, len: size - i, quiet: i < n-1, remote: w.rsp.mem.Addr() + uint64((n-i)*size), rkey: w.rsp.mem.RKey()}
			switch i % 4 {
			case 1:
				r.op = verbs.WRSend
			case 2:
				r.len, r.flags = 1+w.rng.IntN(400), verbs.SendInline
			case 3:
				r.op, r.imm = verbs.WRWriteImm, uint32(i)
			}
			if r.op != verbs.WRWrite {
				received = append(received, id)
				if err := w.postRecv(work{id: id, off: (n - i) * size, len: size}); err != nil {
					return err
				}
			}
			if err := w.post(r); err != nil {
				return err
			}
			copy(m.rsp[(n-i)*size:], m.req[i*size:i*size+r.len])
			if r.flags != 0 {
				fresh := w.bytes(r.len)
				copy(m.req[i*size:], fresh)
				if err := w.req.mem.Write(i*size, fresh); err != nil {
					return err
				}
			}
		}
		if _, err := w.req.done(uint64(round*n + n - 1)); err != nil {
			return err
		}
		if _, err := w.rsp.done(received...); err != nil {
			return err
		}
		if err := w.req.idle(); err != nil {
			return err
		}
		if err := w.rsp.check(m.rsp, 0, regionSize); err != nil {
			return err
		}
	}
	return nil
}
