package sim

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/nic"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// recorded is how many trace events a shard keeps.
const recorded = 512

// DefaultWindow is NodeConfig.Window of a node that is given none.
const DefaultWindow = 512

// Node is one host: a NIC and its port.
type Node struct {
	NIC  *nic.NIC
	Ctx  *verbs.Context
	Addr netip.Addr // IPv4, GID index 0; index 1 is IPv6

	// OnStep, if set, is called after each step of the NIC: the place for a
	// program that polls.
	OnStep func()

	Name string

	sim   *Sim
	index int
	port  *Port // to a switch, or nil
	queue int   // octets that wait there
	lanes []*lane
	inj   Judge
	holds [2]*fault.Hold[held] // by direction, made when needed
	due   [2]int64             // when a release event comes
	line  int64                // when the line has sent all it has
	odd   []byte               // a packet that a fault hit

	window int
	burst  int
}

// held is what a packet that a fault holds needs besides its octets.
type held struct {
	d    datagram
	lane *lane // of rx: where it goes
	more int   // copies besides the first
}

// lane is one shard of a node and its link: a link.Link, link.GroupJoiner and
// link.StatsReader.
type lane struct {
	node  *Node
	shard int
	at    int64    // when a step event comes
	in    []*event // arrived
	lent  []*event // given by the last Recv
	stats link.Stats
	down  bool

	blocked bool // found the port's queue full
}

// NodeConfig describes a node. Its zero value is a good one.
type NodeConfig struct {
	Shards int    // (1)
	Faults string // in place of the network's
	Judge  Judge  // in place of rules

	Name string // (rxe0, rxe1 and so on)
	// Switch is where the node's Line leads to, in a network with switches.
	Switch *Switch
	Line   Line
	// Queue is how many octets of data wait for the Line at most: a port whose
	// queue is full takes no more packets until half of it is sent.
	// (DefaultPortQueue)
	Queue int
	// Window is how many packets in flight the node's receive buffer is taken to
	// bear. (DefaultWindow)
	Window int
	// Burst is how many packets the NIC hands over at once at most: a NIC in
	// hardware paces each, this one bursts. (wire.MaxSegments)
	Burst int
	// CC is the congestion control of the NIC. (cc.Default)
	CC *cc.Config
}

// Judge decides what becomes of each packet that a node sends (trace.Tx) or
// receives (trace.Rx), BTH to ICRC: what fault.Injector does by rules. It is
// asked in the order in which packets pass, with nanoseconds since the start,
// and must not keep pkt. A packet that it leaves alone has the zero Effects; one
// that it holds leaves at Release.
type Judge interface {
	Process(now int64, dir trace.Dir, pkt []byte, n int) fault.Decision
}

// Add adds a node: number i has the addresses 10.i and fd00::i+1.
func (s *Sim) Add(cfg NodeConfig) (*Node, error) {
	i := len(s.nodes)
	n := &Node{sim: s, index: i, Name: cfg.Name, window: cmp.Or(cfg.Window, DefaultWindow), burst: cmp.Or(cfg.Burst, wire.MaxSegments), Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).Next(), due: [2]int64{never, never}}
	six := netip.AddrFrom16([16]byte{0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}).Next()
	rules := s.rules
	if cfg.Faults != "" {
		var err error
		if rules, err = fault.Parse(cfg.Faults); err != nil {
			return nil, fmt.Errorf("sim: faults: %w", err)
		}
	}
	switch {
	case cfg.Judge != nil:
		n.inj = cfg.Judge
	case len(rules) > 0:
		n.inj = fault.NewInjector(s.cfg.Seed+uint64(i)<<16, 0, rules)
	}
	if n.Name == "" {
		n.Name = fmt.Sprintf("rxe%d", i)
	}
	if err := n.plug(&cfg); err != nil {
		return nil, err
	}
	var links []link.Link
	for shard := range max(1, cfg.Shards) {
		l := &lane{node: n, shard: shard, at: never}
		n.lanes = append(n.lanes, l)
		links = append(links, l)
	}
	d, err := nic.Open(nic.Config{
		Name: fmt.Sprintf("rxe%d", i), Links: links, NetDev: fmt.Sprintf("sim%d", i), Seed: s.cfg.Seed + uint64(i)<<32 + 1,
		GIDs: []verbs.GIDEntry{
			{Index: 0, GID: verbs.GIDOf(n.Addr), Type: "RoCE v2", Interface: fmt.Sprintf("sim%d", i)},
			{Index: 1, GID: verbs.GIDOf(six), Type: "RoCE v2", Interface: fmt.Sprintf("sim%d", i)},
		},
		SpeedMbit: int(cfg.Line.Rate / 1e6),
		CC:        cfg.CC, Manual: true, Clock: func() int64 { return s.now }, Kick: func(shard int) { n.lanes[shard].stepAt(s.now) }, Recorder: recorded,
	})
	if err != nil {
		return nil, err
	}
	n.NIC, n.Ctx = d, verbs.NewContext(d)
	if n.port != nil {
		if err := cfg.Switch.grow(n.port.peer); err != nil {
			return nil, err
		}
	}
	s.nodes = append(s.nodes, n)
	s.net.add(n, n.Addr, six)
	return n, nil
}

// Faults returns what the node's rules did.
func (n *Node) Faults() []fault.RuleStats {
	if inj, ok := n.inj.(*fault.Injector); ok {
		return inj.Stats()
	}
	return nil
}

