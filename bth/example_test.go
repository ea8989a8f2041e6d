package bth_test

import (
	"fmt"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// An ACK as it stands in a UDP datagram to port 4791: BTH, AETH, ICRC.
func ExampleParse() {
	b := []byte{
		0x11, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x00, 0x00, 0x00, 0x64, // BTH
		0x1f, 0x00, 0x00, 0x05, // AETH
		0xde, 0xad, 0xbe, 0xef, // ICRC, which package wire checks
	}
	var p bth.Packet
	if r := bth.Parse(b, &p); r != trace.None {
		fmt.Println(r.Explain())
		return
	}
	fmt.Println(p.Opcode, p.DestQP, p.PSN, p.Syndrome, p.MSN)

	r := bth.Parse(b[:15], &p)
	fmt.Println(r)
	// Output:
	// RC_ACK 17 100 ACK 5
	// short_packet
}
