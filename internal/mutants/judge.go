package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// verdict is what the tests said of a mutant.
type verdict uint8

const (
	survived verdict = iota
	killed
	uncompiled
	equivalent
)

func (v verdict) String() string {
	return [...]string{"SURVIVED", "killed", "uncompiled", "equivalent"}[v]
}

// result is a mutant that was tried.
type result struct {
	mutant
	Operator string  `json:"operator"`
	Verdict  string  `json:"verdict"`
	By       string  `json:"by,omitempty"` // the test that killed it
	Seconds  float64 `json:"seconds"`
	verdict  verdict
}

// judges are the packages whose fast tests try a mutant of a package, the
// likeliest to kill first.
var judges = map[string][]string{
	"bth":       {"bth", "rc", "script"},
	"mr":        {"mr", "rc", "script"},
	"atomic":    {"atomic", "rc", "script"},
	"transport": {"transport", "uc", "ud", "rc", "script"},
	"rc":        {"rc", "script"},
}

// court compiles and runs tests in a scratch folder of its own.
type court struct {
	root, dir string
	timeout   time.Duration
}

// memory is how much address space a test may take, in KiB: a broken loop that
// appends would otherwise take the machine's.
const memory = 4 << 20

// apart keeps an interrupt from the terminal from what runs: it would count as
// killed. The mutants at hand are judged, and then the report is made.
var apart = &syscall.SysProcAttr{Setpgid: true}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: test timed out`)

// try builds the tests of each judge with a file replaced, and runs them until
// one fails. Text nil changes nothing. It returns the verdict and what killed.
func (c *court) try(judges []string, file string, text []byte) (verdict, string, error) {
	overlay := filepath.Join(c.dir, "overlay.json")
	replaced := map[string]map[string]string{"Replace": {}}
	if text != nil {
		broken := filepath.Join(c.dir, "broken.go")
		if err := os.WriteFile(broken, text, 0o600); err != nil {
			return 0, "", err
		}
		replaced["Replace"][filepath.Join(c.root, file)] = broken
	}
	j, _ := json.Marshal(replaced)
	if err := os.WriteFile(overlay, j, 0o600); err != nil {
		return 0, "", err
	}
	for _, pkg := range judges {
		v, by, err := c.run(overlay, pkg)
		if v != survived || err != nil {
			return v, by, err
		}
	}
	return survived, "", nil
}

func (c *court) run(overlay, pkg string) (verdict, string, error) {
	bin := filepath.Join(c.dir, "test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", bin, "./"+pkg)
	build.Dir, build.SysProcAttr = c.root, apart
	if out, err := build.CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return 0, "", err
		}
		return uncompiled, string(out), nil
	}
	// The test's own limit names what hung; this one is for what hangs beyond that.
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout+10*time.Second)
	defer cancel()
	test := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memory),
		bin, "-test.short", "-test.failfast", "-test.timeout", c.timeout.String())
	test.Dir, test.SysProcAttr = filepath.Join(c.root, pkg), apart
	test.WaitDelay = time.Second
	out, err := test.CombinedOutput()
	if err == nil {
		return survived, "", nil
	}
	by := pkg + ": crash"
	if m := failed.FindSubmatch(out); m != nil {
		if by = pkg + "." + string(m[1]); len(m[1]) == 0 {
			by = pkg + ": timeout"
		}
	}
	return killed, by, nil
}
