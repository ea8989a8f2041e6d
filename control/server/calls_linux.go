package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// errProtocol is the end of a client that says what is no call.
var errProtocol = errors.New("server: not a call of this protocol")

// answer is what a call gives back.
type answer struct {
	body any
	more []byte
	fd   int // -1: none; it is closed when it has been sent
}

// calls are what clients may ask for.
var calls = map[control.Op]func(*client, []byte) (answer, error){
	control.OpQueryDevice: (*client).queryDevice,
	control.OpQueryPort:   (*client).queryPort,
	control.OpGIDs:        (*client).gids,
	control.OpChooseGID:   with((*client).chooseGID),
	control.OpCounters:    (*client).counters,
	control.OpAllocPD:     (*client).allocPD,
	control.OpRegMR:       with((*client).regMR),
	control.OpAllocMW:     with((*client).allocMW),
	control.OpCreateCQ:    with((*client).createCQ),
	control.OpCreateSRQ:   with((*client).createSRQ),
	control.OpModifySRQ:   with((*client).modifySRQ),
	control.OpQuerySRQ:    with((*client).querySRQ),
	control.OpCreateAH:    with((*client).createAH),
	control.OpCreateQP:    with((*client).createQP),
	control.OpModifyQP:    with((*client).modifyQP),
	control.OpQueryQP:     with((*client).queryQP),
	control.OpAttachMcast: with((*client).attachMcast),
	control.OpDetachMcast: with((*client).detachMcast),
	control.OpDestroy:     with((*client).destroyCall),
}

// with decodes the body of a call.
func with[T any](f func(*client, *T) (answer, error)) func(*client, []byte) (answer, error) {
	return func(c *client, b []byte) (answer, error) {
		v := new(T)
		if _, err := control.Decode(b, v); err != nil {
			return answer{fd: -1}, fmt.Errorf("%w: %w", errProtocol, err)
		}
		return f(c, v)
	}
}

// reply answers one call. Its error ends the client.
func (c *client) reply(m *control.Message) error {
	f := calls[m.Op]
	if f == nil {
		err := fmt.Errorf("%w: operation %d", errProtocol, m.Op)
		_ = c.conn.Send(m.Op|control.OpReply, control.BadMessage, m.Tag, nil, []byte(err.Error()), sendWait)
		return err
	}
	a, err := f(c, m.Body)
	if err != nil {
		st := control.StatusOf(err)
		if errors.Is(err, errProtocol) {
			st = control.BadMessage
		}
		if e := c.conn.Send(m.Op|control.OpReply, st, m.Tag, nil, []byte(err.Error()), sendWait); e != nil || st == control.BadMessage {
			return errors.Join(err, e)
		}
		return nil
	}
	var fds []int
	if a.fd >= 0 {
		fds = []int{a.fd}
		defer sys.CloseFDs(a.fd)
	}
	return c.conn.Send(m.Op|control.OpReply, control.OK, m.Tag, a.body, a.more, sendWait, fds...)
}

func none(err error) (answer, error) { return answer{fd: -1}, err }

func plain(body any) (answer, error) { return answer{body: body, fd: -1}, nil }

// find returns an object of the client's.
func (c *client) find(k verbs.ObjectKind, h uint32) (*thing, error) {
	if t := c.objects[object{k, verbs.Handle(h)}]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("server: no %s of this client has handle %#x: %w", kindName[k], h, verbs.ErrClosed)
}

var kindName = map[verbs.ObjectKind]string{
	verbs.KindPD: "protection domain", verbs.KindMR: "memory region", verbs.KindCQ: "completion queue", verbs.KindQP: "queue pair",
	verbs.KindSRQ: "shared receive queue", verbs.KindAH: "address handle", verbs.KindMW: "memory window",
}

