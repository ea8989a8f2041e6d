package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// wrongReply is an answer, sent by hand to a requester, that its request did not
// ask for or that says no, and what its request completes with, in words: the
// status, the state of the queue pair, and how often the request was sent.
type wrongReply struct {
	name string
	op   verbs.WROpcode // of a request of 100 octets, or of a READ of many
	many bool           // of 3000 octets
	send func(l *line) []packet

	ours, rxe string
}

// What becomes of most of them: the request fails; or the answer is nothing, and
// the request is sent once more and then given up (retry_cnt is 1).
const (
	gaveUp   = "transport retry counter exceeded; ERR; sent 2 times"
	believed = "success; RTS; sent 1 times"
	waits    = "nothing completes; sent 1 times"
)

func says(s verbs.WCStatus) string { return s.String() + "; ERR; sent 1 times" }

var wrongReplies = []wrongReply{
	{name: "NAK invalid request", op: verbs.WRSend, send: nak(bth.NAKInvalidRequest), ours: says(verbs.WCRemInvReqErr)},
	{name: "NAK remote access", op: verbs.WRWrite, send: nak(bth.NAKRemoteAccess), ours: says(verbs.WCRemAccessErr)},
	{name: "NAK remote access to a READ", op: verbs.WRRead, send: nak(bth.NAKRemoteAccess), ours: says(verbs.WCRemAccessErr)},
	{name: "NAK remote operational", op: verbs.WRSend, send: nak(bth.NAKRemoteOperational), ours: says(verbs.WCRemOpErr)},
	{name: "NAK invalid request of an atomic", op: verbs.WRFetchAdd, send: nak(bth.NAKInvalidRequest), ours: says(verbs.WCRemInvReqErr)},
	{name: "NAK sequence, each time", op: verbs.WRSend, send: nak(bth.NAKSequence), ours: gaveUp},
	{name: "NAK of RD", op: verbs.WRSend, send: nak(bth.NAKInvalidRD), ours: gaveUp, rxe: says(verbs.WCRemOpErr)},
	{name: "NAK with a code that is none", op: verbs.WRSend, send: nak(0x7f), ours: gaveUp, rxe: says(verbs.WCRemOpErr)},
	{name: "a syndrome that is reserved", op: verbs.WRSend, send: nak(0x40), ours: gaveUp, rxe: says(verbs.WCSuccess)},
	{name: "a syndrome with its high bit", op: verbs.WRSend, send: nak(0x80), ours: gaveUp, rxe: says(verbs.WCSuccess)},
	{name: "nothing", op: verbs.WRSend, send: func(*line) []packet { return nil }, ours: gaveUp},
	{name: "ACK with a wrong ICRC", op: verbs.WRSend, send: func(l *line) []packet {
		p := l.ack(0)
		p.spoil = true
		return []packet{p}
	}, ours: gaveUp},
	{name: "ACK of what was never sent", op: verbs.WRSend, send: func(l *line) []packet { return []packet{l.ack(7)} }, ours: gaveUp, rxe: believed},
	{name: "ACK with data", op: verbs.WRSend, send: func(l *line) []packet {
		p := l.ack(0)
		p.Payload = make([]byte, 8)
		return []packet{p}
	}, ours: gaveUp, rxe: believed},
	{name: "READ response to a SEND", op: verbs.WRSend, send: reads(bth.RCReadRespOnly, 100), ours: gaveUp, rxe: says(verbs.WCFatalErr)},
	{name: "atomic response to a SEND", op: verbs.WRSend, send: reads(bth.RCAtomicAck, 0), ours: gaveUp, rxe: says(verbs.WCSuccess)},
	{name: "ACK to a READ", op: verbs.WRRead, send: func(l *line) []packet { return []packet{l.ack(0)} }, ours: gaveUp, rxe: believed},
	{name: "atomic response to a READ", op: verbs.WRRead, send: reads(bth.RCAtomicAck, 0), ours: gaveUp, rxe: says(verbs.WCSuccess)},
	{name: "ACK to an atomic", op: verbs.WRFetchAdd, send: func(l *line) []packet { return []packet{l.ack(0)} }, ours: gaveUp, rxe: believed},
	{name: "READ response to an atomic", op: verbs.WRFetchAdd, send: reads(bth.RCReadRespOnly, 8), ours: gaveUp, rxe: says(verbs.WCFatalErr)},
	{name: "READ response too short", op: verbs.WRRead, send: reads(bth.RCReadRespOnly, 96), ours: says(verbs.WCLocLenErr), rxe: waits},
	{name: "READ response too long", op: verbs.WRRead, send: reads(bth.RCReadRespOnly, 104), ours: says(verbs.WCLocLenErr), rxe: says(verbs.WCLocProtErr)},
	{name: "READ response of nothing", op: verbs.WRRead, send: reads(bth.RCReadRespOnly, 0), ours: says(verbs.WCLocLenErr), rxe: waits},
	{name: "READ responses, ONLY for the first of many", op: verbs.WRRead, many: true, send: reads(bth.RCReadRespOnly, 1024), ours: says(verbs.WCLocLenErr), rxe: says(verbs.WCRetryExcErr)},
	{name: "READ responses, a short FIRST", op: verbs.WRRead, many: true, send: reads(bth.RCReadRespFirst, 512), ours: says(verbs.WCLocLenErr), rxe: says(verbs.WCRetryExcErr)},
	{name: "READ responses, the second first", op: verbs.WRRead, many: true, send: func(l *line) []packet {
		p := l.packet(bth.RCReadRespMiddle, 1, 1024)
		return []packet{p}
	}, ours: gaveUp},
	{name: "a request", op: verbs.WRSend, send: func(l *line) []packet {
		p := l.packet(bth.RCReadReq, 0, 0)
		p.RKey ^= wrongKey
		p.DMALen = 8
		return []packet{p}
	}, ours: "Work Request Flushed Error; ERR; sent 1 times"},
}

