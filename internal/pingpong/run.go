package pingpong

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// run is one exchange of messages.
type run struct {
	cfg *Config
	svc *service
	dev *verbs.Context

	pd    *verbs.PD
	cq    *verbs.CQ
	srq   *verbs.SRQ // nil but for SRQ
	lanes []*lane
	buf   buffers
	check checker

	posted  int // receives outstanding
	sends   int // posted
	sent    int
	recvd   atomic.Int64
	strays  atomic.Int64 // datagrams of others
	before  map[string]uint64
	last    time.Time
	gaps    gaps
	recv    [1]verbs.RecvWR
	destroy []func() error // objects, in the order they were made
}

// Run runs pingpong as the configuration says and prints what the original
// prints. Ending ctx ends it with ctx's error. A failed request is a
// *verbs.StatusError. A device that Run opened is closed, and what its Close
// says is part of the error; on one that it was given it leaves no object.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	if cfg.Device != nil {
		if err := cfg.suits(cfg.Device); err != nil {
			return err
		}
	}
	conn, err := rendezvous(ctx, &cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	svc := services[cfg.Service]
	r := &run{cfg: &cfg, svc: &svc, dev: cfg.Device}
	if r.dev == nil {
		if r.dev, err = cfg.Open(addrOf(conn.LocalAddr())); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.dev.Close()) }()
		if err := cfg.suits(r.dev); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.setup(); err != nil {
		return err
	}
	if err := r.connect(&oob{conn, cfg.Timeout, cfg.Service}); err != nil {
		return orDone(ctx, err)
	}
	return r.messages(ctx, conn)
}

// messages is what follows the exchange.
func (r *run) messages(ctx context.Context, conn net.Conn) error {
	left := make(chan struct{}) // closed when the peer's end of the connection is
	go untilClosed(conn, left)
	defer func() { conn.Close(); <-left }()

	wctx, end := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.watch(wctx, end, left)
	}()
	start := time.Now()
	err := r.loop(wctx)
	took := time.Since(start)
	end(nil)
	<-over
	if r.cfg.Verbose {
		defer r.counters()
	}
	if err != nil {
		return err
	}
	r.report(took)
	if r.svc.reliable() {
		r.linger(ctx, conn, left)
	}
	if r.check.bad != nil {
		return r.check.bad
	}
	return nil
}

// orDone prefers ctx's error to what its end caused.
func orDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// setup makes the objects. Every descriptor of the original is here: one send of
// each queue pair, RxDepth receives, one queue for the completions of both.
func (r *run) setup() (err error) {
	c := r.cfg
	if r.before, err = r.dev.Counters(); err != nil {
		return err
	}
	if r.pd, err = r.dev.AllocPD(); err != nil {
		return err
	}
	r.own(r.pd.Destroy)
	r.buf = c.buffers()
	if r.buf.mr, err = r.pd.AllocMR(r.buf.octets(c.lanes()), verbs.AccessLocalWrite); err != nil {
		return err
	}
	r.own(r.buf.mr.Deregister)
	if r.cq, err = r.dev.CreateCQ(verbs.CQConfig{Depth: c.RxDepth + c.lanes()}); err != nil {
		return err
	}
	r.own(r.cq.Destroy)
	if c.Service == SRQ {
		if r.srq, err = r.pd.CreateSRQ(verbs.SRQConfig{MaxWR: c.RxDepth, MaxSGE: 1}); err != nil {
			return err
		}
		r.own(r.srq.Destroy)
	}
	for i := range c.lanes() {
		if err := r.addLane(i); err != nil {
			return err
		}
	}
	r.fill()
	return nil
}

// fill writes what the buffers hold before the first message.
func (r *run) fill() {
	if !r.cfg.Check {
		for i := range r.buf.mr.Bytes() {
			r.buf.mr.Bytes()[i] = 0x7b
		}
		return
	}
	r.check = checkerOf(r.client(), r.cfg.Service == SRQ, r.cfg.Size)
	for s := range r.buf.slots {
		wipe(r.buf.received(s))
		r.buf.put(s)
	}
}

// own has an object destroyed at the end of the run.
func (r *run) own(destroy func() error) { r.destroy = append(r.destroy, destroy) }

