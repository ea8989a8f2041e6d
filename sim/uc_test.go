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

// ucMemory is what the peer of an unreliable connection writes to.
const ucMemory = maxLen + 2*guard

// ucFlow is one direction of an unreliable connection: a program that sends, one
// that receives, and a model of what must come of it, which looks at the packets
// that the network delivers.
//
// The model is the definition and not the engine's way: of the packets that
// arrive, those count that are ahead of all before them; a message is received
// when all its packets count, and a WRITE has written those of its packets
// before which none is missing.
type ucFlow struct {
	w        *world
	rng      *rand.Rand // when to post
	from, to *ucEnd
	mtu      int
	first    bth.PSN
	plan     *plan
	scarce   bool
	wrs      [1]verbs.SendWR

	ops  []*ucOp
	pkts []int // op of each packet
	done int   // ops that have completed

	next                        int // the packet after the last that counts
	arrived, late, counted      int
	outOfOrder, rest            int
	begun, abandoned, truncated int // SENDs whose first packet counts, among them those not received, those too long
	memory                      []byte
	dirty                       [][2]int // stretches of memory to compare when the node has seen all
	due                         []*ucOp  // received, but for want of a request
	refused                     int      // of due, that were passed over
}

type ucOp struct {
	id     uint32
	wr     verbs.SendWR
	n      int
	at     int // first packet
	data   []byte
	local  *verbs.MR
	mine   []byte // all of local
	remote int
	run    int           // packets of it that were received; -1 when it was given up
	gone   time.Duration // when its packets have arrived if they ever do; 0 before it completes
}

func (o *ucOp) sends() bool { return o.wr.Opcode == verbs.WRSend || o.wr.Opcode == verbs.WRSendImm }

// ucEnd is one end of the connection.
type ucEnd struct {
	*host
	cq      *verbs.CQ
	qp      *verbs.QP
	mr      *verbs.MR
	bufs    *buffers
	out, in *ucFlow
}

func newUCEnd(w *world, h *host) *ucEnd {
	e := &ucEnd{host: h}
	var err error
	e.cq, err = h.node.Ctx.CreateCQ(verbs.CQConfig{Depth: 1024, Vector: w.rng.IntN(h.node.NIC.Shards())})
	require.NoError(w.t, err)
	e.qp, err = h.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: e.cq, RecvCQ: e.cq, Cap: verbs.QPCap{MaxSendSGE: verbs.MaxSGE, MaxRecvSGE: verbs.MaxSGE}})
	require.NoError(w.t, err)
	e.mr, err = h.pd.RegMR(w.mem.zeroed(ucMemory), verbs.AccessAll)
	require.NoError(w.t, err)
	room := maxLen
	if w.rng.IntN(3) == 0 {
		room = 10000 // too little for some
	}
	e.bufs = newBuffers(w, h.pd, room, e.qp.PostRecv)
	e.bufs.fifo = true
	return e
}

// unreliable makes an unreliable connection with flows both ways.
func unreliable(w *world, a, b *host, messages int) {
	x, y := newUCEnd(w, a), newUCEnd(w, b)
	c := Conn{GID: w.rng.IntN(2), PSN: 0xfffff0 + uint32(w.rng.IntN(16)), Options: verbs.DefaultConnectOptions()}
	c.Options.PathMTU = min(a.mtu(), []verbs.MTU{256, 512, 1024, 2048, 4096}[w.rng.IntN(5)])
	require.NoError(w.t, Connect(a.node, b.node, x.qp, y.qp, c))
	for _, e := range [][2]*ucEnd{{x, y}, {y, x}} {
		f := &ucFlow{
			w: w, rng: w.fork(), from: e[0], to: e[1], mtu: int(c.Options.PathMTU), first: bth.MakePSN(c.PSN),
			plan: w.plan(bth.MakePSN(c.PSN), messages), scarce: w.rng.IntN(3) == 0, memory: w.mem.zeroed(ucMemory),
		}
		w.carries(f.plan, bth.QPN(f.to.qp.QPN()), bth.QPN(f.from.qp.QPN()))
		f.from.out, f.to.in = f, f
		w.arriv[arrival{f.to.node, bth.QPN(f.to.qp.QPN())}] = f.arrives
	}
	w.add(a, x.qp, x)
	w.add(b, y.qp, y)
	for _, f := range []*ucFlow{x.out, y.out} {
		w.s.After(0, f.tick)
	}
}

