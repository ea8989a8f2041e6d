package nic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/mem"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

// cnp is one from the peer.
func (b *bench) cnp() bth.Packet {
	return bth.Packet{Opcode: bth.CNP, BECN: true, PKey: 0xffff, DestQP: bth.QPN(b.qp.QPN())}
}

func (b *bench) rate() int64 { return b.node.inside(b.qp).rate(b.now) }

// TestReaction: a CNP from the peer cuts the rate as the controller alone would, and
// no other does anything but be counted.
func TestReaction(t *testing.T) {
	b := newBench(t, 1, func(c *Config) { c.SpeedMbit = 40_000 }).connect()
	alone := cc.NewDCQCN(new(b.nic.CC()))
	alone.Start(b.now, cc.Path{Limit: 64, MTU: 4096, Line: 40e9})
	require.Zero(t, b.rate(), "none has come")
	arrive := func(d wire.Datagram) {
		b.links[0].arrive(d)
		b.step()
	}
	for range 50 {
		arrive(datagram(b.cnp(), 0))
		alone.OnCNP(b.now)
		require.Equal(t, alone.Rate(b.now), b.rate())
		b.now += 20_000
		require.Equal(t, alone.Rate(b.now), b.rate())
	}
	require.EqualValues(t, 50, counter(t, b.node, "rp_cnp_handled"))
	require.EqualValues(t, 50, stat(t, b.qp, "rp_cnp_handled"))
	d, err := b.nic.QP(b.qp.QPN())
	require.NoError(t, err)
	require.Equal(t, alone.State(b.now), d.CC)
	require.Equal(t, cc.AlgDCQCN, d.Algorithm)

	bad := func(f func(*bth.Packet)) wire.Datagram {
		p := b.cnp()
		f(&p)
		return datagram(p, 0)
	}
	ud := b.datagrams(verbs.QPConfig{})
	idle := b.newQP(b.cq) // in RESET
	ignored := 0
	for name, d := range map[string]wire.Datagram{
		"from a stranger": b.from(netip.MustParseAddr("192.0.2.77"), here, b.cnp(), 0),
		"to another":      b.from(there, netip.MustParseAddr("192.0.2.78"), b.cnp(), 0),
		"P_Key":           bad(func(p *bth.Packet) { p.PKey = 0x8001 }),
		"QPN":             bad(func(p *bth.Packet) { p.DestQP ^= 0x10 }),
		"QP1":             bad(func(p *bth.Packet) { p.DestQP = 1 }),
		"UD":              bad(func(p *bth.Packet) { p.DestQP = bth.QPN(ud.QPN()) }),
		"RESET":           bad(func(p *bth.Packet) { p.DestQP = bth.QPN(idle.QPN()) }),
	} {
		before := b.rate()
		arrive(d)
		ignored++
		require.Equal(t, before, b.rate(), name)
		require.EqualValues(t, ignored, counter(t, b.node, "rp_cnp_ignored"), name)
	}
	require.EqualValues(t, 1, stat(t, ud, "rp_cnp_ignored"))
	require.EqualValues(t, 0, stat(t, b.qp, "rp_cnp_ignored"), "they did not come from its peer")
	require.NoError(t, idle.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccess))
	arrive(bad(func(p *bth.Packet) { p.DestQP = bth.QPN(idle.QPN()) }))
	require.EqualValues(t, ignored+1, counter(t, b.node, "rp_cnp_ignored"), "INIT")

	for i, list := range []string{"none", "window", "swift", "dcqcn,rp_enable=0"} {
		b.setCC(list)
		b.step()
		arrive(datagram(b.cnp(), 0))
		require.Zero(t, b.rate(), list)
		require.EqualValues(t, i+1, stat(t, b.qp, "rp_cnp_ignored"), list)
	}
	b.setCC("rp_enable=1")
	arrive(datagram(b.cnp(), 0))
	require.Positive(t, b.rate())
	require.EqualValues(t, 51, counter(t, b.node, "rp_cnp_handled"))
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	arrive(datagram(b.cnp(), 0))
	require.EqualValues(t, 51, counter(t, b.node, "rp_cnp_handled"), "ERR")
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
	b.connect()
	require.Zero(t, b.rate(), "it begins afresh")
	require.Empty(t, b.links[0].took(), "nothing answers a CNP")
}

