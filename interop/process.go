package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/gorxe/gorxe/control"
)

// nobody is the user whose processes have no privilege at all.
const nobody = "65534"

// process is a program of our side, in our namespace.
type process struct {
	cmd  *exec.Cmd
	out  bytes.Buffer // both streams; to be read when it is done
	done chan struct{}
	err  error
}

// unprivileged reports whether a case's program of ours has no privilege.
func (c *Case) unprivileged() bool { return c.Link == linkUDP || c.Daemon }

// start runs a program of a case in our namespace: over link udp, or attached to a
// daemon, as nobody, without capabilities or a way to get them, else as root.
func (r *runner) start(ctx context.Context, c *Case, program string, args ...string) (*process, error) {
	return r.startIn(ctx, r.ns, c, program, args...)
}

func (r *runner) startIn(ctx context.Context, ns string, c *Case, program string, args ...string) (*process, error) {
	a := []string{"netns", "exec", ns}
	if c.unprivileged() {
		a = append(a, "setpriv", "--reuid", nobody, "--regid", nobody, "--clear-groups",
			"--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
	}
	p := &process{cmd: exec.CommandContext(ctx, "ip", append(append(a, program), args...)...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.WaitDelay = "/", time.Second
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if c.Daemon {
		p.cmd.Env = append(os.Environ(), control.SocketEnv+"="+r.socket(ns))
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// wait returns how the process ended.
func (p *process) wait() error {
	<-p.done
	return p.err
}

// kill ends the process.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
