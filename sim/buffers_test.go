package sim

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

// guard is how many octets around everything that is used stay as they are.
const guard = 4096

// host is a node with what its queue pairs share.
type host struct {
	t      tester
	node   *Node
	rng    *rand.Rand
	pd     *verbs.PD
	srq    *verbs.SRQ     // or nil
	shared *buffers       // of srq
	broken uint64         // packets that reached the port corrupted
	last   map[uint32]int // LAST_WQE_REACHED, by QPN
	over   bool           // queue pairs are being stopped
	seen   map[sight]uint64
	failed map[uint32]verbs.EventType // queue pairs that are to fail, and the event that tells; what came is deleted
}

// srqDepth is how many requests a shared receive queue holds; half of them are
// the limit at which it is refilled.
const srqDepth = 16

func newHost(w *world, n *Node, shared bool) *host {
	t := w.t
	h := &host{t: t, node: n, rng: w.fork(), seen: w.seen, last: map[uint32]int{}, failed: map[uint32]verbs.EventType{}}
	var err error
	h.pd, err = n.Ctx.AllocPD()
	require.NoError(t, err)
	if shared {
		h.srq, err = h.pd.CreateSRQ(verbs.SRQConfig{MaxWR: srqDepth, MaxSGE: verbs.MaxSGE})
		require.NoError(t, err)
		h.shared = newBuffers(w, h.pd, w.size, h.srq.PostRecv)
		h.shared.fill(srqDepth)
		require.NoError(t, h.srq.SetLimit(srqDepth/2))
	}
	return h
}

// mtu is the largest path MTU of the port.
func (h *host) mtu() verbs.MTU {
	port, err := h.node.Ctx.Port()
	require.NoError(h.t, err)
	return port.ActiveMTU
}

// events refills the shared queue when, and only when, its limit is reported.
func (h *host) events() {
	for {
		select {
		case e := <-h.node.Ctx.Events():
			switch e.Type {
			case verbs.EventSRQLimit:
				require.Equal(h.t, h.srq.Handle(), e.SRQ)
				h.seen[seenLimit]++
				h.shared.fill(srqDepth)
				require.NoError(h.t, h.srq.SetLimit(srqDepth/2))
			case verbs.EventLastWQE:
				h.last[e.QPN]++
				h.seen[seenLastWQE]++
			case verbs.EventCommEst:
			default:
				if want, ok := h.failed[e.QPN]; ok && want == e.Type {
					delete(h.failed, e.QPN)
					continue
				}
				h.t.Fatalf("%v of queue pair %#x at %v", e.Type, e.QPN, h.node.sim.Now())
			}
		default:
			if h.srq != nil && len(h.shared.out) < srqDepth/2 && !h.over {
				h.t.Fatalf("%d requests are outstanding, the limit is %d, and no event told so", len(h.shared.out), srqDepth/2)
			}
			return
		}
	}
}

