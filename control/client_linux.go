package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// Want says which device of a daemon to use. At most one field is set; with none
// it is the only one there is.
type Want struct {
	Name      string // "rxe0"
	Interface string // "eth0"
	Addr      netip.Addr
	// SameNetns refuses a device of another network namespace than the caller's:
	// an interface's name alone means nothing there.
	SameNetns bool
}

// Client is a device in another process: a verbs.Provider. It is safe for
// concurrent use.
type Client struct {
	conn  *Conn
	hello HelloReply
	path  string
	space *space
	bells []*verbs.BellBlock // by shard

	mu      sync.Mutex // all below
	tag     uint32
	calls   map[uint32]chan<- reply
	objects map[object]*mapping
	waiters map[*atomic.Uint32]int

	events chan verbs.AsyncEvent
	end    atomic.Pointer[error] // why there is no device any more
	done   chan struct{}         // the reader has ended
}

var _ verbs.Provider = (*Client)(nil)

type object struct {
	kind verbs.ObjectKind
	h    verbs.Handle
}

type reply struct {
	status Status
	body   []byte
	fds    []int
}

// DefaultSocket is where rxed listens unless it is told otherwise; the environment
// variable SocketEnv overrides it for programs that do not name one.
const (
	DefaultSocket = "/run/rxed/verbs.sock"
	SocketEnv     = "RXED_SOCKET"
)

// Socket returns the socket to use for a path that may be empty.
func Socket(path string) string {
	if path == "" {
		path = os.Getenv(SocketEnv)
	}
	if path == "" {
		path = DefaultSocket
	}
	return path
}

// Dial attaches to a device of the daemon at a socket. Errors wrap ErrNoDaemon when
// nobody serves it, ErrNoDevice when the daemon has not the wanted device (it says
// which it has), ErrDenied when it does not serve this user.
func Dial(ctx context.Context, path string, w Want) (*Client, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, dialError(path, err)
	}
	c := &Client{
		conn: NewConn(raw.(*net.UnixConn)), path: path, space: &space{},
		calls: map[uint32]chan<- reply{}, objects: map[object]*mapping{}, waiters: map[*atomic.Uint32]int{},
		events: make(chan verbs.AsyncEvent, 256), done: make(chan struct{}),
	}
	go c.read()
	if err := c.greet(ctx, w); err != nil {
		c.shut(err)
		<-c.done
		c.space.release()
		return nil, err
	}
	// Memory goes when nobody can use it any more: objects of the device refer to
	// the Client.
	runtime.AddCleanup(c, (*space).release, c.space)
	return c, nil
}

func dialError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w: there is no socket %s; start rxed, or name its socket (%s)", ErrNoDaemon, path, SocketEnv)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens on %s; rxed has ended without removing it: start it again", ErrNoDaemon, path)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w: %s: its mode or group does not let this user connect", ErrDenied, path)
	}
	return fmt.Errorf("control: %w", err)
}

func (c *Client) greet(ctx context.Context, w Want) error {
	h := Hello{Magic: Magic, Major: VersionMajor, Minor: VersionMinor, SameNetns: b2u(w.SameNetns)}
	switch {
	case w.Name != "":
		h.By = ByName
		PutText(h.Want[:], w.Name)
	case w.Interface != "":
		h.By = ByInterface
		PutText(h.Want[:], w.Interface)
	case w.Addr.IsValid():
		h.By = ByAddr
		PutText(h.Want[:], w.Addr.String())
	}
	defer context.AfterFunc(ctx, func() {
		c.shut(fmt.Errorf("control: the daemon at %s has not answered; see whether it is stopped, or restart it: %w", c.path, ctx.Err()))
	})()
	_, fds, err := c.call(OpHello, &h, &c.hello)
	if err != nil {
		return err
	}
	mem, err := c.mapFD(fds, c.hello.BellBytes)
	if err != nil {
		return err
	}
	var ok bool
	if c.bells, ok = verbs.BellBlocks(mem, int(min(c.hello.Shards, 1<<shardBits))); !ok {
		return fmt.Errorf("control: %s gave %d octets of doorbells for %d shards", c.path, len(mem), c.hello.Shards)
	}
	return nil
}

