package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// score counts the verdicts of some results.
type score [equivalent + 1]int

func (s score) total() int { return s[killed] + s[survived] + s[equivalent] }

// percent is how many of those were killed that can be.
func (s score) percent() float64 {
	if s[killed]+s[survived] == 0 {
		return 100
	}
	return 100 * float64(s[killed]) / float64(s[killed]+s[survived])
}

// report prints the survivors and the scores, and returns an error if fewer
// than least percent were killed.
func report(w io.Writer, results []result, known map[string]string, least float64, took time.Duration) error {
	var all score
	by := map[string]*score{}
	var names []string
	count := func(name string, v verdict) {
		if by[name] == nil {
			by[name] = new(score)
			names = append(names, name)
		}
		by[name][v]++
	}
	for _, r := range results {
		all[r.verdict]++
		count(r.Pkg, r.verdict)
	}
	for _, r := range results {
		count(r.Operator, r.verdict)
	}
	for _, v := range []verdict{equivalent, survived} {
		if all[v] > 0 {
			fmt.Fprintf(w, "\n%s:\n", v)
		}
		for _, r := range results {
			if r.verdict == v {
				fmt.Fprintf(w, "\n%s:%d %s\n%s\n", r.File, r.Line, r.Operator, r.key())
				if v == equivalent {
					fmt.Fprintf(w, "= %s\n", known[r.key()])
				}
			}
		}
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "%-10s %6s %6s %10s %8s %8s\n", "", "drawn", "killed", "equivalent", "survived", "score")
	for _, n := range slices.Concat(names, []string{"all"}) {
		s := by[n]
		if n == "all" {
			s = &all
		}
		fmt.Fprintf(w, "%-10s %6d %6d %10d %8d %7.1f%%\n", n, s.total(), s[killed], s[equivalent], s[survived], s.percent())
	}
	fmt.Fprintf(w, "\nkilled %d of %d mutants in %s, and %d are equivalent\n", all[killed], all.total(), took.Round(time.Second), all[equivalent])
	if p := all.percent(); p < least {
		return fmt.Errorf("%.1f%% of the mutants that can be killed were, less than %.0f%%: the survivors above lack a test", p, least)
	}
	return nil
}
