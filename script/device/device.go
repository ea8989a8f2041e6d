package device

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/script"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Slack is how late a device's timers run: a tick of its wheel.
const Slack = 17 * time.Microsecond

// Run runs a script on a device of its own. It returns an error that wraps
// script.ErrOther for a script about an engine alone.
func Run(s *script.Script, o script.Options) (err error) {
	var d *device
	o.Slack = Slack
	o.Make = func(s *script.Setup) (script.Subject, error) {
		var err error
		d, err = open(s)
		return d, err
	}
	defer func() {
		if d != nil && d.nic != nil {
			if cerr := d.nic.Close(); err == nil {
				err = cerr
			}
		}
	}()
	return s.Run(o)
}

// device is a script.Subject.
type device struct {
	nic   *nic.NIC
	ctx   *verbs.Context
	port  *port
	flow  *wire.Flow
	qp    *verbs.QP
	srq   *verbs.SRQ // nil if the queue pair has a receive queue of its own
	ah    uint32
	send  *verbs.CQ
	recv  *verbs.CQ
	now   int64
	count map[string]uint64
}

// cqDepth is more than any script completes at once.
const cqDepth = 1 << 14

func open(s *script.Setup) (d *device, err error) {
	if s.Bare {
		return nil, script.ErrOther
	}
	control := s.CC
	d = &device{flow: s.Flow, port: &port{flow: s.Flow, window: s.Window}}
	cfg := nic.Config{
		Links: []link.Link{d.port}, NetDev: "script", Seed: 1, Manual: true, Clock: func() int64 { return d.now }, CC: &control,
		GIDs: []verbs.GIDEntry{{GID: verbs.GIDOf(s.Flow.Src), Type: "RoCE v2", Interface: "script"}},
	}
	if s.Type == verbs.UD {
		cfg.ActiveMTU = verbs.MTU(s.MTU)
	}
	if d.nic, err = nic.Open(cfg); err != nil {
		return d, err
	}
	s.SetCC = d.nic.SetCC
	d.ctx = verbs.NewContext(d.nic)
	return d, d.create(s)
}

// create makes the objects of the script's program.
func (d *device) create(s *script.Setup) error {
	own, err := d.ctx.AllocPD()
	if err != nil {
		return err
	}
	others, err := d.ctx.AllocPD()
	if err != nil {
		return err
	}
	for _, g := range s.Regions {
		pd := own
		if g.Foreign {
			pd = others
		}
		m, err := pd.RegMRIOVA(g.Mem, g.IOVA, g.Access)
		if err != nil {
			return err
		}
		g.Key, g.Withdraw = m.RKey(), m.Deregister
	}
	for _, g := range s.Windows {
		pd := own
		if g.Foreign {
			pd = others
		}
		w, err := pd.AllocMW(g.Type)
		if err != nil {
			return err
		}
		g.Key, g.Withdraw = w.RKey(), w.Dealloc
	}
	cqe := s.CQE
	if cqe == 0 {
		cqe = cqDepth
	}
	for _, cq := range []**verbs.CQ{&d.send, &d.recv} {
		if *cq, err = d.ctx.CreateCQ(verbs.CQConfig{Depth: cqe}); err != nil {
			return err
		}
	}
	if s.SharedRQ {
		if d.srq, err = own.CreateSRQ(verbs.SRQConfig{MaxWR: s.Cap.MaxRecvWR, MaxSGE: s.Cap.MaxRecvSGE}); err != nil {
			return err
		}
		s.SetLimit = d.srq.SetLimit
	}
	if s.Type == verbs.UD {
		ah, err := own.CreateAH(d.av())
		if err != nil {
			return err
		}
		d.ah = ah.Handle()
	}
	if d.qp, err = own.CreateQP(verbs.QPConfig{Type: s.Type, SendCQ: d.send, RecvCQ: d.recv, SRQ: d.srq, Cap: s.Cap}); err != nil {
		return err
	}
	for _, g := range s.Groups {
		if err := d.qp.AttachMulticast(verbs.GIDOf(g)); err != nil {
			return err
		}
	}
	s.QPN = bth.QPN(d.qp.QPN())
	return nil
}

func (d *device) av() verbs.AV { return verbs.AV{DGID: verbs.GIDOf(d.flow.Dst), HopLimit: d.flow.TTL} }

func (d *device) Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask) error {
	d.now = now
	b := *a
	b.AV = d.av()
	return d.qp.Modify(&b, m)
}

