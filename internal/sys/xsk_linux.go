package sys

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ChunkLen is the length of a piece of an XSK's memory, in octets: a page, the
// most that Linux takes. A longer packet is several.
const ChunkLen = 4096

// RxRoom is how much of a packet a chunk takes on receipt: the kernel keeps the
// rest before it (XDP_PACKET_HEADROOM).
const RxRoom = ChunkLen - unix.XDP_PACKET_HEADROOM

// XSKSize says how large an XSK is; every number but Chunks is entries of a
// ring, a power of two.
type XSKSize struct {
	Chunks   int // of memory
	Fill, Rx int
	Comp, Tx int // Tx may be 0: the socket only receives
}

// XSK is an AF_XDP socket on one queue of an interface, with memory of its own.
// Chunks of it go to the kernel through Fill and come back filled through Rx;
// they go through Tx to be sent and come back through Comp.
type XSK struct {
	FD   int
	Mem  []byte
	Fill Producer[uint64] // addresses of free chunks: offsets into Mem
	Rx   Consumer[XDPDesc]
	Tx   Producer[XDPDesc]
	Comp Consumer[uint64] // addresses of what was sent, one for each entry of Tx

	maps [][]byte
}

// NewXSK opens a socket and its memory. It receives nothing before Bind. The
// errors for a missing privilege wrap EPERM.
func NewXSK(s XSKSize) (x *XSK, err error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, fmt.Errorf("the kernel has no AF_XDP sockets (Linux 4.18, CONFIG_XDP_SOCKETS): %w", err)
	}
	if err != nil {
		return nil, os.NewSyscallError("socket AF_XDP", err)
	}
	x = &XSK{FD: fd}
	if err := x.setUp(&s); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

func (x *XSK) setUp(s *XSKSize) (err error) {
	const prot = unix.PROT_READ | unix.PROT_WRITE
	x.Mem, err = unix.Mmap(-1, 0, s.Chunks*ChunkLen, prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&x.Mem[0]))), Len: uint64(len(x.Mem)), Size: ChunkLen}
	if e := x.registerMemory(&reg); e == unix.ENOBUFS {
		return fmt.Errorf("%d octets for packets are more than this process may lock (RLIMIT_MEMLOCK); allow more with 'ulimit -l %d', or grant CAP_IPC_LOCK: %w", len(x.Mem), len(x.Mem)>>9, e)
	} else if e != 0 {
		return fmt.Errorf("setsockopt XDP_UMEM_REG: %w", e)
	}
	sizes := []struct {
		opt, n int
		name   string
	}{
		{unix.XDP_UMEM_FILL_RING, s.Fill, "XDP_UMEM_FILL_RING"},
		{unix.XDP_UMEM_COMPLETION_RING, s.Comp, "XDP_UMEM_COMPLETION_RING"},
		{unix.XDP_RX_RING, s.Rx, "XDP_RX_RING"},
		{unix.XDP_TX_RING, s.Tx, "XDP_TX_RING"},
	}
	for _, o := range sizes {
		if o.n == 0 {
			continue
		}
		if err := unix.SetsockoptInt(x.FD, unix.SOL_XDP, o.opt, o.n); err != nil {
			return fmt.Errorf("setsockopt %s: %w", o.name, err)
		}
	}
	return x.mapRings(s)
}

// registerMemory gives Mem to the kernel. Older kernels know a shorter structure
// and do not mind what follows it.
func (x *XSK) registerMemory(reg *unix.XDPUmemReg) syscall.Errno {
	n := unsafe.Sizeof(*reg)
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(x.FD), unix.SOL_XDP, unix.XDP_UMEM_REG, uintptr(unsafe.Pointer(reg)), n, 0)
	return e
}

