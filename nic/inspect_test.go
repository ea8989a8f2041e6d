package nic

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/transport"
	"github.com/gorxe/gorxe/verbs"
)

// write posts a WRITE of n octets.
func (b *bench) write(n int) {
	post(b.t, b.qp, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{b.mr.SGE(0, n)}, RemoteAddr: 1, RKey: 1})
}

func (b *bench) values() map[string]uint64 {
	m, err := b.nic.Counters()
	require.NoError(b.t, err)
	return m
}

func (b *bench) detail() QPDetail {
	d, err := b.nic.QP(b.qp.QPN())
	require.NoError(b.t, err)
	return d
}

// port_xmit_wait is the time that something waits for the link, also while it
// still does, and nothing else.
func TestXmitWait(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	l := b.links[0]
	at := func(now int64, want uint64) {
		t.Helper()
		b.now = now
		require.Equal(t, want, b.values()["port_xmit_wait"])
	}
	at(1e9+1000, 0)
	l.room = 0
	b.write(8)
	b.step()
	at(1e9+3000, 2000)
	at(1e9+4000, 3000)
	b.now = 1e9 + 3500 // a step that took its time before we looked
	b.step()
	at(1e9+5000, 4000)
	l.room = -1
	b.now = 1e9 + 6000
	b.step()
	require.Len(t, l.took(), 1)
	at(1e9+9000, 5000)
	m := b.values()
	require.Zero(t, m["window_wait"]+m["credit_wait"]+m["rnr_wait"])
	require.Equal(t, uint64(1), m["port_xmit_packets"])
}

// What a window holds back does not wait for the link.
func TestWindowWait(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	b.write(memLen)
	b.step()
	sent := len(b.links[0].took())
	d := b.detail()
	require.Equal(t, transport.StallWindow, d.Inspection.Stall)
	require.Equal(t, d.Inspection.Window, sent)
	require.Equal(t, sent, d.InFlight)
	b.now += 7000
	require.Equal(t, uint64(7000), b.detail().Counters["window_wait"])
	require.Equal(t, uint64(7000), b.values()["window_wait"])
	require.Zero(t, b.values()["port_xmit_wait"])
	list, err := b.nic.QPs()
	require.NoError(t, err)
	require.Equal(t, uint64(7000), list[0].Stats.WindowWait)
	// An ACK of everything opens it.
	b.links[0].arrive(datagram(bth.Packet{Opcode: bth.RCAck, PKey: 0xffff, MigReq: true, DestQP: bth.QPN(b.qp.QPN()), PSN: bth.MakePSN(ourPSN + uint32(sent) - 1), Syndrome: bth.AckUnlimited}, 0))
	b.now += 3000
	b.step()
	require.NotEmpty(t, b.links[0].took())
	require.Equal(t, uint64(10000), b.values()["window_wait"], "it is full again, but no time has passed")
	b.now += 500
	b.nic.Step(0, b.now)
	require.NoError(t, b.qp.Destroy())
	require.Equal(t, uint64(10500), b.values()["window_wait"], "and stays counted")
}

// What a credit or an RNR timer holds back waits for neither link nor window.
func TestCreditAndRNRWait(t *testing.T) {
	b := newBench(t, 1, nil)
	require.NoError(t, b.qp.Connect(verbs.Endpoint{QPN: b.qp.QPN(), PSN: ourPSN}, verbs.Endpoint{QPN: peerQPN, PSN: peerPSN, GID: verbs.GIDOf(there)}, verbs.ConnectOptions{FlowControl: true, RNRRetry: 7, MinRNRTimer: 12}))
	b.step()
	send := verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{b.mr.SGE(0, 8)}}
	post(t, b.qp, send, send)
	b.step()
	require.Len(t, b.links[0].took(), 1, "one may go without a credit")
	b.now += 5000
	d := b.detail()
	require.Equal(t, transport.StallCredits, d.Inspection.Stall)
	require.True(t, d.Inspection.CreditsBind)
	require.Zero(t, d.Inspection.Credits)
	require.Equal(t, uint64(5000), d.Counters["credit_wait"])

	b.links[0].arrive(datagram(bth.Packet{Opcode: bth.RCAck, PKey: 0xffff, MigReq: true, DestQP: bth.QPN(b.qp.QPN()), PSN: bth.MakePSN(ourPSN), Syndrome: bth.RNRNAK(12)}, 0)) // 0.64 ms
	b.step()
	d = b.detail()
	require.Equal(t, transport.StallRNR, d.Inspection.Stall)
	require.True(t, d.Inspection.RNRWait)
	require.Equal(t, 7, d.Inspection.RNRRetriesLeft)
	require.Equal(t, b.now+640_000, d.Inspection.Deadline)
	require.Equal(t, trace.RetryRNR, d.Last.Reason)
	b.now += 640_000
	b.step()
	m := b.values()
	require.Equal(t, uint64(640_000), m["rnr_wait"])
	require.Equal(t, uint64(5000), m["credit_wait"])
	require.Zero(t, m["window_wait"]+m["port_xmit_wait"])
}

