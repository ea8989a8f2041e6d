package main

import (
	"bytes"
	"fmt"

	"github.com/gorxe/gorxe/verbs"
)

// share gives the responder a shared receive queue for the queue pairs to come.
func (w *world) share() (err error) {
	w.rsp.srq, err = w.rsp.side.createSRQ()
	if err != nil {
		return fmt.Errorf("responder: shared receive queue: %w", err)
	}
	return nil
}

// postShared posts a receive request to the responder's shared receive queue.
func (w *world) postShared(r work) error {
	r.mem = w.rsp.mem
	if err := w.rsp.srq.recv(&r); err != nil {
		return fmt.Errorf("responder: post shared receive %d: %w", r.id, err)
	}
	return nil
}

// Of a shared receive queue's procedures: queue pairs, messages of each, and
// the place of a receive request in the responder's region.
const (
	srqPairs, srqEach = 4, 16
	srqSlot           = regionSize / (srqPairs * srqEach)
)

// srqRC sends from four queue pairs to four that share their receive requests:
// each message is in the place of the request that its completion names, and
// completes on the queue pair it was sent to, in the order of that.
func (w *world) srqRC() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	if err := w.share(); err != nil {
		return err
	}
	cs, err := w.crowd(srqPairs)
	if err != nil {
		return err
	}
	for round := range 2 {
		for i := range srqPairs * srqEach {
			if err := w.postShared(work{id: uint64(i), off: i * srqSlot, len: srqSlot}); err != nil {
				return err
			}
		}
		var sent []work
		for i := range srqEach {
			for k, c := range cs {
				r := work{id: uint64(i), op: verbs.WRSendImm, off: w.rng.IntN(maxMessage), len: 1 + w.rng.IntN(srqSlot), imm: uint32(k*srqEach + i)}
				if err := c.post(r); err != nil {
					return err
				}
				sent = append(sent, r)
			}
		}
		if err := w.req.all(len(sent)); err != nil {
			return err
		}
		wc, err := w.rsp.take(len(sent))
		if err != nil {
			return err
		}
		next := make([]int, srqPairs)
		for i := range wc {
			k, n := int(wc[i].Imm)/srqEach, int(wc[i].Imm)%srqEach
			if k >= srqPairs || n != next[k] || wc[i].QPN != cs[k].rsp.self.QPN {
				return fmt.Errorf("responder: completion %d is message %d of queue pair %d, on %#x: %+v", i, n, k, cs[k%srqPairs].rsp.self.QPN, wc[i])
			}
			next[k]++
			if err := w.inSlot(m, &sent[n*srqPairs+k], &wc[i], 0); err != nil {
				return err
			}
		}
		if err := w.rsp.check(m.rsp, 0, regionSize); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// srqLate sends while the shared receive queue is empty, from two queue pairs
// in turn: the message waits for a request that comes late.
func (w *world) srqLate() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	if err := w.share(); err != nil {
		return err
	}
	cs, err := w.crowd(2)
	if err != nil {
		return err
	}
	for i := range 6 {
		late := work{id: uint64(i), op: verbs.WRSend, off: 5 * i, len: 1 + 3000*i}
		if err := cs[i%2].post(late); err != nil {
			return err
		}
		if wc, err := w.req.side.poll(1, w.silence/4); err != nil || len(wc) > 0 {
			return fmt.Errorf("a SEND completes with the shared receive queue empty: %+v, %w", wc, err)
		}
		if err := w.postShared(work{id: uint64(i), off: i * srqSlot, len: srqSlot}); err != nil {
			return err
		}
		if _, err := w.req.done(late.id); err != nil {
			return err
		}
		wc, err := w.rsp.done(late.id)
		if err != nil {
			return err
		}
		if err := w.inSlot(m, &late, &wc[0], 0); err != nil {
			return err
		}
	}
	return w.rsp.check(m.rsp, 0, regionSize)
}

// inSlot takes a message into the model, where its completion says, behind so
// many octets before its payload.
func (w *world) inSlot(m *models, r *work, wc *verbs.WC, before int) error {
	if err := wc.Err(); err != nil {
		return err
	}
	at := int(wc.ID)*srqSlot + before
	if int(wc.ByteLen) != before+r.len || at+r.len > regionSize {
		return fmt.Errorf("responder: a message of %d octets completes as %+v", r.len, *wc)
	}
	got, err := w.rsp.mem.Read(at, r.len)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, m.req[r.off:r.off+r.len]) {
		return fmt.Errorf("responder: a message of %d octets is not in the place of receive request %d", r.len, wc.ID)
	}
	copy(m.rsp[at:], got)
	return nil
}

// srqUD sends datagrams to four queue pairs that share their receive requests.
func (w *world) srqUD() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	if err := w.share(); err != nil {
		return err
	}
	var cs []*world
	for range srqPairs {
		if err := w.activate(qkey, qkey); err != nil {
			return err
		}
		c, req, rsp := *w, *w.req, *w.rsp
		c.req, c.rsp = &req, &rsp
		cs = append(cs, &c)
	}
	for i := range srqPairs * srqEach {
		if err := w.postShared(work{id: uint64(i), off: i * srqSlot, len: srqSlot}); err != nil {
			return err
		}
	}
	var sent []*gram
	for i := range srqEach {
		for k, c := range cs {
			g := &gram{id: uint64(i), off: w.rng.IntN(maxMessage), len: w.rng.IntN(int(w.mtu) + 1), imm: 1 + uint32(k*srqEach+i)}
			if err := c.sendGram(g); err != nil {
				return err
			}
			sent = append(sent, g)
		}
	}
	if err := w.req.all(len(sent)); err != nil {
		return err
	}
	wc, err := w.rsp.take(len(sent))
	if err != nil {
		return err
	}
	for i := range wc {
		if err := wc[i].Err(); err != nil {
			return err
		}
		n := int(wc[i].Imm) - 1
		if n < 0 || n >= len(sent) {
			return fmt.Errorf("responder: completion %d: %+v", i, wc[i])
		}
		g := *sent[n%srqEach*srqPairs+n/srqEach]
		g.at = int(wc[i].ID) * srqSlot
		if err := cs[n/srqEach].arrived(m, &g, &wc[i]); err != nil {
			return err
		}
	}
	return w.rsp.check(m.rsp, 0, regionSize)
}