func (c *client) queryDevice([]byte) (answer, error) {
	a, err := c.s.nic.QueryDevice()
	if err != nil {
		return none(err)
	}
	per, _ := c.s.Limits()
	r := control.DeviceReply{
		NodeGUID: a.NodeGUID, MaxMRSize: min(a.MaxMRSize, uint64(per.Bytes)), VendorID: a.VendorID,
		MaxQP: uint32(min(a.MaxQP, per.QPs)), MaxQPWR: uint32(a.MaxQPWR), MaxSGE: uint32(a.MaxSGE), MaxCQ: uint32(min(a.MaxCQ, per.CQs)), MaxCQE: uint32(min(a.MaxCQE, per.CQEs)),
		MaxMR: uint32(min(a.MaxMR, per.MRs)), MaxMW: uint32(min(a.MaxMW, per.MWs)), MaxPD: uint32(min(a.MaxPD, per.PDs)),
		MaxQPRdAtom: uint32(a.MaxQPRdAtom), MaxInitRdAtom: uint32(a.MaxInitRdAtom), MaxSRQ: uint32(min(a.MaxSRQ, per.SRQs)), MaxSRQWR: uint32(a.MaxSRQWR), MaxAH: uint32(min(a.MaxAH, per.AHs)),
		MaxMcastGrp: uint32(a.MaxMcastGrp), MaxMcastQP: uint32(a.MaxMcastQP), AckDelay: uint32(a.LocalAckDelay),
		PhysPorts: uint32(a.PhysPorts), Shards: uint32(a.Shards),
	}
	if a.AtomicHCA {
		r.AtomicHCA = 1
	}
	control.PutText(r.Name[:], c.s.name)
	control.PutText(r.FWVer[:], a.FWVer)
	control.PutText(r.Link[:], a.Link)
	control.PutText(r.ICRC[:], a.ICRC)
	return answer{body: &r, more: []byte(strings.Join(a.Missing, "\n")), fd: -1}, nil
}

func (c *client) queryPort([]byte) (answer, error) {
	p, err := c.s.nic.QueryPort()
	if err != nil {
		return none(err)
	}
	r := control.PortReply{
		MaxMTU: uint32(p.MaxMTU), ActiveMTU: uint32(p.ActiveMTU), GIDTblLen: uint32(p.GIDTblLen), PKeyTblLen: uint32(p.PKeyTblLen),
		NetMTU: uint32(p.NetMTU), SpeedMbit: uint32(p.SpeedMbit),
	}
	if p.Active {
		r.Active = 1
	}
	control.PutText(r.State[:], p.State)
	control.PutText(r.LinkLayer[:], p.LinkLayer)
	control.PutText(r.NetDev[:], p.NetDev)
	return plain(&r)
}

func (c *client) gids([]byte) (answer, error) {
	gids, err := c.s.nic.GIDs()
	if err != nil {
		return none(err)
	}
	var b []byte
	for _, g := range gids {
		r := control.GIDReply{Index: uint32(g.Index), GID: g.GID}
		if len(b)+binary.Size(&r) > control.MaxMessage-control.HeaderLen {
			break
		}
		control.PutText(r.Type[:], g.Type)
		control.PutText(r.Interface[:], g.Interface)
		b = control.Append(b, &r)
	}
	return answer{more: b, fd: -1}, nil
}

func (c *client) chooseGID(q *control.ChooseGIDReq) (answer, error) {
	text := control.Text(q.Peer[:])
	a, err := netip.ParseAddr(text)
	if err != nil {
		return none(fmt.Errorf("server: address %q: %w", text, err))
	}
	i, err := c.s.nic.ChooseGID(a)
	if err != nil {
		return none(err)
	}
	return plain(&control.ChooseGIDReply{Index: uint32(i)})
}

func (c *client) counters([]byte) (answer, error) {
	m, err := c.s.nic.Counters()
	return answer{more: control.AppendNamed(nil, m), fd: -1}, err
}

// make claims what an object costs, makes it, and gives the claim back if that
// fails.
func (c *client) make(k verbs.ObjectKind, costs usage, f func(t *thing) (verbs.Handle, error)) (verbs.Handle, error) {
	if err := c.s.take(c, costs); err != nil {
		return 0, err
	}
	t := &thing{costs: costs}
	h, err := f(t)
	if err != nil {
		c.s.give(c, costs)
		return 0, err
	}
	if k != verbs.KindQP {
		t.h = h
	}
	c.objects[object{k, h}] = t
	return h, nil
}

// share makes shared memory of n octets, rounded up.
func share(name string, n int) (fd int, mem []byte, err error) {
	if fd, mem, err = sys.NewShared(name, sys.PageRound(n)); err != nil {
		return -1, nil, fmt.Errorf("%w: %d octets of shared memory: %w", verbs.ErrLimit, n, err)
	}
	return fd, mem, nil
}

