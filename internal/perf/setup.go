package perf

import (
	"fmt"
	"net/netip"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/internal/perf/report"
	"github.com/gorxe/gorxe/verbs"
)

// qkey is what perftest's UD queue pairs have.
const qkey = 0x11111111

// headroom is what an interface's MTU must have above a path MTU for headers
// (RXE_MAX_HDR_LENGTH of Linux's rxe_param.h).
const headroom = 80

// suits checks the configuration against the device, before any peer is told
// anything.
func (r *run) suits() (err error) {
	c := r.cfg
	if r.port, err = r.dev.Port(); err != nil {
		return err
	}
	if p := r.port; c.MTU > int(p.ActiveMTU) {
		return fmt.Errorf("-m %d: %s has an MTU of %d, which carries a path MTU of %d; use -m %[4]d, or raise it to %[5]d (ip link set %[2]s mtu %[5]d)",
			c.MTU, p.NetDev, p.NetMTU, p.ActiveMTU, c.MTU+headroom)
	}
	d, err := r.dev.Device()
	if err != nil {
		return err
	}
	switch {
	case c.OutReads > d.MaxQPRdAtom:
		return fmt.Errorf("-o %d: the device has at most %d READs and atomics outstanding", c.OutReads, d.MaxQPRdAtom)
	case c.QPs > d.MaxQP:
		return fmt.Errorf("-q %d: the device has at most %d queue pairs", c.QPs, d.MaxQP)
	}
	if c.OutReads == 0 {
		c.OutReads = 1
		if reads(c.Kind) || atomics(c.Kind) {
			c.OutReads = d.MaxQPRdAtom
		}
	}
	if c.GIDIndex >= 0 {
		_, err = r.chooseGID(netip.Addr{})
	}
	return err
}

// chooseGID returns the GID that -x names, or the one that reaches the peer.
func (r *run) chooseGID(peer netip.Addr) (verbs.GIDEntry, error) {
	if r.cfg.GIDIndex < 0 {
		g, err := r.dev.ChooseGID(peer)
		if err != nil {
			return g, fmt.Errorf("%w; -x chooses a GID by its index (rxe gids), --dev another device", err)
		}
		return g, nil
	}
	gids, err := r.dev.GIDs()
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	for _, g := range gids {
		if g.Index == r.cfg.GIDIndex {
			return g, nil
		}
	}
	if len(gids) == 1 {
		return verbs.GIDEntry{}, fmt.Errorf("-x %d: the GID table has only index 0, %v", r.cfg.GIDIndex, gids[0].GID.Addr())
	}
	return verbs.GIDEntry{}, fmt.Errorf("-x %d: the GID table has indexes 0 to %d (rxe gids lists them)", r.cfg.GIDIndex, len(gids)-1)
}

// setUp makes memory, queues and queue pairs.
func (r *run) setUp() (err error) {
	c := r.cfg
	r.layout = r.plan()
	if r.pd, err = r.dev.AllocPD(); err != nil {
		return err
	}
	if r.mr, err = r.pd.AllocMR(r.layout.size(), r.access()); err != nil {
		return err
	}
	r.mem = r.mr.Bytes()
	if r.cq, err = r.dev.CreateCQ(verbs.CQConfig{Depth: c.completions()}); err != nil {
		return err
	}
	if c.SRQ {
		if r.srq, err = r.pd.CreateSRQ(verbs.SRQConfig{MaxWR: c.RxDepth, MaxSGE: 1}); err != nil {
			return err
		}
	}
	r.flows = make([]flow, c.QPs)
	r.byQPN = make(map[uint32]int, c.QPs)
	for i := range r.flows {
		if err := r.makeFlow(i); err != nil {
			return err
		}
	}
	r.makeBoxes()
	r.publish()
	return nil
}

// access is what perftest lets the peer do.
func (r *run) access() verbs.Access {
	a := verbs.AccessLocalWrite
	switch k := r.cfg.Kind; {
	case writes(k):
		a |= verbs.AccessRemoteWrite
	case reads(k):
		a |= verbs.AccessRemoteRead
	case atomics(k):
		a |= verbs.AccessRemoteAtomic
	}
	return a
}

func (r *run) makeFlow(i int) (err error) {
	c := r.cfg
	f := &r.flows[i]
	// One more than -t: another thread may see a completion a moment before its
	// request's place is free.
	limits := verbs.QPCap{MaxSendWR: c.TxDepth + 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: max(c.Inline, 1)}
	if c.messages() && !c.SRQ {
		limits.MaxRecvWR = c.RxDepth
	}
	if c.Check {
		limits.MaxSendWR += noticeSlots
		limits.MaxRecvWR += noticeSlots
		limits.MaxInline = max(limits.MaxInline, noticeLen)
	}
	limits.MaxSendWR = min(limits.MaxSendWR, verbs.MaxQPWR)
	limits.MaxRecvWR = min(limits.MaxRecvWR, verbs.MaxQPWR)
	f.qp, err = r.pd.CreateQP(verbs.QPConfig{Type: c.Transport, SendCQ: r.cq, RecvCQ: r.cq, Cap: limits, SRQ: r.srq})
	if err != nil {
		return fmt.Errorf("couldn't create queue pair %d of %d: %w", i+1, c.QPs, err)
	}
	f.index, f.lkey = i, r.mr.LKey()
	f.wrs, f.sges = make([]verbs.SendWR, c.PostList), make([]verbs.SGE, c.PostList)
	r.byQPN[f.qp.QPN()] = i
	return nil
}

