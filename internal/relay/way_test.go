package relay

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// sink is what came out of a Way under test.
type sink struct {
	due    []int64
	psn    []uint32
	marked []bool
	octets int
}

// drain takes what a Way has to send at a time.
func (s *sink) drain(w *Way, now int64) {
	for _, o := range w.Out() {
		var d wire.Datagram
		if wire.ParseFrame(o.Frame, &d) != trace.None {
			panic("not RoCEv2")
		}
		s.due = append(s.due, o.due)
		s.psn = append(s.psn, uint32(d.Payload[9])<<16|uint32(d.Payload[10])<<8|uint32(d.Payload[11]))
		s.marked = append(s.marked, d.TOS&3 == wire.ECNCE)
		s.octets += o.size
	}
	w.Sent(now)
}

// finish steps a Way at its deadlines until nothing is under way.
func (s *sink) finish(w *Way, now int64) int64 {
	for {
		next := w.Step(now)
		s.drain(w, now)
		if next == Never {
			return now
		}
		now = max(now, next)
	}
}

func newWay(line Line, rules string, dir trace.Dir) *Way {
	rs, err := fault.Parse(rules)
	if err != nil {
		panic(err)
	}
	return NewWay(&WayConfig{Line: line, Dir: dir, Rules: rs, Fault: fault.NewInjector(3, 0, rs), Seed: 5})
}

// packetOf returns a frame with so many octets of IP packet.
func packetOf(psn uint32, size int, ecn uint8) []byte {
	return super(&superOf{tos: ecn, psn: psn, sizes: []int{size - wire.IPv4Len - wire.UDPLen}}).frame
}

// The last packet leaves when a line of that rate has sent all octets, to the
// nanosecond: nothing is lost by rounding, with packets of any length.
func TestRateIsExact(t *testing.T) {
	for _, rate := range []int64{10e6, 100e6, 500e6, 1e9, 333_333_331, 25e9} {
		w := newWay(Line{Rate: rate, Buffer: 64 << 20}, "", trace.Tx)
		rng := rand.New(rand.NewPCG(1, 2))
		bits := 0.0
		for i := range 5000 {
			size := 44 + 4*rng.IntN(1020)
			bits += float64(size) * 8
			w.Receive(1000, plain, packetOf(uint32(i), size, wire.ECNECT0))
		}
		var s sink
		s.finish(w, 1000)
		require.Len(t, s.due, 5000)
		require.Equal(t, int64(1000)+int64(bits*1e9/float64(rate)), s.due[4999], "%d bits a second", rate)
		for i, psn := range s.psn {
			require.EqualValues(t, i, psn, "order")
		}
	}
}

// Who calls late gets the same packets, with the same times and the same marks.
func TestLateCallsChangeNothing(t *testing.T) {
	run := func(every int64) (s sink, c Counts) {
		w := newWay(Line{Rate: 500e6, Buffer: 256 << 10, Marks: true, RED: cc.RED{Kmin: 20 << 10, Kmax: 200 << 10, Pmax: 0.3}, Delay: 100 * time.Microsecond}, "tx delay 50us..900us 5%; tx drop 1%", trace.Tx)
		rng := rand.New(rand.NewPCG(1, 2))
		wake := every
		for i, at := 0, int64(0); i < 20000; i++ {
			at += int64(rng.ExpFloat64() * 66000) // a little more than the line takes
			for ; every > 0 && wake < at; wake += every {
				w.Step(wake)
				s.drain(w, wake)
			}
			w.Receive(at, plain, packetOf(uint32(i), 4140, wire.ECNECT0))
		}
		s.finish(w, 1<<40)
		return s, w.Counts
	}
	never, counts := run(0)
	for _, every := range []int64{1000, 77_777, 5_000_000} {
		got, c := run(every)
		require.Equal(t, never, got)
		require.Equal(t, counts, c)
	}
	require.Greater(t, counts.Marked, uint64(100))
	require.Greater(t, counts.Dropped, uint64(10))
}

