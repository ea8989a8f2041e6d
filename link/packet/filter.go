package packet

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"

	"github.com/gorxe/gorxe/wire"
)

// Facts of the kernel's socket filters that x/net/bpf does not name.
const (
	wholeFrame      = 0xffffffff // keep every octet
	netOffset       = 0xfff00000 // SKF_NET_OFF: offsets count from the network header
	packetHost      = 0          // PACKET_HOST: addressed to this station
	packetMulticast = 2          // PACKET_MULTICAST: addressed to a group, of whatever address
	packetOutgoing  = 4          // PACKET_OUTGOING: sent by this host
	vlanIDBits      = 0x0fff
	shardBits       = 0x0f
)

type program = []bpf.Instruction

// check loads a value and drops the frame unless cond holds for it.
func check(load bpf.Instruction, cond bpf.JumpTest, val uint32) program {
	return program{load, bpf.JumpIf{Cond: cond, Val: val, SkipTrue: 1}, bpf.RetConstant{}}
}

// when runs a block, which must end in a return, if the value loaded last
// equals val.
func when(val uint32, block program) program {
	return append(program{bpf.JumpIf{Cond: bpf.JumpEqual, Val: val, SkipFalse: uint8(len(block))}}, block...)
}

// join concatenates programs.
func join(ps ...program) (out program) {
	for _, p := range ps {
		out = append(out, p...)
	}
	return out
}

var (
	accept = program{bpf.RetConstant{Val: wholeFrame}}
	drop   = program{bpf.RetConstant{}}
)

// length is which frames a packet socket takes.
type length int

const (
	anyLength length = iota
	short            // what fits in a short slot
	long             // the others
)

// filter goes on for frames of the length, and drops others.
func (l length) filter() program {
	switch l {
	case short:
		return check(bpf.LoadExtension{Num: bpf.ExtLen}, bpf.JumpLessOrEqual, shortFrame)
	case long:
		return check(bpf.LoadExtension{Num: bpf.ExtLen}, bpf.JumpGreaterThan, shortFrame)
	}
	return nil
}

// acceptFilter lets in RoCEv2 frames that arrive on one of two interfaces,
// given by index, for this station: not the echo of what was sent, and
// neither other stations' nor other VLANs' frames. A tag is expected only
// with VLAN 0 (priority); the kernel has usually moved it out of the frame.
// Frames for one of the groups pass too, from iface only, and there also what
// this host sends to them. Of all these it takes those of one length.
func acceptFilter(of length, iface, lo int, groups map[netip.Addr]member) program {
	arrived := program{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(iface), SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(lo), SkipTrue: 1},
		bpf.RetConstant{},
	}
	if iface != lo {
		stray := onMulticast(drop)
		arrived = join(arrived, program{bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(lo), SkipFalse: uint8(len(stray))}}, stray)
	}
	grouped := groupFilter(iface != lo, groups)
	return join(
		of.filter(),
		arrived,
		program{
			bpf.LoadExtension{Num: bpf.ExtType},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: packetHost, SkipFalse: 1},
			bpf.Jump{Skip: uint32(len(grouped))},
		},
		grouped,
		check(bpf.LoadExtension{Num: bpf.ExtVLANTag}, bpf.JumpBitsNotSet, vlanIDBits),
		frameFilter(),
	)
}

// groupFilter goes on for frames of the loaded type that are sent to a group,
// and drops others. It knows groups by the last four octets of their address;
// the receiver compares the rest.
func groupFilter(outgoing bool, groups map[netip.Addr]member) program {
	if len(groups) == 0 {
		return drop
	}
	types := program{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packetMulticast, SkipTrue: 1},
		bpf.RetConstant{},
	}
	if outgoing {
		types = program{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: packetMulticast, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: packetOutgoing, SkipTrue: 1},
			bpf.RetConstant{},
		}
	}
	match := drop // from the end on
	for g := range groups {
		match = join(program{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: tail(g), SkipFalse: 1},
			bpf.Jump{Skip: uint32(len(match) + len(drop))},
		}, match)
	}
	return join(types, onMulticast(match), drop)
}

// tail returns the last four octets of an address.
func tail(a netip.Addr) uint32 {
	b := a.AsSlice()
	return binary.BigEndian.Uint32(b[len(b)-4:])
}

