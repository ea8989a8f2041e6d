package nic

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
)

// gauge measures what leaves a NIC, of IP packets.
type gauge struct {
	of     func(*passing) bool
	bursts []measured
	most   int // octets of one packet
}

type measured struct {
	at     int64
	number int
	octets int
}

func (g *gauge) look(p *passing) bool {
	if !g.of(p) {
		return true
	}
	g.most = max(g.most, p.ip)
	if n := len(g.bursts); n == 0 || g.bursts[n-1].number != p.burst {
		g.bursts = append(g.bursts, measured{at: p.at, number: p.burst})
	}
	g.bursts[len(g.bursts)-1].octets += p.ip
	return true
}

// rate returns bits a second from burst i to before burst j.
func (g *gauge) rate(i, j int) float64 {
	octets := 0
	for _, b := range g.bursts[i:j] {
		octets += b.octets
	}
	return float64(octets) * 8e9 / float64(g.bursts[j].at-g.bursts[i].at)
}

// check looks at bursts and rate, all in all and in tenths.
func (g *gauge) check(t *testing.T, rate int64, steady bool) {
	t.Helper()
	n := len(g.bursts) - 1
	require.Greater(t, n, 20)
	bound := max(g.most, int(rate/8*cc.PaceBurst/1e9))
	for _, b := range g.bursts {
		require.LessOrEqual(t, b.octets, bound, "octets of a burst")
	}
	require.InEpsilon(t, rate, g.rate(0, n), 0.02)
	if steady {
		for i := range 10 {
			from, to := n*i/10, n*(i+1)/10
			require.InEpsilon(t, rate, g.rate(from, to), 0.02+1/float64(to-from), "part %d", i)
		}
	}
}

// traffic is what a queue pair is kept busy with.
type traffic struct {
	name string
	typ  verbs.QPType
	op   verbs.WROpcode
}

var kinds = []traffic{
	{"RC WRITE", verbs.RC, verbs.WRWrite},
	{"RC SEND", verbs.RC, verbs.WRSend},
	{"RC READ", verbs.RC, verbs.WRRead},
	{"UC WRITE", verbs.UC, verbs.WRWrite},
	{"UC SEND", verbs.UC, verbs.WRSend},
	{"UD SEND", verbs.UD, verbs.WRSend},
}

// stream is such a queue pair, its peer, which of the two a rate limit is for, and
// whose packets it slows.
type stream struct {
	traffic
	r       *road
	a, b    *node
	qa, qb  *verbs.QP
	wr      verbs.SendWR
	limited *verbs.QP
	of      func(*passing) bool
}

func (r *road) stream(a, b *node, k traffic, mtu verbs.MTU, ah *verbs.AH) *stream {
	s := &stream{traffic: k, r: r, a: a, b: b}
	size := 64 * int(mtu)
	if k.typ == verbs.UD {
		s.qa, s.qb = a.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{})
		if ah == nil {
			ah = a.ah(b.addr)
		}
		s.wr, s.limited = a.to(0, ah, s.qb.QPN(), int(mtu)), s.qa
	} else {
		s.qa, s.qb = r.pair(a, b, k.typ, verbs.ConnectOptions{PathMTU: mtu})
		s.wr, s.limited = writeTo(a, b, size), s.qa
	}
	s.wr.Opcode, s.wr.Flags = k.op, 0
	s.of = func(p *passing) bool { return isData(p) && uint32(p.pkt.DestQP) == s.qb.QPN() && p.from.addr == a.addr }
	if k.op == verbs.WRRead {
		s.limited = s.qb
		s.of = func(p *passing) bool { return isData(p) && uint32(p.pkt.DestQP) == s.qa.QPN() && p.from.addr == b.addr }
	}
	return s
}

