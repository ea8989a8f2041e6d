package sim

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

var (
	seedFlag = flag.Uint64("seed", 0, "run the workload with this seed only")
	runsFlag = flag.Int("runs", 3, "seeds of the workload for each network")
)

// Layout of each side's memory for one connection: what the peer writes to,
// what it only reads, words for its atomics, and a guard before each.
const (
	guard   = 4096
	maxLen  = 1 << 20
	writeAt = guard
	readAt  = writeAt + maxLen + guard
	wordsAt = readAt + maxLen + guard
	words   = 64
	memLen  = wordsAt + words*8 + guard
)

// flow is one direction of a connection: a program that posts a random mix of
// requests, one on the other side that receives, and a model of what must come
// of it.
type flow struct {
	t        *testing.T
	rng      *rand.Rand
	from, to *peer
	left     int // requests to post

	ops    []*op  // posted and not finished, oldest first
	next   uint64 // ID of the next request
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
	remote int // offset at the other side
}

// peer is one end of a connection.
type peer struct {
	t     *testing.T
	node  *Node
	pd    *verbs.PD
	cq    *verbs.CQ
	qp    *verbs.QP
	mr    *verbs.MR // what the other side may use
	out   *flow
	in    *flow
	recvs []*verbs.MR // posted, oldest first
	rng   *rand.Rand
}

func newPeer(t *testing.T, n *Node, rng *rand.Rand) *peer {
	p := &peer{t: t, node: n, rng: rng}
	var err error
	p.pd, err = n.Ctx.AllocPD()
	require.NoError(t, err)
	p.cq, err = n.Ctx.CreateCQ(verbs.CQConfig{Depth: 1024, Vector: rng.IntN(n.NIC.Shards())})
	require.NoError(t, err)
	p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq})
	require.NoError(t, err)
	p.mr, err = p.pd.AllocMR(memLen, verbs.AccessAll)
	require.NoError(t, err)
	fillRandom(rng, p.mr.Bytes())
	return p
}

func fillRandom(rng *rand.Rand, b []byte) {
	for i := 0; i+8 <= len(b); i += 8 {
		v := rng.Uint64()
		for k := range 8 {
			b[i+k] = byte(v >> (8 * k))
		}
	}
}

func newFlow(t *testing.T, from, to *peer, rng *rand.Rand, n int) *flow {
	f := &flow{t: t, rng: rng, from: from, to: to, left: n, model: bytes.Clone(to.mr.Bytes())}
	from.out, to.in = f, f
	return f
}

// length is small often, at the edges of packets sometimes, large at times.
func (f *flow) length() int {
	switch f.rng.IntN(10) {
	case 0:
		return 0
	case 1, 2, 3:
		return f.rng.IntN(100)
	case 4, 5:
		return max(0, []int{256, 1024, 4096, 8192, 61440}[f.rng.IntN(5)]+f.rng.IntN(3)-1)
	case 6, 7, 8:
		return f.rng.IntN(20000)
	}
	return f.rng.IntN(maxLen)
}

// post posts requests while there is room in flight.
func (f *flow) post() {
	for f.left > 0 && len(f.ops) < 6 {
		o := f.draw()
		f.wrs[0] = o.wr
		if _, err := f.from.qp.PostSend(f.wrs[:]); err != nil {
			f.t.Fatal(err)
		}
		f.left--
		f.ops = append(f.ops, o)
		if o.wr.Opcode == verbs.WRSend || o.wr.Opcode == verbs.WRSendImm || o.wr.Opcode == verbs.WRWriteImm {
			f.expect = append(f.expect, o)
		}
	}
}