// onMulticast runs a block for IP packets to a multicast (or IPv4 broadcast)
// address, with the last four octets of the address loaded.
func onMulticast(block program) program {
	const dst4, dst6 = netOffset + 16, netOffset + 24
	return join(program{
		bpf.LoadAbsolute{Off: netOffset, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf0},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x40, SkipFalse: 4},
		bpf.LoadAbsolute{Off: dst4, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: 224, SkipFalse: 6},
		bpf.LoadAbsolute{Off: dst4, Size: 4},
		bpf.Jump{Skip: 5},
		bpf.LoadAbsolute{Off: dst6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0xff, SkipFalse: 2},
		bpf.LoadAbsolute{Off: dst6 + 12, Size: 4},
		bpf.Jump{Skip: 1},
		bpf.Jump{Skip: uint32(len(block))},
	}, block)
}

// frameFilter judges by the octets of the frame alone. First fragments pass,
// so that they are counted and explained.
func frameFilter() program {
	tagged := join(
		check(bpf.LoadAbsolute{Off: wire.EthernetLen, Size: 2}, bpf.JumpBitsNotSet, vlanIDBits),
		ipFilter(wire.EthernetLen+wire.VLANLen),
	)
	return join(
		program{bpf.LoadAbsolute{Off: wire.EthernetLen - 2, Size: 2}},
		when(wire.EtherTypeVLAN, tagged),
		ipFilter(wire.EthernetLen),
	)
}

// ipFilter judges the packet at off, with its EtherType before it.
func ipFilter(off uint32) program {
	return join(
		program{bpf.LoadAbsolute{Off: off - 2, Size: 2}},
		when(wire.EtherTypeIPv4, ipv4Filter(off)),
		when(wire.EtherTypeIPv6, ipv6Filter(off)),
		drop,
	)
}

func ipv4Filter(off uint32) program {
	return join(
		check(bpf.LoadAbsolute{Off: off + 9, Size: 1}, bpf.JumpEqual, wire.ProtoUDP),
		check(bpf.LoadAbsolute{Off: off + 6, Size: 2}, bpf.JumpBitsNotSet, 0x1fff), // fragment offset
		program{bpf.LoadMemShift{Off: off}},
		check(bpf.LoadIndirect{Off: off + 2, Size: 2}, bpf.JumpEqual, wire.Port),
		accept,
	)
}

func ipv6Filter(off uint32) program {
	const fragment = 44 // next header; RFC 8200 section 4.5
	udp := join(check(bpf.LoadAbsolute{Off: off + 42, Size: 2}, bpf.JumpEqual, wire.Port), accept)
	first := join(
		check(bpf.LoadAbsolute{Off: off + 40, Size: 1}, bpf.JumpEqual, wire.ProtoUDP),
		check(bpf.LoadAbsolute{Off: off + 42, Size: 2}, bpf.JumpBitsNotSet, 0xfff8), // fragment offset
		check(bpf.LoadAbsolute{Off: off + 50, Size: 2}, bpf.JumpEqual, wire.Port),
		accept,
	)
	return join(
		program{bpf.LoadAbsolute{Off: off + 6, Size: 1}},
		when(wire.ProtoUDP, udp),
		when(fragment, first),
		drop,
	)
}

// fanoutFilter picks the link of a group of sockets: the one that joined the
// multicast group, or by the shard bits of the destination queue pair number
// in the BTH. The kernel takes the result modulo the number of sockets.
func fanoutFilter(groups map[netip.Addr]member) program {
	const qpn = 7 // lowest octet of the destination queue pair number in the BTH
	var joined program
	for g, m := range groups {
		joined = join(joined, when(tail(g), program{bpf.RetConstant{Val: uint32(m.link)}}))
	}
	if joined != nil {
		joined = onMulticast(joined)
	}
	return join(
		joined,
		program{
			bpf.LoadAbsolute{Off: netOffset, Size: 1},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf0},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x40, SkipFalse: 2},
			bpf.LoadAbsolute{Off: netOffset + wire.IPv4Len + wire.UDPLen + qpn, Size: 1},
			bpf.Jump{Skip: 1},
			bpf.LoadAbsolute{Off: netOffset + wire.IPv6Len + wire.UDPLen + qpn, Size: 1},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: shardBits},
			bpf.RetA{},
		},
	)
}
