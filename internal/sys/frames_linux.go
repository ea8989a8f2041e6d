package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// VnetLen is the length of the virtio header that a frame socket has before each
// frame. Virtio 1.2, section 5.1.6, in the host's byte order.
const VnetLen = 10

// FrameRoom is how many octets a received frame may be moved forward by: a VLAN tag.
const FrameRoom = 4

// FrameSocket opens a non-blocking packet socket that receives every frame which
// arrives at an interface, whoever it is for, and sends out of it. Frames that this
// host sends are not received. Each comes with a virtio header: neighbours on the
// host and GRO deliver super-packets and unfinished checksums. buf is how many octets
// wait either way, as far as the system's limits allow. Needs CAP_NET_RAW.
func FrameSocket(ifindex, buf int) (int, error) {
	// Protocol 0: nothing arrives before bind.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket AF_PACKET", err)
	}
	if err := setUpFrames(fd, ifindex, buf); err != nil {
		Close(fd)
		return -1, err
	}
	return fd, nil
}

func setUpFrames(fd, ifindex, buf int) error {
	for _, o := range [...][2]int{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING},
		{unix.SOL_PACKET, unix.PACKET_AUXDATA},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS},
	} {
		if err := SetInt(fd, o[0], o[1], 1); err != nil {
			return err
		}
	}
	if _, err := SetReceiveBuffer(fd, buf); err != nil {
		return err
	}
	if _, err := SetSendBuffer(fd, buf); err != nil {
		return err
	}
	all := unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8, Ifindex: ifindex}
	if err := unix.Bind(fd, &all); err != nil {
		return os.NewSyscallError("bind AF_PACKET", err)
	}
	m := unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return fmt.Errorf("setsockopt PACKET_ADD_MEMBERSHIP: %w", err)
	}
	return nil
}

// FrameDrops returns how many frames found no room in fd since the last call.
func FrameDrops(fd int) uint64 {
	s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

// Frame is a received frame.
type Frame struct {
	Vnet   []byte // virtio header
	Octets []byte // FrameRoom octets that are not the frame's, and the frame
	At     int64  // when it came, nanoseconds of CLOCK_REALTIME; 0 when not known

	// Tagged is set when the kernel took a VLAN tag out: TPID and TCI.
	Tagged    bool
	TPID, TCI uint16
	Truncated bool
}

const (
	auxLen       = 20           // struct tpacket_auxdata
	frameControl = 16 + 24 + 32 // CMSG_SPACE of that and of a timespec
)

// FrameRx is an array of buffers for one recvmmsg of frames.
type FrameRx struct {
	msgs []mmsghdr
	iov  [][2]unix.Iovec
	vnet [][VnetLen]byte
	ctl  [][frameControl]byte
	buf  []byte
	size int
}

// NewFrameRx returns a batch of n buffers for frames of size octets.
func NewFrameRx(n, size int) *FrameRx {
	size += FrameRoom
	b := &FrameRx{
		msgs: make([]mmsghdr, n), iov: make([][2]unix.Iovec, n), vnet: make([][VnetLen]byte, n),
		ctl: make([][frameControl]byte, n), buf: make([]byte, n*size), size: size,
	}
	for i := range n {
		v := &b.iov[i]
		v[0].Base = &b.vnet[i][0]
		v[0].SetLen(VnetLen)
		v[1].Base = &b.buf[i*size+FrameRoom]
		v[1].SetLen(size - FrameRoom)
		h := &b.msgs[i].hdr
		h.Iov = &v[0]
		h.SetIovlen(2)
		h.Control = &b.ctl[i][0]
		h.SetControllen(frameControl)
	}
	return b
}

// Len returns how many frames a batch takes.
func (b *FrameRx) Len() int { return len(b.msgs) }

// Recv takes frames from fd. After an error other than EAGAIN others may follow:
// EINVAL is a frame that its virtio header cannot describe, which is gone.
func (b *FrameRx) Recv(fd int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])), uintptr(len(b.msgs)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		b.rearm(0)
		return 0, e
	}
	return int(n), 0
}

