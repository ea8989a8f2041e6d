package control

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unsafe"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// QueryDevice implements verbs.Admin.
func (c *Client) QueryDevice() (verbs.DeviceAttr, error) {
	var r DeviceReply
	text, _, err := c.call(OpQueryDevice, nil, &r)
	if err != nil {
		return verbs.DeviceAttr{}, err
	}
	a := verbs.DeviceAttr{
		Name: Text(r.Name[:]), FWVer: Text(r.FWVer[:]), NodeGUID: r.NodeGUID, MaxMRSize: r.MaxMRSize, VendorID: r.VendorID,
		MaxQP: int(r.MaxQP), MaxQPWR: int(r.MaxQPWR), MaxSGE: int(r.MaxSGE), MaxCQ: int(r.MaxCQ), MaxCQE: int(r.MaxCQE),
		MaxMR: int(r.MaxMR), MaxMW: int(r.MaxMW), MaxPD: int(r.MaxPD), MaxQPRdAtom: int(r.MaxQPRdAtom), MaxInitRdAtom: int(r.MaxInitRdAtom),
		MaxSRQ: int(r.MaxSRQ), MaxSRQWR: int(r.MaxSRQWR), MaxAH: int(r.MaxAH), MaxMcastGrp: int(r.MaxMcastGrp), MaxMcastQP: int(r.MaxMcastQP),
		LocalAckDelay: int(r.AckDelay), PhysPorts: int(r.PhysPorts), Shards: int(r.Shards), AtomicHCA: r.AtomicHCA != 0,
		Link: Text(r.Link[:]), ICRC: Text(r.ICRC[:]),
		Daemon: fmt.Sprintf("rxed (process %d) at %s", c.hello.PID, c.path),
	}
	if len(text) > 0 {
		a.Missing = strings.Split(string(text), "\n")
	}
	return a, nil
}

// QueryPort implements verbs.Admin.
func (c *Client) QueryPort() (verbs.PortAttr, error) {
	var r PortReply
	if _, _, err := c.call(OpQueryPort, nil, &r); err != nil {
		return verbs.PortAttr{}, err
	}
	return verbs.PortAttr{
		State: Text(r.State[:]), Active: r.Active != 0, MaxMTU: verbs.MTU(r.MaxMTU), ActiveMTU: verbs.MTU(r.ActiveMTU),
		GIDTblLen: int(r.GIDTblLen), PKeyTblLen: int(r.PKeyTblLen), LinkLayer: Text(r.LinkLayer[:]),
		NetDev: Text(r.NetDev[:]), NetMTU: int(r.NetMTU), SpeedMbit: int(r.SpeedMbit),
	}, nil
}

// GIDs implements verbs.Admin.
func (c *Client) GIDs() ([]verbs.GIDEntry, error) {
	rest, _, err := c.call(OpGIDs, nil, nil)
	var out []verbs.GIDEntry
	for err == nil && len(rest) > 0 {
		var g GIDReply
		if rest, err = Decode(rest, &g); err == nil {
			out = append(out, verbs.GIDEntry{Index: int(g.Index), GID: g.GID, Type: Text(g.Type[:]), Interface: Text(g.Interface[:])})
		}
	}
	return out, err
}

// ChooseGID implements verbs.Admin.
func (c *Client) ChooseGID(peer netip.Addr) (int, error) {
	var q ChooseGIDReq
	PutText(q.Peer[:], peer.String())
	var r ChooseGIDReply
	_, _, err := c.call(OpChooseGID, &q, &r)
	return int(r.Index), err
}

// Counters implements verbs.Admin: those of the whole device, all its users'.
func (c *Client) Counters() (map[string]uint64, error) {
	rest, _, err := c.call(OpCounters, nil, nil)
	if err != nil {
		return nil, err
	}
	return DecodeNamed(rest)
}

// AllocPD implements verbs.Objects.
func (c *Client) AllocPD() (verbs.Handle, error) {
	var r HandleReply
	_, _, err := c.call(OpAllocPD, nil, &r)
	return verbs.Handle(r.Handle), err
}

