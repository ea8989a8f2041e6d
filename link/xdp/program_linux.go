package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/wire"
)

// program is the XDP program of an interface and what it looks at.
type program struct {
	stations *ebpf.Map // IP address, as 16 octets -> MAC address that goes with it
	sockets  *ebpf.Map // queue -> socket
	missed   *ebpf.Map // one counter: packets for us on a queue without a socket
	prog     *ebpf.Program
	frags    bool          // it takes packets in several pieces
	at       ebpflink.Link // nil until attached
}

// loadProgram loads the program for so many addresses and queues. It is not
// attached yet.
func loadProgram(stations, queues int) (p *program, err error) {
	// Before Linux 5.11 maps count as locked memory. What can be done without
	// more of it is not known here, so the maps below tell.
	_ = rlimit.RemoveMemlock()
	p = new(program)
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&p.stations, ebpf.MapSpec{Name: "gorxe_stations", Type: ebpf.Hash, KeySize: 16, ValueSize: 8, MaxEntries: uint32(stations)}},
		{&p.sockets, ebpf.MapSpec{Name: "gorxe_sockets", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(queues)}},
		{&p.missed, ebpf.MapSpec{Name: "gorxe_missed", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
	} {
		if *m.to, err = ebpf.NewMap(&m.spec); err != nil {
			return p, fmt.Errorf("make the BPF map %s: %w", m.spec.Name, err)
		}
	}
	spec := ebpf.ProgramSpec{
		Name: "gorxe_rocev2", Type: ebpf.XDP, License: "Apache-2.0", Flags: unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: instructions(p.stations.FD(), p.sockets.FD(), p.missed.FD()),
	}
	p.frags = true
	p.prog, err = ebpf.NewProgram(&spec)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.18
		p.frags, spec.Flags = false, 0
		p.prog, err = ebpf.NewProgram(&spec)
	}
	if err != nil {
		return p, fmt.Errorf("load the XDP program: %w", err)
	}
	return p, nil
}

// close detaches the program and releases it.
func (p *program) close() {
	if p.at != nil {
		p.at.Close()
	}
	p.prog.Close() // of nil too, and below
	p.stations.Close()
	p.sockets.Close()
	p.missed.Close()
}

// attach attaches the program to an interface, to its driver if that can take
// it. When it cannot, native is false and why says so. The kernel detaches it
// when this process ends, however it ends (bpf_link).
func (p *program) attach(ifc *hostnet.Iface, generic bool) (native bool, why, err error) {
	at := ebpflink.XDPOptions{Program: p.prog, Interface: ifc.Index, Flags: ebpflink.XDPDriverMode}
	if !generic {
		if p.at, why = ebpflink.AttachXDP(at); why == nil {
			return true, nil, nil
		}
		p.at = nil
	}
	at.Flags = ebpflink.XDPGenericMode
	if l, err := ebpflink.AttachXDP(at); err == nil {
		p.at = l
		return false, why, nil
	} else if why == nil {
		why = err
	}
	if err := occupied(ifc); err != nil {
		return false, nil, err
	}
	if errors.Is(why, unix.EINVAL) {
		why = fmt.Errorf("%w; Linux 5.9 can attach one so that it goes with its process", why)
	}
	return false, nil, fmt.Errorf("attach the XDP program to %s: %w", ifc.Name, why)
}

// occupied returns the error for an interface that has a program already, or
// nil.
func occupied(ifc *hostnet.Iface) error {
	id, err := hostnet.XDPProgram(ifc.Index)
	if err != nil || id == 0 {
		return err
	}
	name := ""
	if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil {
		if i, err := p.Info(); err == nil && i.Name != "" {
			name = ", " + i.Name
		}
		p.Close()
	}
	return fmt.Errorf("interface %s: %w (number %d%s), and it can have only one: end the process that holds it, such as another gorxe device with --link xdp ('bpftool link' lists them), or remove it with 'ip link set dev %s xdp off'; or use --link udp, which needs none", ifc.Name, ErrOccupied, id, name, ifc.Name)
}

// serve makes the program take packets for an IP address; they must be for mac
// too.
func (p *program) serve(a netip.Addr, mac [6]byte) error {
	var v [8]byte
	copy(v[:], mac[:])
	if err := p.stations.Put(a.As16(), v); err != nil {
		return fmt.Errorf("take packets for %v: %w", a, err)
	}
	return nil
}

// ignore ends serve.
func (p *program) ignore(a netip.Addr) { _ = p.stations.Delete(a.As16()) }

// listen makes the program give the packets of a queue to a socket.
func (p *program) listen(queue, fd int) error {
	if err := p.sockets.Put(uint32(queue), uint32(fd)); err != nil {
		return fmt.Errorf("give queue %d its socket: %w", queue, err)
	}
	return nil
}

// misses returns how many packets for us came by a queue without a socket.
func (p *program) misses() (n uint64) {
	_ = p.missed.Lookup(uint32(0), &n)
	return n
}

// Offsets into struct xdp_md and the actions. Linux uapi/linux/bpf.h.
const (
	mdData, mdEnd, mdQueue = 0, 4, 16
	actionPass             = 2
	actionRedirect         = 4
)

// net16 is a number as it looks to a load of network octets.
func net16(v uint16) int32 { return int32(binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)})) }

