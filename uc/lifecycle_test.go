package uc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// TestLifecycle posts good and bad requests, sends them in parts and moves the
// queue pair between its states at random: each request completes once, in the
// order of posting, and PSNs on the wire have no gap and no repetition.
func TestLifecycle(t *testing.T) {
	status := map[verbs.WCStatus]int{}
	var events transport.Events
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := &life{c: rand.New(rand.NewPCG(seed, 4)), raw: newRaw(t, 0xffffe0)}
			for range 200 {
				l.step()
			}
			l.Modify(verbs.StateErr, 0, verbs.QPAttr{}, nil)
			l.reap()
			if l.done != l.posted {
				t.Fatalf("%d of %d requests are complete", l.done, l.posted)
			}
			for s, n := range l.status {
				status[verbs.WCStatus(s)] += n
			}
			events |= l.seen | l.qp.TakeEvents()
		})
	}
	for _, s := range []verbs.WCStatus{verbs.WCSuccess, verbs.WCWRFlushErr, verbs.WCLocProtErr, verbs.WCLocQPOpErr} {
		if status[s] == 0 {
			t.Errorf("%v never happened", s)
		}
	}
	if events != transport.EventDrained|transport.EventLastWQE {
		t.Errorf("events %v", events)
	}
}

// life is a queue pair that only sends.
type life struct {
	*raw
	c            *rand.Rand
	posted, done uint64
	sent         int // packets that left
	ends         []int
	status       [32]int
	seen         transport.Events
}

func (l *life) step() {
	switch l.c.IntN(6) {
	case 0, 1:
		l.post()
	case 2, 3:
		l.transmit()
	case 4:
		l.move()
	}
	l.reap()
}

// post posts a request of which one in eight is bad, perhaps at its end only.
func (l *life) post() {
	w := verbs.SendWR{ID: l.posted, Opcode: []verbs.WROpcode{verbs.WRSend, verbs.WRWrite}[l.c.IntN(2)], Flags: verbs.SendSignaled, SGL: []verbs.SGE{l.SGE(0, l.c.IntN(900))}}
	switch l.c.IntN(16) {
	case 0:
		w.SGL = append(w.SGL, verbs.SGE{Length: 9})
	case 1:
		w.Opcode = verbs.WRRead
	}
	if l.SQ.Put(&w) == nil {
		l.posted++
		l.SQ.Publish()
		if l.c.IntN(2) == 0 { // the doorbell may come late
			l.QP.Doorbell(0)
		}
	}
}

// transmit fills bursts, of which the link takes what it likes.
func (l *life) transmit() {
	bs := l.Bursts(1+l.c.IntN(3), 1+l.c.IntN(4))
	if len(bs) == 0 && l.qp.Ready(0) {
		l.T.Fatal("Ready, nothing under way, and Fill gives nothing")
	}
	take := l.c.IntN(10)
	for i, b := range bs {
		if i > 0 && i == len(bs)-1 && l.c.IntN(4) == 0 {
			// as the NIC does with what must not overtake
			l.qp.Sent(b, 0)
			bs = bs[:i]
		}
	}
	for _, b := range bs {
		n := min(take, b.Len())
		take -= n
		l.wire(b, n)
		l.qp.Sent(b, n)
	}
}

func (l *life) wire(b *wire.Burst, n int) {
	for _, s := range b.Segs[:n] {
		if got := s.PSN.Diff(l.Base); got != l.sent {
			l.T.Fatalf("PSN %d on the wire, want %d", got, l.sent)
		}
		l.sent++
		if op := s.Opcode.Info(); op.Has(bth.Ends) {
			l.ends = append(l.ends, l.sent)
		}
	}
}

// move changes the state to one that may follow.
func (l *life) move() {
	to := verbs.StateRTS
	switch l.qp.State() {
	case verbs.StateRTS:
		to = verbs.StateSQD
	case verbs.StateSQE, verbs.StateSQD:
	default:
		return
	}
	l.Modify(to, 0, verbs.QPAttr{}, nil)
	l.seen |= l.qp.TakeEvents()
}

// reap checks the completions: in order, and success only of what left whole.
func (l *life) reap() {
	for _, w := range l.Done {
		if w.ID != l.done {
			l.T.Fatalf("request %d completed, want %d", w.ID, l.done)
		}
		l.done++
		l.status[w.Status]++
		if w.Status == verbs.WCSuccess && l.status[0] > len(l.ends) {
			l.T.Fatalf("request %d completed before it left", w.ID)
		}
	}
	l.Done = l.Done[:0]
}