// RegMR implements verbs.Objects. Memory of the program cannot be shared with the
// daemon after the fact: it gets a shadow there, for use by this program's own work
// requests. A region without Mem is shared, and any peer may use it.
func (c *Client) RegMR(q verbs.MRReq) (verbs.MRInfo, error) {
	n := q.Len
	switch {
	case q.Mem != nil && q.Access&(verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic|verbs.AccessMWBind) != 0:
		return verbs.MRInfo{}, fmt.Errorf("control: RegMR with rights for peers: %w by a device in another process (rxed), which cannot see this program's memory; use AllocMR, whose memory it shares", verbs.ErrNotSupported)
	case q.Mem != nil && (n < 0 || n > len(q.Mem)), q.Mem == nil && n <= 0:
		return verbs.MRInfo{}, fmt.Errorf("control: a region of %d octets in memory of %d", n, len(q.Mem))
	}
	if q.Mem != nil {
		n = len(q.Mem)
	}
	if n == 0 { // an empty slice
		n = 1
	}
	place, err := sys.Reserve(sys.PageRound(n))
	if err != nil {
		return verbs.MRInfo{}, fmt.Errorf("control: %d octets of address space: %w", n, err)
	}
	c.space.add(place)
	if q.DefaultIOVA {
		q.IOVA = uint64(uintptr(unsafe.Pointer(&place[0])))
		if len(q.Mem) > 0 {
			q.IOVA = uint64(uintptr(unsafe.Pointer(&q.Mem[0])))
		}
	}
	req := RegMRReq{PD: uint32(q.PD), Access: uint32(q.Access), Len: uint64(n), IOVA: q.IOVA}
	var r RegMRReply
	_, fds, err := c.call(OpRegMR, &req, &r)
	if err == nil {
		if err = checkFD(fds, uint64(len(place))); err == nil {
			err = sys.MapAt(place, fds[0])
		}
		sys.CloseFDs(fds...)
		if err != nil {
			err = errors.Join(err, c.destroy(verbs.KindMR, verbs.Handle(r.Handle)))
		}
	}
	if err != nil {
		c.space.unmap(place)
		return verbs.MRInfo{}, err
	}
	info := verbs.MRInfo{Handle: verbs.Handle(r.Handle), Mem: place[:n], IOVA: q.IOVA, LKey: r.LKey, RKey: r.RKey}
	if q.Mem != nil {
		info.Mem, info.Shadow = q.Mem, place[:len(q.Mem)]
	}
	c.keep(verbs.KindMR, info.Handle, place)
	return info, nil
}

// AllocMW implements verbs.Objects.
func (c *Client) AllocMW(q verbs.MWReq) (verbs.MWInfo, error) {
	var r AllocMWReply
	_, _, err := c.call(OpAllocMW, &AllocMWReq{PD: uint32(q.PD), Type: uint32(q.Type)}, &r)
	return verbs.MWInfo{Handle: verbs.Handle(r.Handle), RKey: r.RKey}, err
}

// CreateCQ implements verbs.Objects.
func (c *Client) CreateCQ(cfg verbs.CQConfig) (verbs.CQInfo, error) {
	h, ring, err := c.ring(OpCreateCQ, verbs.KindCQ, &CreateCQReq{Depth: uint32(max(0, cfg.Depth)), Vector: uint32(cfg.Vector)})
	return verbs.CQInfo{Handle: h, Ring: ring}, err
}

// CreateSRQ implements verbs.Objects.
func (c *Client) CreateSRQ(q verbs.SRQReq) (verbs.SRQInfo, error) {
	h, ring, err := c.ring(OpCreateSRQ, verbs.KindSRQ, &CreateSRQReq{PD: uint32(q.PD), MaxWR: uint32(max(0, q.MaxWR)), MaxSGE: uint32(max(0, q.MaxSGE))})
	return verbs.SRQInfo{Handle: h, Ring: ring}, err
}

// ring makes an object that is one ring.
func (c *Client) ring(op Op, k verbs.ObjectKind, req any) (verbs.Handle, []byte, error) {
	var r RingReply
	_, fds, err := c.call(op, req, &r)
	if err != nil {
		return 0, nil, err
	}
	h := verbs.Handle(r.Handle)
	mem, err := c.mapFD(fds, r.MapBytes)
	if err == nil && (r.RingBytes == 0 || r.RingBytes > r.MapBytes) {
		c.space.unmap(mem)
		err = fmt.Errorf("control: a ring of %d octets in memory of %d", r.RingBytes, r.MapBytes)
	}
	if err != nil {
		return 0, nil, errors.Join(err, c.destroy(k, h))
	}
	c.keep(k, h, mem)
	return h, mem[:r.RingBytes:r.RingBytes], nil
}

// ModifySRQ implements verbs.Objects.
func (c *Client) ModifySRQ(h verbs.Handle, limit int) error {
	_, _, err := c.call(OpModifySRQ, &LimitReq{uint32(h), uint32(max(0, limit))}, nil)
	return err
}

// QuerySRQ implements verbs.Objects.
func (c *Client) QuerySRQ(h verbs.Handle) (int, error) {
	var r LimitReply
	_, _, err := c.call(OpQuerySRQ, &LimitReq{Handle: uint32(h)}, &r)
	return int(r.Limit), err
}

// CreateAH implements verbs.Objects.
func (c *Client) CreateAH(pd verbs.Handle, av *verbs.AV) (verbs.Handle, error) {
	var r HandleReply
	_, _, err := c.call(OpCreateAH, &CreateAHReq{PD: uint32(pd), AV: FromAV(av)}, &r)
	return verbs.Handle(r.Handle), err
}

