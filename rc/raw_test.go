package rc

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// raw is a queue pair in RTS and its peer, played by the test: packets in,
// packets out, as text. PSNs are offsets from base in both directions, the
// path MTU is 256.
type raw struct {
	*side
	now   int64
	base  bth.PSN
	burst *wire.Burst
	pkts  []*bth.Packet // of the last sent
}

// rule runs f on a fresh queue pair, with PSNs that do not wrap, that wrap
// within the first message, and at its first packet (B33).
func rule(t *testing.T, f func(r *raw), opts ...func(a *verbs.QPAttr)) {
	t.Helper()
	for _, base := range []uint32{100, 0xfffffe, 0xffffff, 0x7fffff} {
		t.Run(fmt.Sprintf("psn%06x", base), func(t *testing.T) { f(newRaw(t, base, opts...)) })
	}
}

func newRaw(t testing.TB, base uint32, opts ...func(a *verbs.QPAttr)) *raw {
	return newRawMem(t, base, 1<<18, opts...)
}

// newRawMem is newRaw with a region of another size.
func newRawMem(t testing.TB, base uint32, memory int, opts ...func(a *verbs.QPAttr)) *raw {
	c := verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 64, MaxInline: 300}
	r := &raw{side: newSide(t, "qp", 0x11, memory, c), base: bth.MakePSN(base), burst: wire.NewBurst()}
	fill(r.mem, uint64(base))
	a := verbs.QPAttr{
		Access: verbs.AccessAll, PathMTU: 256, DestQPN: 0x12, SQPSN: base, RQPSN: base, MaxRdAtomic: 4, MaxDestRdAtomic: 4,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
	for _, o := range opts {
		o(&a)
	}
	r.connect(a)
	return r
}

// Attributes of each step of the way up.
const (
	toInit = verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess
	toRTR  = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer | verbs.AttrFlowControl
	toRTS  = verbs.AttrState | verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrSQPSN | verbs.AttrMaxRdAtomic
)

func (r *raw) connect(a verbs.QPAttr) {
	f := &wire.Flow{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), SrcPort: 0xc001}
	for _, s := range []struct {
		to verbs.QPState
		m  verbs.AttrMask
	}{{verbs.StateInit, toInit}, {verbs.StateRTR, toRTR}, {verbs.StateRTS, toRTS}} {
		a.State = s.to
		if err := r.qp.Modify(r.now, &a, s.m, f); err != nil {
			r.t.Fatal(err)
		}
	}
}

// sent returns what the queue pair sends now, in words, and keeps the packets.
func (r *raw) sent() string {
	r.t.Helper()
	r.pkts = r.pkts[:0]
	for n := 0; ; n++ {
		r.burst.Reset(nil, 0, 0)
		if !r.qp.Fill(r.now, r.burst) {
			break
		}
		if n > 4000 {
			r.t.Fatal("Fill does not end")
		}
		r.burst.Seal(wire.IDCount)
		for i := range r.burst.Segs {
			p := new(bth.Packet)
			if why := bth.Parse(r.burst.AppendSegment(nil, i), p); why != trace.None {
				r.t.Fatalf("own packet does not parse: %v", why)
			}
			r.pkts = append(r.pkts, p)
		}
	}
	if r.qp.Ready(r.now) {
		r.t.Fatalf("Ready, but Fill gives nothing; sent %s", r.texts())
	}
	return r.texts()
}

// texts are the packets of the last sent, in words.
func (r *raw) texts() string {
	var out []string
	for _, p := range r.pkts {
		out = append(out, r.text(p))
	}
	return strings.Join(out, ", ")
}

// bursts fills n bursts of up to segs packets.
func (r *raw) bursts(n, segs int) (bs []*wire.Burst) {
	for range n {
		b := wire.NewBurst()
		b.Reset(nil, segs, 0)
		r.qp.Fill(r.now, b)
		bs = append(bs, b)
	}
	return bs
}

// text is a packet in words: opcode, PSN, then what matters of it. "!" asks
// for an ACK.
func (r *raw) text(p *bth.Packet) string {
	s := fmt.Sprintf("%s %d", strings.TrimPrefix(p.Opcode.String(), "RC_"), p.PSN.Diff(r.base))
	switch info := p.Info(); {
	case info.Op == bth.OpAck && p.Syndrome.Kind() == bth.KindRNR:
		s = fmt.Sprintf("RNR%d %d", p.Syndrome.Code(), p.PSN.Diff(r.base))
	case info.Op == bth.OpAck && p.Syndrome.Kind() == bth.KindNAK:
		s = fmt.Sprintf("NAK%02x %d", uint8(p.Syndrome), p.PSN.Diff(r.base))
	case info.Op == bth.OpAtomicAck:
		s += fmt.Sprintf("=%#x", p.Orig)
	case info.Op == bth.OpReadReq:
		s += fmt.Sprintf("@%d+%d", p.VA, p.DMALen)
	case info.Has(bth.HasPayload):
		s += fmt.Sprintf("/%d", len(p.Payload))
	}
	if p.AckReq {
		s += "!"
	}
	return s
}

