package rc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// side is one end of a pair of queue pairs: the engine, and a program that
// posts to it and reads its completions.
type side struct {
	t    testing.TB
	name string
	qp   *QP
	sq   *verbs.SendQueue
	rq   *verbs.RecvQueue
	wcs  []verbs.WC
	mem  []byte
	reg  *mr.Region
	mrs  *mr.Table

	sendMem   []byte // the send ring
	recvMem   []byte // the receive ring
	solicited bool   // of the last completion
}

func (s *side) Push(w *verbs.WC, solicited bool) {
	s.wcs = append(s.wcs, *w)
	s.solicited = solicited
}

func newSide(t testing.TB, name string, qpn bth.QPN, memory int, c verbs.QPCap) *side {
	c, err := c.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := &side{t: t, name: name, mrs: mr.NewTable(uint64(qpn)), mem: make([]byte, memory)}
	if s.reg, err = s.mrs.Register(mr.Region{PD: 1, IOVA: 0x10000, Mem: s.mem, Access: verbs.AccessAll}); err != nil {
		t.Fatal(err)
	}
	sm := verbs.NewRingMem(c.MaxSendWR * verbs.SendUnits(c.MaxSendSGE, c.MaxInline))
	rm := verbs.NewRingMem(c.MaxRecvWR * verbs.RecvUnits(c.MaxRecvSGE))
	s.sendMem, s.recvMem = sm, rm
	s.sq, _ = verbs.NewSendQueue(sm, c)
	s.rq, _ = verbs.NewRecvQueue(rm, c.MaxRecvWR, c.MaxRecvSGE)
	sr, ok1 := verbs.NewSendRing(sm)
	rr, ok2 := verbs.NewRecvRing(rm, c.MaxRecvSGE)
	if !ok1 || !ok2 {
		t.Fatal("rings")
	}
	s.qp = New(Config{Config: transport.Config{QPN: qpn, PD: 1, Cap: c, SQ: sr, RQ: rr, SendCQ: s, RecvCQ: s, MRs: s.mrs, Recorder: trace.NewRecorder(256)}})
	return s
}

func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.reg.IOVA + uint64(off), Length: uint32(n), LKey: s.reg.Key}
}

func (s *side) send(w verbs.SendWR) error {
	if err := s.sq.Put(&w); err != nil {
		return err
	}
	s.sq.Publish()
	s.qp.Doorbell(0)
	return nil
}

func (s *side) recv(w verbs.RecvWR) {
	if err := s.rq.Put(&w); err != nil {
		s.t.Fatal(err)
	}
	s.rq.Publish()
	s.qp.Doorbell(0)
}

// pair is two connected sides and virtual time between them.
type pair struct {
	t    testing.TB
	now  int64
	a, b *side
	// fate decides the fate of a packet: how many copies arrive, and after
	// how many others.
	fate   func(from *side, p *bth.Packet) (copies, delay int)
	queue  [2][]inFlight
	bursts [3]*wire.Burst
	cut    [3]int
	order  int
	// take says how many of n packets the link takes, tick is called when
	// time moves.
	take func(n int) int
	tick func()
}

type inFlight struct {
	at int
	p  *bth.Packet
}

type connOpt func(a, b *verbs.QPAttr)

func newPair(t testing.TB, mtu verbs.MTU, memory int, psn uint32, opts ...connOpt) *pair {
	c := verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxInline: 256}
	p := &pair{t: t, a: newSide(t, "a", 0x11, memory, c), b: newSide(t, "b", 0x12, memory, c)}
	for i := range p.bursts {
		p.bursts[i] = wire.NewBurst()
	}
	attr := func(dest bth.QPN, sq, rq uint32) verbs.QPAttr {
		return verbs.QPAttr{
			Access: verbs.AccessAll, PathMTU: mtu, DestQPN: uint32(dest), SQPSN: sq, RQPSN: rq, MaxRdAtomic: 4, MaxDestRdAtomic: 4,
			MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		}
	}
	x, y := attr(0x12, psn&0xffffff, (psn+5)&0xffffff), attr(0x11, (psn+5)&0xffffff, psn&0xffffff)
	for _, o := range opts {
		o(&x, &y)
	}
	p.connect(p.a, x, "192.0.2.1", "192.0.2.2")
	p.connect(p.b, y, "192.0.2.2", "192.0.2.1")
	return p
}

