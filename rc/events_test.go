package rc

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// What the recorder is told of each thing that happens: reason, time, queue
// pair, and of a packet its direction, PSN, opcode and syndrome; without one the
// oldest PSN that is not acknowledged.
func TestEvents(t *testing.T) {
	const at = 12345
	toState := func(s verbs.QPState) trace.Event { return trace.Event{Reason: trace.NoteState, Arg: uint32(s)} }
	rx := func(why trace.Reason, op bth.Opcode, psn uint32, s bth.Syndrome) trace.Event {
		return trace.Event{Reason: why, Dir: trace.Rx, PSN: 100 + psn, Opcode: uint8(op), Arg: uint32(s)}
	}
	local := func(why trace.Reason, psn uint32) trace.Event { return trace.Event{Reason: why, PSN: 100 + psn} }
	withPayload := func(op bth.Opcode) bth.Packet {
		return bth.Packet{Opcode: op, PSN: bth.MakePSN(100), Syndrome: bth.AckUnlimited, Payload: make([]byte, 4)}
	}
	for _, c := range []struct {
		name string
		do   func(r *raw)
		want []trace.Event
	}{
		{"ACK of nothing", func(r *raw) { r.ack(5) }, []trace.Event{rx(trace.DropGhostAck, bth.RCAck, 5, bth.AckUnlimited)}},
		{"reserved ACK", func(r *raw) {
			r.post(1, verbs.WRSend, 4)
			r.sent()
			r.nak(0, 0x9f)
		}, []trace.Event{rx(trace.DropReservedAck, bth.RCAck, 0, 0x9f)}},
		{"reserved syndrome of a READ response", func(r *raw) {
			r.post(1, verbs.WRRead, 4)
			r.sent()
			r.in(bth.Packet{Opcode: bth.RCReadRespOnly, PSN: r.psn(0), Syndrome: 0x9f, Payload: make([]byte, 4)})
			r.in(bth.Packet{Opcode: bth.RCReadRespOnly, PSN: r.psn(0), Syndrome: bth.NAKSequence, Payload: make([]byte, 4)})
		}, []trace.Event{rx(trace.DropReservedAck, bth.RCReadRespOnly, 0, 0x9f), rx(trace.DropReservedAck, bth.RCReadRespOnly, 0, bth.NAKSequence)}},
		{"reserved syndrome of an atomic's response", func(r *raw) {
			r.post(1, verbs.WRFetchAdd, 8)
			r.sent()
			r.in(bth.Packet{Opcode: bth.RCAtomicAck, PSN: r.psn(0), Syndrome: 0x9f})
			r.in(bth.Packet{Opcode: bth.RCAtomicAck, PSN: r.psn(0), Syndrome: bth.RNRNAK(1)})
		}, []trace.Event{rx(trace.DropReservedAck, bth.RCAtomicAck, 0, 0x9f), rx(trace.DropReservedAck, bth.RCAtomicAck, 0, 0x21)}},
		{"response of the wrong kind", func(r *raw) {
			r.post(1, verbs.WRSend, 4)
			r.sent()
			r.atomicAck(0, 1)
		}, []trace.Event{rx(trace.DropResponse, bth.RCAtomicAck, 0, bth.AckUnlimited)}},
		{"ACK with payload", func(r *raw) {
			r.post(1, verbs.WRSend, 4)
			r.sent()
			r.in(withPayload(bth.RCAck))
		}, []trace.Event{rx(trace.DropLength, bth.RCAck, 0, bth.AckUnlimited)}},
		{"atomic's response with payload", func(r *raw) {
			r.post(1, verbs.WRFetchAdd, 8)
			r.sent()
			r.in(withPayload(bth.RCAtomicAck))
		}, []trace.Event{rx(trace.DropLength, bth.RCAtomicAck, 0, bth.AckUnlimited)}},
		{"receiver not ready, twice", func(r *raw) {
			r.post(1, verbs.WRSend, 4)
			r.sent()
			r.nak(0, bth.RNRNAK(3))
			r.post(2, verbs.WRSend, 4)
			r.nak(0, bth.RNRNAK(3))
		}, []trace.Event{rx(trace.RetryRNR, bth.RCAck, 0, 0x23), rx(trace.DropResponse, bth.RCAck, 0, 0x23)}},
		{"sequence NAK, twice", func(r *raw) {
			r.post(1, verbs.WRSend, 300)
			r.sent()
			r.nak(1, bth.NAKSequence)
			r.nak(1, bth.NAKSequence)
		}, []trace.Event{
			{Reason: trace.RetrySequence, PSN: 101, Opcode: uint8(bth.RCAck), Arg: 0x60}, rx(trace.DropResponse, bth.RCAck, 1, bth.NAKSequence),
		}},
		{"timeout", func(r *raw) {
			r.post(1, verbs.WRSend, 300)
			r.sent()
			r.ack(0)
			r.now = r.qp.Deadline()
			r.qp.HandleTimer(r.now)
		}, []trace.Event{{Reason: trace.RetryTimeout, PSN: 101, Time: at + timeout14}}},
		{"fatal NAK", func(r *raw) {
			r.post(1, verbs.WRSend, 300)
			r.sent()
			r.nak(1, bth.NAKRemoteAccess)
		}, []trace.Event{local(trace.FailRemoteAccess, 1), toState(verbs.StateErr)}},
		{"bad key", func(r *raw) {
			r.postWR(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: 1, Length: 1, LKey: 1}}})
			r.sent()
		}, []trace.Event{local(trace.FailLocalProt, 0), toState(verbs.StateErr)}},
		{"device's failure", func(r *raw) { r.qp.Fail(r.now, trace.FailLocalQPOp) }, []trace.Event{local(trace.FailLocalQPOp, 0), toState(verbs.StateErr)}},
		{"gap", func(r *raw) { r.req(bth.RCWriteOnly, 1, nil) }, []trace.Event{rx(trace.DropOutOfOrder, bth.RCWriteOnly, 1, 0), rx(trace.NoteSequenceNAK, bth.RCWriteOnly, 1, 0)}},
		{"duplicates", func(r *raw) {
			for range 2 {
				r.req(bth.RCWriteOnly, 0, nil)
				r.req(bth.RCReadReq, 1, bytesOf(4, 0))
				r.req(bth.RCFetchAdd, 2, nil)
			}
			r.req(bth.RCFetchAdd, 1, nil)
			r.req(bth.RCReadReq, 2, bytesOf(4, 0))
		}, []trace.Event{
			rx(trace.NoteDuplicate, bth.RCWriteOnly, 0, 0), rx(trace.NoteDuplicate, bth.RCReadReq, 1, 0), rx(trace.NoteDuplicate, bth.RCFetchAdd, 2, 0),
			rx(trace.DropDuplicate, bth.RCFetchAdd, 1, 0), rx(trace.DropDuplicate, bth.RCReadReq, 2, 0),
		}},
		{"no receive request", func(r *raw) { r.req(bth.RCSendOnly, 0, nil) }, []trace.Event{rx(trace.NoteRNRNAK, bth.RCSendOnly, 0, 0)}},
		{"invalid request", func(r *raw) { r.req(bth.RCWriteLast, 0, bytesOf(1, 1)) }, []trace.Event{rx(trace.FailOpcodeSeq, bth.RCWriteLast, 0, 0), toState(verbs.StateErr)}},
		{"wrong service", func(r *raw) { r.in(bth.Packet{Opcode: 0x24, PSN: r.psn(3)}) }, []trace.Event{rx(trace.DropClass, 0x24, 3, 0)}},
		{"READ withdrawn while it is answered", func(r *raw) {
			r.req(bth.RCReadReq, 0, bytesOf(4, 0))
			if err := r.mrs.Deregister(r.reg.Key); err != nil {
				r.t.Fatal(err)
			}
			r.sent()
		}, []trace.Event{local(trace.FailAccess, 0), toState(verbs.StateErr)}},
		{"READ withdrawn while it is answered again", func(r *raw) {
			r.req(bth.RCReadReq, 0, bytesOf(4, 0))
			r.sent()
			r.req(bth.RCReadReq, 0, bytesOf(4, 0))
			if err := r.mrs.Deregister(r.reg.Key); err != nil {
				r.t.Fatal(err)
			}
			r.sent()
		}, []trace.Event{rx(trace.NoteDuplicate, bth.RCReadReq, 0, 0), local(trace.DropDuplicate, 0)}},
		{"packets in RESET, INIT and RTR", func(r *raw) {
			r.modify(verbs.StateReset, verbs.AttrState)
			r.ack(0)
			r.modify(verbs.StateInit, toInit)
			r.req(bth.RCWriteOnly, 0, nil)
		}, []trace.Event{rx(trace.DropState, bth.RCAck, 0, bth.AckUnlimited), toState(verbs.StateInit), rx(trace.DropState, bth.RCWriteOnly, 0, 0)}},
		{"SQD", func(r *raw) { r.modify(verbs.StateSQD, verbs.AttrState) }, []trace.Event{toState(verbs.StateSQD)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRaw(t, 100)
			before := len(r.qp.cfg.Recorder.Events())
			r.now = at
			c.do(r)
			for i := range c.want {
				c.want[i].QPN = 0x11
				if c.want[i].Time == 0 {
					c.want[i].Time = at
				}
			}
			assert.Equal(t, c.want, r.qp.cfg.Recorder.Events()[before:])
		})
	}
}

// modify changes the state; the attributes are of no interest.
func (r *raw) modify(to verbs.QPState, m verbs.AttrMask) {
	r.t.Helper()
	a := verbs.QPAttr{State: to, Access: verbs.AccessAll}
	if err := r.qp.Modify(r.now, &a, m, nil); err != nil {
		r.t.Fatal(err)
	}
}
