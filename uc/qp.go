package uc

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// sendFirst is UC_SEND_FIRST; the other operations follow as in RC.
const sendFirst bth.Opcode = 0x20

// QP is one unreliable connection. Calls are the owner's to serialise.
type QP struct {
	transport.Unreliable
	flow *wire.Flow
	mtu  int
	resp responder
}

// New returns a queue pair in state RESET.
func New(cfg transport.Config) *QP {
	q := new(QP)
	q.Init(cfg)
	return q
}

// Attr returns the attributes; State is the current state.
func (q *QP) Attr() verbs.QPAttr {
	a := q.Unreliable.Attr()
	if a.State >= verbs.StateRTR {
		a.RQPSN = q.resp.epsn.Uint32()
	}
	return a
}

// Flow returns the address vector, nil before RTR.
func (q *QP) Flow() *wire.Flow { return q.flow }

// Modify changes attributes and, when m has AttrState, the state. Flow is the
// address vector on the wire, needed when m has AttrAV. It returns an error
// that names what is missing, too much or out of range, and then changes
// nothing.
func (q *QP) Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) error {
	to, err := transport.CheckModify(verbs.UC, q.State(), a, m, flow)
	if err != nil {
		return err
	}
	transport.Apply(&q.Attrs, a, m)
	if m&verbs.AttrAV != 0 {
		q.flow = flow
	}
	switch from := q.Enter(now, to); {
	case to == verbs.StateReset:
		q.flow = nil
	case from == verbs.StateInit && to == verbs.StateRTR:
		q.resp = responder{epsn: bth.MakePSN(a.RQPSN)}
	}
	q.mtu = int(q.Attrs.PathMTU)
	return nil
}

// Fill puts packets of this queue pair into the burst, which the caller has
// Reset with its limits, and reports whether there are any.
//
//gorxe:hot
func (q *QP) Fill(now int64, b *wire.Burst) bool {
	b.Flow, b.QPN, b.Kind = q.flow, q.QPN(), wire.KindRequest
	for {
		w := q.Current(now)
		if w == nil || !q.put(b, w) {
			break
		}
	}
	return q.Filled(now, b)
}

// put adds the next packet of a request. It returns false when the burst has no
// room for it, or the request breaks a local rule.
func (q *QP) put(b *wire.Burst, w *transport.Unacked) bool {
	switch w.Opcode {
	case verbs.WRSend, verbs.WRSendImm, verbs.WRWrite, verbs.WRWriteImm:
	default:
		w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
		return false
	}
	i := q.Index(w)
	off := i * q.mtu
	n := min(q.mtu, w.Length-off)
	last := i == w.Pkts-1
	p := bth.Packet{
		Opcode: w.PacketOpcode(sendFirst, i, w.Pkts), MigReq: true, PKey: transport.PKey,
		DestQP: bth.QPN(q.Attrs.DestQPN), PSN: q.Next, Pad: uint8(-n & 3),
	}
	hdr := p.Info().HdrLen
	if !b.Fits(hdr+n+-n&3+bth.ICRCLen, len(w.SGL)) {
		return false
	}
	data, ok := w.Payload(&q.Mem, off, n)
	if !ok {
		w.Fail(verbs.WCLocProtErr, trace.FailLocalProt)
		return false
	}
	w.Describe(&p, last)
	p.PutHeaders(b.Begin(p.PSN, p.Opcode, hdr, n))
	data.Put(b, q.Cfg.SQ)
	q.Tally.SentBytes += uint64(n)
	if i == 0 && p.Info().Op == bth.OpSend {
		q.Tally.Sends++
	}
	q.Advance(w)
	return true
}
