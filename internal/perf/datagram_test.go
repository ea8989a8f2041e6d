package perf

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/perf/oob"
	"github.com/gorxe/gorxe/verbs"
)

// TestDatagramSize: the length that nobody chose is cut to the path MTU, as
// perftest does; one that somebody did is refused.
func TestDatagramSize(t *testing.T) {
	for _, mtu := range []int{0, 1024} {
		bubble(t, "", func(w *world) {
			_, client, serr, cerr := w.play(oob.SendBW, func(c *Config) {
				c.Transport, c.Size, c.Fit, c.MTU, c.RxDepth = verbs.UD, 65536, true, mtu, 512
			})
			require.NoError(t, cerr)
			require.NoError(t, serr)
			require.Contains(t, client.out.String(), "Changing to this MTU")
		})
		bubble(t, "", func(w *world) {
			_, _, serr, cerr := w.play(oob.SendBW, func(c *Config) {
				c.Transport, c.Size, c.MTU, c.RxDepth = verbs.UD, 65536, mtu, 512
			})
			require.ErrorContains(t, cerr, "-s 65536: a datagram has at most")
			require.Error(t, serr)
		})
	}
}