// instructions is the program: a UDP packet to the RoCEv2 port of an address
// that is served, sent to the MAC address that goes with it, goes to the socket
// of its queue; everything else passes on to the stack. First fragments and
// packets with IPv4 options go to the socket as well, so that they are counted
// and explained; further fragments have no port and pass. Of tags it knows one,
// for VLAN 0 (priority).
func instructions(stations, sockets, missed int) asm.Instructions {
	const (
		ctx, data, end, at = asm.R6, asm.R7, asm.R8, asm.R9 // at: the header to look at
		key                = -16                            // on the stack
	)
	// need passes the packet on unless n octets follow reg.
	need := func(reg asm.Register, n int32) asm.Instructions {
		return asm.Instructions{asm.Mov.Reg(asm.R1, reg), asm.Add.Imm(asm.R1, n), asm.JGT.Reg(asm.R1, end, "pass")}
	}
	// bits passes the packet on if any of mask is set in the loaded value.
	bits := func(mask uint16) asm.Instructions {
		return asm.Instructions{asm.And.Imm(asm.R1, net16(mask)), asm.JNE.Imm(asm.R1, 0, "pass")}
	}
	var prog asm.Instructions
	add := func(is ...asm.Instruction) { prog = append(prog, is...) }

	add(
		asm.Mov.Reg(ctx, asm.R1),
		asm.LoadMem(data, ctx, mdData, asm.Word),
		asm.LoadMem(end, ctx, mdEnd, asm.Word),
	)
	add(need(data, wire.EthernetLen)...)
	add(
		asm.LoadMem(asm.R2, data, wire.EthernetLen-2, asm.Half),
		asm.Mov.Reg(at, data),
		asm.Add.Imm(at, wire.EthernetLen),
		asm.JNE.Imm(asm.R2, net16(wire.EtherTypeVLAN), "network"),
	)
	add(need(at, wire.VLANLen)...)
	add(asm.LoadMem(asm.R1, at, 0, asm.Half))
	add(bits(0x0fff)...)
	add(
		asm.LoadMem(asm.R2, at, 2, asm.Half),
		asm.Add.Imm(at, wire.VLANLen),
	)
	add(
		asm.JEq.Imm(asm.R2, net16(wire.EtherTypeIPv6), "ipv6").WithSymbol("network"),
		asm.JNE.Imm(asm.R2, net16(wire.EtherTypeIPv4), "pass"),
	)

	add(need(at, wire.IPv4Len)...)
	add(
		asm.LoadMem(asm.R1, at, 9, asm.Byte),
		asm.JNE.Imm(asm.R1, wire.ProtoUDP, "pass"),
		asm.LoadMem(asm.R1, at, 6, asm.Half),
	)
	add(bits(0x1fff)...) // fragment offset
	add(
		asm.StoreImm(asm.RFP, key, 0, asm.Word),
		asm.StoreImm(asm.RFP, key+4, 0, asm.Word),
		asm.StoreImm(asm.RFP, key+8, 0, asm.Half),
		asm.StoreImm(asm.RFP, key+10, -1, asm.Half), // 4-in-6
		asm.LoadMem(asm.R1, at, 16, asm.Word),
		asm.StoreMem(asm.RFP, key+12, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, at, 0, asm.Byte),
		asm.And.Imm(asm.R1, 0x0f), // header length in words
	)
	// Only who has CAP_PERFMON too may add it to a pointer.
	const least, most = 5, 15
	for words := int32(least); words <= most; words++ {
		next := "pass"
		if words < most {
			next = fmt.Sprint("words", words+1)
		}
		add(
			asm.JNE.Imm(asm.R1, words, next).WithSymbol(fmt.Sprint("words", words)),
			asm.Add.Imm(at, 4*words),
			asm.Ja.Label("udp"),
		)
	}

	v6 := need(at, wire.IPv6Len)
	v6[0] = v6[0].WithSymbol("ipv6")
	add(v6...)
	for o := range int16(4) {
		add(
			asm.LoadMem(asm.R1, at, 24+4*o, asm.Word),
			asm.StoreMem(asm.RFP, key+4*o, asm.R1, asm.Word),
		)
	}
	const fragment = 44 // next header; RFC 8200 section 4.5
	add(
		asm.LoadMem(asm.R2, at, 6, asm.Byte),
		asm.Add.Imm(at, wire.IPv6Len),
		asm.JEq.Imm(asm.R2, wire.ProtoUDP, "udp"),
		asm.JNE.Imm(asm.R2, fragment, "pass"),
	)
	add(need(at, 8)...)
	add(
		asm.LoadMem(asm.R1, at, 0, asm.Byte),
		asm.JNE.Imm(asm.R1, wire.ProtoUDP, "pass"),
		asm.LoadMem(asm.R1, at, 2, asm.Half),
	)
	add(bits(0xfff8)...) // fragment offset
	add(asm.Add.Imm(at, 8))

	udp := need(at, wire.UDPLen)
	udp[0] = udp[0].WithSymbol("udp")
	add(udp...)
	add(
		asm.LoadMem(asm.R1, at, 2, asm.Half),
		asm.JNE.Imm(asm.R1, net16(wire.Port), "pass"),
		asm.LoadMapPtr(asm.R1, stations),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R1, data, 0, asm.Word),
		asm.LoadMem(asm.R2, asm.R0, 0, asm.Word),
		asm.JNE.Reg(asm.R1, asm.R2, "pass"),
		asm.LoadMem(asm.R1, data, 4, asm.Half),
		asm.LoadMem(asm.R2, asm.R0, 4, asm.Half),
		asm.JNE.Reg(asm.R1, asm.R2, "pass"),

		asm.LoadMapPtr(asm.R1, sockets),
		asm.LoadMem(asm.R2, ctx, mdQueue, asm.Word),
		asm.Mov.Imm(asm.R3, actionPass), // when the queue has no socket
		asm.FnRedirectMap.Call(),
		asm.JEq.Imm(asm.R0, actionRedirect, "end"),
		asm.LoadMapValue(asm.R1, missed, 0),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, actionPass).WithSymbol("pass"),
		asm.Return().WithSymbol("end"),
	)
	return prog
}
