package perf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// With --check every octet of every message is compared. Whoever has a
// completion for a message compares it:
//
//	SEND            the receiver, message by message; immediate data tell which
//	WRITE_WITH_IMM  the same
//	write_lat       the target, when the last octet is there
//	READ            the requester; the target's memory is a pattern by address
//	atomics         the requester, the value before; it knows what it stored
//	write_bw        the target, in rounds (notice.go), since nothing tells it
//	                of a WRITE
//
// The two ends find each other by a mark in the SRQ number of their addresses,
// which perftest sends as 0 and looks at only with XRC.
const (
	checkMark  = 0xc5 << 24
	checkDepth = 1<<24 - 1 // the rest: -t of the end that tells
)

var errNoCheck = errors.New("--check: the peer does not compare data; that takes rxe perf --check at both ends (perftest's tools cannot)")

// mark is what this end tells of a check.
func (r *run) mark() uint32 {
	if !r.cfg.Check {
		return 0
	}
	return checkMark | uint32(r.cfg.TxDepth)
}

// agree compares what the two ends were told.
func (r *run) agree(peer oob.Dest) error {
	marked := peer.SRQN&^checkDepth == checkMark
	switch {
	case r.cfg.Check && !marked:
		return errNoCheck
	case !r.cfg.Check && marked:
		return errors.New("the peer was started with --check, this side was not; give it to both or to neither")
	}
	r.peerDepth = int(peer.SRQN & checkDepth)
	return nil
}

// flowCheck is what one queue pair's check knows.
type flowCheck struct {
	next    uint64   // message that is expected next
	stored  []uint64 // atomics: what the peer's memory holds at each slot
	missing uint64   // messages that the next one showed to be lost
}

// seed is of the messages that one end sends on a queue pair.
func seed(fromServer bool, qp int, k uint64) uint64 {
	s := uint64(qp)<<48 ^ k*0xd6e8feb86659fd93
	if fromServer {
		s ^= 0x5851f42d4c957f2d
	}
	return mix(s)
}

// seedMemory is of the memory that READs fetch.
func seedMemory(ofServer bool) uint64 { return seed(ofServer, 1<<15, 0) }

func (r *run) prepareCheck(f *flow) {
	f.check = flowCheck{stored: f.check.stored}
	if !r.cfg.Check || !atomics(r.cfg.Kind) || f.check.stored != nil {
		return
	}
	f.check.stored = make([]uint64, f.to.slots)
}

// publish fills the memory that the peer READs. The memory of atomics is 0.
func (r *run) publish() {
	if !r.cfg.Check || r.cfg.messages() || writes(r.cfg.Kind) {
		return
	}
	for i := range r.flows {
		off := r.layout.into(i)
		b := r.mem[off : off+r.layout.part]
		if reads(r.cfg.Kind) {
			fillPattern(b, seedMemory(r.cfg.server()), uint64(i)<<40)
		}
		if r.cfg.spoil != nil {
			r.cfg.spoil(b, published)
		}
	}
}

// published stands for the memory itself as the number of a message.
const published = 1<<64 - 1

// poison is what a READ's target holds before it.
const poison = 0xa5

// fill makes message k of a flow ready to be sent.
func (r *run) fill(f *flow, w *verbs.SendWR, k uint64) {
	b := r.local(f.from.at(k))
	if r.cfg.spoil != nil {
		defer r.cfg.spoil(b, k)
	}
	switch kind := r.cfg.Kind; {
	case reads(kind):
		for i := range b {
			b[i] = poison
		}
		return
	case atomics(kind):
		slot := &f.check.stored[k%f.to.slots]
		if r.cfg.CmpSwap {
			w.CompareAdd, w.Swap = *slot, seed(r.cfg.server(), f.index, k)
		}
		fillPattern(b, poison, 0)
		return
	default:
		fillPattern(b, seed(r.cfg.server(), f.index, k), 0)
	}
	if r.cfg.messages() {
		w.Imm = uint32(k)
	} else if r.cfg.Kind == oob.WriteLat {
		b[len(b)-1] = byte(k + 1)
	}
}

// local is this end's memory of a message at an address.
func (r *run) local(addr uint64) []byte {
	off := addr - r.mr.Addr()
	return r.mem[off : off+r.size]
}

// checkSent compares what READs and atomics have brought, those since was.
func (r *run) checkSent(f *flow, was uint64) error {
	for k := was; k < f.done; k++ {
		switch kind := r.cfg.Kind; {
		case reads(kind):
			off := f.to.at(k) - f.dest.VAddr + uint64(f.index)<<40
			if err := wrong(r.local(f.from.at(k)), seedMemory(!r.cfg.server()), off, "READ", k); err != nil {
				return err
			}
		case atomics(kind):
			if err := r.checkAtomic(f, k); err != nil {
				return err
			}
		}
	}
	return r.askForCheck()
}

func (r *run) checkAtomic(f *flow, k uint64) error {
	before := binary.NativeEndian.Uint64(r.local(f.from.at(k)))
	slot := &f.check.stored[k%f.to.slots]
	if before != *slot {
		return fmt.Errorf("--check: atomic %d on queue pair %d returned %#x, the peer's memory held %#x", k, f.index, before, *slot)
	}
	if r.cfg.CmpSwap {
		*slot = seed(r.cfg.server(), f.index, k)
	} else {
		*slot++
	}
	return nil
}

// wrong compares a message.
func wrong(b []byte, seed, off uint64, what string, k uint64) error {
	at, want := differs(b, seed, off)
	if at < 0 {
		return nil
	}
	return fmt.Errorf("--check: %s %d is wrong from octet %d of %d on: %#02x instead of %#02x", what, k, at, len(b), b[at], want)
}

// checkArrived compares a message that took a receive request. Over RC none is
// missing and all are in order.
func (r *run) checkArrived(f *flow, w *verbs.WC) error {
	if w.Flags&verbs.WCWithImm == 0 {
		return errors.New("--check: a message without immediate data, which none of rxe perf --check's is")
	}
	k := uint64(w.Imm)
	next := &f.check.next
	switch {
	case k == *next:
		*next++
	case !r.cfg.lossy():
		return fmt.Errorf("--check: message %d came on queue pair %d, where %d is due", k, f.index, *next)
	case k > *next:
		f.check.missing += k - *next
		*next = k + 1
	default: // overtaken by a later one
		f.check.missing--
	}
	var at uint64
	if r.cfg.WriteImm {
		at = r.mr.Addr() + r.layout.into(f.index) + (f.to.at(k) - f.dest.VAddr)
	} else {
		at = f.in.ring.at(w.ID >> idShift)
		if r.cfg.Transport == verbs.UD {
			at += grh
		}
	}
	return wrong(r.local(at), seed(!r.cfg.server(), f.index, k), 0, "message", k)
}

// checkWritten compares message k of write_lat. Reading the queue pair's
// counters takes the device's lock, behind which the data were written.
func (r *run) checkWritten(f *flow, k uint64) error {
	if _, err := f.qp.Stats(); err != nil {
		return err
	}
	b := r.local(r.mr.Addr() + r.layout.into(f.index))
	return wrong(b[:len(b)-1], seed(!r.cfg.server(), f.index, k), 0, "WRITE", k)
}
