package relay

import (
	"encoding/binary"

	"github.com/gorxe/gorxe/wire"
)

// vnet is a virtio header, 10 octets in the host's byte order, that says what is
// unfinished about a frame. Virtio 1.2, section 5.1.6.
type vnet []byte

const (
	vnetLen = 10

	flagNeedsChecksum = 1 // the sum from checksumStart on is missing

	gsoNone  = 0
	gsoTCP4  = 1
	gsoTCP6  = 4
	gsoUDPL4 = 5    // UDP datagrams of equal length
	gsoECN   = 0x80 // flag on another type
)

// plain is the header of a frame that is as the wire has it.
var plain = make(vnet, vnetLen)

func (v vnet) needsChecksum() bool { return v[0]&flagNeedsChecksum != 0 }
func (v vnet) gso() byte           { return v[1] &^ gsoECN }
func (v vnet) headerLen() int      { return int(binary.NativeEndian.Uint16(v[2:])) }
func (v vnet) gsoSize() int        { return int(binary.NativeEndian.Uint16(v[4:])) }
func (v vnet) checksumStart() int  { return int(binary.NativeEndian.Uint16(v[6:])) }

// shift moves what the header points to by n octets.
func (v vnet) shift(n int) {
	if v.gso() != gsoNone {
		binary.NativeEndian.PutUint16(v[2:], uint16(v.headerLen()+n))
	}
	if v.needsChecksum() {
		binary.NativeEndian.PutUint16(v[6:], uint16(v.checksumStart()+n))
	}
}

// retag puts a VLAN tag back that the kernel took out of a frame: room is what
// precedes the frame, and the frame with the tag is returned.
//
// Preconditions: len(buf) >= wire.VLANLen+12, buf[wire.VLANLen:] is the frame.
func retag(v vnet, buf []byte, tpid, tci uint16) []byte {
	copy(buf, buf[wire.VLANLen:wire.VLANLen+12])
	binary.BigEndian.PutUint16(buf[12:], tpid)
	binary.BigEndian.PutUint16(buf[14:], tci)
	v.shift(wire.VLANLen)
	return buf
}

// packetLen returns how many octets of a frame the MTU counts: of the longest packet
// that a super-packet is cut into, or of the frame; without Ethernet header and
// VLAN tags.
func packetLen(v vnet, frame []byte) int {
	l2 := l2Len(frame)
	n := len(frame)
	if v.gso() != gsoNone && v.needsChecksum() {
		n = v.checksumStart() + v.gsoSize()
		switch v.gso() {
		case gsoUDPL4:
			n += wire.UDPLen
		case gsoTCP4, gsoTCP6:
			if at := v.checksumStart() + 12; at < len(frame) {
				n += int(frame[at]>>4) * 4
			}
		default: // sent as one datagram in fragments
			return 0
		}
	}
	return min(n, len(frame)) - l2
}

// l2Len returns the length of the Ethernet header and up to two VLAN tags.
func l2Len(frame []byte) int {
	n := wire.EthernetLen
	for range 2 {
		if len(frame) < n+wire.VLANLen {
			break
		}
		if t := binary.BigEndian.Uint16(frame[n-2:]); t != wire.EtherTypeVLAN && t != wire.EtherTypeQinQ {
			break
		}
		n += wire.VLANLen
	}
	return min(n, len(frame))
}
