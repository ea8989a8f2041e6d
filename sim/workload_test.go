package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorxe/gorxe/bth"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

// Layout of each side's memory for one connection: what the peer writes to,
// what it only reads, words for its atomics, and a guard before each.
const (
	maxLen  = 1 << 20
	writeAt = guard
	words   = 64
)

func (w *world) readAt() int  { return writeAt + w.size + guard }
func (w *world) wordsAt() int { return w.readAt() + w.size + guard }
func (w *world) memLen() int  { return w.wordsAt() + words*8 + guard }

// flow is one direction of a connection: a program that posts a random mix of
// requests, one on the other side that receives, and a model of what must come
// of it.
type flow struct {
	t        tester
	w        *world
	from, to *peer
	mtu      int
	requests int // of each plan
	plan     *plan
	room     int  // requests outstanding at once
	atomics  bool // most are

	ops    []*op  // posted and not finished, oldest first
	model  []byte // of the memory at to
	expect []*op  // messages that take a receive, oldest first
	fenced bool   // the next request must wait for the READ before it
	wrs    [1]verbs.SendWR
}

type op struct {
	id     uint64
	wr     verbs.SendWR
	n      int
	data   []byte // of SEND and WRITE
	local  *verbs.MR
	remote int  // offset at the other side
	fenced bool // must wait for the READ before it
}

// peer is one end of a connection.
type peer struct {
	t    tester
	host *host
	node *Node
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR // what the other side may use
	out  *flow
	in   *flow
	bufs *buffers
	rng  *rand.Rand
}

func newPeer(w *world, h *host) *peer {
	t := h.t
	p := &peer{t: t, host: h, node: h.node, pd: h.pd, bufs: h.shared, rng: w.fork()}
	var err error
	p.cq, err = h.node.Ctx.CreateCQ(verbs.CQConfig{Depth: 1024, Vector: w.rng.IntN(h.node.NIC.Shards())})
	require.NoError(t, err)
	p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, SRQ: h.srq, Cap: verbs.QPCap{MaxRecvSGE: verbs.MaxSGE, MaxSendSGE: verbs.MaxSGE}})
	require.NoError(t, err)
	if h.srq == nil {
		p.bufs = newBuffers(w, p.pd, w.size, p.qp.PostRecv)
		p.bufs.fifo = true
	}
	p.mr, err = p.pd.RegMR(w.mem.get(w.memLen()), verbs.AccessAll)
	require.NoError(t, err)
	fillRandom(p.rng, p.mr.Bytes())
	return p
}

func newFlow(w *world, from, to *peer, c *Conn, n int) *flow {
	f := &flow{t: w.t, w: w, from: from, to: to, mtu: int(c.Options.PathMTU), requests: n, room: 6, model: w.mem.clone(to.mr.Bytes())}
	f.again(c)
	from.out, to.in = f, f
	if w.rng.IntN(4) == 0 { // more than are taken at once
		f.atomics, f.room = true, 12
	}
	return f
}

// again begins another plan, from the first PSN of a connection on.
func (f *flow) again(c *Conn) {
	f.plan = f.w.plan(bth.MakePSN(c.PSN), f.requests)
	f.w.carries(f.plan, bth.QPN(f.to.qp.QPN()), bth.QPN(f.from.qp.QPN()))
}

// length is small often, at the edges of packets sometimes, large at times.
func length(r *rand.Rand, most int) int {
	switch r.IntN(10) {
	case 0:
		return 0
	case 1, 2, 3:
		return min(most, r.IntN(100))
	case 4, 5:
		return min(most, max(0, []int{256, 1024, 4096, 8192, 61440}[r.IntN(5)]+r.IntN(3)-1))
	case 6, 7, 8:
		return r.IntN(min(20000, most+1))
	}
	if r.IntN(8) == 0 {
		return most
	}
	return r.IntN(most + 1)
}

