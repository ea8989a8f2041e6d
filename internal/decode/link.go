package decode

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

var be = binary.BigEndian

// EtherTypes that package wire has no use for.
const (
	etherTypeARP    = 0x0806
	etherTypeRoCEv1 = 0x8915
)

// Lengths of the headers that capture formats put in front.
const (
	nullLen = 4
	sllLen  = 16
	sll2Len = 20
	erfLen  = 16
)

// link decodes the frame from its first octet.
func (p *Packet) link(l pcap.Link, b []byte) {
	switch l {
	case pcap.Ethernet:
		p.ethernet(b)
	case pcap.Raw, pcap.IPv4, pcap.IPv6:
		p.ip(b)
	case pcap.Null, pcap.Loop:
		if len(b) < nullLen {
			p.fail(trace.DropShort, "")
			return
		}
		p.ip(b[nullLen:]) // the IP version says what the address family would
	case pcap.SLL:
		if len(b) < sllLen {
			p.fail(trace.DropShort, "")
			return
		}
		p.etherType(be.Uint16(b[14:]), b[sllLen:])
	case pcap.SLL2:
		if len(b) < sll2Len {
			p.fail(trace.DropShort, "")
			return
		}
		p.etherType(be.Uint16(b), b[sll2Len:])
	case pcap.ERF:
		p.erf(b)
	case pcap.InfiniBand:
		p.lrh(b)
	default:
		p.fail(trace.DropNotIP, "captured with "+l.String())
	}
}

func (p *Packet) ethernet(b []byte) {
	if len(b) < wire.EthernetLen {
		p.fail(trace.DropShort, "")
		return
	}
	h := wire.Ethernet(b)
	p.Eth = &Eth{Dst: net.HardwareAddr(h.Dst()).String(), Src: net.HardwareAddr(h.Src()).String(), Type: h.EtherType()}
	p.Src, p.Dst = p.Eth.Src, p.Eth.Dst
	p.etherType(h.EtherType(), b[wire.EthernetLen:])
}

// etherType decodes what follows an EtherType: up to two VLAN tags, then the
// packet.
func (p *Packet) etherType(t uint16, b []byte) {
	for range 2 {
		if t != wire.EtherTypeVLAN && t != wire.EtherTypeQinQ {
			break
		}
		if len(b) < wire.VLANLen {
			p.fail(trace.DropShort, "")
			return
		}
		v := wire.VLAN(b)
		p.VLAN = append(p.VLAN, VLAN{TPID: t, ID: v.VID(), PCP: v.PCP(), DEI: v.TCI()&0x1000 != 0})
		t, b = v.EtherType(), b[wire.VLANLen:]
	}
	if p.Eth != nil {
		p.Eth.Type = t
	}
	switch t {
	case wire.EtherTypeIPv4, wire.EtherTypeIPv6:
		p.ip(b)
	case etherTypeRoCEv1:
		p.Protocol = RoCEv1
		p.grh(nil, b)
	case etherTypeARP:
		p.fail(trace.DropNotIP, "ARP")
	default:
		p.fail(trace.DropNotIP, fmt.Sprintf("EtherType 0x%04x", t))
	}
}

// erf skips the header of an Endace record, with its extensions.
func (p *Packet) erf(b []byte) {
	if len(b) < erfLen {
		p.fail(trace.DropShort, "")
		return
	}
	more, kind := b[8]&0x80 != 0, b[8]&0x7f
	b = b[erfLen:]
	for more {
		if len(b) < 8 {
			p.fail(trace.DropShort, "")
			return
		}
		more, b = b[0]&0x80 != 0, b[8:]
	}
	switch kind {
	case 2, 11, 16, 20: // Ethernet: two octets of padding first
		if len(b) < 2 {
			p.fail(trace.DropShort, "")
			return
		}
		p.ethernet(b[2:])
	case 21, 25: // InfiniBand
		p.lrh(b)
	default:
		p.fail(trace.DropNotIP, fmt.Sprintf("ERF record type %d", kind))
	}
}
