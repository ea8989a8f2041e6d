package nic

// What is sent next: deficit round robin, among the clients of the device, and
// among the queue pairs of each. Whoever has its turn sends bursts until it has
// spent its credit, and what it has overspent is taken from its next turn, so that
// nobody gains by long bursts or by many queue pairs. Shreedhar and Varghese,
// "Efficient Fair Queuing Using Deficit Round Robin", SIGCOMM 1995.
//
// A client that begins to send has its first turn at once. When that leaves it with
// nothing to send it keeps a place behind the others all the same, and is new again
// only when that has come, so that nobody gains by beginning over and over. As in
// FQ-CoDel, RFC 8290, 4.1 and 4.2.

const (
	// quantum is the credit of a turn: a little less than a super-packet costs, so
	// that a message posted by whoever has little to send waits for one burst of
	// each other.
	quantum = 60 << 10
	// burstCost is what handing a burst over to the kernel costs, in octets that
	// could have been copied meanwhile, and segCost the same for each packet.
	burstCost = 4 << 10
	segCost   = 64
)

// lane is what one client has ready on one shard.
type lane struct {
	qps    fifo[qp]
	credit int
	queued bool // in sched.lanes, where it may be empty
}

// sched is the queue of those that have something to send on a shard.
type sched struct {
	lanes fifo[lane]
	own   lane // of the process itself
	n     int  // queue pairs
}

func (d *sched) len() int { return d.n }

// lane returns where a queue pair's turn is.
func (d *sched) lane(q *qp) *lane {
	if q.client == nil {
		return &d.own
	}
	return q.client.lanes[q.s.index]
}

// push adds a queue pair, behind the others of its client.
func (d *sched) push(q *qp) {
	l := d.lane(q)
	l.qps.push(q)
	d.n++
	if !l.queued {
		l.queued = true
		d.lanes.unpop(l)
	}
}

// pop takes the queue pair whose turn it is; there must be one. What becomes of it
// again or rest says, before the next pop.
func (d *sched) pop() *qp {
	l := d.lanes.peek()
	for l.qps.len() == 0 || l.credit <= 0 {
		if l.qps.len() == 0 {
			d.lanes.pop().queued = false
			l = d.lanes.peek()
		} else if l.credit += quantum; l.credit <= 0 {
			l = d.lanes.rotate()
		}
	}
	q := l.qps.peek()
	for q.credit <= 0 {
		if q.credit += quantum; q.credit <= 0 {
			q = l.qps.rotate()
		}
	}
	d.n--
	return l.qps.pop()
}

// spend charges a burst to who sent it.
func (d *sched) spend(q *qp, segments, octets int) {
	cost := burstCost + segments*segCost + octets
	q.credit -= cost
	d.lane(q).credit -= cost
}

// again puts back a queue pair that has more to send: first in its lane while its
// credit lasts.
func (d *sched) again(q *qp) {
	l := d.lane(q)
	if q.credit > 0 {
		l.qps.unpop(q)
	} else {
		l.qps.push(q)
	}
	d.n++
	if l.credit <= 0 {
		d.lanes.rotate()
	}
}

// rest ends the turn of a queue pair that has nothing more to send: credit is not
// saved, debts are.
func (d *sched) rest(q *qp) {
	q.credit = min(q.credit, 0)
	l := d.lane(q)
	if l.qps.len() == 0 {
		l.credit = min(l.credit, 0)
	}
	if l.credit <= 0 {
		d.lanes.rotate()
	}
}

// fifo is a queue that grows.
type fifo[T any] struct {
	q    []*T // length a power of two
	head uint32
	tail uint32
}

func (f *fifo[T]) len() int { return int(f.tail - f.head) }

func (f *fifo[T]) at(i uint32) **T { return &f.q[i&uint32(len(f.q)-1)] }

func (f *fifo[T]) push(v *T) {
	f.grow()
	*f.at(f.tail) = v
	f.tail++
}

// unpop puts v before all others.
func (f *fifo[T]) unpop(v *T) {
	f.grow()
	f.head--
	*f.at(f.head) = v
}

func (f *fifo[T]) grow() {
	if f.len() < len(f.q) {
		return
	}
	grown := make([]*T, max(16, 2*len(f.q)))
	n := f.len()
	for i := range n {
		grown[i] = *f.at(f.head + uint32(i))
	}
	f.q, f.head, f.tail = grown, 0, uint32(n)
}

// rotate puts the first behind all others and returns the first then.
func (f *fifo[T]) rotate() *T {
	if f.len() > 1 {
		f.push(f.pop())
	}
	return f.peek()
}

func (f *fifo[T]) peek() *T { return *f.at(f.head) }

func (f *fifo[T]) pop() *T {
	p := f.at(f.head)
	v := *p
	*p = nil
	f.head++
	return v
}
