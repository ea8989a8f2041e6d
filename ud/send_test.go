package ud

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/transport/enginetest"
	"github.com/gorxe/gorxe/verbs"
)

// TestDatagrams: what a request makes of a packet.
func TestDatagrams(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *raw, w *verbs.SendWR)
		want   string
		qkey   uint32
	}{
		{"plain", func(*raw, *verbs.SendWR) {}, "SEND_ONLY 0/100", qkey},
		{"empty", func(_ *raw, w *verbs.SendWR) { w.SGL = nil }, "SEND_ONLY 0/0", qkey},
		{"as long as can be", func(r *raw, w *verbs.SendWR) { w.SGL = []verbs.SGE{r.SGE(0, mtu)} }, "SEND_ONLY 0/512", qkey},
		{"padded", func(r *raw, w *verbs.SendWR) { w.SGL = []verbs.SGE{r.SGE(1, 2), r.SGE(3, 0), r.SGE(8, 11)} }, "SEND_ONLY 0/13", qkey},
		{"immediate data", func(_ *raw, w *verbs.SendWR) { w.Opcode, w.Imm = verbs.WRSendImm, 77 }, "SEND_ONLY_IMM 0/100", qkey},
		{"inline", func(_ *raw, w *verbs.SendWR) {
			w.Flags, w.SGL, w.Inline = w.Flags|verbs.SendInline, nil, enginetest.Bytes(500, 4)
		}, "SEND_ONLY 0/500", qkey},
		{"another Q_Key", func(_ *raw, w *verbs.SendWR) { w.RemoteQKey = 0x7fffffff }, "SEND_ONLY 0/100", 0x7fffffff},
		{"the queue pair's own Q_Key", func(_ *raw, w *verbs.SendWR) { w.RemoteQKey = 1<<31 | 0x99 }, "SEND_ONLY 0/100", qkey},
		{"solicited, multicast", func(_ *raw, w *verbs.SendWR) { w.Flags, w.AH, w.RemoteQPN = w.Flags|verbs.SendSolicited, 3, 0xffffff }, "SEND_ONLY 0/100", qkey},
		{"many entries", func(r *raw, w *verbs.SendWR) {
			w.SGL = nil
			for i := range 32 {
				w.SGL = append(w.SGL, r.SGE(i*77, i%4))
			}
		}, "SEND_ONLY 0/48", qkey},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t)
			w := r.wr(1, 1, 100)
			c.change(r, &w)
			want := bytes.Clone(w.Inline)
			for _, s := range w.SGL {
				want = append(want, r.Mem[s.Addr-r.Reg.IOVA:][:s.Length]...)
			}
			r.Post(w)
			r.WantSent(c.want)
			r.WantDone("1 ok")
			p := r.Pkts[0]
			if p.QKey != c.qkey || p.SrcQP != 0x11 || uint32(p.DestQP) != w.RemoteQPN || p.SE != (w.Flags&verbs.SendSolicited != 0) || !p.MigReq || p.PKey != 0xffff || p.Imm != w.Imm || !bytes.Equal(p.Payload, want) {
				t.Errorf("%+v", p)
			}
			if s := r.qp.Stats(); s.SentRequests != 1 || s.SentBytes != uint64(len(want)) || s.Sends != 1 || s.Completed != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// filled fills all bursts there are and returns their packets, with the flow.
func (r *raw) filled() string {
	r.T.Helper()
	var out []string
	for _, b := range r.Bursts(9, 0) {
		for h, f := range r.ah {
			if f == b.Flow {
				out = append(out, fmt.Sprintf("AH%d: %s", h, r.Texts(r.Parse(b, b.Len()))))
			}
		}
		r.qp.Sent(b, b.Len())
	}
	return strings.Join(out, "; ")
}

