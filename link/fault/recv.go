package fault

import (
	"math"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// receiver is the receiving half of a Link. A batch that no rule hits is
// handed on as it came. Otherwise datagrams are taken apart: packets with an
// effect become datagrams of their own, the runs between them stay merged, and
// all of them queue. Pieces point into the inner link's buffers, so the inner
// link is not asked again before the queue is empty.
type receiver struct {
	l     *Link
	hold  *Hold[wire.Datagram]
	in    []wire.Datagram // the batch that is taken apart
	dec   []Decision      // of the datagram at hand
	queue []piece
	head  int // of queue
	lent  []*Held[wire.Datagram]
	more  bool // the inner link may have more, though nothing was handed on
	notes notes
}

// batches bounds how many batches a call takes from the inner link while rules
// leave nothing of them.
const batches = 16

type piece struct {
	wire.Datagram
	effects Effects
}

func (r *receiver) init(l *Link, held int) { r.l, r.hold = l, NewHold[wire.Datagram](held) }

// next returns when there is something to receive: at once while pieces queue.
func (r *receiver) next() int64 {
	if r.more || r.head < len(r.queue) {
		return math.MinInt64
	}
	return r.hold.Next()
}

func (r *receiver) recv(now int64, ds []wire.Datagram) (int, error) {
	r.notes.reset()
	if r.head < len(r.queue) {
		return r.deliver(ds, 0), nil
	}
	r.more = false
	for range batches {
		n, got, err := r.batch(now, ds)
		if n > 0 || got == 0 || err != nil {
			return n, err
		}
	}
	r.more = true
	return 0, nil
}

// batch takes up to len(ds) datagrams from the inner link, got of them, and
// hands on what is left of them and what is due, n datagrams.
func (r *receiver) batch(now int64, ds []wire.Datagram) (n, got int, err error) {
	for _, h := range r.lent {
		r.hold.Free(h)
	}
	r.queue, r.head, r.lent = r.queue[:0], 0, r.lent[:0]
	got, err = r.l.inner.Recv(ds)
	if err != nil {
		return 0, got, err
	}
	whole, judged := 0, false
	for whole < got && r.hold.Len() == 0 {
		if judged = !r.judge(now, &ds[whole]); judged {
			break
		}
		whole++
	}
	if whole == got && r.hold.Len() == 0 {
		return whole, got, nil
	}
	r.in = append(r.in[:0], ds[whole:got]...)
	r.drain(now)
	for i := range r.in {
		if !judged {
			r.judge(now, &r.in[i])
		}
		judged = false
		r.split(now, &r.in[i])
	}
	return r.deliver(ds, whole), got, nil
}

// judge decides about each segment, and reports whether all pass.
func (r *receiver) judge(now int64, d *wire.Datagram) (clean bool) {
	clean = true
	r.dec = r.dec[:0]
	for i := range d.Segments() {
		pkt := d.Segment(i)
		f := r.l.inj.Process(now, trace.Rx, pkt, len(pkt))
		clean = clean && f.Effects == 0
		r.dec = append(r.dec, f)
	}
	return clean
}

// split queues what the decisions leave of a datagram.
func (r *receiver) split(now int64, d *wire.Datagram) {
	from := 0 // of the run of segments that pass
	for i := range r.dec {
		f := &r.dec[i]
		if f.Effects != 0 {
			r.push(d, from, i)
			from = i + 1
			r.hit(d, i)
		}
		if f.Lost || f.Held() {
			continue
		}
		r.hold.Passed()
		if r.hold.Next() <= now {
			r.push(d, from, i+1)
			from = i + 1
			r.drain(now)
		}
	}
	r.push(d, from, len(r.dec))
}

// push queues segments i to j-1 of a datagram, if there are any.
func (r *receiver) push(d *wire.Datagram, i, j int) {
	if i < j {
		r.queue = append(r.queue, piece{Datagram: run(d, i, j)})
	}
}

// hit queues or holds a segment that rules changed.
func (r *receiver) hit(d *wire.Datagram, i int) {
	f := r.dec[i]
	if f.Lost {
		return
	}
	p := piece{run(d, i, i+1), f.Effects}
	if f.Effects.Has(CE) {
		p.TOS |= wire.ECNCE
	}
	if !f.Held() && f.Effects.Has(Corrupt) {
		f.Release = math.MinInt64 // the buffer is not ours to write to: hold a copy, due at once
	}
	for range 1 + f.Copies {
		if !f.Held() && !f.Effects.Has(Corrupt) {
			r.queue = append(r.queue, p)
			continue
		}
		h := r.hold.Put(&f)
		if h == nil {
			r.l.full.Add(1)
			continue
		}
		h.Meta, h.Pkt = p.Datagram, append(h.Pkt, p.Payload...)
		f.Flip(h.Pkt)
	}
}

// drain queues the held packets that are due.
func (r *receiver) drain(now int64) {
	for h := r.hold.Pop(now); h != nil; h = r.hold.Pop(now) {
		h.Meta.Payload = h.Pkt
		r.queue = append(r.queue, piece{h.Meta, h.Effects})
		r.lent = append(r.lent, h) // its octets are in use until the queue is empty
	}
}

// deliver moves pieces from the queue to ds, from entry at on, and returns how
// many entries of ds are filled.
func (r *receiver) deliver(ds []wire.Datagram, at int) int {
	for ; at < len(ds) && r.head < len(r.queue); at++ {
		p := &r.queue[r.head]
		r.head++
		ds[at] = p.Datagram
		r.notes.add(at, 0, p.effects)
	}
	return at
}

// run returns segments i to j-1 of a datagram as a datagram.
func run(d *wire.Datagram, i, j int) wire.Datagram {
	out := *d
	if d.SegLen <= 0 {
		return out
	}
	end := min(j*d.SegLen, len(d.Payload))
	out.Payload = d.Payload[i*d.SegLen : end : end]
	if d.IDKnown {
		out.ID += uint16(i)
	}
	if j-i == 1 {
		out.SegLen = 0
	}
	return out
}