// tick posts some messages, and comes again.
func (f *ucFlow) tick() {
	for k := 1 + f.rng.IntN(4); k > 0 && f.plan.left() > 0 && len(f.ops)-f.done < 8; k-- {
		o := f.draw()
		f.ops = append(f.ops, o)
		for range max(1, (o.n+f.mtu-1)/f.mtu) {
			f.pkts = append(f.pkts, len(f.ops)-1)
		}
		f.stock()
		f.wrs[0] = o.wr
		if _, err := f.from.qp.PostSend(f.wrs[:]); err != nil {
			f.w.t.Fatal(err)
		}
	}
	if f.plan.left() > 0 {
		gap := []time.Duration{2 * time.Microsecond, 100 * time.Microsecond, 2 * time.Millisecond}[f.rng.IntN(3)]
		f.w.s.After(time.Duration(f.rng.Int64N(int64(gap))), f.tick)
	}
}

// stock posts a receive request for each message that may still arrive, unless
// they are to be scarce.
func (f *ucFlow) stock() {
	if f.scarce {
		return
	}
	coming := 2 // one that is held, one for luck
	for i := len(f.ops) - 1; i >= 0 && f.next <= f.ops[i].at+f.packets(i); i-- {
		if o := f.ops[i]; o.gone == 0 || f.w.s.Now() < o.gone {
			coming++
		}
	}
	f.to.bufs.fill(coming)
}

func (f *ucFlow) packets(i int) int { return max(1, (f.ops[i].n+f.mtu-1)/f.mtu) }

// draw makes a random message.
func (f *ucFlow) draw() *ucOp {
	x, r := f.plan.next()
	o := &ucOp{id: uint32(x.item + 1), at: len(f.pkts)}
	switch r.IntN(10) {
	case 0:
	case 1, 2, 3:
		o.n = r.IntN(100)
	case 4, 5:
		o.n = f.mtu*r.IntN(4) + r.IntN(3)
	case 6, 7, 8:
		o.n = r.IntN(20000)
	default:
		o.n = r.IntN(maxLen + 1)
	}
	w := &o.wr
	w.ID, w.Imm = uint64(o.id), o.id
	w.Opcode = []verbs.WROpcode{verbs.WRSend, verbs.WRSend, verbs.WRSendImm, verbs.WRWrite, verbs.WRWriteImm}[r.IntN(5)]
	if w.Opcode == verbs.WRWriteImm && f.scarce {
		o.n = 0 // its last packet would write or not
	}
	o.n = min(o.n, x.n)
	if r.IntN(3) > 0 || f.plan.left() == 0 || len(f.ops)-f.done == 7 {
		w.Flags |= verbs.SendSignaled
	}
	if !o.sends() {
		o.remote = guard + r.IntN(maxLen-o.n+1)
		w.RKey, w.RemoteAddr = f.to.mr.RKey(), f.to.mr.Addr()+uint64(o.remote)
	}
	f.plan.post(x, o.n, max(1, (o.n+f.mtu-1)/f.mtu), w.Opcode)
	o.data = f.w.mem.get(o.n)
	pattern(o.data, o.id)
	mr, err := f.from.pd.RegMR(f.w.mem.get(o.n+2*guard), verbs.AccessLocalWrite)
	require.NoError(f.w.t, err)
	clear(mr.Bytes()[:guard])
	clear(mr.Bytes()[guard+copy(mr.Bytes()[guard:], o.data):])
	o.local, o.mine = mr, f.w.mem.clone(mr.Bytes())
	w.SGL = pieces(r, mr, o.n, verbs.MaxSGE)
	if o.n <= 64 && r.IntN(2) == 0 {
		w.Flags |= verbs.SendInline
		w.Inline, w.SGL = o.data, nil
		clear(mr.Bytes())
		clear(o.mine)
	}
	return o
}

