package wire_test

import (
	"encoding/hex"
	"fmt"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// A congestion notification recorded from a ConnectX-4 Lx, from the IP header
// on: the three steps from octets to a packet.
func Example() {
	frame, _ := hex.DecodeString("45c2003c718c4000401191610a0011010a001201" + "000012b700280000" +
		"8100ffff4000011800000000" + "00000000000000000000000000000000" + "82fd002a")
	var d wire.Datagram
	if r := wire.ParseIP(frame, &d); r != trace.None {
		fmt.Println(r.Explain())
		return
	}
	v := wire.NewVerifier()
	for i := range d.Segments() {
		var p bth.Packet
		if r := v.Check(0, &d, i); r != trace.None {
			fmt.Println(r.Explain())
			continue
		}
		bth.Parse(d.Segment(i), &p)
		fmt.Println(d.Src, d.Dst, "DSCP", d.TOS>>2, p.Opcode, "for QP", p.DestQP)
	}
	frame[len(frame)-1] ^= 1
	fmt.Println(v.Check(0, &d, 0))
	// Output:
	// 10.0.17.1 10.0.18.1 DSCP 48 CNP for QP 280
	// icrc_error
}