func (c *client) allocPD([]byte) (answer, error) {
	h, err := c.make(verbs.KindPD, usage{resPD: 1}, func(*thing) (verbs.Handle, error) { return c.s.nic.AllocPD() })
	if err != nil {
		return none(err)
	}
	return plain(&control.HandleReply{Handle: uint32(h)})
}

func (c *client) regMR(q *control.RegMRReq) (answer, error) {
	pd, err := c.find(verbs.KindPD, q.PD)
	if err != nil {
		return none(err)
	}
	const most = 1 << 46
	if q.Len == 0 || q.Len > most {
		return none(fmt.Errorf("%w: a memory region of %d octets", verbs.ErrLimit, q.Len))
	}
	n := sys.PageRound(int(q.Len))
	var r control.RegMRReply
	fd := -1
	_, err = c.make(verbs.KindMR, usage{resMR: 1, resBytes: int64(n)}, func(t *thing) (verbs.Handle, error) {
		var err error
		if fd, t.mem, err = share("rxed-mr", n); err != nil {
			return 0, err
		}
		info, err := c.s.nic.RegMR(verbs.MRReq{PD: pd.h, Mem: t.mem[:q.Len:q.Len], Len: int(q.Len), Access: verbs.Access(q.Access), IOVA: q.IOVA})
		if err != nil {
			sys.CloseFDs(fd)
			sys.Unmap(t.mem)
			return 0, err
		}
		r = control.RegMRReply{Handle: uint32(info.Handle), LKey: info.LKey, RKey: info.RKey, MapBytes: uint64(n)}
		return info.Handle, nil
	})
	if err != nil {
		return none(err)
	}
	return answer{body: &r, fd: fd}, nil
}

func (c *client) allocMW(q *control.AllocMWReq) (answer, error) {
	pd, err := c.find(verbs.KindPD, q.PD)
	if err != nil {
		return none(err)
	}
	var r control.AllocMWReply
	_, err = c.make(verbs.KindMW, usage{resMW: 1}, func(*thing) (verbs.Handle, error) {
		info, err := c.s.nic.AllocMW(verbs.MWReq{PD: pd.h, Type: verbs.MWType(min(q.Type, 255))})
		r = control.AllocMWReply{Handle: uint32(info.Handle), RKey: info.RKey}
		return info.Handle, err
	})
	if err != nil {
		return none(err)
	}
	return plain(&r)
}

// ring makes an object that is one ring.
func (c *client) ring(k verbs.ObjectKind, bytes int, costs usage, f func(mem []byte) (verbs.Handle, error)) (answer, error) {
	n := sys.PageRound(bytes)
	costs[resBytes] = int64(n)
	fd := -1
	h, err := c.make(k, costs, func(t *thing) (verbs.Handle, error) {
		var err error
		if fd, t.mem, err = share("rxed-ring", n); err != nil {
			return 0, err
		}
		h, err := f(t.mem[:bytes:bytes])
		if err != nil {
			sys.CloseFDs(fd)
			sys.Unmap(t.mem)
		}
		return h, err
	})
	if err != nil {
		return none(err)
	}
	c.mu.Lock()
	c.queues[object{k, h}] = true
	c.mu.Unlock()
	return answer{body: &control.RingReply{Handle: uint32(h), RingBytes: uint64(bytes), MapBytes: uint64(n)}, fd: fd}, nil
}

func (c *client) createCQ(q *control.CreateCQReq) (answer, error) {
	if q.Depth < 1 || q.Depth > verbs.MaxCQE {
		return none(fmt.Errorf("server: completion queue depth %d is not in 1..%d", q.Depth, verbs.MaxCQE))
	}
	bytes := verbs.RingBytes(int(q.Depth))
	return c.ring(verbs.KindCQ, bytes, usage{resCQ: 1, resCQE: int64(q.Depth)}, func(mem []byte) (verbs.Handle, error) {
		info, err := c.nc.CreateCQ(verbs.CQConfig{Depth: int(q.Depth), Vector: int(q.Vector)}, mem)
		return info.Handle, err
	})
}