// feed keeps the queues full.
func (s *stream) feed() {
	if s.op == verbs.WRSend {
		for {
			if n, err := s.qb.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{s.b.mr.SGE(0, memLen)}}}); n == 0 || err != nil {
				break
			}
		}
	}
	s.a.fill(s.qa, s.wr)
	var wc [64]verbs.WC
	for _, cq := range []*verbs.CQ{s.a.cq, s.b.cq} {
		for {
			n := cq.Poll(wc[:])
			for i := range wc[:n] {
				require.NoError(s.r.t, wc[i].Err())
			}
			if n == 0 {
				break
			}
		}
	}
}

func (s *stream) noRetries() {
	s.r.t.Helper()
	for _, name := range []string{"local_ack_timeout_err", "repeated_requests", "packet_seq_err", "duplicate_request"} {
		require.Zero(s.r.t, stat(s.r.t, s.qa, name), name)
		require.Zero(s.r.t, stat(s.r.t, s.qb, name), name)
	}
}

var families = [][2]string{{"192.0.2.1", "192.0.2.2"}, {"2001:db8::1", "2001:db8::2"}}

// TestPacedRate: a rate limit is kept within 2 % by whoever polls steadily, and who
// comes by at random times and is away for half a millisecond now and then.
func TestPacedRate(t *testing.T) {
	for i, k := range kinds {
		for j, mtu := range []verbs.MTU{256, 1024, 4096} {
			for l, kbps := range []uint32{1000, 77_000, 1_000_000, 8_000_000} {
				for _, mode := range []string{"events", "steady", "random"} {
					if mode == "random" && (i+j+l)%2 == 1 || mode == "steady" && (i+j+l)%2 == 0 {
						continue // half of each will do
					}
					family := families[(i+j)&1]
					rate := int64(kbps) * 1000
					t.Run(fmt.Sprintf("%s/%d/%d kb/s/%s/%s", k.name, mtu, kbps, family[0], mode), func(t *testing.T) {
						t.Parallel()
						r := newRoad(t)
						// Datagrams are as long as the port's MTU at most.
						a, b := r.open(family[0], 1, nil), r.open(family[1], 1, nil)
						s := r.stream(a, b, k, mtu, nil)
						require.NoError(t, s.limited.SetRateLimit(kbps))
						g := &gauge{of: s.of}
						r.look, r.each = g.look, s.feed
						packet := int64(mtu+100) * 8e9 / rate
						d := max(100*packet, 5_000_000)
						if mode == "random" {
							d = max(400*packet, 40_000_000, min(150_000_000, 1000*packet))
						}
						tick := min(max(packet/16, 1000), 20_000)
						rnd := rand.New(rand.NewPCG(uint64(i), uint64(j)))
						switch mode {
						case "steady":
							d = min(d, 2000*tick)
							r.tick = func() int64 { return tick }
							if d < 40*packet {
								d = 40 * packet
							}
						case "random":
							tick = min(max(packet/4, 2000), 100_000)
							r.tick = func() int64 {
								if rnd.Int64N(max(100, 10_000_000/tick)) == 0 {
									return 500_000
								}
								return 1 + rnd.Int64N(2*tick)
							}
						}
						r.run(r.now+d, nil)
						g.check(t, rate, mode != "random")
						s.noRetries()
						require.InEpsilon(t, float64(g.bursts[len(g.bursts)-1].at-g.bursts[0].at), stat(t, s.limited, "pacing_wait"), 0.1, "it waited all the time")
					})
				}
			}
		}
	}
}

// TestPacedSmall: a limit counts octets of IP packets, so that small messages are as
// slow as it says, and no burst of them is longer than it may be.
func TestPacedSmall(t *testing.T) {
	for _, family := range families {
		for _, n := range []int{1, 8, 64, 300} {
			for _, k := range kinds {
				if k.op == verbs.WRRead {
					continue // a response to each
				}
				r := newRoad(t)
				a, b := r.open(family[0], 1, nil), r.open(family[1], 1, nil)
				s := r.stream(a, b, k, 4096, nil)
				s.wr.SGL = []verbs.SGE{a.mr.SGE(0, n)}
				const rate = 500_000_000
				require.NoError(t, s.limited.SetRateLimit(rate/1000))
				g := &gauge{of: s.of}
				r.look, r.each = g.look, s.feed
				r.run(r.now+2e6, nil)
				g.check(t, rate, true)
			}
		}
	}
}

