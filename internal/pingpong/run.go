package pingpong

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// pageSize is the stride of the octets that ibv_rc_pingpong -c checks.
var pageSize = os.Getpagesize()

const (
	recvWR = 1 // wr_id of receives and sends, as in the original
	sendWR = 2
)

// run is one exchange of messages.
type run struct {
	cfg   Config
	dev   *verbs.Context
	cq    *verbs.CQ
	qp    *verbs.QP
	mr    *verbs.MR
	local verbs.Endpoint
	peer  verbs.Endpoint

	posted  int // receives outstanding
	sent    int
	recvd   int
	pending int // what must complete before the next send
	last    time.Time
	gaps    gaps
	badPage int // first page that did not hold what it must, plus 1
}

// gaps are the times between receive completions, for -t.
type gaps struct {
	min, max, sum time.Duration
	n             int
}

// Run runs pingpong as the configuration says and prints what the original
// prints. Ending ctx ends it with ctx's error.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	conn, err := rendezvous(ctx, &cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	r := &run{cfg: cfg}
	if r.dev, err = cfg.Open(addrOf(conn.LocalAddr()), addrOf(conn.RemoteAddr())); err != nil {
		return err
	}
	defer r.dev.Close()
	if err := r.setup(addrOf(conn.RemoteAddr())); err != nil {
		return err
	}
	if err := r.connect(conn); err != nil {
		return orDone(ctx, err)
	}
	start := time.Now()
	if err := r.loop(ctx); err != nil {
		return err
	}
	r.report(time.Since(start))
	// The peer may still miss the ACK of its last message; be there to repeat
	// it until it closes or a moment has passed.
	r.linger(conn)
	if r.badPage != 0 {
		return fmt.Errorf("-c: invalid data in page %d", r.badPage-1)
	}
	return nil
}