// stop takes queue pairs to ERR, whose flush must give back every receive
// request that did not complete.
func (h *host) stop(qps []*verbs.QP, poll func()) {
	h.over = true
	for _, q := range qps {
		require.NoError(h.t, q.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		h.seen[seenFlush]++
	}
	h.node.sim.Run(h.node.sim.Now())
	poll()
	h.events()
	if h.srq == nil {
		return
	}
	for _, q := range qps {
		require.Equal(h.t, btoi(q.Type() != verbs.UC), h.last[q.QPN()], "LAST_WQE_REACHED of %#x", q.QPN())
	}
	queued := srqDepth
	for {
		if n, err := h.srq.PostRecv([]verbs.RecvWR{{}}); n == 0 {
			require.ErrorIs(h.t, err, verbs.ErrQueueFull)
			break
		}
		queued--
	}
	require.Len(h.t, h.shared.out, queued, "requests of the shared receive queue that neither completed nor wait")
}

// buffers are the receive requests of one queue.
type buffers struct {
	t    tester
	mem  *memory
	rng  *rand.Rand
	pd   *verbs.PD
	post func([]verbs.RecvWR) (int, error)
	room int  // octets
	fifo bool // they complete in order: the queue is one queue pair's own

	out    map[uint64]*verbs.MR // posted and not completed, by ID
	next   uint64               // ID
	oldest uint64               // with fifo
	spare  []*verbs.MR          // all zero
}

func newBuffers(w *world, pd *verbs.PD, room int, post func([]verbs.RecvWR) (int, error)) *buffers {
	return &buffers{t: w.t, rng: w.fork(), mem: w.mem, pd: pd, post: post, room: room, out: map[uint64]*verbs.MR{}}
}

// fill posts until n requests are outstanding.
func (b *buffers) fill(n int) {
	for len(b.out) < n {
		var mr *verbs.MR
		var err error
		if k := len(b.spare); k > 0 {
			mr, b.spare = b.spare[k-1], b.spare[:k-1]
		} else {
			mr, err = b.pd.RegMR(b.mem.zeroed(b.room+2*guard), verbs.AccessLocalWrite)
			require.NoError(b.t, err)
		}
		_, err = b.post([]verbs.RecvWR{{ID: b.next, SGL: pieces(b.rng, mr, b.room, verbs.MaxSGE)}})
		require.NoError(b.t, err)
		b.out[b.next] = mr
		b.next++
	}
}

// take returns the memory of a request that completed.
func (b *buffers) take(c *verbs.WC) *verbs.MR {
	mr := b.out[c.ID]
	if mr == nil || b.fifo && c.ID != b.oldest {
		b.t.Fatalf("completion of receive request %d; %d are outstanding, the oldest %d", c.ID, len(b.out), b.oldest)
	}
	b.oldest++
	delete(b.out, c.ID)
	return mr
}

var zeros, junk [maxLen + 2*guard]byte

func init() {
	for i := range junk {
		junk[i] = 0xee
	}
}

// clean checks that nothing but the first n octets were written, and keeps the
// memory for another request. Of memory that stays in use it mostly looks at what
// is near: most is much longer than its message, and what is far off is found
// another time.
func (b *buffers) clean(mr *verbs.MR, n int) {
	const near = 4 * guard
	mem := mr.Bytes()
	clear(mem[guard : guard+n])
	all := b.rng.IntN(4) == 0
	head, tail := mem[:min(guard+n+near, len(mem))], mem[len(mem)-guard:]
	if all {
		head = mem
	}
	if !bytes.Equal(head, zeros[:len(head)]) || !bytes.Equal(tail, zeros[:guard]) {
		b.t.Fatalf("a receive buffer was written to outside of the message's %d octets", n)
	}
	if all && b.rng.IntN(2) == 0 {
		require.NoError(b.t, mr.Deregister())
		b.mem.putZeroed(mem)
		return
	}
	b.spare = append(b.spare, mr)
}

// discard takes back what a queue pair that was reset has forgotten.
func (b *buffers) discard() {
	for id := b.oldest; id < b.next; id++ {
		b.spare = append(b.spare, b.out[id])
		delete(b.out, id)
	}
	b.oldest = b.next
}

// pieces is n octets after the guard as one to k entries.
func pieces(r *rand.Rand, mr *verbs.MR, n, k int) (sgl []verbs.SGE) {
	at := 0
	for k := r.IntN(k); k > 0 && n > 8; k-- {
		cut := at + r.IntN(min(n-at, 2*n/k)+1)
		sgl = append(sgl, mr.SGE(guard+at, cut-at))
		at = cut
	}
	return append(sgl, mr.SGE(guard+at, n-at))
}

func fillRandom(rng *rand.Rand, b []byte) {
	for x := rng.Uint64(); len(b) >= 8; b = b[8:] {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b, x)
	}
}

// pattern is what message id consists of: its number, if there is room, and
// octets that follow from it.
func pattern(b []byte, id uint32) {
	x := uint64(id)*0x9e3779b97f4a7c15 | 1
	for i := 0; i < len(b); i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		var w [8]byte
		binary.BigEndian.PutUint64(w[:], x)
		copy(b[i:], w[:])
	}
	if len(b) >= 8 {
		binary.BigEndian.PutUint64(b, uint64(id))
	}
}