// TestPacedStaticRate: the rate of an address vector is kept for datagrams and
// connections, and the lowest of several limits counts.
func TestPacedStaticRate(t *testing.T) {
	const code, static = verbs.Rate(2), int64(2.5e9)
	for _, k := range kinds {
		for _, mtu := range []verbs.MTU{256, 4096} {
			for _, limit := range []int64{0, 1e9, 5e9} {
				for _, most := range []int64{0, 500e6, 4e9} {
					r := newRoad(t)
					a, b := r.open(families[0][0], 1, nil), r.open(families[0][1], 1, nil)
					ah, err := a.pd.CreateAH(verbs.AV{DGID: verbs.GIDOf(b.addr), StaticRate: code})
					require.NoError(t, err)
					s := r.stream(a, b, k, mtu, ah)
					want := cc.Slower(static, limit)
					if k.typ != verbs.UD {
						// Both ends, since one limits READs and the other the rest.
						s.qa, s.qb = r.pair(a, b, k.typ, verbs.ConnectOptions{PathMTU: mtu, StaticRate: code})
						if s.limited = s.qa; k.op == verbs.WRRead {
							s.limited = s.qb
						}
						for _, x := range []*node{a, b} {
							x.setCC(fmt.Sprint("rp_max_rate=", most/1e6))
						}
						want = cc.Slower(want, most)
					}
					if limit != 0 {
						require.NoError(t, s.limited.SetRateLimit(uint32(limit/1000)))
					}
					g := &gauge{of: s.of}
					r.look, r.each = g.look, s.feed
					r.run(r.now+3e6, nil)
					g.check(t, want, true)
					if k.typ != verbs.UD {
						d, err := s.inside().s.n.QP(s.limited.QPN())
						require.NoError(t, err)
						require.Equal(t, want, d.Rate)
					}
				}
			}
		}
	}
}

// inside returns what its NIC has of the queue pair that is limited.
func (s *stream) inside() *qp {
	if s.limited == s.qa {
		return s.a.inside(s.qa)
	}
	return s.b.inside(s.qb)
}

// TestPacedDatagramsToMany: each datagram counts at its own destination's rate.
func TestPacedDatagramsToMany(t *testing.T) {
	r := newRoad(t)
	a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
	slow, err := a.pd.CreateAH(verbs.AV{DGID: verbs.GIDOf(b.addr), StaticRate: 2}) // 2.5 Gb/s
	require.NoError(t, err)
	fast, err := a.pd.CreateAH(verbs.AV{DGID: verbs.GIDOf(b.addr), StaticRate: 3}) // 10 Gb/s
	require.NoError(t, err)
	q, to := a.datagrams(verbs.QPConfig{}), b.datagrams(verbs.QPConfig{})
	var at []int64
	var ip int
	r.look = func(p *passing) bool {
		at, ip = append(at, p.at), p.ip
		return true
	}
	r.delay = 10
	for range 10 {
		post(t, q, a.to(0, slow, to.QPN(), 4096), a.to(0, fast, to.QPN(), 4096))
	}
	r.run(r.now+1e6, nil)
	require.Len(t, at, 20)
	each := float64(ip) * 8 // nanoseconds at 1 Gb/s
	require.InEpsilon(t, 10*each/2.5+9*each/10, float64(at[19]-at[0]), 0.02)
}

