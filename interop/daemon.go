package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/control/admin"
)

// With -daemon our side of a case is a program without privilege that is attached
// to an rxed, which root started in its namespace. One rxed serves all cases of a
// link; one with faults, whose rules are the daemon's, serves one.

// daemonWait is how long a daemon may take to start, to stop, and to forget a
// client that has ended.
const daemonWait = 20 * time.Second

// throughDaemon returns the cases that can be attached, so attached: those of one
// daemon together.
func throughDaemon(cases []Case) []Case {
	var out []Case
	for _, c := range cases {
		if c.notAttached() == "" {
			c.Daemon = true
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b Case) int {
		return strings.Compare(a.ourFaults()+" "+a.Link, b.ourFaults()+" "+b.Link)
	})
	return out
}

// notAttached says why a case means nothing through a daemon, or "".
func (c *Case) notAttached() string {
	switch {
	case c.byHand():
		return "our packets are made by hand, over a link without a device"
	case c.Link == linkReference:
		return "both sides are the kernel's"
	}
	return ""
}

// device is how our program is told its device.
func (r *runner) device(c *Case) []string {
	if c.Daemon {
		return []string{"--dev", "eth0", "--daemon", r.socket(r.ns)}
	}
	return []string{"--dev", "eth0", "--link", c.Link}
}

// daemon is an rxed in a namespace.
type daemon struct {
	cmd    *exec.Cmd
	link   string
	faults string
	admin  *admin.Client
	says   words
	ended  chan struct{}
	err    error // how, once it has
	bad    bool  // it serves no other case
}

// words are what a program wrote so far.
type words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// socket is where the daemon of a namespace serves programs.
func (r *runner) socket(ns string) string {
	return filepath.Join(filepath.Dir(r.rxed), ns+"-verbs.sock")
}

// serve sees to it that each namespace of a case has the daemon that it needs, or
// none.
func (r *runner) serve(ctx context.Context, c *Case) error {
	for _, ns := range []string{r.ns, r.ns2} {
		d := r.daemons[ns]
		if d != nil && c.Daemon && d.link == c.Link && d.faults == "" && c.ourFaults() == "" && !d.bad {
			continue
		}
		if err := r.stopDaemon(ns); err != nil {
			return err
		}
		if c.Daemon && (ns == r.ns || c.Kind == "two-of-ours") {
			if err := r.startDaemon(ctx, ns, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// startDaemon starts one, as root, for the user that programs are.
func (r *runner) startDaemon(ctx context.Context, ns string, c *Case) error {
	at := filepath.Join(filepath.Dir(r.rxed), ns)
	text := fmt.Sprintf(`
[control]
socket = %q
group = %q
allow_uids = [%s]
[admin]
socket = %q
[[device]]
interface = "eth0"
link = %q
`, r.socket(ns), nobody, nobody, at+"-admin.sock", c.Link)
	if f := c.ourFaults(); f != "" {
		text += fmt.Sprintf("faults = %q\nseed = 1\n", f)
	}
	if err := os.WriteFile(at+".toml", []byte(text), 0o600); err != nil {
		return err
	}
	d := &daemon{link: c.Link, faults: c.ourFaults(), admin: admin.NewClient(at + "-admin.sock"), ended: make(chan struct{})}
	d.cmd = exec.Command("ip", "netns", "exec", ns, r.rxed, "-c", at+".toml")
	d.cmd.Stdout, d.cmd.Stderr = &d.says, &d.says
	if err := d.cmd.Start(); err != nil {
		return err
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	if err := d.ready(ctx); err != nil {
		_ = d.cmd.Process.Kill()
		<-d.ended
		return err
	}
	r.daemons[ns] = d
	return nil
}

// ready waits until the daemon serves.
func (d *daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	for !strings.Contains(d.says.String(), "msg=ready") {
		select {
		case <-d.ended:
			return fmt.Errorf("rxed ended (%v): %s", d.err, tail(d.says.String()))
		case <-ctx.Done():
			return fmt.Errorf("rxed is not ready in %v: %s", daemonWait, tail(d.says.String()))
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// over reports whether the daemon has ended.
func (d *daemon) over() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// forgotten waits until the daemon has nothing left of programs that have ended: no
// client and no queue pair. That it still runs is the least of it.
func (d *daemon) forgotten(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	for {
		all, err := d.admin.Devices(ctx)
		switch {
		case d.over():
			return fmt.Errorf("rxed ended (%v): %s", d.err, tail(d.says.String()))
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("rxed's state: %w", err)
		case err == nil && len(all) == 1 && all[0].Error != "":
			return fmt.Errorf("rxed's device: %s", all[0].Error)
		case err == nil && len(all) == 1 && all[0].Clients == 0 && all[0].QPs == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("rxed holds things of programs that ended %v ago: %+v", daemonWait, all)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// daemonsSaid is what the daemons wrote.
func (r *runner) daemonsSaid() string {
	var s strings.Builder
	for _, d := range r.daemons {
		s.WriteString(d.says.String())
	}
	return s.String()
}

// forgotten looks at the daemons that served a case.
func (r *runner) forgotten(ctx context.Context) error {
	var errs []error
	for _, d := range r.daemons {
		err := d.forgotten(ctx)
		d.bad = d.bad || err != nil
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stopDaemon stops the daemon of a namespace, if there is one: it ends of itself,
// with status 0, and has not complained of anything that is its own fault.
func (r *runner) stopDaemon(ns string) error {
	d := r.daemons[ns]
	if d == nil {
		return nil
	}
	delete(r.daemons, ns)
	d.admin.Close()
	if d.over() {
		if d.bad { // a case has said so
			return nil
		}
		return fmt.Errorf("rxed ended before it was told to (%v): %s", d.err, tail(d.says.String()))
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(daemonWait):
		_ = d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("rxed did not stop in %v: %s", daemonWait, tail(d.says.String()))
	}
	if d.err != nil {
		return fmt.Errorf("rxed: %w: %s", d.err, tail(d.says.String()))
	}
	for line := range strings.Lines(d.says.String()) {
		if strings.Contains(line, "level=ERROR") {
			return fmt.Errorf("rxed said: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// stopDaemons stops all of them.
func (r *runner) stopDaemons() error {
	return errors.Join(r.stopDaemon(r.ns), r.stopDaemon(r.ns2))
}
