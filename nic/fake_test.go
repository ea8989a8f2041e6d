package nic

import (
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

// fakeLink is a link whose other end is the test: what it puts in arrives,
// what the NIC sends is kept.
type fakeLink struct {
	mu    sync.Mutex
	in    []wire.Datagram
	out   []bth.Packet // payloads are not kept
	room  int          // segments that Send still takes; negative: no limit
	err   error        // of Send and Recv
	recvs int
	wake  chan struct{}
	done  chan struct{}
	once  sync.Once

	verdicts []trace.Reason
}

func newFakeLink() *fakeLink {
	return &fakeLink{room: -1, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

func (l *fakeLink) Info() link.Info {
	return link.Info{Name: "fake", Exact6: true, IDs: wire.IDCount, MaxBursts: 4, MTU: 4200, Window: 64}
}

func (l *fakeLink) Recv(ds []wire.Datagram) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recvs++
	if l.err != nil {
		return 0, l.err
	}
	n := copy(ds, l.in)
	l.in = l.in[n:]
	return n, nil
}

func (l *fakeLink) Send(bs []*wire.Burst) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	n := 0
	for _, b := range bs {
		for i := range b.Segs {
			if l.room == 0 {
				return n, nil
			}
			l.room--
			n++
			var p bth.Packet
			if r := bth.Parse(b.AppendSegment(nil, i), &p); r != trace.None {
				panic(r.String())
			}
			l.out = append(l.out, p)
		}
	}
	return n, nil
}

func (l *fakeLink) Wait(d time.Duration) error {
	var t <-chan time.Time
	if d >= 0 {
		t = time.After(d)
	}
	select {
	case <-l.wake:
	case <-t:
	case <-l.done:
		return link.ErrClosed
	}
	return nil
}

func (l *fakeLink) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *fakeLink) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *fakeLink) Verdict(_, _ int, r trace.Reason) { l.verdicts = append(l.verdicts, r) }

// arrive gives the NIC a datagram.
func (l *fakeLink) arrive(d ...wire.Datagram) {
	l.mu.Lock()
	l.in = append(l.in, d...)
	l.mu.Unlock()
	l.Wake()
}

// took returns what was sent since the last call.
func (l *fakeLink) took() []bth.Packet {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.out
	l.out = nil
	return out
}

var (
	here  = netip.MustParseAddr("192.0.2.2")
	there = netip.MustParseAddr("192.0.2.1")
)

const (
	peerQPN = 0x012340
	peerPSN = 1000
	ourPSN  = 2000
)

// bench is a manual NIC on fake links whose peer the test plays.
type bench struct {
	*node
	links []*fakeLink
	qp    *verbs.QP
	now   int64
}

func newBench(t *testing.T, shards int, change func(*Config)) *bench {
	b := &bench{now: 1e9}
	var ls []link.Link
	for range shards {
		l := newFakeLink()
		b.links = append(b.links, l)
		ls = append(ls, l)
	}
	b.node = open(t, ls, here, func(c *Config) {
		c.Manual, c.Clock = true, func() int64 { return b.now }
		if change != nil {
			change(c)
		}
	})
	t.Cleanup(b.close)
	b.qp = b.newQP(b.cq)
	return b
}

// connect takes the queue pair to RTS.
func (b *bench) connect() *bench {
	b.t.Helper()
	b.connectQP(b.qp)
	return b
}

func (b *bench) connectQP(q *verbs.QP) {
	b.t.Helper()
	local := verbs.Endpoint{QPN: q.QPN(), PSN: ourPSN}
	require.NoError(b.t, q.Connect(local, verbs.Endpoint{QPN: peerQPN, PSN: peerPSN, GID: verbs.GIDOf(there)}, verbs.ConnectOptions{}))
	b.step()
}

// step steps every shard until none has anything to do at this time.
func (b *bench) step() (deadline int64) {
	b.t.Helper()
	for range 1000 {
		deadline = never
		for i := range b.links {
			deadline = min(deadline, b.nic.Step(i, b.now))
		}
		if deadline > b.now {
			return deadline
		}
	}
	b.t.Fatal("the NIC never comes to rest")
	return 0
}

// counts returns the device's count of each reason.
func (b *bench) counts() (c trace.Counts) {
	for _, s := range b.nic.shards {
		for r, v := range s.counts {
			c[r] += v
		}
		for _, q := range s.qps {
			if q != nil {
				for r, v := range q.eng.Counts() {
					c[r] += v
				}
			}
		}
	}
	return c
}

// request is a packet from the peer; a test changes what it wants to be wrong.
func (b *bench) request() bth.Packet {
	return bth.Packet{
		Opcode: bth.RCSendOnly, MigReq: true, AckReq: true, PKey: 0xffff, DestQP: bth.QPN(b.qp.QPN()), PSN: bth.MakePSN(peerPSN),
	}
}

// datagram seals a packet as the peer would.
func datagram(p bth.Packet, payload int) wire.Datagram {
	return sealed(there, here, payload, p.Info().HdrLen, func(h []byte) { p.Pad = uint8(-payload & 3); p.PutHeaders(h) })
}

// sealed makes a datagram of any headers with a right ICRC.
func sealed(src, dst netip.Addr, payload, hdr int, fill func([]byte)) wire.Datagram {
	f := &wire.Flow{Src: src, Dst: dst, SrcPort: 0xc000, TTL: 64}
	w := wire.NewBurst()
	w.Reset(f, 0, 0)
	fill(w.Begin(bth.PSN{}, 0, hdr, payload))
	w.Copy(payload)
	w.End()
	w.Seal(wire.IDCount)
	return wire.Datagram{Src: src, Dst: dst, SrcPort: f.SrcPort, TTL: 64, IDKnown: src.Is4(), Flags: wire.FlagDF, Payload: w.AppendSegment(nil, 0)}
}
