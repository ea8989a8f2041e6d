package gorxe_test

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/verbs"
)

// counts are cases of counting: queue pairs, each from a device to the word of a
// device, all at once.
var counts = []struct {
	name   string
	edges  [][2]int
	faults string
}{
	{name: "two", edges: [][2]int{{0, 1}, {0, 1}}},
	{name: "many", edges: [][2]int{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {2, 1}, {2, 1}, {2, 1}, {2, 1}, {2, 1}, {2, 1}, {1, 1}, {1, 1}, {0, 1}, {2, 1}, {0, 1}}},
	{name: "itself", edges: [][2]int{{0, 0}, {0, 0}}},
	{name: "each-other", edges: [][2]int{{0, 1}, {1, 0}, {0, 1}, {1, 0}}},
	{name: "chain", edges: [][2]int{{0, 1}, {1, 2}, {2, 0}, {0, 1}, {1, 2}, {2, 0}}},
	{name: "lossy", edges: [][2]int{{0, 1}, {1, 2}, {2, 0}, {2, 1}, {0, 1}, {1, 2}, {2, 0}, {2, 1}}, faults: "tx drop 5%; tx dup 5%; rx drop 5% opcode=RC_ATOMIC_ACK"},
}

// TestAtomics: FetchAdd and CmpSwap over a network in memory count like the
// processor's own instructions on the same word, beside them and beside each
// other.
func TestAtomics(t *testing.T) {
	for _, c := range counts {
		t.Run(c.name, func(t *testing.T) {
			network := mem.NewNetwork()
			var devs []*verbs.Context
			for i := range 3 {
				addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
				links, err := network.Attach(mem.Config{Addrs: []netip.Addr{addr}, Shards: 2})
				require.NoError(t, err)
				links = fault.WrapAll(links, fault.Config{Rules: fault.MustParse(c.faults), Seed: uint64(i)})
				d, err := nic.Open(nic.Config{Links: links, GIDs: []verbs.GIDEntry{{GID: verbs.GIDOf(addr), Type: "RoCE v2"}}, NetDev: "mem", Seed: uint64(i + 1)})
				require.NoError(t, err)
				devs = append(devs, verbs.NewContext(d))
			}
			count(t, devs, c.edges, 2, 400, c.faults != "")
		})
	}
}

// tally is the word of one device, and what everybody found there before
// counting one up.
type tally struct {
	dev *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR

	mu  sync.Mutex
	old []uint64
}

func newTally(d *verbs.Context) *tally {
	w := &tally{dev: d, pd: must(d.AllocPD())}
	w.mr = must(w.pd.RegMR(make([]byte, 64), verbs.AccessAll))
	return w
}

func (w *tally) word() *uint64 { return (*uint64)(unsafe.Pointer(&w.mr.Bytes()[0])) }

func (w *tally) add(old []uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.old = append(w.old, old...)
}

// count has every queue pair count n times, half of them by FetchAdd and half
// by CmpSwap, while threads of this program count in the same words in both
// ways. Each value must have been found once, up to the last: no request was
// carried out never, twice, or in the middle of another.
func count(t *testing.T, devs []*verbs.Context, edges [][2]int, shards, n int, lossy bool) {
	if lossy {
		n /= 4
	}
	var words []*tally
	for _, d := range devs {
		words = append(words, newTally(d))
	}
	var remote, local sync.WaitGroup
	var done atomic.Bool
	begin := make(chan struct{})
	for i, e := range edges {
		c := newCounter(t, words[e[0]], words[e[1]], n, i%shards)
		remote.Go(func() {
			<-begin
			if i%2 == 0 {
				c.fetchAdd()
			} else {
				c.cmpSwap()
			}
		})
	}
	for i := range 2 * len(words) {
		w := words[i/2]
		local.Go(func() {
			<-begin
			var old []uint64
			for !done.Load() && len(old) < localCounts {
				v := atomic.LoadUint64(w.word())
				switch {
				case i%2 == 0:
					v = atomic.AddUint64(w.word(), 1) - 1
				case !atomic.CompareAndSwapUint64(w.word(), v, v+1):
					continue
				}
				if old = append(old, v); len(old)%8 == 0 {
					time.Sleep(100 * time.Microsecond) // over all the time that the others take
				}
			}
			w.add(old)
		})
	}
	close(begin)
	remote.Wait()
	done.Store(true)
	local.Wait()
	again := uint64(0)
	for i, w := range words {
		again += must(w.dev.Counters())["repeated_requests"]
		require.NoError(t, w.dev.Close())
		slices.Sort(w.old)
		for k, v := range w.old {
			require.EqualValues(t, k, v, "word %d: the value found %d-th", i, k)
		}
		require.EqualValues(t, len(w.old), *w.word(), "word %d", i)
	}
	if lossy {
		require.Positive(t, again, "no packet was lost")
	}
}

// counter is a program that counts in a word by one queue pair.
type counter struct {
	t    *testing.T
	to   *tally
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR // results
	left int
	wr   verbs.SendWR
}

