package rig

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func unpacked(t *testing.T) *Rig {
	t.Helper()
	t.Setenv("RIG_HOME", filepath.Join(t.TempDir(), "home"))
	t.Setenv("RIG_NS", "elsewhere")
	r, err := New(Bookworm, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The scripts in the binary are whole, and the shell understands them.
func TestScripts(t *testing.T) {
	r := unpacked(t)
	if r.Namespace != "elsewhere" {
		t.Errorf("namespace %q", r.Namespace)
	}
	for _, f := range []string{"rig", "guest-init", "initrd-init"} {
		if out, err := exec.Command("bash", "-n", filepath.Join(r.Home, "script", f)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", f, err, out)
		}
	}
	out, err := exec.Command(filepath.Join(r.Home, "script", "rig")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "rig exec N 'COMMAND'") || strings.Contains(string(out), "set -e") {
		t.Errorf("without arguments: %v: %s", err, out)
	}
}

func TestPanicked(t *testing.T) {
	r := unpacked(t)
	if got := r.Panicked(2); got != "" {
		t.Errorf("a guest that never ran: %q", got)
	}
	if err := os.MkdirAll(filepath.Join(r.Home, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	for log, want := range map[string]string{
		"[    4.0] rdma_rxe: loaded\r\n":                                          "",
		"[    4.0] x\r\n[  222.7] Oops: double fault: 0000 [#1] PREEMPT SMP\r\nx": "[  222.7] Oops: double fault: 0000 [#1] PREEMPT SMP",
		"[  222.8] Kernel panic - not syncing: Fatal exception":                   "[  222.8] Kernel panic - not syncing: Fatal exception",
	} {
		if err := os.WriteFile(filepath.Join(r.Home, "run", "2.log"), []byte(log), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := r.Panicked(2); got != want {
			t.Errorf("%q is %q, not %q", log, got, want)
		}
	}
}

// Two suites have homes of their own, on one bridge.
func TestSuites(t *testing.T) {
	a := unpacked(t)
	b, err := New(Trixie, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if b.Home != a.Home+"-trixie" || b.Namespace != a.Namespace {
		t.Errorf("bookworm is in %s of %s, trixie in %s of %s", a.Home, a.Namespace, b.Home, b.Namespace)
	}
}
