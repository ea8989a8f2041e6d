package gorxe_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/packet"
	"github.com/gorxe/gorxe/verbs"
)

// Loopback addresses that no other process uses.
var loA, loB = testbed.Loopback(0).String(), testbed.Loopback(1).String()

// 1. Open a device.
func ExampleOpen() {
	dev, err := gorxe.Open(gorxe.Config{Addr: loA}) // or Interface: "eth0"
	if err != nil {
		fmt.Println(err) // says what is missing and what to do
		return
	}
	defer dev.Close()
	fmt.Println(must(dev.Device()).Name, must(dev.Port()).ActiveMTU, must(dev.GIDs())[0].GID.Addr().IsLoopback())
	// Output: rxe0 4096 true
}

// TestOpenTraffic has two NICs of one process talk over loopback sockets, with
// faults and a capture, and so through every layer.
func TestOpenTraffic(t *testing.T) {
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket} {
		t.Run(link, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tap.pcapng")
			da, err := gorxe.Open(gorxe.Config{Addr: loA, Link: link, Faults: "tx drop 2%", Seed: 7, Tap: path})
			if errors.Is(err, packet.ErrPrivilege) {
				t.Skip(err)
			}
			require.NoError(t, err)
			db, err := gorxe.Open(gorxe.Config{Addr: loB, Link: link})
			require.NoError(t, err)
			a, b := newEnd(da), newEnd(db)
			la, lb := must(a.qp.Endpoint(b.addr())), must(b.qp.Endpoint(a.addr()))
			require.NoError(t, a.qp.Connect(la, lb, verbs.ConnectOptions{}))
			require.NoError(t, b.qp.Connect(lb, la, verbs.ConnectOptions{}))
			for i := range a.mr.Bytes() {
				a.mr.Bytes()[i] = byte(i * 11)
			}
			must(a.qp.PostSend([]verbs.SendWR{{
				Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1<<20)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled,
			}}))
			a.wait()
			must(b.qp.PostSend([]verbs.SendWR{{
				Opcode: verbs.WRRead, SGL: []verbs.SGE{b.mr.SGE(0, 1000)}, RemoteAddr: a.mr.Addr() + 500, RKey: a.mr.RKey(), Flags: verbs.SendSignaled,
			}}))
			b.wait()
			require.Equal(t, a.mr.Bytes()[500:1500], b.mr.Bytes()[:1000])
			require.Equal(t, a.mr.Bytes()[1000:], b.mr.Bytes()[1000:])
			require.Positive(t, must(da.Counters())["repeated_requests"], "no packet was lost")
			require.NoError(t, da.Close())
			require.NoError(t, db.Close())
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Greater(t, info.Size(), int64(1<<20))
		})
	}
}

// TestOpenErrors: every mistake has an error that says what to do.
func TestOpenErrors(t *testing.T) {
	first, err := gorxe.Open(gorxe.Config{Addr: loA})
	require.NoError(t, err)
	defer first.Close()
	for _, c := range []struct {
		cfg  gorxe.Config
		want string
	}{
		{gorxe.Config{}, "name an interface"},
		{gorxe.Config{Interface: "lo", Addr: loA}, "both Interface and Addr"},
		{gorxe.Config{Interface: "nosuch0"}, "this host has lo"},
		{gorxe.Config{Addr: "here"}, "here"},
		{gorxe.Config{Addr: "203.0.113.77"}, "no interface has the address 203.0.113.77"},
		{gorxe.Config{Interface: "lo", Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.77")}}, "not an address of lo"},
		{gorxe.Config{Addr: loA, Link: "carrier pigeon"}, "there are auto, udp and packet"},
		{gorxe.Config{Addr: loA, Faults: "tx drop many"}, "faults"},
		{gorxe.Config{Addr: loB, Shards: 17}, "17 shards"},
		{gorxe.Config{Addr: loB, Tap: "/nosuch/folder/x.pcapng"}, "no such file"},
		{gorxe.Config{Addr: loA}, "taken by process"},
	} {
		dev, err := gorxe.Open(c.cfg)
		require.ErrorContains(t, err, c.want)
		require.Nil(t, dev)
	}
	_, err = gorxe.Open(gorxe.Config{Addr: loA})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	_, err = gorxe.Open(gorxe.Config{Interface: "nosuch0"})
	require.ErrorIs(t, err, hostnet.ErrNoInterface)
}

// TestSelf: two queue pairs of one device on a socket link.
func TestSelf(t *testing.T) {
	dev, err := gorxe.Open(gorxe.Config{Addr: loA})
	require.NoError(t, err)
	defer dev.Close()
	a, b := newEnd(dev), newEnd(dev)
	la, lb := must(a.qp.Endpoint(a.addr())), must(b.qp.Endpoint(a.addr()))
	require.NoError(t, a.qp.Connect(la, lb, verbs.ConnectOptions{}))
	require.NoError(t, b.qp.Connect(lb, la, verbs.ConnectOptions{}))
	copy(a.mr.Bytes(), "to myself")
	must(a.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, 1<<20)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled,
	}}))
	a.wait()
	require.Equal(t, "to myself", string(b.mr.Bytes()[:9]))
}