// orDone prefers ctx's error to what its end caused.
func orDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// rendezvous connects to the server, or waits for a client.
func rendezvous(ctx context.Context, cfg *Config) (net.Conn, error) {
	if cfg.Peer != "" {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(cfg.Peer, strconv.Itoa(cfg.Port)))
		if err != nil {
			return nil, fmt.Errorf("couldn't connect to %s:%d: %w (start the server first: rxe pingpong rc, or ibv_rc_pingpong -g N)", cfg.Peer, cfg.Port, err)
		}
		return c, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", ":"+strconv.Itoa(cfg.Port))
	if err != nil {
		return nil, fmt.Errorf("couldn't listen to port %d: %w (-p chooses another)", cfg.Port, err)
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	if cfg.Ready != nil {
		cfg.Ready(l.Addr().(*net.TCPAddr).Port)
	}
	c, err := l.Accept()
	if err != nil {
		return nil, orDone(ctx, err)
	}
	return c, nil
}

func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// setup makes the objects and posts the receives.
func (r *run) setup(peer netip.Addr) error {
	c := &r.cfg
	pd, err := r.dev.AllocPD()
	if err != nil {
		return err
	}
	if r.mr, err = pd.AllocMR(c.Size, verbs.AccessLocalWrite); err != nil {
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
	mem := r.mr.Bytes()
	for i := range mem {
		mem[i] = 0x7b
		if c.Peer == "" {
			mem[i] = 0x7c
		}
	}
	if c.Peer != "" && c.Check {
		for i := range mem {
			mem[i] = pattern(i)
		}
	}
	return nil
}

// pattern is octet i of a checked message. At the start of each page it is
// what the original's server looks for; between them it is ours, and comes
// back from the server, whoever it is.
func pattern(i int) byte {
	if i%pageSize == 0 {
		return 0
	}
	return byte(i*7 + i>>8*13 + 1)
}

// endpoint decides the local GID: the given index, or the one that suits the
// peer.
func (r *run) endpoint(peer netip.Addr) error {
	if r.cfg.GIDIndex < 0 {
		e, err := r.qp.Endpoint(peer)
		if err != nil {
			return fmt.Errorf("%w (-g chooses a GID by index; rxe gids lists them)", err)
		}
		r.local = e
		return nil
	}
	gids, err := r.dev.GIDs()
	if err != nil {
		return err
	}
	for _, g := range gids {
		if g.Index == r.cfg.GIDIndex {
			e, err := r.qp.Endpoint(g.GID.Addr())
			if err != nil {
				return err
			}
			e.GID, e.GIDIndex = g.GID, g.Index
			r.local = e
			return nil
		}
	}
	return fmt.Errorf("-g %d: the GID table has indexes 0 to %d (rxe gids lists them)", r.cfg.GIDIndex, len(gids)-1)
}

// connect does the exchange in the order of the role and brings the queue pair
// to RTS.
func (r *run) connect(conn net.Conn) error {
	client := r.cfg.Peer != ""
	if client {
		if err := r.endpoint(addrOf(conn.RemoteAddr())); err != nil {
			return err
		}
		r.printAddr("local", r.local)
		if err := writeAll(conn, encodeDest(r.local)); err != nil {
			return fmt.Errorf("couldn't send the local address: %w", err)
		}
	}
	var err error
	if r.peer, err = readDest(conn); err != nil {
		return err
	}
	if !client {
		if err := r.endpoint(r.peer.GID.Addr()); err != nil {
			return err
		}
		r.printAddr("local", r.local)
	}
	r.printAddr("remote", r.peer)
	if err := r.up(); err != nil {
		return err
	}
	if client {
		return writeAll(conn, []byte("done\x00"))
	}
	if err := writeAll(conn, encodeDest(r.local)); err != nil {
		return fmt.Errorf("couldn't send the local address: %w", err)
	}
	return readDone(conn)
}

// up connects the queue pair with the original's attributes, except that the
// hop limit is 64: the original's 1 crosses no router.
func (r *run) up() error {
	o := verbs.ConnectOptions{
		PathMTU: verbs.MTU(r.cfg.MTU), MaxRdAtomic: 1, MaxDestRdAtomic: 1,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7, HopLimit: 64,
	}
	if err := r.qp.Connect(r.local, r.peer, o); err != nil {
		return err
	}
	n, err := r.postRecv(r.cfg.RxDepth)
	r.posted = n
	if err != nil {
		return fmt.Errorf("couldn't post receive (%d): %w", n, err)
	}
	return nil
}

func (r *run) printAddr(which string, e verbs.Endpoint) {
	fmt.Fprintf(r.cfg.Out, "  %-7s address:  LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s\n", which, e.LID, e.QPN, e.PSN, gidText(e.GID))
}

// gidText is what inet_ntop makes of a GID.
func gidText(g verbs.GID) string { return netip.AddrFrom16(g).String() }

func (r *run) postRecv(n int) (int, error) {
	wr := []verbs.RecvWR{{ID: recvWR, SGL: []verbs.SGE{r.mr.SGE(0, r.cfg.Size)}}}
	for i := range n {
		if _, err := r.qp.PostRecv(wr); err != nil {
			return i, err
		}
	}
	return n, nil
}

func (r *run) postSend() error {
	_, err := r.qp.PostSend([]verbs.SendWR{{
		ID: sendWR, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.mr.SGE(0, r.cfg.Size)},
	}})
	return err
}

// loop passes the message back and forth.
func (r *run) loop(ctx context.Context) error {
	c := &r.cfg
	r.pending = recvWR
	if c.Peer != "" {
		if err := r.postSend(); err != nil {
			return fmt.Errorf("couldn't post send: %w", err)
		}
		r.pending |= sendWR
	}
	var wcs [16]verbs.WC
	for r.recvd < c.Iters || r.sent < c.Iters {
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

// next waits for completions: asleep with -e, otherwise polling.
func (r *run) next(ctx context.Context, wcs []verbs.WC) (int, error) {
	if !r.cfg.Events {
		for range 64 {
			if n := r.cq.Poll(wcs); n > 0 {
				return n, nil
			}
		}
	}
	return r.cq.Wait(ctx, wcs)
}

func (r *run) complete(w *verbs.WC) error {
	if err := w.Err(); err != nil {
		return fmt.Errorf("%w\n%s", err, r.hint(w))
	}
	switch w.ID {
	case sendWR:
		r.sent++
	case recvWR:
		r.recvd++
		if r.posted--; r.posted <= 1 {
			n, err := r.postRecv(r.cfg.RxDepth - r.posted)
			r.posted += n
			if err != nil {
				return fmt.Errorf("couldn't post receive (%d): %w", r.posted, err)
			}
		}
		if int(w.ByteLen) != r.cfg.Size {
			return fmt.Errorf("the peer sends %d octets, this side expects %d: give both the same -s", w.ByteLen, r.cfg.Size)
		}
		r.stamp()
		if r.cfg.Check && r.badPage == 0 {
			r.validate()
		}
	}
	r.pending &^= int(w.ID)
	if r.sent < r.cfg.Iters && r.pending == 0 {
		if err := r.postSend(); err != nil {
			return fmt.Errorf("couldn't post send: %w", err)
		}
		r.pending = recvWR | sendWR
	}
	return nil
}

// hint adds what the reason alone cannot know: the parameters that commonly
// differ between the two ends.
func (r *run) hint(w *verbs.WC) string {
	switch w.Status {
	case verbs.WCRetryExcErr:
		return fmt.Sprintf("  check: is %s the peer's address on this network (GID index on both sides), does UDP port 4791 pass, is the path MTU %d on both sides (-m), has the peer's interface that MTU plus headers?",
			r.peer.GID.Addr(), r.cfg.MTU)
	case verbs.WCLocLenErr, verbs.WCRemInvReqErr:
		return "  check: the same -s and -m on both sides?"
	}
	return "  check: the peer's own messages"
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

// validate compares what arrived: as client every octet with what was sent, as
// server the start of each page, like the original.
func (r *run) validate() {
	mem := r.mr.Bytes()
	if r.cfg.Peer == "" {
		for i := 0; i < len(mem); i += pageSize {
			if mem[i] != 0 {
				r.badPage = i/pageSize + 1
				return
			}
		}
		return
	}
	for i, b := range mem {
		if b != pattern(i) {
			r.badPage = i/pageSize + 1
			return
		}
	}
}

func (r *run) report(d time.Duration) {
	c := &r.cfg
	octets := int64(c.Size) * int64(c.Iters) * 2
	us := float64(d.Nanoseconds()) / 1000
	fmt.Fprintf(c.Out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", octets, us/1e6, float64(octets)*8/us)
	fmt.Fprintf(c.Out, "%d iters in %.2f seconds = %.2f usec/iter\n", c.Iters, us/1e6, us/float64(c.Iters))
	if c.Stamps && r.gaps.n > 0 {
		fmt.Fprintf(c.Out, "Max receive completion interval: %v\n", r.gaps.max)
		fmt.Fprintf(c.Out, "Min receive completion interval: %v\n", r.gaps.min)
		fmt.Fprintf(c.Out, "Average receive completion interval: %v\n", r.gaps.sum/time.Duration(r.gaps.n))
	}
	if r.badPage != 0 {
		fmt.Fprintf(c.Out, "invalid data in page %d\n", r.badPage-1)
	}
}

// linger keeps the device alive, and drives it, after the last message: the
// peer may have missed an ACK and repeat its message. A peer of ours holds the
// TCP connection open until it has everything; the original closes it at once,
// so a little time is given in any case.
func (r *run) linger(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		t.CloseWrite()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		var b [1]byte
		conn.SetReadDeadline(time.Now().Add(lingerMax))
		conn.Read(b[:])
		time.AfterFunc(lingerMin, cancel)
	}()
	var wcs [4]verbs.WC
	for {
		if _, err := r.cq.Wait(ctx, wcs[:]); err != nil {
			return
		}
	}
}

// A peer with the original's timeout 14 repeats after 67 ms, up to 7 times.
const (
	lingerMin = 100 * time.Millisecond
	lingerMax = 2 * time.Second
)
