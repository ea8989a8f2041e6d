package gorxe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/testbed"
)

// TestProbe: a probe describes the device that has the port just now, as it
// describes itself.
func TestProbe(t *testing.T) {
	cfg := gorxe.Config{Addr: testbed.Loopback(2).String(), Shards: 2, Name: "rxe7"}
	dev, err := gorxe.Open(cfg)
	require.NoError(t, err)
	defer dev.Close()
	cfg.Tap, cfg.Faults = "/nosuch/folder/x.pcapng", "tx drop 2%" // ignored
	shown, err := gorxe.Probe(cfg)
	require.NoError(t, err)
	defer shown.Close()
	require.Equal(t, must(dev.Device()), must(shown.Device()))
	require.Equal(t, must(dev.Port()), must(shown.Port()))
	require.Equal(t, must(dev.GIDs()), must(shown.GIDs()))
	require.Equal(t, 2, must(shown.Device()).Shards)

	for _, c := range []struct {
		cfg  gorxe.Config
		want string
	}{
		{gorxe.Config{Interface: "nosuch0"}, "this host has lo"},
		{gorxe.Config{Addr: "203.0.113.77"}, "no interface has the address 203.0.113.77"},
		{gorxe.Config{Addr: loA, Link: "carrier pigeon"}, "there are auto, udp, packet and xdp"},
	} {
		_, err := gorxe.Probe(c.cfg)
		require.ErrorContains(t, err, c.want)
	}
}
