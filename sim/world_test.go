package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

var (
	replayFlag = flag.String("replay", "", "run this scenario only, as a failed run printed it, and tell what happens")
	shrinkFlag = flag.Duration("shrink", time.Minute, "how long to look for less that fails in the same way")
	seedFlag   = flag.Uint64("seed", 0, "run the workload with this seed only")
	leastFlag  = flag.Uint64("least", 0, "fail if something that shows a rule was seen fewer times")
	runsFlag   = flag.Int("runs", 3, "seeds of the workload for each network")
)

// world is a network with programs on it.
type world struct {
	t     tester
	c     scenario
	s     *Sim
	rng   *rand.Rand // for what is drawn before the start
	mem   *memory
	size  int // of the longest message
	plans []*plan
	carry map[bth.QPN]carrier
	hosts []*host
	ends  []end
	qps   map[*host][]*verbs.QP
	arriv map[arrival]func(p Packet, h *bth.Packet)
	head  bth.Packet // that arrives
	seen  map[sight]uint64
	stop  bool

	record bool  // write down
	hits   []hit // what rules do
	passes func(key)
	log    func(string, ...any)

	again   uint64 // times that requesters went back
	refuses bool   // queue pairs fail, and what follows is dropped
}

// arrival is where a packet that arrives is looked at: the model's view of a
// queue pair.
type arrival struct {
	node *Node
	qpn  bth.QPN
}

// end is a program with one queue pair.
type end interface {
	work()          // polls, and posts what it may
	supply()        // posts receive requests, every 300 us
	finished() bool // has nothing more to do or to wait for
	verify()        // when all is quiet
	empty()         // after its queue pair was flushed
	String() string
}

func (w *world) add(h *host, q *verbs.QP, e end) {
	w.ends = append(w.ends, e)
	w.qps[h] = append(w.qps[h], q)
}

// seeds runs programs, which start makes, on a network for each seed. Odd seeds
// have more than one shard, every other pair of seeds shared receive queues.
func seeds(t *testing.T, name string, cfg Config, start func(*world)) {
	t.Run(name, func(t *testing.T) {
		if *replayFlag != "" {
			replay(t, cfg, start)
			return
		}
		t.Parallel()
		first, n := uint64(1), *runsFlag
		if *seedFlag != 0 {
			first, n = *seedFlag, 1
		}
		for seed := first; seed < first+uint64(n); seed++ {
			c := scenario{name: t.Name(), seed: seed, size: maxLen}
			w, v := play(cfg, c, start, &trial{}, nil)
			covered.add(w, v != nil)
			if v != nil {
				explain(t, cfg, c, v, start)
			}
		}
	})
}

// explain fails the test and tells how to see the violation again, with as
// little around it as can be found out in time.
func explain(t *testing.T, cfg Config, c scenario, v *violation, start func(*world)) {
	again := func(flags string) string {
		return fmt.Sprintf("go test ./sim -run '%s$' %s", strings.ReplaceAll(t.Name(), "/", "$/"), flags)
	}
	t.Logf("violation with seed %d, faults %q: %v\n%s", c.seed, cfg.Faults, v, again(fmt.Sprintf("-seed %d", c.seed)))
	small, ok := shrunk(cfg, c, start, *shrinkFlag)
	if !ok {
		t.Fatal("it does not come again with the same requests and the faults that happened")
	}
	t.Fatalf("shrunk to %d requests and %d faults:\n%s", len(small.picks), len(small.hits), again("-replay '"+small.String()+"'"))
}

// replay runs the scenario of the flag, if it is one of this test, and tells
// what happens.
func replay(t *testing.T, cfg Config, start func(*world)) {
	c, err := parseScenario(*replayFlag)
	require.NoError(t, err)
	if c.name != t.Name() {
		return
	}
	if _, v := play(cfg, c, start, &trial{tell: true}, nil); v != nil {
		t.Fatal(v)
	}
}

// play runs a scenario, and returns what it finds wrong. change may alter the
// world before anything is in it.
func play(cfg Config, c scenario, start func(*world), t *trial, change func(*world)) (*world, *violation) {
	cfg.Seed = c.seed
	c.faults = make(map[key]fault.Decision, len(c.hits))
	for _, h := range c.hits {
		c.faults[h.key] = h.do
	}
	w := &world{
		t: t, c: c, seen: map[sight]uint64{}, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), mem: takeMemory(), size: c.size,
		qps: map[*host][]*verbs.QP{}, arriv: map[arrival]func(Packet, *bth.Packet){}, carry: map[bth.QPN]carrier{},
	}
	if t.tell {
		w.log = t.Logf
	}
	if change != nil {
		change(w)
	}
	v := try(func() { w.run(cfg, start) })
	w.tally()
	if w.s != nil {
		w.s.Close()
	}
	w.mem.giveBack()
	return w, v
}