// TestCNPFlood: a million CNPs leave no queue pair below the least rate, and those
// that do not come from a peer do nothing.
func TestCNPFlood(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n /= 10
	}
	const every = 1000
	b := newBench(t, 1, func(c *Config) { c.CC.RPMinRate = 7 }).connect()
	forged := b.from(netip.MustParseAddr("192.0.2.77"), here, b.cnp(), 0)
	real := datagram(b.cnp(), 0)
	flood := func(d wire.Datagram, n int) {
		batch := make([]wire.Datagram, every)
		for i := range batch {
			batch[i] = d
		}
		for range n / every {
			b.links[0].arrive(batch...)
			b.step()
			b.now += 5_000
			if r := b.rate(); r != 0 {
				require.GreaterOrEqual(t, r, int64(7e6))
			}
		}
	}
	flood(forged, n)
	require.Zero(t, b.rate())
	require.EqualValues(t, n, counter(t, b.node, "rp_cnp_ignored"))
	require.Zero(t, counter(t, b.node, "rp_cnp_handled"))
	flood(real, n)
	require.EqualValues(t, n, counter(t, b.node, "rp_cnp_handled"))
	require.EqualValues(t, 7e6, b.rate())
	post(t, b.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 4096)}, Flags: verbs.SendSignaled})
	b.step()
	require.Len(t, b.links[0].took(), 1, "and it goes on")
	b.now += 20e9
	require.Zero(t, b.rate(), "it recovers")
}

// TestReadSlowsResponder: marks on READ responses slow whoever sends those, and not
// the requests of the same queue pair's peer. B91.
func TestReadSlowsResponder(t *testing.T) {
	r := newRoad(t)
	a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
	s := r.stream(a, b, kinds[2], 4096, nil)
	mark := true
	marks := r.marks(func(p *passing) bool { return mark && p.pkt.Info().Op == bth.OpReadResp })
	g := &gauge{of: s.of}
	look := r.look
	r.look = func(p *passing) bool { g.look(p); return look(p) }
	r.each = s.feed
	r.tick = func() int64 { return 5000 }
	r.pass(2 * time.Millisecond)
	g.bursts = nil
	r.pass(2 * time.Millisecond)
	require.Less(t, g.rate(0, len(g.bursts)-1), 1e9, "of 10")
	require.NotEmpty(t, marks.cnps)
	for _, p := range marks.cnps {
		require.Equal(t, a.addr, p.flow.Src)
	}
	require.EqualValues(t, len(marks.cnps), stat(t, s.qa, "np_cnp_sent"))
	require.InDelta(t, len(marks.cnps), stat(t, s.qb, "rp_cnp_handled"), 1)
	require.Zero(t, a.inside(s.qa).rate(r.now), "the requester may ask as fast as it likes")
	slow := b.inside(s.qb).rate(r.now)
	require.Positive(t, slow)
	require.Less(t, slow, int64(1e9))
	mark = false
	full := func() bool { return b.inside(s.qb).rate(r.now) == 0 }
	r.run(r.now+20e6, full)
	require.True(t, full(), "it recovers")
	s.noRetries()
}

// TestAnswersNotPaced: ACKs, NAKs and answers to atomics leave at once, however slow
// the queue pair may be, but in the order of what they answer: behind a READ's
// answer they wait for that.
func TestAnswersNotPaced(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	l := b.links[0]
	require.NoError(t, b.qp.SetRateLimit(10)) // 3 s for a packet
	b.step()
	psn := bth.MakePSN(peerPSN)
	at := func(op bth.Opcode, n int) bth.Packet {
		p := b.request()
		p.Opcode, p.PSN, p.VA, p.RKey, p.DMALen = op, psn, b.mr.Addr(), b.mr.RKey(), uint32(n)
		psn = psn.Add(max(1, (n+4095)/4096))
		return p
	}
	ops := func() (out []bth.Op) {
		for _, p := range l.took() {
			out = append(out, p.Info().Op)
		}
		return out
	}
	arrive := func(p bth.Packet, n int) []bth.Op {
		l.arrive(datagram(p, n))
		b.step()
		return ops()
	}
	// The first packet uses the time up.
	post(t, b.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, 8192)}, Flags: verbs.SendSignaled})
	b.step()
	require.Equal(t, []bth.Op{bth.OpWrite}, ops())
	for range 3 {
		require.Equal(t, []bth.Op{bth.OpAck}, arrive(at(bth.RCWriteOnly, 8), 8))
		require.Equal(t, []bth.Op{bth.OpAtomicAck}, arrive(at(bth.RCFetchAdd, 0), 0))
		b.now += 1000
	}
	gap := at(bth.RCWriteOnly, 8)
	beyond := at(bth.RCWriteOnly, 8)
	require.Equal(t, []bth.Op{bth.OpAck}, arrive(beyond, 8), "a NAK")
	require.Equal(t, []bth.Op{bth.OpAck}, arrive(gap, 8))
	require.Equal(t, []bth.Op{bth.OpAck}, arrive(beyond, 8))

	require.Empty(t, arrive(at(bth.RCReadReq, 8192), 0))
	require.Empty(t, arrive(at(bth.RCWriteOnly, 8), 8), "before the READ's answer")
	require.Empty(t, arrive(at(bth.RCFetchAdd, 0), 0))
	require.Empty(t, arrive(at(bth.RCWriteOnly, 8), 8))
	var out []bth.Op
	for range 20 {
		deadline := b.step()
		out = append(out, ops()...)
		if b.now = deadline; deadline == never || len(out) > 8 {
			break
		}
	}
	var answers []bth.Op
	for _, o := range out {
		if o != bth.OpWrite { // its own, sent in between, and again after the timeout
			answers = append(answers, o)
		}
	}
	require.Equal(t, []bth.Op{bth.OpReadResp, bth.OpReadResp, bth.OpAtomicAck, bth.OpAck}, answers)
}

