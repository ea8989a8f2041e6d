package main

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/verbs"
)

// Every status, NAK and event has a class.
func TestClassesAreAll(t *testing.T) {
	for s := verbs.WCLocLenErr; s <= verbs.WCGeneralErr; s++ {
		if _, have := requesterClasses[s]; !have && !strings.HasPrefix(s.String(), "WCStatus(") {
			t.Errorf("no class of a requester for %v", s)
		}
	}
	for code := range 32 {
		s := bth.Syndrome(0x60 | code)
		if _, have := nakClasses[s.String()]; !have && s >= bth.NAKSequence && s <= bth.NAKInvalidRD {
			t.Errorf("no class for %v", s)
		}
	}
	for e := range verbs.EventType(32) {
		if _, have := eventClasses[e]; !have && !strings.HasPrefix(e.String(), "EventType(") {
			t.Errorf("no class for %v", e)
		}
	}
	// Whatever a receive request is expected to complete with somewhere is one.
	for _, c := range refusals {
		for _, s := range []verbs.WCStatus{c.recv, c.rxe[1]} {
			if _, have := responderClasses[s]; !have && s != 0 {
				t.Errorf("no class of a responder for %v", s)
			}
		}
	}
}

// Every class has a place at both ends, where it is what the table expects, or a
// reason.
func TestClassesArePlaced(t *testing.T) {
	check := func(name string, c class, shows func(p place, rxe bool) bool) {
		for i, p := range []place{c.ours, c.rxe} {
			end := []string{"our end", "rxe's end"}[i]
			switch {
			case p.never != "" && (p.procedure != "" || len(p.never) < 10):
				t.Errorf("%s at %s: %+v", name, end, p)
			case p.never != "":
			case procedures[p.procedure] == nil || !runs(p.procedure):
				t.Errorf("%s at %s: no case does %q", name, end, p.procedure)
			case !shows(p, i == 1):
				t.Errorf("%s at %s: %s, %q is not expected to show it", name, end, p.procedure, p.item)
			}
		}
	}
	for s, c := range requesterClasses {
		check("requester, "+s.String(), c, func(p place, rxe bool) bool {
			if r := refusalNamed(p.item); r != nil {
				if rxe {
					return cmp.Or(r.rxeReq, r.status) == s
				}
				// rxe is the responder then.
				return cmp.Or(r.rxe[0], r.status) == s
			}
			for _, r := range wrongReplies {
				if r.name == p.item {
					return strings.HasPrefix(seenBy(rxe, r.ours, r.rxe), s.String())
				}
			}
			return s == map[string]verbs.WCStatus{"silent": verbs.WCRetryExcErr, "late": verbs.WCRNRRetryExcErr}[p.procedure]
		})
	}
	naks := map[verbs.WCStatus]string{verbs.WCRemOpErr: "NAK remote operational error"}
	for nak, c := range nakClasses {
		check(nak, c, func(p place, rxe bool) bool {
			if r := refusalNamed(p.item); r != nil {
				return !rxe && naks[r.status] == nak
			}
			for _, r := range wrongRequests {
				if r.name == p.item {
					return strings.Contains(seenBy(rxe, r.ours, r.rxe), nak)
				}
			}
			return false
		})
	}
	for s, c := range responderClasses {
		check("responder, "+s.String(), c, func(p place, rxe bool) bool {
			if r := refusalNamed(p.item); r != nil {
				recv := cmp.Or(r.recv, verbs.WCWRFlushErr)
				if rxe {
					recv = cmp.Or(r.rxe[1], recv)
				}
				return recv == s && !r.alone
			}
			for _, r := range wrongRequests {
				if r.name == p.item {
					return strings.HasSuffix(seenBy(rxe, r.ours, r.rxe), "; "+s.String())
				}
			}
			return false
		})
	}
	for e, c := range eventClasses {
		check("event, "+e.String(), c, func(p place, rxe bool) bool {
			for _, o := range occasions {
				if o.name == p.item {
					return o.want == e && (o.rxe || !rxe)
				}
			}
			r := refusalNamed(p.item)
			return r != nil && !rxe && slices.Contains(refusalEvents[r.status], e)
		})
	}
}

func seenBy(rxe bool, ours, theirs string) string {
	if rxe {
		return cmp.Or(theirs, ours)
	}
	return ours
}

func refusalNamed(name string) *refusal {
	for i := range refusals {
		if refusals[i].name == name {
			return &refusals[i]
		}
	}
	return nil
}

// runs reports whether a case does a procedure, with a guest of each suite.
func runs(procedure string) bool {
	return len(guestsOf()[procedure]) == len(suites)
}

var guestsOf = sync.OnceValue(func() map[string]map[string]bool {
	m := map[string]map[string]bool{}
	for _, c := range allCases(false) {
		if m[c.Kind] == nil {
			m[c.Kind] = map[string]bool{}
		}
		m[c.Kind][c.Suite] = true
	}
	return m
})

// No two items of a table have one name.
func TestItemsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	once := func(name string) {
		if seen[name] {
			t.Errorf("%q is there twice", name)
		}
		seen[name] = true
	}
	for _, c := range refusals {
		once(c.name)
	}
	for _, c := range wrongRequests {
		once("request: " + c.name)
	}
	for _, c := range wrongReplies {
		once("reply: " + c.name)
	}
}
