package perf

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// TestRateLimit: what leaves in a run takes as long as its IP packets do at the rate.
func TestRateLimit(t *testing.T) {
	const kbps, iters, headers = 100_000, 400, 20 + 8 + 12 + 4 // IPv4, UDP, BTH, ICRC
	for name, c := range map[string]struct {
		kind   oob.Kind
		typ    verbs.QPType
		size   int
		octets int // of a message's packets
	}{
		"RC WRITE": {oob.WriteBW, verbs.RC, 9000, 9000 + 3*headers + 16},
		"UC WRITE": {oob.WriteBW, verbs.UC, 9000, 9000 + 3*headers + 16},
		"RC SEND":  {oob.SendBW, verbs.RC, 4096, 4096 + headers},
		"UD SEND":  {oob.SendBW, verbs.UD, 4096, 4096 + headers + 8},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "", func(w *world) {
				start := time.Now()
				_, _, serr, cerr := w.play(c.kind, func(x *Config) {
					x.Transport, x.Size, x.Iters, x.RateLimit = c.typ, c.size, iters, kbps
				})
				took := time.Since(start)
				require.NoError(t, serr)
				require.NoError(t, cerr)
				want := time.Duration(iters*c.octets*8) * time.Second / (kbps * 1000)
				require.InEpsilon(t, want, took, 0.02, "%v, %v at the rate", took, want)
			})
		})
	}
}

// TestRateKbps: the units are perftest's.
func TestRateKbps(t *testing.T) {
	for _, c := range []struct {
		limit float64
		units string
		kbps  uint32
	}{
		{1, "g", 1_000_000},
		{0.5, "g", 500_000},
		{0.0000011, "g", 1},
		{4294, "g", 4_294_000_000},
		{1, "M", 8389},
		{100, "M", 838_861}, // MiB: 8388.608 kb
	} {
		got, err := RateKbps(c.limit, c.units)
		require.NoError(t, err)
		require.Equal(t, c.kbps, got, "%v %s", c.limit, c.units)
	}
	for _, units := range []string{"p", "", "G", "m"} {
		_, err := RateKbps(1, units)
		require.ErrorContains(t, err, "--rate_units "+units)
	}
}

// TestCongestionTold: marks and notifications are told of by the end that had them,
// and nobody tells of none.
func TestCongestionTold(t *testing.T) {
	bubble(t, "tx ce 100%", func(w *world) {
		server, client, serr, cerr := w.play(oob.SendBW, func(c *Config) {})
		require.NoError(t, serr)
		require.NoError(t, cerr)
		require.Regexp(t, `congestion: 1\d\d packets came marked, [1-9]\d* CNPs were sent, 0 heeded; 0 losses cut the rate\n`, server.out.String())
		require.Regexp(t, `congestion: 0 packets came marked, 0 CNPs were sent, [1-9]\d* heeded; 0 losses`, client.out.String())
	})
	bubble(t, "", func(w *world) {
		server, client, serr, cerr := w.play(oob.SendBW, func(c *Config) {})
		require.NoError(t, serr)
		require.NoError(t, cerr)
		require.NotContains(t, server.out.String()+client.out.String(), "congestion")
	})
}
