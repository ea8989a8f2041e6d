package packet

import (
	"encoding/binary"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// The virtio header that PACKET_VNET_HDR puts before each frame, in the
// host's byte order. Virtio 1.2, section 5.1.6.
const (
	vnetLen     = 10
	vnetGSOType = 1
	vnetGSOSize = 4

	gsoNone  = 0
	gsoUDPL4 = 5    // UDP datagrams of equal length
	gsoECN   = 0x80 // flag on another type
)

// The header that begins a slot of a receive ring, tpacket2_hdr in the host's
// byte order. Linux uapi/linux/if_packet.h.
const (
	slotHeader  = 32
	slotSnapLen = 8  // octets of the frame in the slot
	slotMAC     = 12 // where it begins; its virtio header is right before
	slotSec     = 16 // when it came
	slotNsec    = 20
)

// earlier reports whether the frame in slot a came before that in b.
//
// Preconditions: len(a) >= slotHeader, len(b) >= slotHeader.
func earlier(a, b []byte) bool {
	sa, sb := binary.NativeEndian.Uint32(a[slotSec:]), binary.NativeEndian.Uint32(b[slotSec:])
	if sa != sb {
		return int32(sa-sb) < 0
	}
	return binary.NativeEndian.Uint32(a[slotNsec:]) < binary.NativeEndian.Uint32(b[slotNsec:])
}

// parseSlot fills d from a slot of a receive ring, as parseMessage does.
//
//gorxe:hot
func parseSlot(slot []byte, d *wire.Datagram) trace.Reason {
	if len(slot) < slotHeader {
		return trace.DropShort
	}
	n := int(binary.NativeEndian.Uint32(slot[slotSnapLen:]))
	mac := int(binary.NativeEndian.Uint16(slot[slotMAC:]))
	if mac < slotHeader+vnetLen || mac > len(slot) || n > len(slot)-mac {
		return trace.DropShort
	}
	return parseMessage(slot[mac-vnetLen:mac+n], d)
}

// parseMessage fills d from a message of the packet socket: virtio header and
// frame. It returns trace.None or why it is no RoCEv2 packet. Payload and L2
// alias the message.
//
//gorxe:hot
func parseMessage(msg []byte, d *wire.Datagram) trace.Reason {
	if len(msg) < vnetLen {
		return trace.DropShort
	}
	if r := wire.ParseFrame(msg[vnetLen:], d); r != trace.None {
		return r
	}
	switch msg[vnetGSOType] &^ gsoECN {
	case gsoNone:
	case gsoUDPL4:
		seg := int(binary.NativeEndian.Uint16(msg[vnetGSOSize:]))
		if seg == 0 {
			return trace.DropUDPLen
		}
		if seg < len(d.Payload) {
			d.SegLen = seg
		}
	default: // one datagram that the wire carries in fragments
		return trace.DropFragment
	}
	return trace.None
}
