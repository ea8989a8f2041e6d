package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// ten is a line of 10 Gb/s: 1000 octets take 800 ns.
var ten = Line{Rate: 10e9, Delay: time.Microsecond}

const (
	dataTOS    = wire.ECNECT0
	controlTOS = controlDSCP<<2 | wire.ECNECT0
)

func newSim(t testing.TB, cfg Config) *Sim {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func star(t testing.TB, s *Sim, topo Topology, n int) []*Node {
	t.Helper()
	hosts, err := topo.Star(s, n)
	require.NoError(t, err)
	return hosts
}

// packet returns one of so many octets, with its headers, that no NIC sent and
// none takes.
func packet(from, to *Node, tos uint8, octets int) *event {
	n := octets - headers(true)
	e := from.sim.events.get(n)
	e.buf = e.buf[:n]
	clear(e.buf)
	e.d.Datagram = wire.Datagram{Src: from.Addr, Dst: to.Addr, TOS: tos, TTL: 64, Payload: e.buf}
	return e
}

// put has a node send it.
func put(from, to *Node, tos uint8, octets int) {
	from.sim.net.counts.Sent++
	from.port.enqueue(packet(from, to, tos, octets))
}

// every calls f at regular times, the first now.
func every(s *Sim, d time.Duration, times int, f func()) {
	for i := range times {
		s.After(time.Duration(i)*d, f)
	}
}

// A packet is on each line for its length and its delay, and the next begins when
// it has been sent: store and forward. Fractions of a nanosecond add up.
func TestStoreAndForward(t *testing.T) {
	for _, c := range []struct {
		line   Line
		octets int
		each   float64 // nanoseconds
	}{
		{ten, 1000, 800},
		{Line{Rate: 40e9, Delay: 500 * time.Nanosecond}, 1087, 217.4},
		{Line{Rate: 100e9}, 64, 5.12},
		{Line{Rate: 1e6, Delay: time.Millisecond}, 1500, 12e6},
	} {
		s := newSim(t, Config{})
		h := star(t, s, Topology{Line: c.line}, 2)
		var at []int64
		s.Watch(func(p Packet) { at = append(at, p.Time) })
		const n = 1000
		for range n {
			put(h[0], h[1], dataTOS, c.octets)
		}
		s.Run(time.Minute)
		require.Len(t, at, n)
		first := 2*c.each + 2*float64(c.line.Delay)
		require.InDelta(t, first, at[0], 2)
		require.InDelta(t, first+(n-1)*c.each, at[n-1], 2)
	}
}

// Two lines at full rate into one of the same rate: the queue grows at that rate,
// to the packet, until the buffer is full, and then what comes is lost but for what
// leaves. Nothing else gets lost.
func TestTwoIntoOne(t *testing.T) {
	const buffer, octets = 1_000_000, 1000
	s := newSim(t, Config{})
	h := star(t, s, Topology{Line: ten, Switch: SwitchConfig{Buffer: buffer}}, 3)
	out := s.switches[0].Ports()[2]
	const n = 5000
	for range n {
		put(h[0], h[2], dataTOS, octets)
		put(h[1], h[2], dataTOS, octets)
	}
	begin := 800*time.Nanosecond + ten.Delay // when the first packets are in the switch
	for at := 100 * time.Microsecond; at <= 700*time.Microsecond; at += 100 * time.Microsecond {
		s.Run(begin + at)
		require.InDelta(t, at.Seconds()*10e9/8, out.Stats().Queue, 2*octets, "after %v", at)
		require.Equal(t, out.Stats().Queue, s.switches[0].Used())
	}
	require.Zero(t, out.Stats().Dropped)
	s.Run(time.Second)
	require.LessOrEqual(t, out.Stats().MaxQueue, buffer)
	require.Greater(t, out.Stats().MaxQueue, buffer-octets)
	// n packets of each come in within n packet times, in which n leave; what the
	// buffer holds then leaves too.
	require.InDelta(t, n-buffer/octets, out.Stats().Dropped, 3)
	c := s.Counts()
	require.Equal(t, Counts{Sent: 2 * n, Dropped: out.Stats().Dropped, Arrived: 2*n - out.Stats().Dropped}, c)
	require.EqualValues(t, c.Arrived, out.Stats().Packets)
	require.EqualValues(t, c.Arrived*octets, out.Stats().Octets)
	require.Zero(t, s.switches[0].Used())
}

// Poisson arrivals at a port: M/D/1. By Pollaczek and Khinchine rho^2/2(1-rho)
// packets wait on average.
func TestMD1(t *testing.T) {
	for _, rho := range []float64{0.3, 0.6, 0.8} {
		s := newSim(t, Config{})
		h := star(t, s, Topology{Line: ten, Switch: SwitchConfig{Buffer: 1 << 30}}, 2)
		sw := s.switches[0]
		rng := rand.New(rand.NewPCG(7, uint64(rho*10)))
		const n, octets, each = 400_000, 1000, 800.0
		left := n
		var next func()
		next = func() {
			sw.receive(sw.ports[0], packet(h[0], h[1], dataTOS, octets))
			if left--; left > 0 {
				s.After(time.Duration(rng.ExpFloat64()*each/rho), next)
			}
		}
		next()
		require.True(t, s.RunUntil(func() bool { return left == 0 }, time.Hour))
		got := sw.ports[1].Stats().MeanQueue(PortStats{}, s.Now()) / octets
		want := rho * rho / 2 / (1 - rho)
		require.InEpsilon(t, want, got, 0.04, "load %v", rho)
	}
}

// A port whose queue stays as long as it is marks as many packets as RED says, by
// the queue that a packet leaves behind or finds. What is not ECN-capable, and
// control, is not marked.
func TestRED(t *testing.T) {
	red := cc.RED{Kmin: 5000, Kmax: 105_000, Pmax: 0.2}
	const octets, n = 1000, 20_000
	for _, at := range []MarkPoint{MarkDequeue, MarkEnqueue} {
		for _, queue := range []int{4, 5, 6, 25, 55, 105, 107} {
			s := newSim(t, Config{Seed: uint64(queue)})
			h := star(t, s, Topology{Line: ten, Switch: SwitchConfig{Red: &red, MarkAt: at}}, 2)
			sw := s.switches[0]
			give := func(tos uint8) func() {
				return func() { sw.receive(sw.ports[0], packet(h[0], h[1], tos, octets)) }
			}
			out := sw.ports[1]
			for range queue + 1 { // one is on the line
				give(wire.ECNNotECT)()
			}
			require.Equal(t, queue*octets, out.Stats().Queue)
			// One comes just before the line is free, so that it finds a queue of as
			// many, and one leaves those and not itself.
			s.After(790, func() { every(s, 800, n+queue, give(wire.ECNECT1)) })
			total := float64(n)
			if at == MarkEnqueue {
				total += float64(queue)
			}
			s.Run(800*(n+time.Duration(queue)) + 1)
			p, sigma := red.Probability(queue*octets), 0.0
			sigma = math.Sqrt(total * p * (1 - p))
			require.InDelta(t, p*total, out.Stats().Marked, 4*sigma, "%v octets", queue*octets)
			before := out.Stats().Marked
			for range 200 {
				give(controlTOS)()
				give(wire.ECNNotECT)()
			}
			s.Run(time.Second)
			require.InDelta(t, before, out.Stats().Marked, float64(queue)) // of what waited
		}
	}
}

// A mark is CE, and what has come so is not counted again.
func TestMark(t *testing.T) {
	s := newSim(t, Config{})
	h := star(t, s, Topology{Line: ten, Switch: SwitchConfig{Red: &cc.RED{}}}, 2)
	var tos []uint8
	s.Watch(func(p Packet) { tos = append(tos, p.TOS) })
	sw := s.switches[0]
	for _, v := range []uint8{26<<2 | wire.ECNECT0, 26<<2 | wire.ECNCE, wire.ECNNotECT, controlTOS, wire.ECNECT1, wire.ECNECT0} {
		sw.receive(sw.ports[0], packet(h[0], h[1], v, 1000))
	}
	s.Run(time.Second)
	// The first leaves nothing behind it, nor does the last.
	require.Equal(t, []uint8{26<<2 | wire.ECNECT0, controlTOS, 26<<2 | wire.ECNCE, 0, wire.ECNCE, wire.ECNECT0}, tos)
	require.EqualValues(t, 1, sw.ports[1].Stats().Marked)
}

// overload has two hosts send to a third at full rate, whose line stands still at
// first, and returns how many of 2n packets were lost, and the most that a headroom
// held.
func overload(t *testing.T, l Line, f *PFC, octets, n int) (s *Sim, lost uint64, head int) {
	s = newSim(t, Config{})
	h := star(t, s, Topology{Line: l, Switch: SwitchConfig{Buffer: 1_000_000, PFC: f}}, 3)
	for range n {
		put(h[0], h[2], dataTOS, octets)
		put(h[1], h[2], dataTOS, octets)
	}
	out := h[2].port.peer
	out.pause(true)
	s.After(10*time.Millisecond, func() { out.pause(false) })
	s.WatchPorts(func(e PortEvent) {
		if e.Kind == PortQueued && e.Port == out {
			head = max(head, s.switches[0].ports[0].head, s.switches[0].ports[1].head)
		}
	})
	s.Run(time.Second)
	c := s.Counts()
	require.EqualValues(t, 2*n, c.Arrived+c.Dropped)
	require.Zero(t, s.switches[0].Used())
	for _, p := range s.switches[0].ports {
		require.False(t, p.asked || p.peer.paused, "paused though there is nothing")
	}
	return s, c.Dropped, head
}

// With the headroom that Line says nothing is lost, wherever the threshold is and
// however long the line; it is not much more than is needed, and with none there
// are losses.
func TestPFC(t *testing.T) {
	for _, l := range []Line{ten, {Rate: 10e9, Delay: 10 * time.Microsecond}, {Rate: 40e9, Delay: 1500 * time.Nanosecond}, {Rate: 10e9}} {
		for _, octets := range []int{128, 1087, 4196} {
			for _, xoff := range []int{0, 20_000, 200_000} {
				name := fmt.Sprintf("%v, %d octets, xoff %d", l, octets, xoff)
				room := l.Headroom(octets)
				s, lost, head := overload(t, l, &PFC{XOFF: xoff, Headroom: room}, octets, 1_000_000/octets)
				require.Zero(t, lost, name)
				require.LessOrEqual(t, head, room, name)
				require.Greater(t, head, room-2*octets, name)
				a, b := s.nodes[0].port.Stats(), s.nodes[1].port.Stats()
				require.Positive(t, a.Pauses, name)
				require.Positive(t, b.Pauses, name)
				if l.Delay > 0 {
					_, lost, head = overload(t, l, &PFC{XOFF: xoff}, octets, 1_000_000/octets)
					require.Positive(t, lost, name)
					require.Zero(t, head, name)
				}
			}
		}
	}
	// With hardly a threshold one port takes all of the shared part, and the other
	// has its headroom alone. It goes on only when that is empty.
	_, lost, head := overload(t, ten, &PFC{Alpha: 64, Headroom: ten.Headroom(1000)}, 1000, 1000)
	require.Zero(t, lost)
	require.LessOrEqual(t, head, ten.Headroom(1000))

	_, lost, _ = overload(t, ten, nil, 1000, 4000)
	require.EqualValues(t, 2*4000-1000, lost)
}

// A pause goes from switch to switch until it reaches who sends too much, and each
// comes a line's delay after the queue at the next has grown. Whoever shares a line
// on the way stands still too.
func TestPauseSpreads(t *testing.T) {
	s := newSim(t, Config{})
	l := Line{Rate: 10e9, Delay: 2 * time.Microsecond}
	hosts, err := Topology{Line: l, Trunk: Line{Rate: 40e9, Delay: l.Delay}, Switch: SwitchConfig{PFC: &PFC{XOFF: 50_000, Headroom: 4 * l.Headroom(1000)}}}.ParkingLot(s, 3, 2)
	require.NoError(t, err)
	to := hosts[2][0]
	var paused []string
	var at []int64
	s.WatchPorts(func(e PortEvent) {
		if e.Kind == PortPaused && e.Port.stats.Pauses == 1 {
			paused, at = append(paused, e.Port.String()), append(at, e.Time)
		}
	})
	for range 2000 {
		put(hosts[0][0], to, dataTOS, 1000)
		put(hosts[2][1], to, dataTOS, 1000)
		put(hosts[0][1], hosts[1][0], dataTOS, 500) // goes elsewhere
	}
	s.Run(time.Second)
	require.Zero(t, s.Counts().Dropped)
	require.Contains(t, paused, "h1.1>s1")
	require.Contains(t, paused, "h1.2>s1", "the victim")
	require.Less(t, indexOf(paused, "s2>s3"), indexOf(paused, "s1>s2"))
	require.Less(t, indexOf(paused, "s1>s2"), indexOf(paused, "h1.1>s1"))
	require.NotContains(t, paused, "s3>h3.1")
	// Of what goes to h3.1, a half comes over the trunk, and 50000 octets of that
	// stay behind: more than half as long as it took to send 100000.
	require.Greater(t, at[indexOf(paused, "s2>s3")], int64(80_000))
}

func indexOf(in []string, s string) int {
	for i, v := range in {
		if v == s {
			return i
		}
	}
	return -1
}

// Control packets go before all data that waits, and while data is paused.
func TestControlGoesFirst(t *testing.T) {
	s := newSim(t, Config{})
	h := star(t, s, Topology{Line: ten}, 2)
	var seen []bool
	s.Watch(func(p Packet) { seen = append(seen, isControl(p.TOS)) })
	h[0].port.pause(true)
	put(h[0], h[1], dataTOS, 1000)
	put(h[0], h[1], controlTOS, 100)
	s.Run(10 * time.Microsecond)
	require.Equal(t, []bool{true}, seen)
	require.EqualValues(t, 10*time.Microsecond, h[0].port.Stats().Paused)
	h[0].port.pause(false)
	put(h[0], h[1], dataTOS, 1000)
	put(h[0], h[1], controlTOS, 100)
	s.Run(20 * time.Microsecond)
	require.Equal(t, []bool{true, false, true, false}, seen)
}

// What a network with switches does not have is refused, in words.
func TestSwitchRefuses(t *testing.T) {
	s := newSim(t, Config{})
	sw, err := s.AddSwitch(SwitchConfig{})
	require.NoError(t, err)
	_, err = s.Add(NodeConfig{})
	require.ErrorContains(t, err, "Line to one")
	_, err = s.Add(NodeConfig{Switch: sw})
	require.ErrorContains(t, err, "rate of 0 bits a second")
	_, err = s.Add(NodeConfig{Switch: sw, Line: ten, Queue: -1})
	require.ErrorContains(t, err, "Queue of -1")
	_, err = s.Add(NodeConfig{Switch: sw, Line: Line{Rate: 1, Delay: time.Hour}})
	require.ErrorContains(t, err, "delay of 1h")
	require.ErrorContains(t, sw.Connect(sw, ten), "two switches")
	n, err := s.Add(NodeConfig{Switch: sw, Line: ten})
	require.NoError(t, err)
	require.ErrorContains(t, n.lanes[0].JoinGroup(netip.MustParseAddr("239.1.2.3")), "switches do not carry multicast")
	for want, c := range map[string]SwitchConfig{
		"kmin of 2":       {Red: &cc.RED{Kmin: 2, Kmax: 1}},
		"buffer of -1":    {Buffer: -1},
		"xon of 5":        {PFC: &PFC{XOFF: 5, XON: 5}},
		"alpha of -1":     {PFC: &PFC{Alpha: -1}},
		"headroom of -1":  {PFC: &PFC{Headroom: -1}},
		"alpha of 1000":   {PFC: &PFC{Alpha: 1000}},
		"xoff of -2":      {PFC: &PFC{XOFF: -2}},
		"xon of -3":       {PFC: &PFC{XON: -3}},
		"pmax of 2":       {Red: &cc.RED{Pmax: 2}},
		"kmin of -1":      {Red: &cc.RED{Kmin: -1}},
		"alpha of NaN":    {PFC: &PFC{Alpha: math.NaN()}},
		"xon of 5 with x": {PFC: &PFC{XON: 5}},
	} {
		_, err := s.AddSwitch(c)
		require.ErrorContains(t, err, want)
	}
	_, err = Topology{Line: ten, Switch: SwitchConfig{Buffer: 1000, PFC: &PFC{Headroom: 400}}}.Star(newSim(t, Config{}), 3)
	require.ErrorContains(t, err, "all of a buffer of 1000")
	_, err = newSim(t, Config{Rate: 1}).AddSwitch(SwitchConfig{})
	require.ErrorContains(t, err, "without switches")
	flat := newSim(t, Config{})
	_, err = flat.Add(NodeConfig{})
	require.NoError(t, err)
	_, err = flat.AddSwitch(SwitchConfig{})
	require.ErrorContains(t, err, "add switches before nodes")
}

// end is a queue pair with what it needs.
type writer struct {
	node *Node
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	done int
}

func newWriter(t testing.TB, n *Node, octets int) *writer {
	w := &writer{node: n}
	var err error
	w.pd, err = n.Ctx.AllocPD()
	require.NoError(t, err)
	w.mr, err = w.pd.AllocMR(octets, verbs.AccessAll)
	require.NoError(t, err)
	w.cq, err = n.Ctx.CreateCQ(verbs.CQConfig{Depth: 256})
	require.NoError(t, err)
	w.qp, err = w.pd.CreateQP(verbs.QPConfig{SendCQ: w.cq, RecvCQ: w.cq, Cap: verbs.QPCap{MaxSendWR: 128, MaxSendSGE: 1}})
	require.NoError(t, err)
	return w
}

// write posts n WRITEs of all memory.
func (w *writer) write(t testing.TB, to *writer, n int) {
	for range n {
		_, err := w.qp.PostSend([]verbs.SendWR{{
			Opcode: verbs.WRWrite, SGL: []verbs.SGE{w.mr.SGE(0, len(w.mr.Bytes()))}, Flags: verbs.SendSignaled, RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(),
		}})
		require.NoError(t, err)
	}
	w.node.OnStep = func() {
		var wc [16]verbs.WC
		for k := w.cq.Poll(wc[:]); k > 0; k = w.cq.Poll(wc[:]) {
			for _, c := range wc[:k] {
				require.NoError(t, c.Err())
				w.done++
			}
		}
	}
}

// dumbbell runs two writers of n messages each, and returns what happened.
func dumbbell(t testing.TB, cfg Config, topo Topology, gid, n, octets int) (s *Sim, took time.Duration, events uint64) {
	s = newSim(t, cfg)
	left, right, err := topo.Dumbbell(s, 2)
	require.NoError(t, err)
	var all []*writer
	for i := range left {
		a, b := newWriter(t, left[i], octets), newWriter(t, right[i], octets)
		fillRandom(rand.New(rand.NewPCG(1, uint64(i))), a.mr.Bytes())
		o := verbs.DefaultConnectOptions()
		o.PathMTU, o.TrafficClass = 1024, wire.ECNECT0
		require.NoError(t, Connect(left[i], right[i], a.qp, b.qp, Conn{GID: gid, Options: o}))
		a.write(t, b, n)
		all = append(all, a, b)
	}
	require.True(t, s.RunUntil(func() bool { return all[0].done == n && all[2].done == n }, 10*time.Second), "at %v", s.Now())
	took = s.Now()
	s.Run(s.Now() + time.Second)
	require.Equal(t, all[0].mr.Bytes(), all[1].mr.Bytes())
	require.Equal(t, all[2].mr.Bytes(), all[3].mr.Bytes())
	c := s.Counts()
	require.Equal(t, c.Sent+c.Copied, c.Lost+c.Dropped+c.Arrived)
	return s, took, s.Events
}

// Reliable connections over a trunk that is as fast as one of them: it is always
// busy, by either family; packets are lost where there is neither room nor a pause
// and sent again; the same seed gives the same run.
func TestDumbbell(t *testing.T) {
	const n, octets = 32, 64 << 10
	least := time.Duration(2 * n * octets * 8 / 10)
	for gid := range 2 {
		topo := Topology{Line: ten, Switch: SwitchConfig{PFC: &PFC{XOFF: 100_000, Headroom: ten.Headroom(1200)}}}
		s, took, _ := dumbbell(t, Config{}, topo, gid, n, octets)
		require.Zero(t, s.Counts().Dropped)
		require.Less(t, took, least*110/100) // headers are 6 % and 8 %
		trunk := s.switches[0].ports[0].Stats()
		require.Equal(t, "s1>s2", s.switches[0].ports[0].String())
		require.LessOrEqual(t, trunk.MaxQueue, 2*(100_000+ten.Headroom(1200)))

		topo.Switch.Red = &cc.RED{Kmin: 10_000, Kmax: 100_000, Pmax: 0.1}
		s, _, _ = dumbbell(t, Config{}, topo, gid, n, octets)
		require.Positive(t, s.switches[0].ports[0].Stats().Marked)
		require.Zero(t, s.switches[1].ports[0].Stats().Marked) // acknowledgements meet no queue

		lossy := Topology{Line: ten, Switch: SwitchConfig{Buffer: 100_000}}
		s, _, events := dumbbell(t, Config{Seed: 5, Faults: "tx drop 0.1%; tx dup 0.1%"}, lossy, gid, n, octets)
		require.Positive(t, s.Counts().Dropped)
		require.Positive(t, s.Counts().Lost)
		_, _, again := dumbbell(t, Config{Seed: 5, Faults: "tx drop 0.1%; tx dup 0.1%"}, lossy, gid, n, octets)
		require.Equal(t, events, again)
	}
}

// A port whose queue is full holds its NIC back, whatever its size, and one that is
// paused does too.
func TestPortQueue(t *testing.T) {
	for _, queue := range []int{1, 3000, 20_000, 1 << 20} {
		s, took, _ := dumbbell(t, Config{}, Topology{Line: ten, Trunk: Line{Rate: 40e9}, Node: NodeConfig{Queue: queue}}, 0, 8, 64<<10)
		require.Less(t, took, 8*64<<10*8/10*time.Nanosecond*110/100+20*time.Microsecond, "%d octets", queue)
		require.LessOrEqual(t, s.nodes[0].port.Stats().MaxQueue, max(queue, 1200))
		require.Zero(t, s.Counts().Dropped)
	}
	// What faults have lost leaves room at once: nothing waits for a timeout.
	s, took, _ := dumbbell(t, Config{Faults: "tx drop first=5 opcode=RC_WRITE_*"}, Topology{Line: ten, Node: NodeConfig{Queue: 1}}, 0, 8, 64<<10)
	require.NotZero(t, s.Counts().Lost)
	require.Less(t, took, 10*time.Millisecond)
}

// BenchmarkSwitch is packets of 1024 octets from NIC to NIC over two switches; the
// time is that of a packet and its acknowledgement's share.
func BenchmarkSwitch(b *testing.B) {
	s := newSim(b, Config{})
	forty := Line{Rate: 40e9, Delay: time.Microsecond}
	left, right, err := Topology{Line: forty}.Dumbbell(s, 1)
	require.NoError(b, err)
	x, y := newWriter(b, left[0], 1<<20), newWriter(b, right[0], 1<<20)
	o := verbs.DefaultConnectOptions()
	o.PathMTU = 1024
	require.NoError(b, Connect(left[0], right[0], x.qp, y.qp, Conn{Options: o}))
	b.ReportAllocs()
	for b.Loop() {
		x.done = 0
		x.write(b, y, 16)
		require.True(b, s.RunUntil(func() bool { return x.done == 16 }, s.Now()+time.Second))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16/1024, "ns/packet")
}
