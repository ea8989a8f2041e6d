package rc

import (
	"github.com/gorxe/gorxe/atomic"
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// execute carries out a request packet that passed every check and moves the
// expected PSN past it. A key that may not be invalidated is known when all of its
// message has arrived, which is acknowledged and not counted, as by Soft-RoCE.
func (q *QP) execute(now int64, p *bth.Packet) (verdict, trace.Reason) {
	r, info := &q.resp, p.Info()
	pkts, refused := 1, false
	switch info.Op {
	case bth.OpSend:
		if why := r.recv.Place(&q.mem, p.Payload); why != trace.None {
			return remoteOp, why
		}
		refused = info.Has(bth.HasInv) && !q.mem.Invalidate(p.Inv)
	case bth.OpWrite:
		if why := r.write.Place(&q.mem, p); why != trace.None {
			return remoteAccess, why
		}
	case bth.OpReadReq:
		pkts = transport.Packets(int(p.DMALen), q.mtu)
		r.replies.push(reply{kind: replyRead, first: p.PSN, pkts: pkts, va: p.VA, rkey: p.RKey, length: int(p.DMALen)})
	default:
		v, why := q.runAtomic(p)
		if v != accept {
			return v, why
		}
	}
	r.epsn = r.epsn.Add(pkts)
	switch {
	case info.Has(bth.First):
		r.op = info.Op
	case info.Has(bth.Ends):
		r.op = bth.OpNone
		if !refused {
			r.msn = (r.msn + 1) & bth.PSNMask
			q.finish(p)
		}
	}
	if p.AckReq && info.Op != bth.OpReadReq && info.Ext&bth.ExtAtomicETH == 0 {
		q.queueAck(p.PSN)
	}
	if refused {
		return invalidation, trace.FailInvalidate
	}
	return accept, trace.None
}

// runAtomic executes an atomic and keeps its result for replays.
func (q *QP) runAtomic(p *bth.Packet) (verdict, trace.Reason) {
	mem, why := q.mem.Remote(p.RKey, p.VA, 8, verbs.AccessRemoteAtomic)
	if why != trace.None {
		return remoteAccess, why
	}
	var old uint64
	var ok bool
	if p.Info().Op == bth.OpFetchAdd {
		old, ok = atomic.FetchAdd(mem, p.SwapAdd)
	} else {
		old, ok = atomic.CmpSwap(mem, p.Compare, p.SwapAdd)
	}
	if !ok { // aligned by address, but not in memory
		return invalidRequest, trace.FailReqLength
	}
	q.resp.replies.push(reply{kind: replyAtomic, first: p.PSN, pkts: 1, value: old})
	return accept, trace.None
}

// finish completes the message whose last packet p is: a receive completion if
// it took a receive request.
func (q *QP) finish(p *bth.Packet) {
	info := p.Info()
	if !info.Has(bth.TakesRecv) {
		return
	}
	wc := verbs.WC{Opcode: verbs.WCRecv, ByteLen: uint32(q.resp.recv.Got), SrcQP: q.attr.DestQPN}
	if info.Op == bth.OpWrite {
		wc.Opcode, wc.ByteLen = verbs.WCRecvWriteImm, uint32(q.resp.write.Total)
	}
	if info.Has(bth.HasImm) {
		wc.Flags, wc.Imm = verbs.WCWithImm, p.Imm
	}
	if info.Has(bth.HasInv) {
		wc.Flags, wc.Imm = verbs.WCWithInv, p.Inv
	}
	q.stats.Recvs++
	q.resp.recv.Done(wc, p.SE)
}
