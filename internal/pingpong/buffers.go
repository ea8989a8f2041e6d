package pingpong

import "github.com/gorxe/gorxe/verbs"

// buffers is the memory of a run. Without Check it is one buffer that every
// message of every queue pair comes to and leaves from, as in the originals:
//
//	| GRH (UD) | message |
//
// With Check messages come to slots and leave from buffers of their own:
//
//	| GRH | slot 0 | GRH | slot 1 | ... | message of queue pair 0 | of 1 | ...
//
// A run with one queue pair has one slot, since it has one message under way.
// With a shared receive queue every receive request has a slot.
type buffers struct {
	mr        *verbs.MR
	size, grh int
	apart     bool // Check
	slots     int
	free      []int // slots that no receive request has, of a shared queue
}

// octets is how much memory there is for so many queue pairs.
func (b *buffers) octets(lanes int) int {
	if !b.apart {
		return b.grh + b.size
	}
	return b.slots*(b.grh+b.size) + lanes*b.size
}

// take returns a slot for a receive request.
func (b *buffers) take() int {
	if b.slots == 1 {
		return 0
	}
	s := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	return s
}

// put gives a slot back.
func (b *buffers) put(slot int) {
	if b.slots > 1 {
		b.free = append(b.free, slot)
	}
}

func (b *buffers) recvSGE(slot int) verbs.SGE {
	return b.mr.SGE(slot*(b.grh+b.size), b.grh+b.size)
}

// received is the message in a slot.
func (b *buffers) received(slot int) []byte {
	off := slot*(b.grh+b.size) + b.grh
	return b.mr.Bytes()[off : off+b.size]
}

func (b *buffers) sendAt(lane int) int {
	if !b.apart {
		return b.grh
	}
	return b.slots*(b.grh+b.size) + lane*b.size
}

func (b *buffers) sendSGE(lane int) verbs.SGE { return b.mr.SGE(b.sendAt(lane), b.size) }

// message is what a queue pair sends.
func (b *buffers) message(lane int) []byte {
	off := b.sendAt(lane)
	return b.mr.Bytes()[off : off+b.size]
}
