package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gorxe/gorxe/verbs"
)

// Port is the TCP port that verbs_peer.py listens on.
const Port = 7001

// DefaultTimeout is how long a request may take; guests are emulated, and slow.
const DefaultTimeout = 20 * time.Second

// Error is a request that the peer answered with a failure, such as a verb
// that returned an error. The connection can still be used.
type Error struct {
	Op   string // the request
	Text string // the exception, with its type
}

func (e *Error) Error() string { return "peer: " + e.Op + ": " + e.Text }

// Endpoint is a verbs endpoint in a guest.
type Endpoint struct {
	// Timeout bounds each request, beyond the time that Poll is to wait.
	// (DefaultTimeout)
	Timeout time.Duration

	conn   net.Conn
	lines  *bufio.Reader
	gid    verbs.GID
	broken error // set by the first failure of the connection
}

// Dial makes an endpoint at an address such as 192.0.2.2:7001, whose queue
// pairs use GID index sgid.
func Dial(ctx context.Context, addr string, sgid int) (*Endpoint, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	e := New(c)
	var out struct{ GID string }
	if err := e.call("hello", args{"sgid": sgid}, &out); err != nil {
		_ = c.Close()
		return nil, err
	}
	a, err := netip.ParseAddr(out.GID)
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("peer: GID index %d is %q", sgid, out.GID)
	}
	e.gid = verbs.GIDOf(a)
	return e, nil
}

// New makes an endpoint of a connection that was made otherwise, without
// choosing a GID: enough for Counters. It owns the connection.
func New(c net.Conn) *Endpoint {
	return &Endpoint{Timeout: DefaultTimeout, conn: c, lines: bufio.NewReaderSize(c, 1<<16)}
}

// Close ends the endpoint; the guest destroys what it had.
func (e *Endpoint) Close() error { return e.conn.Close() }

// GID returns the GID that queue pairs of the endpoint use.
func (e *Endpoint) GID() verbs.GID { return e.gid }

// args are the fields of a request beside its name.
type args map[string]any

// call sends a request and decodes its answer into out, which may be nil. It
// returns an *Error for an answer that says no; any other error breaks the
// connection.
func (e *Endpoint) call(op string, a args, out any) error { return e.callFor(e.Timeout, op, a, out) }

func (e *Endpoint) callFor(limit time.Duration, op string, a args, out any) error {
	if e.broken != nil {
		return fmt.Errorf("peer: %s: an earlier request failed: %w", op, e.broken)
	}
	line, err := e.exchange(limit, op, a)
	if err != nil {
		e.broken = err
		return fmt.Errorf("peer: %s: %w", op, err)
	}
	var status struct {
		OK    bool
		Error string
	}
	if err := json.Unmarshal(line, &status); err != nil {
		e.broken = err
		return fmt.Errorf("peer: %s: answer %.80q: %w", op, line, err)
	}
	if !status.OK {
		return &Error{Op: op, Text: status.Error}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(line, out); err != nil {
		e.broken = err
		return fmt.Errorf("peer: %s: answer %.80q: %w", op, line, err)
	}
	return nil
}

func (e *Endpoint) exchange(limit time.Duration, op string, a args) ([]byte, error) {
	if a == nil {
		a = args{}
	}
	a["op"] = op
	b, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	if err := e.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	if _, err := e.conn.Write(append(b, '\n')); err != nil {
		return nil, err
	}
	line, err := e.lines.ReadBytes('\n')
	if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		return nil, fmt.Errorf("no answer in %v: %w", limit, err)
	}
	return line, err
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// Counters returns the counters of the guest's device: hw_counters, and of its
// port's attributes bad_pkey_cntr and qkey_viol_cntr.
func (e *Endpoint) Counters() (map[string]uint64, error) {
	raw := map[string]any{}
	if err := e.call("counters", nil, &raw); err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for k, v := range raw {
		if n, ok := v.(float64); ok {
			out[k] = uint64(n)
		}
	}
	return out, nil
}
