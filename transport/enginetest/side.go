// Package enginetest is what tests of the unreliable engines share: a program
// that posts to a queue pair and reads its completions, and the wire on which it
// sends, both as text. It is for tests only.
package enginetest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// Engine is what a Side drives.
type Engine interface {
	State() verbs.QPState
	Modify(now int64, a *verbs.QPAttr, m verbs.AttrMask, flow *wire.Flow) error
	HandlePacket(now int64, p *bth.Packet)
	Doorbell(now int64)
	Ready(now int64) bool
	Fill(now int64, b *wire.Burst) bool
	Sent(b *wire.Burst, sent int)
	Counts() *trace.Counts
	Stats() *transport.Stats
	TakeEvents() transport.Events
}

// Region is where a Side's memory begins for its peer and itself.
const Region = 0x10000

// Side is a queue pair and its program. It is the engine's completion queue.
type Side struct {
	T    testing.TB
	QP   Engine
	Cfg  transport.Config // what to make the engine of
	Now  int64
	Base bth.PSN // PSNs in texts are offsets from it

	Mem  []byte
	Reg  *mr.Region // of all of Mem, with every access
	SQ   *verbs.SendQueue
	RQ   *verbs.RecvQueue
	Done []verbs.WC
	// Solicited is that of the last completion.
	Solicited bool
	// SendMem and RecvMem are the rings.
	SendMem, RecvMem []byte

	Pkts   []*bth.Packet // of the last Sent
	burst  *wire.Burst
	bursts []*wire.Burst // of Bursts
}

// New returns a Side without its engine, with octets of memory in protection
// domain 1.
func New(t testing.TB, qpn bth.QPN, memory int, c verbs.QPCap) *Side {
	t.Helper()
	c, err := c.WithDefaults()
	must(t, err)
	s := &Side{T: t, Mem: make([]byte, memory), burst: wire.NewBurst()}
	Fill(s.Mem, uint64(qpn))
	mrs := mr.NewTable(uint64(qpn))
	s.Reg, err = mrs.Register(mr.Region{PD: 1, IOVA: Region, Mem: s.Mem, Access: verbs.AccessAll})
	must(t, err)
	s.SendMem = verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline))
	s.RecvMem = verbs.NewRingMem(c.MaxRecvWR * verbs.RecvUnits(c.MaxRecvSGE))
	s.SQ, err = verbs.NewSendQueue(s.SendMem, c)
	must(t, err)
	s.RQ, err = verbs.NewRecvQueue(s.RecvMem, c.MaxRecvWR, c.MaxRecvSGE)
	must(t, err)
	sq, ok := verbs.NewSendRing(s.SendMem)
	rq, ok2 := verbs.NewRecvRing(s.RecvMem, c.MaxRecvSGE)
	if !ok || !ok2 {
		t.Fatal("rings")
	}
	s.Cfg = transport.Config{QPN: qpn, PD: 1, Cap: c, SQ: sq, RQ: rq, SendCQ: s, RecvCQ: s, MRs: mrs, Recorder: trace.NewRecorder(256)}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Fill puts a pattern that depends on seed into b.
func Fill(b []byte, seed uint64) {
	var v [8]byte
	for r := rand.NewPCG(seed, 7); len(b) > 0; b = b[copy(b, v[:]):] {
		binary.LittleEndian.PutUint64(v[:], r.Uint64())
	}
}

// Flow returns a flow between two addresses.
func Flow(src, dst string) *wire.Flow {
	return &wire.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), SrcPort: 0xc001, TTL: 64}
}

// Push takes a completion: a transport.CompSink.
func (s *Side) Push(w *verbs.WC, solicited bool) {
	s.Done = append(s.Done, *w)
	s.Solicited = solicited
}

// SGE is n octets at offset off of the memory.
func (s *Side) SGE(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.Reg.IOVA + uint64(off), Length: uint32(n), LKey: s.Reg.Key}
}

// Region registers another region.
func (s *Side) Region(g mr.Region) *mr.Region {
	s.T.Helper()
	r, err := s.Cfg.MRs.Register(g)
	must(s.T, err)
	return r
}

// Modify changes the state, with attributes.
func (s *Side) Modify(to verbs.QPState, m verbs.AttrMask, a verbs.QPAttr, f *wire.Flow) {
	s.T.Helper()
	a.State = to
	must(s.T, s.QP.Modify(s.Now, &a, m|verbs.AttrState, f))
}

// Post posts send requests.
func (s *Side) Post(ws ...verbs.SendWR) {
	s.T.Helper()
	for i := range ws {
		must(s.T, s.SQ.Put(&ws[i]))
	}
	s.SQ.Publish()
	s.QP.Doorbell(s.Now)
}

// PostRecv posts receive requests.
func (s *Side) PostRecv(ws ...verbs.RecvWR) {
	s.T.Helper()
	for i := range ws {
		must(s.T, s.RQ.Put(&ws[i]))
	}
	s.RQ.Publish()
	s.QP.Doorbell(s.Now)
}

