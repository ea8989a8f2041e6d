package hostnet

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
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

// PortOwners returns the UDP sockets bound to a local port in the calling
// thread's network namespace.
func PortOwners(port uint16) ([]PortOwner, error) {
	var out []PortOwner
	var inodes []uint64
	for _, file := range [...]string{"/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"} {
		f, err := os.Open(file)
		if os.IsNotExist(err) {
			continue // no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("hostnet: list UDP sockets: %w", err)
		}
		s := bufio.NewScanner(f)
		for s.Scan() {
			if a, p, ino, ok := parseProcUDP(s.Text()); ok && p == port {
				out = append(out, PortOwner{Addr: a})
				inodes = append(inodes, ino)
			}
		}
		err = s.Err()
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("hostnet: read %s: %w", file, err)
		}
	}
	if len(out) > 0 {
		nameOwners(out, inodes)
	}
	return out, nil
}

// parseProcUDP reads a line of /proc/net/udp or udp6: the local address in
// words of the host's byte order, the port, and the socket's inode. proc(5).
func parseProcUDP(line string) (a netip.Addr, port uint16, inode uint64, ok bool) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return a, 0, 0, false
	}
	as, ps, found := strings.Cut(f[1], ":")
	b, err := hex.DecodeString(as)
	p, err2 := strconv.ParseUint(ps, 16, 16)
	inode, err3 := strconv.ParseUint(f[9], 10, 64)
	if !found || err != nil || err2 != nil || err3 != nil || len(b)%4 != 0 {
		return a, 0, 0, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok = netip.AddrFromSlice(b)
	return a.Unmap(), uint16(p), inode, ok
}

// nameOwners finds the processes that have the sockets open, as far as this
// process may look.
func nameOwners(out []PortOwner, inodes []uint64) {
	want := make(map[string]int, len(inodes))
	for i, n := range inodes {
		want["socket:["+strconv.FormatUint(n, 10)+"]"] = i
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil {
			continue // gone, or not ours to see
		}
		i, ok := want[target]
		if !ok || out[i].PID != 0 {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		out[i].PID, _ = strconv.Atoi(pid)
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		out[i].Command = strings.TrimSpace(string(comm))
	}
}
