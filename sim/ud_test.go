package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

const (
	theQKey = 0x1234567
	ownQKey = 1 << 31 // "the queue pair's own", IBA 10.2.5
)

// mesh is datagram queue pairs that all send to all, and what they sent.
type mesh struct {
	w         *world
	ends      []*udEnd
	grams     []*gram // number i has the ID i+1
	anonymous map[anonymous]*gram
}

// gram is a datagram, or all anonymous ones that look the same.
type gram struct {
	from, to           *udEnd
	n                  int
	imm                bool
	wrongKey           bool
	gid                int
	arrived, delivered int
}

// anonymous is what identifies datagrams without room for a number.
type anonymous struct {
	from, to uint32 // QPN
	n        int
}

// udEnd is a program with one datagram queue pair: it sends to anybody, itself
// too, and receives.
type udEnd struct {
	*host
	mesh  *mesh
	rng   *rand.Rand // when to post
	cq    *verbs.CQ
	qp    *verbs.QP
	bufs  *buffers
	ahs   map[*host][2]*verbs.AH
	mtu   int
	plan  *plan
	sent  int
	psn   bth.PSN
	open  []udSend // posted and not completed
	wrs   [1]verbs.SendWR
	plug  bool // receive requests are scarce
	stats struct{ received, wrongKey, arrived int }
}

type udSend struct {
	id       uint64
	signaled bool
	mr       *verbs.MR
}

// datagrams makes n queue pairs on each host that send messages each.
func datagrams(w *world, n, messages int) *mesh {
	m := &mesh{w: w, anonymous: map[anonymous]*gram{}}
	for _, h := range w.hosts {
		ahs := map[*host][2]*verbs.AH{}
		for _, to := range w.hosts {
			ahs[to] = handles(h, to)
		}
		for range n {
			e := &udEnd{host: h, mesh: m, rng: w.fork(), mtu: int(h.mtu()), ahs: ahs, plug: w.rng.IntN(3) == 0, bufs: h.shared, psn: bth.MakePSN(0xfffff0 + w.rng.Uint32N(16))}
			e.plan = w.plan(e.psn, messages)
			var err error
			e.cq, err = h.node.Ctx.CreateCQ(verbs.CQConfig{Depth: 1024, Vector: w.rng.IntN(h.node.NIC.Shards())})
			require.NoError(w.t, err)
			e.qp, err = h.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: e.cq, RecvCQ: e.cq, SRQ: h.srq, Cap: verbs.QPCap{MaxSendSGE: verbs.MaxSGE, MaxRecvSGE: verbs.MaxSGE}})
			require.NoError(w.t, err)
			require.NoError(w.t, e.qp.Activate(verbs.DatagramOptions{QKey: theQKey, PSN: e.psn.Uint32()}))
			if h.srq == nil {
				room := e.mtu
				if w.rng.IntN(3) == 0 {
					room = 256 // too little for some
				}
				e.bufs = newBuffers(w, h.pd, verbs.GRHLen+room, e.qp.PostRecv)
				e.bufs.fifo = true
			}
			w.carries(e.plan, 0, bth.QPN(e.qp.QPN()))
			m.ends = append(m.ends, e)
			w.arriv[arrival{h.node, bth.QPN(e.qp.QPN())}] = e.arrives
			w.add(h, e.qp, e)
			w.s.After(0, e.tick)
		}
	}
	return m
}

// handles are the address handles of a host from another, or itself, by GID
// index.
func handles(from, to *host) (ahs [2]*verbs.AH) {
	gids, err := to.node.Ctx.GIDs()
	require.NoError(from.t, err)
	for i := range ahs {
		ahs[i], err = from.pd.CreateAH(verbs.AV{DGID: gids[i].GID, SGIDIndex: i, TrafficClass: 0x40})
		require.NoError(from.t, err)
	}
	return ahs
}

func (e *udEnd) tick() {
	r := e.rng
	e.stock()
	for k := 1 + r.IntN(6); k > 0 && e.plan.left() > 0 && len(e.open) < 16; k-- {
		e.send()
	}
	if e.plan.left() > 0 {
		gap := []time.Duration{2 * time.Microsecond, 100 * time.Microsecond, 2 * time.Millisecond}[r.IntN(3)]
		e.mesh.w.s.After(time.Duration(r.Int64N(int64(gap))), e.tick)
	}
}