// The buffer holds what it may and no more, and the line one packet besides.
func TestBuffer(t *testing.T) {
	w := newWay(Line{Rate: 1e9, Buffer: 10_500}, "", trace.Tx)
	for i := range 100 {
		w.Receive(0, plain, packetOf(uint32(i), 1000, 0))
	}
	var s sink
	s.finish(w, 0)
	require.Equal(t, []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, s.psn)
	require.EqualValues(t, 89, w.Counts.Dropped)
	q, _ := w.Lap(s.due[10])
	require.Equal(t, 10_000, q.Max)
	// 10 packets for the first 8 us, then one fewer each 8 us: 10+9+...+0 of 11 times.
	require.InDelta(t, 5000, q.Mean, 1)

	// A buffer of nothing is a line that takes what finds it idle.
	w = newWay(Line{Rate: 1e9}, "", trace.Tx)
	for i := range 10 {
		w.Receive(int64(i)*4000, plain, packetOf(uint32(i), 1000, 0))
	}
	s = sink{}
	s.finish(w, 1e6)
	require.Equal(t, []uint32{0, 2, 4, 6, 8}, s.psn)
}

// Packets that come at random to a line that takes equally long over each are
// M/D/1: in the mean load^2/(2(1-load)) wait (Pollaczek and Khinchine).
func TestQueueOfRandomArrivals(t *testing.T) {
	const size, n, load = 1000, 400_000, 0.8
	w := newWay(Line{Rate: 1e9, Buffer: 1 << 20}, "", trace.Tx)
	rng := rand.New(rand.NewPCG(7, 7))
	frame := packetOf(0, size, 0)
	at := 0.0
	for range n {
		at += rng.ExpFloat64() * size * 8 / load
		w.Receive(int64(at), plain, frame)
		w.Sent(0)
	}
	q, _ := w.Lap(int64(at))
	require.InEpsilon(t, load*load/(2*(1-load))*size, q.Mean, 0.03)
	require.Zero(t, w.Counts.Dropped)
	require.Greater(t, q.P99, 4*size)
	require.Greater(t, q.Max, q.P99)
}

// With a queue that stays as it is, packets are marked with RED's probability,
// and only those with ECT; a mark leaves a right IP header.
func TestMarks(t *testing.T) {
	const size, n = 1000, 40_000
	for _, enqueue := range []bool{false, true} {
		for _, c := range []struct {
			queue int // octets that a packet finds, and leaves behind
			want  float64
		}{{10_000, 0}, {20_000, 0}, {50_000, 0.3}, {80_000, 0.6}, {110_000, 0.9}, {121_000, 1}, {150_000, 1}} {
			w := newWay(Line{Rate: 1e9, Buffer: 1 << 20, Marks: true, AtEnqueue: enqueue, RED: cc.RED{Kmin: 20_000, Kmax: 120_000, Pmax: 1}}, "", trace.Tx)
			for range c.queue/size + 1 { // one of them is on the line
				w.Receive(0, plain, packetOf(0, size, wire.ECNNotECT))
			}
			sent, marked := 0, 0
			for i := range n {
				ecn := uint8(wire.ECNECT0)
				if i%4 == 3 {
					ecn = wire.ECNNotECT
				}
				w.Receive(int64(i)*8000+1, plain, packetOf(1, size, ecn))
				for _, o := range w.Out() {
					require.True(t, wire.IPv4(o.Frame[14:]).ChecksumOK())
					switch o.Frame[15] & 3 {
					case wire.ECNCE:
						marked++
						sent++
					case wire.ECNECT0:
						sent++
					}
				}
				w.Sent(0)
			}
			require.InDelta(t, n*3/4, sent, 200)
			sigma := math.Sqrt(c.want * (1 - c.want) / float64(sent))
			require.InDelta(t, c.want, float64(marked)/float64(sent), 4*sigma, "queue of %d, enqueue %v", c.queue, enqueue)
		}
	}
}

