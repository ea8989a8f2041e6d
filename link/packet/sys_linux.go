package packet

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
)

// tap is a packet socket.
type tap struct {
	fd   int
	of   length
	ring *sys.PacketRing // nil when the kernel refused it
}

func (t *tap) close() {
	if t.ring != nil {
		t.ring.Close()
	}
	sys.Close(t.fd)
}

// inlet is what one link receives by: a tap for single packets and one for runs
// of them, each with a ring; or one for all, without.
type inlet []*tap

func closeAll(ins []inlet) {
	for _, in := range ins {
		for _, t := range in {
			t.close()
		}
	}
}

// openInlets opens an inlet for each shard, which share the frames that the
// filter lets in. When it returns, each frame from then on is in exactly one of
// their taps. window is how many packets in flight one bears, and missing says
// what they do without.
func openInlets(cfg *Config, accept func(of length) program) (ins []inlet, window int, missing []string, err error) {
	want := min(maxUnits, (cfg.RcvBuf+unitLen-1)/unitLen)
	got, why := most(want, func(units int) error {
		if cfg.noRing {
			return unix.ENOMEM
		}
		ins, err = openAll(cfg.Shards, func() (inlet, error) { return openRings(units) })
		return err
	})
	if got > 0 {
		window = inFlight(got * shortBlocks * shortBlock * 3 / 4) // the others are for ACKs and what other peers send
		if got < want {
			missing = append(missing, fmt.Sprintf("short receive rings, of %d octets instead of %d: the kernel has no memory for more: %v; they bear %d packets in flight, and what comes beyond is lost; free some memory, or use fewer shards", got*unitLen, want*unitLen, why, window))
		}
	} else {
		if ins, err = openAll(cfg.Shards, func() (inlet, error) { return openQueue(cfg.RcvBuf) }); err != nil {
			return nil, 0, nil, err
		}
		missing = append(missing, fmt.Sprintf("no receive ring: the kernel refuses it: %v; packets are received by system calls, and a look at an empty link costs one; free some MiB of memory, or use a kernel with CONFIG_PACKET_MMAP", why))
		var small string
		if window, small = bears(ins[0][0].fd, cfg.RcvBuf); small != "" {
			missing = append(missing, small)
		}
	}
	if err := letIn(ins, accept); err != nil {
		closeAll(ins)
		return nil, 0, nil, err
	}
	return ins, window, missing, nil
}

// openAll opens n inlets or none.
func openAll(n int, open func() (inlet, error)) (ins []inlet, err error) {
	for range n {
		in, err := open()
		if err != nil {
			closeAll(ins)
			return nil, err
		}
		ins = append(ins, in)
	}
	return ins, nil
}

// openRings opens an inlet with rings of so many units.
func openRings(units int) (in inlet, err error) {
	for of, size := range map[length]sys.PacketRingSize{
		short: {Slot: shortSlot, BlockSlots: shortBlock, Blocks: units * shortBlocks},
		long:  {Slot: longSlot, BlockSlots: longBlock, Blocks: units},
	} {
		t, err := openTap(of, func(t *tap) (err error) {
			t.ring, err = sys.NewPacketRing(t.fd, size)
			return err
		})
		if err != nil {
			closeAll([]inlet{in})
			return nil, err
		}
		in = append(in, t)
	}
	slices.SortFunc(in, func(a, b *tap) int { return int(a.of - b.of) })
	return in, nil
}

// openQueue opens an inlet without rings.
func openQueue(rcvBuf int) (inlet, error) {
	t, err := openTap(anyLength, func(t *tap) error {
		_, err := sys.SetReceiveBuffer(t.fd, rcvBuf)
		return err
	})
	if err != nil {
		return nil, err
	}
	return inlet{t}, nil
}

// letIn makes the taps of a kind share what accept lets in.
func letIn(ins []inlet, accept func(of length) program) error {
	for k := range ins[0] {
		if len(ins) > 1 {
			if err := joinFanout(ins, k); err != nil {
				return err
			}
		}
		for _, in := range ins {
			if err := sys.AttachFilter(in[k].fd, accept(in[k].of)); err != nil {
				return err
			}
		}
	}
	return nil
}

// openTap opens a packet socket on all interfaces that lets nothing in yet, with
// the room for frames that makeRoom gives it.
func openTap(of length, makeRoom func(*tap) error) (*tap, error) {
	// Protocol 0: nothing arrives before bind, so nothing unfiltered.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, privilegeError()
	}
	if err != nil {
		return nil, os.NewSyscallError("socket AF_PACKET", err)
	}
	t := &tap{fd: fd, of: of}
	if err := t.setUp(makeRoom); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tap) setUp(makeRoom func(*tap) error) error {
	if err := sys.AttachFilter(t.fd, sys.DropAll); err != nil {
		return err
	}
	if err := sys.SetInt(t.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return err
	}
	// Linux 4.20; before it the filter turns the echo away, only later.
	_ = unix.SetsockoptInt(t.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err := makeRoom(t); err != nil {
		return err
	}
	// All protocols: the taps of a single one come after tc's ingress, where
	// a program may drop what the stack need not see.
	all := unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL)}
	return os.NewSyscallError("bind AF_PACKET", unix.Bind(t.fd, &all))
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

// joinFanout makes tap k of the inlets a group of which one gets each frame, by the
// destination queue pair number.
func joinFanout(ins []inlet, k int) error {
	id := 0
	for i, in := range ins {
		flags := 0
		if i == 0 {
			flags = unix.PACKET_FANOUT_FLAG_UNIQUEID
		}
		if err := sys.SetInt(in[k].fd, unix.SOL_PACKET, unix.PACKET_FANOUT, id|(unix.PACKET_FANOUT_CBPF|flags)<<16); err != nil {
			return err
		}
		if i == 0 {
			v, err := unix.GetsockoptInt(in[k].fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
			if err != nil {
				return os.NewSyscallError("getsockopt PACKET_FANOUT", err)
			}
			id = v & 0xffff
		}
	}
	return sys.Attach(ins[0][k].fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, fanoutFilter(nil))
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
