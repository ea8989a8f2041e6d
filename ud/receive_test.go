package ud

import (
	"bytes"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/mr"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
)

// TestReceive: a datagram is put behind its GRH area, across entries, and the
// completion says from whom it is. Any PSN is taken.
func TestReceive(t *testing.T) {
	for _, c := range []struct {
		name   string
		sgl    func(r *raw) []verbs.SGE
		n      int
		change func(p *bth.Packet)
		want   verbs.WC
		se     bool
	}{
		{"exactly", func(r *raw) []verbs.SGE { return []verbs.SGE{r.SGE(0, 45)} }, 5, func(*bth.Packet) {}, verbs.WC{}, false},
		{"empty", func(r *raw) []verbs.SGE { return []verbs.SGE{r.SGE(0, 40)} }, 0, func(*bth.Packet) {}, verbs.WC{}, false},
		{"GRH area in two", func(r *raw) []verbs.SGE {
			return []verbs.SGE{r.SGE(0, 17), r.SGE(500, 0), r.SGE(1000, 1), r.SGE(2000, 999)}
		}, 511, func(*bth.Packet) {}, verbs.WC{}, false},
		{"GRH area of its own", func(r *raw) []verbs.SGE { return []verbs.SGE{r.SGE(900, 40), r.SGE(0, 600)} }, mtu, func(*bth.Packet) {}, verbs.WC{}, false},
		{"immediate data", func(r *raw) []verbs.SGE { return []verbs.SGE{r.SGE(0, 600)} }, 9, func(p *bth.Packet) { p.Opcode = bth.UDSendOnlyImm }, verbs.WC{Flags: verbs.WCWithImm, Imm: 5}, false},
		{"solicited", func(r *raw) []verbs.SGE { return []verbs.SGE{r.SGE(0, 600)} }, 9, func(p *bth.Packet) { p.SE = true }, verbs.WC{}, true},
		{"asks for an ACK (B44)", func(r *raw) []verbs.SGE { return []verbs.SGE{r.SGE(0, 600)} }, 9, func(p *bth.Packet) { p.AckReq = true }, verbs.WC{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t)
			for i, psn := range []int{0, 77, -5, 77, 1 << 23} {
				sgl := c.sgl(r)
				r.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: sgl})
				p := r.datagram(psn, c.n)
				c.change(&p)
				r.In(p)
				want := c.want
				want.ID, want.Opcode, want.Flags, want.ByteLen, want.QPN, want.SrcQP = uint64(i), verbs.WCRecv, want.Flags|verbs.WCGRH, uint32(40+c.n), 0x11, 0x33
				if len(r.Done) != i+1 || r.Done[i] != want || r.Solicited != c.se {
					t.Fatalf("%+v, solicited %v\nwant %+v, %v", r.Done, r.Solicited, want, c.se)
				}
				var got []byte
				for _, s := range sgl {
					got = append(got, r.Mem[s.Addr-r.Reg.IOVA:][:s.Length]...)
				}
				if !bytes.Equal(got[:40+c.n], append(bytes.Clone(p.GRH), p.Payload...)) {
					t.Error("wrong data")
				}
			}
			r.WantSent() // nobody is answered
			r.WantCounts(nil)
			if s := r.qp.Stats(); s.Recvs != 5 || s.RcvdRequests != 5 || s.RcvdBytes != uint64(5*c.n) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestReceiveDrops: what is dropped, and that the queue pair and its receive
// request live on (B43).
func TestReceiveDrops(t *testing.T) {
	for _, c := range []struct {
		name   string
		room   int
		n      int
		change func(p *bth.Packet)
		want   trace.Reason
	}{
		{"one octet too long", 140, 101, func(*bth.Packet) {}, trace.DropTooLong},
		{"no room for the GRH", 39, 0, func(*bth.Packet) {}, trace.DropTooLong},
		{"no room at all", 0, 8, func(*bth.Packet) {}, trace.DropTooLong},
		{"no request", -1, 8, func(*bth.Packet) {}, trace.DropNoRecv},
		{"longer than the path MTU", 2000, mtu + 4, func(*bth.Packet) {}, trace.DropLength},
		{"pad of another length", 2000, 8, func(p *bth.Packet) { p.Pad = 1 }, trace.DropLength},
		{"without GRH", 2000, 8, func(p *bth.Packet) { p.GRH = nil }, trace.DropLength},
		{"RC", 2000, 8, func(p *bth.Packet) { p.Opcode = bth.RCSendOnly }, trace.DropClass},
		{"UC", 2000, 8, func(p *bth.Packet) { p.Opcode = 0x24 }, trace.DropClass},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t)
			if c.room >= 0 {
				r.PostRecv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{r.SGE(0, c.room)}})
			}
			before := bytes.Clone(r.Mem)
			for range 3 {
				p := r.datagram(0, c.n)
				c.change(&p)
				r.In(p)
			}
			r.WantDone("")
			r.WantState(verbs.StateRTS)
			r.WantCounts(enginetest.Counts{c.want: 3})
			if e := r.qp.TakeEvents(); e != 0 || !bytes.Equal(before, r.Mem) {
				t.Errorf("events %v, or memory changed", e)
			}
			r.PostRecv(verbs.RecvWR{ID: 2, SGL: []verbs.SGE{r.SGE(0, 2000)}})
			if c.room == 0 || c.room == 39 {
				return // it stands in the way, as it must
			}
			r.In(r.datagram(1, 100))
			id := "r1 ok/140"
			if c.room < 0 {
				id = "r2 ok/140"
			}
			r.WantDone(id)
		})
	}
}

