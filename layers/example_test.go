package layers_test

import (
	"encoding/hex"
	"fmt"
	"log"
	"net"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/bth"
	roce "github.com/gorxe/gorxe/layers"
)

// frame is an RDMA WRITE of five octets.
const frame = "02000000000202000000000108004500004400004000401126a70a0000010a000002" + // Ethernet, IPv4
	"c00012b70030f485" + // UDP
	"0a30ffff0000001180000064" + // BTH
	"00007f1200340000000012340000000568656c6c6f000000f95acafb" // RETH, payload, pad, ICRC

// A frame's layers, and their fields.
func Example() {
	data, err := hex.DecodeString(frame)
	if err != nil {
		log.Fatal(err)
	}
	p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
	for _, l := range p.Layers() {
		fmt.Println(l.LayerType(), len(l.LayerContents()))
	}
	if b, ok := p.Layer(roce.LayerTypeBTH).(*roce.BTH); ok {
		fmt.Printf("%v to QP %#06x, PSN %v, ack wanted: %v\n", b.Opcode, uint32(b.DestQP), b.PSN, b.AckReq)
	}
	if r, ok := p.Layer(roce.LayerTypeRETH).(*roce.RETH); ok {
		fmt.Printf("%d octets at %#x, key %#x: %q\n", r.DMALen, r.VA, r.RKey, p.ApplicationLayer().Payload())
	}
	fmt.Println("ICRC:", roce.VerifyICRC(p))
	// Output:
	// Ethernet 14
	// IPv4 20
	// UDP 8
	// BTH 12
	// RETH 16
	// Payload 5
	// ICRC 7
	// RC_WRITE_ONLY to QP 0x000011, PSN 100, ack wanted: true
	// 5 octets at 0x7f1200340000, key 0x1234: "hello"
	// ICRC: <nil>
}

// Building a packet: FixLengths pads the payload and sets the lengths, and
// ComputeChecksums seals it.
func Example_build() {
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{
		Version: 4, TTL: 64, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolUDP,
		SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2},
	}
	udp := &layers.UDP{SrcPort: 0xc000, DstPort: 4791}
	b := &roce.BTH{Opcode: bth.RCWriteOnly, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: bth.MakePSN(100)}
	write := &roce.RETH{VA: 0x7f1200340000, RKey: 0x1234, DMALen: 5}

	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		log.Fatal(err)
	}
	if err := b.SetLayersForChecksum(ip, udp); err != nil {
		log.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, udp, b, write, gopacket.Payload("hello"), &roce.ICRC{}); err != nil {
		log.Fatal(err)
	}
	p := gopacket.NewPacket(buf.Bytes(), layers.LayerTypeEthernet, gopacket.Default)
	fmt.Println("pad:", b.PadCount)
	fmt.Println("ICRC:", roce.VerifyICRC(p))
	fmt.Println("the frame above:", hex.EncodeToString(buf.Bytes()) == frame)
	// Output:
	// pad: 3
	// ICRC: <nil>
	// the frame above: true
}

// A parser decodes a stream of packets into the same layers, and allocates
// nothing.
func ExampleStack() {
	data, err := hex.DecodeString(frame)
	if err != nil {
		log.Fatal(err)
	}
	var (
		eth   layers.Ethernet
		ip    layers.IPv4
		udp   layers.UDP
		stack roce.Stack
	)
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &ip, &udp)
	stack.AddTo(parser)
	var decoded []gopacket.LayerType
	if err := parser.DecodeLayers(data, &decoded); err != nil {
		log.Fatal(err)
	}
	fmt.Println(decoded)
	fmt.Println(stack.BTH.Opcode, stack.RETH.DMALen, "ICRC:", stack.BTH.Trailer().Verify(&ip, &udp))
	// Output:
	// [Ethernet IPv4 UDP BTH RETH Payload]
	// RC_WRITE_ONLY 5 ICRC: <nil>
}