// TestSlowRestart: a gap makes a CNP along with the NAK, and who is told of one cuts
// its rate; both by the switch.
func TestSlowRestart(t *testing.T) {
	for _, c := range []struct {
		name           string
		a, b           string
		cnps, restarts int
	}{
		{"as it is", "roce_slow_restart=1", "roce_slow_restart=1", 1, 1},
		{"off", "roce_slow_restart=0", "roce_slow_restart=0", 0, 0},
		{"responder alone", "roce_slow_restart=0", "roce_slow_restart=1", 1, 0},
		{"requester alone", "roce_slow_restart=1", "roce_slow_restart=0", 0, 1},
		{"no notification", "roce_slow_restart=1", "np_enable=0", 0, 1},
		{"no reaction", "rp_enable=0", "roce_slow_restart=1", 1, 0},
		{"none", "none", "roce_slow_restart=1", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoad(t)
			a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
			a.setCC(c.a)
			b.setCC(c.b)
			qa, qb := r.pair(a, b, verbs.RC, verbs.ConnectOptions{PathMTU: 256})
			lose := 1
			kept := 0
			r.look = func(p *passing) bool {
				if p.pkt.Opcode == bth.CNP {
					kept++
				}
				if p.pkt.Opcode == bth.RCWriteMiddle && lose > 0 {
					lose--
					return false
				}
				return true
			}
			for range 2 { // the second time it is not the first since the rate was full
				lose = 1
				post(t, qa, writeTo(a, b, 4096))
				r.pass(100 * time.Microsecond)
			}
			var wc [4]verbs.WC
			r.run(r.now+1e9, func() bool { return false })
			require.Equal(t, 2, a.cq.Poll(wc[:]))
			require.EqualValues(t, 2, stat(t, qa, "packet_seq_err"))
			require.EqualValues(t, 2*c.cnps, kept)
			require.EqualValues(t, 2*c.cnps, stat(t, qb, "roce_slow_restart_cnps"))
			require.EqualValues(t, 2*c.cnps, counter(t, b, "np_cnp_sent"))
			require.EqualValues(t, 2*c.restarts, stat(t, qa, "roce_slow_restart"))
			require.EqualValues(t, c.restarts, stat(t, qa, "roce_slow_restart_trans"))
			require.EqualValues(t, 2*c.restarts, counter(t, a, "roce_slow_restart"))
			require.Zero(t, counter(t, b, "np_ecn_marked_roce_packets"))
		})
	}
}

// TestNotHonoured: a peer that ignores CNPs, as Soft-RoCE does, is sent no more of
// them than the gap allows. B92.
func TestNotHonoured(t *testing.T) {
	r := newRoad(t)
	a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
	a.setCC("window,window=8")
	b.setCC("np_min_time_between_cnps=50")
	s := r.stream(a, b, kinds[0], 1024, nil)
	m := r.marks(isData)
	r.each = s.feed
	r.tick = func() int64 { return 2000 }
	r.pass(2 * time.Millisecond)
	s.noRetries()
	require.Greater(t, m.marked, 1000)
	require.InDelta(t, 2000/50, len(m.cnps), 2)
}

