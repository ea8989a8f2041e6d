package xdp

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// receiver turns what the queues of a link hold into datagrams.
type receiver struct {
	queues []*queue
	turn   int // queue to look at first

	// join is where packets in several pieces are put together.
	join []byte
	used int

	runs *runs // nil in native mode, which sees the wire's packets

	packets, bytes, joined atomic.Uint64
	reasons                [trace.NumReasons]atomic.Uint64
}

// queue is the receiving half of a socket. Its chunks are in the fill ring, in
// the receive ring, or held: lent out until the next Recv.
type queue struct {
	x    *sys.XSK
	held []uint64
}

// newQueue gives the kernel the first chunks of a socket.
func newQueue(x *sys.XSK, chunks int) *queue {
	q := &queue{x: x, held: make([]uint64, 0, chunks)}
	for i := range chunks {
		q.held = append(q.held, uint64(i)*sys.ChunkLen)
	}
	q.recycle()
	return q
}

// recycle gives the kernel back what was lent out. The fill ring has room for
// every chunk.
func (q *queue) recycle() {
	if len(q.held) == 0 {
		return
	}
	q.x.Fill.Free(len(q.held))
	for _, a := range q.held {
		q.x.Fill.Put(a)
	}
	q.x.Fill.Submit()
	q.held = q.held[:0]
}

// recv fills ds with what has arrived, from each queue in turn.
//
//gorxe:hot
func (r *receiver) recv(ds []wire.Datagram) (n int) {
	r.used = 0
	ds = ds[:min(len(ds), maxRecv)]
	for _, q := range r.queues {
		q.recycle()
	}
	first := r.turn
	for i := range r.queues {
		k := (first + i) % len(r.queues)
		q := r.queues[k]
		got, more := r.take(q, ds[n:])
		if n += got; more {
			r.turn = k // it goes on here, after the others had their chance
			if len(r.queues) > 1 {
				r.turn = (k + 1) % len(r.queues)
			}
			break
		}
		if got == 0 && q.x.Fill.NeedWakeup() {
			q.x.WakeRx()
		}
	}
	return n
}

// take fills ds from one queue. more says that it has something left.
func (r *receiver) take(q *queue, ds []wire.Datagram) (n int, more bool) {
	var packets, bytes int
	for {
		frame, ok := r.next(q, n < len(ds))
		if !ok {
			more = q.x.Rx.Avail() > 0
			break
		}
		if frame == nil {
			r.reasons[trace.DropTooLong].Add(1)
			continue
		}
		d := &ds[n]
		if reason := r.parse(frame, d); reason != trace.None {
			r.reasons[reason].Add(1)
			continue
		}
		packets += d.Segments()
		bytes += len(d.Payload)
		n++
	}
	if n > 0 {
		r.packets.Add(uint64(packets))
		r.bytes.Add(uint64(bytes))
	}
	return n, more
}

// next takes the next packet from the receive ring. ok is false when there is
// none, no room for it, or it has not arrived in full; frame is nil for one
// that is too long to be put together.
func (r *receiver) next(q *queue, room bool) (frame []byte, ok bool) {
	rx := &q.x.Rx
	avail := rx.Avail()
	if avail == 0 || !room {
		return nil, false
	}
	first := rx.At(0)
	if first.Options&unix.XDP_PKT_CONTD == 0 {
		q.hold(first.Addr)
		rx.Release(1)
		return q.x.Mem[first.Addr:][:first.Len], true
	}
	pieces, total := 0, 0
	for whole := false; !whole; pieces++ {
		if pieces == avail {
			if avail = rx.Refresh(); pieces == avail {
				return nil, false
			}
		}
		d := rx.At(pieces)
		total += int(d.Len)
		whole = d.Options&unix.XDP_PKT_CONTD == 0
	}
	if total > len(r.join)-r.used && r.used > 0 {
		return nil, false
	}
	fits := total <= len(r.join)
	start := r.used
	for i := range pieces {
		d := rx.At(i)
		q.hold(d.Addr)
		if fits {
			r.used += copy(r.join[r.used:], q.x.Mem[d.Addr:][:d.Len])
		}
	}
	rx.Release(pieces)
	if !fits {
		return nil, true
	}
	r.joined.Add(1)
	return r.join[start:r.used:r.used], true
}

// hold notes that the chunk with an address is lent out.
func (q *queue) hold(addr uint64) { q.held = append(q.held, addr&^(sys.ChunkLen-1)) }

// parse fills d from a frame, or says why it is no RoCEv2 packet.
func (r *receiver) parse(frame []byte, d *wire.Datagram) trace.Reason {
	reason := wire.ParseFrame(frame, d)
	if reason == trace.None && r.runs != nil {
		r.runs.split(d)
	}
	return reason
}

// invalid returns how many packets were refused.
func (r *receiver) invalid() (n uint64) {
	for i := range r.reasons {
		n += r.reasons[i].Load()
	}
	return n
}
