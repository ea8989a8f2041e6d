package hostnet

import (
	"fmt"
	"net/netip"
)

// Caps tells which of the capabilities that a link can use are in effect.
// capabilities(7).
type Caps struct {
	NetRaw   bool // packet sockets
	NetAdmin bool // large receive buffers, XDP
	BPF      bool // load BPF programs; CAP_SYS_ADMIN includes it
}

// PortOwner is a UDP socket bound to a port.
type PortOwner struct {
	Addr netip.Addr // unspecified when bound to every address

	// PID and Command name the process; PID is 0 when none is visible: it is
	// another user's, or the kernel itself (Soft-RoCE) holds the port.
	PID     int
	Command string
}

// String says who it is, for an error message.
func (o PortOwner) String() string {
	if o.PID == 0 {
		return fmt.Sprintf("%v: no process visible here; another user's, or the kernel's Soft-RoCE (see 'rdma link')", o.Addr)
	}
	return fmt.Sprintf("%v: %s (pid %d)", o.Addr, o.Command, o.PID)
}
