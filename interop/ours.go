package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// ours is a side on gorxe.
type ours struct {
	dev *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	ahs map[verbs.AV]*verbs.AH

	attached bool // to a device of another process
}

type ourMR struct{ *verbs.MR }

type ourQP struct {
	*verbs.QP
	o *ours
}

type ourSRQ struct{ *verbs.SRQ }

// Connect takes every attribute as it stands, as the kernel does.
func (q ourQP) Connect(local, remote verbs.Endpoint, o verbs.ConnectOptions) error {
	return q.QP.Connect(local, remote, o.Literal())
}

func (q ourQP) listen(local, remote verbs.Endpoint, o verbs.ConnectOptions) error {
	a := verbs.QPAttr{
		State: verbs.StateInit, Port: 1, Access: o.Access, PathMTU: o.PathMTU, DestQPN: remote.QPN, RQPSN: remote.PSN,
		AV: verbs.AV{DGID: remote.GID, SGIDIndex: local.GIDIndex}, MaxDestRdAtomic: o.MaxDestRdAtomic, MinRNRTimer: o.MinRNRTimer,
	}
	if err := q.Modify(&a, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccess); err != nil {
		return err
	}
	a.State = verbs.StateRTR
	return q.Modify(&a, verbs.AttrState|verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|verbs.AttrRQPSN|verbs.AttrMaxDestRdAtomic|verbs.AttrMinRNRTimer)
}

// openOurs opens the device of a case on eth0, or attaches to the one that the
// environment's daemon has there.
func openOurs(c *Case) (*ours, error) {
	cfg := gorxe.Config{Interface: "eth0", Link: c.Link, Faults: c.ourFaults(), Seed: 1}
	if c.Daemon {
		cfg = gorxe.Config{Interface: "eth0"}
	}
	dev, err := gorxe.Open(cfg)
	if err != nil {
		return nil, err
	}
	o, err := onDevice(dev)
	if err == nil && o.attached != c.Daemon {
		err = fmt.Errorf("attached is %v, not %v", o.attached, c.Daemon)
	}
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return o, nil
}

// onDevice makes a side of a device.
func onDevice(dev *verbs.Context) (*ours, error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	cq, err := dev.CreateCQ(verbs.CQConfig{Depth: 2048})
	if err != nil {
		return nil, err
	}
	attr, err := dev.Device()
	return &ours{dev: dev, pd: pd, cq: cq, ahs: map[verbs.AV]*verbs.AH{}, attached: attr.Daemon != ""}, err
}

// forPeers are the rights that an attached program can give to memory of the
// device's alone.
const forPeers = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessMWBind

func (o *ours) regMR(size int, a verbs.Access) (memory, error) { return o.register(o.pd, size, a) }

func (o *ours) register(pd *verbs.PD, size int, a verbs.Access) (memory, error) {
	if o.attached && a&forPeers != 0 {
		m, err := pd.AllocMR(size, a)
		return ourMR{m}, err
	}
	m, err := pd.RegMR(make([]byte, size), a)
	return ourMR{m}, err
}

func (o *ours) regForeign(size int, a verbs.Access) (memory, error) {
	pd, err := o.dev.AllocPD()
	if err != nil {
		return nil, err
	}
	return o.register(pd, size, a)
}

func (o *ours) useCQ(depth int) (err error) {
	o.cq, err = o.dev.CreateCQ(verbs.CQConfig{Depth: depth})
	return err
}

func (o *ours) events() ([]verbs.AsyncEvent, error) {
	var es []verbs.AsyncEvent
	for {
		select {
		case e := <-o.dev.Events():
			es = append(es, e)
		default:
			return es, nil
		}
	}
}

func (o *ours) createSRQ() (shared, error) {
	s, err := o.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 256})
	return ourSRQ{s}, err
}

func (o *ours) createQP(t verbs.QPType, s shared) (queue, error) {
	cfg := verbs.QPConfig{Type: t, SendCQ: o.cq, RecvCQ: o.cq, Cap: verbs.QPCap{
		MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: verbs.MaxSGE, MaxRecvSGE: verbs.MaxSGE, MaxInline: verbs.MaxInline,
	}}
	if s != nil {
		cfg.SRQ = s.(ourSRQ).SRQ
	}
	q, err := o.pd.CreateQP(cfg)
	return ourQP{q, o}, err
}

