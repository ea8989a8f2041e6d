package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// beBench makes the test binary be bench, which starts itself as its two ends.
const beBench = "GORXE_TEST_BE_BENCH"

func TestMain(m *testing.M) {
	if os.Getenv(beBench) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), beBench+"=1")
	return cmd
}

// TestNeeds: what is missing is said.
func TestNeeds(t *testing.T) {
	fails := func(want string, cmd *exec.Cmd) {
		t.Helper()
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), want)
		require.Equal(t, 1, strings.Count(string(out), "\n"), string(out))
	}
	fails("-rounds 0", command("-rounds", "0"))
	fails("-time 0s", command("-time", "0"))
	fails("-run pigeon: no line of the table matches", command("-run", "pigeon"))
	fails("-run: error parsing regexp", command("-run", "("))
	if os.Getuid() != 0 {
		fails("run it as root", command())
		return
	}
	cmd := command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	fails("run it as root", cmd)

	for missing, pkg := range map[string]string{"ip": "iproute2", "iperf3": "iperf3", "ucx_perftest": "ucx-utils"} {
		bin := t.TempDir()
		for _, have := range []string{"ip", "iperf3", "ucx_perftest"} {
			if have != missing {
				require.NoError(t, os.WriteFile(filepath.Join(bin, have), nil, 0o755))
			}
		}
		cmd := command("-run", "^RC WRITE 64 KiB, udp")
		cmd.Env = append(cmd.Env, "PATH="+bin)
		fails("not installed: "+missing+" (Debian: apt-get install "+pkg+")", cmd)
	}
}

// namespaces returns those of a process of bench.
func namespaces(t *testing.T, pid string) []string {
	all, err := filepath.Glob("/var/run/netns/gorxe-bench-*")
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(n string) bool { return !strings.HasSuffix(n, "a"+pid) && !strings.HasSuffix(n, "b"+pid) })
}

// TestCleanUp: the namespaces go when a run fails, and when it is interrupted.
func TestCleanUp(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces: CAP_SYS_ADMIN is missing (run as root)")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip, which is not installed")
	}
	for name, c := range map[string]struct{ iperf3, want string }{
		"failure":   {"#!/bin/sh\nexit 3\n", "bench: tcp_1500: its report: unexpected end of JSON input; exit status 3"},
		"interrupt": {"#!/bin/sh\nexec sleep 60\n", "bench: interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(bin, "iperf3"), []byte(c.iperf3), 0o755))
			cmd := command("-run", "MTU 1500", "-idle", "0")
			cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			pid := cmd.Process.Pid
			if name == "interrupt" {
				require.Eventually(t, func() bool { return len(namespaces(t, strconv.Itoa(pid))) == 2 }, 20*time.Second, 5*time.Millisecond)
				require.NoError(t, cmd.Process.Signal(os.Interrupt))
			}
			late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
			require.Error(t, cmd.Wait())
			require.True(t, late.Stop(), "it does not end")
			require.Contains(t, out.String(), c.want)
			require.Empty(t, namespaces(t, strconv.Itoa(pid)))
		})
	}
}

// TestReports: what the others print is read as they mean it. The texts are
// theirs, of iperf3 3.12, UCX 1.13 and qperf 0.4.11.
func TestReports(t *testing.T) {
	gbits, err := parseIperf3([]byte(`{"end":{"sum_sent":{"bits_per_second":3e10},"sum_received":{"seconds":2.0,"bits_per_second":2.25e10}}}`))
	require.NoError(t, err)
	require.Equal(t, 22.5, gbits)
	_, err = parseIperf3([]byte(`{"error":"unable to connect to server: Connection refused"}`))
	require.ErrorContains(t, err, "Connection refused")
	_, err = parseIperf3(nil)
	require.ErrorContains(t, err, "its report")

	v, err := parseUCX([]byte("iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n2000,0.171,2169.156,1429.582,461.01,699.50,461,700\n"))
	require.NoError(t, err)
	require.Equal(t, []float64{2000, 0.171, 2169.156, 1429.582, 461.01, 699.5, 461, 700}, v)
	for _, bad := range []string{"", "a,b\n1,2\n", "a,b,c,d,e,f,g,h\n1,2,3,4,x,6,7,8\n"} {
		_, err = parseUCX([]byte(bad))
		require.Error(t, err, bad)
	}

	us, err := parseQperf([]byte("udp_lat:\n    latency          =       29144 ns\n    msg_rate         =       34312 /sec\n"))
	require.NoError(t, err)
	require.Equal(t, 29.144, us)
	_, err = parseQperf([]byte("failed to connect"))
	require.ErrorContains(t, err, "no latency")
}

// TestJudge: ratios are of a round, the best of what stands against counts, and
// medians are of ratios.
func TestJudge(t *testing.T) {
	rounds := []samples{{"a": 10, "b": 5, "c": 4}, {"a": 30, "b": 10, "c": 20}, {"a": 12, "b": 4, "c": 6}}
	n := need{name: "n", of: "a", against: []string{"b", "c"}, words: "w", ratio: 2}
	require.Equal(t, result{Name: "n", Figure: 12, Ratio: 2, Against: "w", Min: 1.5, Max: 2, Need: 2, OK: true}, n.judge(rounds))
	n.atMost, n.ratio = true, 1.9
	require.False(t, n.judge(rounds).OK)
	n.ratio = 2
	require.True(t, n.judge(rounds).OK)
	alone := need{of: "a", ratio: 13}
	require.False(t, alone.judge(rounds).OK)
	require.Equal(t, 12.0, alone.judge(rounds).Ratio)
	half := need{of: "a", against: []string{"b"}, scale: func(samples) float64 { return 0.5 }}
	require.Equal(t, 6.0, half.judge(rounds).Ratio)
	require.InDelta(t, 0.607, lossFloor(nil), 0.001)
}

// TestTable: every program that a line names exists, and every program is in a
// line.
func TestTable(t *testing.T) {
	all := programs(&options{d: time.Second})
	have := map[string]bool{}
	for _, p := range all {
		require.False(t, have[p.name], p.name)
		have[p.name] = true
	}
	lines := choose(needs(), regexp.MustCompile(""))
	used := wanted(programs(&options{d: time.Second}), lines)
	require.Len(t, used, len(all))
	for _, n := range lines {
		for _, f := range append([]string{n.of}, n.against...) {
			name, _, _ := strings.Cut(f, ".")
			require.True(t, have[name], f)
		}
	}
}
