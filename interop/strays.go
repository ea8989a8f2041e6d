package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// stray is a datagram that is made by hand, and whether it is received.
type stray struct {
	name   string
	change func(*packet)
	length int // of the payload; 0 one that no other has

	ours, rxe bool
}

// strays are sent to a UD queue pair. IBA 9.6.1 and 10.2.4.
var strays = []stray{
	{name: "as it should be", change: func(*packet) {}, ours: true, rxe: true},
	{name: "another Q_Key", change: func(p *packet) { p.QKey ^= 1 }},
	{name: "another P_Key", change: func(p *packet) { p.PKey = 0x9234 }},
	{name: "the P_Key of a limited member", change: func(p *packet) { p.PKey = 0x7fff }, ours: true, rxe: true},
	{name: "a wrong ICRC", change: func(p *packet) { p.spoil = true }},
	{name: "a transport version", change: func(p *packet) { p.TVer = 1 }},
	{name: "an opcode of RC", change: func(p *packet) { p.code = uint8(bth.RCSendOnly) }},
	{name: "an opcode of UC", change: func(p *packet) { p.code = 0x20 | uint8(bth.RCSendOnly) }},
	{name: "a number that no queue pair has", change: func(p *packet) { p.DestQP ^= 0x800000 }},
	{name: "more than the path MTU", change: func(*packet) {}, length: guestMTU + 4, rxe: true},
	{name: "another PSN than the next", change: func(p *packet) { p.PSN = p.PSN.Add(1000) }, ours: true, rxe: true},
}

// strayed sends datagrams made by hand, each with a length of its own, one that
// is as it should be behind each of them, and looks at what is received.
func (w *world) strayed() error {
	if err := w.setUp(regionSize); err != nil {
		return err
	}
	e := w.rsp
	var err error
	if e.qp, err = e.side.createQP(verbs.UD, nil); err != nil {
		return err
	}
	if err := e.qp.Activate(verbs.DatagramOptions{QKey: qkey, PSN: 1}); err != nil {
		return err
	}
	if e.self, err = e.qp.local(w.raw.flow.Src, 1); err != nil {
		return err
	}
	l := &line{r: w.raw, e: e, to: bth.QPN(e.self.QPN), own: rawQPN}
	for id := range uint64(2*len(strays) + 2) {
		if err := e.qp.recv(&work{id: id, mem: e.mem, off: int(id) * slot, len: slot}); err != nil {
			return err
		}
	}
	_, rxe := e.side.(kernel)
	var errs []error
	for i := range strays {
		s := &strays[i]
		n := 100 + 8*i
		if s.length != 0 {
			n = s.length
		}
		got, err := l.stray(s, n)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		want := s.ours
		if rxe {
			want = s.rxe
		}
		if got != want {
			errs = append(errs, fmt.Errorf("%s: received: %v, not %v", s.name, got, want))
		}
	}
	if st, err := e.qp.State(); err != nil || st != verbs.StateRTS {
		errs = append(errs, fmt.Errorf("the queue pair is in %v, %w", st, err))
	}
	return errors.Join(errs...)
}

// stray sends a datagram of n octets and a good one of 4, and reports whether the
// first is received.
func (l *line) stray(s *stray, n int) (bool, error) {
	odd, good := l.packet(bth.UDSendOnly, 0, n), l.packet(bth.UDSendOnly, 1, 4)
	for _, p := range []*packet{&odd, &good} {
		p.QKey, p.SrcQP, p.AckReq = qkey, rawQPN, false
	}
	s.change(&odd)
	if err := l.r.send(odd, good); err != nil {
		return false, err
	}
	var lengths []int
	for !slices.Contains(lengths, 4) {
		wc, err := l.e.side.poll(1, completionWait)
		if err != nil {
			return false, err
		}
		if len(wc) == 0 || wc[0].Status != verbs.WCSuccess {
			return false, fmt.Errorf("a good datagram behind it is not received: %+v", wc)
		}
		lengths = append(lengths, int(wc[0].ByteLen)-verbs.GRHLen)
	}
	switch text := strings.Trim(fmt.Sprint(lengths), "[]"); text {
	case "4":
		return false, nil
	case fmt.Sprintf("%d 4", n):
		return true, nil
	default:
		return false, fmt.Errorf("datagrams of %s octets are received", text)
	}
}