// What the port counts: UDP payload in words of 4 octets, whatever became of it.
func TestPortCounters(t *testing.T) {
	b := newBench(t, 1, nil).connect()
	l := b.links[0]
	b.write(1000)
	b.step()
	require.Len(t, l.took(), 1)
	broken := datagram(b.request(), 100)
	broken.Payload[60] ^= 1
	stranger := b.request()
	stranger.DestQP = 0x765432
	l.arrive(datagram(b.request(), 100), broken, datagram(stranger, 0))
	b.step()
	m := b.values()
	require.Equal(t, uint64((12+16+1000+4)/4+(12+4+4)/4), m["port_xmit_data"], "the WRITE and an RNR NAK")
	require.Equal(t, uint64(2), m["port_xmit_packets"])
	require.Equal(t, uint64((2*(12+100+4)+12+4)/4), m["port_rcv_data"])
	require.Equal(t, uint64(3), m["port_rcv_packets"])
	require.Equal(t, uint64(1), m["port_rcv_errors"])
	require.Equal(t, uint64(1), m["rx_icrc_encapsulated"])
	require.Equal(t, uint64(1), m["unknown_qpn"])

	// A link that fails is down once, however often it is looked at.
	l.err = errors.New("cable pulled")
	for range 3 {
		b.now += 1e6
		b.nic.Step(0, b.now)
	}
	require.Equal(t, uint64(1), b.values()["link_downed"])
	l.err = nil
	b.step()
	l.err = link.ErrClosed
	b.nic.Step(0, b.now)
	require.Equal(t, uint64(1), b.values()["link_downed"])
	l.err = errors.New("again")
	b.nic.Step(0, b.now)
	require.Equal(t, uint64(2), b.values()["link_downed"])
	l.err = nil
}

func TestQPs(t *testing.T) {
	a, b := pair(t, 2)
	var all []*verbs.QP
	for i := range 2 {
		cq := a.newCQ(verbs.CQConfig{Vector: i})
		for range 3 {
			all = append(all, a.newQP(cq))
		}
	}
	peer := b.newQP(b.cq)
	connect(t, a, b, all[0], peer)
	require.NoError(t, all[1].Destroy())
	list, err := a.nic.QPs()
	require.NoError(t, err)
	require.Len(t, list, 5)
	require.Equal(t, 5, a.nic.CountQPs())
	for i, q := range list {
		want := all[[]int{0, 2, 3, 4, 5}[i]]
		require.Equal(t, want.QPN(), q.QPN)
		require.Equal(t, []int{0, 0, 1, 1, 1}[i], q.Shard)
		require.Equal(t, verbs.RC, q.Type)
		require.Zero(t, q.ClientID)
		require.Positive(t, q.SendDepth)
		require.Positive(t, q.RecvDepth)
	}
	require.Equal(t, []any{verbs.StateRTS, a.addr, b.addr, peer.QPN()}, []any{list[0].State, list[0].Local, list[0].Peer, list[0].DestQPN})
	require.Equal(t, verbs.StateReset, list[1].State)
	require.False(t, list[1].Peer.IsValid())

	for _, n := range []uint32{0, 1, 12345, 0xffffff, 1 << 24, 1<<32 - 1, all[1].QPN()} {
		_, err := a.nic.QP(n)
		require.ErrorIs(t, err, verbs.ErrClosed, "%#x", n)
		_, err = a.nic.TraceQP(n, 0)
		if n != all[1].QPN() {
			require.ErrorIs(t, err, verbs.ErrClosed, "%#x", n)
		}
	}
	u, err := a.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: a.cq, RecvCQ: a.cq})
	require.NoError(t, err)
	d, err := a.nic.QP(u.QPN())
	require.NoError(t, err)
	require.Equal(t, verbs.UD, d.Type)
	require.Equal(t, trace.None, d.Last.Reason)
}

// A look at many queue pairs lets go of the shard in between: who waits for the
// lock for a while gets it at the end of a batch.
func TestEachLetsGo(t *testing.T) {
	a, _ := pair(t, 1)
	for range 5 * inspectBatch {
		a.newQP(a.cq)
	}
	s := a.nic.shards[0]
	got := make(chan struct{})
	waits := make(chan struct{})
	seen, before := 0, -1
	s.each(func(*qp) {
		if seen++; seen == 1 {
			go func() {
				close(waits)
				s.mu.Lock()
				close(got)
				s.mu.Unlock()
			}()
			<-waits
		}
		if seen%inspectBatch == 1 {
			time.Sleep(2 * time.Millisecond) // a mutex is handed over to who has waited for 1 ms
		}
		select {
		case <-got:
			if before < 0 {
				before = seen
			}
		default:
		}
	})
	<-got
	require.Equal(t, 5*inspectBatch, seen)
	require.Positive(t, before, "the lock was never free")
	require.LessOrEqual(t, before, 4*inspectBatch+1)
}