func (c *client) createSRQ(q *control.CreateSRQReq) (answer, error) {
	pd, err := c.find(verbs.KindPD, q.PD)
	if err != nil {
		return none(err)
	}
	if q.MaxWR < 1 || q.MaxWR > verbs.MaxSRQWR || q.MaxSGE < 1 || q.MaxSGE > verbs.MaxSGE {
		return none(fmt.Errorf("server: a shared receive queue of %d requests with %d entries each, the limits are %d and %d", q.MaxWR, q.MaxSGE, verbs.MaxSRQWR, verbs.MaxSGE))
	}
	bytes := nic.RecvRingBytes(int(q.MaxWR), int(q.MaxSGE))
	return c.ring(verbs.KindSRQ, bytes, usage{resSRQ: 1}, func(mem []byte) (verbs.Handle, error) {
		info, err := c.nc.CreateSRQ(verbs.SRQReq{PD: pd.h, MaxWR: int(q.MaxWR), MaxSGE: int(q.MaxSGE)}, mem)
		return info.Handle, err
	})
}

func (c *client) modifySRQ(q *control.LimitReq) (answer, error) {
	t, err := c.find(verbs.KindSRQ, q.Handle)
	if err != nil {
		return none(err)
	}
	return none(c.s.nic.ModifySRQ(t.h, int(q.Limit)))
}

func (c *client) querySRQ(q *control.LimitReq) (answer, error) {
	t, err := c.find(verbs.KindSRQ, q.Handle)
	if err != nil {
		return none(err)
	}
	n, err := c.s.nic.QuerySRQ(t.h)
	if err != nil {
		return none(err)
	}
	return plain(&control.LimitReply{Limit: uint32(n)})
}

func (c *client) createAH(q *control.CreateAHReq) (answer, error) {
	pd, err := c.find(verbs.KindPD, q.PD)
	if err != nil {
		return none(err)
	}
	av := q.AV.Verbs()
	h, err := c.make(verbs.KindAH, usage{resAH: 1}, func(*thing) (verbs.Handle, error) { return c.s.nic.CreateAH(pd.h, &av) })
	if err != nil {
		return none(err)
	}
	return plain(&control.HandleReply{Handle: uint32(h)})
}

func (c *client) modifyQP(q *control.ModifyQPReq) (answer, error) {
	t, err := c.find(verbs.KindQP, q.Handle)
	if err != nil {
		return none(err)
	}
	a := q.Attr.Verbs()
	return none(c.s.nic.ModifyQP(t.h, &a, verbs.AttrMask(q.Mask)))
}

func (c *client) queryQP(q *control.HandleReq) (answer, error) {
	t, err := c.find(verbs.KindQP, q.Handle)
	if err != nil {
		return none(err)
	}
	a, st, err := c.s.nic.QueryQP(t.h)
	if err != nil {
		return none(err)
	}
	r := control.FromQPAttr(&a)
	return answer{body: &r, more: control.AppendNamed(nil, st), fd: -1}, nil
}

func (c *client) attachMcast(q *control.McastReq) (answer, error) {
	t, err := c.find(verbs.KindQP, q.Handle)
	if err != nil {
		return none(err)
	}
	if t.groups[q.Group] {
		return none(nil)
	}
	if err := c.s.take(c, usage{resGroup: 1}); err != nil {
		return none(err)
	}
	if err := c.s.nic.AttachMulticast(t.h, q.Group); err != nil {
		c.s.give(c, usage{resGroup: 1})
		return none(err)
	}
	if t.groups == nil {
		t.groups = map[verbs.GID]bool{}
	}
	t.groups[q.Group] = true
	t.costs[resGroup]++
	return none(nil)
}

func (c *client) detachMcast(q *control.McastReq) (answer, error) {
	t, err := c.find(verbs.KindQP, q.Handle)
	if err != nil {
		return none(err)
	}
	if err := c.s.nic.DetachMulticast(t.h, q.Group); err != nil {
		return none(err)
	}
	if t.groups[q.Group] {
		delete(t.groups, q.Group)
		t.costs[resGroup]--
		c.s.give(c, usage{resGroup: 1})
	}
	return none(nil)
}

func (c *client) destroyCall(q *control.HandleReq) (answer, error) {
	if q.Kind == 0 || q.Kind > uint32(verbs.KindMW) {
		return none(fmt.Errorf("server: objects of kind %d: %w", q.Kind, verbs.ErrNotSupported))
	}
	k := verbs.ObjectKind(q.Kind)
	t, err := c.find(k, q.Handle)
	if err != nil {
		return none(err)
	}
	return none(c.destroy(object{k, verbs.Handle(q.Handle)}, t))
}
