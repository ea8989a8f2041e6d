package oob

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Conn is a conversation. It is for one goroutine; what ends it early is the
// context of New, or Close.
type Conn struct {
	nc   net.Conn
	r    *bufio.Reader
	ctx  context.Context
	stop func() bool
	cfg  Config

	stage  stage
	begun  bool // a run, which End has not ended
	peer   Peer
	local  []Dest
	remote []Dest
	in     [destLenMax]byte // what the peer sent last
}

// New has the conversation on an open connection, which it owns from here on,
// also when it returns an error. When ctx ends, whatever step is waiting fails
// with its error.
func New(ctx context.Context, conn net.Conn, cfg Config) (*Conn, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		conn.Close()
		return nil, err
	}
	if t, ok := conn.(*net.TCPConn); ok {
		// A peer whose host dies in mid-run sends nothing. perftest waits for ever.
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount})
	}
	c := &Conn{nc: conn, r: bufio.NewReaderSize(conn, 4*destLenMax), ctx: ctx, cfg: cfg}
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	return c, nil
}

// Close ends the conversation at any time. It may be called again.
func (c *Conn) Close() error {
	c.stage = closed
	c.stop()
	return c.nc.Close()
}

// Alive returns an error when the peer has closed the connection, which would
// otherwise not be noticed during a run. It takes up to a millisecond: once a
// second is enough.
func (c *Conn) Alive() error {
	if err := c.ctx.Err(); err != nil {
		return context.Cause(c.ctx)
	}
	c.nc.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.r.Peek(1)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return c.broken("during the run", 0, 1, err)
}

// step exchanges one message: the client writes first. What the peer sent is
// borrowed until the next step. If look is not nil it may refuse the message
// from its beginning, which is all that comes when the two ends are not at the
// same step.
func (c *Conn) step(what string, out []byte, look func([]byte) error) ([]byte, error) {
	start := time.Now()
	if c.cfg.Server {
		in, err := c.read(what, len(out), start, look)
		if err != nil {
			return nil, err
		}
		return in, c.write(what, out)
	}
	if err := c.write(what, out); err != nil {
		return nil, err
	}
	return c.read(what, len(out), start, look)
}

// read takes a message of n octets, all of it before the step's limit. While
// the peer may be measuring, the limit holds from the first octet on.
func (c *Conn) read(what string, n int, start time.Time, look func([]byte) error) ([]byte, error) {
	limit := start.Add(c.cfg.StepTimeout)
	if c.stage >= running {
		limit = time.Time{}
		if c.cfg.RunTimeout > 0 {
			limit = start.Add(c.cfg.RunTimeout)
		}
	}
	got := 0
	for _, part := range [...]int{1, min(destLenShort, n), n} {
		c.nc.SetReadDeadline(limit)
		m, err := io.ReadFull(c.r, c.in[got:part])
		if got += m; err != nil {
			return nil, c.broken(what, got, n, err)
		}
		if look != nil {
			if err := look(c.in[:got]); err != nil {
				return nil, err
			}
		}
		if c.stage >= running && part == 1 {
			limit = time.Now().Add(c.cfg.StepTimeout)
		}
	}
	return c.in[:n], nil
}

func (c *Conn) write(what string, b []byte) error {
	c.nc.SetWriteDeadline(time.Now().Add(c.cfg.StepTimeout))
	_, err := c.nc.Write(b)
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: %w: it read nothing for %v; is it stopped?", what, ErrTimeout, c.cfg.StepTimeout)
	case errors.Is(err, net.ErrClosed):
		return err
	}
	return fmt.Errorf("%s: %w; it says why on its side (%w)", what, ErrClosed, err)
}

// broken says why got of n octets came.
func (c *Conn) broken(what string, got, n int, err error) error {
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		d := c.cfg.StepTimeout
		if got == 0 && c.stage >= running {
			d = c.cfg.RunTimeout
		}
		return fmt.Errorf("%s: %w: %d of %d octets came in %v; is it ib_%v with the same options, and not stopped?", what, ErrTimeout, got, n, d, c.cfg.Kind)
	case errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return fmt.Errorf("%s: %w", what, net.ErrClosed)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: %w after %d of %d octets; it says why on its side", what, ErrClosed, got, n)
	}
	return fmt.Errorf("%s: %w after %d of %d octets; it says why on its side (%w)", what, ErrClosed, got, n, err)
}

// hangUp closes an ended conversation so that the peer sees no error: versions
// up to 6.06 at least write "done" at last, which fails, and kills them by
// SIGPIPE, when this side is gone already. Nobody reads that word.
func (c *Conn) hangUp() {
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		c.nc.SetReadDeadline(time.Now().Add(min(lingerTimeout, c.cfg.StepTimeout)))
		io.Copy(io.Discard, io.LimitReader(c.r, lingerOctets))
	}
	c.Close()
}
