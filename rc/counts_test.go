package rc

import (
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// ACKs that a later one stands for are counted; a READ or an atomic has none, its
// response acknowledges it.
func TestAcksCoalesced(t *testing.T) {
	for op, want := range map[bth.Opcode]uint64{
		bth.RCWriteOnly: 1, bth.RCReadReq: 0, bth.RCFetchAdd: 0, bth.RCCmpSwap: 0,
	} {
		r := newRaw(t, 100)
		r.req(bth.RCWriteOnly, 0, bytesOf(4, 1))
		var payload []byte
		if op == bth.RCReadReq || op == bth.RCWriteOnly {
			payload = bytesOf(4, 1)
		}
		r.req(op, 1, payload)
		r.sent()
		if len(r.pkts) != 1 || r.pkts[0].PSN != r.psn(1) {
			t.Errorf("%v: sent %s", op, r.texts())
		}
		if got := r.qp.Stats().AcksCoalesced; got != want {
			t.Errorf("%v: %d ACKs coalesced, want %d", op, got, want)
		}
	}
}

// A NAK that lets a request fail for a reason of this end's is not looked at any
// more: its queue pair is in ERR.
func TestNakAfterLocalError(t *testing.T) {
	for _, s := range []bth.Syndrome{bth.RNRNAK(1), bth.NAKSequence, bth.NAKRemoteAccess} {
		rule(t, func(r *raw) {
			r.post(1, verbs.WRSend, 4)
			r.post(2, verbs.WRWrite, 600)
			r.bursts(2, 1) // SEND, and the first packet of the WRITE
			if err := r.mrs.Deregister(r.reg.Key); err != nil {
				r.t.Fatal(err)
			}
			r.wantSent("")
			r.nak(1, s)
			r.wantDone("1 ok, 2 LOC_PROT")
			r.wantState(verbs.StateErr)
			for _, why := range []trace.Reason{trace.RetryRNR, trace.RetrySequence, trace.FailRemoteAccess, trace.DropResponse} {
				if n := r.qp.Counts()[why]; n != 0 {
					r.t.Errorf("%v: %v counted %d times", s, why, n)
				}
			}
			for _, e := range r.qp.cfg.Recorder.Events() {
				if e.Reason == trace.FailRemoteAccess {
					r.t.Errorf("%v: recorded %v", s, e.Reason)
				}
			}
		})
	}
}

// Requests posted before there is a connection are flushed like any others.
func TestFlushBeforeConnection(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRWrite, verbs.WRRead, verbs.WRFetchAdd} {
		r := newRaw(t, 100)
		r.modify(verbs.StateReset, verbs.AttrState)
		r.modify(verbs.StateInit, toInit)
		r.post(1, op, 8)
		r.modify(verbs.StateErr, verbs.AttrState)
		r.wantDone("1 FLUSH")
	}
}
