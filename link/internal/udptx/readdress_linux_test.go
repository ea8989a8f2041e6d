package udptx

import (
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/wire"
)

// burstOf makes a sealed burst of one segment.
func burstOf(s *Sender, f *wire.Flow) *wire.Burst {
	b := wire.NewBurst()
	b.Reset(f, 0, 0)
	h := b.Begin(bth.MakePSN(1), 4, bth.BTHLen, 48)
	clear(h)
	b.Ref(make([]byte, 48))
	b.End()
	b.Seal(s.IDs())
	return b
}

// TestSetAddrs: an address that goes refuses, one that stays is not disturbed,
// and one that comes back sends from the ports that it had, whoever asks first.
func TestSetAddrs(t *testing.T) {
	a, b := testbed.Loopback(2), testbed.Loopback(3)
	s, err := New(Config{Addrs: []netip.Addr{a, b}})
	require.NoError(t, err)
	defer s.Close()
	blocker := holder(t, netip.AddrPortFrom(a, 0xc005)) // so that the port is another
	port, err := s.ResolvePort(a, 0xc005)
	require.NoError(t, err)
	require.NotEqual(t, uint16(0xc005), port)
	stay, err := s.ResolvePort(b, 0xc007)
	require.NoError(t, err)
	kept, left := s.pool(b, 0), s.pool(a, 0)
	gone, same := &wire.Flow{Src: a, Dst: a, SrcPort: port}, &wire.Flow{Src: b, Dst: b, SrcPort: stay}

	serving, err := s.SetAddrs([]netip.Addr{b})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{b}, serving)
	_, err = s.ResolvePort(a, 0xc005)
	require.ErrorContains(t, err, "is not an address of this link")
	n, err := s.Send([]*wire.Burst{burstOf(s, gone), burstOf(s, same)})
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	var refused *link.SendError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, a, refused.Src)

	_, err = left.open(0xc006) // by who had found it before
	require.ErrorContains(t, err, "is not an address of this link")

	sys.Close(blocker)
	serving, err = s.SetAddrs([]netip.Addr{a, b, netip.MustParseAddr("203.0.113.9")})
	require.ErrorContains(t, err, "203.0.113.9")
	require.Equal(t, []netip.Addr{a, b}, serving)
	require.Same(t, kept, s.pool(b, 0))
	again, err := s.ResolvePort(a, 0xc025) // another flow of the same socket
	require.NoError(t, err)
	require.Equal(t, port, again)
	n, err = s.Send([]*wire.Burst{burstOf(s, gone), burstOf(s, same)})
	require.Equal(t, 2, n)
	require.NoError(t, err)
}

// TestSetAddrsBesideSend: sockets are taken away only between sends.
func TestSetAddrsBesideSend(t *testing.T) {
	a, b := testbed.Loopback(4), testbed.Loopback(5)
	var in sync.Mutex // one thread, as a namespace has
	s, err := New(Config{Addrs: []netip.Addr{a, b}, In: func(f func() error) error {
		in.Lock()
		defer in.Unlock()
		return f()
	}})
	require.NoError(t, err)
	defer s.Close()
	port, err := s.ResolvePort(a, 0xc005)
	require.NoError(t, err)
	burst := burstOf(s, &wire.Flow{Src: a, Dst: a, SrcPort: port})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 200 {
			addrs := []netip.Addr{b}
			if i%2 == 1 {
				addrs = append(addrs, a)
			}
			_, err := s.SetAddrs(addrs)
			require.NoError(t, err)
		}
	})
	wg.Go(func() {
		for range 2000 {
			n, err := s.Send([]*wire.Burst{burst})
			require.Equal(t, 1, n)
			if err != nil {
				require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
			}
			_, _ = s.ResolvePort(a, 0xc006)
		}
	})
	wg.Wait()
	require.Empty(t, s.Errors()[syscall.EBADF])
}

// TestHolderSetAddrs: the port of an address is free when it goes.
func TestHolderSetAddrs(t *testing.T) {
	a, b := testbed.Loopback(6), testbed.Loopback(7)
	h, err := HoldPort([]netip.Addr{a}, wire.Port, 1, false)
	require.NoError(t, err)
	got, err := h.SetAddrs([]netip.Addr{a, b})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{a, b}, got)
	got, err = h.SetAddrs([]netip.Addr{b})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{b}, got)
	holder(t, netip.AddrPortFrom(a, wire.Port))
	got, err = h.SetAddrs([]netip.Addr{a, b})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.Equal(t, []netip.Addr{b}, got)
	h.Release()
	holder(t, netip.AddrPortFrom(b, wire.Port))
	_, err = h.SetAddrs([]netip.Addr{b})
	require.ErrorIs(t, err, link.ErrClosed)
}