// TestShares: equal datagrams to one address, the last perhaps shorter, share a
// burst, whichever queue pairs there they are for; others begin another.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		name string
		wrs  func(r *raw) []verbs.SendWR
		want string
	}{
		{"equal", func(r *raw) []verbs.SendWR { return []verbs.SendWR{r.wr(1, 1, 9), r.wr(2, 1, 9), r.wr(3, 1, 9)} }, "AH1: SEND_ONLY 0/9, SEND_ONLY 1/9, SEND_ONLY 2/9"},
		{"other queue pairs", func(r *raw) []verbs.SendWR {
			w := r.wr(2, 1, 9)
			w.RemoteQPN, w.RemoteQKey = 7, 8
			return []verbs.SendWR{r.wr(1, 1, 9), w}
		}, "AH1: SEND_ONLY 0/9, SEND_ONLY 1/9"},
		{"equal on the wire", func(r *raw) []verbs.SendWR { return []verbs.SendWR{r.wr(1, 1, 9), r.wr(2, 1, 12), r.wr(3, 1, 10)} }, "AH1: SEND_ONLY 0/9, SEND_ONLY 1/12, SEND_ONLY 2/10"},
		{"shorter last", func(r *raw) []verbs.SendWR { return []verbs.SendWR{r.wr(1, 1, 9), r.wr(2, 1, 5), r.wr(3, 1, 5)} }, "AH1: SEND_ONLY 0/9, SEND_ONLY 1/5; AH1: SEND_ONLY 2/5"},
		{"longer", func(r *raw) []verbs.SendWR { return []verbs.SendWR{r.wr(1, 1, 9), r.wr(2, 1, 90)} }, "AH1: SEND_ONLY 0/9; AH1: SEND_ONLY 1/90"},
		{"another address", func(r *raw) []verbs.SendWR { return []verbs.SendWR{r.wr(1, 1, 9), r.wr(2, 2, 9), r.wr(3, 1, 9)} }, "AH1: SEND_ONLY 0/9; AH2: SEND_ONLY 1/9; AH1: SEND_ONLY 2/9"},
		{"immediate data are longer", func(r *raw) []verbs.SendWR {
			w := r.wr(2, 1, 9)
			w.Opcode = verbs.WRSendImm
			return []verbs.SendWR{r.wr(1, 1, 9), w, r.wr(3, 1, 9)}
		}, "AH1: SEND_ONLY 0/9; AH1: SEND_ONLY_IMM 1/9, SEND_ONLY 2/9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t)
			r.Post(c.wrs(r)...)
			if got := r.filled(); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// TestTooLong: a datagram longer than the path MTU completes well, in its turn,
// takes a PSN, is not sent, and is counted. IBA C10-93.1.1.
func TestTooLong(t *testing.T) {
	r := newRaw(t)
	r.Post(r.wr(1, 1, mtu+1))
	r.WantSent()
	r.WantDone("1 ok")
	r.Post(r.wr(2, 1, 10), r.wr(3, 1, 5000), r.wr(4, 2, 600), r.wr(5, 1, 10))
	bs := r.Bursts(3, 0)
	if len(bs) != 1 || bs[0].Len() != 1 {
		t.Fatalf("%d bursts", len(bs))
	}
	r.WantDone("") // not before its elders
	r.qp.Sent(bs[0], 0)
	bs = r.Bursts(3, 0)
	r.WantDone("")
	r.qp.Sent(bs[0], 1)
	r.WantDone("2 ok")
	r.WantSent("SEND_ONLY 4/10")
	r.WantDone("3 ok, 4 ok, 5 ok")
	r.WantState(verbs.StateRTS)
	r.WantCounts(enginetest.Counts{trace.DropTooLong: 3, trace.RetryLink: 1})
	if s := r.qp.Stats(); s.SentRequests != 2 || s.Sends != 2 || s.Completed != 5 {
		t.Errorf("%+v", s)
	}
}

// TestSentInParts: what the link did not take is sent next, whole bursts of
// other destinations behind it too.
func TestSentInParts(t *testing.T) {
	r := newRaw(t)
	r.Post(r.wr(1, 1, 9), r.wr(2, 1, 9), r.wr(3, 1, 9), r.wr(4, 2, 9), r.wr(5, 1, 4))
	bs := r.Bursts(9, 0)
	if len(bs) != 3 {
		t.Fatalf("%d bursts", len(bs))
	}
	r.qp.Sent(bs[0], 2)
	r.WantDone("1 ok, 2 ok")
	r.qp.Sent(bs[1], 0)
	r.qp.Sent(bs[2], 0)
	if got := r.filled(); got != "AH1: SEND_ONLY 2/9; AH2: SEND_ONLY 3/9; AH1: SEND_ONLY 4/4" {
		t.Error(got)
	}
	r.WantDone("3 ok, 4 ok, 5 ok")
	if s := r.qp.Stats(); s.SentRequests != 5 || s.Sends != 5 || s.SentBytes != 40 {
		t.Errorf("%+v", s)
	}
}

// TestSendErrors: a request that breaks a local rule ends the send queue, not
// receiving; back in RTS it works again.
func TestSendErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *raw, w *verbs.SendWR)
		want   string
		why    trace.Reason
	}{
		{"address handle gone", func(r *raw, _ *verbs.SendWR) { delete(r.ah, 2) }, "LOC_QP_OP", trace.FailLocalQPOp},
		{"no address handle", func(_ *raw, w *verbs.SendWR) { w.AH = 0 }, "LOC_QP_OP", trace.FailLocalQPOp},
		{"WRITE", func(_ *raw, w *verbs.SendWR) { w.Opcode = verbs.WRWrite }, "LOC_QP_OP", trace.FailLocalQPOp},
		{"READ", func(_ *raw, w *verbs.SendWR) { w.Opcode = verbs.WRRead }, "LOC_QP_OP", trace.FailLocalQPOp},
		{"wrong key", func(_ *raw, w *verbs.SendWR) { w.SGL[0].LKey ^= 1 }, "LOC_PROT", trace.FailLocalProt},
		{"longer than 2^31", func(r *raw, w *verbs.SendWR) { w.SGL = []verbs.SGE{r.SGE(0, 1<<31), r.SGE(0, 1)} }, "LOC_LEN", trace.FailLocalLen},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t)
			r.PostRecv(verbs.RecvWR{ID: 50, SGL: []verbs.SGE{r.SGE(0, 600)}})
			bad := r.wr(2, 2, 9)
			c.change(r, &bad)
			r.Post(r.wr(1, 1, 9), bad, r.wr(3, 1, 9))
			r.WantSent("SEND_ONLY 0/9")
			r.WantDone("1 ok, 2 " + c.want + ", 3 FLUSH")
			r.WantState(verbs.StateSQE)
			r.WantCounts(enginetest.Counts{c.why: 1, trace.FailFlushed: 1})
			r.Post(r.wr(4, 1, 9))
			r.WantSent()
			r.WantDone("4 FLUSH")
			r.In(r.datagram(9, 8))
			r.WantDone("r50 ok/48")
			r.Modify(verbs.StateRTS, 0, verbs.QPAttr{}, nil)
			r.Post(r.wr(5, 1, 9))
			r.WantSent("SEND_ONLY 1/9")
			r.WantDone("5 ok")
		})
	}
	t.Run("of another domain", func(t *testing.T) {
		r := newRaw(t, func(c *Config) { c.PD = 2 })
		w := r.wr(1, 1, 0)
		r.Post(w)
		r.WantSent()
		r.WantDone("1 LOC_QP_OP")
	})
}

