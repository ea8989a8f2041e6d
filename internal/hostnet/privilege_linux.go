package hostnet

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Capabilities returns what is in effect for the calling thread.
func Capabilities() (Caps, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&hdr, &d[0]); err != nil {
		return Caps{}, fmt.Errorf("hostnet: capget: %w", err)
	}
	eff := uint64(d[1].Effective)<<32 | uint64(d[0].Effective)
	has := func(bit int) bool { return eff>>bit&1 != 0 }
	return Caps{
		NetRaw: has(unix.CAP_NET_RAW), NetAdmin: has(unix.CAP_NET_ADMIN),
		BPF: has(unix.CAP_BPF) || has(unix.CAP_SYS_ADMIN),
	}, nil
}