// TestPacedChange: a limit that is lifted or changed takes effect at once: the queue
// pair waits as long as the new one asks for, whatever the last would have it wait.
func TestPacedChange(t *testing.T) {
	for _, k := range kinds {
		r := newRoad(t)
		a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
		s := r.stream(a, b, k, 4096, nil)
		if k.op == verbs.WRRead { // its requester cannot know why the responder is slow
			for _, x := range []*qp{a.inside(s.qa), b.inside(s.qb)} {
				attr := x.eng.Attr()
				attr.Timeout = 24
				require.NoError(t, x.eng.Modify(r.now, &verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState, nil))
				require.NoError(t, x.eng.Modify(r.now, &attr, verbs.AttrTimeout, nil))
				attr.State = verbs.StateRTS
				require.NoError(t, x.eng.Modify(r.now, &attr, verbs.AttrState, nil))
			}
		}
		g := &gauge{of: s.of}
		r.look, r.each = g.look, s.feed
		require.NoError(t, s.limited.SetRateLimit(10)) // 3 s for each packet
		r.pass(time.Second)
		require.Len(t, g.bursts, 1, k.name)
		require.NoError(t, s.limited.SetRateLimit(100_000))
		before := r.now
		r.pass(100 * time.Millisecond)
		packet := int64(g.bursts[0].octets) * 80 // at the new rate
		require.LessOrEqual(t, g.bursts[1].at, before+packet+r.delay, k.name)
		g.bursts = g.bursts[1:]
		g.check(t, 100_000_000, true)
		require.NoError(t, s.limited.SetRateLimit(10))
		r.pass(time.Second)
		require.NoError(t, s.limited.SetRateLimit(0))
		n := len(g.bursts)
		r.tick = func() int64 { return 1000 }
		r.pass(5 * time.Microsecond)
		require.Greater(t, len(g.bursts), n+10, k.name)
		require.Zero(t, s.inside().paced)
		if k.typ != verbs.UD {
			s.a.setCC("rp_max_rate=200")
			s.b.setCC("rp_max_rate=200")
			r.tick = nil
			g.bursts = nil
			r.pass(50 * time.Millisecond)
			g.check(t, 200_000_000, true)
			s.a.setCC("none")
			s.b.setCC("none")
			require.Zero(t, s.inside().rate(r.now))
		}
	}
}

// TestPacedStall: a queue pair that waits for its time says so, and how long it has;
// no step is due before that, and no timer is kept.
func TestPacedStall(t *testing.T) {
	r := newRoad(t)
	a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
	s := r.stream(a, b, kinds[3], 4096, nil) // UC
	require.NoError(t, s.qa.SetRateLimit(100))
	var packets, ip int
	r.look = func(p *passing) bool { packets, ip = packets+1, p.ip; return true }
	s.wr.SGL = []verbs.SGE{a.mr.SGE(0, 16*4096)}
	post(t, s.qa, s.wr)
	r.settle()
	require.Equal(t, 1, packets)
	r.now += r.delay
	next := r.settle()
	cost := int64(ip) * 8e9 / 100_000
	require.Equal(t, int64(1e9)+cost, next)
	d, err := a.nic.QP(s.qa.QPN())
	require.NoError(t, err)
	require.Equal(t, "pacing", d.Inspection.Stall.String())
	require.EqualValues(t, 100_000, d.Rate)
	require.EqualValues(t, 100_000, d.Limit)
	r.now = 1e9 + cost/2
	require.EqualValues(t, cost/2, counter(t, a, "pacing_wait"))
	require.EqualValues(t, cost/2, stat(t, s.qa, "pacing_wait"))
	require.Equal(t, int64(1e9)+cost, a.nic.Step(0, r.now))
	r.now = 1e9 + cost
	r.settle()
	require.Equal(t, 2, packets)
	require.NoError(t, s.qa.SetRateLimit(0))
	r.pass(time.Millisecond)
	require.Equal(t, 16, packets)
	require.EqualValues(t, cost, stat(t, s.qa, "pacing_wait"))
	d, err = a.nic.QP(s.qa.QPN())
	require.NoError(t, err)
	require.Equal(t, "none", d.Inspection.Stall.String())
}

