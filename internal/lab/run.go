package lab

import (
	"fmt"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/sim"
	"github.com/gorxe/gorxe/verbs"
)

// firstPSN is that of both directions of every flow: low, and not 0.
const firstPSN = 1000

// run is a scenario under way.
type run struct {
	s     *Scenario
	net   *sim.Sim
	flows []*flow
	hosts map[*sim.Node]*host
	byQP  map[arrival]*flow
	ports []*port
	byPt  map[*sim.Port]*port
	fail  error

	samples []sample
}

// arrival is a queue pair that a packet comes to.
type arrival struct {
	node *sim.Node
	qpn  bth.QPN
}

// host is a node with what its flows share.
type host struct {
	node  *sim.Node
	pd    *verbs.PD
	cq    *verbs.CQ // of requests
	rcq   *verbs.CQ // of receives
	mine  []*flow   // that ask from here, by WC.ID >> 32
	wcs   [64]verbs.WC
	depth int
}

// flow is a Flow under way.
type flow struct {
	*Flow
	from, to *host
	qp, peer *verbs.QP
	local    *verbs.MR // at from
	remote   *verbs.MR
	wr       [1]verbs.SendWR
	recv     [1]verbs.RecvWR

	next, done int
	posted     []int64 // when each of those under way was, a ring of Depth
	last       int64   // when the last was done
	ended      int64   // when all were, or 0
	failed     string

	expect  bth.PSN
	octets  uint64 // of payload that came in order
	packets uint64 // of data that came
	marks   uint64 // of those with CE
	cnps    uint64 // that reached the sender of the data
	halfway uint64 // octets by half of the time
	took    []Took
}

// Took is a message that was done.
type Took struct {
	At time.Duration `json:"at"` // when
	// Took is since it was posted, or since the one before it was done where that
	// was later: what the message took and not what waited before it.
	Took time.Duration `json:"took"`
}

// Run runs a scenario that Parse has returned.
func (s *Scenario) Run() (*Report, error) {
	net, err := s.build()
	if err != nil {
		return nil, err
	}
	defer net.Close()
	r := &run{s: s, net: net, hosts: map[*sim.Node]*host{}, byQP: map[arrival]*flow{}, byPt: map[*sim.Port]*port{}}
	if err := r.setUp(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	net.Watch(r.arrived)
	net.WatchPorts(r.queued)
	net.After(s.Sample, r.tick)
	net.After(s.Duration/2, r.half)
	net.Run(s.Duration)
	if r.fail != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, r.fail)
	}
	return r.report(), nil
}

func (r *run) setUp() error {
	byName := map[string]*sim.Node{}
	for _, n := range r.net.Nodes() {
		byName[n.Name] = n
		r.addPort(n.Port())
	}
	for _, sw := range r.net.Switches() {
		for _, p := range sw.Ports() {
			r.addPort(p)
		}
	}
	for i := range r.s.Flows {
		f := &r.s.Flows[i]
		for _, name := range []string{f.From, f.To} {
			n := byName[name]
			if r.hosts[n] == nil {
				r.hosts[n] = &host{node: n}
			}
			r.hosts[n].depth += 2*f.Depth + 8
		}
	}
	for i := range r.s.Flows {
		f := &r.s.Flows[i]
		if err := r.addFlow(f, r.hosts[byName[f.From]], r.hosts[byName[f.To]]); err != nil {
			return fmt.Errorf("flow %s: %w", f.Name, err)
		}
	}
	return nil
}

// open makes what flows of a host share, once.
func (h *host) open() (err error) {
	if h.pd != nil {
		return nil
	}
	if h.pd, err = h.node.Ctx.AllocPD(); err != nil {
		return err
	}
	if h.cq, err = h.node.Ctx.CreateCQ(verbs.CQConfig{Depth: h.depth}); err != nil {
		return err
	}
	h.rcq, err = h.node.Ctx.CreateCQ(verbs.CQConfig{Depth: h.depth})
	h.node.OnStep = h.poll
	return err
}

