package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the workload with this seed only")
	leastFlag = flag.Uint64("least", 0, "fail if something that shows a rule was seen fewer times")
	runsFlag  = flag.Int("runs", 3, "seeds of the workload for each network")
)

// world is a network with programs on it.
type world struct {
	t     *testing.T
	s     *Sim
	rng   *rand.Rand
	hosts []*host
	ends  []end
	qps   map[*host][]*verbs.QP
	arriv map[arrival]func(p Packet, h *bth.Packet)
	seen  map[sight]uint64
	stop  bool

	refuses bool // queue pairs fail, and what follows is dropped
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
// have two shards, every other pair of seeds shared receive queues.
func seeds(t *testing.T, name string, cfg Config, start func(*world)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		first, n := uint64(1), *runsFlag
		if *seedFlag != 0 {
			first, n = *seedFlag, 1
		}
		for seed := first; seed < first+uint64(n); seed++ {
			cfg := cfg
			cfg.Seed = seed
			run(t, cfg, start)
		}
	})
}

func run(t *testing.T, cfg Config, start func(*world)) {
	t.Logf("go test ./sim -run '%s' -seed %d", t.Name(), cfg.Seed)
	w := &world{t: t, seen: map[sight]uint64{}, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), qps: map[*host][]*verbs.QP{}, arriv: map[arrival]func(Packet, *bth.Packet){}}
	var err error
	w.s, err = New(cfg)
	require.NoError(t, err)
	defer w.s.Close()
	done := false
	defer func() { covered.add(w, !done) }()
	for range 2 + w.rng.IntN(2) {
		n, err := w.s.Add(NodeConfig{Shards: 1 + int(cfg.Seed%2)})
		require.NoError(t, err)
		h := newHost(t, n, w.rng, cfg.Seed&2 != 0)
		h.seen = w.seen
		n.OnStep = w.work
		w.hosts = append(w.hosts, h)
	}
	w.s.Watch(w.watch)
	start(w)
	w.supply()
	w.work()
	if !w.s.RunUntil(w.finished, time.Minute) {
		for _, e := range w.ends {
			t.Log(e)
		}
		t.Fatalf("not finished at %v", w.s.Now())
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
	done = true
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
	var h bth.Packet
	if r := bth.Parse(p.Data, &h); r != trace.None {
		w.t.Fatalf("a NIC sent what is no packet: %v", r)
	}
	f(p, &h)
}

// account checks that nothing is missing that nobody counted: each packet that
// a NIC sent was lost by the network, as that counts, or reached a NIC; each
// that reached one is broken, as that counts, or reached its queue pair.
func (w *world) account() {
	c := w.s.Counts()
	var sent, rcvd, short, again uint64
	for _, h := range w.hosts {
		m, err := h.node.Ctx.Counters()
		require.NoError(w.t, err)
		sent += m["sent_pkts"]
		rcvd += m["link_rx_packets"]
		short += m["link_tx_short"]
		again += m["completer_retry_err"]
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
	if !w.refuses && (w.s.cfg.Faults == "" || w.s.cfg.Faults == dupFaults) {
		require.Zero(w.t, again, "requests sent again, though nothing was lost")
	}
	require.Equal(w.t, Counts{Sent: sent, Copied: c.Copied, Lost: c.Lost, Arrived: sent + c.Copied - c.Lost}, c)
	require.Equal(w.t, c.Arrived, rcvd)
	require.Equal(w.t, w.s.cfg.Queue > 0, short > 0, "ports that took less than was offered")
}

// octets says where two runs of octets differ.
func octets(want, got []byte) string {
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	return fmt.Sprintf("%d octets, want %d, they differ from octet %d on", len(got), len(want), i)
}