// wantSent fails the test unless the queue pair sends just this now.
func (r *raw) wantSent(want ...string) {
	r.t.Helper()
	if got, w := r.sent(), strings.Join(want, ", "); got != w {
		r.t.Fatalf("sent %q\nwant %q", got, w)
	}
}

var statusShort = map[verbs.WCStatus]string{
	verbs.WCSuccess: "ok", verbs.WCLocLenErr: "LOC_LEN", verbs.WCLocQPOpErr: "LOC_QP_OP", verbs.WCLocProtErr: "LOC_PROT",
	verbs.WCWRFlushErr: "FLUSH", verbs.WCRemInvReqErr: "REM_INV", verbs.WCRemAccessErr: "REM_ACCESS", verbs.WCRemOpErr: "REM_OP",
	verbs.WCRetryExcErr: "RETRY_EXC", verbs.WCRNRRetryExcErr: "RNR_EXC", verbs.WCMWBindErr: "MW_BIND",
}

// wantDone fails the test unless these are the completions since the last
// call: ID, status, and for receives "r" in front and the length.
func (r *raw) wantDone(want string) {
	r.t.Helper()
	var out []string
	for _, w := range r.wcs {
		s := fmt.Sprintf("%d %s", w.ID, statusShort[w.Status])
		if w.Opcode&verbs.WCRecv != 0 {
			s = "r" + s
			if w.Status == verbs.WCSuccess {
				s += fmt.Sprintf("/%d", w.ByteLen)
			}
		}
		out = append(out, s)
	}
	r.wcs = r.wcs[:0]
	if got := strings.Join(out, ", "); got != want {
		r.t.Fatalf("completions %q\nwant        %q", got, want)
	}
}

func (r *raw) wantState(want verbs.QPState) {
	r.t.Helper()
	if got := r.qp.State(); got != want {
		r.t.Fatalf("state %v, want %v", got, want)
	}
}

// in delivers a packet with the fields that follow from the others filled in.
func (r *raw) in(p bth.Packet) {
	p.MigReq, p.PKey, p.DestQP = true, 0xffff, 0x11
	r.qp.HandlePacket(r.now, &p)
}

func (r *raw) psn(off int) bth.PSN { return r.base.Add(off) }

func (r *raw) ack(off int) {
	r.in(bth.Packet{Opcode: bth.RCAck, PSN: r.psn(off), Syndrome: bth.AckUnlimited})
}

func (r *raw) nak(off int, s bth.Syndrome) {
	r.in(bth.Packet{Opcode: bth.RCAck, PSN: r.psn(off), Syndrome: s})
}

func (r *raw) resp(op bth.Opcode, off int, payload []byte) {
	r.in(bth.Packet{Opcode: op, PSN: r.psn(off), Syndrome: bth.AckUnlimited, Pad: uint8(-len(payload) & 3), Payload: payload})
}

func (r *raw) atomicAck(off int, v uint64) {
	r.in(bth.Packet{Opcode: bth.RCAtomicAck, PSN: r.psn(off), Syndrome: bth.AckUnlimited, Orig: v})
}

// req delivers a request packet that asks for an ACK.
func (r *raw) req(op bth.Opcode, off int, payload []byte) { r.reqTo(op, off, payload, 0) }

// reqTo delivers a request packet to offset at of the region; the length in
// its RETH is that of payload, or of a READ request.
func (r *raw) reqTo(op bth.Opcode, off int, payload []byte, at int) {
	p := r.packet(op, off, payload)
	p.VA += uint64(at)
	r.in(p)
}

// packet makes a request packet to the region's start.
func (r *raw) packet(op bth.Opcode, off int, payload []byte) bth.Packet {
	p := bth.Packet{
		Opcode: op, PSN: r.psn(off), AckReq: true, VA: r.reg.IOVA, RKey: r.reg.Key, DMALen: uint32(len(payload)),
		Pad: uint8(-len(payload) & 3), Payload: payload,
	}
	if op == bth.RCReadReq {
		p.Payload, p.Pad = nil, 0
	}
	return p
}

// post posts a signaled send request of n octets from the region's start.
func (r *raw) post(id uint64, op verbs.WROpcode, n int) {
	r.postWR(verbs.SendWR{ID: id, Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.sge(0, n)}, RemoteAddr: 7000, RKey: 77})
}

func (r *raw) postWR(w verbs.SendWR) {
	r.t.Helper()
	if err := r.send(w); err != nil {
		r.t.Fatal(err)
	}
}

// postRecv posts a receive request of n octets at offset at of the region.
func (r *raw) postRecv(id uint64, at, n int) {
	r.recv(verbs.RecvWR{ID: id, SGL: []verbs.SGE{r.sge(at, n)}})
}

// expire moves time to the deadline and fires it. It returns how long that
// took, or -1 when there is none.
func (r *raw) expire() int64 {
	d := r.qp.Deadline()
	if d == never {
		return -1
	}
	took := d - r.now
	r.now = d
	r.qp.HandleTimer(r.now)
	return took
}

const never = int64(1<<63 - 1)

func bytesOf(n int, v byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = v + byte(i)
	}
	return b
}
