package ud

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// GRHLen is the length of the area before the payload of a receive. IBA
// 11.4.1.2, Annex A17.4.5.3.
const GRHLen = verbs.GRHLen

// ownQKey: a send request whose Q_Key has this bit is sent with the queue
// pair's own. IBA 10.2.5.
const ownQKey = 1 << 31

// Addresses knows the address handles of a device.
type Addresses interface {
	// Flow returns what an address handle of a protection domain stands for,
	// or nil when there is none. The same flow means the same destination.
	Flow(pd mr.PD, handle uint32) *wire.Flow
}

// Config is what a queue pair is made of. It is not changed later.
type Config struct {
	transport.Config
	Addresses Addresses
	MTU       int // octets of a datagram's payload at most
}

// QP is one datagram queue pair. Calls are the owner's to serialise.
type QP struct {
	transport.Unreliable
	addrs       Addresses
	mtu         int
	established bool
}

// New returns a queue pair in state RESET.
func New(cfg Config) *QP {
	q := &QP{addrs: cfg.Addresses, mtu: cfg.MTU}
	q.Init(cfg.Config)
	return q
}

// Flow returns nil: a datagram queue pair has no peer.
func (q *QP) Flow() *wire.Flow { return nil }

// Modify changes attributes and, when m has AttrState, the state. It returns an
// error that names what is missing, too much or out of range, and then changes
// nothing.
func (q *QP) Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask, _ *wire.Flow) error {
	to, err := transport.CheckModify(verbs.UD, q.State(), a, m, nil)
	if err != nil {
		return err
	}
	transport.Apply(&q.Attrs, a, m)
	q.Enter(now, to)
	if to == verbs.StateReset {
		q.established = false
	}
	return nil
}

// Fill puts datagrams for one destination into the burst, which the caller has
// Reset with its limits, and reports whether there are any. Equal ones to one
// address handle that follow one another share it.
//
//gorxe:hot
func (q *QP) Fill(now int64, b *wire.Burst) bool {
	b.QPN, b.Kind = q.QPN(), wire.KindRequest
	for range q.Cfg.Cap.MaxSendWR { // what is too long does not fill the burst
		w := q.Current(now)
		if w == nil || !q.put(now, b, w) {
			break
		}
	}
	return q.Filled(now, b)
}

// put adds a datagram. It returns false when it does not fit the burst, or
// breaks a local rule.
func (q *QP) put(now int64, b *wire.Burst, w *transport.Unacked) bool {
	op := bth.UDSendOnly
	switch w.Opcode {
	case verbs.WRSend:
	case verbs.WRSendImm:
		op = bth.UDSendOnlyImm
	default:
		w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
		return false
	}
	n, hdr := w.Length, op.Info().HdrLen
	f := q.addrs.Flow(q.Cfg.PD, w.AH)
	switch {
	case f == nil:
		w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
		return false
	case n > q.mtu:
		if !q.Skip(w) {
			return false
		}
		q.Note(now, trace.DropTooLong, trace.Tx, nil)
		return true
	case b.Len() > 0 && b.Flow != f || !b.Fits(hdr+n+-n&3+bth.ICRCLen, len(w.SGL)):
		return false
	}
	data, ok := w.Payload(&q.Mem, 0, n)
	if !ok {
		w.Fail(verbs.WCLocProtErr, trace.FailLocalProt)
		return false
	}
	p := bth.Packet{
		Opcode: op, MigReq: true, PKey: transport.PKey, DestQP: bth.QPN(w.RemoteQPN), PSN: q.Next, Pad: uint8(-n & 3),
		QKey: w.RemoteQKey, SrcQP: q.QPN(),
	}
	if p.QKey&ownQKey != 0 {
		p.QKey = q.Attrs.QKey
	}
	w.Describe(&p, true)
	if b.Flow = f; f.Rate != 0 {
		b.Limit(cc.Burst(f.Rate))
	}
	p.PutHeaders(b.Begin(p.PSN, op, hdr, n))
	data.Put(b, q.Cfg.SQ)
	q.Tally.SentBytes += uint64(n)
	q.Tally.Sends++
	q.Advance(w)
	return true
}

// HandlePacket takes a packet for this queue pair whose ICRC, partition key and
// queue key are proven; p.GRH is the area before its payload. The packet is
// borrowed for the call.
//
//gorxe:hot
func (q *QP) HandlePacket(now int64, p *bth.Packet) {
	if !q.Receives(now, p, bth.UD) {
		return
	}
	if !q.established {
		q.established = true
		if q.State() == verbs.StateRTR {
			q.Raised |= transport.EventCommEst
		}
	}
	why := q.deliver(p)
	if why == trace.None {
		return
	}
	q.Note(now, why, trace.Rx, p)
	if st, local := transport.ErrStatus(why); local {
		q.Recv.Fail(st, why)
		q.Raised |= transport.EventFatal
		q.ToErr(now, why)
	} else if why == trace.DropTooLong && q.Cfg.OwnRQ() == nil {
		q.Recv.Fail(verbs.WCLocLenErr, why)
	}
}

// deliver puts a datagram into a receive request, its GRH area first.
func (q *QP) deliver(p *bth.Packet) trace.Reason {
	if !transport.LengthOK(p, q.mtu) || len(p.GRH) != GRHLen {
		return trace.DropLength
	}
	if q.Recv.Held {
		q.Recv.Got = 0 // one that a longer datagram left
	} else if why := q.Recv.Take(); why != trace.None {
		return why
	}
	if GRHLen+len(p.Payload) > q.Recv.Len {
		return trace.DropTooLong
	}
	why := q.Recv.Place(&q.Mem, p.GRH)
	if why == trace.None {
		why = q.Recv.Place(&q.Mem, p.Payload)
	}
	if why != trace.None {
		return why
	}
	wc := verbs.WC{Opcode: verbs.WCRecv, Flags: verbs.WCGRH, ByteLen: uint32(q.Recv.Got), SrcQP: uint32(p.SrcQP)}
	if p.Info().Has(bth.HasImm) {
		wc.Flags, wc.Imm = wc.Flags|verbs.WCWithImm, p.Imm
	}
	q.Tally.Recvs++
	q.Recv.Done(wc, p.SE)
	return trace.None
}