func (p *pair) connect(s *side, a verbs.QPAttr, src, dst string) {
	f := &wire.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), SrcPort: 0xc001}
	mod := func(st verbs.QPState, m verbs.AttrMask, f *wire.Flow) {
		a.State = st
		if err := s.qp.Modify(p.now, &a, m|verbs.AttrState, f); err != nil {
			p.t.Fatal(err)
		}
	}
	mod(verbs.StateInit, verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccess, nil)
	mod(verbs.StateRTR, verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|verbs.AttrRQPSN|verbs.AttrMaxDestRdAtomic|verbs.AttrMinRNRTimer, f)
	mod(verbs.StateRTS, verbs.AttrTimeout|verbs.AttrRetryCnt|verbs.AttrRNRRetry|verbs.AttrSQPSN|verbs.AttrMaxRdAtomic, nil)
}

// pump moves packets until nothing more happens at this instant.
func (p *pair) pump() {
	for busy := true; busy; {
		busy = false
		for i, s := range []*side{p.a, p.b} {
			for range 4 {
				if !p.transmit(i, s) {
					break
				}
				busy = true
			}
		}
		for i, to := range []*side{p.b, p.a} {
			for len(p.queue[i]) > 0 {
				k := 0
				for j := range p.queue[i] {
					if p.queue[i][j].at < p.queue[i][k].at {
						k = j
					}
				}
				pk := p.queue[i][k].p
				p.queue[i] = append(p.queue[i][:k], p.queue[i][k+1:]...)
				to.qp.HandlePacket(p.now, pk)
				busy = true
			}
		}
	}
}

// transmit fills bursts of side s, offers them to the link, which may take
// only some of them, and gives back the rest. It reports whether there were
// any.
func (p *pair) transmit(i int, s *side) bool {
	n, total := 0, 0
	for n < len(p.bursts) {
		b := p.bursts[n]
		b.Reset(nil, 0, 0)
		if !s.qp.Fill(p.now, b) {
			if s.qp.Ready(p.now) {
				p.t.Fatalf("%s: Ready, but Fill gives nothing", s.name)
			}
			break
		}
		n++
		total += b.Len()
		if p.take == nil {
			break
		}
	}
	take := total
	if p.take != nil && total > 0 {
		take = p.take(total)
	}
	for k, left := 0, take; k < n; k++ {
		p.cut[k] = min(left, p.bursts[k].Len())
		left -= p.cut[k]
		p.carry(i, s, p.bursts[k], p.cut[k])
	}
	for k := range n {
		if p.order%2 == 0 {
			k = n - 1 - k
		}
		s.qp.Sent(p.bursts[k], p.cut[k])
	}
	return n > 0
}

// carry puts the first n packets of a burst on the wire.
func (p *pair) carry(i int, s *side, b *wire.Burst, n int) {
	b.Seal(wire.IDCount)
	for k := range n {
		seg := b.AppendSegment(nil, k)
		if len(seg) > b.SegLen() || k < b.Len()-1 && len(seg) != b.SegLen() {
			p.t.Fatalf("segment %d of %d has %d octets of %d", k, b.Len(), len(seg), b.SegLen())
		}
		pk := new(bth.Packet)
		if r := bth.Parse(seg, pk); r != trace.None {
			p.t.Fatalf("own packet does not parse: %v", r)
		}
		copies, delay := 1, 0
		if p.fate != nil {
			copies, delay = p.fate(s, pk)
		}
		for range copies {
			p.order++
			p.queue[i] = append(p.queue[i], inFlight{p.order + delay, pk})
		}
	}
}