// post posts requests while there is room in flight.
func (f *flow) post() {
	for f.plan.left() > 0 && len(f.ops) < f.room {
		o := f.draw()
		f.wrs[0] = o.wr
		if _, err := f.from.qp.PostSend(f.wrs[:]); err != nil {
			f.t.Fatal(err)
		}
		f.ops = append(f.ops, o)
		for s, there := range map[sight]bool{
			seenEntries: len(o.wr.SGL) > 1, seenInline: o.wr.Flags&verbs.SendInline != 0, seenUnsignaled: o.wr.Flags&verbs.SendSignaled == 0,
			seenFence: o.fenced && o.wr.Flags&verbs.SendFence != 0,
		} {
			if there {
				f.w.seen[s]++
			}
		}
		if o.wr.Opcode == verbs.WRSend || o.wr.Opcode == verbs.WRSendImm || o.wr.Opcode == verbs.WRWriteImm {
			f.expect = append(f.expect, o)
		}
	}
}

// done reports whether all is posted, finished and received.
func (f *flow) done() bool { return f.plan.left() == 0 && len(f.ops) == 0 && len(f.expect) == 0 }

// draw makes a random request.
func (f *flow) draw() *op {
	x, r := f.plan.next()
	o := &op{id: uint64(x.item), n: min(x.n, length(r, f.w.size))}
	w := &o.wr
	w.ID, w.RKey = o.id, f.to.mr.RKey()
	o.fenced = f.fenced
	if f.fenced || r.IntN(4) == 0 {
		w.Flags |= verbs.SendFence
	}
	f.fenced = false
	if r.IntN(3) > 0 || f.plan.left() == 0 || len(f.ops) == f.room-1 { // else nobody would hear that the rest is done
		w.Flags |= verbs.SendSignaled
	}
	kinds := []verbs.WROpcode{verbs.WRSend, verbs.WRSendImm, verbs.WRWrite, verbs.WRWrite, verbs.WRWriteImm, verbs.WRRead, verbs.WRRead, verbs.WRFetchAdd, verbs.WRCmpSwap}
	w.Opcode = kinds[r.IntN(len(kinds))]
	if f.atomics && !o.fenced && r.IntN(4) > 0 {
		w.Opcode, w.Flags = verbs.WRFetchAdd, w.Flags&^verbs.SendFence
	}
	switch w.Opcode {
	case verbs.WRWrite, verbs.WRWriteImm:
		o.remote = writeAt + r.IntN(f.w.size-o.n+1)
	case verbs.WRRead:
		o.remote = f.w.readAt() + r.IntN(f.w.size-o.n+1)
		if r.IntN(3) == 0 { // what was written; later writes must not overtake it
			o.remote = writeAt + r.IntN(f.w.size-o.n+1)
			f.fenced = true
		}
	case verbs.WRFetchAdd, verbs.WRCmpSwap:
		o.n, o.remote = 8, f.w.wordsAt()+8*r.IntN(words)
		w.CompareAdd, w.Swap = r.Uint64N(3), r.Uint64N(3)
	}
	w.Imm = r.Uint32()
	w.RemoteAddr = f.to.mr.Addr() + uint64(o.remote)
	f.plan.post(x, o.n, max(1, (o.n+f.mtu-1)/f.mtu), w.Opcode)
	mr, err := f.from.pd.RegMR(f.w.mem.get(o.n+2*guard), verbs.AccessLocalWrite)
	require.NoError(f.t, err)
	o.local = mr
	fillRandom(r, mr.Bytes())
	o.data = f.w.mem.clone(mr.Bytes())
	w.SGL = pieces(r, mr, o.n, verbs.MaxSGE)
	if sends := w.Opcode <= verbs.WRSendImm; sends && o.n <= 64 && r.IntN(2) == 0 {
		w.Flags |= verbs.SendInline
		w.Inline, w.SGL = bytes.Clone(mr.Bytes()[guard:guard+o.n]), nil
		clear(mr.Bytes()) // inline data was copied
		clear(o.data)
		copy(o.data[guard:], w.Inline)
		copy(mr.Bytes(), o.data)
	}
	return o
}

