package nic

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// talker plays the peer of a program that may answer.
type talker struct {
	*bench
	s   *shard
	psn bth.PSN
	id  uint16 // of its packets
}

func newTalker(t *testing.T) *talker {
	b := newBench(t, 1, nil).connect()
	return &talker{bench: b, s: b.nic.shards[0], psn: bth.MakePSN(peerPSN)}
}

// by steps once and returns what was sent.
func (k *talker) by(who stepper) (o []bth.Opcode) {
	k.s.mu.Lock()
	d := k.s.step(k.now, who)
	k.s.mu.Unlock()
	require.Empty(k.t, k.s.patient, "a queue pair is forgotten")
	if k.s.waiting {
		require.Equal(k.t, k.now, d, "there is more to do, and it says so")
	}
	for _, p := range k.links[0].took() {
		o = append(o, p.Opcode)
	}
	return o
}

func (k *talker) message() {
	recv(k.t, k.qp, verbs.RecvWR{SGL: []verbs.SGE{k.mr.SGE(4096, 64)}})
	p := k.request()
	p.PSN = k.psn
	k.psn = k.psn.Add(1)
	d := datagram(p, 8)
	if k.id != 0 {
		d = numbered(d, k.id)
	}
	k.links[0].arrive(d)
}

// numbered gives a datagram another IPv4 identification.
func numbered(d wire.Datagram, id uint16) wire.Datagram {
	body := d.Payload[:len(d.Payload)-bth.ICRCLen]
	v := wire.ICRC(body, netip.AddrPortFrom(d.Src, d.SrcPort), netip.AddrPortFrom(d.Dst, wire.Port), id, true)
	d.ID = id
	d.Payload = append(append([]byte(nil), body...), byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	return d
}

// answer posts one, of 8 octets.
func (k *talker) answer() {
	post(k.t, k.qp, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{k.mr.SGE(0, 8)}})
}

// ack acknowledges what the program has sent so far.
func (k *talker) ack(n int) {
	p := bth.Packet{Opcode: bth.RCAck, PKey: 0xffff, DestQP: bth.QPN(k.qp.QPN()), PSN: bth.MakePSN(uint32(ourPSN + n - 1)), Syndrome: 0x1f}
	k.links[0].arrive(datagram(p, 0))
}

// prompt lets the program answer so often that it counts as prompt.
func (k *talker) prompt() {
	for range promptEnough {
		k.message()
		require.Equal(k.t, ack, k.by(byPoller))
		k.answer()
		require.Equal(k.t, send, k.by(byPoster))
	}
	k.ack(promptEnough)
	k.by(byPoller)
}

var (
	none  []bth.Opcode
	ack   = []bth.Opcode{bth.RCAck}
	send  = []bth.Opcode{bth.RCSendOnly}
	along = []bth.Opcode{bth.RCSendOnly, bth.RCAck}
)

// TestAnswerFirst: of a program that has answered at once for a while the ACK
// waits for the answer and goes along with it, as one burst; it waits for one
// step, not longer, and where the background steps not at all.
func TestAnswerFirst(t *testing.T) {
	k := newTalker(t)
	k.prompt()
	bursts := k.s.stats.txBursts
	k.message()
	require.Equal(t, none, k.by(byPoller))
	k.answer()
	require.Equal(t, along, k.by(byPoster))
	require.Equal(t, bursts+1, k.s.stats.txBursts)

	k.message()
	require.Equal(t, none, k.by(byPoller))
	require.Equal(t, ack, k.by(byPoller), "the program looks again without an answer")
	k.answer()
	require.Equal(t, send, k.by(byPoster))

	k.message()
	require.Equal(t, ack, k.by(byBackground), "nobody is there to answer")
}

// TestAnswerLate: a program that does not answer at once any more, or takes a
// second message first, is not waited for.
func TestAnswerLate(t *testing.T) {
	for name, happens := range map[string]func(k *talker){
		"late": func(k *talker) {
			k.message()
			require.Equal(t, none, k.by(byPoller))
			k.now += promptness + 1
			k.answer()
			require.Equal(t, along, k.by(byPoster))
		},
		"never": func(k *talker) {
			k.message()
			require.Equal(t, none, k.by(byPoller))
			k.message()
			require.Equal(t, ack, k.by(byPoller))
		},
		"in the background": func(k *talker) {
			k.message()
			require.Equal(t, ack, k.by(byBackground))
		},
	} {
		k := newTalker(t)
		k.prompt()
		happens(k)
		k.message()
		require.Equal(t, ack, k.by(byPoller), name)
	}
}

// TestAnswerAfterAck: a peer that numbers its packets in another way may not
// expect the answer ahead of the ACK.
func TestAnswerAfterAck(t *testing.T) {
	k := newTalker(t)
	k.id = 40000
	k.prompt()
	k.id = 0 // a counter passes there too
	for range 2 * promptEnough {
		k.message()
		require.Equal(t, ack, k.by(byPoller))
		k.answer()
		require.Equal(t, send, k.by(byPoster))
	}
}

// TestPosterDoesNotLook: a step of a program that posts does not ask the link for
// packets, but for a time only.
func TestPosterDoesNotLook(t *testing.T) {
	k := newTalker(t)
	k.by(byPoller)
	before := k.links[0].recvs
	k.by(byPoster)
	require.Equal(t, before, k.links[0].recvs)
	k.now += rxPause
	k.by(byPoster)
	require.Greater(t, k.links[0].recvs, before)
}

// TestLastAck: what a program leaves when it has its last message is sent,
// however it leaves.
func TestLastAck(t *testing.T) {
	for name, leave := range map[string]func(k *talker) error{
		"destroys": func(k *talker) error { return k.qp.Destroy() },
		"resets":   func(k *talker) error { return k.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState) },
		"closes":   func(k *talker) error { return k.nic.Close() },
	} {
		k := newTalker(t)
		k.prompt()
		k.message()
		require.Equal(t, none, k.by(byPoller))
		require.NoError(t, leave(k), name)
		out := k.links[0].took()
		require.Len(t, out, 1, name)
		require.Equal(t, bth.RCAck, out[0].Opcode, name)
	}
}

// TestLastAckRace: the same when another thread steps meanwhile: whatever was
// delivered before the queue pair went is acknowledged.
func TestLastAckRace(t *testing.T) {
	wcs := make([]verbs.WC, 64)
	for round := range 200 {
		k := newTalker(t)
		k.prompt()
		k.cq.Poll(wcs)
		const messages = 20
		for range messages {
			recv(t, k.qp, verbs.RecvWR{SGL: []verbs.SGE{k.mr.SGE(4096, 64)}})
		}
		begun, done := make(chan struct{}), make(chan struct{})
		first := k.psn
		go func() {
			defer close(done)
			for i := range messages {
				p := k.request()
				p.PSN = first.Add(i)
				k.links[0].arrive(datagram(p, 8))
				k.s.mu.Lock()
				k.s.step(k.now, byPoller)
				k.s.mu.Unlock()
				if i == round%3 {
					close(begun)
				}
			}
		}()
		<-begun
		require.NoError(t, k.qp.Destroy())
		<-done
		n, acked := k.cq.Poll(wcs), 0
		for _, p := range k.links[0].took() {
			acked = max(acked, p.PSN.Diff(first)+1)
		}
		require.Equal(t, n, acked, "round %d", round)
	}
}