// run pumps and moves time from deadline to deadline until done, or until
// nothing can happen any more.
func (p *pair) run(done func() bool) bool {
	for range 100000 {
		p.pump()
		if done() {
			return true
		}
		d := min(p.a.qp.Deadline(), p.b.qp.Deadline())
		if d == math.MaxInt64 {
			return false
		}
		p.now = max(p.now, d)
		if p.tick != nil {
			p.tick()
		}
		p.a.qp.HandleTimer(p.now)
		p.b.qp.HandleTimer(p.now)
	}
	return false
}

func (s *side) want(n int) func() bool { return func() bool { return len(s.wcs) >= n } }

// fill puts a pattern that depends on seed into b.
func fill(b []byte, seed uint64) {
	var v [8]byte
	for r := rand.NewPCG(seed, 7); len(b) > 0; b = b[copy(b, v[:]):] {
		binary.LittleEndian.PutUint64(v[:], r.Uint64())
	}
}

func TestOperations(t *testing.T) {
	for _, mtu := range []verbs.MTU{256, 1024, 4096} {
		for _, n := range []int{0, 1, 3, 255, 256, 257, 1024, 4096, 5000, 65536, 300001} {
			t.Run(fmt.Sprintf("%d/%d", mtu, n), func(t *testing.T) {
				p := newPair(t, mtu, 1<<20, 0xfffff0)
				fill(p.a.mem, 1)
				fill(p.b.mem, 2)
				p.b.recv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{p.b.sge(0, n/3), p.b.sge(n/3, 400000)}})
				p.b.recv(verbs.RecvWR{ID: 2})
				ops := []verbs.SendWR{
					{ID: 10, Opcode: verbs.WRSendImm, Imm: 0x01020304, SGL: []verbs.SGE{p.a.sge(0, n/2), p.a.sge(n/2, n-n/2)}},
					{ID: 11, Opcode: verbs.WRWrite, SGL: []verbs.SGE{p.a.sge(1, n)}, RemoteAddr: p.b.reg.IOVA + 400001, RKey: p.b.reg.Key},
					{ID: 12, Opcode: verbs.WRWriteImm, Imm: 5, SGL: []verbs.SGE{p.a.sge(1, n)}, RemoteAddr: p.b.reg.IOVA + 400001, RKey: p.b.reg.Key},
					{ID: 13, Opcode: verbs.WRRead, SGL: []verbs.SGE{p.a.sge(500000, n)}, RemoteAddr: p.b.reg.IOVA + 3, RKey: p.b.reg.Key},
				}
				want := append([]byte(nil), p.a.mem...)
				for _, o := range ops {
					o.Flags = verbs.SendSignaled
					if err := p.a.send(o); err != nil {
						t.Fatal(err)
					}
				}
				if !p.run(p.a.want(4)) {
					t.Fatalf("stuck: %+v %+v", p.a.wcs, p.b.wcs)
				}
				for i, w := range p.a.wcs {
					if w.Status != 0 || w.ID != ops[i].ID {
						t.Fatalf("completion %d: %+v", i, w)
					}
				}
				if len(p.b.wcs) != 2 || int(p.b.wcs[0].ByteLen) != n || p.b.wcs[0].Imm != 0x01020304 || int(p.b.wcs[1].ByteLen) != n || p.b.wcs[1].Imm != 5 || p.b.wcs[1].Opcode != verbs.WCRecvWriteImm {
					t.Fatalf("receive completions: %+v", p.b.wcs)
				}
				if !bytes.Equal(p.b.mem[:n], want[:n]) || !bytes.Equal(p.b.mem[400001:400001+n], want[1:1+n]) {
					t.Fatal("data differ at b")
				}
				if !bytes.Equal(p.a.mem[500000:500000+n], p.b.mem[3:3+n]) {
					t.Fatal("data read differ")
				}
			})
		}
	}
}
