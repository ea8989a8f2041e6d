package sys

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PacketRing is the memory that a packet socket puts arriving frames into
// (TPACKET_V2): slots of one length, which the kernel fills in turn. Each
// begins with a word that says whose the slot is, so that looking for a frame
// is a load. Linux Documentation/networking/packet_mmap.rst.
//
//	   kernel fills              Take               GiveBack
//	free ---------> has arrived ------> lent out ------------> free
//
// One goroutine at a time may use it, but Close anyone, once.
type PacketRing struct {
	slots [][]byte
	next  int // slot to look at
	held  int // slots before it that are lent out

	mem []byte
}

// PacketRingSize says how large a ring is. The kernel looks for memory of a
// block's length; when it finds none in one piece it makes do.
type PacketRingSize struct {
	Slot       int // octets, a multiple of 16, of which 90 or so are not the frame's
	BlockSlots int
	Blocks     int
}

// NewPacketRing gives a packet socket that is not bound yet a ring. The socket's
// other options come before it.
func NewPacketRing(fd int, s PacketRingSize) (*PacketRing, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return nil, fmt.Errorf("setsockopt PACKET_VERSION: %w", err)
	}
	page := os.Getpagesize()
	block := (s.BlockSlots*s.Slot + page - 1) / page * page
	req := unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(s.Blocks),
		Frame_size: uint32(s.Slot), Frame_nr: uint32(s.BlockSlots * s.Blocks),
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, fmt.Errorf("setsockopt PACKET_RX_RING: %w", err)
	}
	n := block * s.Blocks
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		// Without its memory the socket would fill a ring that nobody reads.
		_ = unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, new(unix.TpacketReq))
		return nil, os.NewSyscallError("mmap of a packet ring", err)
	}
	r := &PacketRing{mem: unsafe.Slice((*byte)(p), n)}
	for b := range s.Blocks {
		for i := range s.BlockSlots {
			at := b*block + i*s.Slot
			r.slots = append(r.slots, r.mem[at:at+s.Slot:at+s.Slot])
		}
	}
	// The address range stays this ring's as long as somebody can look at it.
	runtime.AddCleanup(r, func(m []byte) { _ = unix.MunmapPtr(unsafe.Pointer(&m[0]), uintptr(len(m))) }, r.mem)
	return r, nil
}

// owner is the word that says whose a slot is.
func (r *PacketRing) owner(slot int) *uint32 { return (*uint32)(unsafe.Pointer(&r.slots[slot][0])) }

// Slots returns how many frames there is room for.
func (r *PacketRing) Slots() int { return len(r.slots) }

// Idle reports whether there is nothing to do: no frame has arrived, and no
// slot is lent out. It is two loads.
func (r *PacketRing) Idle() bool {
	return r.held == 0 && atomic.LoadUint32(r.owner(r.next))&unix.TP_STATUS_USER == 0
}

// Peek returns the slot of the next frame, a tpacket2_hdr and what its fields
// point to; nil when there is none.
func (r *PacketRing) Peek() []byte {
	if r.held == len(r.slots) || atomic.LoadUint32(r.owner(r.next))&unix.TP_STATUS_USER == 0 {
		return nil
	}
	return r.slots[r.next]
}

// Take lends that slot out until GiveBack.
//
// Preconditions: Peek() != nil.
func (r *PacketRing) Take() {
	if r.next++; r.next == len(r.slots) {
		r.next = 0
	}
	r.held++
}

// GiveBack gives the kernel all slots that are lent out.
func (r *PacketRing) GiveBack() {
	for ; r.held > 0; r.held-- {
		i := r.next - r.held
		if i < 0 {
			i += len(r.slots)
		}
		atomic.StoreUint32(r.owner(i), unix.TP_STATUS_KERNEL)
	}
}

// Close lets go of the socket, whose descriptor is the caller's, and of its
// memory. Whoever is looking at the ring, or at a frame, beside it or later
// finds zeros there, and so an empty ring.
func (r *PacketRing) Close() {
	_, _ = unix.MmapPtr(-1, 0, unsafe.Pointer(&r.mem[0]), uintptr(len(r.mem)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
}