func (r *run) addFlow(spec *Flow, from, to *host) (err error) {
	f := &flow{Flow: spec, from: from, to: to, posted: make([]int64, spec.Depth), expect: bth.MakePSN(firstPSN)}
	if err := from.open(); err != nil {
		return err
	}
	if err := to.open(); err != nil {
		return err
	}
	room := max(spec.Size, 8)
	if f.local, err = from.pd.AllocMR(room, verbs.AccessAll); err != nil {
		return err
	}
	if f.remote, err = to.pd.AllocMR(room, verbs.AccessAll); err != nil {
		return err
	}
	receives := 2*spec.Depth + 8
	cap := verbs.QPCap{MaxSendWR: spec.Depth, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1}
	if f.qp, err = from.pd.CreateQP(verbs.QPConfig{Type: spec.service(), SendCQ: from.cq, RecvCQ: from.rcq, Cap: cap}); err != nil {
		return err
	}
	if f.peer, err = to.pd.CreateQP(verbs.QPConfig{Type: spec.service(), SendCQ: to.cq, RecvCQ: to.rcq, Cap: cap}); err != nil {
		return err
	}
	o := verbs.DefaultConnectOptions()
	o.PathMTU, o.RateLimit = verbs.MTU(r.s.MTU), uint32(spec.RateLimit/1000)
	gid := 0
	if r.s.IPv6 {
		gid = 1
	}
	if err := sim.Connect(from.node, to.node, f.qp, f.peer, sim.Conn{Options: o, GID: gid, PSN: firstPSN}); err != nil {
		return err
	}
	r.byQP[arrival{from.node, bth.QPN(f.qp.QPN())}] = f
	r.byQP[arrival{to.node, bth.QPN(f.peer.QPN())}] = f
	f.wr[0] = verbs.SendWR{
		Opcode: spec.opcode(), SGL: []verbs.SGE{f.local.SGE(0, spec.Size)}, Flags: verbs.SendSignaled,
		RemoteAddr: f.remote.Addr(), RKey: f.remote.RKey(),
	}
	if spec.Op == "send" {
		f.recv[0] = verbs.RecvWR{ID: uint64(len(to.mine)) << 32, SGL: []verbs.SGE{f.remote.SGE(0, spec.Size)}}
		for range receives {
			if _, err := f.peer.PostRecv(f.recv[:]); err != nil {
				return err
			}
		}
	}
	f.wr[0].ID = uint64(len(from.mine)) << 32
	from.mine = append(from.mine, f)
	if spec.Op == "send" {
		to.mine = append(to.mine, f) // whose receives are there
	}
	r.flows = append(r.flows, f)
	r.net.After(spec.Start, func() { f.post(int64(r.net.Now())) })
	return nil
}

// post keeps as many messages under way as there may be.
func (f *flow) post(now int64) {
	for f.failed == "" && f.next-f.done < f.Depth && (f.Count == 0 || f.next < f.Count) && now < int64(f.Stop) {
		if _, err := f.qp.PostSend(f.wr[:]); err != nil {
			f.failed = err.Error()
			return
		}
		f.posted[f.next%f.Depth] = now
		f.next++
	}
}

// completed notes that a message is done, and posts more.
func (f *flow) completed(now int64, c *verbs.WC) {
	if err := c.Err(); err != nil {
		if f.failed == "" {
			f.failed = fmt.Sprintf("%v at %v", err, time.Duration(now))
		}
		return
	}
	begun := max(f.posted[f.done%f.Depth], f.last)
	f.last = now
	f.done++
	f.took = append(f.took, Took{time.Duration(now), time.Duration(now - begun)})
	f.post(now)
	if f.next == f.done {
		f.ended = now
	}
}

// poll takes the completions of a host.
func (h *host) poll() {
	now := int64(h.node.Sim().Now())
	for {
		k := h.cq.Poll(h.wcs[:])
		for i := range h.wcs[:k] {
			h.mine[h.wcs[i].ID>>32].completed(now, &h.wcs[i])
		}
		if k < len(h.wcs) {
			break
		}
	}
	for {
		k := h.rcq.Poll(h.wcs[:])
		for i := range h.wcs[:k] {
			if f := h.mine[h.wcs[i].ID>>32]; h.wcs[i].Err() == nil {
				_, _ = f.peer.PostRecv(f.recv[:]) // there is room for what has completed
			}
		}
		if k < len(h.wcs) {
			break
		}
	}
}

// arrived sees each packet that reaches a node.
func (r *run) arrived(p sim.Packet) {
	if p.Hit != 0 {
		return
	}
	h := bth.BTH(p.Data)
	f := r.byQP[arrival{p.Node, h.DestQP()}]
	if f == nil {
		return
	}
	info := h.Opcode().Info()
	read := f.Op == "read"
	switch {
	case h.Opcode() == bth.CNP:
		if at := f.from.node; (at == p.Node) != read {
			f.cnps++
		}
		return
	case read && info.Op != bth.OpReadResp, !read && (p.Node != f.to.node || info.Has(bth.Response)):
		return
	}
	f.packets++
	if p.TOS&3 == 3 {
		f.marks++
	}
	psn := h.PSN()
	if psn == f.expect || f.Service == "uc" && psn.After(f.expect) {
		f.expect = psn.Add(1)
		f.octets += uint64(len(p.Data) - info.HdrLen - h.PadCount() - bth.ICRCLen)
	}
}

// half notes what had come by half of the time.
func (r *run) half() {
	for _, f := range r.flows {
		f.halfway = f.octets
	}
	for _, p := range r.ports {
		p.halfway = p.Stats()
	}
}
