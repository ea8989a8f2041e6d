package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/gorxe/gorxe/internal/overlay"
)

// search looks for faults, one after the other.
type search struct {
	overlay.Scratch
	options
}

// looker is one who looks: what runs, where, and for how long.
type looker struct {
	name string
	pkg  string
	args []string // of the compiler
	run  func(s *search, limit time.Duration) (dir string, args []string, err error)
}

var lookers = []looker{
	{"fuzzer", "rc", []string{"-fuzz=FuzzPair"}, (*search).fuzzer},
	{"simulation", "sim", nil, (*search).simulation},
}

// sound is how long both look at the engine as it is, to find nothing.
const sound = 20 * time.Second

// finding is what one who looks made of a fault.
type finding struct {
	by   string
	what string // "" when there was nothing
	took time.Duration
}

func (f finding) String() string {
	if f.what == "" {
		return fmt.Sprintf("- (%.0f s)", f.took.Seconds())
	}
	return fmt.Sprintf("%.1f s", f.took.Seconds())
}

// look plants a fault and has it looked for.
func (s *search) look(ctx context.Context, f *fault) (all []finding, err error) {
	replaced, err := f.apply(s.Root)
	if err != nil {
		return nil, err
	}
	limit, every := s.limit, s.all
	if f.edits == nil {
		limit, every = sound, true
	} else if !every {
		limit /= time.Duration(len(lookers))
	}
	for _, l := range lookers {
		bin, err := s.Build(l.pkg, replaced, l.args...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		dir, args, err := l.run(s, limit)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		out, err := overlay.Run(ctx, dir, bin, limit+30*time.Second, args...)
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		found := finding{by: l.name, took: time.Since(start)}
		if err != nil {
			found.what = violation(out)
		}
		all = append(all, found)
		fmt.Printf("%-80s  %-10s  %-10v  %s\n", f.name, found.by, found, found.what)
		if found.what != "" && !every {
			break
		}
	}
	return all, nil
}

// fuzzer makes a folder in which FuzzPair finds its inputs, and puts others.
func (s *search) fuzzer(limit time.Duration) (string, []string, error) {
	dir, err := os.MkdirTemp(s.Dir, "fuzz")
	if err != nil {
		return "", nil, err
	}
	if !s.fresh {
		err = os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS(filepath.Join(s.Root, "rc", "testdata")))
	}
	return dir, []string{
		"-test.run", "^$", "-test.fuzz", "^FuzzPair$", "-test.fuzztime", limit.String(), "-test.fuzzminimizetime", "1x",
		"-test.fuzzcachedir", filepath.Join(dir, "cache"), "-test.parallel", "1",
	}, err
}

func (s *search) simulation(limit time.Duration) (string, []string, error) {
	return filepath.Join(s.Root, "sim"), []string{
		"-test.run", "^(TestWorkload|TestEachPacket|TestManyPeers|TestRefused)$", "-test.failfast", "-test.timeout", limit.String(), "-runs", "1000",
	}, nil
}

var (
	said    = regexp.MustCompile(`(?m)^\s*\w+\.go:\d+: (.*)$`)
	crashed = regexp.MustCompile(`(?m)^\s*(?:fatal error|panic): (.*)$`)
)

// violation is what a failed run says of it, or nothing when its time was up.
func violation(out []byte) string {
	text := string(out)
	if strings.Contains(text, "panic: test timed out") {
		return ""
	}
	for _, re := range []*regexp.Regexp{crashed, said} {
		if m := re.FindStringSubmatch(text); m != nil {
			return shorten(m[1])
		}
	}
	if strings.Contains(text, "--- FAIL") {
		return "it fails and does not say why"
	}
	return ""
}

// shorten cuts a message to what fits a line.
func shorten(s string) string {
	if r := []rune(s); len(r) > 160 {
		return string(r[:160]) + "..."
	}
	return s
}