// finished checks the oldest request and carries it out in the model.
func (f *flow) finished(o *op) {
	at, local := f.model[o.remote:], o.local.Bytes()
	got := local[guard : guard+o.n]
	switch o.wr.Opcode {
	case verbs.WRWrite, verbs.WRWriteImm:
		copy(at, o.data[guard:guard+o.n])
	case verbs.WRRead:
		f.same("result", o, at[:o.n], got)
		copy(o.data[guard:], got)
	case verbs.WRFetchAdd, verbs.WRCmpSwap:
		old := native(at)
		f.same("result", o, at[:8], got)
		copy(o.data[guard:], got)
		if o.wr.Opcode == verbs.WRFetchAdd {
			putNative(at, old+o.wr.CompareAdd)
		} else if old == o.wr.CompareAdd {
			putNative(at, o.wr.Swap)
		}
	}
	f.same("local memory", o, o.data, local)
	require.NoError(f.t, o.local.Deregister())
	f.w.mem.put(local)
}

func (f *flow) same(what string, o *op, want, got []byte) {
	if !bytes.Equal(want, got) {
		if o != nil {
			what = fmt.Sprintf("%s of %v %d.%d, at %d of the other side's memory", what, o.wr.Opcode, f.plan.id, o.id, o.remote)
		}
		f.t.Fatalf("%s: %s, at %v", what, octets(want, got), f.w.s.Now())
	}
}

// postRecvs keeps some receive requests posted, not always enough.
func (p *peer) postRecvs() {
	if p.host.srq == nil {
		p.bufs.fill(1 + p.rng.IntN(4))
	}
}

// received checks the receive of the oldest message that takes one.
func (p *peer) received(c *verbs.WC) {
	f := p.in
	mr := p.bufs.take(c)
	if c.Status == verbs.WCWRFlushErr && f.done() {
		p.bufs.clean(mr, 0)
		return
	}
	if err := c.Err(); err != nil {
		p.t.Fatal(err)
	}
	if len(f.expect) == 0 {
		p.t.Fatalf("a receive completion that nothing was sent for: %+v", *c)
	}
	o := f.expect[0]
	f.expect = f.expect[1:]
	if imm := o.wr.Opcode != verbs.WRSend; imm && (c.Flags&verbs.WCWithImm == 0 || c.Imm != o.wr.Imm) {
		p.t.Fatalf("%v %d: immediate data %#x, sent %#x", o.wr.Opcode, o.id, c.Imm, o.wr.Imm)
	}
	if int(c.ByteLen) != o.n {
		p.t.Fatalf("%v %d of %d octets was received with %d", o.wr.Opcode, o.id, o.n, c.ByteLen)
	}
	n := o.n
	if o.wr.Opcode == verbs.WRWriteImm {
		n = 0
	}
	f.same("what was received", o, o.data[guard:guard+n], mr.Bytes()[guard:guard+n])
	p.bufs.clean(mr, n)
}

// poll takes completions, which must be in order and each once.
func (p *peer) poll() {
	var wc [32]verbs.WC
	for n := p.cq.Poll(wc[:]); n > 0; n = p.cq.Poll(wc[:]) {
		p.completed(wc[:n])
	}
}

func (p *peer) completed(wc []verbs.WC) {
	for _, c := range wc {
		if c.Opcode >= verbs.WCRecv {
			p.received(&c)
			continue
		}
		if err := c.Err(); err != nil {
			p.t.Fatal(err)
		}
		f := p.out
		for { // unsignaled ones finish with the next signaled
			if len(f.ops) == 0 {
				p.t.Fatalf("completion of request %d, which is not outstanding", c.ID)
			}
			o := f.ops[0]
			f.ops = f.ops[1:]
			f.finished(o)
			if o.id == c.ID {
				break
			}
			if o.wr.Flags&verbs.SendSignaled != 0 {
				p.t.Fatalf("completion of request %d before that of %d", c.ID, o.id)
			}
		}
	}
}

