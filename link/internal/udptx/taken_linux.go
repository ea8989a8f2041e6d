package udptx

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
	"syscall"
)

// BindError turns the error of binding a:port into one that says what to do.
func BindError(a netip.Addr, port uint16, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &TakenError{Addr: a, Port: port, Owner: FindOwner(a, port)}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%v is not an address of this host, or IPv6 is still checking it for duplicates (see `ip address`): %w", a, err)
	case errors.Is(err, syscall.EINVAL) && a.IsLinkLocalUnicast():
		return fmt.Errorf("%v needs the zone of an interface that has it, such as %v%%eth0: %w", a, a.WithZone(""), err)
	}
	return fmt.Errorf("bind UDP %v: %w", netip.AddrPortFrom(a, port), err)
}

// TakenError says that somebody has the RoCEv2 port of an address. It is
// syscall.EADDRINUSE to errors.Is.
type TakenError struct {
	Addr  netip.Addr
	Port  uint16
	Owner Owner
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("UDP port %d of %v is taken by %s", e.Port, e.Addr, e.Owner)
}

func (e *TakenError) Unwrap() error { return syscall.EADDRINUSE }

// Owner is who has a UDP port, as far as it can be seen.
type Owner struct {
	PID     int    // 0 when not found
	Command string // of PID
	UID     int    // of the socket; -1 when not found
	Kernel  bool   // every process was looked at and none has it
	Devices []string
}

// String names the owner and says what to do about it.
func (o Owner) String() string {
	switch {
	case o.PID != 0:
		return fmt.Sprintf("process %d (%s): stop it, or attach to it if it is rxed or another gorxe program", o.PID, o.Command)
	case o.Kernel || len(o.Devices) > 0 && o.UID <= 0:
		if len(o.Devices) == 0 {
			return "the kernel, probably its Soft-RoCE: `rdma link` lists its devices, `rdma link delete NAME` removes one"
		}
		return "the kernel's Soft-RoCE: remove it with `rdma link delete " + strings.Join(o.Devices, "` and `rdma link delete ") + "`"
	case o.UID >= 0:
		return fmt.Sprintf("user %d: rxed or another gorxe program (attach to it, or stop it), or the kernel's Soft-RoCE (`rdma link delete NAME`); `ss -lunp sport = :4791` as root tells", o.UID)
	}
	return "somebody outside this network namespace's view: another gorxe program, rxed, or the kernel's Soft-RoCE (`rdma link delete NAME`)"
}

// FindOwner looks for who has a UDP port of an address, or of all addresses,
// in this network namespace.
func FindOwner(a netip.Addr, port uint16) Owner {
	o := Owner{UID: -1}
	inode := ""
	for _, name := range []string{"udp", "udp6"} {
		f, err := os.Open("/proc/thread-self/net/" + name)
		if err != nil {
			continue
		}
		sc := bufio.NewScanner(f)
		for sc.Scan() && inode == "" {
			if l, ok := parseProcUDP(sc.Text()); ok && l.port == port && (l.addr == a.WithZone("") || l.addr.IsUnspecified()) {
				inode, o.UID = l.inode, l.uid
			}
		}
		_ = f.Close()
	}
	o.Devices = softRoCE()
	if inode == "" {
		return o
	}
	all := true
	o.PID, all = findFD("socket:[" + inode + "]")
	if o.PID != 0 {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", o.PID))
		o.Command = strings.TrimSpace(string(b))
	}
	o.Kernel = o.PID == 0 && all
	return o
}

type procUDP struct {
	addr  netip.Addr
	port  uint16
	uid   int
	inode string
}

// parseProcUDP reads a line of /proc/net/udp or udp6: the local address as
// 32-bit words in host order, port, and further on user and inode.
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
	l.addr, ok = netip.AddrFromSlice(b)
	l.port, l.uid, l.inode = uint16(p), uid, f[9]
	return l, ok
}

// findFD returns the process that has a file open, and whether all processes
// could be looked at.
func findFD(target string) (pid int, all bool) {
	all = true
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		fds, err := os.ReadDir(p + "/fd")
		if errors.Is(err, os.ErrPermission) {
			all = false
		}
		for _, fd := range fds {
			if s, _ := os.Readlink(p + "/fd/" + fd.Name()); s == target {
				pid, _ = strconv.Atoi(filepath.Base(p))
				return pid, true
			}
		}
	}
	return 0, all
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
