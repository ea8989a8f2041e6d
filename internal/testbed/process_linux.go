package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Nobody is the user without privileges that Helper and Command can run as.
const Nobody = 65534

// helperEnv names the helper that a child of the test binary runs.
const helperEnv = "GORXE_TESTBED_HELPER"

// Helpers are functions that a test binary runs in a process of its own,
// selected by name.
type Helpers map[string]func(args []string) error

// Main runs a package's tests, or the helper that this process was started
// for. Call it from TestMain:
//
//	func TestMain(m *testing.M) { testbed.Main(m, testbed.Helpers{"open": openHelper}) }
func Main(m *testing.M, hs Helpers) {
	name := os.Getenv(helperEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	f := hs[name]
	if f == nil {
		fmt.Fprintf(os.Stderr, "testbed: no helper %q\n", name)
		os.Exit(2)
	}
	if err := f(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// As says as whom a process runs.
type As int

const (
	AsTest   As = iota // as the test does
	AsNobody           // as user and group 65534, without capabilities
)

// Command prepares a program to run in the namespace. Start it with Start or
// Run of the host, not with its own methods, which would miss the namespace.
func (h *Host) Command(as As, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	if as == AsNobody {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Nobody, Gid: Nobody}}
		cmd.Dir = "/"
	}
	return cmd
}

// Helper prepares the test binary to run one of its Helpers.
func (h *Host) Helper(as As, name string, args ...string) *exec.Cmd {
	// Not os.Executable: the directory that go test builds in is closed to
	// other users.
	cmd := h.Command(as, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+name)
	return cmd
}

// Start starts cmd in the namespace. It is killed when the test ends, unless
// it ended before.
func (h *Host) Start(cmd *exec.Cmd) {
	h.t.Helper()
	h.Do(func() {
		// A child inherits the namespace of the thread that forks it.
		if err := cmd.Start(); err != nil {
			h.t.Fatalf("testbed: start %v: %v", cmd.Args, err)
		}
	})
	h.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}

// Run runs cmd in the namespace to its end and returns what it printed and
// the error of its end: an *exec.ExitError when it failed.
func (h *Host) Run(cmd *exec.Cmd) (string, error) {
	h.t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	h.Start(cmd)
	err := cmd.Wait()
	return out.String(), err
}

// Tool runs a program that must succeed, and skips the test when it is not
// installed.
func (h *Host) Tool(name string, args ...string) string {
	h.t.Helper()
	if _, err := exec.LookPath(name); errors.Is(err, exec.ErrNotFound) {
		h.t.Skipf("needs %s, which is not installed", name)
	}
	out, err := h.Run(h.Command(AsTest, name, args...))
	if err != nil {
		h.t.Fatalf("testbed: %s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}