// arrives is the model of the receiver.
func (f *ucFlow) arrives(p Packet, h *bth.Packet) {
	f.arrived++
	idx := h.PSN.Diff(f.first)
	if idx < f.next {
		if f.next-idx > 1024 {
			f.w.t.Fatalf("the network delivers a packet %d behind, more than unreliable connections bear", f.next-idx)
		}
		f.late++
		f.w.note(seenLate, true)
		return
	}
	gap := idx > f.next
	f.next = idx + 1
	f.counted++
	o := f.ops[f.pkts[idx]]
	i := idx - o.at
	switch {
	case i == 0:
		if o.sends() {
			f.begun++
			f.abandoned++ // until it is whole
		}
	case gap:
		f.outOfOrder++
		return
	case o.run != i:
		f.rest++
		return
	}
	end := min(o.n, (i+1)*f.mtu)
	switch {
	case o.sends() && end > f.to.bufs.room:
		o.run = -1
		f.truncated++
		return
	case !o.sends():
		copy(f.memory[o.remote+i*f.mtu:], o.data[i*f.mtu:end])
	}
	o.run++
	if end < o.n || o.wr.Opcode == verbs.WRWrite {
		return
	}
	f.due = append(f.due, o)
	if o.sends() {
		f.abandoned--
	} else {
		f.dirty = append(f.dirty, [2]int{o.remote, o.n})
	}
}

func (e *ucEnd) work() {
	var wc [32]verbs.WC
	for n := e.cq.Poll(wc[:]); n > 0; n = e.cq.Poll(wc[:]) {
		for i := range wc[:n] {
			if wc[i].Opcode >= verbs.WCRecv {
				e.in.received(&wc[i])
			} else {
				e.out.completed(&wc[i])
			}
		}
	}
	for _, l := range e.node.lanes {
		if len(l.in) > 0 {
			return // the model is ahead of the device
		}
	}
	for _, d := range e.in.dirty {
		e.in.same("memory that a WRITE with immediate named", d[0], d[1])
	}
	e.in.dirty = e.in.dirty[:0]
}

// completed takes the completion of the oldest message, or of those before it
// that are unsignaled too.
func (f *ucFlow) completed(c *verbs.WC) {
	if err := c.Err(); err != nil {
		f.w.t.Fatal(err)
	}
	for {
		if f.done == len(f.ops) {
			f.w.t.Fatalf("completion of message %d, which is not outstanding", c.ID)
		}
		o := f.ops[f.done]
		f.done++
		if !bytes.Equal(o.mine, o.local.Bytes()) {
			f.w.t.Fatalf("local memory of message %d changed", o.id)
		}
		copy(o.local.Bytes(), junk[:]) // the device needs it no more
		require.NoError(f.w.t, o.local.Deregister())
		f.w.mem.put(o.local.Bytes())
		f.w.mem.put(o.mine)
		o.local, o.mine = nil, nil
		o.gone = time.Duration(f.from.node.line) + f.w.s.cfg.Latency + 2*time.Millisecond
		if uint64(o.id) == c.ID {
			return
		}
		if o.wr.Flags&verbs.SendSignaled != 0 {
			f.w.t.Fatalf("completion of message %d before that of %d", c.ID, o.id)
		}
	}
}