// TestPacedMany: thousands of queue pairs of a shard with rates of their own each
// keep theirs, and wait in the order of their times; one that is destroyed is gone.
func TestPacedMany(t *testing.T) {
	const n = 3000
	r := newRoad(t)
	a := r.open("192.0.2.1", 1, nil)
	b := netip.MustParseAddr("192.0.2.2") // nobody
	rnd := rand.New(rand.NewPCG(7, 7))
	gauges := map[uint32]*gauge{}
	rates := map[uint32]int64{}
	var qs []*verbs.QP
	for i := range n {
		q := a.queuePair(verbs.UC, 0)
		ep, err := q.Endpoint(b)
		require.NoError(t, err)
		require.NoError(t, q.Connect(ep, verbs.Endpoint{QPN: uint32(i), GID: verbs.GIDOf(b)}, verbs.ConnectOptions{PathMTU: 1024, RateLimit: uint32(500 + rnd.IntN(3000))}))
		attr, err := q.Query()
		require.NoError(t, err)
		gauges[uint32(i)], rates[uint32(i)] = &gauge{of: all}, int64(attr.RateLimit)*1000
		qs = append(qs, q)
	}
	r.settle()
	r.look = func(p *passing) bool { return gauges[uint32(p.pkt.DestQP)].look(p) }
	wr := verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1<<16)}, RemoteAddr: 1, RKey: 1}
	for _, q := range qs {
		post(t, q, wr, wr, wr)
	}
	r.run(r.now+200e6, nil)
	for i, g := range gauges {
		m := len(g.bursts) - 1
		require.Greater(t, m, 5)
		require.InEpsilon(t, rates[i], g.rate(0, m), 0.02)
		g.bursts = nil
	}
	h := a.nic.shards[0].paced
	require.Equal(t, n, len(h))
	h.check(t)
	for i, q := range qs {
		if i%2 == 0 {
			require.NoError(t, q.Destroy())
		}
	}
	a.nic.shards[0].paced.check(t)
	require.Equal(t, n/2, len(a.nic.shards[0].paced))
	r.run(r.now+20e6, nil)
	for i, g := range gauges {
		require.Equal(t, i%2 == 1, len(g.bursts) > 0, "queue pair %d", i)
	}
}

func all(*passing) bool { return true }

// check looks at the order of a heap, and whether queue pairs know their places.
func (h pacedHeap) check(t testing.TB) {
	t.Helper()
	for i, x := range h {
		if int(x.q.paced) != i+1 || i > 0 && h[(i-1)/2].at > x.at {
			t.Fatalf("place %d of %d: at %d, thinks it is at %d", i+1, len(h), x.at, x.q.paced)
		}
	}
}

// TestPacedHeap: pushed and removed at random, what is popped is the earliest.
func TestPacedHeap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		var h pacedHeap
		var in []*qp
		for range 200 {
			switch k := rnd.IntN(5); {
			case k < 3 || len(in) == 0:
				q := new(qp)
				q.pacer.Sent(0, rnd.IntN(50), 8e9, 0) // equal times among them
				h.push(q)
				in = append(in, q)
			case k == 3:
				i := rnd.IntN(len(in))
				h.remove(in[i])
				require.Zero(t, in[i].paced)
				in = slices.Delete(in, i, i+1)
			default:
				at := h.next()
				q := h.pop()
				require.Equal(t, at, q.pacer.Next())
				require.True(t, slices.ContainsFunc(in, func(o *qp) bool { return o == q }))
				require.False(t, slices.ContainsFunc(in, func(o *qp) bool { return o.pacer.Next() < at }), "not the first")
				in = slices.DeleteFunc(in, func(o *qp) bool { return o == q })
			}
			require.Equal(t, len(in), len(h))
			h.check(t)
		}
		for len(in) > 0 {
			q := h.pop()
			in = slices.DeleteFunc(in, func(o *qp) bool { return o == q })
		}
		require.Equal(t, int64(never), h.next())
	}
}

