package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/testbed"
)

// addr is a loopback address of this test process.
func addr(i int) string { return testbed.Loopback(i).String() }

func twoDevices() string {
	return fmt.Sprintf("[[device]]\naddr = %q\nlink = \"udp\"\n[[device]]\naddr = %q\nlink = \"udp\"\nshards = 2\n", addr(0), addr(1))
}

// TestLife: from start to stop, with a service manager that is told everything and
// programs that are served, and told of the end. The filter of system calls ends the
// process at the first call that it does not know.
func TestLife(t *testing.T) {
	p := newPlace(t)
	m, env := newManager(p)
	port := freePort(t)
	file := p.file("[process]\nseccomp = \"kill\"\n[metrics]\nlisten = \"127.0.0.1:" + port + "\"\n" + twoDevices())
	d := p.start([]string{env, "WATCHDOG_USEC=4000000", "WATCHDOG_PID="}, "-c", file)
	m.expect("READY=1", "STATUS=Serving rxe0 rxe1 at "+p.path("v.sock"))
	m.expect("WATCHDOG=1")

	a, b := couple(t, p, "rxe0", "rxe1")
	copy(a.mr.Bytes(), "hello")
	ctx := ctxFor(t)
	for i := range 200 {
		require.NoError(t, write(ctx, a, b, 1+i*1000))
	}
	require.Equal(t, "hello", string(b.mr.Bytes()[:5]))

	// What operators ask, while programs are served.
	info, err := d.admin.Daemon(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"rxe0", "rxe1"}, info.Devices)
	require.Equal(t, d.pid(), info.PID)
	clients, err := d.admin.Clients(ctx, "rxe0")
	require.NoError(t, err)
	require.Len(t, clients, 1)
	require.Equal(t, os.Getpid(), clients[0].PID)
	require.Equal(t, 1, clients[0].Objects["qp"])
	body := get(t, "http://127.0.0.1:"+port+"/metrics")
	require.Contains(t, body, `device="rxe0"`)
	m.expect("WATCHDOG=1")

	d.signal(syscall.SIGHUP)
	m.expect("RELOADING=1", "MONOTONIC_USEC=")
	m.expect("READY=1")
	d.signal(syscall.SIGTERM)
	m.expect("STOPPING=1")
	a.fatal(t)
	b.fatal(t)
	require.Equal(t, exitStopped, d.exit())
	require.NoFileExists(t, p.path("v.sock"))
	require.NoFileExists(t, p.path("a.sock"))
	require.Contains(t, d.text(), "msg=stopped")
	if !builtWithCgo { // which it warns of
		require.NotContains(t, d.text(), "level=WARN")
	}
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

func get(t *testing.T, url string) string {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r, err := c.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", b)
	return string(b)
}

// TestSecond: a second daemon is refused, by the socket or by the address, and told
// whose they are; the first serves on.
func TestSecond(t *testing.T) {
	p := newPlace(t)
	d := p.start(nil, "--addr", addr(2), "--link", "udp")
	self := fmt.Sprintf("process %d (", d.pid())

	x := p.launch(nil, "--addr", addr(3))
	require.Equal(t, exitFailed, x.exit())
	require.Contains(t, x.text(), "rxed: socket "+p.path("v.sock")+": another process serves it, "+self)

	q := newPlace(t)
	x = q.launch(nil, "--addr", addr(2))
	require.Equal(t, exitFailed, x.exit())
	require.Contains(t, x.text(), "rxed: device rxe0 ("+addr(2)+"): ")
	require.Contains(t, x.text(), self)
	require.NoFileExists(t, q.path("v.sock"), "what was made is removed")
	require.NoFileExists(t, q.path("a.sock"))

	attach(t, p, "rxe0")
	d.stop()
}

