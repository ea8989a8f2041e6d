package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// wrong is a wrong request, sent by hand to a responder, and what becomes of it:
// the answers, the state of the queue pair, and what its receive request
// completes with, in words. rxe is what Soft-RoCE does where we do otherwise.
type wrong struct {
	name string
	send func(l *line) []packet
	none bool // no receive request
	room int  // of the receive request; 0 a region
	tune func(*verbs.ConnectOptions)

	ours, rxe string
}

// What becomes of most of them.
const (
	invalid      = "NAK invalid request of 0; ERR; flushed"
	later        = "NAK invalid request of 1; ERR; flushed"
	denied       = "NAK remote access error of 0; ERR; flushed"
	sequence     = "NAK sequence error of 0; RTS"
	unnoticed    = "; RTS"
	acknowledged = "ACK of 0; RTS"
)

// told is what rxe does when a wrong packet meets a receive request in use: that
// completes with the status that the requester is told.
func told(at int) string {
	return fmt.Sprintf("NAK invalid request of %d; ERR; remote invalid request error", at)
}

// wrongRequests are by the check that they fail, in the order of IBA 9.7.4.1.
var wrongRequests = []wrong{
	{name: "a wrong ICRC", send: func(l *line) []packet {
		p := l.packet(bth.RCWriteOnly, 0, 8)
		p.spoil = true
		return []packet{p}
	}, ours: unnoticed},
	{name: "another P_Key", send: func(l *line) []packet {
		p := l.packet(bth.RCWriteOnly, 0, 8)
		p.PKey = 0x9234
		return []packet{p}
	}, ours: unnoticed},
	{name: "the P_Key of a limited member", send: with(func(p *packet) { p.PKey = 0x7fff }, bth.RCWriteOnly, 8), ours: acknowledged},
	{name: "a transport version", send: func(l *line) []packet {
		p := l.packet(bth.RCWriteOnly, 0, 8)
		p.TVer = 1
		return []packet{p}
	}, ours: unnoticed},
	{name: "an opcode of UC", send: with(func(p *packet) { p.code = uint8(bth.RCSendOnly) | 0x20 }, bth.RCSendOnly, 8), ours: unnoticed},
	{name: "an opcode of UD", send: with(func(p *packet) { p.code = uint8(bth.UDSendOnly) }, bth.RCSendOnly, 8), ours: unnoticed},
	{name: "an opcode of nothing", send: with(func(p *packet) { p.code = 0x1f }, bth.RCSendOnly, 8), ours: unnoticed},
	{name: "RESYNC", send: with(func(p *packet) { p.code = uint8(bth.RCResync) }, bth.RCSendOnly, 0), ours: unnoticed},
	{name: "a PSN ahead", send: func(l *line) []packet { return []packet{l.packet(bth.RCSendOnly, 3, 8)} }, ours: sequence, rxe: sequence},
	{name: "two PSNs ahead", send: func(l *line) []packet {
		return []packet{l.packet(bth.RCSendOnly, 3, 8), l.packet(bth.RCSendOnly, 4, 8)}
	}, ours: sequence, rxe: sequence},
	{name: "a PSN long ago", send: func(l *line) []packet {
		first := l.packet(bth.RCWriteOnly, 0, 12)
		first.AckReq = false
		return []packet{first, l.packet(bth.RCWriteOnly, -5, 8)}
	}, ours: acknowledged},

	{name: "SEND_MIDDLE first", send: sends(bth.RCSendMiddle, 1024), ours: invalid},
	{name: "SEND_LAST first", send: sends(bth.RCSendLast, 8), ours: invalid},
	{name: "WRITE_MIDDLE first", send: sends(bth.RCWriteMiddle, 1024), ours: invalid},
	{name: "WRITE_LAST first", send: sends(bth.RCWriteLast, 8), ours: invalid},
	{name: "SEND_FIRST, WRITE_LAST", send: sends(bth.RCSendFirst, 1024, bth.RCWriteLast, 8), ours: later, rxe: told(1)},
	{name: "WRITE_FIRST, SEND_LAST", send: sends(bth.RCWriteFirst, 1024, bth.RCSendLast, 8), ours: later},
	{name: "SEND_FIRST, SEND_ONLY", send: sends(bth.RCSendFirst, 1024, bth.RCSendOnly, 8), ours: later, rxe: told(1)},
	{name: "SEND_FIRST, READ_REQUEST", send: sends(bth.RCSendFirst, 1024, bth.RCReadReq, 0), ours: later, rxe: told(1)},
	{name: "WRITE_FIRST, WRITE_FIRST", send: sends(bth.RCWriteFirst, 1024, bth.RCWriteFirst, 1024), ours: later},

	{name: "no receive request", send: sends(bth.RCSendOnly, 8), none: true, ours: "RNR NAK timer 12 of 0; RTS"},
	{name: "no receive request, and one more packet", send: sends(bth.RCSendOnly, 8, bth.RCSendOnly, 8), none: true, ours: "RNR NAK timer 12 of 0; RTS", rxe: "RNR NAK timer 12 of 0, NAK sequence error of 0; RTS"},
	{
		name: "more READs than agreed", send: func(l *line) []packet {
			var ps []packet
			for i := range 3 {
				p := l.packet(bth.RCReadReq, 2*i, 0)
				p.DMALen = 2 * 1024
				ps = append(ps, p)
			}
			return ps
		}, tune: func(o *verbs.ConnectOptions) { o.MaxDestRdAtomic = 1 }, ours: "RC_READ_RESP_FIRST of 0, RC_READ_RESP_LAST of 1, NAK invalid request of 2; ERR; flushed",
		rxe: "RC_READ_RESP_FIRST of 0, RC_READ_RESP_LAST of 1, RC_READ_RESP_FIRST of 2, RC_READ_RESP_LAST of 3, RC_READ_RESP_FIRST of 4, RC_READ_RESP_LAST of 5; RTS",
	},

	{name: "SEND_FIRST shorter than the path MTU", send: sends(bth.RCSendFirst, 512), ours: invalid, rxe: told(0)},
	{name: "SEND_ONLY longer than the path MTU", send: sends(bth.RCSendOnly, 1028), ours: invalid, rxe: told(0)},
	{name: "SEND_LAST of nothing", send: sends(bth.RCSendFirst, 1024, bth.RCSendLast, 0), ours: later, rxe: told(1)},
	{name: "SEND_ONLY longer than its receive request", send: sends(bth.RCSendOnly, 12), room: 8, ours: "NAK invalid request of 0; ERR; local length error", rxe: "NAK remote operational error of 0; ERR; local QP operation error"},
	{name: "a pad that nothing calls for", send: with(func(p *packet) { p.pad = 1 + 3 }, bth.RCWriteOnly, 8), ours: invalid},
	{name: "WRITE of less than it says", send: length(100, bth.RCWriteOnly, 52), ours: invalid},
	{name: "WRITE of more than it says", send: length(52, bth.RCWriteOnly, 100), ours: invalid},
	{name: "WRITE of two packets, less than it says", send: length(3000, bth.RCWriteFirst, 1024, bth.RCWriteLast, 100), ours: later},
	{name: "WRITE of two packets, more than it says", send: length(1100, bth.RCWriteFirst, 1024, bth.RCWriteLast, 200), ours: later},
	{name: "WRITE of two packets that says one", send: length(1000, bth.RCWriteFirst, 1024, bth.RCWriteLast, 200), ours: invalid},
	{name: "WRITE of more than 2^31", send: length(1<<31+1, bth.RCWriteFirst, 1024), ours: invalid},
	{name: "READ of more than 2^31", send: length(1<<31+1, bth.RCReadReq, 0), ours: invalid},
	{name: "FetchAdd unaligned", send: with(func(p *packet) { p.VA += 4 }, bth.RCFetchAdd, 0), ours: invalid},
	{name: "CmpSwap unaligned", send: with(func(p *packet) { p.VA++ }, bth.RCCmpSwap, 0), ours: invalid},

	{name: "WRITE, wrong key", send: with(func(p *packet) { p.RKey ^= wrongKey }, bth.RCWriteOnly, 8), ours: denied},
	{name: "WRITE of nothing, wrong key", send: with(func(p *packet) { p.RKey ^= wrongKey }, bth.RCWriteOnly, 0), ours: acknowledged},
	{name: "READ of nothing, wrong key", send: with(func(p *packet) { p.RKey ^= wrongKey }, bth.RCReadReq, 0), ours: "RC_READ_RESP_ONLY of 0; RTS"},
	{name: "READ around the end of addresses", send: with(func(p *packet) { p.VA, p.DMALen = ^uint64(0)-100, 200 }, bth.RCReadReq, 0), ours: denied},
	{name: "FetchAdd, wrong key", send: with(func(p *packet) { p.RKey ^= wrongKey }, bth.RCFetchAdd, 0), ours: denied},
}