// TestBadReceive: a receive request that is wrong itself ends the queue pair.
func TestBadReceive(t *testing.T) {
	for _, c := range []struct {
		name string
		sgl  func(r *raw) []verbs.SGE
	}{
		{"wrong key", func(r *raw) []verbs.SGE { return []verbs.SGE{{Addr: r.Reg.IOVA, Length: 600, LKey: r.Reg.Key ^ 1}} }},
		{"wrong key behind the GRH", func(r *raw) []verbs.SGE {
			return []verbs.SGE{r.SGE(0, 40), {Addr: r.Reg.IOVA, Length: 600, LKey: r.Reg.Key ^ 1}}
		}},
		{"no local write", func(r *raw) []verbs.SGE {
			return []verbs.SGE{{Addr: 1 << 32, Length: 600, LKey: r.Region(mr.Region{PD: 1, IOVA: 1 << 32, Mem: r.Mem}).Key}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t)
			r.PostRecv(verbs.RecvWR{ID: 1, SGL: c.sgl(r)}, verbs.RecvWR{ID: 2})
			r.In(r.datagram(0, 8))
			r.WantDone("r1 LOC_PROT, r2 FLUSH")
			r.WantState(verbs.StateErr)
			if e := r.qp.TakeEvents(); e != transport.EventFatal|transport.EventLastWQE {
				t.Errorf("events %v", e)
			}
			r.In(r.datagram(0, 8))
			r.WantCounts(enginetest.Counts{trace.FailLocalProt: 1, trace.FailFlushed: 1, trace.DropState: 1})
		})
	}
}

// TestSharedQueue: a request of a shared queue that is too small completes with
// an error, and the queue pair lives on; when it goes to ERR it leaves what
// there is to others.
func TestSharedQueue(t *testing.T) {
	r := newRaw(t, withSharedQueue)
	for i := range 4 {
		r.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{r.SGE(0, 60)}})
	}
	r.In(r.datagram(0, 20))
	r.In(r.datagram(1, 21))
	if w := r.Done[1]; w.Reason != trace.DropTooLong {
		t.Errorf("%+v", w)
	}
	r.WantDone("r0 ok/60, r1 LOC_LEN")
	r.WantCounts(enginetest.Counts{trace.DropTooLong: 1})
	r.WantState(verbs.StateRTS)
	r.In(r.datagram(0, 20))
	r.WantDone("r2 ok/60")
	r.Modify(verbs.StateErr, 0, verbs.QPAttr{}, nil)
	r.WantDone("")
	if e := r.qp.TakeEvents(); e != transport.EventLastWQE {
		t.Errorf("events %v", e)
	}
	r.Modify(verbs.StateReset, 0, verbs.QPAttr{}, nil)
	r.activate()
	r.In(r.datagram(0, 20))
	r.WantDone("r3 ok/60")
}

// TestReceiveStates: datagrams are taken from RTR on, and the first one there is
// told of.
func TestReceiveStates(t *testing.T) {
	r := unready(t)
	r.In(r.datagram(0, 8))
	r.Modify(verbs.StateInit, verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrQKey, verbs.QPAttr{QKey: qkey}, nil)
	for i := range 3 {
		r.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{r.SGE(0, 600)}})
	}
	r.In(r.datagram(0, 8))
	r.WantCounts(enginetest.Counts{trace.DropState: 2})
	for round := range 2 {
		if round == 1 {
			r.Modify(verbs.StateReset, 0, verbs.QPAttr{}, nil)
			r.ResetRings()
			r.Modify(verbs.StateInit, verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrQKey, verbs.QPAttr{QKey: qkey}, nil)
			r.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{r.SGE(0, 600)}})
		}
		r.Modify(verbs.StateRTR, 0, verbs.QPAttr{}, nil)
		if err := r.SQ.Put(&verbs.SendWR{Opcode: verbs.WRSend}); err != nil {
			t.Fatal(err)
		}
		r.WantSent()
		r.In(r.datagram(0, 8))
		r.WantDone("r0 ok/48")
		if e := r.qp.TakeEvents(); e != transport.EventCommEst {
			t.Errorf("events %v", e)
		}
	}
}