// Trace returns what the node's recorders hold, shard by shard.
func (n *Node) Trace() (ev []trace.Event) {
	for i := range n.lanes {
		ev = append(ev, n.NIC.Trace(i)...)
	}
	return ev
}

// stepAt makes sure that the shard is stepped at a time, or before.
func (l *lane) stepAt(at int64) {
	if at >= l.at {
		return
	}
	l.at = at
	e := l.node.sim.events.get(0)
	e.kind, e.lane = evStep, l
	l.node.sim.events.push(at, e)
}

func (l *lane) step(at int64) {
	if at != l.at {
		return // another event came in between and moved it
	}
	l.at = never
	if d := l.node.NIC.Step(l.shard, at); d != never {
		l.stepAt(max(d, at))
	}
	if l.node.OnStep != nil {
		l.node.OnStep()
	}
}

// Info describes the port as a link.
func (l *lane) Info() link.Info {
	c := &l.node.sim.cfg
	return link.Info{
		Name: "sim", Exact4: !c.HideIDs, Exact6: true, IDs: wire.IDCount,
		MaxSegments: l.node.burst, MaxBytes: wire.MaxBurstBytes, MaxBursts: 2, Window: l.node.window, MTU: c.MTU,
	}
}

// Recv gives what has arrived.
func (l *lane) Recv(ds []wire.Datagram) (int, error) {
	for _, e := range l.lent {
		l.node.sim.events.put(e)
	}
	l.lent = l.lent[:0]
	if l.down {
		return 0, link.ErrClosed
	}
	n := min(len(ds), len(l.in))
	for i, e := range l.in[:n] {
		ds[i] = e.d.Datagram
		l.stats.RxPackets += uint64(e.d.Segments())
		l.stats.RxBytes += uint64(len(e.d.Payload))
	}
	l.lent = append(l.lent, l.in[:n]...)
	l.in = l.in[:copy(l.in, l.in[n:])]
	return n, nil
}

// Send puts bursts on the line, as far as its queue has room.
func (l *lane) Send(bs []*wire.Burst) (int, error) {
	if l.down {
		return 0, link.ErrClosed
	}
	n := 0
	for _, b := range bs {
		k := l.node.fits(b)
		if k > 0 {
			n += k
			l.stats.TxPackets += uint64(k)
			for _, s := range b.Segs[:k] {
				l.stats.TxBytes += uint64(s.Len)
			}
			l.node.send(b, k)
		}
		if k < b.Len() {
			l.stats.TxShort++
			l.blockedBy(b.Segs[k].Len)
			break
		}
	}
	return n, nil
}

// fits returns how many segments of a burst the queue of the line has room for.
// A packet that is longer than the queue is taken when it is empty.
func (n *Node) fits(b *wire.Burst) int {
	if n.port != nil {
		return n.takes(b)
	}
	c := &n.sim.cfg
	if c.Queue == 0 {
		return b.Len()
	}
	waiting := max(0, n.line-n.sim.now) * c.Rate / (8 * 1e9)
	for k, s := range b.Segs {
		if waiting > 0 && waiting+int64(s.Len) > int64(c.Queue) {
			return k
		}
		waiting += int64(s.Len)
	}
	return b.Len()
}

// roomAt returns when half of the line's queue will be empty and a packet of so
// many octets fits: later than now.
func (n *Node) roomAt(octets int) int64 {
	c := &n.sim.cfg
	left := max(0, min(c.Queue/2, c.Queue-octets))
	return max(n.sim.now+1, n.line-int64(left)*8*1e9/c.Rate)
}

// Wait is never called: a manual NIC does not wait.
func (l *lane) Wait(time.Duration) error { return nil }

// Wake does nothing.
func (l *lane) Wake() {}

// Close takes the port down, and out of its groups.
func (l *lane) Close() error {
	l.down = true
	for g := range l.node.sim.net.groups {
		l.node.sim.net.leave(l, g)
	}
	return nil
}

// Stats returns the port's counters.
func (l *lane) Stats() link.Stats { return l.stats }

// Conn says how two queue pairs are connected. Its zero value is a good one.
type Conn struct {
	Options verbs.ConnectOptions
	GID     int // index: 0 IPv4, 1 IPv6
	// PSN, if not 0, is the first of both directions in place of random ones.
	PSN uint32
}

// Connect takes two queue pairs of two nodes to RTS.
func Connect(a, b *Node, qa, qb *verbs.QP, c Conn) error {
	ea, err := endpoint(a, qa, &c)
	if err != nil {
		return err
	}
	eb, err := endpoint(b, qb, &c)
	if err != nil {
		return err
	}
	if err := qa.Connect(ea, eb, c.Options); err != nil {
		return err
	}
	return qb.Connect(eb, ea, c.Options)
}

func endpoint(n *Node, q *verbs.QP, c *Conn) (verbs.Endpoint, error) {
	gids, err := n.Ctx.GIDs()
	if err != nil {
		return verbs.Endpoint{}, err
	}
	if c.GID < 0 || c.GID >= len(gids) {
		return verbs.Endpoint{}, fmt.Errorf("sim: GID index %d: there are 0 and 1", c.GID)
	}
	e, err := q.Endpoint(gids[c.GID].GID.Addr())
	if c.PSN != 0 {
		e.PSN = c.PSN
	}
	return e, err
}
