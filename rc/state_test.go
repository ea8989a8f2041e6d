package rc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

var states = []verbs.QPState{verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateErr}

// inState returns a queue pair in a state.
func inState(t *testing.T, s verbs.QPState) *raw {
	r := newRaw(t, 0xffffff)
	mod := func(to verbs.QPState) {
		if err := r.qp.Modify(0, &verbs.QPAttr{State: to}, verbs.AttrState, nil); err != nil {
			t.Fatal(err)
		}
	}
	switch s {
	case verbs.StateSQD, verbs.StateErr:
		mod(s)
	case verbs.StateReset, verbs.StateInit, verbs.StateRTR:
		mod(verbs.StateReset)
		r.rq.Reset()
		r.sq.Reset()
		a := upAttr(r)
		for _, st := range []struct {
			to verbs.QPState
			m  verbs.AttrMask
		}{{verbs.StateInit, toInit}, {verbs.StateRTR, toRTR}} {
			if r.qp.State() == s {
				break
			}
			a.State = st.to
			if err := r.qp.Modify(0, &a, st.m, &wire.Flow{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.wantState(s)
	r.qp.TakeEvents()
	return r
}

func upAttr(r *raw) verbs.QPAttr {
	return verbs.QPAttr{
		Access: verbs.AccessAll, PathMTU: 256, DestQPN: 0x12, SQPSN: r.base.Uint32(), RQPSN: r.base.Uint32(), MaxRdAtomic: 4,
		MaxDestRdAtomic: 4, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
}

// The transitions there are, each with what it needs. IBA table 91.
func TestTransitions(t *testing.T) {
	const want = `
from\to RESET INIT  RTR   RTS   SQD   SQE   ERR
RESET   ok    ok    -     -     -     -     ok
INIT    ok    ok    ok    -     -     -     ok
RTR     ok    -     -     ok    -     -     ok
RTS     ok    -     -     ok    ok    -     ok
SQD     ok    -     -     ok    ok    -     ok
ERR     ok    -     -     -     -     -     ok
`
	var b strings.Builder
	b.WriteString("\nfrom\\to")
	all := []verbs.QPState{verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE, verbs.StateErr}
	for _, to := range all {
		fmt.Fprintf(&b, " %-5v", to)
	}
	for _, from := range states {
		fmt.Fprintf(&b, "\n%-7v", from)
		for _, to := range all {
			r := inState(t, from)
			a := upAttr(r)
			a.State = to
			mask := map[verbs.QPState]verbs.AttrMask{verbs.StateInit: toInit, verbs.StateRTR: toRTR, verbs.StateRTS: toRTS}[to]
			if from == to || to == verbs.StateRTS && from != verbs.StateRTR {
				mask = verbs.AttrState
			}
			err := r.qp.Modify(0, &a, mask|verbs.AttrState, &wire.Flow{})
			s := "ok"
			if err != nil {
				s = "-"
				r.wantState(from)
			} else {
				r.wantState(to)
			}
			fmt.Fprintf(&b, " %-5s", s)
		}
	}
	if got := b.String(); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got%s\nwant%s", got, want)
	}
}

// Every transition names what is missing, what is too much and what is out of
// range, and then changes nothing.
func TestModifyErrors(t *testing.T) {
	for _, step := range []struct {
		from, to verbs.QPState
		need     verbs.AttrMask
	}{{verbs.StateReset, verbs.StateInit, toInit}, {verbs.StateInit, verbs.StateRTR, toRTR}, {verbs.StateRTR, verbs.StateRTS, toRTS}} {
		for bit := verbs.AttrMask(1); bit <= verbs.AttrDestQPN; bit <<= 1 {
			if step.need&bit == 0 || bit == verbs.AttrState {
				continue
			}
			r := inState(t, step.from)
			a := upAttr(r)
			a.State = step.to
			before := r.qp.Attr()
			err := r.qp.Modify(0, &a, step.need&^bit, &wire.Flow{})
			if err == nil || !strings.Contains(err.Error(), bit.String()) {
				t.Errorf("%v to %v without %v: %v", step.from, step.to, bit, err)
			}
			if r.qp.Attr() != before {
				t.Errorf("%v to %v without %v changed something", step.from, step.to, bit)
			}
		}
	}
	for name, f := range map[string]func(a *verbs.QPAttr){
		"MinRNRTimer":     func(a *verbs.QPAttr) { a.MinRNRTimer = 32 },
		"MaxDestRdAtomic": func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 129 },
		"path MTU":        func(a *verbs.QPAttr) { a.PathMTU = 1500 },
		"DestQPN":         func(a *verbs.QPAttr) { a.DestQPN = 1 << 24 },
		"RQPSN":           func(a *verbs.QPAttr) { a.RQPSN = 1 << 24 },
		"Timeout":         func(a *verbs.QPAttr) { a.Timeout = 32 },
		"RetryCnt":        func(a *verbs.QPAttr) { a.RetryCnt = 8 },
		"RNRRetry":        func(a *verbs.QPAttr) { a.RNRRetry = 8 },
		"SQPSN":           func(a *verbs.QPAttr) { a.SQPSN = 1 << 24 },
		"MaxRdAtomic":     func(a *verbs.QPAttr) { a.MaxRdAtomic = -1 },
	} {
		bad := 0
		for _, step := range []struct {
			from, to verbs.QPState
			m        verbs.AttrMask
		}{{verbs.StateInit, verbs.StateRTR, toRTR}, {verbs.StateRTR, verbs.StateRTS, toRTS}} {
			r := inState(t, step.from)
			a := upAttr(r)
			f(&a)
			a.State = step.to
			if err := r.qp.Modify(0, &a, step.m, &wire.Flow{}); err != nil {
				bad++
				if !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v", name, err)
				}
				r.wantState(step.from)
			}
		}
		if bad != 1 {
			t.Errorf("%s out of range is refused %d times", name, bad)
		}
	}
	r := inState(t, verbs.StateInit)
	a := upAttr(r)
	a.State = verbs.StateRTR
	if err := r.qp.Modify(0, &a, toRTR, nil); err == nil {
		t.Error("RTR without a flow")
	}
	r = inState(t, verbs.StateRTS)
	if err := r.qp.Modify(0, &a, verbs.AttrPathMTU, nil); err == nil {
		t.Error("path MTU changed in RTS")
	}
}

// What a queue pair does in each state with a request, a response, a send
// request and a receive request.
func TestStateMatrix(t *testing.T) {
	want := map[verbs.QPState]string{
		verbs.StateReset: "request drop, response drop, send kept, receive kept",
		verbs.StateInit:  "request drop, response drop, send kept, receive kept",
		verbs.StateRTR:   "request done, response drop, send kept, receive kept",
		verbs.StateRTS:   "request done, response done, send sent, receive kept",
		verbs.StateSQD:   "request done, response done, send kept, receive kept",
		verbs.StateErr:   "request drop, response drop, send flushed, receive flushed", // B52
	}
	for _, s := range states {
		var out []string
		r := inState(t, s)
		drops := func() uint64 { return r.qp.Counts()[trace.DropState] }
		r.req(bth.RCWriteOnly, 0, bytesOf(4, 1))
		out = append(out, "request "+map[bool]string{true: "done", false: "drop"}[drops() == 0])
		if (r.sent() != "") != (drops() == 0) {
			t.Errorf("%v: answered what it dropped, or the other way round", s)
		}
		n := drops()
		r.ack(5)
		out = append(out, "response "+map[bool]string{true: "done", false: "drop"}[drops() == n])
		r.post(1, verbs.WRSend, 4)
		switch sent := r.sent(); {
		case sent != "":
			out = append(out, "send sent")
		case len(r.wcs) == 1 && r.wcs[0].Status == verbs.WCWRFlushErr:
			out = append(out, "send flushed")
		default:
			out = append(out, "send kept")
		}
		r.wcs = nil
		r.postRecv(2, 0, 4)
		if len(r.wcs) == 1 && r.wcs[0].Status == verbs.WCWRFlushErr {
			out = append(out, "receive flushed")
		} else {
			out = append(out, "receive kept")
		}
		if got := strings.Join(out, ", "); got != want[s] {
			t.Errorf("%v: %s\nwant: %s", s, got, want[s])
		}
		r.wantState(s)
	}
}

// In SQD a message begun is finished, one not begun is held; the event comes
// when nothing is in flight and nothing begun. Packets are still received.
func TestDrain(t *testing.T) {
	sqd := &verbs.QPAttr{State: verbs.StateSQD}
	modify := func(r *raw, a *verbs.QPAttr, m verbs.AttrMask) {
		r.t.Helper()
		if err := r.qp.Modify(r.now, a, m, nil); err != nil {
			r.t.Fatal(err)
		}
	}
	drained := func(r *raw, want bool) {
		r.t.Helper()
		if got := r.qp.TakeEvents()&transport.EventDrained != 0; got != want {
			r.t.Fatalf("drained %v, want %v", got, want)
		}
	}
	rule(t, func(r *raw) {
		r.post(1, verbs.WRWrite, 256*130)
		r.post(2, verbs.WRSend, 4)
		r.sent()
		if len(r.pkts) != 128 {
			r.t.Fatal(len(r.pkts))
		}
		modify(r, sqd, verbs.AttrState)
		drained(r, false)
		r.ack(127) // nothing in flight, but the message is not done
		drained(r, false)
		r.wantSent("WRITE_MIDDLE 128/256, WRITE_LAST 129/256!")
		r.req(bth.RCWriteOnly, 0, nil)
		r.wantSent("ACK 0")
		r.expire()
		r.wantSent("WRITE_MIDDLE 128/256, WRITE_LAST 129/256!")
		r.ack(129)
		drained(r, true)
		r.wantDone("1 ok")
		r.wantSent("")
		modify(r, &verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState)
		r.wantSent("SEND_ONLY 130/4!")
		modify(r, sqd, verbs.AttrState) // sent, not acknowledged
		drained(r, false)
		r.expire()
		r.wantSent("SEND_ONLY 130/4!")
		r.ack(130)
		drained(r, true)
	})
	rule(t, func(r *raw) { // what the link gave back was not begun
		modify(r, sqd, verbs.AttrState)
		drained(r, true) // at once
		modify(r, &verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState)
		r.post(1, verbs.WRSend, 4)
		b := r.bursts(1, 8)[0]
		modify(r, sqd, verbs.AttrState)
		drained(r, false)
		r.qp.Sent(b, 0)
		drained(r, true)
		r.wantSent("")
		// Attributes changed meanwhile count.
		modify(r, &verbs.QPAttr{MaxDestRdAtomic: 1, RetryCnt: 1, Timeout: 10, MaxRdAtomic: 0}, verbs.AttrMaxDestRdAtomic|verbs.AttrRetryCnt|verbs.AttrTimeout|verbs.AttrMaxRdAtomic)
		modify(r, &verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState)
		r.wantSent("SEND_ONLY 0/4!")
		if got := r.expire(); got != 4096<<10+1e6 {
			r.t.Fatalf("timeout after %d", got)
		}
		r.reqTo(bth.RCReadReq, 0, make([]byte, 4), 0)
		r.reqTo(bth.RCReadReq, 1, make([]byte, 4), 0)
		r.wantSent("READ_RESP_ONLY 0/4, NAK61 1")
	})
	rule(t, func(r *raw) { // a READ that waited when READs were forbidden
		for i := range 5 {
			r.post(uint64(i), verbs.WRRead, 4)
		}
		r.sent()
		modify(r, sqd, verbs.AttrState)
		for i := range 4 {
			r.resp(bth.RCReadRespOnly, i, bytesOf(4, 0))
		}
		drained(r, true)
		modify(r, &verbs.QPAttr{}, verbs.AttrMaxRdAtomic)
		modify(r, &verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState)
		r.sent()
		r.wantDone("0 ok, 1 ok, 2 ok, 3 ok, 4 LOC_QP_OP")
	})
}

// A READ in flight when READs are forbidden is asked for again if it is lost:
// without that it would wait for ever, with no timer. The ones behind it fail.
func TestReadOutlivesDepth(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRRead, 4)
		r.wantSent("READ_REQ 0@7000+4!")
		if err := r.qp.Modify(r.now, &verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.qp.Modify(r.now, &verbs.QPAttr{}, verbs.AttrMaxRdAtomic, nil); err != nil {
			t.Fatal(err)
		}
		r.post(2, verbs.WRRead, 4)
		r.expire()
		r.wantSent("READ_REQ 0@7000+4!")
		r.resp(bth.RCReadRespOnly, 0, bytesOf(4, 0))
		if err := r.qp.Modify(r.now, &verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState, nil); err != nil {
			t.Fatal(err)
		}
		r.wantSent("")
		r.wantDone("1 ok, 2 LOC_QP_OP")
	})
}

