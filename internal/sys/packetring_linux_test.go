package sys

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/testbed"
)

// ringOn returns a packet socket with a ring of 6 slots that hears UDP on a
// host's lo, and a function that sends one octet there.
func ringOn(t *testing.T, h *testbed.Host) (fd int, r *PacketRing, send func(b byte)) {
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 9)
	h.Do(func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		t.Cleanup(func() { Close(fd) })
		// To port 9, and not on its way out.
		require.NoError(t, AttachFilter(fd, []bpf.Instruction{
			bpf.LoadAbsolute{Off: 36, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 9, SkipTrue: 1},
			bpf.RetConstant{},
			bpf.LoadExtension{Num: bpf.ExtType},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 4, SkipFalse: 1},
			bpf.RetConstant{},
			bpf.RetConstant{Val: 1 << 20},
		}))
		r, err = NewPacketRing(fd, PacketRingSize{Slot: 2048, BlockSlots: 2, Blocks: 3})
		require.NoError(t, err)
		require.Equal(t, 6, r.Slots())
		require.NoError(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 3 << 8, Ifindex: h.Index("lo")}))
		tx, err := UDPSocket(to.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { Close(tx) })
		b := NewTxBatch(1, 1)
		send = func(c byte) {
			b.Reset()
			b.Add(&TxMeta{To: to})
			b.Piece([]byte{c})
			n, errno := b.Send(tx)
			require.Equal(t, 1, n, errno)
		}
	})
	return fd, r, send
}

// next takes the next frame.
func next(r *PacketRing) []byte {
	s := r.Peek()
	if s != nil {
		r.Take()
	}
	return s
}

// octet is what a slot's frame carries.
func octet(slot []byte) byte { return slot[binary.NativeEndian.Uint16(slot[12:]):][42] }

// TestPacketRing: frames come in order, a slot that is lent out is not written
// to, one that was given back is, and what finds no slot is counted.
func TestPacketRing(t *testing.T) {
	fd, r, send := ringOn(t, testbed.NewHost(t))
	readable := func() int {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		require.NoError(t, err)
		return n
	}
	drops := func() uint32 {
		s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		require.NoError(t, err)
		return s.Drops
	}
	sent, seen := byte(0), byte(0)
	for round := range 40 { // the slots are used many times, from every position
		n := round%6 + 1
		require.True(t, r.Idle())
		require.Nil(t, next(r))
		require.Zero(t, readable())
		for range n {
			send(sent)
			sent++
		}
		require.Equal(t, 1, readable())
		require.False(t, r.Idle())
		var lent [][]byte
		for range n {
			s := next(r)
			require.NotNil(t, s)
			lent = append(lent, s)
		}
		require.Nil(t, next(r))
		require.False(t, r.Idle(), "slots are lent out")
		for range 6 - n { // the free ones
			send(sent)
			sent++
		}
		send(0xee) // in vain
		for _, s := range lent {
			require.Equal(t, seen, octet(s))
			seen++
		}
		require.EqualValues(t, 1, drops())
		r.GiveBack()
		for range 6 - n {
			require.Equal(t, seen, octet(next(r)))
			seen++
		}
		require.Nil(t, next(r))
		r.GiveBack()
	}
	require.Zero(t, drops())
}

// TestPacketRingClose: who looks at a ring or at a frame when it is closed, and
// later, finds nothing; and the socket hears no more.
func TestPacketRingClose(t *testing.T) {
	h := testbed.NewHost(t)
	fd, r, send := ringOn(t, h)
	send(7)
	lent := next(r)
	require.NotNil(t, lent)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for !r.Idle() {
				for next(r) != nil {
				}
				r.GiveBack()
			}
		}
	}()
	for i := range byte(100) {
		send(i)
	}
	require.Contains(t, h.Tool("cat", "/proc/net/packet"), " 3 ")
	r.Close()
	Close(fd)
	close(stop)
	<-ended
	require.Equal(t, make([]byte, len(lent)), lent)
	require.True(t, r.Idle())
	require.Nil(t, next(r))
	require.NotContains(t, h.Tool("cat", "/proc/net/packet"), " 3 ", "the socket is still there")
}

// TestPacketRingRefused: an error names what the kernel did not like.
func TestPacketRingRefused(t *testing.T) {
	fd, err := UDPSocket(local)
	require.NoError(t, err)
	defer Close(fd)
	_, err = NewPacketRing(fd, PacketRingSize{Slot: 2048, BlockSlots: 2, Blocks: 3})
	require.ErrorContains(t, err, "PACKET_VERSION")
	testbed.NewHost(t).Do(func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer Close(fd)
		_, err = NewPacketRing(fd, PacketRingSize{Slot: 2047, BlockSlots: 2, Blocks: 3})
		require.ErrorContains(t, err, "PACKET_RX_RING")
		require.ErrorIs(t, err, unix.EINVAL)
	})
}