func (x *XSK) mapRings(s *XSKSize) error {
	var off unix.XDPMmapOffsets
	if err := x.getsockopt(unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&off), unsafe.Sizeof(off)); err != nil {
		return err
	}
	desc := uint64(unsafe.Sizeof(XDPDesc{}))
	m, err := x.mapRing(unix.XDP_UMEM_PGOFF_FILL_RING, off.Fr.Desc+uint64(s.Fill)*8)
	if err != nil {
		return err
	}
	x.Fill.init(view[uint64](m, &off.Fr, s.Fill))
	if m, err = x.mapRing(unix.XDP_UMEM_PGOFF_COMPLETION_RING, off.Cr.Desc+uint64(s.Comp)*8); err != nil {
		return err
	}
	es, prod, cons, _ := view[uint64](m, &off.Cr, s.Comp)
	x.Comp.init(es, prod, cons)
	if m, err = x.mapRing(unix.XDP_PGOFF_RX_RING, off.Rx.Desc+uint64(s.Rx)*desc); err != nil {
		return err
	}
	ds, prod, cons, _ := view[XDPDesc](m, &off.Rx, s.Rx)
	x.Rx.init(ds, prod, cons)
	if s.Tx == 0 {
		return nil
	}
	if m, err = x.mapRing(unix.XDP_PGOFF_TX_RING, off.Tx.Desc+uint64(s.Tx)*desc); err != nil {
		return err
	}
	x.Tx.init(view[XDPDesc](m, &off.Tx, s.Tx))
	return nil
}

func (x *XSK) mapRing(at int64, n uint64) ([]byte, error) {
	m, err := unix.Mmap(x.FD, at, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap of an AF_XDP ring", err)
	}
	x.maps = append(x.maps, m)
	return m, nil
}

// Bind ties the socket to a queue of an interface. flags are unix.XDP_COPY and
// so on. Bind may be tried again with others. The error is a bare errno.
func (x *XSK) Bind(ifindex, queue int, flags uint16) error {
	return unix.Bind(x.FD, &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(ifindex), QueueID: uint32(queue)})
}

// ZeroCopy reports whether the driver reads and writes the memory itself.
func (x *XSK) ZeroCopy() bool {
	var o uint32
	return x.getsockopt(unix.XDP_OPTIONS, unsafe.Pointer(&o), 4) == nil && o&unix.XDP_OPTIONS_ZEROCOPY != 0
}

// Statistics returns what the kernel counted for this socket. A kernel before
// 5.9 knows only the first three.
func (x *XSK) Statistics() (s unix.XDPStatistics, err error) {
	err = x.getsockopt(unix.XDP_STATISTICS, unsafe.Pointer(&s), unsafe.Sizeof(s))
	return s, err
}

func (x *XSK) getsockopt(opt int, v unsafe.Pointer, n uintptr) error {
	l := uint32(n)
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(x.FD), unix.SOL_XDP, uintptr(opt), uintptr(v), uintptr(unsafe.Pointer(&l)), 0)
	if e != 0 {
		return fmt.Errorf("getsockopt of AF_XDP, option %d: %w", opt, e)
	}
	return nil
}

// Kick makes the kernel send what was submitted; without a driver's help it
// sends 32 entries at a call and says EAGAIN when there are more.
func (x *XSK) Kick() syscall.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(x.FD), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// SetSendBuffer asks for so many octets of packets that the kernel has copied
// and not yet got rid of; the limit is that of the system without
// CAP_NET_ADMIN. A full one stops Kick with EAGAIN.
func (x *XSK) SetSendBuffer(n int) error {
	_, err := SetSendBuffer(x.FD, n)
	return err
}

// WakeRx tells a driver that waits for chunks that there are some.
func (x *XSK) WakeRx() {
	_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(x.FD), 0, 0, unix.MSG_DONTWAIT, 0, 0)
}

// SetPriority sets skb->priority of what is sent from now on, where the kernel
// copies packets (SO_PRIORITY).
func (x *XSK) SetPriority(p uint8) syscall.Errno {
	return setsockopt(x.FD, unix.SOL_SOCKET, unix.SO_PRIORITY, p)
}

// Close releases the socket and its memory. Nobody may use either any more.
func (x *XSK) Close() {
	Close(x.FD)
	for _, m := range append(x.maps, x.Mem) {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
}