// CE in an IPv6 header, and what is marked already stays so.
func TestMarkIPv6(t *testing.T) {
	for tos := range 256 {
		var r run
		r.parse(plain, super(&superOf{v6: true, tos: uint8(tos), sizes: []int{64}}).frame)
		var p packet
		r.cut(&p, 0)
		require.Equal(t, tos&3 == wire.ECNECT0 || tos&3 == wire.ECNECT1, p.ect())
		p.mark()
		var d wire.Datagram
		require.Equal(t, trace.None, wire.ParseFrame(p.frame, &d))
		require.EqualValues(t, tos|3, d.TOS)
		require.EqualValues(t, 0xabcde, d.FlowLabel)
	}
}

// Faults: each effect, in its direction only, before the bottleneck.
func TestFaults(t *testing.T) {
	const n = 100
	through := func(rules string, dir trace.Dir, line Line) (sink, *Way) {
		w := newWay(line, rules, dir)
		var s sink
		for i := range n {
			at := int64(i) * 10_000
			w.Receive(at, plain, packetOf(uint32(i), 1000, wire.ECNECT0))
			w.Step(at)
			s.drain(w, at)
		}
		s.finish(w, n*10_000)
		return s, w
	}
	s, w := through("tx drop every=10", trace.Tx, Line{})
	require.Len(t, s.psn, 90)
	require.EqualValues(t, 10, w.Counts.FaultLost)
	s, _ = through("tx drop every=10", trace.Rx, Line{})
	require.Len(t, s.psn, n, "the other direction")
	s, _ = through("drop every=10", trace.Rx, Line{})
	require.Len(t, s.psn, 90)
	s, _ = through("dup every=10", trace.Tx, Line{})
	require.Len(t, s.psn, 110)
	require.Equal(t, s.psn[9], s.psn[10])
	s, _ = through("ce every=4", trace.Tx, Line{})
	require.Equal(t, []bool{false, false, false, true, false, false, false, true}, s.marked[:8])
	s, _ = through("reorder psn=10 by=3", trace.Tx, Line{})
	require.Equal(t, []uint32{9, 11, 12, 13, 10, 14}, s.psn[9:15])
	s, _ = through("delay 25us psn=10", trace.Tx, Line{})
	require.Equal(t, []uint32{9, 11, 12, 10, 13}, s.psn[9:14])
	require.EqualValues(t, 125_000, s.due[12])
	s, _ = through("delay 25us; dup psn=10", trace.Tx, Line{Delay: time.Millisecond})
	require.Equal(t, []uint32{10, 10}, s.psn[10:12])
	require.EqualValues(t, 990_000+25_000+1_000_000, s.due[n])
	// What a rule delays waits for the line after that.
	s, _ = through("delay 25us psn=10", trace.Tx, Line{Rate: 1e9, Buffer: 1 << 20})
	require.Equal(t, []uint32{9, 11, 12, 10, 13}, s.psn[9:14])
	require.Equal(t, []int64{98_000, 118_000, 128_000, 136_000, 144_000}, s.due[9:14])
	// What is corrupted has a right checksum, so that the ICRC finds it.
	w = newWay(Line{}, "corrupt", trace.Tx)
	p := super(&superOf{sizes: []int{1040}, sum: true})
	for range 100 {
		w.Receive(0, p.vnet, p.frame)
		w.Step(0)
		requireHeaders(t, w.Out()[0].Frame)
		require.NotEqual(t, p.frame[42:], w.Out()[0].Frame[42:])
		w.Sent(0)
	}
}

