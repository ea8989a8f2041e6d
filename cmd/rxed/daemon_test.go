package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/control/admin"
)

// asProgram has the test binary be rxed.
const asProgram = "RXED_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:]))
	}
	if socket := os.Getenv(asClient); socket != "" {
		os.Exit(runClient(socket))
	}
	goleak.VerifyTestMain(m)
}

// patience is what anything may take that should take no time.
const patience = 20 * time.Second

// place is a folder for sockets, whose paths are short, and files.
type place struct {
	t   *testing.T
	dir string
}

func newPlace(t *testing.T) *place {
	dir, err := os.MkdirTemp("", "rxed")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &place{t, dir}
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// file writes a configuration.
func (p *place) file(text string) (path string) {
	path = p.path("rxed.toml")
	require.NoError(p.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// process is a running rxed.
type process struct {
	*place
	cmd   *exec.Cmd
	admin *admin.Client

	mu    sync.Mutex
	lines []string
	ended chan struct{} // its output has
}

// launch starts rxed, with its sockets in the folder; env adds to its environment.
func (p *place) launch(env []string, args ...string) *process {
	p.t.Helper()
	d := p.command(os.Args[0], args...)
	d.cmd.Env = append(d.cmd.Env, env...)
	return d.begin()
}

// command is a rxed that has not begun.
func (p *place) command(name string, args ...string) *process {
	d := &process{place: p, ended: make(chan struct{}), cmd: exec.Command(name, args...)}
	d.cmd.Env = append(os.Environ(), asProgram+"=1", "RXED_SOCKET="+p.path("v.sock"), "RXED_ADMIN="+p.path("a.sock"))
	d.admin = admin.NewClient(p.path("a.sock"))
	return d
}

func (d *process) begin() *process {
	p := d.place
	p.t.Helper()
	r, w, err := os.Pipe()
	require.NoError(p.t, err)
	d.cmd.Stderr, d.cmd.Stdout = w, w
	require.NoError(p.t, d.cmd.Start())
	w.Close()
	go func() {
		defer close(d.ended)
		defer r.Close()
		for s := bufio.NewScanner(r); s.Scan(); {
			d.mu.Lock()
			d.lines = append(d.lines, s.Text())
			d.mu.Unlock()
		}
	}()
	p.t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		}
		<-d.ended
		if p.t.Failed() {
			p.t.Logf("%v wrote:\n%s", d.cmd.Args, d.text())
		}
		d.admin.Close()
	})
	return d
}

// start is launch, and waits until it is ready.
func (p *place) start(env []string, args ...string) *process {
	p.t.Helper()
	d := p.launch(env, args...)
	d.wait(`msg=ready`)
	return d
}

func (d *process) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n")
}

// wait waits for a line of its output.
func (d *process) wait(pattern string) string {
	d.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		over := false
		select {
		case <-d.ended:
			over = true
		default:
		}
		d.mu.Lock()
		lines := d.lines
		d.mu.Unlock()
		for _, l := range lines {
			if re.MatchString(l) {
				return l
			}
		}
		if over {
			break
		}
	}
	d.t.Logf("rxed has not written %q; it is at\n%s", pattern, d.stacks())
	d.t.FailNow()
	return ""
}

// stacks says where a process hangs: its threads in the kernel, and, after it, its
// goroutines in what it writes.
func (d *process) stacks() string {
	var b strings.Builder
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(d.pid()) + "/task/*")
	for _, f := range files {
		for _, name := range []string{"comm", "wchan", "syscall", "stat"} {
			text, _ := os.ReadFile(filepath.Join(f, name))
			fmt.Fprintf(&b, "%s  ", strings.TrimSpace(string(text)))
		}
		b.WriteString("\n")
	}
	_ = d.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-d.ended:
	case <-time.After(patience):
		b.WriteString("it does not answer SIGQUIT either\n")
	}
	return b.String()
}

// exit waits for its end and returns the exit code, or minus the signal.
func (d *process) exit() int {
	d.t.Helper()
	timer := time.AfterFunc(patience, func() { _ = d.cmd.Process.Signal(syscall.SIGQUIT) })
	defer timer.Stop()
	_ = d.cmd.Wait()
	<-d.ended
	ws := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (d *process) signal(s syscall.Signal) { require.NoError(d.t, d.cmd.Process.Signal(s)) }

// stop ends it in good order.
func (d *process) stop() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	require.Equal(d.t, exitStopped, d.exit(), "%s", d.text())
}

func (d *process) pid() int { return d.cmd.Process.Pid }

// manager is a service manager's end of sd_notify.
type manager struct {
	t *testing.T
	c *net.UnixConn
}

func newManager(p *place) (*manager, string) {
	path := p.path("notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	return &manager{p.t, c}, "NOTIFY_SOCKET=" + path
}

// expect reads messages until one has all the words.
func (m *manager) expect(words ...string) string {
	m.t.Helper()
	require.NoError(m.t, m.c.SetReadDeadline(time.Now().Add(patience)))
	b := make([]byte, 4096)
	var seen []string
next:
	for {
		n, err := m.c.Read(b)
		require.NoError(m.t, err, "wanted %q, got %q", words, seen)
		text := string(b[:n])
		seen = append(seen, text)
		for _, w := range words {
			if !strings.Contains(text, w) {
				continue next
			}
		}
		return text
	}
}

func ctxFor(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
