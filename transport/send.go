package transport

import (
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

const (
	// MaxMessage is the longest message, 2^31 octets (IBA 9.7.3.3).
	MaxMessage = 1 << 31

	// SnapshotMax is the largest payload that is copied before it is sealed.
	// Longer ones are referenced: they belong to the NIC until completion.
	SnapshotMax = 512

	// PKey is the partition key of every packet sent: the default partition,
	// full member.
	PKey = 0xffff
)

// SendEntry is an engine's record of a fetched send request.
type SendEntry struct {
	verbs.SendWQE
	SGL    []verbs.SGE
	Length int // octets
	// Bad is the status it will fail with when everything before it is done:
	// it broke a local rule and is not sent.
	Bad    verbs.WCStatus
	BadWhy trace.Reason
}

// Fail marks the request as one that broke a local rule.
func (w *SendEntry) Fail(s verbs.WCStatus, why trace.Reason) { w.Bad, w.BadWhy = s, why }

// Local reports whether the request is about memory of this end: it sends nothing
// and takes no PSN.
func (w *SendEntry) Local() bool { return w.Opcode == verbs.WRBindMW || w.Opcode == verbs.WRLocalInv }

// RunLocal carries out a local request, or fails it and changes nothing. Running
// one twice is not the same as once, so who sends again must not run it again.
// Both kinds fail as memory management operations (IBA 11.6.2); rxe says local QP
// operation error of a LOCAL_INV.
func (w *SendEntry) RunLocal(m *Memory) {
	ok := false
	if w.Opcode == verbs.WRBindMW {
		ok = m.mrs.Bind(m.pd, m.owner, w.Bind()) == trace.None
	} else {
		ok = m.Invalidate(w.Imm)
	}
	if !ok {
		w.Fail(verbs.WCMWBindErr, trace.FailMemory)
	}
}

// Fetch takes the next posted send request. more is false when there is none;
// broken says that what stands in the ring is no request, which ends the
// queue: the entry is then Bad, as is one longer than a message can be.
func (w *SendEntry) Fetch(sq *verbs.SendRing) (more, broken bool) {
	more, ok := sq.Fetch(&w.SendWQE, w.SGL[:cap(w.SGL)])
	if !more {
		return false, false
	}
	w.Bad, w.BadWhy = verbs.WCSuccess, trace.None
	if !ok {
		w.SendWQE = verbs.SendWQE{}
	}
	w.SGL = w.SGL[:w.NumSGE]
	w.Length = int(w.InlineLen)
	for _, s := range w.SGL {
		w.Length += int(s.Length)
	}
	switch {
	case !ok:
		w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
	case w.Local() && (w.NumSGE != 0 || w.Flags&verbs.SendInline != 0):
		w.Fail(verbs.WCLocQPOpErr, trace.FailLocalQPOp)
	case w.Length > MaxMessage:
		w.Fail(verbs.WCLocLenErr, trace.FailLocalLen)
	}
	return true, !ok
}

// Packets returns how many packets of mtu octets n octets take: at least one.
func Packets(n, mtu int) int {
	if n > mtu && mtu > 0 {
		return (n + mtu - 1) / mtu
	}
	return 1
}

// Completion fills in what the completion of a send request says of it.
func (w *SendEntry) Completion(wc *verbs.WC, qpn bth.QPN, s verbs.WCStatus, why trace.Reason) {
	*wc = verbs.WC{Status: s, QPN: uint32(qpn), Reason: why}
	w.Name(wc)
	switch w.Opcode {
	case verbs.WRWrite, verbs.WRWriteImm:
		wc.Opcode = verbs.WCWrite
	case verbs.WRRead:
		wc.Opcode, wc.ByteLen = verbs.WCRead, uint32(w.Length)
	case verbs.WRCmpSwap:
		wc.Opcode, wc.ByteLen = verbs.WCCmpSwap, 8
	case verbs.WRFetchAdd:
		wc.Opcode, wc.ByteLen = verbs.WCFetchAdd, 8
	case verbs.WRBindMW:
		wc.Opcode = verbs.WCBindMW
	case verbs.WRLocalInv:
		wc.Opcode = verbs.WCLocalInv
	default:
		wc.Opcode = verbs.WCSend
	}
}

// PacketOpcode is that of packet i of n of a SEND or WRITE. Base is the opcode of
// the service's SEND_FIRST, 0x00 for RC and 0x20 for UC: the services number
// the operations alike (IBA table 38).
func (w *SendEntry) PacketOpcode(base bth.Opcode, i, n int) bth.Opcode {
	first, last := i == 0, i == n-1
	op := bth.RCSendMiddle
	switch w.SendWQE.Opcode {
	case verbs.WRWrite, verbs.WRWriteImm:
		imm := w.SendWQE.Opcode == verbs.WRWriteImm
		switch {
		case first && last && imm:
			op = bth.RCWriteOnlyImm
		case first && last:
			op = bth.RCWriteOnly
		case first:
			op = bth.RCWriteFirst
		case last && imm:
			op = bth.RCWriteLastImm
		case last:
			op = bth.RCWriteLast
		default:
			op = bth.RCWriteMiddle
		}
	default:
		imm, inv := w.SendWQE.Opcode == verbs.WRSendImm, w.SendWQE.Opcode == verbs.WRSendInv
		switch {
		case first && last && imm:
			op = bth.RCSendOnlyImm
		case first && last && inv:
			op = bth.RCSendOnlyInv
		case first && last:
			op = bth.RCSendOnly
		case first:
			op = bth.RCSendFirst
		case last && imm:
			op = bth.RCSendLastImm
		case last && inv:
			op = bth.RCSendLastInv
		case last:
			op = bth.RCSendLast
		}
	}
	return base | op
}

// Describe fills in what a packet's headers say of the request: remote
// address, immediate data, solicited event. It is for SEND and WRITE.
func (w *SendEntry) Describe(p *bth.Packet, last bool) {
	p.VA, p.RKey, p.DMALen = w.RemoteAddr, w.RKey, uint32(w.Length)
	p.Imm, p.Inv = w.Imm, w.Imm
	p.SE = w.Solicits(last)
}

// Solicits reports whether a packet has the solicited event bit.
func (w *SendEntry) Solicits(last bool) bool {
	return last && w.Flags&verbs.SendSolicited != 0 && w.SendWQE.Opcode != verbs.WRWrite
}

// Payload is n octets of a request at offset off, checked: what Put puts into a
// segment. It is valid until the next use of the queue pair's Memory.
type Payload struct {
	w      *SendEntry
	parts  [][]byte
	off, n int
}

// Payload checks the keys of a request's data, before anything of the packet
// is in a burst. It returns false at a key, range or permission that fails.
func (w *SendEntry) Payload(m *Memory, off, n int) (d Payload, ok bool) {
	d = Payload{w: w, off: off, n: n}
	if w.Flags&verbs.SendInline != 0 {
		return d, true
	}
	d.parts, ok = m.Resolve(w.SGL, off, n, 0)
	return d, ok
}

// Put adds the payload to the segment that b has begun, and ends it: inline
// data and short payloads as a snapshot, the rest by reference.
func (d *Payload) Put(b *wire.Burst, sq *verbs.SendRing) {
	switch {
	case d.w.Flags&verbs.SendInline != 0:
		sq.Inline(b.Copy(d.n), &d.w.SendWQE, d.off)
	case d.n <= SnapshotMax:
		dst := b.Copy(d.n)
		for _, src := range d.parts {
			dst = dst[copy(dst, src):]
		}
	default:
		for _, src := range d.parts {
			b.Ref(src)
		}
	}
	clear(d.parts)
	b.End()
}