// What nothing is to be done to passes as it is, by reference, super-packets too;
// and so does what is not RoCEv2, past all else.
func TestPasses(t *testing.T) {
	w := newWay(Line{}, "rx drop", trace.Tx)
	p := super(&superOf{sizes: []int{1040, 1040, 500}})
	w.Receive(5, p.vnet, p.frame)
	require.Len(t, w.Out(), 1)
	require.Same(t, &p.frame[0], &w.Out()[0].Frame[0])
	require.Same(t, &p.vnet[0], &w.Out()[0].Vnet[0])
	w.Sent(5)
	require.EqualValues(t, 3, w.Counts.Packets)
	require.EqualValues(t, 1040+1040+500+3*28, w.Counts.Octets)
	require.EqualValues(t, Never, w.Step(6))

	w = newWay(Line{Rate: 1e6, Buffer: 1 << 20, Delay: time.Second}, "drop", trace.Tx)
	arp := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 6}, make([]byte, 46)...)
	w.Receive(5, plain, arp)
	require.Same(t, &arp[0], &w.Out()[0].Frame[0])
	w.Sent(5)
	require.EqualValues(t, 1, w.Counts.Other)
}

// Datagrams with one identification that were merged leave one by one, because
// segmentation would count the identifications up.
func TestMergedWithoutCount(t *testing.T) {
	w := newWay(Line{}, "", trace.Tx)
	p := super(&superOf{sizes: []int{1040, 1040, 500}, fixed: true, id: 9})
	w.Receive(0, p.vnet, p.frame)
	w.Step(0)
	require.Len(t, w.Out(), 3)
	for _, o := range w.Out() {
		require.EqualValues(t, 9, wire.IPv4(o.Frame[14:]).ID())
		requireRight(t, o.Frame)
	}
}

// In a steady state nothing is allocated.
func TestNoAllocations(t *testing.T) {
	w := newWay(Line{Rate: 10e9, Buffer: 512 << 10, Marks: true, RED: cc.RED{Kmax: 1}, Delay: 10 * time.Microsecond}, "drop 1%; dup 1%; delay 20us 2%; corrupt 1%; ce 1%", trace.Tx)
	p := super(&superOf{sizes: []int{4112, 4112, 4112, 4112, 4112, 1000}, sum: true, tos: 2})
	tcp := append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45}, make([]byte, 99)...)
	now := int64(0)
	round := func() {
		for range 20 {
			now += 10_000
			w.Receive(now, p.vnet, p.frame)
			w.Receive(now, plain, tcp)
			w.Step(now)
			w.Sent(now)
		}
		w.Lap(now)
	}
	for range 50 {
		round()
	}
	require.Zero(t, testing.AllocsPerRun(50, round))
}

func TestLineCheck(t *testing.T) {
	for want, l := range map[string]Line{
		"rate of 999: it takes 1k to 1000G bits": {Rate: 999},
		"buffer of -1: it takes 0 to":            {Rate: 1e6, Buffer: -1},
		"delay of -1ns: it takes 0 to 10s":       {Delay: -1},
		"they need a rate":                       {Marks: true},
		"kmin of 9 is above kmax of 8":           {Rate: 1e6, Marks: true, RED: cc.RED{Kmin: 9, Kmax: 8}},
		"pmax of 2":                              {Rate: 1e6, Marks: true, RED: cc.RED{Kmax: 8, Pmax: 2}},
	} {
		require.ErrorContains(t, l.Check(), want)
	}
	require.NoError(t, (&Line{}).Check())
}

func BenchmarkBottleneck(b *testing.B) {
	w := newWay(Line{Rate: 100e9, Buffer: 512 << 10, Marks: true, RED: cc.RED{Kmax: 100 << 10, Pmax: 0.1}}, "", trace.Tx)
	p := super(&superOf{sizes: []int{4112, 4112, 4112, 4112, 4112, 4112, 4112, 4112}, sum: true, tos: 2})
	b.SetBytes(int64(len(p.frame)))
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		now += 3000
		w.Receive(now, p.vnet, p.frame)
		w.Step(now)
		w.Sent(now)
	}
}