// ack is an ACK of a packet so many after the first.
func (l *line) ack(at int) packet {
	p := l.packet(bth.RCAck, at, 0)
	p.Syndrome, p.MSN, p.AckReq = 0x1f, 1, false
	return p
}

func nak(s bth.Syndrome) func(*line) []packet {
	return func(l *line) []packet {
		p := l.ack(0)
		p.Syndrome, p.MSN = s, 0
		return []packet{p}
	}
}

func reads(op bth.Opcode, n int) func(*line) []packet {
	return func(l *line) []packet {
		p := l.packet(op, 0, n)
		p.Syndrome, p.MSN, p.AckReq = 0x1f, 1, false
		return []packet{p}
	}
}

// replies answers requests wrongly, by hand, each time that they are sent, and
// looks at what the requester makes of it.
func (w *world) replies() error {
	if err := w.setUp(regionOctets); err != nil {
		return err
	}
	var errs []error
	for i := range wrongReplies {
		c := &wrongReplies[i]
		want := c.ours
		if _, rxe := w.rsp.side.(kernel); rxe {
			want = cmp.Or(c.rxe, want)
		}
		limit := 3 * time.Second
		if want == waits {
			limit = w.silence / 2
		}
		got, err := w.reply(c, limit)
		if err == nil && got != want {
			err = fmt.Errorf("%q, not %q", got, want)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

func (w *world) reply(c *wrongReply, limit time.Duration) (string, error) {
	l, err := w.line(rawQPN)
	if err != nil {
		return "", err
	}
	e := w.rsp
	r := work{id: 1, op: c.op, mem: e.mem, len: 100, remote: 4096, rkey: 1}
	switch {
	case c.many:
		r.len = 3000
	case c.op == verbs.WRFetchAdd:
		r.len = 8
	}
	if err := e.qp.send(&r); err != nil {
		return "", err
	}
	// Each time the request comes it is answered, until it completes.
	sent := 0
	for begin := time.Now(); time.Since(begin) < limit; {
		p, err := l.r.recv(l.own, 5*time.Millisecond)
		if err != nil {
			return "", err
		}
		if p != nil && p.Info().Has(bth.Request) && p.PSN == l.psn {
			sent++
			if err := l.r.send(c.send(l)...); err != nil {
				return "", err
			}
		}
		wc, err := e.side.poll(1, 0)
		if err != nil {
			return "", err
		}
		if len(wc) == 0 {
			continue
		}
		st, err := e.qp.State()
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%v; %v; sent %d times", wc[0].Status, st, sent), e.qp.Destroy()
	}
	return fmt.Sprintf("nothing completes; sent %d times", sent), e.qp.Destroy()
}