// received compares a completion with the next message that is due.
func (f *ucFlow) received(c *verbs.WC) {
	mr := f.to.bufs.take(c)
	if c.Status == verbs.WCWRFlushErr && f.w.stop {
		return
	}
	if err := c.Err(); err != nil {
		f.w.t.Fatal(err)
	}
	got := mr.Bytes()[guard:]
	for {
		if len(f.due) == 0 {
			f.w.t.Fatalf("a receive completion that no message is due for: %+v, % x", *c, got[:min(16, c.ByteLen)])
		}
		o := f.due[0]
		f.due = f.due[1:]
		n := o.n
		if !o.sends() {
			n = 0
		}
		want := verbs.WC{ID: c.ID, Opcode: verbs.WCRecv, ByteLen: uint32(o.n), QPN: f.to.qp.QPN(), SrcQP: f.from.qp.QPN()}
		if !o.sends() {
			want.Opcode = verbs.WCRecvWriteImm
		}
		if o.wr.Opcode != verbs.WRSend {
			want.Flags, want.Imm = verbs.WCWithImm, o.id
		}
		if *c == want && bytes.Equal(got[:n], o.data[:n]) {
			break
		}
		if f.refused++; !f.scarce {
			f.w.t.Fatalf("message %d (%v): completion %+v, want %+v; %s; it begins with message %d", o.id, o.wr.Opcode, *c, want, octets(o.data[:n], got[:c.ByteLen]), binary.BigEndian.Uint64(got))
		}
	}
	// A message that was given up may have left octets behind this one.
	clear(got[:f.to.bufs.room])
	f.to.bufs.clean(mr, 0)
}

func (f *ucFlow) same(what string, at, n int) {
	if want, got := f.memory[at:at+n], f.to.mr.Bytes()[at:at+n]; !bytes.Equal(want, got) {
		f.w.t.Fatalf("%s at %v: %s", what, f.w.s.Now(), octets(want, got))
	}
}

func (e *ucEnd) supply() {
	if e.in.scarce {
		e.bufs.fill(e.rng.IntN(4))
	}
}

func (e *ucEnd) finished() bool { return e.out.plan.left() == 0 && e.out.done == len(e.out.ops) }

// verify compares memory and counters with the model.
func (e *ucEnd) verify() {
	f, t := e.in, e.t
	f.same("memory that the peer wrote to", 0, ucMemory)
	f.refused += len(f.due)
	here, err := e.qp.Stats()
	require.NoError(t, err)
	there, err := f.from.qp.Stats()
	require.NoError(t, err)
	count := func(r trace.Reason) int { return int(here[r.String()]) }

	// Every packet: sent = counted + lost + those after the last that counts.
	require.EqualValues(t, len(f.pkts), there["sent_requests"])
	require.EqualValues(t, len(f.ops), there["completed"])
	require.EqualValues(t, f.arrived, here["rcvd_requests"])
	require.Equal(t, f.late, count(trace.DropDuplicate))
	require.EqualValues(t, f.next-f.counted, here["uc_lost_packets"])
	a, err := e.qp.Query()
	require.NoError(t, err)
	require.Equal(t, f.first.Add(f.next).Uint32(), a.RQPSN)
	a, err = f.from.qp.Query()
	require.NoError(t, err)
	require.Equal(t, f.first.Add(len(f.pkts)).Uint32(), a.SQPSN)
	require.Equal(t, f.outOfOrder, count(trace.DropOutOfOrder))

	// Every message: the model knows all but which of those that were not
	// received anyway found no receive request.
	none := count(trace.DropNoRecv)
	require.Zero(t, f.refused*btoi(!f.scarce))
	require.LessOrEqual(t, f.refused, none)
	require.LessOrEqual(t, none, f.refused+f.abandoned)
	require.LessOrEqual(t, f.truncated-count(trace.DropTooLong), none)
	require.GreaterOrEqual(t, f.truncated, count(trace.DropTooLong))
	require.GreaterOrEqual(t, count(trace.DropMessage), f.rest)
	if none == 0 {
		require.Equal(t, f.rest, count(trace.DropMessage))
		require.Equal(t, f.truncated, count(trace.DropTooLong))
	}
	for _, r := range []trace.Reason{trace.FailReqLength, trace.FailAccess, trace.FailQPAccess, trace.FailLocalLen, trace.FailLocalProt, trace.FailLocalQPOp} {
		require.Zero(t, here[r.String()], r)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (e *ucEnd) empty() {
	require.Empty(e.t, e.bufs.out, "receive requests that neither completed nor were flushed")
}

func (e *ucEnd) String() string {
	return fmt.Sprintf("UC QP %#x: %d to post, %d of %d completed", e.qp.QPN(), e.out.plan.left(), e.out.done, len(e.out.ops))
}
