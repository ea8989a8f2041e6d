package udptx

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/wire"
)

var (
	v4a = testbed.Loopback(0)
	v4b = testbed.Loopback(1)
)

// holder binds a UDP socket to an address and port.
func holder(t *testing.T, ap netip.AddrPort) int {
	t.Helper()
	fd, err := sys.UDPSocket(ap.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { sys.Close(fd) })
	require.NoError(t, sys.Bind(fd, ap, 0))
	return fd
}

// TestReseal sends a burst sealed for counted identifications as a route
// without segmentation makes it: the ICRCs then hold for identification 0.
func TestReseal(t *testing.T) {
	rx := holder(t, netip.AddrPortFrom(v4b, wire.Port))
	s, err := New(Config{Addrs: []netip.Addr{v4a}})
	require.NoError(t, err)
	defer s.Close()
	if s.IDs() != wire.IDCount {
		t.Skip("needs UDP_SEGMENT: ", s.Missing())
	}
	port, err := s.ResolvePort(v4a, 0xc003)
	require.NoError(t, err)
	f := &wire.Flow{Src: v4a, Dst: v4b, SrcPort: port}
	b := wire.NewBurst()
	b.Reset(f, 0, 0)
	payload := []byte("payload by reference, longer than a snapshot......")[:48]
	for i := range 4 {
		h := b.Begin(bth.MakePSN(uint32(i)), 4, bth.BTHLen, 48)
		clear(h)
		h[0], h[11] = 4, byte(i)
		b.Ref(payload)
		b.End()
	}
	b.Seal(wire.IDCount)
	n, errno := s.sendResealed(s.socket(f), b)
	require.Zero(t, errno)
	require.Equal(t, 4, n)
	require.EqualValues(t, 1, s.Resealed())
	require.EqualValues(t, 4, s.Stats().TxPackets)
	buf := make([]byte, 2048)
	for i := range 4 {
		n, err := unix.Read(rx, buf)
		require.NoError(t, err)
		pkt := buf[:n]
		require.EqualValues(t, i, pkt[11])
		want := wire.ICRC(pkt[:n-4], netip.AddrPortFrom(v4a, port), netip.AddrPortFrom(v4b, wire.Port), 0, true)
		require.Equal(t, []byte{byte(want), byte(want >> 8), byte(want >> 16), byte(want >> 24)}, pkt[n-4:])
	}
}

func TestBindError(t *testing.T) {
	err := BindError(netip.MustParseAddr("192.0.2.9"), wire.Port, unix.EADDRNOTAVAIL)
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	require.ErrorContains(t, err, "192.0.2.9 is not an address of this host")
	require.ErrorContains(t, BindError(v4a, wire.Port, unix.EACCES), fmt.Sprintf("%v:%d", v4a, wire.Port))
	holder(t, netip.AddrPortFrom(v4b, 47921))
	err = BindError(v4b, 47921, unix.EADDRINUSE)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	var te *TakenError
	require.ErrorAs(t, err, &te)
	require.Equal(t, os.Getpid(), te.Owner.PID)
	require.ErrorContains(t, err, fmt.Sprintf("UDP port 47921 of %v is taken by process %d", v4b, os.Getpid()))
}

func TestCountsIDs(t *testing.T) {
	require.True(t, CountsIDs([]uint16{0, 1, 2}))
	require.False(t, CountsIDs([]uint16{0, 0, 0}))
	require.False(t, CountsIDs([]uint16{7, 8, 9}))
}