// TestPacedTimeout: at a low rate a long message has no retransmission: a packet asks
// for an ACK before the timeout does.
func TestPacedTimeout(t *testing.T) {
	for _, c := range []struct {
		kbps    uint32
		timeout uint8
		most    int
	}{
		{1000, 14, 16 << 20}, // the least that DCQCN leaves, and the usual timeout
		{1000, 8, 1 << 18},   // 1 ms
		{50, 14, 1 << 16},
		{5, 14, 1 << 14},
	} {
		for _, mtu := range []verbs.MTU{256, 512, 1024, 2048, 4096} {
			for _, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRSend} {
				r := newRoad(t)
				a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
				qa, qb := r.pair(a, b, verbs.RC, verbs.ConnectOptions{PathMTU: mtu, Timeout: c.timeout, RateLimit: c.kbps})
				from, err := a.pd.AllocMR(c.most, verbs.AccessAll)
				require.NoError(t, err)
				to, err := b.pd.AllocMR(c.most, verbs.AccessAll)
				require.NoError(t, err)
				sizes := []int{1, int(mtu), 2 * int(mtu), 3*int(mtu) + 1, c.most}
				done := 0
				for i, n := range sizes {
					if op == verbs.WRSend {
						recv(t, qb, verbs.RecvWR{SGL: []verbs.SGE{to.SGE(0, n)}})
						if i == len(sizes)-1 && c.most > 1<<20 {
							continue // the same
						}
					}
					post(t, qa, verbs.SendWR{Opcode: op, SGL: []verbs.SGE{from.SGE(0, n)}, RemoteAddr: to.Addr(), RKey: to.RKey(), Flags: verbs.SendSignaled})
					done--
				}
				var wc [16]verbs.WC
				r.run(r.now+10000e9, func() bool {
					n := a.cq.Poll(wc[:])
					for i := range wc[:n] {
						require.NoError(t, wc[i].Err(), "%d kb/s, timeout %d, MTU %d", c.kbps, c.timeout, mtu)
					}
					done += n
					return done == 0
				})
				require.Zero(t, done)
				for _, name := range []string{"local_ack_timeout_err", "repeated_requests"} {
					require.Zero(t, stat(t, qa, name), "%s: %d kb/s, timeout %d, MTU %d", name, c.kbps, c.timeout, mtu)
				}
			}
		}
	}
}

// TestPacedNoAllocations: packets that wait for their time, marked ones and CNPs
// allocate nothing.
func TestPacedNoAllocations(t *testing.T) {
	as, bs, err := mem.Pair(mem.Config{}, mem.Config{})
	require.NoError(t, err)
	now := int64(1e9)
	manual := func(c *Config) { c.Manual, c.Clock = true, func() int64 { return now } }
	a, b := open(t, as, there, manual), open(t, bs, here, manual)
	defer a.close()
	defer b.close()
	qa, qb := a.newQP(a.cq), b.newQP(b.cq)
	connectWith(t, a, b, qa, qb, verbs.ConnectOptions{RateLimit: 2_000_000, TrafficClass: ce}) // all are marked
	qc, qd := a.queuePair(verbs.UC, 0), b.queuePair(verbs.UC, 0)
	connectWith(t, a, b, qc, qd, verbs.ConnectOptions{RateLimit: 1_000_000, TrafficClass: ce})
	wrs := []verbs.SendWR{writeTo(a, b, 100_000), writeTo(a, b, 8)}
	read := writeTo(a, b, 50_000)
	read.Opcode = verbs.WRRead
	wrs = append(wrs, read)
	uc := []verbs.SendWR{writeTo(a, b, 20_000)}
	var wc [16]verbs.WC
	round := func() {
		_, _ = qa.PostSend(wrs)
		_, _ = qc.PostSend(uc)
		for left := len(wrs) + len(uc); left > 0; now += 5000 {
			a.nic.Step(0, now)
			b.nic.Step(0, now)
			n := a.cq.Poll(wc[:])
			for i := range wc[:n] {
				if wc[i].Status != verbs.WCSuccess {
					t.Fatal(wc[i].Err())
				}
			}
			left -= n
		}
	}
	round()
	before := stat(t, qa, "rp_cnp_handled")
	require.Zero(t, testing.AllocsPerRun(20, round))
	require.Greater(t, stat(t, qa, "rp_cnp_handled"), before+20)
	require.Positive(t, stat(t, qa, "pacing_wait"))
	require.Positive(t, stat(t, qb, "np_cnp_sent"))
}