// sends makes packets of pairs of opcodes and lengths, one after the other.
func sends(pairs ...any) func(*line) []packet {
	return func(l *line) []packet {
		var ps []packet
		for i := 0; i < len(pairs); i += 2 {
			ps = append(ps, l.packet(pairs[i].(bth.Opcode), i/2, pairs[i+1].(int)))
		}
		if p := &ps[0]; p.Info().Has(bth.First) && p.Info().Op == bth.OpWrite {
			p.DMALen = 4096
		}
		return ps
	}
}

// length makes packets whose first says how long the message is.
func length(n uint32, pairs ...any) func(*line) []packet {
	return func(l *line) []packet {
		ps := sends(pairs...)(l)
		ps[0].DMALen = n
		return ps
	}
}

// with makes one packet that is changed.
func with(change func(*packet), op bth.Opcode, payload int) func(*line) []packet {
	return func(l *line) []packet {
		p := l.packet(op, 0, payload)
		change(&p)
		return []packet{p}
	}
}

// Numbers of raw's queue pairs.
const (
	rawQPN   = 0x123456
	fenceQPN = 0x123457
)

// answers sends wrong requests by hand, and looks at what the responder makes of
// each.
func (w *world) answers() error {
	if err := w.setUp(regionOctets); err != nil {
		return err
	}
	fence, err := w.line(fenceQPN)
	if err != nil {
		return err
	}
	fences, errs := 0, []error(nil)
	for i := range wrongRequests {
		c := &wrongRequests[i]
		got, err := w.answer(c, fence, &fences)
		want := c.ours
		if _, rxe := w.rsp.side.(kernel); rxe {
			want = cmp.Or(c.rxe, want)
		}
		if err == nil && got != want {
			err = fmt.Errorf("%q, not %q", got, want)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

func (w *world) answer(c *wrong, fence *line, fences *int) (string, error) {
	w.tune = func(_ *end, o *verbs.ConnectOptions) {
		if c.tune != nil {
			c.tune(o)
		}
	}
	l, err := w.line(rawQPN)
	if err != nil {
		return "", err
	}
	if !c.none {
		if err := w.rsp.qp.recv(&work{mem: w.rsp.mem, len: cmp.Or(c.room, regionOctets)}); err != nil {
			return "", err
		}
	}
	if err := l.r.send(c.send(l)...); err != nil {
		return "", err
	}
	if err := fence.fence(fences); err != nil {
		return "", err
	}
	said, err := l.answers(20 * time.Millisecond)
	if err != nil {
		return "", err
	}
	return w.rsp.outcome(said)
}

// outcome puts into words what was answered, what state the queue pair is in, and
// what has completed, and ends the queue pair.
func (e *end) outcome(said string) (string, error) {
	st, err := e.qp.State()
	if err != nil {
		return "", err
	}
	s := []string{said, st.String()}
	wcs, err := e.side.poll(2, 5*time.Millisecond)
	if err != nil {
		return "", err
	}
	for i := range wcs {
		if wcs[i].Status == verbs.WCWRFlushErr {
			s = append(s, "flushed")
		} else {
			s = append(s, wcs[i].Status.String())
		}
	}
	return strings.Join(s, "; "), e.qp.Destroy()
}
