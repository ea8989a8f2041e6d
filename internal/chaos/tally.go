package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tally counts what programs did.
type tally struct {
	Ops      map[string]uint64 `json:"ops,omitempty"`    // operations whose outcome was checked, by kind
	Lost     map[string]uint64 `json:"lost,omitempty"`   // unreliable ones that did not arrive
	Errors   map[string]uint64 `json:"errors,omitempty"` // completions with another status than success
	Octets   uint64            `json:"octets,omitempty"` // compared
	Rounds   uint64            `json:"rounds,omitempty"`
	Sessions map[string]uint64 `json:"sessions,omitempty"` // by a side's outcome
	Attached uint64            `json:"attached,omitempty"` // to a daemon
	Shadowed uint64            `json:"shadowed,omitempty"` // sessions with memory of the program's own
	Shared   uint64            `json:"shared,omitempty"`   // sessions with a shared receive queue
}

func newTally() *tally {
	return &tally{Ops: map[string]uint64{}, Lost: map[string]uint64{}, Errors: map[string]uint64{}, Sessions: map[string]uint64{}}
}

// add takes another's counts into t.
func (t *tally) add(o *tally) {
	for _, p := range [][2]map[string]uint64{{t.Ops, o.Ops}, {t.Lost, o.Lost}, {t.Errors, o.Errors}, {t.Sessions, o.Sessions}} {
		for k, v := range p[1] {
			p[0][k] += v
		}
	}
	t.Octets += o.Octets
	t.Rounds += o.Rounds
	t.Attached += o.Attached
	t.Shadowed += o.Shadowed
	t.Shared += o.Shared
}

// take returns the counts and begins again.
func (t *tally) take() *tally {
	was := *t
	*t = *newTally()
	return &was
}

func listed(m map[string]uint64) string {
	var s []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s = append(s, fmt.Sprintf("%s %d", k, m[k]))
	}
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// checked is how many operations were.
func (t *tally) checked() (n uint64) {
	for _, v := range t.Ops {
		n += v
	}
	return n
}

func (t *tally) String() string {
	return fmt.Sprintf(`operations checked: %d (%s)
unreliable and lost: %s
octets compared: %d in %d rounds
sessions, by what each side says: %s; with a shared receive queue %d, with memory of the program's own %d
completions in error: %s
attachments: %d`, t.checked(), listed(t.Ops), listed(t.Lost), t.Octets, t.Rounds, listed(t.Sessions), t.Shared, t.Shadowed, listed(t.Errors), t.Attached)
}
