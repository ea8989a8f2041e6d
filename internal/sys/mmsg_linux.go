package sys

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// cmsg is a control message with an integer in it: CMSG_SPACE(4) octets.
type cmsg struct {
	hdr unix.Cmsghdr
	val [unix.SizeofPtr / 4]int32
}

// TxMeta is what a message carries beside its octets.
type TxMeta struct {
	To      netip.AddrPort
	Scope   uint32 // interface index for a link-local destination
	TOS     uint8  // traffic class
	TTL     uint8  // hop limit; 0 leaves it to the socket
	Marked  bool   // the socket has the traffic class already; see MarkPriority4
	Segment uint16 // cut the message into datagrams of so many octets; 0: it is one
}

// TxBatch is an array of messages for one sendmmsg, with all the memory it
// needs. Fill it with Add, Piece, Piece..., send it, Reset it.
type TxBatch struct {
	msgs  []mmsghdr
	names []unix.RawSockaddrInet6
	ctl   [][3]cmsg
	iov   []unix.Iovec
	nm    int
	nv    int
}

// NewTxBatch returns a batch of at most msgs messages in at most pieces pieces.
func NewTxBatch(msgs, pieces int) *TxBatch {
	return &TxBatch{
		msgs: make([]mmsghdr, msgs), names: make([]unix.RawSockaddrInet6, msgs),
		ctl: make([][3]cmsg, msgs), iov: make([]unix.Iovec, pieces),
	}
}

// Reset empties the batch and lets go of the pieces' memory.
func (b *TxBatch) Reset() {
	clear(b.iov[:b.nv])
	b.nm, b.nv = 0, 0
}

// Len returns the number of messages.
func (b *TxBatch) Len() int { return b.nm }

// Fits reports whether one more message of n pieces has room.
func (b *TxBatch) Fits(n int) bool { return b.nm < len(b.msgs) && b.nv+n <= len(b.iov) }

// Add begins a message.
func (b *TxBatch) Add(m *TxMeta) {
	i := b.nm
	b.nm++
	h, ctl := &b.msgs[i].hdr, &b.ctl[i]
	h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
	h.Namelen = putSockaddr(&b.names[i], m.To, m.Scope)
	h.Iov = &b.iov[min(b.nv, len(b.iov)-1)]
	h.SetIovlen(0)
	level, tos, ttl := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS), int32(unix.IPV6_HOPLIMIT)
	if m.To.Addr().Is4() {
		level, tos, ttl = unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	}
	n := 0
	if !m.Marked {
		ctl[n].set(level, tos, int32(m.TOS))
		n++
	}
	if m.TTL != 0 {
		ctl[n].set(level, ttl, int32(m.TTL))
		n++
	}
	if m.Segment != 0 {
		c := &ctl[n]
		c.set(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0)
		c.hdr.SetLen(unix.CmsgLen(2))
		*(*uint16)(unsafe.Pointer(&c.val)) = m.Segment
		n++
	}
	h.Control = (*byte)(unsafe.Pointer(ctl))
	h.SetControllen(n * int(unsafe.Sizeof(cmsg{}))) // may be 0
}

func (c *cmsg) set(level, typ, v int32) {
	c.hdr.Level, c.hdr.Type = level, typ
	c.hdr.SetLen(unix.CmsgLen(4))
	c.val[0] = v
}

// Piece adds octets to the message begun last. They are borrowed until Reset.
func (b *TxBatch) Piece(p []byte) {
	if len(p) == 0 {
		return
	}
	v := &b.iov[b.nv]
	v.Base = &p[0]
	v.SetLen(len(p))
	b.nv++
	h := &b.msgs[b.nm-1].hdr
	h.SetIovlen(int(h.Iovlen) + 1)
}

// Send offers the messages to fd, which must be non-blocking, and returns how
// many it took. An errno is that of the first message; one that a later
// message meets is found by sending that message first.
func (b *TxBatch) Send(fd int) (int, syscall.Errno) { return b.SendFrom(fd, 0) }

// SendFrom is Send without the messages before the first'th.
func (b *TxBatch) SendFrom(fd, first int) (int, syscall.Errno) {
	if b.nm-first == 1 { // costs less than a batch of one
		_, _, e := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[first].hdr)), unix.MSG_NOSIGNAL)
		if e != 0 {
			return 0, e
		}
		return 1, 0
	}
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[first])), uintptr(b.nm-first), unix.MSG_NOSIGNAL, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// rxControl is room for traffic class, hop limit, segment size and drop count.
const rxControl = 128

