package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/wire"
)

// dropper is a program on an interface that spares the stack what the links of
// an Open receive. It is the last of its kind there, so others see everything
// first, and the kernel detaches it when this process ends, however it ends
// (bpf_link).
type dropper struct {
	users atomic.Int32 // links

	mu      sync.Mutex
	prog    *ebpf.Program // nil when it could not follow
	at      ebpflink.Link
	ifindex int
	addrs   []netip.Addr
}

// attachDropper drops what arrives on an interface for addresses, once packet
// sockets have seen it, until release was called for every link.
func attachDropper(ifindex int, addrs []netip.Addr, links int) (*dropper, error) {
	d := new(dropper)
	d.users.Store(int32(links))
	return d, d.attach(ifindex, addrs)
}

// attach attaches a new program, in the place of the one that there may be.
func (d *dropper) attach(ifindex int, addrs []netip.Addr) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "gorxe_seen", Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: dropProgram(addrs),
	})
	if err != nil {
		return fmt.Errorf("load a BPF program: %w", err)
	}
	if d.at != nil && d.ifindex == ifindex {
		err = d.at.Update(prog)
	} else {
		var at ebpflink.Link
		at, err = ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			d.detach()
			d.at = at
		}
	}
	if err != nil {
		prog.Close()
		return fmt.Errorf("attach a BPF program: %w", err)
	}
	if d.prog != nil {
		d.prog.Close()
	}
	d.prog, d.ifindex, d.addrs = prog, ifindex, addrs
	return nil
}

// follow drops what arrives for other addresses, or on another interface, from now
// on. Where it may not, for want of the privilege that there was at first, it
// drops nothing more: what is not for the link is not the link's to drop.
func (d *dropper) follow(ifindex int, addrs []netip.Addr) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at != nil && d.ifindex == ifindex && slices.Equal(d.addrs, addrs) {
		return nil
	}
	err := d.attach(ifindex, addrs)
	if err != nil {
		d.detach()
		return fmt.Errorf("the tcx program that spares the stack what the link takes could not follow the addresses and is detached, so each packet goes through the stack as well: %w", err)
	}
	return nil
}

func (d *dropper) detach() {
	if d.at != nil {
		d.at.Close()
		d.prog.Close()
		d.at, d.prog = nil, nil
	}
}

// release gives up one link's share; the last one detaches the program.
func (d *dropper) release() {
	if d != nil && d.users.Add(-1) == 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.detach()
	}
}

// undropped says what a link does without when there is no dropper.
func undropped(ifc *hostnet.Iface, why error) string {
	todo := fmt.Sprintf("run as root, or grant it CAP_BPF and CAP_NET_ADMIN too, with 'setcap cap_bpf,cap_net_admin,cap_net_raw+ep %s'", self())
	if errors.Is(why, ebpf.ErrNotSupported) {
		todo = "Linux 6.6 has them"
	}
	return fmt.Sprintf("no tcx program on %s: %v; each packet also goes through the stack, as far as the UDP socket that holds the port, which takes time; %s", ifc.Name, why, todo)
}

// Offsets into struct __sk_buff and the verdicts. Linux uapi/linux/bpf.h.
const (
	skbType, skbVLAN, skbData, skbEnd = 4, 24, 76, 80

	verdictNext = -1 // let the next program say
	verdictDrop = 2
)

// net16 is a number as it looks to a load of network octets.
func net16(v uint16) int32 { return int32(binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)})) }

// dropProgram drops whole UDP packets to the RoCEv2 port of the addresses that
// are for this station and no VLAN: less than acceptFilter lets in. Fragments,
// and packets with options or extension headers, pass on to the stack, which
// drops what concerns the port later; so does what the kernel has not got the
// headers of in one piece.
func dropProgram(addrs []netip.Addr) asm.Instructions {
	const (
		ctx, data, end = asm.R6, asm.R7, asm.R8
		ip             = wire.EthernetLen
	)
	var prog asm.Instructions
	add := func(is ...asm.Instruction) { prog = append(prog, is...) }
	next := 0 // number of the address to compare with
	label := func() string { return fmt.Sprint("address", next) }
	udp := func(at int16) {
		add(
			asm.LoadMem(asm.R1, data, at+2, asm.Half),
			asm.JNE.Imm(asm.R1, net16(wire.Port), "next"),
		)
	}
	need := func(n int32) {
		add(
			asm.Mov.Reg(asm.R1, data),
			asm.Add.Imm(asm.R1, n),
			asm.JGT.Reg(asm.R1, end, "next"),
		)
	}
	compare := func(at int16, addr []byte) {
		this := label()
		next++
		for i := 0; i < len(addr); i += 4 {
			load := asm.LoadMem(asm.R1, data, at+int16(i), asm.Word)
			if i == 0 {
				load = load.WithSymbol(this)
			}
			add(load, asm.JNE.Imm32(asm.R1, int32(binary.NativeEndian.Uint32(addr[i:])), label()))
		}
		add(asm.Ja.Label("drop"))
	}
	last := func() { // no address is left
		add(asm.Ja.Label("next").WithSymbol(label()))
		next++
	}

	add(
		asm.Mov.Reg(ctx, asm.R1),
		asm.LoadMem(asm.R1, ctx, skbType, asm.Word),
		asm.JNE.Imm(asm.R1, packetHost, "next"),
		asm.LoadMem(asm.R1, ctx, skbVLAN, asm.Word),
		asm.And.Imm(asm.R1, vlanIDBits),
		asm.JNE.Imm(asm.R1, 0, "next"),
		asm.LoadMem(data, ctx, skbData, asm.Word),
		asm.LoadMem(end, ctx, skbEnd, asm.Word),
	)
	need(ip + wire.IPv4Len + wire.UDPLen)
	add(
		asm.LoadMem(asm.R1, data, ip-2, asm.Half),
		asm.JEq.Imm(asm.R1, net16(wire.EtherTypeIPv6), "ipv6"),
		asm.JNE.Imm(asm.R1, net16(wire.EtherTypeIPv4), "next"),
		asm.LoadMem(asm.R1, data, ip, asm.Byte),
		asm.JNE.Imm(asm.R1, 0x45, "next"),
		asm.LoadMem(asm.R1, data, ip+9, asm.Byte),
		asm.JNE.Imm(asm.R1, wire.ProtoUDP, "next"),
		asm.LoadMem(asm.R1, data, ip+6, asm.Half),
		asm.And.Imm(asm.R1, net16(0x3fff)), // more fragments, fragment offset
		asm.JNE.Imm(asm.R1, 0, "next"),
	)
	udp(ip + wire.IPv4Len)
	for _, a := range addrs {
		if a.Is4() {
			compare(ip+16, a.AsSlice())
		}
	}
	last()

	v6 := len(prog)
	need(ip + wire.IPv6Len + wire.UDPLen)
	prog[v6] = prog[v6].WithSymbol("ipv6")
	add(
		asm.LoadMem(asm.R1, data, ip+6, asm.Byte),
		asm.JNE.Imm(asm.R1, wire.ProtoUDP, "next"),
	)
	udp(ip + wire.IPv6Len)
	for _, a := range addrs {
		if a.Is6() {
			compare(ip+24, a.AsSlice())
		}
	}
	last()

	add(
		asm.Mov.Imm(asm.R0, verdictNext).WithSymbol("next"),
		asm.Return(),
	)
	if len(addrs) > 0 { // or nothing leads there
		add(
			asm.Mov.Imm(asm.R0, verdictDrop).WithSymbol("drop"),
			asm.Return(),
		)
	}
	return prog
}
