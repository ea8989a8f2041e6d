package xdp

import (
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/link/internal/udptx"
	"github.com/gorxe/gorxe/wire"
)

const slotLen = slotChunks * sys.ChunkLen

// sender is the sending half of a link: bursts whose way is known leave as
// frames, all others by the stack.
type sender struct {
	x     *sys.XSK
	base  int // of the slots in the socket's memory
	zc    bool
	hops  *hops
	mac   [6]byte
	mtu   int
	ids   wire.IDPolicy
	stack *udptx.Sender

	free     []uint16       // slots
	left     [txSlots]uint8 // entries of a slot's frame that the kernel has not returned
	head     headers
	last     hopCache
	priority uint8 // of the socket
	down     syscall.Errno

	full                           atomic.Bool // the last Send was short for want of a slot
	packets, bytes, refused, short atomic.Uint64
	kicks                          atomic.Uint64 // system calls
}

func newSender(d *device, x *sys.XSK, base int, stack *udptx.Sender) *sender {
	s := &sender{
		x: x, base: base, zc: x.ZeroCopy(), hops: d.hops, mac: d.ifc.MAC, mtu: d.mtu, ids: stack.IDs(), stack: stack,
		free: make([]uint16, 0, txSlots),
	}
	for i := range txSlots {
		s.free = append(s.free, txSlots-1-uint16(i))
	}
	return s
}

// send sends bursts as link.Link describes.
//
//gorxe:hot
func (s *sender) send(bs []*wire.Burst) (segs int, err error) {
	s.full.Store(false)
	switch {
	case s.down == 0:
	case s.x.Tx.Pending() > 0:
		s.kick()
	default: // retry has sent what waited
		s.down = 0
	}
	s.reap() // so that the slots used last are used next: they are in the cache
	for len(bs) > 0 {
		b := bs[0]
		hop := s.hop(b)
		if hop == nil {
			k := 1
			for k < len(bs) && s.hop(bs[k]) == nil {
				k++
			}
			n, e := s.stack.Send(bs[:k])
			if segs += n; err == nil {
				err = e
			}
			if n < segments(bs[:k]) {
				break
			}
			bs = bs[k:]
			continue
		}
		if s.down != 0 {
			s.refused.Add(uint64(b.Len()))
			if segs += b.Len(); err == nil {
				err = &link.SendError{Src: b.Flow.Src, Dst: b.Flow.Dst, SrcPort: b.Flow.SrcPort, Err: s.down}
			}
			bs = bs[1:]
			continue
		}
		n := s.frames(b, hop)
		if segs += n; n < b.Len() {
			s.short.Add(1)
			s.full.Store(true)
			break
		}
		bs = bs[1:]
	}
	s.flush()
	return segs, err
}

func segments(bs []*wire.Burst) (n int) {
	for _, b := range bs {
		n += b.Len()
	}
	return n
}

// hop returns the station that a burst's frames go to, or nil when they leave
// by the stack: the station is not known (yet), is not on this interface, is a
// group (this host's members of it get a copy only from the stack), or the
// packets are too long, of which the stack has the better error.
func (s *sender) hop(b *wire.Burst) *hop {
	f := b.Flow
	if b.Len() == 0 || ipLen(f, b.SegLen()) > s.mtu || f.Dst.IsMulticast() {
		return nil
	}
	return s.last.find(s.hops, path{f.Src, f.Dst})
}

// frames puts the segments of a burst into the send ring, as many as there is
// room for.
func (s *sender) frames(b *wire.Burst, to *hop) (n int) {
	if p := b.Flow.Priority; p != s.priority {
		s.flush() // what is there has the other one
		if s.x.SetPriority(p) == 0 {
			s.priority = p
		}
	}
	size, bytes := 0, 0
	for i := range b.Segs {
		slot, ok := s.slot()
		if !ok {
			break
		}
		if l := b.Segs[i].Len; l != size {
			size = l
			s.head.set(b.Flow, s.mac, to.mac, l)
		}
		if s.ids == wire.IDCount {
			s.head.number(uint16(i))
		}
		addr := s.base + int(slot)*slotLen
		buf := append(s.x.Mem[addr:addr:addr+slotLen], s.head.b[:s.head.n]...)
		s.submit(slot, addr, len(b.AppendSegment(buf, i)))
		bytes += size
		n++
	}
	s.packets.Add(uint64(n))
	s.bytes.Add(uint64(bytes))
	return n
}

// slot returns a free slot, sending what is waiting if that makes one.
func (s *sender) slot() (uint16, bool) {
	if len(s.free) == 0 {
		s.flush()
		s.reap()
	}
	n := len(s.free)
	if n == 0 {
		return 0, false
	}
	slot := s.free[n-1]
	s.free = s.free[:n-1]
	return slot, true
}

// submit queues a frame of n octets. The ring has room for every slot.
func (s *sender) submit(slot uint16, addr, n int) {
	tx := &s.x.Tx
	tx.Free(slotChunks)
	s.left[slot] = 1
	d := sys.XDPDesc{Addr: uint64(addr), Len: uint32(n)}
	if n > sys.ChunkLen {
		d.Len, d.Options = sys.ChunkLen, unix.XDP_PKT_CONTD
		tx.Put(d)
		s.left[slot] = 2
		d = sys.XDPDesc{Addr: uint64(addr + sys.ChunkLen), Len: uint32(n - sys.ChunkLen)}
	}
	tx.Put(d)
}

// reap takes back the slots of what was sent.
func (s *sender) reap() {
	done := &s.x.Comp
	n := done.Refresh()
	for i := range n {
		slot := uint16((int(done.At(i)) - s.base) / slotLen)
		if s.left[slot]--; s.left[slot] == 0 {
			s.free = append(s.free, slot)
		}
	}
	if n > 0 {
		done.Release(n)
	}
}

// flush hands over what was queued and makes the kernel send it.
func (s *sender) flush() {
	s.x.Tx.Submit()
	if s.x.Tx.Pending() > 0 && s.x.Tx.NeedWakeup() {
		s.kick()
	}
}

// kick makes the kernel send. Where it copies, it sends so many a call, and
// everything before the last returns; older ones (Linux 6.12) show what they took
// only at the next call. What it could not send now stays in the ring, see retry.
func (s *sender) kick() {
	for same := 0; same < 2; {
		before := s.x.Tx.Pending()
		s.kicks.Add(1)
		errno := s.x.Kick()
		s.down = 0
		if errno == unix.ENETDOWN || errno == unix.ENXIO || errno == unix.ENODEV {
			s.down = errno
		}
		after := s.x.Tx.Pending()
		switch {
		case s.zc || after == 0:
			return
		case after < before:
			same = 0
		case errno != unix.EAGAIN:
			return
		default:
			same++
		}
	}
}

// retry tries to send what a kick has left in the ring, and reports whether
// there was something. It may be called beside Send.
func (s *sender) retry() bool {
	if s.x.Tx.Pending() == 0 || !s.x.Tx.NeedWakeup() {
		return false
	}
	s.kicks.Add(1)
	_ = s.x.Kick()
	return true
}

// stats adds what was sent to st.
func (s *sender) stats(st *link.Stats) {
	*st = s.stack.Stats()
	st.TxPackets += s.packets.Load()
	st.TxBytes += s.bytes.Load()
	st.TxErrors += s.refused.Load()
	st.TxShort += s.short.Load()
}