// close destroys the objects, the last first.
func (r *run) close() error {
	var errs []error
	for _, destroy := range slices.Backward(r.destroy) {
		if err := destroy(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *run) client() bool { return r.cfg.Peer != "" }

// endpoints decides the local GID: the given index, or the one that suits the
// peer.
func (r *run) endpoints(peer netip.Addr) error {
	for _, l := range r.lanes {
		e, err := r.endpoint(l.qp, peer)
		if err != nil {
			return err
		}
		l.local = e
		r.printLocal(e)
	}
	return nil
}

func (r *run) endpoint(q *verbs.QP, peer netip.Addr) (verbs.Endpoint, error) {
	if r.cfg.GIDIndex < 0 {
		e, err := q.Endpoint(peer)
		switch {
		case err == nil:
			return e, nil
		case r.client():
			return e, fmt.Errorf("%w; -g chooses a GID by its index (rxe gids), --dev another device", err)
		}
		return e, fmt.Errorf("%w; start the peer with the index of another GID (-g), or choose another device here (--dev)", err)
	}
	g, err := r.cfg.gid(r.dev)
	if err != nil {
		return verbs.Endpoint{}, err
	}
	e, err := q.Endpoint(g.GID.Addr())
	if err != nil {
		return e, fmt.Errorf("-g %d: %w", r.cfg.GIDIndex, err)
	}
	e.GID, e.GIDIndex = g.GID, g.Index
	return e, nil
}

// connect does the exchange in the order of the role and brings the queue pairs
// to RTS.
func (r *run) connect(o *oob) error {
	if r.client() {
		if err := r.endpoints(addrOf(o.conn.RemoteAddr())); err != nil {
			return err
		}
		if err := o.write(r.locals()); err != nil {
			return err
		}
	}
	peers, err := o.readDests()
	if err != nil {
		return err
	}
	if !r.client() {
		if err := r.endpoints(peers[0].GID.Addr()); err != nil {
			return err
		}
	}
	if err := r.pairUp(peers); err != nil {
		return err
	}
	if err := r.up(); err != nil {
		return err
	}
	if r.client() {
		return o.write([]byte(done))
	}
	if err := o.write(r.locals()); err != nil {
		return err
	}
	return o.readDone()
}

// locals are the addresses of this side as they are written.
func (r *run) locals() []byte {
	es := make([]verbs.Endpoint, len(r.lanes))
	for i, l := range r.lanes {
		es[i] = l.local
	}
	return encodeDests(es, r.svc.addresses)
}

// pairUp gives each queue pair its peer. Those of a server that the client has
// none for stay unused; a client's would have nobody to answer them.
func (r *run) pairUp(peers []verbs.Endpoint) error {
	ours, theirs := len(r.lanes), len(peers)
	if r.client() && theirs < ours || !r.client() && theirs > ours {
		return fmt.Errorf("this side has %d queue pairs, the peer %d: give both the same -q", ours, theirs)
	}
	for i, l := range r.lanes[:min(ours, theirs)] {
		l.peer = peers[i]
		r.printAddr("  remote address:", ", GID", l.peer)
		if err := sameFamily(l.local.GID, l.peer.GID); err != nil {
			return err
		}
	}
	return nil
}

// printAddr prints a GID as inet_ntop does.
func (r *run) printAddr(which, gid string, e verbs.Endpoint) {
	fmt.Fprintf(r.cfg.Out, "%s LID 0x%04x, QPN 0x%06x, PSN 0x%06x%s %s\n", which, e.LID, e.QPN, e.PSN, gid, netip.AddrFrom16(e.GID))
}

func (r *run) printLocal(e verbs.Endpoint) {
	gid := ", GID"
	if r.svc.colon {
		gid = ": GID"
	}
	r.printAddr("  local address: ", gid, e)
}

// loop passes the messages back and forth.
func (r *run) loop(ctx context.Context) error {
	for _, l := range r.lanes {
		l.pending = recvWR
		if r.client() && r.sends < r.cfg.Iters {
			if err := r.postSend(l); err != nil {
				return err
			}
		}
	}
	var wcs [16]verbs.WC
	for int(r.recvd.Load()) < r.cfg.Iters || r.sent < r.cfg.Iters {
		n, err := r.next(ctx, wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if err := r.complete(&wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// next waits for completions: asleep with -e, otherwise polling first.
func (r *run) next(ctx context.Context, wcs []verbs.WC) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if !r.cfg.Events {
		for range 64 {
			if n := r.cq.Poll(wcs); n > 0 {
				return n, nil
			}
		}
	}
	n, err := r.cq.Wait(ctx, wcs)
	if err != nil {
		return 0, orDone(ctx, err)
	}
	return n, nil
}

// counters prints the device's counters that are not 0, by name.
func (r *run) counters() {
	c, err := r.dev.Counters()
	if err != nil {
		return // the device failed, and the run with it
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name] != 0 {
			fmt.Fprintf(r.cfg.Out, "%-24s %d\n", name, c[name])
		}
	}
}