func (o *ours) counters() (map[string]uint64, error) { return o.dev.Counters() }

// ah returns an address handle, made once for each destination.
func (o *ours) ah(av verbs.AV) (*verbs.AH, error) {
	if h := o.ahs[av]; h != nil {
		return h, nil
	}
	h, err := o.pd.CreateAH(av)
	if err == nil {
		o.ahs[av] = h
	}
	return h, err
}

func (o *ours) poll(n int, wait time.Duration) ([]verbs.WC, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	wc, have := make([]verbs.WC, n), 0
	for have < n {
		k, err := o.cq.Wait(ctx, wc[have:])
		have += k
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return wc[:have], nil
}

func (m ourMR) Write(off int, b []byte) error {
	if n := copy(m.Bytes()[off:], b); n < len(b) {
		return fmt.Errorf("%d octets do not fit at %d", len(b), off)
	}
	return nil
}

func (m ourMR) Read(off, n int) ([]byte, error) {
	return append([]byte(nil), m.Bytes()[off:off+n]...), nil
}

func (q ourQP) local(peer netip.Addr, psn uint32) (verbs.Endpoint, error) {
	e, err := q.Endpoint(peer)
	e.PSN = psn
	return e, err
}

func (q ourQP) State() (verbs.QPState, error) {
	a, err := q.Query()
	return a.State, err
}

func (q ourQP) MoveTo(s verbs.QPState) error {
	return q.Modify(&verbs.QPAttr{State: s}, verbs.AttrState)
}

func (q ourQP) send(ws ...*work) error {
	var l []verbs.SendWR
	for _, w := range ws {
		wr := w.wr()
		if w.to.DGID != (verbs.GID{}) {
			h, err := q.o.ah(w.to)
			if err != nil {
				return err
			}
			wr.AH = h.Handle()
		}
		l = append(l, wr)
	}
	_, err := q.PostSend(l)
	return err
}

func (q ourQP) reply(w *work, to verbs.WC, off int) error {
	av, err := q.o.dev.AVFrom(&to, w.mem.(ourMR).Bytes()[off:off+verbs.GRHLen])
	if err != nil {
		return err
	}
	h, err := q.o.ah(av)
	if err != nil {
		return err
	}
	wr := w.wr()
	wr.AH, wr.RemoteQPN = h.Handle(), to.SrcQP
	_, err = q.PostSend([]verbs.SendWR{wr})
	return err
}

func (q ourQP) attach(group verbs.GID) error { return q.AttachMulticast(group) }

func (q ourQP) detach(group verbs.GID) error { return q.DetachMulticast(group) }

func (w *work) wr() verbs.SendWR {
	var inline []byte
	if w.flags&verbs.SendInline != 0 {
		for _, s := range w.spans() {
			inline = append(inline, w.mem.(ourMR).Bytes()[s[0]:s[0]+s[1]]...)
		}
	}
	return verbs.SendWR{
		ID: w.id, Opcode: w.op, Flags: w.sendFlags(), SGL: w.sgl(), Inline: inline, RemoteAddr: w.remote, RKey: w.rkey,
		Imm: w.imm, CompareAdd: w.add, Swap: w.swap, RemoteQPN: w.qpn, RemoteQKey: w.qkey,
	}
}

func (q ourQP) recv(w *work) error {
	_, err := q.PostRecv([]verbs.RecvWR{{ID: w.id, SGL: w.sgl()}})
	return err
}

func (s ourSRQ) recv(w *work) error {
	_, err := s.PostRecv([]verbs.RecvWR{{ID: w.id, SGL: w.sgl()}})
	return err
}

// spans are the pieces of memory of a request.
func (w *work) spans() [][2]int {
	if w.pieces != nil {
		return w.pieces
	}
	return [][2]int{{w.off, w.len}}
}

func (w *work) sgl() []verbs.SGE {
	var l []verbs.SGE
	for _, s := range w.spans() {
		m := w.mem.(ourMR)
		l = append(l, verbs.SGE{Addr: m.Addr() + uint64(s[0]), Length: uint32(s[1]), LKey: m.LKey() ^ w.twist})
	}
	return l
}
