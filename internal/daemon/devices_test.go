package daemon

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/verbs"
)

// TestMoves: devices that work move; when one of them has ended, that is told.
func TestMoves(t *testing.T) {
	var out bytes.Buffer
	log, _ := newLogger(&out, Log{Level: "info", Format: "text"})
	a, b := NewDevice(), NewDevice()
	a.Name, a.Addr, a.Link = "a", testbed.Loopback(0).String(), "udp"
	b.Name, b.Addr, b.Link, b.Shards = "b", testbed.Loopback(1).String(), "udp", 3
	devs, err := openDevices([]Device{a, b}, log)
	require.NoError(t, err)
	defer closeDevices(devs)
	for range 10 {
		require.NoError(t, moves(t.Context(), devs, 20*time.Second))
	}
	require.NoError(t, devs[1].Close())
	require.ErrorIs(t, moves(t.Context(), devs, 20*time.Second), verbs.ErrClosed)
	require.NoError(t, moves(t.Context(), devs[:1], 20*time.Second))
}

// TestSharedAddress: what two devices of one configuration both want is told by
// their names, not as another program's.
func TestSharedAddress(t *testing.T) {
	var out bytes.Buffer
	log, _ := newLogger(&out, Log{Level: "info", Format: "text"})
	a, b := NewDevice(), NewDevice()
	a.Name, a.Addr, a.Link = "a", testbed.Loopback(2).String(), "udp"
	b.Name, b.Addr, b.Link = "b", a.Addr, "udp"
	_, err := openDevices([]Device{a, b}, log)
	require.ErrorContains(t, err, "device b ("+b.Addr+"): device a of this configuration has the same address")
	b.Required = false
	devs, err := openDevices([]Device{a, b}, log)
	require.NoError(t, err)
	defer closeDevices(devs)
	require.Len(t, devs, 1)
	require.Equal(t, 1, strings.Count(out.String(), "since it is not required"))
}
