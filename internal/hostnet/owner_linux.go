package hostnet

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PortOwners returns who has a UDP port, one for each socket bound to it in
// the calling thread's network namespace.
func PortOwners(port uint16) ([]PortOwner, error) {
	var out []PortOwner
	var inodes []string
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
			if l, ok := parseProcUDP(s.Text()); ok && l.port == port {
				out = append(out, PortOwner{Addr: l.addr, UID: l.uid})
				inodes = append(inodes, l.inode)
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

// procUDP is a line of /proc/net/udp or udp6.
type procUDP struct {
	addr  netip.Addr
	port  uint16
	uid   int
	inode string
}

// parseProcUDP reads a line: the local address in words of the host's byte
// order, the port, and further on the socket's user and inode. proc(5).
func parseProcUDP(line string) (l procUDP, ok bool) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return l, false
	}
	host, port, _ := strings.Cut(f[1], ":")
	b, err := hex.DecodeString(host)
	p, err2 := strconv.ParseUint(port, 16, 16)
	uid, err3 := strconv.Atoi(f[7])
	if err != nil || err2 != nil || err3 != nil || len(b)%4 != 0 {
		return l, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return procUDP{addr: a.Unmap(), port: uint16(p), uid: uid, inode: f[9]}, ok
}

// nameOwners finds the processes that have the sockets open, as far as this
// process may look.
func nameOwners(out []PortOwner, inodes []string) {
	want := make(map[string]int, len(inodes))
	for i, n := range inodes {
		want["socket:["+n+"]"] = i
	}
	all := true
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		fds, err := os.ReadDir(p + "/fd")
		if errors.Is(err, os.ErrPermission) {
			all = false
		}
		for _, fd := range fds {
			target, err := os.Readlink(p + "/fd/" + fd.Name())
			if err != nil {
				continue // gone, or not ours to see
			}
			i, ok := want[target]
			if !ok || out[i].PID != 0 {
				continue
			}
			out[i].PID, _ = strconv.Atoi(filepath.Base(p))
			comm, _ := os.ReadFile(p + "/comm")
			out[i].Command = strings.TrimSpace(string(comm))
		}
	}
	for i := range out {
		if o := &out[i]; o.PID == 0 {
			o.Kernel, o.Devices = all, softRoCE()
		}
	}
}

// softRoCE lists the kernel's Soft-RoCE devices: RDMA devices with a parent
// interface.
func softRoCE() []string {
	var names []string
	parents, _ := filepath.Glob("/sys/class/infiniband/*/parent")
	for _, p := range parents {
		names = append(names, filepath.Base(filepath.Dir(p)))
	}
	return names
}
