package perf

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// TestAllocations: neither end allocates for a message: a long run allocates as
// often as a short one, but for what a longer time brings with it.
func TestAllocations(t *testing.T) {
	mallocs := func(k oob.Kind, iters int, change func(*Config)) uint64 {
		w := newWorld(t, "")
		defer w.close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, serr, cerr := w.play(k, func(c *Config) {
			c.Iters, c.Size = iters, min(c.Size, 4096)
			change(c)
		})
		runtime.ReadMemStats(&after)
		require.NoError(t, cerr)
		require.NoError(t, serr)
		return after.Mallocs - before.Mallocs
	}
	for _, k := range allKinds {
		for name, change := range map[string]func(*Config){
			"plain": func(*Config) {},
			"check": func(c *Config) { c.Check = true },
			"qps": func(c *Config) {
				if !k.Latency() {
					c.QPs, c.PostList, c.Both = 2, 4, true
				}
			},
			"ud": func(c *Config) {
				if k.Send() {
					c.Transport, c.Size = verbs.UD, 64
				}
			},
		} {
			if k == oob.WriteLat && name == "check" {
				continue // it asks for counters, a map
			}
			t.Run(k.String()+" "+name, func(t *testing.T) {
				const short, long = 300, 1800
				few := mallocs(k, short, change)
				many := mallocs(k, long, change)
				require.Less(t, float64(many)-float64(few), 0.1*(long-short))
			})
		}
	}
}
