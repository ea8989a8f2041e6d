package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/hostnet"
)

func needsThreads(t *testing.T) {
	if builtWithCgo {
		t.Skip("this test binary was built with cgo, so rxed cannot give up rights on all of its threads: CGO_ENABLED=0 go test")
	}
}

func needsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root is needed, to have rights that are given up")
	}
}

// threads returns what the kernel says of each thread of a process.
func (d *process) threads() (all []map[string]string) {
	d.t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(d.pid()) + "/task/*/status")
	require.NoError(d.t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		m := map[string]string{}
		for _, l := range strings.Split(string(b), "\n") {
			k, v, _ := strings.Cut(l, ":")
			m[k] = strings.Join(strings.Fields(v), " ")
		}
		all = append(all, m)
	}
	require.NotEmpty(d.t, all)
	return all
}

// rights requires the same of all threads.
func (d *process) rights(want map[string]string) {
	d.t.Helper()
	for _, th := range d.threads() {
		for k, v := range want {
			require.Equal(d.t, v, th[k], "%s of thread %s of %v", k, th["Pid"], d.cmd.Args)
		}
	}
}

const none = "0000000000000000"

// stripped is a process that has nothing left.
func stripped() map[string]string {
	return map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
	}
}

// TestRights: a daemon over udp has no capability left in any thread, those made
// under load among them.
func TestRights(t *testing.T) {
	needsThreads(t)
	needsRoot(t)
	p := newPlace(t)
	d := p.start(nil, "--addr", addr(10), "--addr", addr(11), "--link", "udp")
	d.rights(stripped())
	ctx := ctxFor(t)
	var wg sync.WaitGroup
	for range 8 {
		a, b := couple(t, p, "rxe0", "rxe1")
		wg.Go(func() {
			for range 50 {
				if err := write(ctx, a, b, 1<<18); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	d.rights(stripped())
	d.stop()

	d = p.start(nil, "--addr", addr(10), "--link", "udp", "--seccomp", "off")
	want := stripped()
	want["Seccomp"] = "0"
	d.rights(want)
	d.stop()
}

// TestUser: it becomes another user, in all threads, and serves.
func TestUser(t *testing.T) {
	needsThreads(t)
	needsRoot(t)
	p := newPlace(t)
	d := p.start(nil, "--addr", addr(10), "--link", "udp", "--user", "65534", "--group", "65533")
	want := stripped()
	want["Uid"], want["Gid"] = "65534 65534 65534 65534", "65533 65533 65533 65533"
	want["Groups"] = "65534" // those of the user
	d.rights(want)
	attach(t, p, "rxe0")
	d.stop()
}

// TestPacketRights: a packet link goes on needing CAP_NET_RAW, and nothing else.
func TestPacketRights(t *testing.T) {
	needsThreads(t)
	if err := hostnet.PacketSockets(); err != nil {
		t.Skipf("packet sockets are needed: %v", err)
	}
	p := newPlace(t)
	d := p.start(nil, "--addr", addr(10), "--link", "packet", "--seccomp", "kill")
	want := stripped()
	want["CapPrm"], want["CapEff"] = "0000000000002000", "0000000000002000"
	d.rights(want)
	attach(t, p, "rxe0")
	d.stop()
}

// TestUnprivileged: any user may run it, with sockets of its own.
func TestUnprivileged(t *testing.T) {
	needsThreads(t)
	needsRoot(t)
	p := newPlace(t)
	require.NoError(t, os.Chown(p.dir, 65534, 65534))
	c := p.command(copyOf(t, p), "--addr", addr(10), "--seccomp", "kill")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.begin()
	c.wait("msg=ready")
	want := stripped()
	delete(want, "CapBnd") // it takes a capability to give that up
	want["Uid"] = "65534 65534 65534 65534"
	c.rights(want)
	attach(t, p, "rxe0")
	c.stop()

	// What it may not have it says.
	c = p.command(p.path("rxed"), "--addr", addr(10), "--link", "packet")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.begin()
	require.Equal(t, exitFailed, c.exit())
	require.Contains(t, c.text(), "CAP_NET_RAW")
	c = p.command(p.path("rxed"), "--addr", addr(10), "--socket", "/run/verbs.sock")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.begin()
	require.Equal(t, exitFailed, c.exit())
	require.Contains(t, c.text(), "permission denied; name a path in a folder that this user may write to")
}

// copyOf puts this binary where any user may run it.
func copyOf(t *testing.T, p *place) string {
	in, err := os.Open(os.Args[0])
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(p.path("rxed"), os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	return p.path("rxed")
}
