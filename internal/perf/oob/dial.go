package oob

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// Dial connects to the server host, an address or a name, at a TCP port.
func Dial(ctx context.Context, host string, port int, cfg Config) (*Conn, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: cfg.StepTimeout}
	nc, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	var dns *net.DNSError
	switch {
	case err == nil:
		return New(ctx, nc, cfg)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &dns):
		return nil, fmt.Errorf("cannot find the host %s: %s; give a name that resolves, or an address", host, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("nobody listens on TCP port %d of %s: start the server there first (rxe perf %v, or ib_%v, without -R and -z), or give its port with -p", port, host, cfg.Kind, cfg.Kind)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return nil, fmt.Errorf("no answer from TCP port %d of %s: is the host up, does a firewall drop that port?", port, host)
	}
	return nil, fmt.Errorf("couldn't connect to TCP port %d of %s: %w", port, host, err)
}

// Listener waits for one client.
type Listener struct{ l net.Listener }

// Listen opens the TCP port (0: any) at the address, or at all of them if addr
// is "".
func Listen(ctx context.Context, addr string, port int) (*Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
	switch {
	case err == nil:
		return &Listener{l}, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("TCP port %d is taken, perhaps by another perftest; -p chooses another, the same on both sides", port)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("TCP port %d is not for this user; -p chooses another, the same on both sides", port)
	}
	return nil, fmt.Errorf("couldn't listen on TCP port %d: %w", port, err)
}

// Port returns the TCP port that is listened at.
func (l *Listener) Port() int { return l.l.Addr().(*net.TCPAddr).Port }

// Close ends the listener; a waiting Accept fails. It may be called again, and
// after Accept.
func (l *Listener) Close() error {
	if err := l.l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Accept waits for a client for as long as it takes, and closes the listener.
func (l *Listener) Accept(ctx context.Context, cfg Config) (*Conn, error) {
	defer l.l.Close()
	stop := context.AfterFunc(ctx, func() { l.l.Close() })
	defer stop()
	nc, err := l.l.Accept()
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	cfg.Server = true
	return New(ctx, nc, cfg)
}
