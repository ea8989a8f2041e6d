package main

import (
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/verbs"
)

// notice is how a notification point is configured, and what is wanted of it.
type notice struct {
	pacing string
	gap    time.Duration // between CNPs to one key
	family int
	link   string
}

func (n *notice) name() string {
	return fmt.Sprintf("%s/%v/IPv%d/%s", n.pacing, n.gap, n.family, n.link)
}

// TestCNPsOnTheWire: three devices send to a fourth, on the other side of a wire, by
// queue pairs of every kind; two have a fifth of their packets marked, the third none.
// What the fourth answers is captured by tcpdump at its interface, and read by tshark:
// the form of each CNP, the time between those to one pacing key, and that there is a
// marked packet for each, and a CNP at once for the first.
func TestCNPsOnTheWire(t *testing.T) {
	for _, tool := range []string{"tcpdump", "tshark"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, which is not installed", tool)
		}
	}
	i := 0
	for _, gap := range []time.Duration{4 * time.Microsecond, 50 * time.Microsecond, time.Millisecond} {
		for _, pacing := range []string{cc.PacingQP, cc.PacingDestination, cc.PacingPort} {
			n := &notice{pacing, gap, []int{4, 6, 6, 4}[i%4], []string{gorxe.LinkUDP, gorxe.LinkPacket}[i%2]}
			t.Run(n.name(), func(t *testing.T) { n.run(t) })
			i++
		}
	}
}

// wantNotices is how many CNPs a run ends with.
const wantNotices = 100

func (n *notice) run(t *testing.T) {
	c := newCrowdOf(t, n)
	file, stop := record(t, c.np.host)
	for until := time.Now().Add(time.Minute); c.np.counter("np_cnp_sent") < wantNotices; {
		require.True(t, time.Now().Before(until), "no %d CNPs in a minute", wantNotices)
		c.step()
	}
	c.drain()
	sent := c.np.counter("np_cnp_sent")
	stop()
	frames := readFrames(t, file)

	var cnps int
	for i := range frames {
		if frames[i].opcode == uint8(bth.CNP) {
			cnps++
			c.requireForm(&frames[i])
		}
	}
	require.EqualValues(t, sent, cnps, "in the capture")
	c.requireCauses(frames)
	c.requireSpacing(n, frames)
	c.requireFirst(n, frames)
	c.report(n, frames)
}

// device is one of the crowd.
type device struct {
	host *testbed.Host
	addr netip.Addr
	ctx  *verbs.Context
	pd   *verbs.PD
	cq   *verbs.CQ
	t    *testing.T
}

func (d *device) counter(name string) uint64 {
	c, err := d.ctx.Counters()
	require.NoError(d.t, err)
	return c[name]
}

// pairing is a connection of one of the crowd with the notification point: data goes
// there.
type pairing struct {
	from       *device
	marked     bool
	src, dst   *verbs.QP
	own, there *verbs.MR
	read       bool // the notification point asks for it
	posted     int
	octets     int
}

// crowdOf is the senders and the notification point.
type crowdOf struct {
	t       *testing.T
	np      *device
	senders []*device
	pairs   []*pairing
	byQPN   map[*verbs.CQ]map[uint32]*pairing
}

// eachMessage is how long messages are: some packets of a path MTU of 1024.
const eachMessage = 6000

func newCrowdOf(t *testing.T, n *notice) *crowdOf {
	p := testbed.NewPair(t, 1500)
	// Packets are cut before the capture, so that each is seen.
	for _, h := range []*testbed.Host{p.A, p.B} {
		h.Tool("ethtool", "-K", testbed.Iface, "tx-udp-segmentation", "off")
	}
	addrs, bits := []string{"192.0.2.1", "192.0.2.3", "192.0.2.4"}, 24
	there := p.B.V4
	if n.family == 6 {
		addrs, bits, there = []string{"fd00:2::1", "fd00:2::3", "fd00:2::4"}, 64, p.B.V6
	}
	c := &crowdOf{t: t, byQPN: make(map[*verbs.CQ]map[uint32]*pairing)}
	// A goroutine of its own moves it. A gap in the packets would be answered by a CNP too.
	c.np = c.open(p.B, there, gorxe.Config{
		Link: n.link, Serve: true, CC: fmt.Sprintf("np_cnp_pacing=%s,np_min_time_between_cnps=%d,roce_slow_restart=0", n.pacing, n.gap.Microseconds()),
	})
	for i, a := range addrs {
		addr := netip.MustParseAddr(a)
		if i > 0 {
			p.A.AddAddr(netip.PrefixFrom(addr, bits))
		}
		cfg := gorxe.Config{Link: n.link, Seed: uint64(i + 1), CC: "window=8,rp_min_rate=2000"}
		marked := i < 2
		if marked {
			cfg.Faults = "tx ce 20%"
		}
		d := c.open(p.A, addr, cfg)
		c.senders = append(c.senders, d)
		c.connect(d, marked, verbs.RC, false)
		c.connect(d, marked, verbs.RC, true)
		c.connect(d, marked, verbs.UC, false)
	}
	return c
}

