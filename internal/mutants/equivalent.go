package main

import (
	"fmt"
	"strings"
)

// parseEquivalent reads the list of mutants that no test can kill: blocks of
//
//	file function
//	- the lines as they are
//	+ the lines as broken
//	= why nobody can tell the difference
//
// the function followed by " #2" for the second place in it with the same lines,
// with empty lines between, and comments that begin with #. It returns the
// reason for each mutant's key.
func parseEquivalent(text string) (map[string]string, error) {
	list := map[string]string{}
	for i, block := range strings.Split(text, "\n\n") {
		var key []string
		var why string
		for line := range strings.Lines(block) {
			line = strings.TrimRight(line, "\n")
			switch reason, ok := strings.CutPrefix(line, "= "); {
			case line == "" || strings.HasPrefix(line, "#"):
			case ok:
				why = strings.TrimSpace(why + " " + reason)
			default:
				key = append(key, line)
			}
		}
		if len(key) == 0 && why == "" {
			continue
		}
		if len(key) != 3 || why == "" || !strings.HasPrefix(key[1], "- ") || !strings.HasPrefix(key[2], "+ ") {
			return nil, fmt.Errorf("block %d is not: file function, - before, + after, = reason:\n%s", i+1, block)
		}
		k := strings.Join(key, "\n")
		if _, twice := list[k]; twice {
			return nil, fmt.Errorf("block %d is there twice:\n%s", i+1, block)
		}
		list[k] = why
	}
	return list, nil
}

// stale returns the keys of a list that name no mutant of the code as it is.
func stale(list map[string]string, all []mutant) []string {
	there := map[string]bool{}
	for i := range all {
		there[all[i].key()] = true
	}
	var out []string
	for k := range list {
		if !there[k] {
			out = append(out, k)
		}
	}
	return out
}
