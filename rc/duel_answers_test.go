package rc

import (
	"bytes"
	"slices"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// withdrawn reports whether a region went away under a READ that was to be
// answered, which ends the responder.
func (r *responses) withdrawn() bool {
	for _, a := range r.answers {
		if r.unanswerable(a) {
			r.fatal = &fatal{a.first, plus(a.first, a.pkts-1), access}
			r.f.ended()
			return true
		}
	}
	return false
}

// unanswerable reports whether a was a READ whose region went away before it was
// answered.
func (r *responses) unanswerable(a *answer) bool {
	if a == nil || a.atomic || a.done && r.f.qp.cfg.Habits&NAKDuplicateRead == 0 {
		return false
	}
	_, ok := r.f.find(a.rkey, a.va, a.n, verbs.AccessRemoteRead)
	return !ok
}

// offers reports whether the syndrome of an ACK is right.
func (r *responses) offers(s bth.Syndrome) bool {
	if !r.f.attr.FlowControl {
		return s == 0x1f
	}
	if r.f.state != r.f.was {
		return s < 0x1f // requests were flushed since
	}
	c := bth.Syndrome(0)
	for c < 30 && creditsOf(c+1) <= len(r.posted) {
		c++
	}
	return s == c
}

// creditsOf is IBA table 48: from 4 on, every other code doubles.
func creditsOf(code bth.Syndrome) int {
	if code < 4 {
		return int(code)
	}
	n := 4 << (code/2 - 2)
	if code%2 == 1 {
		n += n / 2
	}
	return n
}

// sent checks a response that left.
func (r *responses) sent(p *bth.Packet) {
	t, name := r.f.t, r.f.name
	if p.Opcode != bth.RCReadRespMiddle && p.MSN != r.msn {
		t.Fatalf("%s answers with MSN %d after %d messages", name, p.MSN, r.msn)
	}
	alone := p.Opcode == bth.RCAck && p.Syndrome <= 0x1f // an ACK of what the program may have
	if r.finished || r.f.was == verbs.StateErr && r.fatal == nil && !r.untold && !alone {
		t.Fatalf("%s answers in %v", name, r.f.was)
	}
	if dist(p.PSN, r.owed) >= 0 {
		r.owes = false
	}
	switch p.Opcode {
	case bth.RCAck:
		r.sentAck(p)
		return
	case bth.RCAtomicAck:
		if a := r.answerTo(p.PSN); a == nil || !a.atomic || p.Orig != a.value || !r.offers(p.Syndrome) {
			t.Fatalf("%s answers atomic %v with %#x and %v: %+v", name, p.PSN, p.Orig, p.Syndrome, a)
		} else {
			a.done, a.again = true, false
		}
		return
	}
	a := r.answerTo(p.PSN)
	if a == nil || a.atomic {
		t.Fatalf("%s answers READ %v, which nobody asked for", name, p.PSN)
	}
	i, mtu, n := dist(p.PSN, a.first), int(r.f.attr.PathMTU), len(p.Payload)
	off := i * mtu
	first, last := p.Opcode == bth.RCReadRespFirst || p.Opcode == bth.RCReadRespOnly, p.Opcode == bth.RCReadRespLast || p.Opcode == bth.RCReadRespOnly
	switch {
	case off+n > a.n, n > mtu, !last && n != mtu, first && !slices.Contains(a.starts, i), last && !slices.Contains(a.ends, off+n):
		t.Fatalf("%s answers READ %v+%d of %d octets with %d octets at %d, first %v, last %v", name, a.first, a.pkts, a.n, n, off, first, last)
	case p.Opcode != bth.RCReadRespMiddle && !r.offers(p.Syndrome):
		t.Fatalf("%s: syndrome %v with %d receive requests", name, p.Syndrome, len(r.posted))
	}
	if n > 0 {
		at, ok := r.f.find(a.rkey, a.va+uint64(off), n, verbs.AccessRemoteRead)
		if !ok || !bytes.Equal(r.f.want[at:at+n], p.Payload) {
			t.Fatalf("%s answers READ %v with other octets than are there", name, p.PSN)
		}
	}
	if last {
		a.done, a.again = true, false
	}
}

// quiet checks that nothing is left to be said when there is nothing to send.
func (r *responses) quiet() {
	t, name := r.f.t, r.f.name
	if r.f.state != verbs.StateRTS && r.f.state != verbs.StateSQD {
		return
	}
	if r.mayNAK || r.mayRNR || r.owes {
		t.Fatalf("%s keeps quiet: a gap %v, no receive request %v, an ACK of %v %v", name, r.mayNAK, r.mayRNR, r.owed, r.owes)
	}
	for _, a := range r.answers {
		if _, ok := r.f.find(a.rkey, a.va, a.n, verbs.AccessRemoteRead); (a.again || !a.done) && (ok || a.atomic) {
			t.Fatalf("%s does not answer %v, again %v", name, a.first, a.again)
		}
	}
}

func (r *responses) sentAck(p *bth.Packet) {
	t, name := r.f.t, r.f.name
	switch {
	case r.f.state == verbs.StateErr && p.Syndrome == access && r.unanswerable(r.answerTo(p.PSN)):
		// Of a READ that was still to be answered when a request behind it was refused:
		// the older error is the one to tell of.
		r.fatal, r.finished = nil, true
	case r.fatal != nil && p.Syndrome == r.fatal.syndrome:
		if dist(p.PSN, r.fatal.from) < 0 || dist(p.PSN, r.fatal.to) > 0 {
			t.Fatalf("%s: %v of %v, not of %v", name, p.Syndrome, p.PSN, r.fatal.from)
		}
		r.fatal, r.finished = nil, true
	case p.Syndrome == 0x60:
		if !r.mayNAK || p.PSN != r.epsn {
			t.Fatalf("%s: a sequence NAK of %v, expected is %v, reported %v", name, p.PSN, r.epsn, !r.mayNAK)
		}
		r.mayNAK = false
	case p.Syndrome>>5 == 1:
		if !r.mayRNR || p.PSN != r.epsn || p.Syndrome&0x1f != bth.Syndrome(r.f.attr.MinRNRTimer) {
			t.Fatalf("%s: RNR NAK of %v, expected is %v, reported %v", name, p.PSN, r.epsn, !r.mayRNR)
		}
		r.mayRNR = false
	case !r.offers(p.Syndrome):
		t.Fatalf("%s: ACK with syndrome %v, and %d receive requests", name, p.Syndrome, len(r.posted))
	default:
		if !r.mayACK || dist(p.PSN, r.ackTo) > 0 || dist(p.PSN, r.epsn) >= 0 || dist(p.PSN, r.begin) < -1 {
			t.Fatalf("%s: an ACK of %v, asked for %v up to %v", name, p.PSN, r.mayACK, r.ackTo)
		}
		for _, a := range r.answers {
			if !a.done && dist(p.PSN, a.first) >= 0 {
				t.Fatalf("%s acknowledges %v before it answers %v", name, p.PSN, a.first)
			}
		}
		r.mayACK = false
	}
}
