package packet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
)

// socket is a packet socket as it was opened.
type socket struct {
	fd      int
	ring    *sys.PacketRing // nil when the kernel refused it
	window  int             // packets in flight that it bears
	missing []string
}

func (s *socket) close() {
	if s.ring != nil {
		s.ring.Close()
	}
	sys.Close(s.fd)
}

func closeAll(socks []*socket) {
	for _, s := range socks {
		s.close()
	}
}

// openSockets opens a packet socket for each shard, which share the frames that
// accept lets in. When it returns, each frame from then on is in exactly one of
// them.
func openSockets(cfg *Config, accept program) (socks []*socket, err error) {
	defer func() {
		if err != nil {
			closeAll(socks)
			socks = nil
		}
	}()
	for range cfg.Shards {
		s, err := openSocket(cfg)
		if err != nil {
			return socks, err
		}
		socks = append(socks, s)
	}
	if len(socks) > 1 {
		if err := joinFanout(socks); err != nil {
			return socks, err
		}
	}
	for _, s := range socks {
		if err := sys.AttachFilter(s.fd, accept); err != nil {
			return socks, err
		}
	}
	return socks, nil
}

// openSocket opens a packet socket on all interfaces that lets nothing in
// yet.
func openSocket(cfg *Config) (*socket, error) {
	// Protocol 0: nothing arrives before bind, so nothing unfiltered.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, privilegeError()
	}
	if err != nil {
		return nil, os.NewSyscallError("socket AF_PACKET", err)
	}
	s := &socket{fd: fd}
	if err := s.setUp(cfg); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) setUp(cfg *Config) error {
	if err := sys.AttachFilter(s.fd, sys.DropAll); err != nil {
		return err
	}
	if err := sys.SetInt(s.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return err
	}
	// Linux 4.20; before it the filter turns the echo away, only later.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err := s.makeRoom(cfg); err != nil {
		return err
	}
	// All protocols: the taps of a single one come after tc's ingress, where
	// a program may drop what the stack need not see.
	all := unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL)}
	return os.NewSyscallError("bind AF_PACKET", unix.Bind(s.fd, &all))
}

// makeRoom gets the memory that frames arrive in: a ring, or else a long queue.
func (s *socket) makeRoom(cfg *Config) error {
	want := min(maxBlocks, (cfg.RcvBuf+blockSlots*ringSlot-1)/(blockSlots*ringSlot))
	got, err := most(want, func(blocks int) (err error) {
		if cfg.noRing {
			return unix.ENOMEM
		}
		s.ring, err = sys.NewPacketRing(s.fd, sys.PacketRingSize{Slot: ringSlot, BlockSlots: blockSlots, Blocks: blocks})
		return err
	})
	if got > 0 {
		s.window = inFlight(s.ring.Slots() * 3 / 4) // the others are for ACKs and what other peers send
		if got < want {
			s.missing = append(s.missing, fmt.Sprintf("a short receive ring, %d slots instead of %d: the kernel has no memory for more: %v; it bears %d packets in flight, and what comes beyond is lost; free some memory, or use fewer shards", s.ring.Slots(), want*blockSlots, err, s.window))
		}
		return nil
	}
	s.missing = append(s.missing, fmt.Sprintf("no receive ring: the kernel refuses it: %v; packets are received by system calls, and a look at an empty link costs one; free some MiB of memory, or use a kernel with CONFIG_PACKET_MMAP", err))
	if _, err := sys.SetReceiveBuffer(s.fd, cfg.RcvBuf); err != nil {
		return err
	}
	var small string
	if s.window, small = bears(s.fd, cfg.RcvBuf); small != "" {
		s.missing = append(s.missing, small)
	}
	return nil
}

// most tries to get n of something, then half as many and so on, and returns
// what it got at last; an error with less than n, why.
func most(n int, try func(n int) error) (got int, why error) {
	for ; n > 0; n /= 2 {
		err := try(n)
		if err == nil {
			return n, why
		}
		why = err
	}
	return 0, why
}

func privilegeError() error {
	return fmt.Errorf("%w, which packet sockets need: run as root, grant it with 'setcap cap_net_raw+ep %s', or use --link udp, which needs no privilege",
		ErrPrivilege, self())
}

func self() string {
	if s, err := os.Executable(); err == nil {
		return s
	}
	return "PROGRAM"
}

// joinFanout makes the sockets a group of which one gets each frame, by the
// destination queue pair number.
func joinFanout(socks []*socket) error {
	id := 0
	for i, s := range socks {
		flags := 0
		if i == 0 {
			flags = unix.PACKET_FANOUT_FLAG_UNIQUEID
		}
		if err := sys.SetInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, id|(unix.PACKET_FANOUT_CBPF|flags)<<16); err != nil {
			return err
		}
		if i == 0 {
			v, err := unix.GetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
			if err != nil {
				return os.NewSyscallError("getsockopt PACKET_FANOUT", err)
			}
			id = v & 0xffff
		}
	}
	return sys.Attach(socks[0].fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, fanoutFilter(nil))
}

// drops returns how many frames fd had no room for since the last call.
func drops(fd int) uint64 {
	s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// inFlight bounds how many packets in flight a buffer is said to bear that has
// room for so many that arrive alone. More than 512 gain nothing.
func inFlight(packets int) int {
	const least, most = 64, 512
	return max(least, min(most, packets))
}

// bears returns how many packets in flight the queue of fd bears. The kernel
// charges a packet of 4096 octets that arrives alone with up to twice its
// length. If the queue is not the wanted one, missing says why.
func bears(fd, wanted int) (window int, missing string) {
	const charge = 8192
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return inFlight(0), ""
	}
	window = inFlight(n / charge)
	if n < 2*wanted { // the kernel doubles what it is asked for
		missing = fmt.Sprintf("the receive buffer is %d octets instead of %d and bears %d packets in flight, not %d: without CAP_NET_ADMIN net.core.rmem_max limits it; allow more with 'sysctl -w net.core.rmem_max=%d'", n/2, wanted, window, inFlight(2*wanted/charge), wanted)
	}
	return window, missing
}