func native(b []byte) uint64 { return leUint64(b) }

// drawConn returns how a reliable connection from a host is made.
func drawConn(w *world, a *host) Conn {
	c := Conn{GID: w.rng.IntN(2), PSN: 0xfffff0 + uint32(w.rng.IntN(16)), Options: verbs.DefaultConnectOptions()}
	c.Options.PathMTU = min(a.mtu(), []verbs.MTU{256, 1024, 4096}[w.rng.IntN(3)])
	c.Options.MaxRdAtomic = 1 + w.rng.IntN(8)
	c.Options.MaxDestRdAtomic = c.Options.MaxRdAtomic
	c.Options.FlowControl = w.s.cfg.Seed&4 != 0
	c.Options.MinRNRTimer = uint8(1 + w.rng.IntN(14))
	return c
}

// connected makes a reliable connection with flows both ways.
func connected(w *world, a, b *host, requests int) {
	x, y := newPeer(w, a), newPeer(w, b)
	c := drawConn(w, a)
	require.NoError(w.t, Connect(a.node, b.node, x.qp, y.qp, c))
	newFlow(w, x, y, &c, requests)
	newFlow(w, y, x, &c, requests)
	observe(w, x, y, &c)
	w.add(a, x.qp, x)
	w.add(b, y.qp, y)
}

func (p *peer) work() {
	p.poll()
	p.out.post()
}

func (p *peer) supply() { p.postRecvs() }

func (p *peer) finished() bool { return p.out.done() }

func (p *peer) verify() {
	p.in.same("memory that the peer used", nil, p.in.model, p.mr.Bytes())
}

func (p *peer) empty() {
	if p.host.srq == nil {
		require.Empty(p.t, p.bufs.out, "receive requests that neither completed nor were flushed")
	}
}

func (p *peer) String() string {
	a, _ := p.qp.Query()
	return fmt.Sprintf("RC QP %#x %v: %d to post, %d outstanding, %d to be received", p.qp.QPN(), a.State, p.out.plan.left(), len(p.out.ops), len(p.out.expect))
}

// TestWorkload: over any network every request of reliable connections finishes
// once and in order, bytes arrive intact, atomics are carried out once, and
// nothing else of anybody's memory changes. Every other seed has shared receive
// queues.
func TestWorkload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"clean", Config{}},
		{"slow", Config{Rate: 1e9, Latency: 100 * time.Microsecond}},
		{"queue", Config{Rate: 1e9, Queue: 20000}},
		{"single", Config{Single: true}},
		{"hidden", Config{Single: true, HideIDs: true}},
		{"drop", Config{Faults: "drop 1%"}},
		{"answers", Config{Faults: "rx drop 3% opcode=RC_ACK; rx drop 3% opcode=RC_READ_RESP_*; rx drop 5% opcode=RC_ATOMIC_ACK"}},
		{"atomics", Config{Faults: "rx drop 20% opcode=RC_ATOMIC_ACK"}},
		{"dup", Config{Faults: "tx dup 3%"}},
		{"reorder", Config{Faults: "tx reorder 2% by=3"}},
		{"delay", Config{Faults: "rx delay 1us..300us 5%"}},
		{"corrupt", Config{Faults: "tx corrupt 1%"}},
		{"cuts", Config{Faults: "cut 500us..90ms; tx cut 200ms..250ms"}},
		{"everything", Config{Faults: "drop 0.5%; tx dup 1%; tx reorder 1% by=5; rx corrupt 0.5%; rx delay 1us..1ms 1%; cut 2ms..30ms"}},
	} {
		seeds(t, c.name, c.cfg, func(w *world) {
			for i := range w.hosts {
				n := 1 + w.rng.IntN(3)
				for range n {
					connected(w, w.hosts[i], w.hosts[(i+1)%len(w.hosts)], 40/n)
				}
			}
		})
	}
}