// ERR by Modify flushes both queues in order, and everything posted later;
// RESET forgets without completions, and the way up works again.
func TestErrAndReset(t *testing.T) {
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 4)
		r.post(2, verbs.WRRead, 4)
		r.sent()
		r.postWR(verbs.SendWR{ID: 3, Opcode: verbs.WRSend}) // unsignaled: an error always shows
		r.postRecv(4, 0, 4)
		if err := r.qp.Modify(0, &verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState, nil); err != nil {
			r.t.Fatal(err)
		}
		r.wantDone("1 FLUSH, 2 FLUSH, 3 FLUSH, r4 FLUSH")
		flushing := func() bool { return r.recvMem[128]&1 != 0 } // asks the producer for its doorbell
		if !flushing() {
			r.t.Fatal("the receive ring does not say that it is flushed")
		}
		r.post(5, verbs.WRSend, 4)
		r.postRecv(6, 0, 4)
		r.wantDone("5 FLUSH, r6 FLUSH")
		r.wantSent("")
		if r.expire() != -1 {
			r.t.Fatal("a timer runs in ERR")
		}
		if err := r.qp.Modify(0, &verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState, nil); err != nil {
			r.t.Fatal(err)
		}
		if flushing() {
			r.t.Fatal("the receive ring says that it is flushed")
		}
		r.sq.Reset()
		r.rq.Reset()
		r.connect(upAttr(r))
		r.post(7, verbs.WRSend, 4)
		r.postRecv(8, 0, 4)
		r.wantSent("SEND_ONLY 0/4!")
		r.ack(0)
		r.req(bth.RCSendOnly, 0, bytesOf(4, 0))
		r.wantDone("7 ok, r8 ok/4")
	})
	rule(t, func(r *raw) {
		r.post(1, verbs.WRSend, 600)
		r.req(bth.RCWriteOnly, 0, nil)
		b := r.bursts(2, 2)
		r.sent()
		if err := r.qp.Modify(0, &verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState, nil); err != nil {
			r.t.Fatal(err)
		}
		r.qp.Sent(b[0], 0)
		r.qp.Sent(b[1], 0)
		r.wantSent("")
		r.wantDone("")
		if r.expire() != -1 {
			r.t.Fatal("a timer runs in RESET")
		}
	})
}

// The first request in RTR is an event; Query tells where the PSNs are.
func TestEstablished(t *testing.T) {
	r := inState(t, verbs.StateRTR)
	r.req(bth.RCWriteOnly, 0, nil)
	r.req(bth.RCWriteOnly, 1, nil)
	if e := r.qp.TakeEvents(); e != transport.EventCommEst {
		t.Errorf("events %b", e)
	}
	r.wantSent("ACK 1")
	if a := r.qp.Attr(); a.RQPSN != r.psn(2).Uint32() || a.CurState != verbs.StateRTR {
		t.Errorf("%+v", a)
	}
}