// TestCrash: sockets of a daemon that was killed are replaced; those of others, and
// other files, are left alone.
func TestCrash(t *testing.T) {
	p := newPlace(t)
	d := p.start(nil, "--addr", addr(4))
	a := attach(t, p, "rxe0")
	d.signal(syscall.SIGKILL)
	require.Equal(t, -int(syscall.SIGKILL), d.exit())
	a.fatal(t)
	require.FileExists(t, p.path("v.sock"))
	d = p.start(nil, "--addr", addr(4))
	require.Equal(t, 2, strings.Count(d.text(), "it was replaced"), "%s", d.text())
	attach(t, p, "rxe0")
	d.stop()

	require.NoError(t, os.WriteFile(p.path("v.sock"), []byte("mine"), 0o600))
	x := p.launch(nil, "--addr", addr(4))
	require.Equal(t, exitFailed, x.exit())
	require.Contains(t, x.text(), "a file that is no socket is there; it is left alone")
	require.FileExists(t, p.path("v.sock"))
	require.NoError(t, os.Remove(p.path("v.sock")))

	// A socket of another type, whose owner lives.
	l, err := net.Listen("unix", p.path("v.sock"))
	require.NoError(t, err)
	defer l.Close()
	x = p.launch(nil, "--addr", addr(4))
	require.Equal(t, exitFailed, x.exit())
	require.Contains(t, x.text(), "another process serves it: it does not answer")
	require.FileExists(t, p.path("v.sock"))
}

// TestTakenOver: a daemon whose socket's file was replaced does not remove that of
// its successor.
func TestTakenOver(t *testing.T) {
	p := newPlace(t)
	d := p.start(nil, "--addr", addr(4))
	require.NoError(t, os.Remove(p.path("v.sock")))
	require.NoError(t, os.WriteFile(p.path("v.sock"), nil, 0o600))
	d.stop()
	require.FileExists(t, p.path("v.sock"))
}

