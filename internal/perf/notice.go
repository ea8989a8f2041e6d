package perf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// A check of write_bw goes in rounds: as many WRITEs as there are slots, then a
// notice to the target, which compares them and answers. Notices are SENDs on
// the first queue pair.
//
//	requester                      target
//	  WRITE slot 0..n-1 ========>
//	  all complete
//	  notice{from, to}  -------->  compares
//	                    <--------  notice{good} or notice{bad}
//	  ...
//	  notice{over}      -------->  goes on to Finish
type notice struct {
	kind              uint64
	size              uint64
	stride, slots     uint64
	from, to          uint64 // messages of each queue pair
	atQP, at, message uint64 // bad: the first that is wrong
}

const (
	noticeAsk = 1 + iota
	noticeGood
	noticeBad
	noticeOver
)

const (
	noticeWords = 9
	noticeLen   = 8 * noticeWords
	noticeSlots = 4 // receives posted
	noticeRoom  = noticeLen * noticeSlots
)

func (n *notice) words() [noticeWords]*uint64 {
	return [noticeWords]*uint64{&n.kind, &n.size, &n.stride, &n.slots, &n.from, &n.to, &n.atQP, &n.at, &n.message}
}

// rounds is the state of a check of write_bw.
type rounds struct {
	on     bool
	agreed uint64 // messages of each queue pair that the peer has compared
	asked  bool

	served    uint64 // of the peer's that this end has compared, in this run
	over      bool   // the peer sends no more
	bad       error  // told once the peer knows
	slot      uint64 // of the next receive
	inline    [noticeLen]byte
	wr        [1]verbs.SendWR
	recvWR    [1]verbs.RecvWR
	recvSGE   [1]verbs.SGE
	requests  uint64 // notices sent
	delivered uint64
}

// startRounds makes this end ready for notices, once the queue pairs are up.
func (r *run) startRounds() error {
	r.rounds.on = r.cfg.Check && r.cfg.Kind == oob.WriteBW && !r.cfg.WriteImm
	if !r.rounds.on {
		return nil
	}
	for range noticeSlots {
		if err := r.noticeRecv(); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) noticeRecv() error {
	n := &r.rounds
	at := r.mr.Addr() + r.layout.notices() + n.slot%noticeSlots*noticeLen
	n.recvSGE[0] = verbs.SGE{Addr: at, Length: noticeLen, LKey: r.mr.LKey()}
	n.recvWR[0] = verbs.RecvWR{ID: (n.slot%noticeSlots)<<idShift | idNotice | idRecv, SGL: n.recvSGE[:]}
	n.slot++
	_, err := r.flows[0].qp.PostRecv(n.recvWR[:])
	return err
}

func (r *run) tell(t notice) error {
	n := &r.rounds
	for i, w := range t.words() {
		binary.LittleEndian.PutUint64(n.inline[8*i:], *w)
	}
	n.requests++
	n.wr[0] = verbs.SendWR{ID: n.requests<<idShift | idNotice, Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: n.inline[:]}
	if _, err := r.flows[0].qp.PostSend(n.wr[:]); err != nil {
		return fmt.Errorf("--check: couldn't send a notice: %w", err)
	}
	return nil
}

// beginRound starts the rounds of a run.
func (r *run) beginRound() { r.rounds.agreed, r.rounds.asked, r.rounds.served = 0, false, 0 }

// roundAllows reports whether a queue pair may post a list: only into slots
// that the peer has compared.
func (r *run) roundAllows(f *flow) bool {
	return !r.rounds.on || f.posted+uint64(len(f.wrs)) <= r.roundEnd()
}

// roundEnd is how many messages of a queue pair are posted when the round is
// over: whole lists, and no more than the run has.
func (r *run) roundEnd() uint64 {
	list := uint64(r.cfg.PostList)
	end := r.rounds.agreed + r.flows[0].to.slots/list*list
	if !r.cfg.timed() {
		end = min(end, r.iters)
	}
	return end
}

// roundsDone reports whether a run of so many messages is compared, at both
// ends if both send.
func (r *run) roundsDone() bool {
	n := &r.rounds
	return !n.on || n.agreed >= r.iters && (!r.cfg.Both || n.served >= r.iters)
}

// askForCheck sends the notice when all messages of a round are complete.
func (r *run) askForCheck() error {
	n := &r.rounds
	if !n.on || n.asked {
		return nil
	}
	end := r.roundEnd()
	for i := range r.flows {
		if r.flows[i].done < end {
			return nil
		}
	}
	n.asked = true
	to := r.flows[0].to
	return r.tell(notice{kind: noticeAsk, size: r.size, stride: to.stride, slots: to.slots, from: n.agreed, to: end})
}

// notice takes the completion of a notice, sent or received.
func (r *run) notice(w *verbs.WC) error {
	n := &r.rounds
	if w.ID&idRecv == 0 {
		n.delivered++
		return n.bad
	}
	at := r.layout.notices() + w.ID>>idShift*noticeLen
	if w.ByteLen != noticeLen {
		return fmt.Errorf("--check: the peer's notice has %d octets instead of %d; is it of the same version?", w.ByteLen, noticeLen)
	}
	var t notice
	for i, v := range t.words() {
		*v = binary.LittleEndian.Uint64(r.mem[at+8*uint64(i):])
	}
	if err := r.noticeRecv(); err != nil {
		return err
	}
	switch t.kind {
	case noticeAsk:
		return r.compareRound(t)
	case noticeGood:
		n.agreed, n.asked = t.to, false
		return nil
	case noticeBad:
		return fmt.Errorf("--check: the peer found WRITE %d of queue pair %d wrong from octet %d on; it says more", t.message, t.atQP, t.at)
	case noticeOver:
		n.over = true
		return nil
	}
	return errors.New("--check: the peer's notice makes no sense; is it of the same version?")
}

// compareRound looks at the messages of a round and answers.
func (r *run) compareRound(t notice) error {
	l := r.layout
	if t.size == 0 || t.slots == 0 || t.to < t.from || t.to-t.from > t.slots || t.stride < t.size || t.stride > l.part || t.slots > l.part/t.stride {
		return errors.New("--check: the peer's notice makes no sense; give both ends the same -s, -a, -q and -t")
	}
	for k := t.from; k < t.to; k++ {
		for i := range r.flows {
			off := l.into(i) + k%t.slots*t.stride
			b := r.mem[off : off+t.size]
			s := seed(!r.cfg.server(), i, k)
			if at, _ := differs(b, s, 0); at >= 0 {
				r.rounds.bad = wrong(b, s, 0, "WRITE", k)
				return r.tell(notice{kind: noticeBad, atQP: uint64(i), at: uint64(at), message: k})
			}
		}
	}
	r.rounds.served = t.to
	return r.tell(notice{kind: noticeGood, from: t.from, to: t.to})
}

// serve answers notices until the peer sends no more.
func (r *run) serve() error {
	for !r.rounds.over {
		if err := r.wait(); err != nil {
			return err
		}
	}
	return nil
}

// endRounds tells a peer that serves that this end sends no more.
func (r *run) endRounds() error {
	if !r.rounds.on || r.cfg.Both {
		return nil
	}
	if err := r.tell(notice{kind: noticeOver}); err != nil {
		return err
	}
	return r.within(func() error {
		return r.until(func() bool { return r.rounds.delivered == r.rounds.requests })
	})
}