// No counter goes back while queue pairs come and go, and at the end they are
// what they would have been without anybody looking.
func TestCountersOnlyGrow(t *testing.T) {
	a, b := pair(t, 1)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		last := map[string]uint64{}
		for over := false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			m, err := a.nic.Counters()
			if err != nil {
				t.Error(err)
				return
			}
			for k, v := range last {
				if m[k] < v {
					t.Errorf("%s went from %d to %d", k, v, m[k])
				}
			}
			last = m
		}
	})
	const rounds = 100
	for range rounds {
		qa, qb := a.newQP(a.cq), b.newQP(b.cq)
		connect(t, a, b, qa, qb)
		post(t, qa, verbs.SendWR{Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(0, 100)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		good(t, a.cq, 1)
		require.NoError(t, qa.Destroy())
		require.NoError(t, qb.Destroy())
	}
	close(done)
	wg.Wait()
	require.Equal(t, uint64(rounds), counter(t, a, "completed"))
	require.Equal(t, 100*(rounds+counter(t, a, "repeated_requests")), counter(t, a, "sent_payload"))
}

// A queue pair that is destroyed after those of the past were counted and before
// those of the present are.
func TestDestroyedInBetween(t *testing.T) {
	var hook func()
	b := newBench(t, 1, func(c *Config) {
		clock := c.Clock
		c.Clock = func() int64 {
			if f := hook; f != nil {
				hook = nil
				f()
			}
			return clock()
		}
	}).connect()
	b.write(100)
	b.step()
	require.Equal(t, uint64(100), b.values()["sent_payload"])
	hook = func() { require.NoError(t, b.qp.Destroy()) }
	require.Equal(t, uint64(100), b.values()["sent_payload"])
	require.Nil(t, hook)
	require.Equal(t, uint64(100), b.values()["sent_payload"], "and it counts once")
}

// Every counter that a device has by default is described, by a sentence without
// an end.
func TestCounterNames(t *testing.T) {
	a, _ := pair(t, 1)
	m, err := a.nic.Counters()
	require.NoError(t, err)
	known := map[string]CounterInfo{}
	for _, c := range CounterNames() {
		require.NotContains(t, known, c.Name)
		require.NotEmpty(t, c.Unit, c.Name)
		require.NotEmpty(t, c.Kind, c.Name)
		require.NotRegexp(t, `[.;:,]$`, c.Text, c.Name)
		require.Equal(t, c, DescribeCounter(c.Name))
		known[c.Name] = c
	}
	for name := range m {
		require.Contains(t, known, name)
	}
	require.Equal(t, "drop", known["icrc_error"].Kind)
	require.Equal(t, "failure", known["resp_remote_access_errors"].Kind)
	require.Equal(t, "retry", known["roce_adp_retrans"].Kind)
	require.Equal(t, "note", known["icrc_id_learned"].Kind)
	require.Equal(t, "packets", DescribeCounter("fault_tx_drop").Unit)
	require.True(t, strings.HasPrefix(DescribeCounter("what_is_this").Text, "a counter"))
}

// BenchmarkLook is a look at 4096 queue pairs; what counts is how long it keeps
// the shard at a time.
func BenchmarkLook(b *testing.B) {
	a, _ := pair(b, 1)
	const qps = 4096
	for range qps {
		_, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		require.NoError(b, err)
	}
	for name, look := range map[string]func() error{
		"qps":      func() error { _, err := a.nic.QPs(); return err },
		"counters": func() error { _, err := a.nic.Counters(); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, look())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(qps/inspectBatch), "ns/hold")
		})
	}
}

// The page says of every counter what the table does.
func TestCounterPage(t *testing.T) {
	b, err := os.ReadFile("../docs/counters.md")
	require.NoError(t, err)
	page := string(b)
	rows := 0
	for _, l := range strings.Split(page, "\n") {
		if strings.HasPrefix(l, "| `") && strings.Count(l, "|") == 5 {
			rows++
		}
	}
	all := CounterNames()
	for _, c := range all {
		require.Equal(t, 1, strings.Count(page, fmt.Sprintf("\n| `%s` | %s | ", c.Name, c.Unit)), "%s in %s", c.Name, c.Unit)
		require.Contains(t, page, strings.ToUpper(c.Text[:1])+c.Text[1:]+".", c.Name)
	}
	require.Equal(t, len(all)+2, rows, "the page has counters that are not there")
}
