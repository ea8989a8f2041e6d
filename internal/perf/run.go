package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/internal/perf/report"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

// run is one end of a test.
type run struct {
	cfg  *Config
	conn *oob.Conn
	peer oob.Peer
	out  *report.Printer

	dev    *verbs.Context
	pd     *verbs.PD
	mr     *verbs.MR
	mem    []byte // of mr
	cq     *verbs.CQ
	srq    *verbs.SRQ
	flows  []flow
	boxes  []inbox
	byQPN  map[uint32]int
	gid    verbs.GIDEntry
	port   verbs.PortAttr
	layout layout

	parent context.Context // of the whole test
	abort  context.CancelCauseFunc
	ctx    context.Context // of the run of one size
	end    context.CancelCauseFunc
	ended  atomic.Bool // ctx is
	began  time.Time
	clock  clock
	second atomic.Bool // a row of --run_infinitely is due
	moved  atomic.Uint64
	wcs    [64]verbs.WC

	size    uint64
	iters   uint64
	cqMod   uint64
	posted  uint64 // sends of this run, over all queue pairs
	sent    uint64 // complete
	arrived uint64
	counted uint64 // of these, what the clock measures
	lastAt  time.Duration
	lost    uint64 // messages that the runs ended without
	due     uint64 // messages that should have come in all runs
	waits   bool   // for the first message
	peak    *peak
	stamp   func()

	peerDepth int
	rounds    rounds
}

// Run runs a test as the configuration says, and prints what perftest prints.
// Ending ctx ends it with ctx's cause, after a row of what was measured. A
// failed request is a *verbs.StatusError. A device that Run opened is closed,
// and what its Close says is part of the error.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := cfg.complete(); err != nil {
		return err
	}
	r := &run{cfg: &cfg, dev: cfg.Device, began: time.Now()}
	r.parent, r.abort = context.WithCancelCause(ctx)
	defer r.abort(nil)
	if r.dev != nil {
		if err := r.suits(); err != nil {
			return err
		}
	}
	if err := r.rendezvous(); err != nil {
		return err
	}
	defer r.conn.Close()
	local, remote := r.conn.Addrs()
	if r.dev == nil {
		if r.dev, err = cfg.Open(local); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.dev.Close()) }()
		if err := r.suits(); err != nil {
			return err
		}
	}
	if err := r.hello(remote); err != nil {
		return err
	}
	defer r.tearDown()
	if err := r.setUp(); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	err = r.measure()
	if werr := r.out.Err(); err == nil && werr != nil {
		err = werr
	}
	return err
}

func (r *run) oobConfig() oob.Config {
	c := r.cfg
	return oob.Config{
		Kind: c.Kind, Server: c.server(), QPs: c.QPs, Both: c.Both, All: c.All,
		Duration: c.Duration > 0 && !c.Infinite, Infinite: c.Infinite, WriteImm: c.WriteImm, Datagram: c.Transport == verbs.UD,
		MTU: 4096, StepTimeout: c.Timeout, // the MTU is offered in hello
	}
}

// rendezvous connects to the server, or waits for a client for as long as it
// takes.
func (r *run) rendezvous() (err error) {
	c := r.cfg
	p := report.New(c.Out, r.test())
	if c.peakless {
		p.Say("WARNING: BW peak won't be measured in this run.")
	}
	if c.conn != nil {
		r.conn, err = oob.New(r.parent, c.conn, r.oobConfig())
		return err
	}
	if !c.server() {
		r.conn, err = oob.Dial(r.parent, c.Peer, c.Port, r.oobConfig())
		return err
	}
	l, err := oob.Listen(r.parent, "", c.Port)
	if err != nil {
		return err
	}
	p.Waiting()
	if c.Ready != nil {
		c.Ready(l.Port())
	}
	r.conn, err = l.Accept(r.parent, r.oobConfig())
	return err
}

// test is what the header says.
func (r *run) test() report.Test {
	c := r.cfg
	t := report.Test{
		Latency: c.Kind.Latency(), Both: c.Both, Post: c.PostList, Events: c.Events, Duration: c.Duration, Infinite: c.Infinite, Server: c.server(),
		Histogram: c.Histogram, Unsorted: c.Unsorted,
		QPs: c.QPs, Transport: c.Transport.String(), SRQ: c.SRQ, TxDepth: c.TxDepth, RxDepth: c.RxDepth, CQMod: c.CQMod,
		MTU: r.peer.MTU, Inline: c.Inline, GIDIndex: r.gid.Index, OutReads: c.OutReads, Gbits: c.Gbits, NoPeak: c.NoPeak,
		Size: uint64(c.Size), Iters: uint64(c.Iters),
	}
	switch k := c.Kind; {
	case k.Send():
		t.Verb = "Send"
	case writes(k) && c.WriteImm:
		t.Verb = "RDMA_Write_imm"
	case writes(k):
		t.Verb = "RDMA_Write"
	case reads(k):
		t.Verb = "RDMA_Read"
	default:
		t.Verb, t.Atomic = "Atomic", "FETCH_AND_ADD"
		if c.CmpSwap {
			t.Atomic = "CMP_AND_SWAP"
		}
	}
	if r.dev != nil {
		if d, err := r.dev.Device(); err == nil {
			t.Device = d.Name
		}
	}
	return t
}