func (d *device) PostSend(now int64, w *verbs.SendWR) error {
	d.now = now
	w.AH = d.ah
	_, err := d.qp.PostSend([]verbs.SendWR{*w})
	return err
}

func (d *device) PostRecv(now int64, w *verbs.RecvWR) error {
	d.now = now
	if d.srq != nil {
		_, err := d.srq.PostRecv([]verbs.RecvWR{*w})
		return err
	}
	_, err := d.qp.PostRecv([]verbs.RecvWR{*w})
	return err
}

// Receive puts the packet on the link, with its ICRC.
func (d *device) Receive(now int64, p *wire.Datagram) {
	d.now = now
	in := *p
	in.Payload = slices.Clone(p.Payload)
	if b, n := in.Payload, len(in.Payload)-bth.ICRCLen; n >= bth.BTHLen {
		src, dst := netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, wire.Port)
		wrong := binary.LittleEndian.Uint32(b[n:])
		binary.LittleEndian.PutUint32(b[n:], wrong^wire.ICRC(b[:n], src, dst, 0, true))
	}
	d.port.in = append(d.port.in, in)
	d.run()
}

// Transmit is the only time at which the link takes anything, so that what is
// sent as soon as it is posted is given back to the engine and sent again.
func (d *device) Transmit(now int64, limit int) []script.Out {
	d.now = now
	d.port.room = limit
	d.run()
	d.port.room = 0
	out := d.port.out
	d.port.out = nil
	return out
}

func (d *device) Timer(now int64) int64 {
	d.now = now
	return d.run()
}

// run steps the device until it has nothing to do at this time. With a link
// that takes nothing it says so for ever.
func (d *device) run() (deadline int64) {
	for range 1000 {
		if deadline = d.nic.Step(0, d.now); deadline > d.now {
			return deadline
		}
	}
	return deadline
}

// apart are the reasons that the device counts together with others under one
// name.
var apart = []trace.Reason{trace.NoteDuplicate, trace.DropDuplicate, trace.DropNoRecv}

func (d *device) Observe() (o script.Observation) {
	if a, err := d.qp.Query(); err == nil {
		o.State = a.State
	}
	o.Send, o.Recv = poll(d.send), poll(d.recv)
	for {
		select {
		case e := <-d.ctx.Events():
			o.Events = append(o.Events, e.Type)
			continue
		default:
		}
		break
	}
	d.count, _ = d.ctx.Counters()
	o.Count = func(r trace.Reason) (uint64, bool) { return d.count[r.String()], !slices.Contains(apart, r) }
	return o
}

func poll(cq *verbs.CQ) (out []script.Completion) {
	var wc [16]verbs.WC
	for {
		n := cq.Poll(wc[:])
		for _, w := range wc[:n] {
			out = append(out, script.Completion{WC: w, Polled: true})
		}
		if n == 0 {
			return out
		}
	}
}

// port is the device's link, and the script's.
type port struct {
	flow   *wire.Flow
	window int
	in     []wire.Datagram
	out    []script.Out
	room   int // packets that it takes; negative: any number
	down   bool
}

func (p *port) Info() link.Info {
	w := p.window
	if w == 0 {
		w = 64
	}
	return link.Info{
		Name: "script", Exact4: true, Exact6: true, IDs: wire.IDCount, MaxSegments: wire.MaxSegments, MaxBytes: wire.MaxBurstBytes, MaxBursts: 2,
		Window: w, MTU: 4200,
	}
}

func (p *port) Recv(ds []wire.Datagram) (int, error) {
	if p.down {
		return 0, link.ErrClosed
	}
	n := copy(ds, p.in)
	p.in = p.in[n:]
	return n, nil
}

func (p *port) Send(bs []*wire.Burst) (n int, err error) {
	if p.down {
		return 0, link.ErrClosed
	}
	for _, b := range bs {
		for i := range b.Segs {
			if p.room == 0 {
				return n, nil
			}
			if p.room > 0 {
				p.room--
			}
			p.out = append(p.out, script.Out{TOS: b.Flow.TOS, Octets: b.AppendSegment(nil, i)})
			n++
		}
	}
	return n, nil
}

// JoinGroup and LeaveGroup make it a link.GroupJoiner: everything arrives that
// the script says.
func (p *port) JoinGroup(netip.Addr) error { return nil }

func (p *port) LeaveGroup(netip.Addr) error { return nil }

func (p *port) Wait(time.Duration) error { return nil }

func (p *port) Wake() {}

func (p *port) Close() error {
	p.down = true
	return nil
}
