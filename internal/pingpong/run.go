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

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

const (
	recvWR = 1 // wr_id of receives and sends, as in the original
	sendWR = 2
)

// run is one exchange of messages.
type run struct {
	cfg   *Config
	dev   *verbs.Context
	cq    *verbs.CQ
	qp    *verbs.QP
	mr    *verbs.MR
	local verbs.Endpoint
	peer  verbs.Endpoint

	posted  int // receives outstanding
	sends   int // posted
	sent    int
	recvd   atomic.Int64
	pending int // what must complete before the next send
	last    time.Time
	gaps    gaps
	check   checker
}

// gaps are the times between receive completions, for -t.
type gaps struct {
	min, max, sum time.Duration
	n             int
}

// Run runs pingpong as the configuration says and prints what the original
// prints. Ending ctx ends it with ctx's error. A failed request is a
// *verbs.StatusError. A device that Run opened is closed, and what its Close
// says is part of the error.
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

	r := &run{cfg: &cfg, dev: cfg.Device}
	if r.dev == nil {
		if r.dev, err = cfg.Open(addrOf(conn.LocalAddr())); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.dev.Close()) }()
		if err := cfg.suits(r.dev); err != nil {
			return err
		}
	}
	if err := r.setup(); err != nil {
		return err
	}
	defer r.qp.Destroy()
	if err := r.connect(&oob{conn, cfg.Timeout}); err != nil {
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
	r.linger(ctx, conn, left)
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

// setup makes the objects. Every descriptor of the original is here: one send,
// RxDepth receives, one queue for both.
func (r *run) setup() error {
	c := r.cfg
	pd, err := r.dev.AllocPD()
	if err != nil {
		return err
	}
	n := c.Size
	if c.Check {
		n *= 2
	}
	if r.mr, err = pd.AllocMR(n, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if r.cq, err = r.dev.CreateCQ(verbs.CQConfig{Depth: c.RxDepth + 1}); err != nil {
		return err
	}
	r.qp, err = pd.CreateQP(verbs.QPConfig{
		Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: c.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return err
	}
	if c.Check {
		r.check = checkerOf(r.client(), r.mr.Bytes())
		return nil
	}
	for i := range r.mr.Bytes() {
		r.mr.Bytes()[i] = 0x7b
	}
	return nil
}

func (r *run) client() bool { return r.cfg.Peer != "" }

// endpoint decides the local GID: the given index, or the one that suits the
// peer.
func (r *run) endpoint(peer netip.Addr) (err error) {
	if r.cfg.GIDIndex < 0 {
		if r.local, err = r.qp.Endpoint(peer); err == nil {
			return nil
		}
		if r.client() {
			return fmt.Errorf("%w; -g chooses a GID by its index (rxe gids), --dev another device", err)
		}
		return fmt.Errorf("%w; start the peer with the index of another GID (-g), or choose another device here (--dev)", err)
	}
	g, err := r.cfg.gid(r.dev)
	if err != nil {
		return err
	}
	if r.local, err = r.qp.Endpoint(g.GID.Addr()); err != nil {
		return fmt.Errorf("-g %d: %w", r.cfg.GIDIndex, err)
	}
	r.local.GID, r.local.GIDIndex = g.GID, g.Index
	return nil
}

// connect does the exchange in the order of the role and brings the queue pair
// to RTS.
func (r *run) connect(o *oob) (err error) {
	if r.client() {
		if err = r.endpoint(addrOf(o.conn.RemoteAddr())); err != nil {
			return err
		}
		r.printAddr("  local address: ", r.local)
		if err = o.write(encodeDest(r.local)); err != nil {
			return err
		}
	}
	if r.peer, err = o.readDest(); err != nil {
		return err
	}
	if !r.client() {
		if err = r.endpoint(r.peer.GID.Addr()); err != nil {
			return err
		}
		r.printAddr("  local address: ", r.local)
	}
	r.printAddr("  remote address:", r.peer)
	if err = sameFamily(r.local.GID, r.peer.GID); err != nil {
		return err
	}
	if err = r.up(); err != nil {
		return err
	}
	if r.client() {
		return o.write([]byte(done))
	}
	if err = o.write(encodeDest(r.local)); err != nil {
		return err
	}
	return o.readDone()
}

// up connects the queue pair with the original's attributes but for the hop
// limit, and posts the receives.
func (r *run) up() error {
	o := verbs.ConnectOptions{
		PathMTU: verbs.MTU(r.cfg.MTU), MaxRdAtomic: 1, MaxDestRdAtomic: 1,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7, HopLimit: 64,
	}
	if err := r.qp.Connect(r.local, r.peer, o); err != nil {
		return err
	}
	return r.postRecv()
}

// printAddr prints a GID as inet_ntop does.
func (r *run) printAddr(which string, e verbs.Endpoint) {
	fmt.Fprintf(r.cfg.Out, "%s LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s\n", which, e.LID, e.QPN, e.PSN, netip.AddrFrom16(e.GID))
}

// postRecv posts receives up to the depth.
func (r *run) postRecv() error {
	wr := []verbs.RecvWR{{ID: recvWR, SGL: []verbs.SGE{r.mr.SGE(0, r.cfg.Size)}}}
	for ; r.posted < r.cfg.RxDepth; r.posted++ {
		if _, err := r.qp.PostRecv(wr); err != nil {
			return fmt.Errorf("couldn't post receive (%d): %w", r.posted, err)
		}
	}
	return nil
}

func (r *run) postSend() error {
	r.check.prepare(r.sends)
	off := 0
	if r.check.on {
		off = r.cfg.Size
	}
	_, err := r.qp.PostSend([]verbs.SendWR{{
		ID: sendWR, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.mr.SGE(off, r.cfg.Size)},
	}})
	if err != nil {
		return fmt.Errorf("couldn't post send: %w", err)
	}
	r.sends++
	r.pending = recvWR | sendWR
	return nil
}

// loop passes the message back and forth.
func (r *run) loop(ctx context.Context) error {
	r.pending = recvWR
	if r.client() {
		if err := r.postSend(); err != nil {
			return err
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

func (r *run) complete(w *verbs.WC) error {
	if err := r.failure(w); err != nil {
		return fmt.Errorf("%w\n  check: %s", err, r.hint(w))
	}
	switch w.ID {
	case sendWR:
		r.sent++
	case recvWR:
		r.recvd.Add(1)
		if r.posted--; r.posted <= 1 {
			if err := r.postRecv(); err != nil {
				return err
			}
		}
		if int(w.ByteLen) != r.cfg.Size {
			return fmt.Errorf("the peer sends %d octets, this side expects %d: give both the same -s", w.ByteLen, r.cfg.Size)
		}
		r.stamp()
		r.check.examine()
	}
	r.pending &^= int(w.ID)
	if r.sends < r.cfg.Iters && r.pending == 0 {
		return r.postSend()
	}
	return nil
}

// failure is w's error. Its reason, which looks for the cause in the network, is
// left out of a lost peer's when fault rules are at work.
func (r *run) failure(w *verbs.WC) error {
	err := w.Err()
	var s *verbs.StatusError
	if r.cfg.Faults != "" && w.Status == verbs.WCRetryExcErr && errors.As(err, &s) {
		s.Reason = trace.None
	}
	return err
}

// hint adds what the reason alone cannot know: the parameters that commonly
// differ between the two ends.
func (r *run) hint(w *verbs.WC) string {
	if r.cfg.Faults != "" {
		return "the fault rules of this side break traffic on purpose: " + r.cfg.Faults
	}
	switch w.Status {
	case verbs.WCRetryExcErr:
		return fmt.Sprintf("does the peer still run, is %v its address on this network, by a GID of RoCE v2 (-g on both sides), does UDP port 4791 pass, do packets of path MTU %d (-m)?", r.peer.GID.Addr(), r.cfg.MTU)
	case verbs.WCLocLenErr, verbs.WCRemInvReqErr, verbs.WCWRFlushErr:
		return "the same -s and -m on both sides?"
	}
	return "what does the peer print?"
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

func (r *run) stamp() {
	if !r.cfg.Stamps {
		return
	}
	now := time.Now()
	if !r.last.IsZero() {
		d := now.Sub(r.last)
		if r.gaps.n == 0 || d < r.gaps.min {
			r.gaps.min = d
		}
		r.gaps.max = max(r.gaps.max, d)
		r.gaps.sum += d
		r.gaps.n++
	}
	r.last = now
}

// report prints the original's lines. The clock of -t is one of 1 GHz.
func (r *run) report(d time.Duration) {
	c := r.cfg
	octets := int64(c.Size) * int64(c.Iters) * 2
	us := float64(d.Nanoseconds()) / 1000
	fmt.Fprintf(c.Out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", octets, us/1e6, float64(octets)*8/us)
	fmt.Fprintf(c.Out, "%d iters in %.2f seconds = %.2f usec/iter\n", c.Iters, us/1e6, us/float64(c.Iters))
	if c.Stamps && r.gaps.n > 0 {
		fmt.Fprintf(c.Out, "Max receive completion clock cycles = %d\n", r.gaps.max.Nanoseconds())
		fmt.Fprintf(c.Out, "Min receive completion clock cycles = %d\n", r.gaps.min.Nanoseconds())
		fmt.Fprintf(c.Out, "Average receive completion clock cycles = %f\n", float64(r.gaps.sum.Nanoseconds())/float64(r.gaps.n))
	}
	if r.check.bad != nil {
		fmt.Fprintf(c.Out, "invalid data in page %d\n", r.check.bad.page)
	}
}