func (b *FrameRx) rearm(i int) {
	h := &b.msgs[i].hdr
	h.SetControllen(frameControl)
	h.Flags = 0
}

// Take decodes frame i of the last Recv, which is borrowed until the next. Each must
// be taken once.
func (b *FrameRx) Take(i int, f *Frame) {
	h := &b.msgs[i].hdr
	n := max(0, min(int(b.msgs[i].len)-VnetLen, b.size-FrameRoom))
	at := i * b.size
	*f = Frame{Vnet: b.vnet[i][:], Octets: b.buf[at : at+FrameRoom+n : at+FrameRoom+n], Truncated: h.Flags&unix.MSG_TRUNC != 0}
	ctl := b.ctl[i][:min(int(h.Controllen), frameControl)]
	for len(ctl) >= unix.SizeofCmsghdr {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[0]))
		n := int(c.Len)
		if n < unix.SizeofCmsghdr || n > len(ctl) {
			break
		}
		f.control(c, ctl[unix.CmsgLen(0):n])
		ctl = ctl[min(unix.CmsgSpace(n-unix.CmsgLen(0)), len(ctl)):]
	}
	b.rearm(i)
}

func (f *Frame) control(c *unix.Cmsghdr, data []byte) {
	ne := binary.NativeEndian
	switch {
	case c.Level == unix.SOL_PACKET && c.Type == unix.PACKET_AUXDATA && len(data) >= auxLen:
		status := ne.Uint32(data)
		if status&unix.TP_STATUS_VLAN_VALID == 0 {
			return
		}
		f.Tagged, f.TCI, f.TPID = true, ne.Uint16(data[16:]), unix.ETH_P_8021Q
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			f.TPID = ne.Uint16(data[18:])
		}
	case c.Level == unix.SOL_SOCKET && c.Type == unix.SCM_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
		f.At = (*unix.Timespec)(unsafe.Pointer(&data[0])).Nano()
	}
}

// FrameTx is an array of frames for one sendmmsg. Fill it with Add, send it, Reset it.
type FrameTx struct {
	msgs []mmsghdr
	iov  [][2]unix.Iovec
	n    int
}

// NewFrameTx returns a batch of at most n frames.
func NewFrameTx(n int) *FrameTx {
	b := &FrameTx{msgs: make([]mmsghdr, n), iov: make([][2]unix.Iovec, n)}
	for i := range n {
		b.msgs[i].hdr.Iov = &b.iov[i][0]
		b.msgs[i].hdr.SetIovlen(2)
	}
	return b
}

// Full reports whether there is no room for another frame.
func (b *FrameTx) Full() bool { return b.n == len(b.msgs) }

// Len returns the number of frames.
func (b *FrameTx) Len() int { return b.n }

// Add adds a frame, which is borrowed until Reset.
//
// Preconditions: !Full(), len(vnet) == VnetLen, len(frame) > 0.
func (b *FrameTx) Add(vnet, frame []byte) {
	v := &b.iov[b.n]
	v[0].Base = &vnet[0]
	v[0].SetLen(VnetLen)
	v[1].Base = &frame[0]
	v[1].SetLen(len(frame))
	b.n++
}

// Reset empties the batch.
func (b *FrameTx) Reset() {
	clear(b.iov[:b.n])
	b.n = 0
}

// Send offers the frames from the first'th on to fd and returns how many it took. An
// errno is that of the first of them.
func (b *FrameTx) Send(fd, first int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[first])), uintptr(b.n-first), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// PreciseSleep has waits of the calling thread end on the nanosecond, and not when
// the kernel can wake several threads at once, 50 us later. prctl(2), PR_SET_TIMERSLACK.
func PreciseSleep() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// Realtime has this process run as soon as it can, before all that are not of real
// time: all its threads, and those that they make. sched(7), SCHED_FIFO; it needs
// CAP_SYS_NICE.
func Realtime() error {
	for range 2 { // the second time for those that were made meanwhile
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
			if err := unix.SchedSetAttr(tid, &a, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return os.NewSyscallError("sched_setattr", err)
			}
		}
	}
	return nil
}