// draw makes a random request.
func (f *flow) draw() *op {
	r := f.rng
	o := &op{id: f.next, n: f.length()}
	f.next++
	w := &o.wr
	w.ID, w.RKey = o.id, f.to.mr.RKey()
	if f.fenced || r.IntN(4) == 0 {
		w.Flags |= verbs.SendFence
	}
	f.fenced = false
	if r.IntN(3) > 0 || f.left == 1 || len(f.ops) == 5 { // else nobody would hear that the rest is done
		w.Flags |= verbs.SendSignaled
	}
	kinds := []verbs.WROpcode{verbs.WRSend, verbs.WRSendImm, verbs.WRWrite, verbs.WRWrite, verbs.WRWriteImm, verbs.WRRead, verbs.WRRead, verbs.WRFetchAdd, verbs.WRCmpSwap}
	w.Opcode = kinds[r.IntN(len(kinds))]
	switch w.Opcode {
	case verbs.WRWrite, verbs.WRWriteImm:
		o.remote = writeAt + r.IntN(maxLen-o.n+1)
	case verbs.WRRead:
		o.remote = readAt + r.IntN(maxLen-o.n+1)
		if r.IntN(3) == 0 { // what was written; later writes must not overtake it
			o.remote = writeAt + r.IntN(maxLen-o.n+1)
			f.fenced = true
		}
	case verbs.WRFetchAdd, verbs.WRCmpSwap:
		o.n, o.remote = 8, wordsAt+8*r.IntN(words)
		w.CompareAdd, w.Swap = r.Uint64N(3), r.Uint64N(3)
	}
	w.Imm = r.Uint32()
	w.RemoteAddr = f.to.mr.Addr() + uint64(o.remote)
	mr, err := f.from.pd.AllocMR(o.n+2*guard, verbs.AccessLocalWrite)
	require.NoError(f.t, err)
	o.local = mr
	fillRandom(r, mr.Bytes())
	o.data = bytes.Clone(mr.Bytes())
	w.SGL = pieces(r, mr, o.n)
	if sends := w.Opcode <= verbs.WRSendImm; sends && o.n <= 64 && r.IntN(2) == 0 {
		w.Flags |= verbs.SendInline
		w.Inline, w.SGL = bytes.Clone(mr.Bytes()[guard:guard+o.n]), nil
		clear(mr.Bytes()) // inline data was copied
		o.data = bytes.Clone(mr.Bytes())
		copy(o.data[guard:], w.Inline)
		copy(mr.Bytes(), o.data)
	}
	return o
}

// pieces is n octets after the guard as one to four entries.
func pieces(r *rand.Rand, mr *verbs.MR, n int) (sgl []verbs.SGE) {
	at := 0
	for k := r.IntN(4); k > 0 && n > 8; k-- {
		cut := at + r.IntN(n-at+1)
		sgl = append(sgl, mr.SGE(guard+at, cut-at))
		at = cut
	}
	return append(sgl, mr.SGE(guard+at, n-at))
}

// finished checks the oldest request and carries it out in the model.
func (f *flow) finished(o *op) {
	at, local := f.model[o.remote:], o.local.Bytes()
	got := local[guard : guard+o.n]
	switch o.wr.Opcode {
	case verbs.WRWrite, verbs.WRWriteImm:
		copy(at, o.data[guard:guard+o.n])
	case verbs.WRRead:
		f.same(fmt.Sprintf("READ %d of %d octets at %d", o.id, o.n, o.remote), at[:o.n], got)
		copy(o.data[guard:], got)
	case verbs.WRFetchAdd, verbs.WRCmpSwap:
		old := native(at)
		f.same(fmt.Sprintf("%v %d", o.wr.Opcode, o.id), at[:8], got)
		copy(o.data[guard:], got)
		if o.wr.Opcode == verbs.WRFetchAdd {
			putNative(at, old+o.wr.CompareAdd)
		} else if old == o.wr.CompareAdd {
			putNative(at, o.wr.Swap)
		}
	}
	f.same(fmt.Sprintf("local memory of %v %d", o.wr.Opcode, o.id), o.data, local)
	require.NoError(f.t, o.local.Deregister())
}

func (f *flow) same(what string, want, got []byte) {
	if !bytes.Equal(want, got) {
		i := 0
		for want[i] == got[i] {
			i++
		}
		f.t.Fatalf("%s: differs from octet %d of %d on, at %v", what, i, len(want), f.from.node.sim.Now())
	}
}

// postRecvs keeps some receive requests posted, not always enough.
func (p *peer) postRecvs() {
	for len(p.recvs) < 1+p.rng.IntN(4) {
		mr, err := p.pd.AllocMR(maxLen+2*guard, verbs.AccessLocalWrite)
		require.NoError(p.t, err)
		_, err = p.qp.PostRecv([]verbs.RecvWR{{ID: uint64(len(p.recvs)), SGL: pieces(p.rng, mr, maxLen)}})
		require.NoError(p.t, err)
		p.recvs = append(p.recvs, mr)
	}
}

// received checks the oldest receive.
func (p *peer) received(c *verbs.WC) {
	f := p.in
	if len(f.expect) == 0 || len(p.recvs) == 0 {
		p.t.Fatalf("a receive completion that nothing was sent for: %+v", *c)
	}
	o, mr := f.expect[0], p.recvs[0]
	f.expect, p.recvs = f.expect[1:], p.recvs[1:]
	if imm := o.wr.Opcode != verbs.WRSend; imm && (c.Flags&verbs.WCWithImm == 0 || c.Imm != o.wr.Imm) {
		p.t.Fatalf("%v %d: immediate data %#x, sent %#x", o.wr.Opcode, o.id, c.Imm, o.wr.Imm)
	}
	if int(c.ByteLen) != o.n {
		p.t.Fatalf("%v %d of %d octets was received with %d", o.wr.Opcode, o.id, o.n, c.ByteLen)
	}
	got := mr.Bytes()
	if o.wr.Opcode != verbs.WRWriteImm {
		f.same(fmt.Sprintf("SEND %d", o.id), o.data[guard:guard+o.n], got[guard:guard+o.n])
		clear(got[guard : guard+o.n])
	}
	f.same("receive buffer around the message", make([]byte, len(got)), got)
	require.NoError(p.t, mr.Deregister())
}

