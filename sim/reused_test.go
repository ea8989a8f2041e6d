package sim

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// reused is a connection that is made anew, by RESET, as soon as all is done,
// with the same queue pair numbers, keys and memory: what the network still
// holds of it is late. First PSNs keep their distance, as random ones do, since
// a packet whose PSN is expected is the expected one.
type reused struct {
	w      *world
	x, y   *peer
	c      Conn
	before []bth.PSN // the first ones of earlier lives
	lives  int       // to come
	late   *atomic.Int64
}

// distances are those of first PSNs: more than was used and less than half of
// all, and the longest.
var distances = []int{1 << 16, -1 << 16, 1 << 22, -1 << 22, 1 << 23}

func reuse(w *world, a, b *host, requests, lives int, late *atomic.Int64) {
	r := &reused{w: w, x: newPeer(w, a), y: newPeer(w, b), c: drawConn(w, a), lives: lives - 1, late: late}
	require.NoError(w.t, Connect(a.node, b.node, r.x.qp, r.y.qp, r.c))
	newFlow(w, r.x, r.y, &r.c, requests)
	newFlow(w, r.y, r.x, &r.c, requests)
	for _, p := range []*peer{r.x, r.y} {
		w.see(p.node, p.qp, func(_ Packet, h *bth.Packet) {
			if d := h.PSN.Diff(bth.MakePSN(r.c.PSN)); d < -1 || d > 1<<15 {
				r.late.Add(1)
			}
		})
	}
	w.ends = append(w.ends, r)
	w.qps[a], w.qps[b] = append(w.qps[a], r.x.qp), append(w.qps[b], r.y.qp)
}

func (r *reused) work() {
	r.x.work()
	r.y.work()
	if r.lives == 0 || !r.x.out.done() || !r.y.out.done() {
		return
	}
	r.lives--
	r.before = append(r.before, bth.MakePSN(r.c.PSN))
	near := func(p bth.PSN) bool { return max(p.Diff(bth.MakePSN(r.c.PSN)), -p.Diff(bth.MakePSN(r.c.PSN))) < 1<<15 }
	for slices.ContainsFunc(r.before, near) {
		r.c.PSN = r.before[len(r.before)-1].Add(distances[r.w.rng.IntN(len(distances))]).Uint32()
	}
	for _, p := range []*peer{r.x, r.y} {
		require.NoError(r.w.t, p.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
		if p.host.srq == nil {
			p.bufs.discard()
		}
	}
	require.NoError(r.w.t, Connect(r.x.node, r.y.node, r.x.qp, r.y.qp, r.c))
	for _, f := range []*flow{r.x.out, r.y.out} {
		f.again(&r.c)
	}
	r.supply()
	r.work()
}

func (r *reused) supply() {
	r.x.supply()
	r.y.supply()
}

func (r *reused) finished() bool { return r.lives == 0 && r.x.finished() && r.y.finished() }

func (r *reused) verify() {
	r.x.verify()
	r.y.verify()
}

func (r *reused) empty() {
	r.x.empty()
	r.y.empty()
}

func (r *reused) String() string { return r.x.String() + ", " + r.y.String() }

// TestReused: packets of an earlier connection that come late, to queue pairs
// whose numbers are in use again, do no harm: not to memory, to completions, or
// to the connection.
func TestReused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, faults string }{
		{"late", "tx dup 10%; rx delay 1ms..40ms 3%"},
		{"late-lossy", "tx drop 1%; tx dup 10%; rx delay 1ms..40ms 2%; rx corrupt 1%"},
	} {
		var late atomic.Int64
		seeds(t, c.name, Config{Faults: c.faults}, func(w *world) {
			for i := range w.hosts {
				reuse(w, w.hosts[i], w.hosts[(i+1)%len(w.hosts)], 5, 6, &late)
			}
		})
		t.Cleanup(func() {
			if *replayFlag == "" && !t.Failed() {
				require.Greater(t, late.Load(), int64(50**runsFlag), "packets of an earlier connection")
			}
		})
	}
}
