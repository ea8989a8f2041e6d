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
	require.Regexp(t, fmt.Sprintf(`(?m)^rxe0 +%#06x +RC +RTS +192\.0\.2\.2 +%#06x +rxed +\d+/\d+ +0 +0 +-$`, d.qa.QPN(), d.qb.QPN()), out)
	n := fmt.Sprintf("%#06x", d.qa.QPN())
	out = d.good("qp", n)
	for _, want := range []string{
		"type, state: +RC, RTS", "owner: +rxed", `connected: +192\.0\.2\.1 to 192\.0\.2\.2, queue pair 0x`, "path MTU: +1024",
		`PSN to send: +\d+ next, \d+ oldest unacknowledged`, `PSN expected: +\d+`, `window: +0 of \d+ packets in flight`, "credits: +do not bind",
		"retries left: +1 of 1; after RNR", `timeout: +67\.11ms \(14\), timer not running`, "round trip: +not measured",
		"rate: +as fast as it can, limit none of its own", `congestion control: +dcqcn, no limit, alpha 0\.0000`,
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

// TestCC: parameters are shown with what they may be, and changed while queue pairs
// are there, all or none.
func TestCC(t *testing.T) {
	d := newDaemon(t, "")
	out := d.good("cc", "show", "-d", "rxe0")
	for _, want := range []string{
		`^rxe0: dcqcn$`, `^PARAMETER +VALUE +DEFAULT +RANGE +UNIT +WHAT IT IS$`, `^rp_ai_rate +5 +5 +1\.\.1600000 +Mb/s +that the target rate`,
		`^np_cnp_pacing +qp +qp +qp\|destination\|port +- +what a pacing key is$`, `^rp_enable +1 +1 +0\.\.1 +- +CNPs slow a queue pair down$`,
		`^1 queue pair, none has a rate to keep now$`, `^  np_cnp_sent +0$`, `^  rp_cnp_handled +0$`, `^  roce_slow_restart_trans +0$`,
	} {
		require.Regexp(t, "(?m)"+want, out)
	}
	require.NotContains(t, out, "on average")
	require.Contains(t, d.good("cc", "show"), "\nrxe1: dcqcn\n")

	require.Equal(t, "rxe0 rp_ai_rate: 5 -> 10 Mb/s\nrxe0 rp_min_rate: 1 -> 3 Mb/s\n", d.good("cc", "set", "-d", "rxe0", "rp_ai_rate=10", "rp_min_rate=3"))
	require.Equal(t, "rxe0: nothing differs from what it was\n", d.good("cc", "set", "-d", "rxe0", "rp_ai_rate=10"))
	for _, bad := range []struct{ args, want string }{
		{"rp_min_rate=0", `rp_min_rate of "0": it takes 1 to 1600000 Mb/s`},
		{"rp_dce_tcp_g=1024", `rp_dce_tcp_g of "1024": it takes 1 to 1023 1/1024`},
		{"rp_time_reset=0", `rp_time_reset of "0": it takes 1 to 10000000 us`},
		{"rp_max_rate=2", "rp_min_rate of 3 Mb/s is above rp_max_rate of 2 Mb/s"},
		{"rp_ai_rat=2", `no parameter "rp_ai_rat": there are profile, algorithm`},
		{"profile=cx9", `profile "cx9": there are mlx5`},
		{"rp_ai_rate", `rp_ai_rate`},
		{"rp_gd=1 rp_gd", `"rp_gd": it takes name=value, such as rp_ai_rate=10`},
		{"rp_gd=1 rp_gd=2", "rp_gd is there twice"},
		{"", "what shall be set?"},
	} {
		args := []string{"cc", "set", "-d", "rxe0"}
		if bad.args != "" {
			args = append(append(args, "swift_ai=7"), strings.Fields(bad.args)...)
		}
		require.Contains(t, d.bad(args...), bad.want, bad.args)
		require.Equal(t, 10, d.a.NIC.CC().RPAIRate)
		require.Equal(t, 100, d.a.NIC.CC().SwiftAI)
	}
	require.Contains(t, d.bad("cc", "set", "rp_gd=1"), "which device? choose one with -d: rxe0, rxe1")
	require.Contains(t, d.good("cc", "set", "-d", "rxe1", "none"), "rxe1 algorithm: dcqcn -> none")
	require.Contains(t, d.good("cc", "set", "-d", "rxe1", "rp_ai_rate=9", "profile=paper"), "rxe1 rp_ai_rate: 5 -> 9 Mb/s\n", "whatever comes first, the profile does")

	require.NoError(t, d.qa.SetRateLimit(2500))
	require.Contains(t, d.good("cc", "show", "-d", "rxe0"), "\n1 queue pair, 1 with a rate to keep now: 2.5 Mb/s to 2.5 Mb/s\n")
	require.Regexp(t, `(?m) 0 +2\.5 Mb/s$`, d.good("qp", "-d", "rxe0"))
	n := fmt.Sprintf("%#06x", d.qa.QPN())
	require.Regexp(t, `(?m)^  rate: +2\.5 Mb/s, limit 2\.5 Mb/s of its own$`, d.good("qp", n))
	var v struct {
		admin.CC
		Counters map[string]uint64
		Paced    int
		Slowest  int64
	}
	require.NoError(t, json.Unmarshal([]byte(d.good("cc", "show", "-d", "rxe0", "--json")), &v))
	require.Equal(t, "10", v.Get("rp_ai_rate"))
	require.EqualValues(t, 2_500_000, v.Slowest)
	require.Equal(t, 1, v.Paced)
	require.Contains(t, v.Counters, "np_cnp_sent")

	out = d.good("cc", "profiles")
	require.Regexp(t, `(?m)^PARAMETER +MLX5 +PAPER +NS3`, out)
	require.Regexp(t, `(?m)^rp_time_reset +300 +55 +1500 `, out)
	require.NotContains(t, out, "swift_ai")
	require.Contains(t, d.good("cc", "profiles", "--all"), "swift_ai")
	require.Contains(t, d.bad("cc"), "rxe cc show")
}

// TestCCCounters: what came of congestion is a group of its own, and the queue pair
// says what its rate is.
func TestCCCounters(t *testing.T) {
	d := newDaemon(t, "tx ce 100%")
	slow := d.a.NIC.CC()
	slow.RPTimeReset, slow.RPByteReset = 10_000_000, 0 // it has not recovered before it is looked at
	require.NoError(t, d.a.NIC.SetCC(slow))
	wc := inspecttest.Write(t, d.a, d.b, d.qa, 4000)
	require.NoError(t, wc.Err())
	require.Regexp(t, `(?m)^  congestion\n    rp_cnp_handled +[1-9]\d* packets$`, d.good("stat", "-d", "rxe0"))
	out := d.good("stat", "-d", "rxe1")
	require.Regexp(t, `(?m)^  congestion\n    np_cnp_delay +\d+ ns\n    np_cnp_sent +[1-9]\d* packets\n    np_ecn_marked_roce_packets +[4-9]\d* packets$`, out)
	require.Regexp(t, `(?m)^  a CNP was sent \S+ after its mark was seen, on average$`, d.good("cc", "show", "-d", "rxe1"))
	out = d.good("qp", fmt.Sprintf("%#06x", d.qa.QPN()))
	require.Regexp(t, `(?m)^  rate: +\S+ [MG]b/s, limit none of its own$`, out)
	require.Regexp(t, `(?m)^  congestion control: +dcqcn, rate \S+ [MG]b/s, target \S+ [MG]b/s, alpha \d\.\d{4}$`, out)
	var q admin.QPDetail
	require.NoError(t, json.Unmarshal([]byte(d.good("qp", fmt.Sprintf("%#06x", d.qa.QPN()), "--json")), &q))
	require.True(t, q.Limited)
	require.NotZero(t, q.TargetRate)
	require.Equal(t, "dcqcn", q.Algorithm)
}

// TestPacingShown: a queue pair that waits for its rate says so.
func TestPacingShown(t *testing.T) {
	d := newDaemon(t, "")
	require.NoError(t, d.qa.SetRateLimit(1)) // 1 kb/s: a packet in 8 s
	_, err := d.qa.PostSend([]verbs.SendWR{{Opcode: verbs.WRWrite, SGL: []verbs.SGE{d.a.MR.SGE(0, 8192)}, RemoteAddr: d.b.MR.Addr(), RKey: d.b.MR.RKey()}})
	require.NoError(t, err)
	n := fmt.Sprintf("%#06x", d.qa.QPN())
	require.Regexp(t, `(?m)^  waits for: +its rate to be kept \(pacing\)$`, d.good("qp", n))
	require.Regexp(t, `(?m)^    pacing_wait +[1-9]\d* ns$`, d.good("stat", "-d", "rxe0"))
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
	for _, args := range [][]string{{"stat"}, {"qp"}, {"qp", "5"}, {"cc", "show"}, {"cc", "set", "rp_gd=1"}, {"capture", "-w", "-"}} {
		require.Contains(t, d.bad(args...), "rxe: no rxed listens at "+d.socket+" (no such file or directory): start one with 'rxed -d INTERFACE'", args)
	}
	require.Contains(t, d.bad("stat", "--admin", "/x/y"), "no rxed listens at /x/y")
}
