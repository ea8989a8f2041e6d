package hostnet

import (
	"fmt"
	"os"
	"strings"

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

// PacketSockets returns nil when this process may open packet sockets, by opening
// one for a moment; else an error that wraps the kernel's.
func PacketSockets() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0 receives nothing
	if err != nil {
		return os.NewSyscallError("socket AF_PACKET", err)
	}
	return unix.Close(fd)
}

// InUserNamespace reports whether this process is in a user namespace other than
// the host's, so that its capabilities do not count for what is the host's, such
// as BPF. user_namespaces(7).
func InUserNamespace() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(b)), " ") != "0 0 4294967295"
}

// NoIPv6 says why an interface has no IPv6 and what gives it some, or "" where
// it has.
func NoIPv6(iface string) string {
	b, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + iface + "/disable_ipv6")
	switch {
	case err != nil:
		if _, err := os.Stat("/proc/sys/net/ipv6"); os.IsNotExist(err) {
			if _, err := os.Stat("/proc/sys/net/ipv4"); err == nil {
				return "the kernel runs without IPv6; boot it without 'ipv6.disable=1'"
			}
		}
	case strings.TrimSpace(string(b)) == "1":
		return fmt.Sprintf("IPv6 is switched off on %s; 'sysctl -w net.ipv6.conf.%[1]s.disable_ipv6=0' switches it on", iface)
	}
	return ""
}