// makeBoxes makes the places to post receives to.
func (r *run) makeBoxes() {
	n := len(r.flows)
	if r.srq != nil {
		n = 1
	}
	r.boxes = make([]inbox, n)
	for i := range r.boxes {
		in := &r.boxes[i]
		in.post = r.flows[i].qp.PostRecv
		if r.srq != nil {
			in.post = r.srq.PostRecv
		}
		in.sge[0].LKey = r.mr.LKey()
		in.wr[0] = verbs.RecvWR{ID: uint64(i), SGL: in.sge[:]}
	}
	for i := range r.flows {
		r.flows[i].in = &r.boxes[min(i, n-1)]
	}
}

// tearDown frees the queue pairs of a device that is the caller's.
func (r *run) tearDown() {
	for i := range r.flows {
		f := &r.flows[i]
		if f.qp != nil {
			_ = f.qp.Destroy()
		}
		if f.ah != nil {
			_ = f.ah.Destroy()
		}
	}
	if r.srq != nil {
		_ = r.srq.Destroy()
	}
	if r.cq != nil {
		_ = r.cq.Destroy()
	}
	if r.mr != nil {
		_ = r.mr.Deregister()
	}
	if r.pd != nil {
		_ = r.pd.Destroy()
	}
}

// connect exchanges addresses and brings the queue pairs to RTS.
func (r *run) connect() error {
	local := make([]oob.Dest, len(r.flows))
	psns := make([]verbs.Endpoint, len(r.flows))
	for i := range r.flows {
		e, err := r.flows[i].qp.Endpoint(r.gid.GID.Addr())
		if err != nil {
			return err
		}
		e.GID, e.GIDIndex = r.gid.GID, r.gid.Index
		psns[i] = e
		local[i] = oob.Dest{
			OutReads: r.cfg.OutReads, QPN: e.QPN, PSN: e.PSN, GID: e.GID, SRQN: r.mark(),
			RKey: r.mr.RKey(), VAddr: r.mr.Addr() + r.layout.into(i),
		}
		r.out.Local(r.address(&local[i]))
	}
	remote, err := r.conn.Exchange(local)
	if err != nil {
		return err
	}
	for i := range remote {
		r.flows[i].dest = remote[i]
		r.out.Remote(r.address(&remote[i]))
	}
	if err := sameFamily(r.gid.GID, remote[0].GID); err != nil {
		return err
	}
	if err := r.agree(remote[0]); err != nil {
		return err
	}
	for i := range r.flows {
		if err := r.up(&r.flows[i], psns[i]); err != nil {
			return err
		}
	}
	if err := r.startRounds(); err != nil {
		return err
	}
	return r.conn.Connected()
}

// address is a line of addresses.
func (r *run) address(d *oob.Dest) report.Address {
	a := report.Address{LID: d.LID, QPN: d.QPN, PSN: d.PSN, GID: d.GID}
	if reads(r.cfg.Kind) || atomics(r.cfg.Kind) {
		a.OutReads = d.OutReads
	}
	if !r.cfg.Kind.Send() {
		a.RKey, a.VAddr = d.RKey, d.VAddr
	}
	return a
}

// up connects a queue pair with perftest's attributes.
func (r *run) up(f *flow, local verbs.Endpoint) (err error) {
	c := r.cfg
	if c.Transport == verbs.UD {
		if err := f.qp.Activate(verbs.DatagramOptions{QKey: qkey, PSN: local.PSN}); err != nil {
			return err
		}
		if c.RateLimit != 0 {
			if err := f.qp.SetRateLimit(c.RateLimit); err != nil {
				return err
			}
		}
		f.ah, err = r.pd.CreateAH(verbs.AV{DGID: f.dest.GID, SGIDIndex: r.gid.Index, TrafficClass: uint8(c.TClass), SL: uint8(c.SL)})
		return err
	}
	o := verbs.ConnectOptions{
		PathMTU: verbs.MTU(r.peer.MTU), Access: r.access(),
		MaxRdAtomic: min(f.dest.OutReads, verbs.MaxRdAtomic), MaxDestRdAtomic: c.OutReads,
		MinRNRTimer: 12, Timeout: uint8(c.QPTimeout), RetryCnt: uint8(c.RetryCount), RNRRetry: 7,
		TrafficClass: uint8(c.TClass), SL: uint8(c.SL), RateLimit: c.RateLimit,
	}
	return f.qp.Connect(local, verbs.Endpoint{QPN: f.dest.QPN, PSN: f.dest.PSN, GID: f.dest.GID}, o.Literal())
}

// sameFamily checks that one IP packet can have both GIDs.
func sameFamily(local, peer verbs.GID) error {
	l, p := local.Addr(), peer.Addr()
	if l.Is4() == p.Is4() {
		return nil
	}
	return fmt.Errorf("the peer's GID is %s %v, this side's %s %v: choose one of the same family on one side (-x N; rxe gids, or show_gids, lists them)",
		family(p), p, family(l), l)
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
