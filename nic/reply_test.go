package nic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// TestReplyFirst: the ACK of a message waits for the program that steps to
// answer, and follows the answer; it waits for one step, not longer, and for
// the background not at all.
func TestReplyFirst(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	s := b.nic.shards[0]
	step := func(program bool) []bth.Packet {
		s.mu.Lock()
		d := s.step(b.now, program)
		s.mu.Unlock()
		if len(s.patient) > 0 {
			t.Fatal("a queue pair is forgotten")
		}
		out := b.links[0].took()
		if s.held {
			require.Equal(t, b.now, d, "there is more to do, and it says so")
		}
		return out
	}
	psn := bth.MakePSN(peerPSN)
	message := func() {
		recv(t, b.qp, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(4096, 64)}})
		b.links[0].arrive(b.from(there, here, bth.Packet{Opcode: bth.RCSendOnly, PKey: 0xffff, DestQP: bth.QPN(b.qp.QPN()), PSN: psn, AckReq: true}, 8))
		psn = psn.Add(1)
	}
	ops := func(ps []bth.Packet) (o []bth.Opcode) {
		for i := range ps {
			o = append(o, ps[i].Opcode)
		}
		return o
	}
	reply := verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{b.mr.SGE(0, 8)}}

	for range 3 { // whatever happened before
		message()
		require.Empty(t, step(true))
		require.Equal(t, "[0]", b.polled(b.cq))
		post(t, b.qp, reply)
		require.Equal(t, []bth.Opcode{bth.RCSendOnly, bth.RCAck}, ops(step(true)))

		message()
		require.Empty(t, step(true))
		require.Equal(t, []bth.Opcode{bth.RCAck}, ops(step(true)), "the program looks again without an answer")

		message()
		require.Empty(t, step(true))
		message()
		require.Equal(t, []bth.Opcode{bth.RCAck}, ops(step(true)), "another message does not hold it any longer")

		message()
		require.Equal(t, []bth.Opcode{bth.RCAck}, ops(step(false)), "nobody is there to answer")
		require.Equal(t, "[0 0 0 0]", b.polled(b.cq))
	}
}

// TestLastAck: what a program leaves when it has its last message is sent,
// however it leaves.
func TestLastAck(t *testing.T) {
	for name, leave := range map[string]func(b *bench) error{
		"destroys": func(b *bench) error { return b.qp.Destroy() },
		"resets":   func(b *bench) error { return b.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState) },
		"closes":   func(b *bench) error { return b.nic.Close() },
	} {
		b := newBench(t, 1, nil).connect()
		recv(t, b.qp, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(4096, 64)}})
		b.links[0].arrive(b.from(there, here, bth.Packet{Opcode: bth.RCSendOnly, PKey: 0xffff, DestQP: bth.QPN(b.qp.QPN()), PSN: bth.MakePSN(peerPSN), AckReq: true}, 8))
		s := b.nic.shards[0]
		s.mu.Lock()
		s.step(b.now, true)
		s.mu.Unlock()
		require.Empty(t, b.links[0].took(), name)
		require.NoError(t, leave(b), name)
		out := b.links[0].took()
		require.Len(t, out, 1, name)
		require.Equal(t, bth.RCAck, out[0].Opcode, name)
	}
}

// TestLastAckRace: the same when another thread steps meanwhile: whatever was
// delivered before the queue pair went is acknowledged.
func TestLastAckRace(t *testing.T) {
	b := newBench(t, 1, nil)
	s := b.nic.shards[0]
	wcs := make([]verbs.WC, 64)
	for round := range 500 {
		if b.qp == nil {
			b.qp = b.newQP(b.cq)
		}
		b.connect()
		for range 40 {
			recv(t, b.qp, verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(4096, 64)}})
		}
		begun, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := range 40 {
				b.links[0].arrive(b.from(there, here, bth.Packet{Opcode: bth.RCSendOnly, PKey: 0xffff, DestQP: bth.QPN(b.qp.QPN()), PSN: bth.MakePSN(uint32(peerPSN + i)), AckReq: true}, 8))
				s.mu.Lock()
				s.step(b.now, true)
				s.mu.Unlock()
				if i == round%3 {
					close(begun)
				}
			}
		}()
		<-begun
		require.NoError(t, b.qp.Destroy())
		<-done
		n, acked := b.cq.Poll(wcs), 0
		for _, p := range b.links[0].took() {
			acked = max(acked, p.PSN.Diff(bth.MakePSN(peerPSN))+1)
		}
		require.Equal(t, n, acked, "round %d", round)
		b.qp = nil
	}
}