// TestDrainAndFlush: SQD stops sending at once, RTS resumes it, ERR flushes.
func TestDrainAndFlush(t *testing.T) {
	r := newRaw(t)
	r.PostRecv(verbs.RecvWR{ID: 50}, verbs.RecvWR{ID: 51})
	r.Post(r.wr(1, 1, 9), r.wr(2, 1, 9))
	b := r.Bursts(1, 1)
	r.qp.Sent(b[0], 1)
	r.Modify(verbs.StateSQD, 0, verbs.QPAttr{}, nil)
	if e := r.qp.TakeEvents(); e != transport.EventDrained {
		t.Errorf("events %v", e)
	}
	r.WantSent()
	r.WantDone("1 ok")
	r.Modify(verbs.StateRTS, 0, verbs.QPAttr{}, nil)
	r.WantSent("SEND_ONLY 1/9")
	r.Post(r.wr(3, 1, 9))
	r.Modify(verbs.StateErr, 0, verbs.QPAttr{}, nil)
	r.WantDone("2 ok, 3 FLUSH, r50 FLUSH, r51 FLUSH")
	r.Post(r.wr(4, 1, 9))
	r.PostRecv(verbs.RecvWR{ID: 52})
	r.WantDone("4 FLUSH, r52 FLUSH")
	if e := r.qp.TakeEvents(); e != transport.EventLastWQE {
		t.Errorf("events %v", e)
	}
	r.Modify(verbs.StateReset, 0, verbs.QPAttr{}, nil)
	r.ResetRings()
	r.activate()
	r.Post(r.wr(5, 1, 9))
	r.WantSent("SEND_ONLY 0/9")
}

// TestModify: the Q_Key may change, and what is refused changes nothing.
func TestModify(t *testing.T) {
	r := newRaw(t)
	if err := r.qp.Modify(0, &verbs.QPAttr{}, verbs.AttrAV, nil); err == nil {
		t.Error("an address vector")
	}
	if err := r.qp.Modify(0, &verbs.QPAttr{}, verbs.AttrPathMTU, nil); err == nil {
		t.Error("a path MTU")
	}
	if err := r.qp.Modify(0, &verbs.QPAttr{State: verbs.StateInit}, verbs.AttrState, nil); err == nil {
		t.Error("back to INIT")
	}
	r.Modify(verbs.StateRTS, verbs.AttrQKey, verbs.QPAttr{QKey: 9}, nil)
	w := r.wr(1, 1, 9)
	w.RemoteQKey = 1 << 31
	r.Post(w)
	r.WantSent("SEND_ONLY 0/9")
	if a := r.qp.Attr(); r.Pkts[0].QKey != 9 || a.QKey != 9 || a.SQPSN != r.Base.Add(1).Uint32() || r.qp.Flow() != nil {
		t.Errorf("%+v", a)
	}
}
