package packet

import (
	"golang.org/x/net/bpf"

	"github.com/gorxe/gorxe/wire"
)

// Facts of the kernel's socket filters that x/net/bpf does not name.
const (
	wholeFrame = 0xffffffff // keep every octet
	netOffset  = 0xfff00000 // SKF_NET_OFF: offsets count from the network header
	packetHost = 0          // PACKET_HOST: addressed to this station
	vlanIDBits = 0x0fff
	shardBits  = 0x0f
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

// acceptFilter lets in RoCEv2 frames that arrive on one of two interfaces,
// given by index, for this station: not the echo of what was sent, and
// neither other stations' nor other VLANs' frames. A tag is expected only
// with VLAN 0 (priority); the kernel has usually moved it out of the frame.
func acceptFilter(iface, lo int) program {
	arrived := program{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(iface), SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(lo), SkipTrue: 1},
		bpf.RetConstant{},
	}
	return join(
		arrived,
		check(bpf.LoadExtension{Num: bpf.ExtType}, bpf.JumpEqual, packetHost),
		check(bpf.LoadExtension{Num: bpf.ExtVLANTag}, bpf.JumpBitsNotSet, vlanIDBits),
		frameFilter(),
	)
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

// fanoutFilter picks the link of a group: the shard bits of the destination
// queue pair number in the BTH. The kernel takes the result modulo the size
// of the group.
func fanoutFilter() program {
	const qpn = 7 // lowest octet of the destination queue pair number in the BTH
	return join(
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
