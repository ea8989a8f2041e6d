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
	"github.com/gorxe/gorxe/wire"
)

var (
	v4a = netip.MustParseAddr("127.47.92.1")
	v4b = netip.MustParseAddr("127.47.92.2")
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

func TestFindOwner(t *testing.T) {
	const port = 47921
	fd := holder(t, netip.AddrPortFrom(v4a, port))
	require.Equal(t, Owner{UID: -1, Devices: softRoCE()}, FindOwner(v4b, port))
	o := FindOwner(v4a, port)
	require.Equal(t, os.Getpid(), o.PID)
	require.Equal(t, os.Getuid(), o.UID)
	sys.Close(fd)
	require.Zero(t, FindOwner(v4a, port).PID)

	for _, wildcard := range []netip.Addr{netip.IPv4Unspecified(), netip.MustParseAddr("::1")} {
		fd, err := sys.UDPSocket(wildcard)
		require.NoError(t, err)
		defer sys.Close(fd)
		if err := sys.Bind(fd, netip.AddrPortFrom(wildcard, port+1), 0); err != nil {
			t.Skipf("needs IPv6 on the loopback interface: %v", err)
		}
		of := wildcard
		if of.IsUnspecified() {
			of = v4a // the wildcard has every address
		}
		require.Equal(t, os.Getpid(), FindOwner(of, port+1).PID, "%v", wildcard)
	}
}

func TestOwnerText(t *testing.T) {
	for _, c := range []struct {
		o    Owner
		want string
	}{
		{Owner{PID: 7, Command: "rxed", UID: 0}, "process 7 (rxed): stop it, or attach"},
		{Owner{UID: 0, Kernel: true, Devices: []string{"rxe0"}}, "the kernel's Soft-RoCE: remove it with `rdma link delete rxe0`"},
		{Owner{UID: 0, Kernel: true, Devices: []string{"rxe0", "rxe1"}}, "`rdma link delete rxe0` and `rdma link delete rxe1`"},
		{Owner{UID: 0, Devices: []string{"rxe0"}}, "`rdma link delete rxe0`"},
		{Owner{UID: 0, Kernel: true}, "the kernel, probably its Soft-RoCE"},
		{Owner{UID: 1000}, "user 1000"},
		{Owner{UID: -1}, "`rdma link delete NAME`"},
	} {
		require.Contains(t, c.o.String(), c.want)
	}
}

func TestParseProcUDP(t *testing.T) {
	l, ok := parseProcUDP("  366: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 12345 2 0000000000000000 0")
	require.True(t, ok)
	require.Equal(t, procUDP{netip.MustParseAddr("127.0.0.1"), 4791, 1000, "12345"}, l)
	l, ok = parseProcUDP("  366: 000080FE00000000FF005450040302FE:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 99 2 0 0")
	require.True(t, ok)
	require.Equal(t, procUDP{netip.MustParseAddr("fe80::5054:ff:fe02:304"), 4791, 0, "99"}, l)
	for _, bad := range []string{"", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops", "1: zz:12B7 a b c d e 0 f 1 1"} {
		_, ok := parseProcUDP(bad)
		require.False(t, ok, "%q", bad)
	}
}

func TestBindError(t *testing.T) {
	err := BindError(netip.MustParseAddr("192.0.2.9"), wire.Port, unix.EADDRNOTAVAIL)
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	require.ErrorContains(t, err, "192.0.2.9 is not an address of this host")
	require.ErrorContains(t, BindError(v4a, wire.Port, unix.EACCES), fmt.Sprintf("%v:%d", v4a, wire.Port))
	err = BindError(v4a, wire.Port, unix.EADDRINUSE)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	var te *TakenError
	require.ErrorAs(t, err, &te)
}

func TestCountsIDs(t *testing.T) {
	require.True(t, CountsIDs([]uint16{0, 1, 2}))
	require.False(t, CountsIDs([]uint16{0, 0, 0}))
	require.False(t, CountsIDs([]uint16{7, 8, 9}))
}

func TestInterfaceOf(t *testing.T) {
	ifc, err := InterfaceOf(v4a)
	require.NoError(t, err)
	require.Equal(t, "lo", ifc.Name)
	_, err = InterfaceOf(netip.MustParseAddr("192.0.2.99"))
	require.ErrorContains(t, err, "ip address")
}
