package hostnet

import (
	"fmt"
	"net/netip"
	"strings"
)

// PortOwner is who has a UDP port, as far as it can be seen.
type PortOwner struct {
	Addr    netip.Addr // unspecified when bound to every address; not valid when no socket was found
	UID     int        // of the socket; -1 when none was found
	PID     int        // 0 when no process was found
	Command string     // of PID
	Kernel  bool       // every process was looked at and none has the socket

	// Devices are the kernel's Soft-RoCE devices, when no process was found.
	Devices []string
}

// String names the owner and says what to do about it.
func (o PortOwner) String() string {
	switch {
	case o.PID != 0:
		return fmt.Sprintf("process %d (%s): stop it, or use another address of this host", o.PID, o.Command)
	case o.Kernel || len(o.Devices) > 0 && o.UID <= 0:
		if len(o.Devices) == 0 {
			return "the kernel, probably its Soft-RoCE: `rdma link` lists its devices, `rdma link delete NAME` removes one"
		}
		return "the kernel's Soft-RoCE: remove it with `rdma link delete " + strings.Join(o.Devices, "` and `rdma link delete ") + "`"
	case o.UID >= 0:
		return fmt.Sprintf("user %d: another gorxe program (stop it, or use another address of this host), or the kernel's Soft-RoCE (`rdma link delete NAME`); `ss -lunp sport = :4791` as root tells", o.UID)
	}
	return "somebody outside this network namespace's view: another gorxe program, or the kernel's Soft-RoCE (`rdma link delete NAME`)"
}

// Has reports whether the owner has the port of a.
func (o PortOwner) Has(a netip.Addr) bool {
	return o.Addr.IsUnspecified() || o.Addr.IsValid() && o.Addr == a.Unmap().WithZone("")
}

// FindPortOwner looks for who has a UDP port of an address that could not be
// bound.
func FindPortOwner(a netip.Addr, port uint16) PortOwner {
	all, err := PortOwners(port)
	if err == nil {
		for _, o := range all {
			if o.Has(a) {
				return o
			}
		}
	}
	return PortOwner{UID: -1, Devices: softRoCE()}
}