// CreateQP implements verbs.Objects.
func (c *Client) CreateQP(q verbs.QPReq) (verbs.QPInfo, error) {
	req := CreateQPReq{
		PD: uint32(q.PD), SendCQ: uint32(q.SendCQ), RecvCQ: uint32(q.RecvCQ), SRQ: uint32(q.SRQ), Type: uint32(q.Type), SigAll: b2u(q.SigAll),
		MaxSendWR: uint32(q.Cap.MaxSendWR), MaxRecvWR: uint32(q.Cap.MaxRecvWR), MaxSendSGE: uint32(q.Cap.MaxSendSGE),
		MaxRecvSGE: uint32(q.Cap.MaxRecvSGE), MaxInline: uint32(q.Cap.MaxInline),
	}
	var r CreateQPReply
	_, fds, err := c.call(OpCreateQP, &req, &r)
	if err != nil {
		return verbs.QPInfo{}, err
	}
	h := verbs.Handle(r.Handle)
	mem, err := c.mapFD(fds, r.MapBytes)
	if err == nil && (r.SendBytes > r.MapBytes || r.RecvAt > r.MapBytes || r.RecvBytes > r.MapBytes-r.RecvAt) {
		c.space.unmap(mem)
		err = fmt.Errorf("control: rings of %d and %d octets in memory of %d", r.SendBytes, r.RecvBytes, r.MapBytes)
	}
	if err != nil {
		return verbs.QPInfo{}, errors.Join(err, c.destroy(verbs.KindQP, h))
	}
	c.keep(verbs.KindQP, h, mem)
	info := verbs.QPInfo{Handle: h, QPN: r.QPN, PSN: r.PSN, MaxDatagram: int(r.MaxDatagram), SendRing: mem[:r.SendBytes:r.SendBytes]}
	if r.RecvBytes > 0 {
		info.RecvRing = mem[r.RecvAt : r.RecvAt+r.RecvBytes : r.RecvAt+r.RecvBytes]
	}
	return info, nil
}

// ModifyQP implements verbs.Objects.
func (c *Client) ModifyQP(h verbs.Handle, a *verbs.QPAttr, m verbs.AttrMask) error {
	_, _, err := c.call(OpModifyQP, &ModifyQPReq{Handle: uint32(h), Mask: uint32(m), Attr: FromQPAttr(a)}, nil)
	return err
}

// QueryQP implements verbs.Objects.
func (c *Client) QueryQP(h verbs.Handle) (verbs.QPAttr, verbs.QPStats, error) {
	var r QPAttr
	rest, _, err := c.call(OpQueryQP, &HandleReq{Handle: uint32(h)}, &r)
	if err != nil {
		return verbs.QPAttr{}, nil, err
	}
	stats, err := DecodeNamed(rest)
	return r.Verbs(), stats, err
}

// AttachMulticast implements verbs.Objects.
func (c *Client) AttachMulticast(qp verbs.Handle, group verbs.GID) error {
	_, _, err := c.call(OpAttachMcast, &McastReq{Handle: uint32(qp), Group: group}, nil)
	return err
}

// DetachMulticast implements verbs.Objects.
func (c *Client) DetachMulticast(qp verbs.Handle, group verbs.GID) error {
	_, _, err := c.call(OpDetachMcast, &McastReq{Handle: uint32(qp), Group: group}, nil)
	return err
}

// Destroy implements verbs.Objects. The object's memory is unmapped: a region's
// slice is not to be used any more.
func (c *Client) Destroy(k verbs.ObjectKind, h verbs.Handle) error {
	err := c.destroy(k, h)
	if err != nil {
		return err
	}
	c.mu.Lock()
	m := c.objects[object{k, h}]
	delete(c.objects, object{k, h})
	if k == verbs.KindCQ && m != nil {
		m.ending.Store(true)
		if w := word(m.mem); w != nil && c.waiters[w] > 0 {
			w.Add(1)
			sys.FutexWake(w)
		}
	}
	c.mu.Unlock()
	if m != nil {
		m.gate.Lock() // whoever waits has left
		m.gone = true
		m.gate.Unlock()
		c.space.unmap(m.mem)
	}
	return nil
}

func (c *Client) destroy(k verbs.ObjectKind, h verbs.Handle) error {
	_, _, err := c.call(OpDestroy, &HandleReq{Handle: uint32(h), Kind: uint32(k)}, nil)
	return err
}

func (c *Client) keep(k verbs.ObjectKind, h verbs.Handle, mem []byte) {
	c.mu.Lock()
	c.objects[object{k, h}] = &mapping{mem: mem}
	c.mu.Unlock()
}
