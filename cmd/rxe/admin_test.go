package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/inspect"
	"github.com/gorxe/gorxe/internal/inspect/inspecttest"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/verbs"
)

// devices is a daemon's.
type devices []admin.Device

func (d devices) Daemon() admin.Daemon    { return admin.Daemon{Program: "rxed"} }
func (d devices) Devices() []admin.Device { return d }
func (d devices) Reload(context.Context) (admin.ReloadResult, error) {
	return admin.ReloadResult{}, nil
}

// daemon serves two devices with a queue pair each, connected to each other, one of
// which belongs to another process.
type daemon struct {
	t      *testing.T
	a, b   *inspecttest.Side
	qa, qb *verbs.QP
	socket string
}

func newDaemon(t *testing.T, faults string) *daemon {
	d := &daemon{t: t, socket: filepath.Join(t.TempDir(), "admin.sock")}
	d.a, d.b = inspecttest.Pair(t, faults, func(c *inspect.Config) {
		c.Clients = func() []admin.ClientInfo { return []admin.ClientInfo{{ID: 1, PID: 4711, Command: "perf"}} }
	})
	d.qa, d.qb = inspecttest.Connect(t, d.a, d.b, verbs.ConnectOptions{PathMTU: 1024, Timeout: 14, RetryCnt: 1})
	l, err := net.Listen("unix", d.socket)
	require.NoError(t, err)
	s := admin.NewServer(devices{d.a.Device, d.b.Device})
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return d
}

// run runs rxe and returns what it says on both outputs.
func (d *daemon) run(args ...string) (stdout, stderr string, err error) {
	cmd := command(args...)
	cmd.Env = append(cmd.Env, admin.EnvSocket+"="+d.socket)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func (d *daemon) good(args ...string) string {
	d.t.Helper()
	out, errs, err := d.run(args...)
	require.NoError(d.t, err, errs)
	return out
}

func (d *daemon) bad(args ...string) string {
	d.t.Helper()
	out, errs, err := d.run(args...)
	require.Error(d.t, err, out)
	require.Equal(d.t, 1, strings.Count(errs, "\n"), errs)
	return errs
}

func TestStat(t *testing.T) {
	d := newDaemon(t, "")
	wc := inspecttest.Write(t, d.a, d.b, d.qa, 10000)
	require.NoError(t, wc.Err())
	out := d.good("stat")
	for _, want := range []string{
		`(?m)^rxe0 port 1 \(mem, PORT_ACTIVE \(4\)\)$`,
		`(?m)^    port_xmit_data +2544 words$`,
		`(?m)^    port_xmit_packets +10 packets$`,
		`(?m)^    port_xmit_wait +0 ns$`,
		`(?m)^    port_rcv_packets +10 packets$`,
		`(?m)^    completed +1 requests$`,
		fmt.Sprintf(`(?m)^ +%#06x +RC +RTS +10 +10000 +1 +0 +0 +0$`, d.qa.QPN()),
		fmt.Sprintf(`(?m)^ +%#06x +RC +RTS +1 +0 +10 +10000 +0 +0$`, d.qb.QPN()),
	} {
		require.Regexp(t, want, out)
	}
	require.NotContains(t, out, "out_of_sequence")
	require.NotContains(t, out, "correct") // no explanations
	one := d.good("stat", "-d", "rxe1", "--all", "--explain")
	require.NotContains(t, one, "rxe0")
	require.Regexp(t, `(?m)^    out_of_sequence +0 packets +packets that came beyond a gap$`, one)
	require.Regexp(t, `(?m)^    icrc_error +0 packets +the invariant CRC is wrong: `, one)

	var c struct {
		admin.Counters
		QPs []admin.QP
	}
	lines := strings.Split(strings.TrimSpace(d.good("stat", "--json")), "\n")
	require.Len(t, lines, 2)
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &c))
	require.Equal(t, uint64(2544), c.Values["port_xmit_data"])
	require.Len(t, c.QPs, 1)

	watch := d.good("stat", "--watch=20ms", "-c", "3", "-d", "rxe0")
	require.Equal(t, 3, strings.Count(watch, "port_xmit_data"))
	require.Len(t, regexp.MustCompile(`port_xmit_data +2544 words +0/s`).FindAllString(watch, -1), 2, watch)
	qp := d.good("stat", "--qp", fmt.Sprint(d.qa.QPN()), "-e")
	require.Regexp(t, `(?m)^  sent_payload +10000 octets +payload of the packets sent$`, qp)

	require.Contains(t, d.bad("stat", "-d", "eth7"), "-d eth7: the daemon at "+d.socket+" has no such device; it has rxe0, rxe1\n")
	require.Contains(t, d.bad("stat", "--watch=1us"), "10ms or more")
	require.Contains(t, d.bad("stat", "--qp", "77"), "no queue pair has number 0x00004d")
	require.Contains(t, d.bad("stat", "--qp", "x"), "queue pair x: it takes a number")
}

