// Planted asks whether the fuzzer of connections and the simulation find what
// they are for: it plants mistakes that others made in the engine, one at a time
// and in a copy, and lets them look.
//
//	go run ./internal/planted -limit 5m
//
// The fuzzer is FuzzPair of package rc, which begins with the inputs in its
// testdata; the simulation are the workloads of package sim, one network and seed
// after the other. Neither knows of the faults; unit tests do not look. Without
// -all the simulation looks only for what the fuzzer did not find. The exit
// status says whether all were found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/internal/overlay"
)

type options struct {
	limit time.Duration
	match string
	all   bool
	fresh bool
}

func main() {
	var o options
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "how long to look for one fault, in all; with -all as long for each who looks")
	flag.StringVar(&o.match, "match", "", "only faults whose name or source this regular expression matches")
	flag.BoolVar(&o.all, "all", false, "have the simulation look for all of them, not only for what the fuzzer did not find")
	flag.BoolVar(&o.fresh, "fresh", false, "have the fuzzer begin without the inputs that it found before")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it at the root of the module (make planted)")
	}
	match, err := regexp.Compile(o.match)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &search{Scratch: overlay.Scratch{Root: root, Dir: dir}, options: o}
	nothing := fault{name: "nothing is planted"}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	looks, err := s.look(ctx, &nothing)
	if err != nil {
		return err
	}
	if foundBy(looks) != "" {
		return errors.New("a fault is found where none was planted: mend that first")
	}
	n, missed := 0, 0
	for _, f := range faults {
		if !match.MatchString(f.name) && !match.MatchString(f.from) {
			continue
		}
		looks, err := s.look(ctx, &f)
		if err != nil {
			return err
		}
		if n++; foundBy(looks) == "" {
			missed++
		}
	}
	fmt.Printf("found %d of %d faults\n", n-missed, n)
	if missed > 0 {
		return fmt.Errorf("%d faults were not found", missed)
	}
	return nil
}

// foundBy returns who found a fault first, or "".
func foundBy(looks []finding) string {
	for _, l := range looks {
		if l.what != "" {
			return l.by
		}
	}
	return ""
}
