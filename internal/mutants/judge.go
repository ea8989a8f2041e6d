package main

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"time"

	"github.com/gorxe/gorxe/internal/overlay"
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
// likeliest to kill first. The simulation sees what is left.
var judges = map[string][]string{
	"bth":       {"bth", "rc", "script", "script/device", "sim"},
	"mr":        {"mr", "rc", "script", "script/device", "sim"},
	"atomic":    {"atomic", "rc", "script", "script/device", "sim"},
	"transport": {"transport", "uc", "ud", "rc", "script", "script/device", "sim"},
	"rc":        {"rc", "script", "script/device", "sim"},
}

// quick are the arguments with which the tests of a package are.
var quick = map[string][]string{"sim": {"-runs", "1", "-shrink", "0"}}

// court compiles and runs tests in a scratch folder of its own.
type court struct {
	overlay.Scratch
	timeout time.Duration
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: test timed out`)

// try builds the tests of each judge with a file replaced, and runs them until
// one fails. Text nil changes nothing. It returns the verdict and what killed.
func (c *court) try(judges []string, file string, text []byte) (verdict, string, error) {
	replaced := map[string][]byte{}
	if text != nil {
		replaced[file] = text
	}
	for _, pkg := range judges {
		v, by, err := c.run(replaced, pkg)
		if v != survived || err != nil {
			return v, by, err
		}
	}
	return survived, "", nil
}

func (c *court) run(replaced map[string][]byte, pkg string) (verdict, string, error) {
	bin, err := c.Build(pkg, replaced, "-ldflags=-s -w")
	if errors.Is(err, overlay.ErrBuild) {
		return uncompiled, err.Error(), nil
	} else if err != nil {
		return 0, "", err
	}
	// The test's own limit names what hung; the other is for what hangs beyond that.
	out, err := overlay.Run(context.Background(), filepath.Join(c.Root, pkg), bin, c.timeout+10*time.Second, append([]string{"-test.short", "-test.failfast", "-test.timeout", c.timeout.String()}, quick[pkg]...)...)
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