// TestReload: what can change does, what cannot is named, and a bad file, or one
// that cannot be carried out, leaves everything as it was.
func TestReload(t *testing.T) {
	p := newPlace(t)
	base := twoDevices()
	d := p.start(nil, "-c", p.file(base))
	ctx := ctxFor(t)
	a, b := couple(t, p, "rxe0", "rxe1")
	mode := func() os.FileMode {
		fi, err := os.Stat(p.path("v.sock"))
		require.NoError(t, err)
		return fi.Mode().Perm()
	}
	require.Equal(t, os.FileMode(0o660), mode())

	port := freePort(t)
	p.file("[control]\nmode = \"0666\"\n[log]\nlevel = \"debug\"\n[metrics]\nlisten = \"127.0.0.1:" + port + "\"\n[process]\nuser = \"0\"\n" +
		strings.Replace(base, "shards = 2", "shards = 4\n[device.per_client]\nqps = 1", 1) + "[[device]]\naddr = \"" + addr(5) + "\"\n")
	r, err := d.admin.Reload(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{
		`control.mode: "0660" -> "0666"`, `metrics.listen: "" -> "127.0.0.1:` + port + `"`, `log.level: "info" -> "debug"`, "device rxe1 per_client.qps: 0 -> 1",
	}, r.Changed)
	require.Equal(t, []string{`process.user: "" -> "0"`, "device rxe1.shards: 2 -> 4", "device rxe2: it is new"}, r.Restart)
	require.Equal(t, os.FileMode(0o666), mode())
	get(t, "http://127.0.0.1:"+port+"/metrics")
	l, err := d.admin.Limits(ctx, "rxe1")
	require.NoError(t, err)
	require.Equal(t, 1, l.PerClient.QPs)
	require.NoError(t, write(ctx, a, b, 1000), "programs stay")

	// Not again, but for what needs a restart.
	r, err = d.admin.Reload(ctx)
	require.NoError(t, err)
	require.Empty(t, r.Changed)
	require.Len(t, r.Restart, 3)

	// A bad file.
	p.file("[log]\nlevel = \"error\"\nlevl = 1\n" + base)
	_, err = d.admin.Reload(ctx)
	require.ErrorContains(t, err, "rxed.toml:3:1: unknown key levl")
	require.ErrorIs(t, err, admin.ErrInvalid)

	// A good one that cannot be carried out: everything before it is taken back.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	p.file("[control]\nmode = \"0600\"\n[metrics]\nlisten = \"" + taken.Addr().String() + "\"\n" + base)
	_, err = d.admin.Reload(ctx)
	require.ErrorContains(t, err, "another program has that port")
	require.Equal(t, os.FileMode(0o666), mode())
	if !builtWithCgo { // or root could
		other := freePort(t)
		p.file("[metrics]\nlisten = \"127.0.0.1:" + other + "\"\n[control]\nmode = \"0600\"\n[admin]\ngroup = \"12345\"\n" + base)
		_, err = d.admin.Reload(ctx)
		require.ErrorContains(t, err, "a process may give its files to groups that it is in")
		_, err = net.Dial("tcp", "127.0.0.1:"+other)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	get(t, "http://127.0.0.1:"+port+"/metrics")
	require.Equal(t, os.FileMode(0o666), mode())
	l, err = d.admin.Limits(ctx, "rxe1")
	require.NoError(t, err)
	require.Equal(t, 1, l.PerClient.QPs)

	// By signal, back to the beginning.
	p.file(base)
	d.signal(syscall.SIGHUP)
	d.wait(`msg=reloaded .*per_client.qps: 1 -> 0`)
	require.Equal(t, os.FileMode(0o660), mode())
	d.stop()
}

// TestLimits: an operator's limits hold until the next reload that finds others.
func TestLimits(t *testing.T) {
	p := newPlace(t)
	d := p.start(nil, "--addr", addr(6))
	ctx := ctxFor(t)
	l, err := d.admin.Limits(ctx, "rxe0")
	require.NoError(t, err)
	l.Device.Clients = 1
	require.NotZero(t, l.PerClient.Groups)
	l.PerClient.Groups = 3
	l, err = d.admin.SetLimits(ctx, "rxe0", l)
	require.NoError(t, err)
	require.Equal(t, 3, l.PerClient.Groups)
	require.Equal(t, 1, l.Device.Clients)
	l.Device.Clients = -1
	_, err = d.admin.SetLimits(ctx, "rxe0", l)
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "limit clients of -1: it takes a number from 0")
	l.Device.Clients, l.PerClient.Clients = 1, 1
	_, err = d.admin.SetLimits(ctx, "rxe0", l)
	require.ErrorContains(t, err, "limit clients of one client")
	// A reload undoes what was set, and nothing else: the rest is the default still.
	r, err := d.admin.Reload(ctx)
	require.NoError(t, err)
	require.Len(t, r.Changed, 2, "%v", r.Changed)
	d.stop()
}

