package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorxe/gorxe/interop/rig"
)

// programLimit is how long the programs of one case may run.
const programLimit = 40 * time.Second

// duet is a program in the guest and ours, one of which connects to the other.
type duet struct {
	port  int
	guest string   // the command there, without the server's address
	us    []string // the arguments of ours, without it
	check func(who, out string, err error) error
	note  func(out string) string // of our output

	mu      sync.Mutex
	printed string // by both, once they have ended
}

// said takes what a program printed, and checks it.
func (d *duet) said(who, out string, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.printed += fmt.Sprintf("---- %s:\n%s\n", who, out)
	return d.check(who, out, err)
}

// play runs both programs of a case.
func (r *runner) play(ctx context.Context, c *Case, d *duet, res *Result) (err error) {
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	d.guest = fmt.Sprintf("timeout %d %s", int(programLimit.Seconds()), d.guest)
	if c.Role == Server {
		res.Note, err = r.guestConnects(ctx, c, d)
	} else {
		res.Note, err = r.weConnect(ctx, c, d)
	}
	if err != nil {
		res.Printed = fmt.Sprintf("---- in the guest: %s\n---- ours: rxe %s\n%s", d.guest, strings.Join(d.us, " "), d.printed)
	}
	return err
}

// guestConnects starts our program, then the guest's as its client.
func (r *runner) guestConnects(ctx context.Context, c *Case, d *duet) (string, error) {
	p, err := r.start(ctx, c, r.rxe, d.us...)
	if err != nil {
		return "", err
	}
	if err := p.listens(ctx, d.port); err != nil {
		p.kill()
		return "", fmt.Errorf("%w: %s", err, tail(p.out.String()))
	}
	out, gerr := rig.Exec(ctx, r.guest, d.guest+" "+hostAddr(r.host, 4))
	if gerr != nil {
		p.kill()
	}
	perr := p.wait() // before its output is read
	err = errors.Join(d.said("the guest's client", out, gerr), d.said("our server", p.out.String(), perr))
	return d.note(p.out.String()), err
}

// weConnect starts the guest's program, then ours as its client. The guest's
// listen on IPv4 only, so the exchange is over IPv4 whatever the case's family
// is; with IPv6 the GID has to be named.
func (r *runner) weConnect(ctx context.Context, c *Case, d *duet) (string, error) {
	server := make(chan error, 1)
	go func() {
		out, err := rig.Exec(ctx, r.guest, d.guest)
		server <- d.said("the guest's server", out, err)
	}()
	note, err := r.connectTo(ctx, c, d)
	if err != nil {
		stopGuest(r.guest, d.port)
	}
	return note, errors.Join(err, <-server)
}

// connectTo runs our program once the guest's listens. A look at its list of
// sockets tells; a connection would be taken for the client's.
func (r *runner) connectTo(ctx context.Context, c *Case, d *duet) (string, error) {
	look := fmt.Sprintf("for i in {1..200}; do grep -q ':%04X 0.* 0A ' /proc/net/tcp /proc/net/tcp6 && exit; sleep 0.05; done; exit 1", d.port)
	if _, err := rig.Exec(ctx, r.guest, look); err != nil {
		return "", errors.New("the guest does not listen")
	}
	if c.Link == linkReference {
		out, err := rig.Exec(ctx, r.guest, d.guest+" "+rig.Addr(r.guest))
		return d.note(out), d.said("the guest's client", out, err)
	}
	p, err := r.start(ctx, c, r.rxe, append(d.us, rig.Addr(r.guest))...)
	if err != nil {
		return "", err
	}
	err = p.wait()
	return d.note(p.out.String()), d.said("our client", p.out.String(), err)
}

// stopGuest ends the guest's program of a case that failed.
func stopGuest(guest, port int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = rig.Exec(ctx, guest, fmt.Sprintf("pkill -f -- '[-]p %d '", port))
}

// ended says how a program ended that did not do so well.
func ended(who, out string, err error) error {
	var exit *rig.ExitError
	switch {
	case errors.As(err, &exit):
		return fmt.Errorf("%s: exit status %d: %s", who, exit.Status, tail(out))
	case err != nil:
		return fmt.Errorf("%s: %w: %s", who, err, tail(out))
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

// gid is our GID index of a family, as an argument: index 1 is IPv4.
func (r *runner) gid(family int) string {
	if family == 6 {
		return strconv.Itoa(r.ourGID6)
	}
	return "1"
}