func (w *world) run(cfg Config, start func(*world)) {
	t := w.t
	var err error
	w.s, err = New(cfg)
	require.NoError(t, err)
	for range 2 + w.rng.IntN(2) {
		nc := NodeConfig{Shards: 1}
		if cfg.Seed%2 == 1 {
			nc.Shards += 1 + w.rng.IntN(3)
		}
		if w.c.exact || w.record && cfg.Faults != "" {
			x := &exact{w: w, seen: map[key]int{}}
			if !w.c.exact {
				x.rules = fault.NewInjector(cfg.Seed+uint64(len(w.hosts))<<16, 0, w.s.rules)
			}
			nc.Judge = x
		}
		n, err := w.s.Add(nc)
		require.NoError(t, err)
		n.OnStep = w.work
		w.hosts = append(w.hosts, newHost(w, n, cfg.Seed&2 != 0))
	}
	w.s.Watch(w.watch)
	start(w)
	w.supply()
	w.work()
	if !w.s.RunUntil(w.finished, time.Minute) {
		for _, e := range w.ends {
			if !e.finished() {
				t.Fatalf("not finished at %v: %v", w.s.Now(), e)
			}
		}
	}
	w.stop = true
	w.s.Run(w.s.Now() + time.Second) // late packets must do no harm
	w.work()
	for _, e := range w.ends {
		e.verify()
	}
	w.account()
	for _, h := range w.hosts {
		h.stop(w.qps[h], w.work)
	}
	for _, e := range w.ends {
		e.empty()
	}
}

// tally adds what counters show to what was seen.
func (w *world) tally() {
	for _, h := range w.hosts {
		m, err := h.node.Ctx.Counters()
		if err != nil {
			continue // its device failed
		}
		for name, s := range counted {
			w.seen[s] += m[name]
		}
	}
}

func (w *world) logf(format string, args ...any) {
	if w.log != nil {
		w.log(format, args...)
	}
}

// see has a function called for every whole packet that reaches a queue pair.
func (w *world) see(n *Node, q *verbs.QP, f func(Packet, *bth.Packet)) {
	k := arrival{n, bth.QPN(q.QPN())}
	if g := w.arriv[k]; g != nil {
		w.arriv[k] = func(p Packet, h *bth.Packet) { g(p, h); f(p, h) }
		return
	}
	w.arriv[k] = f
}

// note counts something that a rule is exercised by, if it is there.
func (w *world) note(s sight, there bool) {
	if there {
		w.seen[s]++
	}
}

func (w *world) work() {
	for _, e := range w.ends {
		e.work()
	}
	for _, h := range w.hosts {
		h.events()
	}
}

func (w *world) supply() {
	if w.stop {
		return
	}
	for _, e := range w.ends {
		e.supply()
	}
	w.s.After(300*time.Microsecond, w.supply)
}

func (w *world) finished() bool {
	for _, e := range w.ends {
		if !e.finished() {
			return false
		}
	}
	return true
}

// watch shows every packet that arrives whole to the model of its queue pair.
func (w *world) watch(p Packet) {
	if p.Hit.Has(fault.Corrupt) {
		for _, h := range w.hosts {
			if h.node == p.Node {
				h.broken++
			}
		}
		return
	}
	class := bth.BTH(p.Data).Opcode().Info().Class
	if unreliable := class == bth.UC || class == bth.UD; unreliable {
		w.note(seenUnreliable, true)
		require.False(w.t, bth.BTH(p.Data).AckReq(), "AckReq in a packet of UC or UD")
	}
	f := w.arriv[arrival{p.Node, bth.BTH(p.Data).DestQP()}]
	if f == nil {
		return
	}
	h := &w.head
	if r := bth.Parse(p.Data, h); r != trace.None {
		w.t.Fatalf("a NIC sent what is no packet: %v", r)
	}
	f(p, h)
}

// account checks that nothing is missing that nobody counted: each packet that
// a NIC sent was lost by the network, as that counts, or reached a NIC; each
// that reached one is broken, as that counts, or reached its queue pair.
func (w *world) account() {
	c := w.s.Counts()
	var sent, rcvd, short, broken uint64
	for _, h := range w.hosts {
		m, err := h.node.Ctx.Counters()
		require.NoError(w.t, err)
		sent += m["sent_pkts"]
		rcvd += m["link_rx_packets"]
		short += m["link_tx_short"]
		w.again += m["completer_retry_err"]
		broken += h.broken
		require.Equal(w.t, h.broken, m["icrc_error"]+m["icrc_id_window"], "broken packets of %s", h.node.Addr)
		for _, r := range []trace.Reason{
			trace.DropShort, trace.DropOpcode, trace.DropTVer, trace.DropQPN, trace.DropClass, trace.DropState, trace.DropAddress,
			trace.DropPKey, trace.DropLength, trace.DropOverflow, trace.DropGroup, trace.DropLoopback, trace.DropUnsupported,
		} {
			if r != trace.DropState || !w.refuses {
				require.Zero(w.t, m[r.String()], "%v at %s", r, h.node.Addr)
			}
		}
		require.Equal(w.t, m["link_rx_packets"]+m["hairpin_pkts"], h.broken+m["rcvd_pkts"]+m["bad_qkey"]+m[trace.DropState.String()], "packets of %s", h.node.Addr)
	}
	// A packet that is overtaken costs two restarts at most: it fills its gap
	// after all, behind what the responder has dropped for it by then.
	if trouble := c.Lost + broken + 2*c.Held; !w.refuses && w.again > trouble {
		w.t.Fatalf("%d times requests were sent again, though only %d packets were lost, %d broken and %d held", w.again, c.Lost, broken, c.Held)
	}
	require.Equal(w.t, Counts{Sent: sent, Copied: c.Copied, Lost: c.Lost, Held: c.Held, Arrived: sent + c.Copied - c.Lost}, c)
	require.Equal(w.t, c.Arrived, rcvd)
	require.True(w.t, w.c.exact || w.s.cfg.Queue > 0 == (short > 0), "ports that took less than was offered")
}

// octets says where two runs of octets differ.
func octets(want, got []byte) string {
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	return fmt.Sprintf("%d octets, want %d, they differ from octet %d on", len(got), len(want), i)
}
