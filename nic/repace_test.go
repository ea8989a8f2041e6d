package nic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/verbs"
)

// TestPacedRestless: a program that sets its limit again and again gets no more than the
// limit for it, nor more than congestion control allows; nor does a queue pair whose
// device's parameters are set again and again.
func TestPacedRestless(t *testing.T) {
	for _, k := range kinds {
		for name, change := range map[string]func(s *stream, i int){
			"limit": func(s *stream, i int) {
				require.NoError(t, s.limited.SetRateLimit(10_000+uint32(i&1)))
			},
			"congestion control": func(s *stream, i int) {
				if i == 0 {
					require.NoError(t, s.limited.SetRateLimit(10_000))
				}
				s.a.setCC("dcqcn")
				s.b.setCC("dcqcn")
			},
			"limit above that of congestion control": func(s *stream, i int) {
				if i == 0 {
					s.a.setCC("rp_max_rate=10")
					s.b.setCC("rp_max_rate=10")
				}
				require.NoError(t, s.limited.SetRateLimit(1_000_000+uint32(i&1)))
			},
		} {
			if k.typ == verbs.UD && name != "limit" {
				continue // it has none
			}
			t.Run(k.name+"/"+name, func(t *testing.T) {
				r := newRoad(t)
				a, b := r.open("192.0.2.1", 1, nil), r.open("192.0.2.2", 1, nil)
				s := r.stream(a, b, k, 1024, nil)
				g := &gauge{of: s.of}
				r.look, r.each = g.look, s.feed
				for i := range 2000 {
					change(s, i)
					r.pass(100 * time.Microsecond)
				}
				require.InEpsilon(t, 10e6, g.rate(0, len(g.bursts)-1), 0.02)
			})
		}
	}
}