// read takes answers and events until the daemon or Close ends the connection.
func (c *Client) read() {
	defer close(c.done)
	defer c.conn.Close()
	var m Message
	for {
		m.FDs = nil
		if err := c.conn.Receive(&m); err != nil {
			c.lost(err)
			return
		}
		switch {
		case m.Op == OpEvent:
			m.Close()
			var e Event
			if _, err := Decode(m.Body, &e); err == nil {
				c.event(verbs.AsyncEvent{Type: verbs.EventType(e.Type), QPN: e.QPN, CQ: verbs.Handle(e.CQ), SRQ: verbs.Handle(e.SRQ)})
			}
		default:
			c.mu.Lock()
			ch := c.calls[m.Tag]
			delete(c.calls, m.Tag)
			c.mu.Unlock()
			if ch == nil {
				m.Close()
				continue
			}
			ch <- reply{m.Status, append([]byte(nil), m.Body...), m.FDs}
		}
	}
}

// lost is the end of the connection.
func (c *Client) lost(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%w: the daemon at %s has ended, or hung up on this program (its log says why); open the device again", verbs.ErrFailed, c.path)
	} else {
		err = fmt.Errorf("%w: %w", verbs.ErrFailed, err)
	}
	if c.shut(err) {
		c.event(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
	}
	c.mu.Lock()
	for tag, ch := range c.calls {
		delete(c.calls, tag)
		close(ch)
	}
	close(c.events)
	c.mu.Unlock()
}

// event tells of an asynchronous event, or drops it when nobody reads. Only the
// reader calls it.
func (c *Client) event(e verbs.AsyncEvent) {
	if e.Type == verbs.EventDeviceFatal && c.Err() == nil {
		c.shut(fmt.Errorf("%w: the daemon at %s is stopping; open the device again when it is back", verbs.ErrFailed, c.path))
	}
	select {
	case c.events <- e:
	default:
	}
}

// shut ends the device for this program, unless it has ended already, and wakes
// whoever waits.
func (c *Client) shut(why error) bool {
	if !c.end.CompareAndSwap(nil, &why) {
		return false
	}
	_ = c.conn.CloseRead()
	_ = c.conn.CloseWrite()
	c.mu.Lock()
	for w := range c.waiters {
		w.Add(1)
		sys.FutexWake(w)
	}
	c.mu.Unlock()
	return true
}

// Err returns nil while the device works, then verbs.ErrClosed or an error that
// wraps verbs.ErrFailed.
func (c *Client) Err() error {
	if e := c.end.Load(); e != nil {
		return *e
	}
	return nil
}

// Daemon returns the process that has the device, and its socket.
func (c *Client) Daemon() (pid int, socket string) { return int(c.hello.PID), c.path }

// call asks the daemon for something. Out is filled in from the answer's body, nil
// for one that has none; what stands behind it is returned.
func (c *Client) call(op Op, in, out any) (rest []byte, fds []int, err error) {
	ch := make(chan reply, 1)
	c.mu.Lock()
	if err := c.Err(); err != nil {
		c.mu.Unlock()
		return nil, nil, err
	}
	for c.tag++; c.tag == 0 || c.calls[c.tag] != nil; c.tag++ {
	}
	tag := c.tag
	c.calls[tag] = ch
	c.mu.Unlock()
	if err := c.conn.Send(op, OK, tag, in, nil, 0); err != nil {
		c.mu.Lock()
		delete(c.calls, tag)
		c.mu.Unlock()
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			<-c.done // the reader is about to find the end too, and says what it is
		}
		if e := c.Err(); e != nil {
			err = e
		}
		return nil, nil, err
	}
	r, ok := <-ch
	switch {
	case !ok:
		return nil, nil, c.Err()
	case r.status != OK:
		sys.CloseFDs(r.fds...)
		return nil, nil, r.status.Err(string(r.body))
	}
	if out != nil {
		if r.body, err = Decode(r.body, out); err != nil {
			sys.CloseFDs(r.fds...)
			return nil, nil, err
		}
	}
	return r.body, r.fds, nil
}

// Close ends the attachment: the daemon destroys what this program had.
func (c *Client) Close() error {
	c.shut(verbs.ErrClosed)
	<-c.done
	return nil
}

// Events returns the channel of asynchronous events, closed by Close or when the
// daemon ends, after EventDeviceFatal.
func (c *Client) Events() <-chan verbs.AsyncEvent { return c.events }