// send posts a random datagram.
func (e *udEnd) send() {
	x, r := e.plan.next()
	m := e.mesh
	to := m.ends[r.IntN(len(m.ends))]
	g := &gram{from: e, to: to, n: r.IntN(e.mtu + 1), imm: r.IntN(2) == 0, wrongKey: r.IntN(25) == 0, gid: r.IntN(2)}
	if r.IntN(3) == 0 {
		g.n = r.IntN(20)
	}
	g.n = min(g.n, x.n)
	e.plan.post(x, g.n, 1, "datagram")
	by := g.gid
	m.grams = append(m.grams, g)
	id := uint32(len(m.grams))
	if g.n < 8 && !g.imm {
		key := anonymous{e.qp.QPN(), to.qp.QPN(), g.n}
		id = ^uint32(g.n)
		g.wrongKey, g.gid = false, -1 // by either address
		if m.anonymous[key] == nil {
			m.anonymous[key] = g
		}
		g = m.anonymous[key]
	}
	mr, err := e.pd.RegMR(m.w.mem.zeroed(g.n+2*guard), verbs.AccessLocalWrite)
	require.NoError(e.t, err)
	data := mr.Bytes()[guard : guard+g.n]
	pattern(data, id)
	w := &e.wrs[0]
	*w = verbs.SendWR{
		ID: uint64(e.sent), Opcode: verbs.WRSend, Imm: id, SGL: pieces(r, mr, g.n, verbs.MaxSGE),
		RemoteQPN: to.qp.QPN(), RemoteQKey: theQKey, AH: e.ahs[to.host][by].Handle(),
	}
	if g.imm {
		w.Opcode = verbs.WRSendImm
	}
	switch {
	case g.wrongKey:
		w.RemoteQKey++
	case r.IntN(4) == 0:
		w.RemoteQKey = ownQKey | 7
	}
	if r.IntN(3) > 0 || e.plan.left() == 0 || len(e.open) == 15 {
		w.Flags |= verbs.SendSignaled
	}
	if g.n <= 64 && r.IntN(2) == 0 {
		w.Flags |= verbs.SendInline
		w.Inline, w.SGL = bytes.Clone(data), nil
		clear(data)
	}
	e.open = append(e.open, udSend{w.ID, w.Flags&verbs.SendSignaled != 0, mr})
	if to.host == e.host {
		to.takes(g) // it does not pass the network
	}
	e.sent++
	if _, err := e.qp.PostSend(e.wrs[:]); err != nil {
		e.t.Fatal(err)
	}
}

// find returns the datagram that a payload and immediate data belong to.
func (m *mesh) find(from, to uint32, data []byte, hasImm bool, imm uint32) (g *gram, id uint32) {
	id = imm
	if len(data) >= 8 {
		id = uint32(binary.BigEndian.Uint64(data))
	} else if !hasImm {
		return m.anonymous[anonymous{from, to, len(data)}], ^uint32(len(data))
	}
	if id == 0 || int(id) > len(m.grams) {
		return nil, id
	}
	return m.grams[id-1], id
}

// arrives is the model of a queue pair.
func (e *udEnd) arrives(p Packet, h *bth.Packet) {
	g, _ := e.mesh.find(uint32(h.SrcQP), uint32(h.DestQP), h.Payload, h.Info().Has(bth.HasImm), h.Imm)
	if g == nil || g.to != e {
		e.t.Fatalf("a datagram that was not sent arrives: %+v", *h)
	}
	e.takes(g)
}

func (e *udEnd) takes(g *gram) {
	g.arrived++
	e.stats.arrived++
	if g.wrongKey {
		e.stats.wrongKey++
	}
}

func (e *udEnd) work() {
	var wc [32]verbs.WC
	for n := e.cq.Poll(wc[:]); n > 0; n = e.cq.Poll(wc[:]) {
		for i := range wc[:n] {
			if wc[i].Opcode >= verbs.WCRecv {
				e.received(&wc[i])
			} else {
				e.completed(&wc[i])
			}
		}
	}
	e.stock()
}

// stock keeps receive requests posted, unless they are to be scarce.
func (e *udEnd) stock() {
	if e.srq == nil && !e.plug && !e.mesh.w.stop {
		e.bufs.fill(16)
	}
}

