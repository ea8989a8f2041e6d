package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

func TestMain(m *testing.M) {
	// Thousands of short-lived worlds, of which little is live at a time.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(1 << 30)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		scripts, err := scriptsByRule()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		for _, s := range covered.report(os.Stdout, scripts, *leastFlag) {
			fmt.Fprintf(os.Stderr, "seen fewer than %d times: %s: %s\n", *leastFlag, s.rule, s.what)
			code = 1
		}
		os.Exit(code)
	}))
}

func leUint64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

func putNative(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }

// two returns a network of two nodes with a connection.
func two(t testing.TB, cfg Config) (s *Sim, a, b *peer) {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	open := func() *peer {
		n, err := s.Add(NodeConfig{})
		require.NoError(t, err)
		p := &peer{node: n}
		p.pd, err = n.Ctx.AllocPD()
		require.NoError(t, err)
		p.cq, err = n.Ctx.CreateCQ(verbs.CQConfig{Depth: 256})
		require.NoError(t, err)
		p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq})
		require.NoError(t, err)
		p.mr, err = p.pd.AllocMR(1<<20, verbs.AccessAll)
		require.NoError(t, err)
		return p
	}
	a, b = open(), open()
	require.NoError(t, Connect(a.node, b.node, a.qp, b.qp, Conn{}))
	return s, a, b
}

func write(t testing.TB, a, b *peer, n int) {
	_, err := a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled}})
	require.NoError(t, err)
}

// done runs until a has a completion and returns the time it took.
func done(t testing.TB, s *Sim, a *peer) (verbs.WC, time.Duration) {
	t.Helper()
	start := s.Now()
	var wc [1]verbs.WC
	require.True(t, s.RunUntil(func() bool { return a.cq.Poll(wc[:]) == 1 }, start+time.Hour))
	return wc[0], s.Now() - start
}

// TestTime: latency and rate are what they say, to the nanosecond.
func TestTime(t *testing.T) {
	s, a, b := two(t, Config{Latency: 5 * time.Microsecond})
	write(t, a, b, 8)
	_, d := done(t, s, a)
	require.Equal(t, 10*time.Microsecond, d, "there and back")

	s, a, b = two(t, Config{Latency: 5 * time.Microsecond, Rate: 1e9})
	write(t, a, b, 8)
	_, d = done(t, s, a)
	// WRITE: BTH 12, RETH 16, data 8, ICRC 4; ACK: BTH 12, AETH 4, ICRC 4.
	require.Equal(t, 10*time.Microsecond+(40+20)*8, d)
}

// TestTimeoutOnTime: a request to nobody fails after its retries, on virtual
// time and in no time.
func TestTimeoutOnTime(t *testing.T) {
	s, a, b := two(t, Config{Faults: "tx drop"})
	write(t, a, b, 8)
	c, d := done(t, s, a)
	require.Equal(t, verbs.WCRetryExcErr, c.Status)
	const unit = 4096 * time.Nanosecond << 14
	require.GreaterOrEqual(t, d, 8*unit)
	require.LessOrEqual(t, d, 32*unit)
	require.True(t, s.Quiet() || s.events.next() > 0)
}

// TestFaultsCount: what rules say happens to packets happens to them.
func TestFaultsCount(t *testing.T) {
	for _, c := range []struct {
		rules string
		check func(a, b *peer, count func(*peer, string) uint64)
	}{
		{"tx drop opcode=RC_WRITE_MIDDLE every=10 limit=3", func(a, b *peer, count func(*peer, string) uint64) {
			require.Equal(t, uint64(3), a.node.Faults()[0].Lost)
			require.Positive(t, count(a, "repeated_requests"))
		}},
		{"tx corrupt opcode=RC_WRITE_* limit=4", func(a, b *peer, count func(*peer, string) uint64) {
			require.Equal(t, uint64(4), count(b, "icrc_error"))
		}},
		{"tx dup opcode=RC_WRITE_MIDDLE limit=5", func(a, b *peer, count func(*peer, string) uint64) {
			require.Equal(t, uint64(5), count(b, "duplicate_request"))
		}},
		{"tx reorder opcode=RC_WRITE_MIDDLE limit=1 by=2", func(a, b *peer, count func(*peer, string) uint64) {
			require.Positive(t, count(b, "out_of_sequence"))
		}},
		{"rx delay 20us opcode=RC_ACK", func(a, b *peer, count func(*peer, string) uint64) {
			require.Zero(t, count(a, "repeated_requests"))
		}},
	} {
		s, a, b := two(t, Config{Faults: c.rules})
		count := func(p *peer, name string) uint64 {
			m, err := p.node.Ctx.Counters()
			require.NoError(t, err)
			return m[name]
		}
		write(t, a, b, 1<<20)
		wc, _ := done(t, s, a)
		require.NoError(t, wc.Err(), c.rules)
		s.Run(s.Now() + time.Second)
		c.check(a, b, count)
	}
}