// TestECT: what is sent says whether its sender heeds marks; the traffic class of a
// program that has its own mind stays.
func TestECT(t *testing.T) {
	for _, c := range []struct {
		list  string
		class uint8
		want  uint8
	}{
		{"dcqcn", 0, ect0},
		{"dcqcn", 26 << 2, 26<<2 | ect0},
		{"dcqcn", 26<<2 | 1, 26<<2 | 1},
		{"rp_enable=0", 0, 0},
		{"none", 26 << 2, 26 << 2},
		{"window", 0, 0},
		{"swift", 0, 0},
	} {
		r := newRoad(t)
		a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
		qa, _ := r.pair(a, b, verbs.RC, verbs.ConnectOptions{TrafficClass: c.class})
		a.setCC(c.list) // live
		var got []uint8
		r.look = func(p *passing) bool {
			if p.from.addr == a.addr {
				got = append(got, p.tos)
			}
			return true
		}
		post(t, qa, writeTo(a, b, 8))
		r.pass(time.Millisecond)
		require.Equal(t, []uint8{c.want}, got, c)
	}
}

// TestSetCC: parameters and algorithms change under traffic, and every request still
// completes once and in order. Under the race detector, with the NIC's own goroutines.
func TestSetCC(t *testing.T) {
	a, b := pairWith(t, mem.Config{Shards: 2}, nil)
	var qs []*verbs.QP
	for i := range 4 {
		shard := i % 2
		qa, qb := a.queuePair([]verbs.QPType{verbs.RC, verbs.RC, verbs.UC, verbs.RC}[i], 0), b.queuePair([]verbs.QPType{verbs.RC, verbs.RC, verbs.UC, verbs.RC}[i], shard)
		connectWith(t, a, b, qa, qb, verbs.ConnectOptions{TrafficClass: uint8(i) & ce}) // the last is marked
		qs = append(qs, qa)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 1))
		lists := []string{
			"dcqcn", "none", "swift", "window,window=4", "rp_enable=0", "rp_enable=1", "np_enable=0", "np_enable=1", "np_cnp_pacing=port",
			"np_cnp_pacing=destination", "np_cnp_pacing=qp", "rp_min_rate=5000", "rp_max_rate=20000", "rp_max_rate=0", "profile=paper", "np_cnp_dscp=10",
		}
		for {
			select {
			case <-stop:
				return
			default:
			}
			x := []*node{a, b}[rnd.IntN(2)]
			c := x.nic.CC()
			if err := c.Parse(lists[rnd.IntN(len(lists))]); err == nil {
				c.RPMinRate = max(c.RPMinRate, 1000) // or it takes long
				if c.Check() == nil {
					if err := x.nic.SetCC(c); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
	const rounds = 50
	for i := range rounds {
		for j, q := range qs {
			wr := writeTo(a, b, 60_000)
			wr.ID = uint64(i<<8 | j)
			wr.RemoteAddr += uint64(j) * 60_000 // shards write at the same time
			post(t, q, wr)
		}
		seen := map[uint64]bool{}
		for _, w := range good(t, a.cq, len(qs)) {
			require.EqualValues(t, i, w.ID>>8)
			seen[w.ID] = true
		}
		require.Len(t, seen, len(qs))
	}
	close(stop)
	wg.Wait()
}

// TestSetCCRefused: a configuration that is not good changes nothing.
func TestSetCCRefused(t *testing.T) {
	b := newBench(t, 1, nil)
	before := b.nic.CC()
	c := before
	c.RPDCETCPG = 0
	require.ErrorContains(t, b.nic.SetCC(c), "rp_dce_tcp_g")
	require.Equal(t, before, b.nic.CC())
	_, err := Open(Config{Links: []link.Link{newFakeLink()}, GIDs: gidsOf(here), CC: &c})
	require.ErrorContains(t, err, "rp_dce_tcp_g")
	require.NoError(t, b.ctx.Close())
	require.ErrorIs(t, b.nic.SetCC(before), verbs.ErrClosed)
}

// TestExactlyOnce: with rates, CNPs, marks, losses and duplicates at random, and
// limits and parameters that change meanwhile, each request completes once and in
// order, what arrives is what was sent, and each atomic is done once.
func TestExactlyOnce(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { exactlyOnce(t, uint64(seed)) })
	}
}