func (e *udEnd) completed(c *verbs.WC) {
	if err := c.Err(); err != nil {
		e.t.Fatal(err)
	}
	for {
		if len(e.open) == 0 {
			e.t.Fatalf("completion of datagram %d, which is not outstanding", c.ID)
		}
		o := e.open[0]
		e.open = e.open[1:]
		copy(o.mr.Bytes(), junk[:]) // the device needs it no more
		require.NoError(e.t, o.mr.Deregister())
		e.mesh.w.mem.put(o.mr.Bytes())
		if o.id == c.ID {
			return
		}
		if o.signaled {
			e.t.Fatalf("completion of datagram %d before that of %d", c.ID, o.id)
		}
	}
}

func (e *udEnd) received(c *verbs.WC) {
	mr := e.bufs.take(c)
	if c.Status == verbs.WCWRFlushErr && e.mesh.w.stop {
		e.bufs.clean(mr, 0)
		return
	}
	if err := c.Err(); err != nil {
		e.t.Fatal(err)
	}
	e.stats.received++
	grh, data := mr.Bytes()[guard:guard+verbs.GRHLen], mr.Bytes()[guard+verbs.GRHLen:guard+int(c.ByteLen)]
	g, id := e.mesh.find(c.SrcQP, c.QPN, data, c.Flags&verbs.WCWithImm != 0, c.Imm)
	if g == nil || g.to != e || g.from.qp.QPN() != c.SrcQP || g.n != len(data) || g.imm != (c.Flags&verbs.WCWithImm != 0) || g.wrongKey {
		e.t.Fatalf("received what was not sent: %+v, % x", *c, data[:min(16, len(data))])
	}
	if g.delivered++; g.delivered > g.arrived {
		e.t.Fatalf("datagram %d was delivered %d times and arrived %d times", id, g.delivered, g.arrived)
	}
	want := make([]byte, g.n)
	if pattern(want, id); !bytes.Equal(want, data) {
		e.t.Fatalf("datagram %d: %s", id, octets(want, data))
	}
	av, err := e.node.Ctx.AVFrom(c, grh)
	require.NoError(e.t, err)
	if back := e.ahs[g.from.host]; g.gid >= 0 && (av.DGID != back[g.gid].AV().DGID || av.SGIDIndex != g.gid || av.TrafficClass != 0x40) {
		e.t.Fatalf("datagram %d came from %+v by its GRH", id, av)
	}
	e.bufs.clean(mr, int(c.ByteLen))
}

func (e *udEnd) supply() {
	if e.srq == nil && e.plug {
		e.bufs.fill(e.rng.IntN(4))
	}
}

func (e *udEnd) finished() bool { return e.plan.left() == 0 && len(e.open) == 0 }

// verify compares counters with the model.
func (e *udEnd) verify() {
	s, err := e.qp.Stats()
	require.NoError(e.t, err)
	a, err := e.qp.Query()
	require.NoError(e.t, err)
	require.Equal(e.t, e.psn.Add(e.sent).Uint32(), a.SQPSN)
	require.EqualValues(e.t, e.sent, s["sent_requests"])
	require.EqualValues(e.t, e.sent, s["completed"])
	require.EqualValues(e.t, e.stats.received, s["rdma_recvs"])
	require.EqualValues(e.t, e.stats.wrongKey, s["bad_qkey"])
	tooLong := s[trace.DropTooLong.String()]
	require.EqualValues(e.t, e.stats.arrived, s["rdma_recvs"]+s["out_of_buffer"]+tooLong+s["bad_qkey"], "of those that arrived")
	most := uint64(0) // too long, if each had found a request
	for _, g := range e.mesh.all() {
		if g.to == e && verbs.GRHLen+g.n > e.bufs.room && !g.wrongKey {
			require.Zero(e.t, g.delivered)
			most += uint64(g.arrived)
		}
	}
	require.LessOrEqual(e.t, tooLong, most)
	require.LessOrEqual(e.t, most-tooLong, s["out_of_buffer"])
	require.Equal(e.t, s["rcvd_requests"]+s["bad_qkey"], uint64(e.stats.arrived))
}

// all returns every datagram.
func (m *mesh) all() []*gram {
	var gs []*gram
	for i, g := range m.grams {
		if g.n >= 8 || g.imm || m.anonymous[anonymous{g.from.qp.QPN(), g.to.qp.QPN(), g.n}] == m.grams[i] {
			gs = append(gs, g)
		}
	}
	return gs
}

func (e *udEnd) empty() {
	if e.srq == nil {
		require.Empty(e.t, e.bufs.out, "receive requests that neither completed nor were flushed")
	}
}

func (e *udEnd) String() string {
	return fmt.Sprintf("UD QP %#x: %d to post, %d outstanding", e.qp.QPN(), e.plan.left(), len(e.open))
}
