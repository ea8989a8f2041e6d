package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
)

// DefaultSocket is where rxed listens, EnvSocket the environment variable that
// names another place.
const (
	DefaultSocket = "/run/rxed/admin.sock"
	EnvSocket     = "RXED_ADMIN"
)

// Socket returns the path of the admin socket: the one given, or that of the
// environment, or DefaultSocket.
func Socket(path string) string {
	if path == "" {
		path = os.Getenv(EnvSocket)
	}
	if path == "" {
		path = DefaultSocket
	}
	return path
}

// NoDaemonError says that nobody answers at a socket.
type NoDaemonError struct {
	Socket string
	Err    error // a syscall.Errno, mostly
}

func (e *NoDaemonError) Error() string {
	switch {
	case errors.Is(e.Err, syscall.EACCES):
		return fmt.Sprintf("%s belongs to others (%v): run as its owner or as a member of its group, or name another daemon's socket with --admin or %s", e.Socket, e.Err, EnvSocket)
	case errors.Is(e.Err, fs.ErrNotExist), errors.Is(e.Err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no rxed listens at %s (%v): start one with 'rxed -d INTERFACE', or name its socket with --admin or %s", e.Socket, e.Err, EnvSocket)
	}
	return fmt.Sprintf("no rxed can be reached at %s: %v; --admin or %s names another socket", e.Socket, e.Err, EnvSocket)
}

func (e *NoDaemonError) Unwrap() error { return e.Err }

// StatusError is what a daemon refuses with.
type StatusError struct {
	Status int // of HTTP
	Text   string
}

func (e *StatusError) Error() string { return e.Text }

// Is makes it equal to the errors of a Source.
func (e *StatusError) Is(target error) bool {
	return e.Status == status(target) && e.Status != http.StatusInternalServerError
}

// Client talks to a daemon. It is safe for concurrent use.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a client of the daemon whose admin socket has the given
// path; see Socket. It connects when it is used.
func NewClient(path string) *Client {
	c := &Client{socket: Socket(path)}
	var d net.Dialer
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, "unix", c.socket)
			if err != nil && ctx.Err() == nil {
				var sys *os.SyscallError
				if errors.As(err, &sys) {
					err = sys.Err
				}
				return nil, &NoDaemonError{Socket: c.socket, Err: err}
			}
			return conn, err
		},
		MaxIdleConns: 2, DisableCompression: true,
	}
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Daemon describes the daemon.
func (c *Client) Daemon(ctx context.Context) (d Daemon, err error) {
	return d, c.call(ctx, http.MethodGet, "/v1", nil, &d)
}

// Devices describes the devices.
func (c *Client) Devices(ctx context.Context) (d []DeviceInfo, err error) {
	return d, c.call(ctx, http.MethodGet, "/v1/devices", nil, &d)
}

// Device describes one of them.
func (c *Client) Device(ctx context.Context, dev string) (d DeviceInfo, err error) {
	return d, c.call(ctx, http.MethodGet, path(dev), nil, &d)
}

// Counters returns a device's counters, with explain also what they count.
func (c *Client) Counters(ctx context.Context, dev string, explain bool) (v Counters, err error) {
	p := path(dev, "counters")
	if explain {
		p += "?explain=1"
	}
	return v, c.call(ctx, http.MethodGet, p, nil, &v)
}

// QPs lists a device's queue pairs.
func (c *Client) QPs(ctx context.Context, dev string) (q []QP, err error) {
	return q, c.call(ctx, http.MethodGet, path(dev, "qps"), nil, &q)
}

// QP describes one of them.
func (c *Client) QP(ctx context.Context, dev string, qpn uint32) (q QPDetail, err error) {
	return q, c.call(ctx, http.MethodGet, path(dev, "qps", strconv.FormatUint(uint64(qpn), 10)), nil, &q)
}

// Trace returns a device's last events, oldest first: at most limit if that is
// not 0, of one queue pair if qpn is not.
func (c *Client) Trace(ctx context.Context, dev string, qpn uint32, limit int) (e []Event, err error) {
	return e, c.call(ctx, http.MethodGet, fmt.Sprintf("%s?qpn=%d&max=%d", path(dev, "trace"), qpn, limit), nil, &e)
}

// Clients lists the processes that use a device.
func (c *Client) Clients(ctx context.Context, dev string) (l []ClientInfo, err error) {
	return l, c.call(ctx, http.MethodGet, path(dev, "clients"), nil, &l)
}

// Limits returns what clients of a device may have.
func (c *Client) Limits(ctx context.Context, dev string) (l Limits, err error) {
	return l, c.call(ctx, http.MethodGet, path(dev, "limits"), nil, &l)
}

// SetLimits changes that, until the daemon reads its configuration again. It
// returns what holds now.
func (c *Client) SetLimits(ctx context.Context, dev string, l Limits) (now Limits, err error) {
	return now, c.call(ctx, http.MethodPut, path(dev, "limits"), l, &now)
}

// CC returns a device's congestion control.
func (c *Client) CC(ctx context.Context, dev string) (v CC, err error) {
	return v, c.call(ctx, http.MethodGet, path(dev, "cc"), nil, &v)
}

// SetCC changes that, as Device.SetCC does, until the daemon reads its configuration
// again. It returns what holds now.
func (c *Client) SetCC(ctx context.Context, dev string, change map[string]string) (now CC, err error) {
	return now, c.call(ctx, http.MethodPut, path(dev, "cc"), change, &now)
}

// Reload has the daemon read its configuration again.
func (c *Client) Reload(ctx context.Context) (r ReloadResult, err error) {
	return r, c.call(ctx, http.MethodPost, "/v1/reload", nil, &r)
}

func path(parts ...string) string {
	p := "/v1/devices"
	for _, x := range parts {
		p += "/" + url.PathEscape(x)
	}
	return p
}

func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("the answer of the daemon at %s: %w", c.socket, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // the connection is used again
	return nil
}

// do returns the answer if it is good.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://rxed"+path, in)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	var none *NoDaemonError
	switch {
	case errors.As(err, &none):
		return nil, none
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	}
	defer resp.Body.Close()
	var f failure
	if json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&f) != nil || f.Error == "" {
		f.Error = fmt.Sprintf("the daemon at %s answers %s", c.socket, resp.Status)
	}
	return nil, &StatusError{Status: resp.StatusCode, Text: f.Error}
}