// A device that has ended does not keep others from being looked at.
func TestDeadDevice(t *testing.T) {
	d := newDaemon(t, "")
	require.NoError(t, d.b.NIC.Close())
	require.Regexp(t, `(?m)^rxe1 port 1 \(no interface, PORT_DOWN \(1\)\)\n  the device is no more: .*closed$`, d.good("stat"))
	out, errs, err := d.run("qp")
	require.NoError(t, err)
	require.Contains(t, out, "\nrxe0 ")
	require.NotContains(t, out, "rxe1")
	require.Equal(t, "rxe: rxe1 is no more: verbs: closed\n", errs)
	require.Equal(t, "rxe: rxe1 is no more: verbs: closed\n", d.bad("qp", "-d", "rxe1"))
	require.NoError(t, d.a.NIC.Close())
	_, errs, err = d.run("stat", "--qp", "5")
	require.Error(t, err)
	require.Contains(t, errs, "no device works")
}

func TestQP(t *testing.T) {
	d := newDaemon(t, "tx drop 100%")
	out := d.good("qp")
	require.Regexp(t, `(?m)^DEVICE +QPN +TYPE +STATE +PEER`, out)
	require.Regexp(t, fmt.Sprintf(`(?m)^rxe0 +%#06x +RC +RTS +192\.0\.2\.2 +%#06x +rxed +\d+/\d+ +0 +0$`, d.qa.QPN(), d.qb.QPN()), out)
	n := fmt.Sprintf("%#06x", d.qa.QPN())
	out = d.good("qp", n)
	for _, want := range []string{
		"type, state: +RC, RTS", "owner: +rxed", `connected: +192\.0\.2\.1 to 192\.0\.2\.2, queue pair 0x`, "path MTU: +1024",
		`PSN to send: +\d+ next, \d+ oldest unacknowledged`, `PSN expected: +\d+`, `window: +0 of \d+ packets in flight`, "credits: +do not bind",
		"retries left: +1 of 1; after RNR", `timeout: +67\.11ms \(14\), timer not running`, "round trip: +not measured",
	} {
		require.Regexp(t, `(?m)^  `+want, out)
	}
	wc := inspecttest.Write(t, d.a, d.b, d.qa, 100)
	require.Error(t, wc.Err())
	out = d.good("qp", n, "--trace", "-n", "3")
	require.Regexp(t, `(?m)^  ended: +retry_exceeded_err: no acknowledgement after all retries: `, out)
	require.Regexp(t, `(?m)^  last of note: +\S+ ago: retry_exceeded_err: `, out)
	require.Len(t, regexp.MustCompile(`ago +0x`).FindAllString(out, -1), 3, out)
	require.Regexp(t, `(?m)^\S+ ago +0x\w+ +- +- +PSN \d+ +local_ack_timeout_err +no answer within the timeout`, out)
	require.Regexp(t, `(?m)now in state ERR$`, out)
	require.Contains(t, d.good("qp", "--trace", "-d", "rxe0"), "local_ack_timeout_err")

	var q admin.QPDetail
	require.NoError(t, json.Unmarshal([]byte(d.good("qp", n, "--json")), &q))
	require.Equal(t, "ERR", q.State)
	require.Len(t, strings.Split(strings.TrimSpace(d.good("qp", "--json")), "\n"), 2)
	require.Contains(t, d.bad("qp", "0x1"), "no queue pair has number 0x000001")
	require.Contains(t, d.bad("qp", "16777216"), "it takes a number")
}

func TestCapture(t *testing.T) {
	d := newDaemon(t, "")
	file := filepath.Join(t.TempDir(), "out.pcapng")
	cmd := command("capture", "-w", file, "-d", "rxe0", "--snap", "100")
	cmd.Env = append(cmd.Env, admin.EnvSocket+"="+d.socket)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		i, err := d.a.Device.Info()
		return err == nil && i.Captures == 1
	}, 20*time.Second, time.Millisecond)
	wc := inspecttest.Write(t, d.a, d.b, d.qa, 4000)
	require.NoError(t, wc.Err())
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), errs.String())
	require.Equal(t, "rxe: capturing from rxe0 (mem)\nrxe: 5 packets captured, 0 dropped because they came faster than they were read\n", errs.String())
	r, err := pcap.Open(file)
	require.NoError(t, err)
	defer r.Close()
	for range 5 {
		f, err := r.Next()
		require.NoError(t, err)
		require.LessOrEqual(t, len(f.Data), 100)
	}
	_, err = r.Next()
	require.Error(t, err)
	if tool, err := exec.LookPath("tshark"); err == nil {
		out, err := exec.Command(tool, "-r", file, "-T", "fields", "-e", "infiniband.bth.opcode").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "\n7\n7\n8\n17\n")
	}

	require.Contains(t, d.bad("capture", "-d", "rxe0"), "-w is missing")
	require.Contains(t, d.bad("capture", "-w", "-"), "which device? choose one with -d: rxe0, rxe1\n")
	require.Contains(t, d.bad("capture", "-d", "rxe0", "-w", "/nowhere/x"), "cannot write the capture")
	require.Contains(t, d.bad("capture", "-d", "rxe0", "-w", "-", "-s", "-1"), "--snap -1")
}

func TestNoDaemonRuns(t *testing.T) {
	d := &daemon{t: t, socket: filepath.Join(t.TempDir(), "none.sock")}
	for _, args := range [][]string{{"stat"}, {"qp"}, {"qp", "5"}, {"capture", "-w", "-"}} {
		require.Contains(t, d.bad(args...), "rxe: no rxed listens at "+d.socket+" (no such file or directory): start one with 'rxed -d INTERFACE'", args)
	}
	require.Contains(t, d.bad("stat", "--admin", "/x/y"), "no rxed listens at /x/y")
}
