package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe/verbs"
)

// The Q_Key of the queue pairs, and where datagrams are in the regions: sent
// from the first half, received in the second.
const (
	qkey     = 0x11111111
	received = maxMessage
	slot     = 8192 // room of a received datagram
)

// activate makes a UD queue pair at each end, with a Q_Key of its own.
func (w *world) activate(req, rsp uint32) error {
	for _, p := range []struct {
		e, far *end
		key    uint32
	}{{w.req, w.rsp, req}, {w.rsp, w.req, rsp}} {
		var err error
		if p.e.qp, err = p.e.side.createQP(verbs.UD, p.e.srq); err != nil {
			return fmt.Errorf("%s: queue pair: %w", p.e.name, err)
		}
		psn := w.rng.Uint32()&0xffffff | 1
		if err := p.e.qp.Activate(verbs.DatagramOptions{QKey: p.key, PSN: psn}); err != nil {
			return fmt.Errorf("%s: activate: %w", p.e.name, err)
		}
		if p.e.self, err = p.e.qp.local(p.far.addr, psn); err != nil {
			return fmt.Errorf("%s: %w", p.e.name, err)
		}
	}
	return nil
}

// datagrams registers regions that peers have no right to, activates with one
// Q_Key, and fills the regions.
func (w *world) datagrams() (*models, error) {
	if err := w.regions(regionSize, verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if err := w.activate(qkey, qkey); err != nil {
		return nil, err
	}
	return w.filled()
}

// gram is a datagram: octets of the requester's region to a place in the
// responder's.
type gram struct {
	id      uint64
	off     int
	len     int
	imm     uint32 // 0 for none
	class   uint8  // traffic class, DSCP alone
	key     uint32 // Q_Key, 0 for the usual
	at      int    // in the responder's region: the 40 octets before the payload
	room    int    // of the receive request, 0 for exactly enough
	flagged verbs.SendFlags
	group   verbs.GID // instead of the responder
}

// goesTo returns where a datagram goes.
func (w *world) goesTo(g *gram) (verbs.GID, uint32) {
	if g.group != (verbs.GID{}) {
		return g.group, groupQPN
	}
	return w.rsp.self.GID, w.rsp.self.QPN
}

// postGram posts its receive request, postSend its send request.
func (w *world) postGram(g *gram) error {
	room := g.room
	if room == 0 {
		room = verbs.GRHLen + g.len
	}
	return w.postRecv(work{id: g.id, off: g.at, len: room})
}

func (w *world) sendGram(gs ...*gram) error {
	var l []work
	for _, g := range gs {
		gid, qpn := w.goesTo(g)
		r := work{
			id: g.id, op: verbs.WRSend, off: g.off, len: g.len, flags: g.flagged, qpn: qpn, qkey: g.key,
			to: verbs.AV{DGID: gid, SGIDIndex: w.req.self.GIDIndex, TrafficClass: g.class},
		}
		if g.imm != 0 {
			r.op, r.imm = verbs.WRSendImm, g.imm
		}
		if g.key == 0 {
			r.qkey = qkey
		}
		l = append(l, r)
	}
	return w.post(l...)
}

// arrived checks a receive completion against its datagram, and the 40 octets
// before its payload, and takes it into the model.
func (w *world) arrived(m *models, g *gram, wc *verbs.WC) error {
	if wc.Opcode != verbs.WCRecv || wc.Flags&verbs.WCGRH == 0 || int(wc.ByteLen) != verbs.GRHLen+g.len || wc.SrcQP != w.req.self.QPN || wc.QPN != w.rsp.self.QPN {
		return fmt.Errorf("responder: a datagram of %d octets from %#x completes as %+v", g.len, w.req.self.QPN, *wc)
	}
	if g.imm != 0 != (wc.Flags&verbs.WCWithImm != 0) || g.imm != 0 && wc.Imm != g.imm {
		return fmt.Errorf("responder: immediate data %#x, %+v", g.imm, *wc)
	}
	grh, err := w.rsp.mem.Read(g.at, verbs.GRHLen)
	if err != nil {
		return err
	}
	dst, _ := w.goesTo(g)
	if err := checkGRH(grh, w.req.self.GID, dst, g); err != nil {
		return fmt.Errorf("responder: %w: % x", err, grh)
	}
	copy(m.rsp[g.at:], grh)
	copy(m.rsp[g.at+verbs.GRHLen:], m.req[g.off:g.off+g.len])
	return nil
}

// checkGRH checks the octets before a datagram: an IPv6 header, or 20 octets of
// 0 and an IPv4 header. Annex A17.4.5.3; the same at both ends.
func checkGRH(b []byte, src, dst verbs.GID, g *gram) error {
	udp := 8 + 12 + 8 + g.len + -g.len&3 + 4
	if g.imm != 0 {
		udp += 4
	}
	if netip.AddrFrom16(src).Is4In6() {
		h := b[20:]
		switch {
		case !bytes.Equal(b[:20], make([]byte, 20)):
			return errors.New("the 20 octets before the IPv4 header are not 0")
		case h[0] != 0x45 || int(binary.BigEndian.Uint16(h[2:])) != 20+udp || h[9] != 17:
			return fmt.Errorf("no IPv4 header of %d octets of UDP", 20+udp)
		case h[1]&^3 != g.class || h[8] != 64:
			return fmt.Errorf("type of service %#x and time to live %d, not %#x and 64", h[1], h[8], g.class)
		case sum(h[:20]) != 0xffff && src != dst: // rxe to itself does not fill it in
			return errors.New("the checksum of the IPv4 header is wrong")
		case !bytes.Equal(h[12:16], src[12:]) || !bytes.Equal(h[16:20], dst[12:]):
			return errors.New("other addresses")
		}
		return nil
	}
	switch {
	case b[0]>>4 != 6 || int(binary.BigEndian.Uint16(b[4:])) != udp || b[6] != 17:
		return fmt.Errorf("no IPv6 header of %d octets of UDP", udp)
	case uint8(binary.BigEndian.Uint16(b)>>4)&^3 != g.class || b[7] != 64:
		return fmt.Errorf("traffic class and hop limit %d, not %#x and 64", b[7], g.class)
	case !bytes.Equal(b[8:24], src[:]) || !bytes.Equal(b[24:40], dst[:]):
		return errors.New("other addresses")
	}
	return nil
}

// sum adds words in ones' complement.
func sum(b []byte) uint16 {
	var s uint32
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// deliver sends datagrams together, each to a receive request of its own, and
// checks what arrives.
func (w *world) deliver(m *models, gs []*gram) error {
	var ids []uint64
	for _, g := range gs {
		if err := w.postGram(g); err != nil {
			return err
		}
		ids = append(ids, g.id)
	}
	if err := w.sendGram(gs...); err != nil {
		return err
	}
	if _, err := w.req.done(ids...); err != nil {
		return err
	}
	wc, err := w.rsp.done(ids...)
	if err != nil {
		return err
	}
	for i, g := range gs {
		if err := w.arrived(m, g, &wc[i]); err != nil {
			return err
		}
		if err := w.rsp.check(m.rsp, g.at, verbs.GRHLen+g.len); err != nil {
			return fmt.Errorf("a datagram of %d octets: %w", g.len, err)
		}
	}
	return nil
}

// udSizes sends datagrams of lengths from nothing to the path MTU, with and
// without immediate data, inline data and a traffic class among them.
func (w *world) udSizes() error {
	m, err := w.datagrams()
	if err != nil {
		return err
	}
	mtu := int(w.mtu)
	id := uint64(0)
	for _, n := range []int{0, 1, 2, 3, 4, 5, 63, 64, 65, 100, 255, 256, 257, 1000, 1023, 1024, 1025, 2047, 2048, 2049, mtu - 4, mtu - 3, mtu - 2, mtu - 1, mtu} {
		var gs []*gram
		for k := range 4 {
			id++
			g := &gram{id: id, off: int(id) * 4099, len: n, at: received + int(id%100)*slot + k, class: uint8(id%8) << 5}
			if k&1 != 0 {
				g.imm = 0x80000000 + uint32(id)
			}
			if k == 2 && n <= 200 {
				g.flagged = verbs.SendInline
			}
			gs = append(gs, g)
		}
		if err := w.deliver(m, gs); err != nil {
			return err
		}
	}
	if err := w.req.check(m.req, 0, regionSize); err != nil {
		return err
	}
	return w.rsp.check(m.rsp, 0, regionSize)
}

// udMany sends 200 datagrams of random lengths, 50 together.
func (w *world) udMany() error {
	m, err := w.datagrams()
	if err != nil {
		return err
	}
	for round := range 4 {
		var gs []*gram
		for i := range 50 {
			gs = append(gs, &gram{
				id: uint64(round*50 + i), off: w.rng.IntN(maxMessage - slot), len: w.rng.IntN(int(w.mtu) + 1),
				at: received + i*slot + w.rng.IntN(1000), imm: w.rng.Uint32() & 1 * (1 + uint32(i)),
			})
		}
		if err := w.deliver(m, gs); err != nil {
			return err
		}
	}
	return w.rsp.check(m.rsp, 0, regionSize)
}

// udReply sends a datagram, and each end answers what it got by its completion
// and the octets before the payload alone, twice around.
func (w *world) udReply() error {
	m, err := w.datagrams()
	if err != nil {
		return err
	}
	first := &gram{id: 1, off: 1000, len: 700, at: received, class: 0x48}
	if err := w.postGram(first); err != nil {
		return err
	}
	if err := w.sendGram(first); err != nil {
		return err
	}
	if _, err := w.req.done(1); err != nil {
		return err
	}
	wc, err := w.rsp.done(1)
	if err != nil {
		return err
	}
	if err := w.arrived(m, first, &wc[0]); err != nil {
		return err
	}
	at := first.at
	for i, d := range []*world{w.reversed(), w, w.reversed(), w} {
		mine, theirs := m.rsp, m.req
		if i%2 == 1 {
			mine, theirs = theirs, mine
		}
		g := &gram{id: uint64(i + 2), off: 5000 * (i + 1), len: 333 * (i + 1), at: received + (i+1)*slot, class: first.class}
		if err := d.postGram(g); err != nil {
			return err
		}
		r := &work{id: g.id, op: verbs.WRSend, mem: d.req.mem, off: g.off, len: g.len, qkey: qkey}
		if err := d.req.qp.reply(r, wc[0], at); err != nil {
			return fmt.Errorf("%s: reply: %w", d.req.name, err)
		}
		if _, err := d.req.done(g.id); err != nil {
			return err
		}
		if wc, err = d.rsp.done(g.id); err != nil {
			return fmt.Errorf("reply %d: %w", i, err)
		}
		if err := d.arrived(&models{mine, theirs}, g, &wc[0]); err != nil {
			return err
		}
		if err := d.rsp.check(theirs, g.at, verbs.GRHLen+g.len); err != nil {
			return err
		}
		at = g.at
	}
	return nil
}

// tally reads a counter of an end: ours, or rxe's.
func (e *end) tally(ours, rxe string) (uint64, error) {
	c, err := e.side.counters()
	if err != nil {
		return 0, err
	}
	if _, ok := e.side.(kernel); ok {
		ours = rxe
	}
	return c[ours], nil
}

// quietly reports an error unless nothing completes at the responder for a
// while.
func (w *world) quietly() error {
	wc, err := w.rsp.side.poll(1, w.silence/4)
	if err == nil && len(wc) > 0 {
		err = fmt.Errorf("a datagram that is to be dropped is received: %+v", wc[0])
	}
	return err
}

// udQKey sends with a wrong Q_Key, which is dropped and counted, and with one
// whose high bit is set: that stands for the sending queue pair's own. The
// queue pairs live on.
func (w *world) udQKey() error {
	m, err := w.datagrams()
	if err != nil {
		return err
	}
	before, err := w.rsp.tally("bad_qkey", "qkey_viol_cntr")
	if err != nil {
		return err
	}
	// One receive request waits for all of them.
	g := &gram{id: 1, off: 123, len: 200, at: received}
	if err := w.postGram(g); err != nil {
		return err
	}
	for i, key := range []uint32{qkey ^ 1, 1, qkey ^ 0x01000000} {
		bad := *g
		bad.id, bad.key, bad.off = uint64(10+i), key, 9000
		if err := w.sendGram(&bad); err != nil {
			return err
		}
		if _, err := w.req.done(bad.id); err != nil {
			return err
		}
	}
	if err := w.quietly(); err != nil {
		return err
	}
	after, err := w.rsp.tally("bad_qkey", "qkey_viol_cntr")
	if err != nil {
		return err
	}
	if after != before+3 {
		return fmt.Errorf("responder: 3 datagrams with a wrong Q_Key are counted as %d", after-before)
	}
	if err := w.sendGram(g); err != nil {
		return err
	}
	if _, err := w.req.done(1); err != nil {
		return err
	}
	wc, err := w.rsp.done(1)
	if err != nil {
		return err
	}
	if err := w.arrived(m, g, &wc[0]); err != nil {
		return err
	}
	if err := w.rsp.check(m.rsp, g.at, 4096); err != nil {
		return err
	}
	return w.ownQKey(m)
}

// ownQKey sends with a Q_Key whose high bit is set: the sender's own is put
// into the packet (IBA 10.2.5), which is the receiver's here. rxe sends what it
// was told.
func (w *world) ownQKey(m *models) error {
	g := &gram{id: 50, off: 777, len: 64, at: received + slot, key: 0x80000000 | 0x7654321}
	if err := w.postGram(g); err != nil {
		return err
	}
	if err := w.sendGram(g); err != nil {
		return err
	}
	if _, err := w.req.done(g.id); err != nil {
		return err
	}
	if _, rxe := w.req.side.(kernel); rxe {
		w.note = "rxe sends a Q_Key with the high bit as it is"
		return w.quietly()
	}
	wc, err := w.rsp.done(g.id)
	if err != nil {
		return fmt.Errorf("Q_Key with its high bit set: %w", err)
	}
	if err := w.arrived(m, g, &wc[0]); err != nil {
		return err
	}
	return w.rsp.check(m.rsp, g.at, 4096)
}

// udNoRoom sends datagrams that find no receive request, or one that is too
// small: they are dropped, and the next that fits is taken.
func (w *world) udNoRoom() error {
	m, err := w.datagrams()
	if err != nil {
		return err
	}
	lost := &gram{id: 1, off: 10, len: 500, at: received}
	if err := w.sendGram(lost); err != nil {
		return err
	}
	if _, err := w.req.done(1); err != nil {
		return err
	}
	if err := w.quietly(); err != nil {
		return err
	}
	for i, room := range []int{verbs.GRHLen + 499, 500, verbs.GRHLen, 0} {
		g := &gram{id: uint64(2 + i), off: 100, len: 500, at: received + i*slot, room: room}
		if room == 0 {
			break
		}
		if err := w.postGram(g); err != nil {
			return err
		}
		if err := w.sendGram(g); err != nil {
			return err
		}
		if _, err := w.req.done(g.id); err != nil {
			return err
		}
		if err := w.quietly(); err != nil {
			return err
		}
		fits := &gram{id: g.id, off: 4000, len: room - verbs.GRHLen, at: g.at}
		if err := w.sendGram(fits); err != nil {
			return err
		}
		if _, err := w.req.done(g.id); err != nil {
			return err
		}
		wc, err := w.rsp.done(g.id)
		if err != nil {
			return fmt.Errorf("after a datagram longer than its receive request: %w", err)
		}
		if err := w.arrived(m, fits, &wc[0]); err != nil {
			return err
		}
		if err := w.rsp.check(m.rsp, g.at, slot-guard); err != nil {
			return err
		}
	}
	return nil
}

// udLossy sends datagrams over a network that loses some: what arrives is
// intact, what does not is counted.
func (w *world) udLossy() error {
	m, err := w.datagrams()
	if err != nil {
		return err
	}
	const together = 50
	sent, got, twice := 0, 0, 0
	for round := range 16 {
		var gs []*gram
		// As many receive requests again for what comes twice.
		for i := range 2 * together {
			if err := w.postRecv(work{id: uint64(round*2*together + i), off: received + i*slot, len: slot}); err != nil {
				return err
			}
		}
		for range together {
			sent++
			gs = append(gs, &gram{id: uint64(1e6 + sent), off: w.rng.IntN(maxMessage - slot), len: 1 + w.rng.IntN(int(w.mtu)), imm: uint32(sent)})
		}
		if err := w.sendGram(gs...); err != nil {
			return err
		}
		if err := w.req.all(together); err != nil {
			return err
		}
		seen := map[uint32]bool{}
		wc, err := w.rsp.side.poll(2*together, w.silence)
		if err != nil {
			return err
		}
		for k := range wc {
			if err := wc[k].Err(); err != nil {
				return err
			}
			i := int(wc[k].Imm) - (sent - together) - 1
			if i < 0 || i >= together {
				return fmt.Errorf("responder: datagram %d of %d arrives", wc[k].Imm, sent)
			}
			g := *gs[i]
			g.at = received + int(wc[k].ID%(2*together))*slot
			if err := w.arrived(m, &g, &wc[k]); err != nil {
				return err
			}
			if err := w.rsp.check(m.rsp, g.at, verbs.GRHLen+g.len); err != nil {
				return err
			}
			if seen[g.imm] {
				twice++
			} else {
				got++
			}
			seen[g.imm] = true
		}
		w.note = fmt.Sprintf("%d datagrams, %d arrived, %d of them twice", sent, got, twice)
		if err := w.activateAgain(); err != nil { // without the receive requests that are left
			return err
		}
		if round >= 3 && got < sent && (twice > 0 || round >= 8) {
			break
		}
	}
	if got == sent || got < sent*3/4 {
		return fmt.Errorf("the network was to lose a few: %s", w.note)
	}
	to, from, err := w.lost()
	if err != nil {
		return err
	}
	w.note += fmt.Sprintf("; lost %d packets to the guest, %d from it", to, from)
	return nil
}

// activateAgain makes new queue pairs in place of those there are.
func (w *world) activateAgain() error {
	for _, e := range []*end{w.req, w.rsp} {
		if err := e.qp.Destroy(); err != nil {
			return err
		}
	}
	return w.activate(qkey, qkey)
}
