package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorxe/gorxe/internal/overlay"
)

//go:embed equivalent.txt
var equivalentTxt string

type options struct {
	seed    uint64
	n, jobs int
	pkgs    string
	match   string
	list    bool
	json    string
	timeout time.Duration
	least   float64
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "what the draw depends on, beside the code")
	flag.IntVar(&o.n, "n", 300, "how many mutants to try, in all packages together")
	flag.IntVar(&o.jobs, "j", 1, "how many to try at once")
	flag.StringVar(&o.pkgs, "pkg", "rc,transport,bth,mr,atomic", "the packages to break")
	flag.StringVar(&o.match, "match", "", "only mutants whose file, function and lines (\"- before\", \"+ after\") this regular expression matches")
	flag.BoolVar(&o.list, "list", false, "list what would be tried, and run nothing")
	flag.StringVar(&o.json, "json", "", "write the results to this file")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "for the tests of one package; what takes longer is killed")
	flag.Float64Var(&o.least, "least", 95, "percent of the mutants that are not known to be equivalent which must be killed")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it at the root of the module (make mutants)")
	}
	match, err := regexp.Compile("(?m)" + o.match)
	if err != nil {
		return err
	}
	known, err := parseEquivalent(equivalentTxt)
	if err != nil {
		return fmt.Errorf("equivalent.txt: %w", err)
	}
	pools, texts, err := pools(o, root, match, known)
	if err != nil {
		return err
	}
	share(pools, o.n)
	if o.list {
		for _, p := range pools {
			for _, m := range p.order[:min(p.want, len(p.order))] {
				fmt.Printf("%s:%d %s\n%s\n\n", m.File, m.Line, m.Op, m.key())
			}
		}
		return nil
	}

	start := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // to report what was tried so far
	defer stop()
	results, err := tryAll(ctx, o, root, pools, texts, known)
	if err != nil {
		return err
	}
	if o.json != "" {
		j, err := json.MarshalIndent(results, "", " ")
		if err == nil {
			err = os.WriteFile(o.json, append(j, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return report(os.Stdout, results, known, o.least, time.Since(start))
}

// pools reads the packages and lists their mutants.
func pools(o options, root string, match *regexp.Regexp, known map[string]string) ([]*pool, map[string][]byte, error) {
	var out []*pool
	texts := map[string][]byte{}
	var everything []mutant
	for pkg := range judges { // stale entries are an error whatever packages are asked for
		sources, err := load(root, pkg)
		if err != nil {
			return nil, nil, err
		}
		var sites []mutant
		lines := 0
		for _, s := range sources {
			texts[s.name] = s.text
			lines += codeLines(s.text)
			all := s.sites()
			everything = append(everything, all...)
			for _, m := range all {
				if match.MatchString(m.key()) {
					sites = append(sites, m)
				}
			}
		}
		if len(sites) > 0 {
			out = append(out, newPool(pkg, lines, sites, o.seed))
		}
	}
	if s := stale(known, everything); len(s) > 0 {
		return nil, nil, fmt.Errorf("equivalent.txt: %d entries name no mutant of the code as it is; look at them again:\n\n%s", len(s), strings.Join(s, "\n\n"))
	}
	out, err := ordered(out, strings.Split(o.pkgs, ","))
	return out, texts, err
}

// ordered picks the pools of the packages asked for, in that order.
func ordered(all []*pool, pkgs []string) (out []*pool, err error) {
	for _, pkg := range pkgs {
		if _, ok := judges[pkg]; !ok {
			return nil, fmt.Errorf("package %q is not among those that have judges", pkg)
		}
		for _, p := range all {
			if p.pkg == pkg {
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("nothing to break: -match fits no mutant of -pkg")
	}
	return out, nil
}

// tryAll tries every pool's share of mutants. One that does not compile is
// replaced by the next of its pool.
func tryAll(ctx context.Context, o options, root string, pools []*pool, texts map[string][]byte, known map[string]string) ([]result, error) {
	turns := make(chan *pool)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		results []result
		failure error
	)
	for range o.jobs {
		dir, err := os.MkdirTemp("", "mutants")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		c := &court{overlay.Scratch{Root: root, Dir: dir}, o.timeout}
		wg.Go(func() {
			for p := range turns {
				r, ok, err := c.turn(p, texts, known)
				mu.Lock()
				if err != nil {
					failure = err
				} else if ok {
					results = append(results, r)
					fmt.Printf("%4d %-10s %-6s %s:%d %s: %s  %.1f s %s\n", len(results), r.Verdict, r.Operator, r.File, r.Line, r.Func, r.After, r.Seconds, r.By)
				}
				mu.Unlock()
			}
		})
	}
	if err := sound(o, root, pools); err != nil {
		failure = err
	} else {
		deal(ctx, pools, turns)
	}
	close(turns)
	wg.Wait()
	return results, failure
}

// deal gives each pool as many turns as it wants, the pools mixed, until the
// context ends.
func deal(ctx context.Context, pools []*pool, turns chan<- *pool) {
	n := 0
	for _, p := range pools {
		n += p.want
	}
	for i := range n {
		for _, p := range pools {
			// The turns of a pool are spread evenly over all n.
			if (i+1)*p.want/n == i*p.want/n {
				continue
			}
			select {
			case turns <- p:
			case <-ctx.Done():
				return
			}
		}
	}
}

// sound makes sure that the tests pass on the code as it is.
func sound(o options, root string, pools []*pool) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &court{overlay.Scratch{Root: root, Dir: dir}, o.timeout}
	seen := map[string]bool{}
	for _, p := range pools {
		for _, pkg := range judges[p.pkg] {
			if seen[pkg] {
				continue
			}
			seen[pkg] = true
			start := time.Now()
			v, by, err := c.try([]string{pkg}, "", nil)
			if err != nil {
				return err
			}
			if v != survived {
				return fmt.Errorf("the tests of %s fail on the code as it is: %s %s", pkg, v, by)
			}
			fmt.Printf("     unbroken   %s passes in %.1f s\n", pkg, time.Since(start).Seconds())
		}
	}
	return nil
}

// turn draws mutants of a pool until one counts.
func (c *court) turn(p *pool, texts map[string][]byte, known map[string]string) (result, bool, error) {
	for {
		m, ok := p.next()
		if !ok {
			return result{}, false, nil
		}
		r := result{mutant: m, Operator: m.Op.String()}
		start := time.Now()
		if _, ok := known[m.key()]; ok {
			r.verdict = equivalent
		} else {
			var err error
			if r.verdict, r.By, err = c.try(judges[p.pkg], m.File, m.apply(texts[m.File])); err != nil {
				return r, false, err
			}
		}
		if r.verdict == uncompiled {
			continue
		}
		r.Verdict, r.Seconds = r.verdict.String(), time.Since(start).Seconds()
		return r, true, nil
	}
}
