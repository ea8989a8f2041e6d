package script_test

import (
	"fmt"

	"github.com/gorxe/gorxe/script"
)

// A rule as a script, run against this module's engine. Engines of other making
// give Options.Make.
func Example() {
	s, err := script.Parse("duplicate-send.pkt", `
# A duplicate SEND is acknowledged again and not executed.
rule duplicate-send
qp rc mtu=1024 epsn=100
recv id=1 len=64
0ms    <  SEND_ONLY  psn=100 ack len=8
0ms    >  ACK        psn=100 msn=1
0ms    cq recv id=1 len=8
1ms    <  SEND_ONLY  psn=100 ack len=8
1ms    >  ACK        psn=100 msn=2
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Run(script.Options{}))
	// Output:
	// duplicate-send.pkt:10: 1ms    >  ACK        psn=100 msn=2
	// 	got > ACK psn=100 msn=1
	// 	msn is 1, not 2
	// 	last packets:
	// 		0s < SEND_ONLY psn=100 len=8 ack
	// 		0s > ACK psn=100 msn=1
	// 		1ms < SEND_ONLY psn=100 len=8 ack
	// 		1ms > ACK psn=100 msn=1
}
