package udp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/testbed"
)

// TestProbe: the same as an open link's description, while that has the port.
func TestProbe(t *testing.T) {
	cfg := Config{Addrs: []netip.Addr{testbed.Loopback(4)}}
	_, err := Probe(cfg)
	require.NoError(t, err)
	want := mustOpen(t, cfg)[0].Info() // so the port is free after a probe
	cfg.Shards = 4
	got, err := Probe(cfg)
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = Probe(Config{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.99")}})
	require.Error(t, err)
	_, err = Probe(Config{})
	require.ErrorContains(t, err, "no local address")
}