// RxBatch is an array of receive buffers for one recvmmsg, with all the memory
// it needs.
type RxBatch struct {
	msgs  []mmsghdr
	names []unix.RawSockaddrInet6
	ctl   [][rxControl]byte
	iov   []unix.Iovec
	buf   []byte
	size  int
}

// RxMessage is one received message.
type RxMessage struct {
	From      netip.Addr
	Port      uint16
	TOS       uint8 // traffic class
	TTL       uint8 // hop limit; 0 when not known
	Truncated bool
	Segment   int    // octets of each merged datagram but the last; 0: not merged
	Dropped   uint32 // datagrams the socket had no room for so far, when HasDrops
	HasDrops  bool
	Payload   []byte // borrowed until the next Recv
}

// NewRxBatch returns a batch of n buffers of size octets.
func NewRxBatch(n, size int) *RxBatch {
	b := &RxBatch{
		msgs: make([]mmsghdr, n), names: make([]unix.RawSockaddrInet6, n),
		ctl: make([][rxControl]byte, n), iov: make([]unix.Iovec, n), buf: make([]byte, n*size), size: size,
	}
	for i := range n {
		b.iov[i].Base = &b.buf[i*size]
		b.iov[i].SetLen(size)
		h := &b.msgs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Iov = &b.iov[i]
		h.SetIovlen(1)
		h.Control = &b.ctl[i][0]
		b.rearm(i)
	}
	return b
}

// rearm restores the lengths that the kernel overwrote.
func (b *RxBatch) rearm(i int) {
	h := &b.msgs[i].hdr
	h.Namelen = unix.SizeofSockaddrInet6
	h.SetControllen(rxControl)
	h.Flags = 0
}

// Recv takes at most limit messages from fd, which must be non-blocking.
func (b *RxBatch) Recv(fd, limit int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])), uintptr(min(limit, len(b.msgs))), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		b.rearm(0) // the kernel may have written to it
		return 0, e
	}
	return int(n), 0
}

// RecvOne is Recv of one message, which costs less than a batch of one.
func (b *RxBatch) RecvOne(fd int) (int, syscall.Errno) {
	m := &b.msgs[0]
	n, _, e := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.hdr)), unix.MSG_DONTWAIT)
	if e != 0 {
		b.rearm(0)
		return 0, e
	}
	m.len = uint32(n)
	return 1, 0
}

// Take decodes message i of the last Recv and makes its slot ready for the
// next. Each received message must be taken once.
func (b *RxBatch) Take(i int, m *RxMessage) {
	h := &b.msgs[i].hdr
	*m = RxMessage{Truncated: h.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0}
	m.From, m.Port = getSockaddr(&b.names[i])
	off := i * b.size
	end := off + min(int(b.msgs[i].len), b.size)
	m.Payload = b.buf[off:end:end]
	ctl := b.ctl[i][:min(int(h.Controllen), rxControl)]
	for len(ctl) >= unix.SizeofCmsghdr {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[0]))
		n := int(c.Len)
		if n < unix.SizeofCmsghdr || n > len(ctl) {
			break
		}
		m.control(c, ctl[unix.CmsgLen(0):n])
		ctl = ctl[min(unix.CmsgSpace(n-unix.CmsgLen(0)), len(ctl)):]
	}
	b.rearm(i)
}

func (m *RxMessage) control(c *unix.Cmsghdr, data []byte) {
	if len(data) == 0 {
		return
	}
	var v int32
	if len(data) >= 4 {
		v = *(*int32)(unsafe.Pointer(&data[0]))
	} else {
		v = int32(data[0]) // IP_TOS is one octet
	}
	switch [2]int32{c.Level, c.Type} {
	case [2]int32{unix.IPPROTO_IP, unix.IP_TOS}, [2]int32{unix.IPPROTO_IPV6, unix.IPV6_TCLASS}:
		m.TOS = uint8(v)
	case [2]int32{unix.IPPROTO_IP, unix.IP_TTL}, [2]int32{unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT}:
		m.TTL = uint8(v)
	case [2]int32{unix.IPPROTO_UDP, unix.UDP_GRO}:
		m.Segment = int(v)
	case [2]int32{unix.SOL_SOCKET, unix.SO_RXQ_OVFL}:
		m.Dropped, m.HasDrops = uint32(v), true
	}
}
