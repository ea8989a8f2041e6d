package rig

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed rig guest-init initrd-init *.py
var files embed.FS

// Suites that guests are made of.
const (
	Bookworm = "bookworm" // Debian 12: perftest 6.06, rdma-core 44
	Trixie   = "trixie"   // Debian 13: perftest 6.24, rdma-core 56
)

// Rig is where the image of a suite is, and what runs from it. Several can run
// at once when their homes differ; those of one Namespace reach each other.
type Rig struct {
	Suite     string
	Home      string    // of the image and what runs; $RIG_HOME, or gorxe-rig in the user's cache; trixie's has -trixie behind
	Namespace string    // the bridge's; $RIG_NS, or gxrig
	Log       io.Writer // what the script says
}

// New returns the rig of a suite that the environment names, and unpacks its
// script.
func New(suite string, log io.Writer) (*Rig, error) {
	r := &Rig{Suite: suite, Home: os.Getenv("RIG_HOME"), Namespace: os.Getenv("RIG_NS"), Log: log}
	if r.Namespace == "" {
		r.Namespace = "gxrig"
	}
	if r.Home == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("rig: set RIG_HOME: %w", err)
		}
		r.Home = filepath.Join(cache, "gorxe-rig")
	}
	if suite != Bookworm {
		r.Home += "-" + suite
	}
	dir := filepath.Join(r.Home, "script")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("rig: %w", err)
	}
	all, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		b, err := files.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name()), b, 0o755); err != nil {
			return nil, fmt.Errorf("rig: %w", err)
		}
	}
	return r, nil
}

// Build makes the image if it is missing.
func (r *Rig) Build(ctx context.Context) error { return r.script(ctx, "build") }

// Up boots guests and waits until they answer.
func (r *Rig) Up(ctx context.Context, guests ...int) error {
	a := []string{"up"}
	for _, n := range guests {
		a = append(a, strconv.Itoa(n))
	}
	return r.script(ctx, a...)
}

// Restart switches a guest off and boots it again.
func (r *Rig) Restart(ctx context.Context, n int) error {
	if err := r.script(ctx, "stop", strconv.Itoa(n)); err != nil {
		return err
	}
	return r.Up(ctx, n)
}

// Host makes a network namespace on the bridge, with the addresses of number n.
func (r *Rig) Host(ctx context.Context, name string, n int) error {
	return r.script(ctx, "host", name, strconv.Itoa(n))
}

// Down stops the guests and removes the namespaces.
func (r *Rig) Down(ctx context.Context) error { return r.script(ctx, "down") }

func (r *Rig) script(ctx context.Context, a ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(r.Home, "script", "rig"), a...)
	cmd.Env = append(os.Environ(), "RIG_HOME="+r.Home, "RIG_NS="+r.Namespace, "RIG_SUITE="+r.Suite)
	cmd.Stdout, cmd.Stderr = r.Log, r.Log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("rig %s: %w", strings.Join(a, " "), err)
	}
	return nil
}

// Addr returns the IPv4 address of guest or host n, Addr6 its IPv6 address.
func Addr(n int) string { return fmt.Sprintf("192.0.2.%d", n) }

// Addr6 returns the IPv6 address of guest or host n.
func Addr6(n int) string { return fmt.Sprintf("fd00::%d", n) }

// Panicked returns the line of guest n's console that says why its kernel
// died, or "".
func (r *Rig) Panicked(n int) string {
	return r.logged(n, func(line string) bool {
		return strings.Contains(line, "Kernel panic") || strings.Contains(line, "Oops:")
	})
}

// Warned returns the line of guest n's console with a warning from a place in
// its kernel's source, such as rxe_comp.c, or "".
func (r *Rig) Warned(n int, where string) string {
	return r.logged(n, func(line string) bool {
		return strings.Contains(line, "WARNING:") && strings.Contains(line, where)
	})
}

// logged returns the first line of guest n's console that is looked for.
func (r *Rig) logged(n int, wanted func(line string) bool) string {
	b, err := os.ReadFile(filepath.Join(r.Home, "run", strconv.Itoa(n)+".log"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if wanted(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// ExitError is a guest's command that ended with a status other than 0.
type ExitError struct {
	Command string
	Status  int
	Output  string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("guest: %.60q: status %d: %s", e.Command, e.Status, lastLine(e.Output))
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// trailer comes after a command's output, before its status.
const trailer = "\n\x00RC="

// Exec runs a shell command in guest n and returns what it printed, on both
// streams; a status other than 0 is an *ExitError. It must be called from
// inside the rig's namespace. A command that is not over when ctx is goes on
// in the guest: give it a limit of its own.
func Exec(ctx context.Context, n int, command string) (string, error) {
	var d net.Dialer
	d.Timeout = 5 * time.Second
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(Addr(n), "7000"))
	if err != nil {
		return "", fmt.Errorf("guest %d: %w", n, err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(c, "%d\n%s", len(command), command); err != nil {
		return "", fmt.Errorf("guest %d: %w", n, err)
	}
	b, err := io.ReadAll(c)
	out, status, found := bytes.Cut(b, []byte(trailer))
	if err == nil && !found {
		err = errors.New("the connection ended before the command did")
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return string(out), fmt.Errorf("guest %d: %.60q: %w", n, command, err)
	}
	rc, err := strconv.Atoi(string(status))
	if err != nil {
		return string(out), fmt.Errorf("guest %d: status %q", n, status)
	}
	if rc != 0 {
		return string(out), &ExitError{command, rc, string(out)}
	}
	return string(out), nil
}