// TestCC: congestion control comes from the file, a reload changes it live, and what
// an operator sets holds until a reload finds another.
func TestCC(t *testing.T) {
	p := newPlace(t)
	base := fmt.Sprintf("[[device]]\naddr = %q\n", addr(7))
	p.file(base + "[device.cc]\nprofile = \"paper\"\nrp_ai_rate = 50\n")
	d := p.start(nil, "-c", p.path("rxed.toml"))
	ctx := ctxFor(t)
	has := func(c admin.CC, err error, name, value string) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, value, c.Get(name), name)
	}
	c, err := d.admin.CC(ctx, "rxe0")
	has(c, err, "rp_ai_rate", "50")
	has(c, err, "rp_hai_rate", "400")
	require.Equal(t, "rxe0", c.Device)

	c, err = d.admin.SetCC(ctx, "rxe0", map[string]string{"rp_ai_rate": "60", "np_enable": "0"})
	has(c, err, "rp_ai_rate", "60")
	has(c, err, "np_enable", "0")
	d.wait(`msg="congestion control changed" device=rxe0`)
	for _, bad := range []struct {
		change map[string]string
		want   string
	}{
		{map[string]string{"rp_hai_rate": "7", "rp_ai_rate": "0"}, `rp_ai_rate of "0": it takes 1 to 1600000 Mb/s`},
		{map[string]string{"rp_hai_rate": "7", "rp_dce_tcp_g": "1024"}, `rp_dce_tcp_g of "1024": it takes 1 to 1023 1/1024`},
		{map[string]string{"rp_hai_rate": "7", "rp_time_reset": "0"}, `rp_time_reset of "0": it takes 1 to 10000000 us`},
		{map[string]string{"rp_hai_rate": "7", "rp_min_rate": "9", "rp_max_rate": "8"}, "rp_min_rate of 9 Mb/s is above rp_max_rate of 8 Mb/s"},
		{map[string]string{"rp_hai_rate": "7", "rp_rate": "1"}, `no parameter "rp_rate"`},
	} {
		_, err = d.admin.SetCC(ctx, "rxe0", bad.change)
		require.ErrorIs(t, err, admin.ErrInvalid)
		require.ErrorContains(t, err, bad.want)
		c, err = d.admin.CC(ctx, "rxe0")
		has(c, err, "rp_hai_rate", "400")
	}

	p.file(base + "[device.cc]\nprofile = \"paper\"\nrp_ai_rate = 0\n")
	_, err = d.admin.Reload(ctx)
	require.ErrorContains(t, err, "rxed.toml:5:14: rp_ai_rate = 0: it takes 1 to 1600000 Mb/s")
	p.file(base + "[device.cc]\nprofile = \"paper\"\nrp_ai_rate = 70\n")
	r, err := d.admin.Reload(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"device rxe0 cc.rp_ai_rate: 60 -> 70", "device rxe0 cc.np_enable: false -> true"}, r.Changed)
	require.Empty(t, r.Restart)
	c, err = d.admin.CC(ctx, "rxe0")
	has(c, err, "rp_ai_rate", "70")
	has(c, err, "np_enable", "1")
	d.stop()
}

// TestActivated: sockets that a service manager listens on are used, and left.
func TestActivated(t *testing.T) {
	p := newPlace(t)
	files := []*os.File{}
	for _, s := range [][2]string{{"unixpacket", "sd-v.sock"}, {"unix", "sd-a.sock"}} {
		l, err := net.ListenUnix(s[0], &net.UnixAddr{Net: s[0], Name: p.path(s[1])})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		f, err := l.File()
		require.NoError(t, err)
		l.Close()
		files = append(files, f)
	}
	// LISTEN_PID is the shell's, which becomes rxed. sd_listen_fds(3).
	sh := fmt.Sprintf(`export LISTEN_PID=$$; exec %q --addr %s`, os.Args[0], addr(8))
	c := p.command("/bin/sh", "-c", sh)
	c.cmd.ExtraFiles = files
	c.cmd.Env = append(c.cmd.Env, "LISTEN_FDS=2", "LISTEN_FDNAMES=verbs:admin")
	c.begin()
	for _, f := range files {
		f.Close()
	}
	c.wait("msg=ready control=" + p.path("sd-v.sock") + " admin=" + p.path("sd-a.sock"))
	asks := admin.NewClient(p.path("sd-a.sock"))
	defer asks.Close()
	info, err := asks.Daemon(ctxFor(t))
	require.NoError(t, err)
	require.Equal(t, c.pid(), info.PID)
	c.stop()
	require.FileExists(t, p.path("sd-v.sock"))
	require.NoFileExists(t, p.path("v.sock"))
}

// TestNoWatchdog: without a manager that asks, nothing is sent.
func TestNoWatchdog(t *testing.T) {
	p := newPlace(t)
	m, env := newManager(p)
	d := p.start([]string{env, "WATCHDOG_USEC=" + strconv.Itoa(int(time.Hour/time.Microsecond)), "WATCHDOG_PID=1"}, "--addr", addr(9))
	m.expect("READY=1")
	d.signal(syscall.SIGTERM)
	require.NotContains(t, m.expect("STOPPING=1"), "WATCHDOG")
	require.Equal(t, exitStopped, d.exit())
}
