package main

import (
	"os"
	"os/exec"
	"path/filepath"
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
	fails("-link pigeon: there are udp and packet", command("-link", "pigeon"))
	if os.Getuid() != 0 {
		fails("run it as root", command())
		return
	}
	cmd := command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	fails("run it as root", cmd)

	for _, missing := range []string{"ip", "iperf3"} {
		bin := t.TempDir()
		for _, have := range []string{"ip", "iperf3"} {
			if have != missing {
				require.NoError(t, os.WriteFile(filepath.Join(bin, have), nil, 0o755))
			}
		}
		cmd := command()
		cmd.Env = append(cmd.Env, "PATH="+bin)
		fails(missing+" is not installed (Debian: apt-get install ", cmd)
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
		"failure":   {"#!/bin/sh\nexit 3\n", "bench: iperf3: exit status 3"},
		"interrupt": {"#!/bin/sh\nexec sleep 60\n", "bench: interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(bin, "iperf3"), []byte(c.iperf3), 0o755))
			cmd := command()
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
