package pingpong

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

const (
	// goneLimit is how long a peer that has closed the TCP connection may be
	// silent. The original closes it before the first message, so that means
	// nothing by itself. It is above the time in which a transport with the
	// original's timeout 14 and 7 retries gives up.
	goneLimit = 5 * time.Second

	// lingerTime is for an end that has everything: the peer may have missed an
	// ACK, and repeats its message within 4 times its timeout of 67 ms. IBA
	// 9.7.6.1.3.
	lingerTime = 300 * time.Millisecond
)

// watch ends a run, with a cause, when the peer owes a message and is silent.
// While a SEND of a reliable connection is outstanding the transport finds out
// by itself; nothing does when the peer ends after its ACK, or was told of fewer
// iterations, or never has a receive for the message, or when the service is
// unreliable and a packet is lost. It returns when ctx is over.
func (r *run) watch(ctx context.Context, end context.CancelCauseFunc, left <-chan struct{}) {
	limit := r.cfg.Timeout
	t := time.NewTicker(max(min(limit, goneLimit)/16, time.Millisecond))
	defer t.Stop()
	heard, last := r.heard(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-left:
			left, limit = nil, min(limit, goneLimit)
			continue
		case <-t.C:
		}
		if h := r.heard(); h != heard {
			heard, last = h, time.Now()
		}
		if d := time.Since(last); d > limit {
			end(r.silent(d))
			return
		}
	}
}

// heard counts what brings the run on: packets but RNR NAKs. Anybody may send
// datagrams, so of those it is the messages.
func (r *run) heard() uint64 {
	if r.svc.typ == verbs.UD {
		return uint64(r.recvd.Load())
	}
	c, err := r.dev.Counters()
	if err != nil {
		return 0 // the device failed; whoever waits for completions is told
	}
	return c["rcvd_requests"] + c["rcvd_responses"] - c["rcvd_rnr_err"]
}

func (r *run) silent(d time.Duration) error {
	d = d.Round(100 * time.Millisecond)
	c := r.moved()
	if c["rcvd_rnr_err"] > 0 {
		return fmt.Errorf("the peer has had no receive for our message for %v (RNR NAK), after %d of %d messages: is it stopped?", d, r.recvd.Load(), r.cfg.Iters)
	}
	why := "has it ended, or been given another -n or -s?"
	switch {
	case r.cfg.Faults != "":
		why = "the fault rules of this side break traffic on purpose: " + r.cfg.Faults
	case !r.svc.reliable():
		why = r.lost(c)
	}
	return fmt.Errorf("nothing came from the peer for %v, after %d of %d messages: %s", d, r.recvd.Load(), r.cfg.Iters, why)
}

// moved is by how much each counter of the device grew in this run.
func (r *run) moved() map[string]uint64 {
	c, err := r.dev.Counters()
	if err != nil {
		return nil
	}
	for name, n := range r.before {
		c[name] -= n
	}
	return c
}

// lost says what probably became of a message that nothing repeats: what was
// dropped here, or where else to look.
func (r *run) lost(c map[string]uint64) string {
	why := fmt.Sprintf("%v repeats no packet, so one that is lost ends a pingpong (the original waits for ever)\n  check: ", r.svc.typ)
	dropped := trace.Drops(c)
	for _, name := range []string{"uc_lost_packets", "link_rx_dropped", "link_rx_invalid", "link_tx_errors", "send_err"} {
		if c[name] > 0 {
			dropped = append(dropped, fmt.Sprintf("%d x %s", c[name], name))
		}
	}
	if n := r.strays.Load(); n > 0 {
		dropped = append(dropped, fmt.Sprintf("%d datagrams of other queue pairs than the peer's", n))
	}
	if len(dropped) > 0 {
		return why + "dropped here: " + strings.Join(dropped, "; ")
	}
	if r.recvd.Load() > 0 {
		return why + "nothing was dropped here: has the peer ended, was it given another -n or -s, does it drop or lose packets (its counters)?"
	}
	return why + fmt.Sprintf("nothing was dropped here: is %v the peer's address on this network, by a GID of RoCE v2 (-g on both sides), does UDP port 4791 pass, is -s the same on both sides and the peer a %s_pingpong?", r.lanes[0].peer.GID.Addr(), r.cfg.Service)
}

// untilClosed reads a connection to its end and closes left then.
func untilClosed(conn net.Conn, left chan<- struct{}) {
	defer close(left)
	_ = conn.SetReadDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, conn)
}

// linger keeps the device alive after the last message: the peer may have
// missed an ACK and repeat its message. A peer of ours holds the TCP connection
// open until it has everything, the original does not.
func (r *run) linger(ctx context.Context, conn net.Conn, left <-chan struct{}) {
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
	select {
	case <-left:
	case <-time.After(r.cfg.Timeout):
	case <-ctx.Done():
	}
	select {
	case <-time.After(r.cfg.linger):
	case <-ctx.Done():
	}
}
