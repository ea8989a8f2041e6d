package perf

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/perf/oob"
)

// greedy is a connection to a peer that answers 255 READs at once: more than
// this device asks for (perftest issue 114).
type greedy struct{ net.Conn }

func (g greedy) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if n > 10 && b[4] == ':' && b[9] == ':' { // an address: LID, READs, QPN...
		copy(b[5:9], "00ff")
	}
	return n, err
}

func TestPeerAnswersMoreReads(t *testing.T) {
	bubble(t, "", func(w *world) {
		s, c := w.configs(oob.ReadBW, func(*Config) {})
		c.conn = greedy{c.conn}
		server, client := w.start(w.t.Context(), s), w.start(w.t.Context(), c)
		require.NoError(t, <-client.done)
		require.NoError(t, <-server.done)
		require.Contains(t, client.out.String(), "OUT 0xff")
	})
}