// hello settles the path MTU and the GID, and prints the header.
func (r *run) hello(remote netip.Addr) (err error) {
	c := r.cfg
	mtu := c.MTU
	if mtu == 0 {
		mtu = int(r.port.ActiveMTU)
	}
	if err := r.conn.OfferMTU(mtu); err != nil {
		return err
	}
	if r.gid, err = r.chooseGID(remote); err != nil {
		return err
	}
	if r.peer, err = r.conn.Hello(); err != nil {
		return err
	}
	switch fits := c.Transport != verbs.UD || c.All || c.Size <= r.peer.MTU; {
	case fits:
	case c.Fit: // perftest says so and goes on
		fmt.Fprintf(c.Out, " Max msg size in UD is MTU %d\n Changing to this MTU\n", r.peer.MTU)
		r.cfg.Size = r.peer.MTU
	default:
		return fmt.Errorf("-s %d: a datagram has at most a path MTU of octets, here %d; give -s %[2]d or less, or use -c RC", c.Size, r.peer.MTU)
	}
	r.out = report.New(c.Out, r.test())
	r.out.Header()
	return nil
}

// measure is the runs, and what is told of them.
func (r *run) measure() error {
	r.out.Columns()
	if r.conn.Passive() {
		return r.passive()
	}
	var last report.Bandwidth
	sizes := r.sizes()
	for i, size := range sizes {
		b, err := r.measureSize(size, i == len(sizes)-1)
		if err != nil {
			if r.cfg.Infinite && r.parent.Err() != nil {
				r.out.Stopped()
			}
			r.out.End()
			return err
		}
		last = b
	}
	if err := r.endRounds(); err != nil {
		return err
	}
	r.linger()
	if _, _, err := r.finish(r.told(last)); r.unfinished(err) {
		return err
	}
	r.out.End()
	r.sayLost()
	r.sayCongestion()
	return errors.Join(r.allLost(), r.writeJSON())
}

// passive is the end that only has its memory used.
func (r *run) passive() error {
	if r.rounds.on {
		r.size, r.iters = uint64(r.cfg.Size), 0
		if err := r.within(r.serve); err != nil {
			return err
		}
	}
	b, told, err := r.finish(oob.BWReport{})
	if r.unfinished(err) {
		return err
	}
	if told {
		r.out.BW(r.heard(b), nil)
	}
	r.out.End()
	r.sayCongestion()
	return r.writeJSON()
}

// endRun and finish are oob.Conn's, awaited.
func (r *run) endRun(local oob.BWReport) (remote oob.BWReport, told bool, err error) {
	err = r.await(func() error { remote, told, err = r.conn.End(local); return err })
	return remote, told, err
}

func (r *run) finish(local oob.BWReport) (remote oob.BWReport, told bool, err error) {
	err = r.await(func() error { remote, told, err = r.conn.Finish(local); return err })
	return remote, told, err
}

// unfinished reports whether err is one: --run_infinitely ends when one end
// does.
func (r *run) unfinished(err error) bool {
	return err != nil && !(r.cfg.Infinite && errors.Is(err, oob.ErrClosed))
}

// sizes are those of -a, or the one of -s.
func (r *run) sizes() []int {
	if !r.cfg.All {
		return []int{r.cfg.Size}
	}
	most := maxSize
	if r.cfg.Transport == verbs.UD {
		most = r.peer.MTU
	}
	var s []int
	for n := 2; n <= most; n *= 2 {
		s = append(s, n)
	}
	return s
}

