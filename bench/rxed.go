package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// daemon starts an rxed for one end and returns how to stop it.
func (b *bed) daemon(ctx context.Context, p place, ns string, j *job) (stop func() error, err error) {
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	j.Socket = filepath.Join(b.dir, ns+".sock")
	link := j.Link
	if link == "" {
		link = "udp"
	}
	c := p.in(ctx, ns, b.rxed, "-d", p.iface, "--link", link, "--socket", j.Socket, "--admin", filepath.Join(b.dir, ns+".admin"), "--log-level", "warn")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		_ = c.Process.Signal(syscall.SIGTERM)
		return c.Wait()
	}
	for range 200 {
		if k, err := net.Dial("unixpacket", j.Socket); err == nil {
			return stop, k.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, errors.Join(errors.New("rxed does not come up"), stop())
}

// build builds rxed, once.
func (b *bed) build(ctx context.Context) (err error) {
	if b.rxed != "" {
		return nil
	}
	if b.dir, err = os.MkdirTemp("", "gorxe-bench"); err != nil {
		return err
	}
	at := filepath.Join(b.dir, "rxed")
	build := exec.CommandContext(ctx, "go", "build", "-o", at, "github.com/gorxe/gorxe/cmd/rxed")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does: rights are given up
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building rxed: %w: %s", err, out)
	}
	b.rxed = at
	return nil
}