// ResetRings does what a program does to its rings after RESET.
func (s *Side) ResetRings() {
	s.SQ.Reset()
	s.RQ.Reset()
}

// In delivers a packet. What it points to is overwritten afterwards: it was
// borrowed for the call.
func (s *Side) In(p bth.Packet) {
	p.MigReq, p.PKey, p.DestQP = true, 0xffff, s.Cfg.QPN
	p.Payload = slices.Clone(p.Payload)
	s.QP.HandlePacket(s.Now, &p)
	Fill(p.Payload, 99)
}

// Sent returns all that the queue pair sends now, in words, and keeps the
// packets.
func (s *Side) Sent() string {
	s.T.Helper()
	s.Pkts = s.Pkts[:0]
	for n := 0; ; n++ {
		s.burst.Reset(nil, 0, 0)
		if !s.QP.Fill(s.Now, s.burst) {
			break
		}
		if n > 4000 {
			s.T.Fatal("Fill does not end")
		}
		s.Pkts = append(s.Pkts, s.Parse(s.burst, s.burst.Len())...)
		s.QP.Sent(s.burst, s.burst.Len())
	}
	if s.QP.Ready(s.Now) {
		s.T.Fatalf("Ready, but Fill gives nothing; sent %s", s.Texts(s.Pkts))
	}
	return s.Texts(s.Pkts)
}

// Bursts fills up to n bursts of up to segs packets, and has none of them sent.
// They are borrowed until the next call.
func (s *Side) Bursts(n, segs int) []*wire.Burst {
	for i := range n {
		if i == len(s.bursts) {
			s.bursts = append(s.bursts, wire.NewBurst())
		}
		b := s.bursts[i]
		b.Reset(nil, segs, 0)
		if !s.QP.Fill(s.Now, b) {
			return s.bursts[:i]
		}
	}
	return s.bursts[:n]
}

// Parse returns the first n packets of a burst.
func (s *Side) Parse(b *wire.Burst, n int) (out []*bth.Packet) {
	s.T.Helper()
	b.Seal(wire.IDCount)
	for i := range n {
		p := new(bth.Packet)
		if why := bth.Parse(b.AppendSegment(nil, i), p); why != trace.None {
			s.T.Fatalf("own packet does not parse: %v", why)
		}
		if p.AckReq { // B44
			s.T.Fatalf("%v asks for an ACK", p.Opcode)
		}
		out = append(out, p)
	}
	return out
}

// Texts are packets in words: opcode without its service, PSN, octets.
func (s *Side) Texts(ps []*bth.Packet) string {
	var out []string
	for _, p := range ps {
		_, op, _ := strings.Cut(p.Opcode.String(), "_")
		out = append(out, fmt.Sprintf("%s %d/%d", op, p.PSN.Diff(s.Base), len(p.Payload)))
	}
	return strings.Join(out, ", ")
}

// WantSent fails the test unless the queue pair sends just this now.
func (s *Side) WantSent(want ...string) {
	s.T.Helper()
	if got, w := s.Sent(), strings.Join(want, ", "); got != w {
		s.T.Fatalf("sent %q\nwant %q", got, w)
	}
}

var short = map[verbs.WCStatus]string{
	verbs.WCSuccess: "ok", verbs.WCLocLenErr: "LOC_LEN", verbs.WCLocQPOpErr: "LOC_QP_OP", verbs.WCLocProtErr: "LOC_PROT", verbs.WCWRFlushErr: "FLUSH",
}

// WantDone fails the test unless these are the completions since the last
// call: ID and status, of receives with "r" in front, the length and "i" for
// immediate data.
func (s *Side) WantDone(want string) {
	s.T.Helper()
	var out []string
	for _, w := range s.Done {
		x := fmt.Sprintf("%d %s", w.ID, short[w.Status])
		if w.Opcode&verbs.WCRecv != 0 {
			x = "r" + x
			if w.Status == verbs.WCSuccess {
				x += fmt.Sprintf("/%d", w.ByteLen)
			}
		}
		if w.Flags&verbs.WCWithImm != 0 {
			x += "i"
		}
		out = append(out, x)
	}
	s.Done = s.Done[:0]
	if got := strings.Join(out, ", "); got != want {
		s.T.Fatalf("completions %q\nwant        %q", got, want)
	}
}

// WantState fails the test unless the queue pair is in a state.
func (s *Side) WantState(want verbs.QPState) {
	s.T.Helper()
	if got := s.QP.State(); got != want {
		s.T.Fatalf("state %v, want %v", got, want)
	}
}

// Counts are counters of reasons.
type Counts map[trace.Reason]uint64

// WantCounts fails the test unless these are all the reasons counted so far.
func (s *Side) WantCounts(want Counts) {
	s.T.Helper()
	for r, n := range s.QP.Counts() {
		if n != want[trace.Reason(r)] {
			s.T.Errorf("%v counted %d times, want %d", trace.Reason(r), n, want[trace.Reason(r)])
		}
	}
}

// Bytes are n octets that depend on seed.
func Bytes(n int, seed uint64) []byte {
	b := make([]byte, n)
	Fill(b, seed)
	return b
}