func exactlyOnce(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 99))
	r := newRoad(t)
	family := families[rnd.IntN(2)]
	a, b := r.open(family[0], 1, nil), r.open(family[1], 1, nil)
	mtu := verbs.MTU(256 << rnd.IntN(5))
	qa, qb := r.pair(a, b, verbs.RC, verbs.ConnectOptions{PathMTU: mtu, RNRRetry: 7})
	loss, mark := rnd.Float64()*0.03, rnd.Float64()*0.3
	r.look = func(p *passing) bool {
		if rnd.Float64() < mark {
			p.tos |= ce
		}
		return rnd.Float64() >= loss
	}
	r.tick = func() int64 { return 1 + rnd.Int64N(60_000) }
	const cell, cells = 8192, 16
	pattern(a.mr.Bytes()[:cell*cells], int(seed))
	var want [cells][]byte // of b's memory
	sends, atomics, posted := 0, uint64(0), 0
	var read [cells]int // octets that the last READ of a cell finds written
	clearOf := b.mr.Bytes()[1<<19 : 1<<19+8]
	clear(clearOf)
	step := 0
	r.each = func() {
		if step++; step%7 == 0 && posted < 120 {
			n := rnd.IntN(cell) + 1
			i := rnd.IntN(cells)
			wr := verbs.SendWR{ID: uint64(posted), Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(i*cell, n)}, RemoteAddr: b.mr.Addr() + uint64(i*cell), RKey: b.mr.RKey()}
			switch rnd.IntN(4) {
			case 0:
				wr.Opcode = verbs.WRWrite
				want[i] = append(append([]byte{}, a.mr.Bytes()[i*cell:i*cell+n]...), want[i][min(n, len(want[i])):]...)
			case 1:
				wr.Opcode = verbs.WRSend
				recv(t, qb, verbs.RecvWR{ID: uint64(sends), SGL: []verbs.SGE{b.mr.SGE(1<<18, cell)}})
				sends++
			case 2:
				wr.Opcode = verbs.WRRead
				wr.SGL = []verbs.SGE{a.mr.SGE(1<<18+i*cell, n)}
				read[i] = min(n, len(want[i]))
			default:
				wr.Opcode, wr.CompareAdd = verbs.WRFetchAdd, 3
				wr.SGL = []verbs.SGE{a.mr.SGE(1<<19, 8)}
				wr.RemoteAddr = b.mr.Addr() + 1<<19
				atomics++
			}
			post(t, qa, wr)
			posted++
		}
		switch rnd.IntN(100) {
		case 0:
			q := []*verbs.QP{qa, qb}[rnd.IntN(2)]
			kbps := uint32(0)
			if rnd.IntN(3) > 0 {
				kbps = uint32(20_000 + rnd.IntN(5_000_000))
			}
			require.NoError(t, q.SetRateLimit(kbps))
		case 1:
			x := []*node{a, b}[rnd.IntN(2)]
			x.setCC([]string{"rp_min_rate=20", "dcqcn,rp_min_rate=50", "none", "swift", "np_min_time_between_cnps=0", "np_min_time_between_cnps=50"}[rnd.IntN(6)])
		case 2, 3: // out of the blue
			for _, e := range [][2]*node{{a, b}, {b, a}} {
				dest := qb.QPN()
				if e[1] == a {
					dest = qa.QPN()
				}
				p := bth.Packet{Opcode: bth.CNP, BECN: true, PKey: 0xffff, DestQP: bth.QPN(dest)}
				in := &r.ends[e[1].addr][0].in
				*in = append(*in, sealed(e[0].addr, e[1].addr, 0, p.Info().HdrLen, func(h []byte) { p.PutHeaders(h) }))
			}
		}
	}
	done, received := 0, 0
	var wc [16]verbs.WC
	r.run(r.now+60e9, func() bool {
		n := a.cq.Poll(wc[:])
		for i := range wc[:n] {
			require.NoError(t, wc[i].Err())
			require.EqualValues(t, done, wc[i].ID)
			done++
		}
		n = b.cq.Poll(wc[:])
		for i := range wc[:n] {
			require.NoError(t, wc[i].Err())
			require.EqualValues(t, received, wc[i].ID)
			received++
		}
		return done == 120 && received == sends
	})
	require.Equal(t, 120, done)
	require.Equal(t, sends, received)
	for i, w := range want {
		require.Equal(t, w, append([]byte(nil), b.mr.Bytes()[i*cell:i*cell+len(w)]...), "cell %d", i)
		at := 1<<18 + i*cell
		require.True(t, bytes.Equal(w[:read[i]], a.mr.Bytes()[at:at+read[i]]), "READ of cell %d", i)
	}
	var value uint64
	for i := range 8 {
		value |= uint64(clearOf[i]) << (8 * i)
	}
	require.Equal(t, 3*atomics, value)
}