func (c *crowdOf) open(h *testbed.Host, addr netip.Addr, cfg gorxe.Config) *device {
	cfg.Addr, cfg.Daemon = addr.String(), gorxe.DaemonNever
	d := &device{host: h, addr: addr, t: c.t}
	h.Do(func() {
		var err error
		d.ctx, err = gorxe.Open(cfg)
		require.NoError(c.t, err)
	})
	c.t.Cleanup(func() { _ = d.ctx.Close() })
	var err error
	d.pd, err = d.ctx.AllocPD()
	require.NoError(c.t, err)
	d.cq, err = d.ctx.CreateCQ(verbs.CQConfig{Depth: 256})
	require.NoError(c.t, err)
	c.byQPN[d.cq] = make(map[uint32]*pairing)
	return d
}

func (c *crowdOf) connect(from *device, marked bool, typ verbs.QPType, read bool) {
	p := &pairing{from: from, marked: marked, read: read}
	end := func(d *device) (*verbs.QP, *verbs.MR) {
		q, err := d.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: d.cq, RecvCQ: d.cq, Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 1}})
		require.NoError(c.t, err)
		m, err := d.pd.AllocMR(eachMessage, verbs.AccessAll)
		require.NoError(c.t, err)
		c.byQPN[d.cq][q.QPN()] = p
		return q, m
	}
	p.src, p.own = end(from)
	p.dst, p.there = end(c.np)
	for i := range p.own.Bytes() {
		p.own.Bytes()[i] = byte(i*7 + i>>8 + len(c.pairs))
	}
	o := verbs.DefaultConnectOptions()
	o.PathMTU, o.Timeout = 1024, 18
	a, err := p.src.Endpoint(c.np.addr)
	require.NoError(c.t, err)
	b, err := p.dst.Endpoint(from.addr)
	require.NoError(c.t, err)
	from.host.Do(func() { require.NoError(c.t, p.src.Connect(a, b, o)) })
	c.np.host.Do(func() { require.NoError(c.t, p.dst.Connect(b, a, o)) })
	c.pairs = append(c.pairs, p)
}

// step keeps two messages of each queue pair under way.
func (c *crowdOf) step() {
	for _, p := range c.pairs {
		for p.posted < 2 {
			q, wr := p.src, verbs.SendWR{Opcode: verbs.WRWrite, SGL: []verbs.SGE{p.own.SGE(0, eachMessage)}, RemoteAddr: p.there.Addr(), RKey: p.there.RKey(), Flags: verbs.SendSignaled}
			if p.read {
				q, wr = p.dst, verbs.SendWR{Opcode: verbs.WRRead, SGL: []verbs.SGE{p.there.SGE(0, eachMessage)}, RemoteAddr: p.own.Addr(), RKey: p.own.RKey(), Flags: verbs.SendSignaled}
			}
			_, err := q.PostSend([]verbs.SendWR{wr})
			require.NoError(c.t, err)
			p.posted++
		}
	}
	c.poll()
}

func (c *crowdOf) poll() {
	var wc [64]verbs.WC
	for cq, of := range c.byQPN {
		for _, w := range wc[:cq.Poll(wc[:])] {
			require.NoError(c.t, w.Err())
			of[w.QPN].posted--
			of[w.QPN].octets += eachMessage
		}
	}
}

// drain waits for what is under way, and for the CNPs to be heeded.
func (c *crowdOf) drain() {
	require.Eventually(c.t, func() bool {
		c.poll()
		under := 0
		for _, p := range c.pairs {
			under += p.posted
		}
		var handled uint64
		for _, d := range c.senders {
			handled += d.counter("rp_cnp_handled")
		}
		return under == 0 && handled == c.np.counter("np_cnp_sent")
	}, 30*time.Second, time.Millisecond, "everything completes, and every CNP reaches who is to heed it")
	require.Zero(c.t, c.senders[2].counter("rp_cnp_handled"), "of the device whose packets are not marked")
	for _, p := range c.pairs {
		require.Positive(c.t, p.octets)
		require.Equal(c.t, p.own.Bytes(), p.there.Bytes())
	}
}
