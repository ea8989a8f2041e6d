package nic

import (
	"math"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// road is a network of manual NICs under a clock of its own. It sees each packet
// that leaves, may mark or lose it, and has it arrive a while later.
type road struct {
	t     testing.TB
	now   int64
	delay int64 // of a packet on its way, constant
	tick  func() int64
	each  func() // after every round of steps

	mu     sync.Mutex // links of one NIC may be used by several goroutines
	nodes  []*node
	ends   map[netip.Addr][]*roadEnd
	onRoad []trip
	bursts int

	// look is shown each packet that leaves. It may change its TOS, and says
	// whether it arrives.
	look   func(*passing) bool
	astray bool // all packets arrive at a NIC's first shard
}

// passing is a packet as it leaves.
type passing struct {
	at     int64
	from   *roadEnd
	burst  int        // number of its burst
	id     uint16     // of IPv4: its number in the burst
	flow   *wire.Flow // borrowed
	tos    uint8
	ip     int // octets of the IP packet
	octets []byte
	pkt    bth.Packet
}

type trip struct {
	at int64
	to *roadEnd
	d  wire.Datagram
}

// roadEnd is one shard's link.
type roadEnd struct {
	r    *road
	addr netip.Addr
	room int // packets that it still takes; negative: any number
	in   []wire.Datagram
}

func newRoad(t testing.TB) *road {
	return &road{t: t, now: 1e9, delay: 2000, ends: map[netip.Addr][]*roadEnd{}}
}

// open puts a NIC with an address on the road.
func (r *road) open(addr string, shards int, change func(*Config)) *node {
	a := netip.MustParseAddr(addr)
	var ls []link.Link
	for range shards {
		e := &roadEnd{r: r, addr: a, room: -1}
		r.ends[a] = append(r.ends[a], e)
		ls = append(ls, e)
	}
	x := open(r.t, ls, a, func(c *Config) {
		c.Manual, c.Clock = true, func() int64 { return r.now }
		if change != nil {
			change(c)
		}
	})
	r.nodes = append(r.nodes, x)
	r.t.Cleanup(x.close)
	return x
}

func (e *roadEnd) Info() link.Info {
	return link.Info{
		Name: "road", Exact4: true, Exact6: true, IDs: wire.IDCount, MaxSegments: wire.MaxSegments, MaxBytes: wire.MaxBurstBytes,
		MaxBursts: 8, MTU: 4200, Window: 1024,
	}
}

func (e *roadEnd) Recv(ds []wire.Datagram) (int, error) {
	n := copy(ds, e.in)
	e.in = e.in[n:]
	return n, nil
}

func (e *roadEnd) Send(bs []*wire.Burst) (n int, err error) {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range bs {
		r.bursts++
		for i := range b.Segs {
			if e.room == 0 {
				return n, nil
			}
			e.room--
			n++
			p := passing{
				at: r.now, from: e, burst: r.bursts, id: uint16(i), flow: b.Flow, tos: b.Flow.TOS, ip: b.Segs[i].Len + b.Flow.HeaderLen(),
				octets: b.AppendSegment(nil, i),
			}
			if why := bth.Parse(p.octets, &p.pkt); why != trace.None {
				panic(why.String())
			}
			if r.look != nil && !r.look(&p) {
				continue
			}
			to := r.ends[b.Flow.Dst]
			if len(to) == 0 {
				continue
			}
			shard := int(p.pkt.DestQP&shardMask) % len(to)
			if r.astray {
				shard = 0
			}
			d := wire.Datagram{Src: b.Flow.Src, Dst: b.Flow.Dst, SrcPort: b.Flow.SrcPort, TOS: p.tos, TTL: b.Flow.TTL, Payload: p.octets}
			if b.Flow.Dst.Is4() {
				d.IDKnown, d.Flags, d.ID = true, wire.FlagDF, p.id
			}
			r.onRoad = append(r.onRoad, trip{r.now + r.delay, to[shard], d})
		}
	}
	return n, nil
}

func (e *roadEnd) Wait(time.Duration) error { return nil }
func (e *roadEnd) Wake()                    {}
func (e *roadEnd) Close() error             { return nil }

// settle has everything happen that happens at this time, and returns when the
// next does.
func (r *road) settle() int64 {
	for range 1000 {
		for len(r.onRoad) > 0 && r.onRoad[0].at <= r.now {
			t := r.onRoad[0]
			r.onRoad = r.onRoad[1:]
			t.to.in = append(t.to.in, t.d)
		}
		next := int64(math.MaxInt64)
		for _, x := range r.nodes {
			for i := range x.nic.Shards() {
				next = min(next, x.nic.Step(i, r.now))
			}
		}
		if len(r.onRoad) > 0 {
			next = min(next, r.onRoad[0].at)
		}
		if next > r.now {
			return next
		}
	}
	r.t.Fatal("the NICs never come to rest")
	return 0
}

// run lets time pass until a time, or until done says so: from event to event, or
// by ticks where there are such.
func (r *road) run(until int64, done func() bool) {
	r.t.Helper()
	for {
		next := r.settle()
		if r.each != nil {
			r.each()
			next = min(next, r.settle())
		}
		if done != nil && done() || r.now >= until {
			return
		}
		if r.tick != nil {
			next = r.now + r.tick()
		}
		r.now = min(next, until)
	}
}

// pass lets time pass.
func (r *road) pass(d time.Duration) { r.t.Helper(); r.run(r.now+int64(d), nil) }

// pair connects two queue pairs of NICs on the road.
func (r *road) pair(a, b *node, typ verbs.QPType, o verbs.ConnectOptions) (qa, qb *verbs.QP) {
	return r.join(a, b, a.queuePair(typ, 0), b.queuePair(typ, 0), o)
}

func (r *road) join(a, b *node, qa, qb *verbs.QP, o verbs.ConnectOptions) (*verbs.QP, *verbs.QP) {
	r.t.Helper()
	connectWith(r.t, a, b, qa, qb, o)
	r.settle()
	return qa, qb
}

// queuePair returns a queue pair on a shard.
func (x *node) queuePair(typ verbs.QPType, shard int) *verbs.QP {
	x.t.Helper()
	cq := x.cq
	if shard > 0 {
		cq = x.newCQ(verbs.CQConfig{Vector: shard})
	}
	q, err := x.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: cq, RecvCQ: cq})
	require.NoError(x.t, err)
	return q
}

// inside returns what the NIC has of a queue pair.
func (x *node) inside(q *verbs.QP) *qp { return x.nic.byQPN(bth.QPN(q.QPN())) }

// setCC changes the congestion control by a list such as "np_enable=0".
func (x *node) setCC(list string) {
	x.t.Helper()
	c := x.nic.CC()
	require.NoError(x.t, c.Parse(list))
	require.NoError(x.t, x.nic.SetCC(c))
}

// stat returns a counter of a queue pair.
func stat(t testing.TB, q *verbs.QP, name string) uint64 {
	t.Helper()
	m, err := q.Stats()
	require.NoError(t, err)
	return m[name]
}
