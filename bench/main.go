package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options of a run.
type options struct {
	rounds  int
	d       time.Duration
	match   string
	json    string
	profile string
	install bool
	idle    time.Duration
}

func run(ctx context.Context) error {
	var o options
	end := flag.String("end", "", "be one end of a measurement, described in JSON (used by the program itself)")
	flag.IntVar(&o.rounds, "rounds", 5, "interleaved rounds")
	flag.DurationVar(&o.d, "time", 2*time.Second, "time of each program in a round")
	flag.StringVar(&o.match, "run", "", "measure only what this regular expression matches, and what it is compared with")
	flag.StringVar(&o.json, "json", "", "write the results to this file")
	flag.StringVar(&o.profile, "profile", "", "write CPU profiles of both ends of each program of gorxe into this directory")
	flag.DurationVar(&o.idle, "idle", 20*time.Second, "how long a round waits for others to leave the machine alone")
	flag.BoolVar(&o.install, "install", true, "install the Debian packages that lack")
	flag.Parse()
	if *end != "" {
		var j job
		if err := json.Unmarshal([]byte(*end), &j); err != nil {
			return err
		}
		return j.run()
	}
	match, err := regexp.Compile(o.match)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	chosen := choose(needs(), match)
	if len(chosen) == 0 {
		return fmt.Errorf("-run %s: no line of the table matches", o.match)
	}
	if err := o.check(ctx, chosen); err != nil {
		return err
	}
	return o.measure(ctx, chosen)
}