// measureSize is the run of one size and its row. What was measured of a run
// that ended early is a row too.
func (r *run) measureSize(size int, last bool) (b report.Bandwidth, err error) {
	c := r.cfg
	if err := r.ready(size); err != nil {
		return b, err
	}
	if err := r.await(r.conn.Begin); err != nil {
		return b, err
	}
	if c.Kind.Latency() {
		var s *report.Samples
		err := r.within(func() (err error) { s, err = r.latency(); return err })
		if err != nil && r.sent+r.arrived == 0 {
			return b, err
		}
		r.out.Lat(s)
		if err != nil {
			return b, err
		}
		_, _, err = r.endRun(oob.BWReport{})
		return b, err
	}
	err = r.within(func() (err error) { b, err = r.bandwidth(); return err })
	if err != nil {
		if b.Iters > 0 && !c.Infinite {
			r.out.BW(b, nil)
		}
		return b, err
	}
	if last && !c.Both {
		r.out.BW(b, nil)
		return b, nil
	}
	remote, told, err := r.endRun(r.told(b))
	if err != nil {
		return b, err
	}
	if !told || c.messages() && c.timed() {
		r.out.BW(b, nil)
		return b, nil
	}
	h := r.heard(remote)
	r.out.BW(b, &h)
	if c.ReportBoth {
		r.out.Apart(b, h)
	}
	return b, nil
}

// ready prepares the run of one size: counts, slots, and receives.
func (r *run) ready(size int) error {
	c := r.cfg
	r.size, r.iters = uint64(size), uint64(c.Iters)
	r.moved.Store(0)
	r.posted, r.sent, r.arrived, r.counted = 0, 0, 0, 0
	r.clock.reset()
	r.peak = nil
	if !c.NoPeak {
		r.peak = newPeak(r.iters * uint64(c.QPs))
	}
	for i := range r.flows {
		r.prepare(&r.flows[i])
	}
	r.cqMod = min(uint64(c.CQMod), r.flows[0].depth)
	r.beginRound()
	if !c.messages() || c.Kind == oob.SendBW && !c.server() && !c.Both {
		return nil
	}
	if c.WriteImm && !c.Kind.Latency() && !c.server() && !c.Both {
		return nil
	}
	for i := range r.boxes {
		in := &r.boxes[i]
		in.ring = r.ring(r.mr.Addr()+r.layout.into(i), c.RxDepth, true)
		in.sge[0].Length = uint32(in.ring.stride)
		in.limit = max(in.armed, in.taken+r.iters*uint64(c.QPs/len(r.boxes)))
		in.depth = uint64(c.RxDepth)
		if c.Check && !c.WriteImm {
			in.depth = min(in.depth, in.ring.slots)
		}
		if err := r.arm(in); err != nil {
			return err
		}
	}
	return nil
}

// sayLost tells what UC and UD lost, and what of it was dropped here.
func (r *run) sayLost() {
	if r.lost == 0 {
		return
	}
	s := fmt.Sprintf("%d of %d messages arrived, %d were lost: %v does not repeat what is lost", r.due-r.lost, r.due, r.lost, r.cfg.Transport)
	if c, err := r.dev.Counters(); err == nil {
		dropped := trace.Drops(c)
		if n := c["link_rx_dropped"]; n > 0 {
			dropped = append(dropped, fmt.Sprintf("%d x link_rx_dropped, the receive buffer was full", n))
		}
		if len(dropped) == 0 {
			dropped = []string{"nothing"}
		}
		s += "; dropped here: " + strings.Join(dropped, "; ")
	}
	r.out.Say(s)
}

// sayCongestion tells of the marks and notifications that its queue pairs had, if
// they had any.
func (r *run) sayCongestion() {
	var came, sent, heeded, cuts uint64
	for i := range r.flows {
		s, err := r.flows[i].qp.Stats()
		if err != nil {
			return
		}
		came += s["np_ecn_marked_roce_packets"]
		sent += s["np_cnp_sent"]
		heeded += s["rp_cnp_handled"]
		cuts += s["roce_slow_restart"]
	}
	if came+sent+heeded+cuts > 0 {
		r.out.Say(fmt.Sprintf("congestion: %d packets came marked, %d CNPs were sent, %d heeded; %d losses cut the rate", came, sent, heeded, cuts))
	}
}

// allLost is the error of a test that nothing arrived of: its way is blocked, or
// leads elsewhere.
func (r *run) allLost() error {
	if r.lost == 0 || r.lost < r.due {
		return nil
	}
	return fmt.Errorf("none of the peer's messages arrived: is %v the address of this end that it sends to, by a GID of RoCE v2 (-x on both sides), does UDP port 4791 pass?", r.gid.GID.Addr())
}

func (r *run) writeJSON() (err error) {
	if r.cfg.JSON == "" {
		return nil
	}
	f, err := os.Create(r.cfg.JSON)
	if err != nil {
		return fmt.Errorf("--out_json_file: %w; choose a file elsewhere", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.out.WriteJSON(f)
}
