package gorxe_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
			for _, fd := range descriptors(t) {
				name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
				require.NotEqual(t, path, name, "the capture is still open")
			}
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
		{gorxe.Config{Addr: loA, Link: "carrier pigeon"}, "there are auto, udp, packet and xdp"},
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

// TestFewDescriptors is report B10: with any number of descriptors left, Open
// and Connect work or fail as a whole, nothing of a failed one stays open, and
// the next one works.
func TestFewDescriptors(t *testing.T) {
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	limit := func(n uint64) {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: min(n, old.Max), Max: old.Max}))
	}
	defer limit(old.Cur)
	for _, link := range []string{gorxe.LinkUDP, gorxe.LinkPacket} {
		t.Run(link, func(t *testing.T) {
			cfg := gorxe.Config{Addr: loA, Link: link, Shards: 2}
			try := func() (opened, connected bool) {
				dev, err := gorxe.Open(cfg)
				if err != nil {
					require.ErrorIs(t, err, syscall.EMFILE)
					return false, false
				}
				connected = true
				for i := range uint32(8) { // some of them by other source ports
					e := newEnd(dev)
					peer := verbs.Endpoint{QPN: 0x70 + i, GID: verbs.GIDOf(netip.MustParseAddr(loB))}
					err = e.qp.Connect(must(e.qp.Endpoint(netip.MustParseAddr(loB))), peer, verbs.ConnectOptions{})
					if err != nil {
						require.ErrorIs(t, err, syscall.EMFILE)
						connected = false
					}
				}
				require.NoError(t, dev.Close())
				return true, connected
			}
			dev, err := gorxe.Open(cfg) // what the runtime opens once is open now
			if errors.Is(err, packet.ErrPrivilege) {
				t.Skip(err)
			}
			require.NoError(t, err)
			require.NoError(t, dev.Close())
			before := descriptors(t)
			refused, unconnected := 0, 0
			for n := 0; ; n++ {
				require.Less(t, n, 100, "it never works")
				limit(room(before, n))
				opened, connected := try()
				limit(old.Cur)
				require.Equal(t, before, descriptors(t), "with room for %d descriptors", n)
				if connected {
					break
				}
				if opened {
					unconnected++
				} else {
					refused++
				}
			}
			require.Positive(t, refused)
			require.Positive(t, unconnected)
		})
	}
}

// descriptors returns what this process has open.
func descriptors(t *testing.T) (fds []int) {
	dir, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, d := range dir {
		n, err := strconv.Atoi(d.Name())
		require.NoError(t, err)
		if _, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil { // not the folder's own
			fds = append(fds, n)
		}
	}
	slices.Sort(fds)
	return fds
}

// room returns the limit that leaves n descriptors free beside those in use.
func room(used []int, n int) uint64 {
	limit := 0
	for ; n > 0 || slices.Contains(used, limit); limit++ {
		if !slices.Contains(used, limit) {
			n--
		}
	}
	return uint64(limit)
}

// TestManyNICs is report B87: an interface carries as many NICs as it has
// addresses, and each reaches each.
func TestManyNICs(t *testing.T) {
	const n = 5
	var devs [n]*verbs.Context
	for i := range devs {
		var err error
		devs[i], err = gorxe.Open(gorxe.Config{Addr: fmt.Sprintf("127.47.91.%d", 10+i)})
		require.NoError(t, err)
		defer devs[i].Close()
	}
	for i := range n {
		for j := range n {
			a, b := newEnd(devs[i]), newEnd(devs[j])
			la, lb := must(a.qp.Endpoint(b.addr())), must(b.qp.Endpoint(a.addr()))
			require.NoError(t, a.qp.Connect(la, lb, verbs.ConnectOptions{}))
			require.NoError(t, b.qp.Connect(lb, la, verbs.ConnectOptions{}))
			text := fmt.Sprintf("from %d to %d", i, j)
			copy(a.mr.Bytes(), text)
			must(b.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{b.mr.SGE(0, 100)}}}))
			must(a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, len(text))}}}))
			require.Equal(t, text, string(b.mr.Bytes()[:b.wait().ByteLen]))
		}
	}
}

// TestDefaults is report B97: the attributes of a connection that nobody chose
// do not hurt, and those somebody chose count, 0 too.
func TestDefaults(t *testing.T) {
	da, db := gorxe.NewPair(gorxe.PairConfig{})
	defer da.Close()
	defer db.Close()
	for _, c := range []struct {
		o                           verbs.ConnectOptions
		timeout, retry, rnr, minRNR uint8
	}{
		{verbs.ConnectOptions{}, 14, 7, 7, 12},
		{verbs.ConnectOptions{PathMTU: 1024}, 14, 7, 7, 12},
		{verbs.ConnectOptions{PathMTU: 1024, Timeout: verbs.Zero, RNRRetry: verbs.Zero}, 0, 7, 0, 12},
		{verbs.ConnectOptions{RetryCnt: 3}.Literal(), 0, 3, 0, 0},
		{verbs.ConnectOptions{PathMTU: 1024, Timeout: 3, RetryCnt: 2, RNRRetry: 1, MinRNRTimer: 31}, 3, 2, 1, 31},
	} {
		a, b := newEnd(da), newEnd(db)
		require.NoError(t, a.qp.Connect(must(a.qp.Endpoint(b.addr())), must(b.qp.Endpoint(a.addr())), c.o))
		got := must(a.qp.Query())
		require.Equal(t, [4]uint8{c.timeout, c.retry, c.rnr, c.minRNR}, [4]uint8{got.Timeout, got.RetryCnt, got.RNRRetry, got.MinRNRTimer})
	}
}

// TestOpenNIC: the device itself, which moves without a program that steps it.
func TestOpenNIC(t *testing.T) {
	n, err := gorxe.OpenNIC(gorxe.Config{Addr: loA, Serve: true})
	require.NoError(t, err)
	defer n.Close()
	e := newEnd(verbs.NewContext(n))
	la := must(e.qp.Endpoint(netip.MustParseAddr(loA)))
	require.NoError(t, e.qp.Connect(la, la, verbs.ConnectOptions{}))
	must(e.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRWrite, SGL: []verbs.SGE{e.mr.SGE(0, 4096)}, RemoteAddr: e.mr.Addr() + 8192, RKey: e.mr.RKey(), Flags: verbs.SendSignaled,
	}}))
	e.wait()

	n, err = gorxe.OpenNIC(gorxe.Config{Interface: "nosuch0"})
	require.ErrorIs(t, err, hostnet.ErrNoInterface)
	require.Nil(t, n)
}