const (
	countsAtOnce = 8
	localCounts  = 4000 // of one thread at most, lest others never find what they expect
)

func newCounter(t *testing.T, from, to *tally, n, vector int) *counter {
	c := &counter{t: t, to: to, left: n}
	c.cq = must(from.dev.CreateCQ(verbs.CQConfig{Depth: 64, Vector: vector}))
	c.qp = must(from.pd.CreateQP(verbs.QPConfig{SendCQ: c.cq, RecvCQ: c.cq}))
	c.mr = must(from.pd.RegMR(make([]byte, 8*countsAtOnce), verbs.AccessLocalWrite))
	far := must(to.dev.CreateCQ(verbs.CQConfig{Depth: 64}))
	peer := must(to.pd.CreateQP(verbs.QPConfig{SendCQ: far, RecvCQ: far}))
	addr := func(w *tally) netip.Addr { return must(w.dev.GIDs())[0].GID.Addr() }
	here, there := must(c.qp.Endpoint(addr(to))), must(peer.Endpoint(addr(from)))
	o := verbs.DefaultConnectOptions()
	o.MaxRdAtomic, o.MaxDestRdAtomic = 5, 5 // fewer than are posted
	require.NoError(t, c.qp.Connect(here, there, o))
	require.NoError(t, peer.Connect(there, here, o))
	c.wr = verbs.SendWR{RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(), Flags: verbs.SendSignaled}
	return c
}

// run posts n requests, and returns what they found.
func (c *counter) run(n int) (old []uint64) {
	for i := range n {
		c.wr.ID, c.wr.SGL = uint64(i), []verbs.SGE{c.mr.SGE(8*i, 8)}
		must(c.qp.PostSend([]verbs.SendWR{c.wr}))
	}
	var wc [countsAtOnce]verbs.WC
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for len(old) < n {
		k := must(c.cq.Wait(ctx, wc[:]))
		for _, x := range wc[:k] {
			check(x.Err())
			old = append(old, c.mr.Uint64(8*int(x.ID)))
		}
	}
	return old
}

func (c *counter) fetchAdd() {
	c.wr.Opcode, c.wr.CompareAdd = verbs.WRFetchAdd, 1
	for ; c.left > 0; c.left -= countsAtOnce {
		c.to.add(c.run(min(c.left, countsAtOnce)))
	}
}

// cmpSwap swaps until it finds what it expects: each time, what it found last.
func (c *counter) cmpSwap() {
	c.wr.Opcode = verbs.WRCmpSwap
	for v := uint64(0); c.left > 0; runtime.Gosched() {
		c.wr.CompareAdd, c.wr.Swap = v, v+1
		found := c.run(1)[0]
		if found == v {
			c.to.add([]uint64{v})
			c.left--
			found++
		}
		v = found
	}
}

// TestAtomicsBesideCPU: a thread that does nothing else hits the word between
// any two instructions of the device, if there is a gap between them.
func TestAtomicsBesideCPU(t *testing.T) {
	const n = 8000
	begin := func(t *testing.T) (c *counter, word *uint64, end func()) {
		da, db := gorxe.NewPair(gorxe.PairConfig{Seed: 1})
		from, to := newTally(da), newTally(db)
		return newCounter(t, from, to, n, 0), to.word(), func() {
			require.NoError(t, da.Close())
			require.NoError(t, db.Close())
		}
	}
	// beside calls f over and over, until the function that it returns is called.
	beside := func(f func()) (stop func()) {
		var done atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for !done.Load() {
				for range 100 {
					f()
				}
				runtime.Gosched() // the device needs a core too
			}
		})
		return func() { done.Store(true); wg.Wait() }
	}
	t.Run("FetchAdd", func(t *testing.T) {
		c, word, end := begin(t)
		local := uint64(0)
		stop := beside(func() { atomic.AddUint64(word, 1); local++ })
		c.fetchAdd()
		stop()
		end()
		require.Equal(t, local+n, *word)
	})
	// The thread swaps 0 and 1 in, in turn; the device 2, but for 0 only.
	t.Run("CmpSwap", func(t *testing.T) {
		c, word, end := begin(t)
		var local, remote, wrong int
		stop := beside(func() {
			if atomic.SwapUint64(word, 1) == 2 {
				local++
			}
			if atomic.SwapUint64(word, 0) != 1 {
				wrong++
			}
		})
		c.wr.Opcode, c.wr.CompareAdd, c.wr.Swap = verbs.WRCmpSwap, 0, 2
		for ; c.left > 0; c.left -= countsAtOnce {
			for _, found := range c.run(countsAtOnce) {
				if found == 0 {
					remote++
				}
			}
		}
		stop()
		if atomic.LoadUint64(word) == 2 {
			local++
		}
		end()
		require.Zero(t, wrong, "times that the device swapped 1 for 2")
		require.Equal(t, local, remote)
		require.Positive(t, remote)
	})
}
