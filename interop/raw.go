package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// raw is an end that has no NIC: packets of any kind, made by hand, to a target
// that may be rxe or ours. What no verb can be made to send comes from here.
type raw struct {
	link link.Link
	flow wire.Flow
	ds   []wire.Datagram
	got  []bth.Packet // received and not yet looked at
}

// packet is one of raw's, with what is wrong about it.
type packet struct {
	bth.Packet
	code  uint8 // another opcode than the one its headers are of; 0 that one
	pad   uint8 // a pad count that its length does not have, + 1; 0 the right one
	spoil bool  // a wrong ICRC
}

// newRaw makes an end at an address of a link, which it owns.
func newRaw(l link.Link, src, dst netip.Addr) (*raw, error) {
	r := &raw{link: l, flow: wire.Flow{Src: src, Dst: dst, SrcPort: wire.Port, TTL: 64}, ds: make([]wire.Datagram, 16)}
	if p, ok := l.(link.PortResolver); ok {
		port, err := p.ResolvePort(src, wire.Port)
		if err != nil {
			return nil, err
		}
		r.flow.SrcPort = port
	}
	return r, nil
}

// send sends packets; a run of equal ones arrives together.
func (r *raw) send(ps ...packet) error {
	for len(ps) > 0 {
		n := 1
		for n < len(ps) && ps[n].Opcode == ps[0].Opcode && len(ps[n].Payload) == len(ps[0].Payload) {
			n++
		}
		if err := r.burst(ps[:n]); err != nil {
			return err
		}
		ps = ps[n:]
	}
	return nil
}

// burst sends packets of one length.
func (r *raw) burst(ps []packet) error {
	b := wire.NewBurst()
	b.Reset(&r.flow, 0, 0)
	for i := range ps {
		p := &ps[i]
		p.MigReq, p.Pad = true, uint8(-len(p.Payload)&3)
		if p.PKey == 0 {
			p.PKey = verbs.DefaultPKey
		}
		if p.pad != 0 {
			p.Pad = p.pad - 1
		}
		h := b.Begin(p.PSN, p.Opcode, p.Info().HdrLen, len(p.Payload))
		p.PutHeaders(h)
		if p.code != 0 {
			h[0] = p.code
		}
		copy(b.Copy(len(p.Payload)), p.Payload)
		b.End()
	}
	b.Seal(r.link.Info().IDs)
	for i := range ps {
		if ps[i].spoil {
			b.Header(i)[1] ^= 0x80 // the solicited event bit, which the ICRC covers
		}
	}
	if n, err := r.link.Send([]*wire.Burst{b}); err != nil || n != len(ps) {
		return fmt.Errorf("send %v: %d of %d packets left, %w", ps[0].Opcode, n, len(ps), err)
	}
	return nil
}

// recv returns the next packet for a queue pair number, and nil after wait
// without one.
func (r *raw) recv(qpn bth.QPN, wait time.Duration) (*bth.Packet, error) {
	for end := time.Now().Add(wait); ; {
		for i := range r.got {
			if p := r.got[i]; p.DestQP == qpn {
				r.got = append(r.got[:i], r.got[i+1:]...)
				return &p, nil
			}
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, nil
		}
		if err := r.link.Wait(left); err != nil {
			return nil, err
		}
		n, err := r.link.Recv(r.ds)
		if err != nil {
			return nil, err
		}
		for i := range r.ds[:n] {
			for k := range r.ds[i].Segments() {
				var p bth.Packet
				if why := bth.Parse(r.ds[i].Segment(k), &p); why != trace.None {
					return nil, fmt.Errorf("the target sent what is no packet: %v", why)
				}
				p.Payload = append([]byte(nil), p.Payload...)
				r.got = append(r.got, p)
			}
		}
	}
}

// line is a connection between the target and raw.
type line struct {
	r    *raw
	e    *end
	to   bth.QPN // the target's queue pair
	own  bth.QPN // raw's
	psn  bth.PSN // first one, both ways
	addr uint64  // of the target's region
	rkey uint32
}

// line connects a new queue pair of the target to a number of raw's.
func (w *world) line(own uint32) (*line, error) {
	var err error
	e := w.rsp
	if e.qp, err = e.side.createQP(verbs.RC, nil); err != nil {
		return nil, err
	}
	psn := w.rng.Uint32() & 0xffffff
	if e.self, err = e.qp.local(w.raw.flow.Src, psn); err != nil {
		return nil, err
	}
	o := verbs.DefaultConnectOptions()
	o.PathMTU, o.Timeout, o.RetryCnt, o.MaxRdAtomic, o.MaxDestRdAtomic = w.mtu, 14, 1, 4, 4
	far := verbs.Endpoint{QPN: own, PSN: psn, GID: verbs.GIDOf(w.raw.flow.Src)}
	if err := e.qp.Connect(e.self, far, w.tuned(e, o)); err != nil {
		return nil, fmt.Errorf("target: connect: %w", err)
	}
	return &line{w.raw, e, bth.QPN(e.self.QPN), bth.QPN(own), bth.MakePSN(psn), e.mem.Addr(), e.mem.RKey()}, nil
}

// packet makes one to the target, so many PSNs after the first.
func (l *line) packet(op bth.Opcode, at, payload int) packet {
	p := packet{Packet: bth.Packet{Opcode: op, DestQP: l.to, PSN: l.psn.Add(at), AckReq: op.Info().Has(bth.Ends), Payload: make([]byte, payload)}}
	for i := range p.Payload {
		p.Payload[i] = 0xa5
	}
	if op.Info().Ext&(bth.ExtRETH|bth.ExtAtomicETH) != 0 {
		p.VA, p.RKey, p.DMALen = l.addr, l.rkey, uint32(payload)
	}
	return p
}

// answers takes all that the target has sent to the line and says it in words, in
// order, relative to the first PSN.
func (l *line) answers(wait time.Duration) (string, error) {
	var s []string
	for {
		p, err := l.r.recv(l.own, wait)
		if err != nil {
			return "", err
		}
		if p == nil {
			return strings.Join(s, ", "), nil
		}
		if p.Opcode == bth.CNP { // its PSN means nothing
			s = append(s, answerName(p))
			continue
		}
		s = append(s, fmt.Sprintf("%s of %d", answerName(p), p.PSN.Diff(l.psn)))
	}
}

func answerName(p *bth.Packet) string {
	if p.Opcode != bth.RCAck {
		return p.Opcode.Info().Name
	}
	if p.Syndrome.Kind() == bth.KindAck {
		return "ACK"
	}
	return p.Syndrome.String()
}

// fence returns when the target has done everything that was sent before: it
// answers an empty WRITE on a line of its own.
func (l *line) fence(n *int) error {
	for range 5 {
		p := l.packet(bth.RCWriteOnly, *n, 0)
		if err := l.r.send(p); err != nil {
			return err
		}
		a, err := l.r.recv(l.own, time.Second)
		if err != nil {
			return err
		}
		if a != nil && a.Opcode == bth.RCAck && a.Syndrome.Kind() == bth.KindAck && a.PSN == p.PSN {
			*n++
			return nil
		}
	}
	return errors.New("the target does not answer an empty WRITE")
}
