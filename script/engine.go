package script

import (
	"fmt"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/rc"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/uc"
	"github.com/gorxe/gorxe/ud"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// qp is the seam of this module's engines.
type qp interface {
	State() verbs.QPState
	Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) error
	HandlePacket(now int64, p *bth.Packet)
	HandleTimer(now int64)
	Doorbell(now int64)
	Ready(now int64) bool
	Fill(now int64, b *wire.Burst) bool
	Sent(b *wire.Burst, sent int)
	Deadline() int64
	Counts() *trace.Counts
	TakeEvents() transport.Events
}

// engine is a Subject: an engine, the rings of its program, and what stands
// between the engine and a link.
type engine struct {
	qp
	setup *Setup
	sq    *verbs.SendQueue
	rq    *verbs.RecvQueue
	burst *wire.Burst
	send  sink
	recv  sink
	front trace.Counts // what never reached the engine
}

// sink is a completion queue without a bottom.
type sink struct{ got []Completion }

func (s *sink) Push(w *verbs.WC, solicited bool) {
	s.got = append(s.got, Completion{WC: *w, Solicited: solicited})
}

func (s *sink) take() []Completion {
	got := s.got
	s.got = nil
	return got
}

// shared hides from an engine that the receive ring is its own.
type shared struct{ *verbs.RecvRing }

// domain is the protection domain of the queue pair, foreign that of others.
const domain, foreign mr.PD = 1, 2

// Engine makes a queue pair of this module: an engine of package rc, uc or ud.
func Engine(s *Setup) (Subject, error) {
	if s.Device {
		return nil, ErrOther
	}
	c := s.Cap
	mrs := mr.NewTable(1)
	for _, g := range s.Regions {
		m := mr.Region{PD: domain, IOVA: g.IOVA, Mem: g.Mem, Access: g.Access}
		if g.Foreign {
			m.PD = foreign
		}
		r, err := mrs.Register(m)
		if err != nil {
			return nil, err
		}
		g.Key, g.Withdraw = r.Key, func() error { return mrs.Deregister(r.Key) }
	}
	for _, g := range s.Windows {
		pd := domain
		if g.Foreign {
			pd = foreign
		}
		w, err := mrs.AllocWindow(pd, g.Type)
		if err != nil {
			return nil, err
		}
		g.Key, g.Withdraw = w.Key(), func() error { mrs.FreeWindow(w); return nil }
	}
	sendMem := verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline))
	recvMem := verbs.NewRingMem(c.MaxRecvWR * verbs.RecvUnits(c.MaxRecvSGE))
	e := &engine{setup: s, burst: wire.NewBurst()}
	var err error
	if e.sq, err = verbs.NewSendQueue(sendMem, c); err != nil {
		return nil, err
	}
	if e.rq, err = verbs.NewRecvQueue(recvMem, c.MaxRecvWR, c.MaxRecvSGE); err != nil {
		return nil, err
	}
	sq, ok := verbs.NewSendRing(sendMem)
	rq, ok2 := verbs.NewRecvRing(recvMem, c.MaxRecvSGE)
	if !ok || !ok2 {
		return nil, fmt.Errorf("script: rings of %+v", c)
	}
	cfg := transport.Config{QPN: s.QPN, PD: domain, Cap: c, SQ: sq, RQ: rq, SendCQ: &e.send, RecvCQ: &e.recv, MRs: mrs}
	if s.SharedRQ {
		cfg.RQ = shared{rq}
	}
	switch s.Type {
	case verbs.RC:
		e.qp = rc.New(rc.Config{Config: cfg, Window: s.Window})
	case verbs.UC:
		e.qp = uc.New(cfg)
	case verbs.UD:
		e.qp = ud.New(ud.Config{Config: cfg, Addresses: everywhere{s.Flow}, MTU: s.MTU})
	default:
		return nil, fmt.Errorf("script: no engine for %v queue pairs", s.Type)
	}
	return e, nil
}

// everywhere is an address table in which every handle means one destination.
type everywhere struct{ flow *wire.Flow }

func (e everywhere) Flow(mr.PD, uint32) *wire.Flow { return e.flow }

func (e *engine) Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask) error {
	if err := e.qp.Modify(now, a, m, e.setup.Flow); err != nil {
		return err
	}
	if m&verbs.AttrState != 0 && a.State == verbs.StateReset {
		e.sq.Reset()
		e.rq.Reset()
	}
	return nil
}

func (e *engine) PostSend(now int64, w *verbs.SendWR) error {
	if err := e.sq.Put(w); err != nil {
		return err
	}
	e.sq.Publish()
	e.Doorbell(now)
	return nil
}

func (e *engine) PostRecv(now int64, w *verbs.RecvWR) error {
	if err := e.rq.Put(w); err != nil {
		return err
	}
	e.rq.Publish()
	e.Doorbell(now)
	return nil
}

func (e *engine) Receive(now int64, d *wire.Datagram) {
	var p bth.Packet
	if why := bth.Parse(d.Payload, &p); why != trace.None {
		e.front[why]++
		return
	}
	p.ECN = d.TOS & 3
	if e.setup.Type == verbs.UD {
		var grh [verbs.GRHLen]byte
		d.PutGRH(&grh, len(d.Payload))
		p.GRH = grh[:]
	}
	e.HandlePacket(now, &p)
}

// Transmit has the engine fill bursts, of which the link takes what it may.
func (e *engine) Transmit(now int64, limit int) (out []Out) {
	for {
		e.burst.Reset(nil, 0, 0)
		if !e.Fill(now, e.burst) {
			return out
		}
		n := e.burst.Len()
		if limit >= 0 {
			n = min(n, limit-len(out))
		}
		if n > 0 {
			e.burst.Seal(wire.IDCount)
		}
		for i := range n {
			out = append(out, Out{e.burst.Flow.TOS, e.burst.AppendSegment(nil, i)})
		}
		whole := n == e.burst.Len()
		e.Sent(e.burst, n)
		if !whole || len(out) > maxPackets {
			return out
		}
	}
}

func (e *engine) Timer(now int64) int64 {
	e.HandleTimer(now)
	return e.Deadline()
}

// events are the names that programs know of an engine's events.
var events = []struct {
	bit transport.Events
	typ verbs.EventType
}{
	{transport.EventFatal, verbs.EventQPFatal},
	{transport.EventAccess, verbs.EventQPAccessErr},
	{transport.EventReqErr, verbs.EventQPReqErr},
	{transport.EventCommEst, verbs.EventCommEst},
	{transport.EventDrained, verbs.EventSQDrained},
	{transport.EventLastWQE, verbs.EventLastWQE},
}

func (e *engine) Observe() Observation {
	o := Observation{State: e.State(), Send: e.send.take(), Recv: e.recv.take()}
	o.Count = func(r trace.Reason) (uint64, bool) { return e.Counts()[r] + e.front[r], true }
	got := e.TakeEvents()
	for _, ev := range events {
		if got&ev.bit != 0 && (ev.typ != verbs.EventLastWQE || e.setup.SharedRQ) { // the NIC tells of it for shared queues alone
			o.Events = append(o.Events, ev.typ)
		}
	}
	return o
}
