package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorxe/gorxe/interop/rig"
)

// pingpongLimit is how long the programs of one case may run.
const pingpongLimit = 40 * time.Second

// pingpong runs ibv_rc_pingpong in the guest against rxe pingpong rc. The TCP
// port is a new one each time.
func (r *runner) pingpong(ctx context.Context, c *Case) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pingpongLimit)
	defer cancel()
	r.port++
	common := fmt.Sprintf("-p %d -s %d -m %d -n %d %s", r.port, c.Size, c.MTU, c.Iters, c.Flags)
	guest := fmt.Sprintf("timeout %d ibv_rc_pingpong -g %d %s", int(pingpongLimit.Seconds()), r.sgid[c.Family], common)
	us := append([]string{"pingpong", "rc", "--dev", "eth0", "--link", c.Link}, strings.Fields(common+" "+c.OurFlags)...)
	if c.Role == Server {
		return r.pingpongServer(ctx, c, guest, us)
	}
	return r.pingpongClient(ctx, c, guest, us)
}

// pingpongServer starts our program, then the guest's as its client.
func (r *runner) pingpongServer(ctx context.Context, c *Case, guest string, us []string) (string, error) {
	p, err := r.start(ctx, c.Link, r.rxe, us...)
	if err != nil {
		return "", err
	}
	if err := p.listens(ctx, r.port); err != nil {
		p.kill()
		return "", fmt.Errorf("%w: %s", err, tail(p.out.String()))
	}
	out, gerr := rig.Exec(ctx, r.guest, guest+" "+hostAddr(r.host, c.Family))
	if gerr != nil {
		p.kill()
	}
	err = errors.Join(said("the guest", out, gerr, c), said("ours", p.out.String(), p.wait(), c))
	return rate(p.out.String()), err
}

// pingpongClient starts the guest's program, then ours as its client. The
// guest's listens on IPv4 only, so the exchange is over IPv4 whatever the
// case's family is; with IPv6 the GID has to be named.
func (r *runner) pingpongClient(ctx context.Context, c *Case, guest string, us []string) (string, error) {
	server := make(chan error, 1)
	go func() {
		out, err := rig.Exec(ctx, r.guest, guest)
		server <- said("the guest", out, err, c)
	}()
	note, err := r.pingpongConnect(ctx, c, us)
	if err != nil {
		stopGuest(r.guest, r.port)
	}
	return note, errors.Join(err, <-server)
}

// pingpongConnect runs our program once the guest's listens. A look at its
// list of sockets tells; a connection would be taken for the client's.
func (r *runner) pingpongConnect(ctx context.Context, c *Case, us []string) (string, error) {
	look := fmt.Sprintf("for i in {1..200}; do grep -q ':%04X 0.* 0A ' /proc/net/tcp && exit; sleep 0.05; done; exit 1", r.port)
	if _, err := rig.Exec(ctx, r.guest, look); err != nil {
		return "", errors.New("the guest does not listen")
	}
	if c.Family == 6 {
		us = append(us, "-g", strconv.Itoa(r.ourGID6))
	}
	p, err := r.start(ctx, c.Link, r.rxe, append(us, rig.Addr(r.guest))...)
	if err != nil {
		return "", err
	}
	err = p.wait()
	return rate(p.out.String()), said("ours", p.out.String(), err, c)
}

// stopGuest ends the guest's program of a case that failed.
func stopGuest(guest, port int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = rig.Exec(ctx, guest, fmt.Sprintf("pkill -f 'ibv_rc_pingpong.*-p %d '", port))
}

// said checks what one of the programs printed.
func said(who, out string, err error, c *Case) error {
	var exit *rig.ExitError
	switch {
	case errors.As(err, &exit):
		return fmt.Errorf("%s: exit status %d: %s", who, exit.Status, tail(out))
	case err != nil:
		return fmt.Errorf("%s: %w: %s", who, err, tail(out))
	case strings.Contains(out, "invalid data"):
		return fmt.Errorf("%s: wrong data: %s", who, tail(out))
	case !strings.Contains(out, fmt.Sprintf("%d bytes in ", 2*c.Size*c.Iters)), !strings.Contains(out, fmt.Sprintf("%d iters in ", c.Iters)):
		return fmt.Errorf("%s: %d exchanges of %d octets are not in its report: %s", who, c.Iters, c.Size, tail(out))
	}
	return nil
}

// tail returns the last lines of a program's output, on one line.
func tail(out string) string {
	l := strings.Split(strings.TrimSpace(out), "\n")
	if len(l) > 4 {
		l = l[len(l)-4:]
	}
	return strings.Join(l, " | ")
}

// rate returns the figure of a report that a person wants to see.
func rate(out string) string {
	for line := range strings.Lines(out) {
		if _, after, ok := strings.Cut(line, " iters in "); ok {
			if _, after, ok = strings.Cut(after, "= "); ok {
				return strings.TrimSpace(after)
			}
		}
	}
	return ""
}

// listens waits until a process has a TCP socket that listens on a port,
// without touching it.
func (p *process) listens(ctx context.Context, port int) error {
	want := fmt.Appendf(nil, ":%04X ", port)
	for {
		for _, table := range []string{"tcp", "tcp6"} {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.cmd.Process.Pid, table))
			for line := range bytes.Lines(b) {
				f := bytes.Fields(line)
				if len(f) > 3 && bytes.HasSuffix(append(f[1], ' '), want) && string(f[3]) == "0A" {
					return nil
				}
			}
		}
		select {
		case <-p.done:
			return errors.New("ours ended before it listened")
		case <-ctx.Done():
			return errors.New("ours does not listen")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
