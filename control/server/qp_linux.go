package server

import (
	"fmt"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// createQP makes a queue pair, both of its rings in one piece of shared memory. Its
// handle in the client's words says where its doorbell is.
func (c *client) createQP(q *control.CreateQPReq) (answer, error) {
	req, err := c.qpRequest(q)
	if err != nil {
		return none(err)
	}
	sqLen, rqLen, err := nic.QPRingBytes(&req)
	if err != nil {
		return none(err)
	}
	recvAt := sys.PageRound(sqLen)
	n := recvAt + sys.PageRound(rqLen)
	r := control.CreateQPReply{SendBytes: uint64(sqLen), RecvBytes: uint64(rqLen), RecvAt: uint64(recvAt), MapBytes: uint64(n)}
	fd := -1
	_, err = c.make(verbs.KindQP, usage{resQP: 1, resBytes: int64(n)}, func(t *thing) (verbs.Handle, error) {
		var err error
		if fd, t.mem, err = share("rxed-qp", n); err != nil {
			return 0, err
		}
		var rq []byte
		if rqLen > 0 {
			rq = t.mem[recvAt : recvAt+rqLen : recvAt+rqLen]
		}
		info, bell, err := c.nc.CreateQP(req, t.mem[:sqLen:sqLen], rq)
		if err != nil {
			sys.CloseFDs(fd)
			sys.Unmap(t.mem)
			return 0, err
		}
		t.h, t.qpn, t.bell = info.Handle, info.QPN, uint64(bell.Shard)<<32|uint64(bell.Index)
		c.gens[t.bell] = c.gens[t.bell]%control.MaxGen + 1
		h := control.QPHandle(c.gens[t.bell], bell.Shard, bell.Index)
		r.Handle, r.QPN, r.PSN, r.MaxDatagram = uint32(h), info.QPN, info.PSN, uint32(info.MaxDatagram)
		r.Shard, r.Bell = uint32(bell.Shard), bell.Index
		c.mu.Lock()
		c.qpns[info.QPN] = true
		c.mu.Unlock()
		return h, nil
	})
	if err != nil {
		return none(err)
	}
	return answer{body: &r, fd: fd}, nil
}

// qpRequest translates a request; every object in it must be the client's.
func (c *client) qpRequest(q *control.CreateQPReq) (verbs.QPReq, error) {
	for _, f := range []struct {
		name string
		v    uint32
		most int
	}{
		{"MaxSendWR", q.MaxSendWR, verbs.MaxQPWR},
		{"MaxRecvWR", q.MaxRecvWR, verbs.MaxQPWR},
		{"MaxSendSGE", q.MaxSendSGE, verbs.MaxSGE},
		{"MaxRecvSGE", q.MaxRecvSGE, verbs.MaxSGE},
		{"MaxInline", q.MaxInline, verbs.MaxInline},
		{"Type", q.Type, 255},
	} {
		if uint64(f.v) > uint64(f.most) {
			return verbs.QPReq{}, fmt.Errorf("server: %s is %d, the limit is %d", f.name, f.v, f.most)
		}
	}
	r := verbs.QPReq{
		Type: verbs.QPType(q.Type), SigAll: q.SigAll != 0,
		Cap: verbs.QPCap{MaxSendWR: int(q.MaxSendWR), MaxRecvWR: int(q.MaxRecvWR), MaxSendSGE: int(q.MaxSendSGE), MaxRecvSGE: int(q.MaxRecvSGE), MaxInline: int(q.MaxInline)},
	}
	for _, f := range []struct {
		k  verbs.ObjectKind
		h  uint32
		to *verbs.Handle
	}{
		{verbs.KindPD, q.PD, &r.PD},
		{verbs.KindCQ, q.SendCQ, &r.SendCQ},
		{verbs.KindCQ, q.RecvCQ, &r.RecvCQ},
		{verbs.KindSRQ, q.SRQ, &r.SRQ},
	} {
		if f.k == verbs.KindSRQ && f.h == 0 {
			continue
		}
		t, err := c.find(f.k, f.h)
		if err != nil {
			return r, err
		}
		*f.to = t.h
	}
	return r, nil
}