// TestExactKey: rules by queue pair, PSN and times seen lose one packet twice and
// its answer once, and each loss takes one restart.
func TestExactKey(t *testing.T) {
	s, a, b := two(t, Config{Faults: "tx drop psn=0xffffff opcode=RC_WRITE_* seen=1; tx drop psn=0xffffff opcode=RC_WRITE_* seen=2; rx drop psn=1 opcode=RC_ACK seen=1"})
	o := verbs.DefaultConnectOptions()
	o.PathMTU = 256
	for _, p := range []*peer{a, b} {
		var err error
		p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq})
		require.NoError(t, err)
	}
	require.NoError(t, Connect(a.node, b.node, a.qp, b.qp, Conn{PSN: 0xfffffe, Options: o}))
	write(t, a, b, 4*256) // up to PSN 1
	wc, d := done(t, s, a)
	require.NoError(t, wc.Err())
	// The first loss takes a NAK. Of the second the responder is silent, since it
	// has asked for that packet, and it is sent once more soon; and the answer was
	// the last.
	const timeout = 4096 * time.Nanosecond << 14
	require.Greater(t, d, timeout+time.Millisecond)
	require.Less(t, d, timeout+3*time.Millisecond) // the packets have one to leave
	var lost []uint64
	for _, r := range a.node.Faults() {
		lost = append(lost, r.Lost)
	}
	require.Equal(t, []uint64{1, 1, 1}, lost)
	m, err := a.node.Ctx.Counters()
	require.NoError(t, err)
	require.EqualValues(t, 3, m["completer_retry_err"])
}

// fixed is a Judge that loses every third packet that is sent.
type fixed struct{ sent, seen int }

func (f *fixed) Process(now int64, dir trace.Dir, pkt []byte, n int) (d fault.Decision) {
	if len(pkt) != n || n < bth.BTHLen {
		panic("not a packet")
	}
	if dir == trace.Rx {
		f.seen++
		return d
	}
	if f.sent++; f.sent%3 == 0 {
		d.Effects, d.Lost = 1<<fault.Drop, true
	}
	return d
}

// TestJudge: a node's judge decides in place of rules, about every packet.
func TestJudge(t *testing.T) {
	s, _, b := two(t, Config{})
	j := &fixed{}
	n, err := s.Add(NodeConfig{Faults: "tx drop", Judge: j})
	require.NoError(t, err)
	require.Nil(t, n.Faults())
	c := &peer{node: n}
	c.pd, err = n.Ctx.AllocPD()
	require.NoError(t, err)
	c.cq, err = n.Ctx.CreateCQ(verbs.CQConfig{Depth: 16})
	require.NoError(t, err)
	c.mr, err = c.pd.AllocMR(1<<16, verbs.AccessAll)
	require.NoError(t, err)
	c.qp, err = c.pd.CreateQP(verbs.QPConfig{SendCQ: c.cq, RecvCQ: c.cq})
	require.NoError(t, err)
	b.qp, err = b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq})
	require.NoError(t, err)
	require.NoError(t, Connect(n, b.node, c.qp, b.qp, Conn{}))
	write(t, c, b, 1<<16)
	wc, _ := done(t, s, c)
	require.NoError(t, wc.Err())
	require.Greater(t, j.sent, 16)
	require.Positive(t, j.seen)
	counts := s.Counts()
	require.EqualValues(t, j.sent/3, counts.Lost)
	require.EqualValues(t, counts.Sent, j.sent+j.seen)
}

// TestDeterminism: the same seed is the same run, packet for packet, and
// another is not.
func TestDeterminism(t *testing.T) {
	run := func(seed uint64) (uint64, time.Duration, uint64) {
		h := fnv.New64a()
		s, a, b := two(t, Config{Seed: seed, Faults: "drop 2%; dup 2%; reorder 2%; delay 1us..50us 5%"})
		s.Watch(func(p Packet) {
			var w [8]byte
			binary.LittleEndian.PutUint64(w[:], uint64(p.Time))
			h.Write(w[:])
			h.Write(p.Data[:12])
		})
		for range 5 {
			write(t, a, b, 300000)
			done(t, s, a)
		}
		return h.Sum64(), s.Now(), s.Events
	}
	h1, t1, e1 := run(1)
	h2, t2, e2 := run(1)
	require.Equal(t, h1, h2)
	require.Equal(t, t1, t2)
	require.Equal(t, e1, e2)
	h3, _, _ := run(2)
	require.NotEqual(t, h1, h3)
}

// TestHeap pops in the order of time, then of pushing.
func TestHeap(t *testing.T) {
	var h heap
	for i := range 1000 {
		e := h.get(i * 60)
		e.way = i
		h.push(int64(i*7919%31), e)
	}
	at, way := int64(-1), -1
	for h.next() != never {
		n, e := h.pop()
		require.GreaterOrEqual(t, n, at)
		if n == at {
			require.Greater(t, e.way, way)
		}
		at, way = n, e.way
		require.GreaterOrEqual(t, cap(e.buf), e.way*60)
		h.put(e)
	}
}

// TestErrors: a rule that cannot be read, a node that nobody has.
func TestErrors(t *testing.T) {
	_, err := New(Config{Faults: "explode"})
	require.ErrorContains(t, err, "faults")
	_, err = New(Config{Queue: 1000})
	require.ErrorContains(t, err, "a queue needs a line with a rate")
	s, a, b := two(t, Config{})
	_, err = s.Add(NodeConfig{Faults: "explode"})
	require.ErrorContains(t, err, "faults")
	require.ErrorContains(t, Connect(a.node, b.node, a.qp, b.qp, Conn{GID: 2}), "GID index 2")
}

// BenchmarkPackets says how much of a network a second of work simulates.
func BenchmarkPackets(b *testing.B) {
	s, x, y := two(b, Config{})
	n := uint64(0)
	s.Watch(func(Packet) { n++ })
	var wc [1]verbs.WC
	for b.Loop() {
		write(b, x, y, 1<<18)
		s.RunUntil(func() bool { return x.cq.Poll(wc[:]) == 1 }, time.Hour)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "packets/s")
}