// poll takes completions, which must be in order and each once.
func (p *peer) poll() {
	var wc [32]verbs.WC
	for _, c := range wc[:p.cq.Poll(wc[:])] {
		if err := c.Err(); err != nil {
			p.t.Fatal(err)
		}
		if c.Opcode >= verbs.WCRecv {
			p.received(&c)
			continue
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

// workload runs a network of nodes with connections between neighbours.
func workload(t *testing.T, cfg Config, shards int) (s *Sim) {
	t.Logf("go test ./sim -run '%s' -seed %d", t.Name(), cfg.Seed)
	rng := rand.New(rand.NewPCG(cfg.Seed, 1))
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	var nodes []*Node
	for range 2 + rng.IntN(2) {
		n, err := s.Add(NodeConfig{Shards: shards})
		require.NoError(t, err)
		nodes = append(nodes, n)
	}
	var peers []*peer
	for i := range nodes {
		a, b := newPeer(t, nodes[i], rng), newPeer(t, nodes[(i+1)%len(nodes)], rng)
		c := Conn{GID: rng.IntN(2), PSN: 0xfffff0 + uint32(rng.IntN(16)), Options: verbs.DefaultConnectOptions()}
		c.Options.PathMTU = []verbs.MTU{256, 1024, 4096}[rng.IntN(3)]
		c.Options.MaxRdAtomic = 1 + rng.IntN(8)
		c.Options.MaxDestRdAtomic = c.Options.MaxRdAtomic
		require.NoError(t, Connect(a.node, b.node, a.qp, b.qp, c))
		newFlow(t, a, b, rng, 40)
		newFlow(t, b, a, rng, 40)
		peers = append(peers, a, b)
	}
	work := func() {
		for _, p := range peers {
			p.poll()
			p.out.post()
		}
	}
	for _, n := range nodes {
		n.OnStep = work
	}
	var supply func()
	supply = func() {
		for _, p := range peers {
			p.postRecvs()
		}
		s.After(300*time.Microsecond, supply)
	}
	supply()
	work()
	done := func() bool {
		for _, p := range peers {
			if p.out.left > 0 || len(p.out.ops) > 0 || len(p.out.expect) > 0 {
				return false
			}
		}
		return true
	}
	if !s.RunUntil(done, time.Minute) {
		for _, p := range peers {
			a, _ := p.qp.Query()
			t.Logf("QP %#x %v: %d to post, %d outstanding, %d to be received", p.qp.QPN(), a.State, p.out.left, len(p.out.ops), len(p.out.expect))
		}
		t.Fatalf("not finished at %v", s.Now())
	}
	s.Run(s.Now() + time.Second) // late packets must do no harm
	for _, p := range peers {
		p.poll()
		p.in.same("memory that the peer used", p.in.model, p.mr.Bytes())
	}
	return s
}

// TestWorkload: over any network every request finishes once and in order,
// bytes arrive intact, atomics are carried out once, and nothing else of
// anybody's memory changes.
func TestWorkload(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"clean", Config{}},
		{"slow", Config{Rate: 1e9, Latency: 100 * time.Microsecond}},
		{"single", Config{Single: true}},
		{"hidden", Config{Single: true, HideIDs: true}},
		{"drop", Config{Faults: "drop 1%"}},
		{"answers", Config{Faults: "rx drop 3% opcode=RC_ACK; rx drop 3% opcode=RC_READ_RESP_*; rx drop 5% opcode=RC_ATOMIC_ACK"}},
		{"dup", Config{Faults: "tx dup 3%"}},
		{"reorder", Config{Faults: "tx reorder 2% by=3"}},
		{"delay", Config{Faults: "rx delay 1us..300us 5%"}},
		{"corrupt", Config{Faults: "tx corrupt 1%"}},
		{"everything", Config{Faults: "drop 0.5%; tx dup 1%; tx reorder 1% by=5; rx corrupt 0.5%; rx delay 1us..1ms 1%; cut 2ms..30ms"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, n := uint64(1), *runsFlag
			if *seedFlag != 0 {
				first, n = *seedFlag, 1
			}
			for seed := first; seed < first+uint64(n); seed++ {
				cfg := c.cfg
				cfg.Seed = seed
				workload(t, cfg, 1+int(seed)%2)
			}
		})
	}
}
