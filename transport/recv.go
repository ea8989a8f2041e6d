package transport

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// Receiver is a queue pair's receive queue and the request of it that the
// message in progress fills.
type Receiver struct {
	Held bool // there is such a request
	Len  int  // octets of room
	Got  int  // octets filled

	cfg *Config
	id  verbs.RecvID
	sgl []verbs.SGE
	n   int      // entries of sgl
	wc  verbs.WC // a sink is an interface, and what it is given would escape
}

// Init makes room for requests of the queue pair's capacity.
func (r *Receiver) Init(c *Config) { r.cfg, r.sgl = c, make([]verbs.SGE, c.Cap.MaxRecvSGE) }

// Reset forgets the request.
func (r *Receiver) Reset() { *r = Receiver{cfg: r.cfg, sgl: r.sgl} }

// Take takes the next request. It returns trace.None, trace.DropNoRecv when
// there is none, or trace.FailLocalQPOp when what was posted is malformed; then
// it is held all the same, to be completed in error.
func (r *Receiver) Take() trace.Reason {
	id, n, ok := r.cfg.RQ.Fetch(r.sgl)
	if !ok {
		return trace.DropNoRecv
	}
	r.id, r.Held, r.n, r.Len, r.Got = id, true, max(n, 0), 0, 0
	if n < 0 {
		return trace.FailLocalQPOp
	}
	for _, s := range r.sgl[:n] {
		r.Len += int(s.Length)
	}
	return trace.None
}

// Place copies data behind what the request has got, or says that a key, range
// or permission of its list failed.
func (r *Receiver) Place(m *Memory, data []byte) trace.Reason {
	if !m.Scatter(r.sgl[:r.n], r.Got, data) {
		return trace.FailLocalProt
	}
	r.Got += len(data)
	return trace.None
}

// Done completes the held request well: wc needs only what the message says.
func (r *Receiver) Done(wc verbs.WC, solicited bool) {
	r.Held = false
	r.wc = wc
	r.id.Name(&r.wc)
	r.wc.QPN = uint32(r.cfg.QPN)
	r.cfg.RecvCQ.Push(&r.wc, solicited)
}

// Fail completes the held request with an error.
func (r *Receiver) Fail(s verbs.WCStatus, why trace.Reason) {
	r.Done(verbs.WC{Opcode: verbs.WCRecv, Status: s, Reason: why}, true)
}

// Flush completes the held request, and the others of a queue of its own, with
// a flush error; why is what ended the queue pair. Requests of a shared queue
// are not the queue pair's. It returns how many there were. What is posted after
// the call began waits for the next doorbell.
func (r *Receiver) Flush(why trace.Reason) (n uint64) {
	if r.Held {
		r.Fail(verbs.WCWRFlushErr, why)
		n++
	}
	own := r.cfg.OwnRQ()
	if own == nil {
		return n
	}
	for left := own.Len(); left > 0 && r.Take() != trace.DropNoRecv; left-- {
		r.Fail(verbs.WCWRFlushErr, why)
		n++
	}
	return n
}

// ErrStatus is the status of a receive request that met a local error, and
// whether it is one that a receive request tells of.
func ErrStatus(why trace.Reason) (s verbs.WCStatus, ok bool) {
	switch why {
	case trace.FailLocalLen:
		return verbs.WCLocLenErr, true
	case trace.FailLocalProt:
		return verbs.WCLocProtErr, true
	case trace.FailLocalQPOp:
		return verbs.WCLocQPOpErr, true
	case trace.FailInvalidate: // as rxe has it
		return verbs.WCRemInvReqErr, true
	}
	return 0, false
}

// LengthOK checks payload and pad of a packet against its opcode: FIRST and
// MIDDLE fill the path MTU, LAST has at least one octet, the pad rounds up to
// four. IBA C9-95 to C9-98.
func LengthOK(p *bth.Packet, mtu int) bool {
	info, n := p.Info(), len(p.Payload)
	if int(p.Pad) != -n&3 {
		return false
	}
	switch {
	case !info.Has(bth.HasPayload):
		return n == 0
	case info.Has(bth.First | bth.Middle):
		return n == mtu
	case info.Has(bth.Last):
		return n >= 1 && n <= mtu
	}
	return n <= mtu
}

// WriteCursor is where the next packet of a WRITE goes.
type WriteCursor struct {
	VA    uint64
	RKey  uint32
	Left  int
	Total int
}

// LengthOK checks a packet of a WRITE against the length in its first one's
// RETH. IBA 9.7.4.1.6.
func (w *WriteCursor) LengthOK(p *bth.Packet) bool {
	info, n := p.Info(), len(p.Payload)
	switch {
	case info.Has(bth.First):
		return p.DMALen <= MaxMessage && int(p.DMALen) > n
	case info.Has(bth.Only):
		return int(p.DMALen) == n
	case info.Has(bth.Middle):
		return w.Left > n
	}
	return w.Left == n
}

// Place copies payload into remote memory, front to back, so that its last
// octet is written last: programs poll it. The first packet of a message sets
// the cursor.
func (w *WriteCursor) Place(m *Memory, p *bth.Packet) trace.Reason {
	if p.Info().Has(bth.Starts) {
		*w = WriteCursor{VA: p.VA, RKey: p.RKey, Left: int(p.DMALen), Total: int(p.DMALen)}
	}
	n := len(p.Payload)
	if n > 0 {
		// The key may have been withdrawn since the first packet.
		dst, why := m.Remote(w.RKey, w.VA, n, verbs.AccessRemoteWrite)
		if why != trace.None {
			return why
		}
		copy(dst, p.Payload)
	}
	w.VA += uint64(n)
	w.Left -= n
	return trace.None
}
