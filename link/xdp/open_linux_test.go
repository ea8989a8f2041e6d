package xdp

import (
	"bufio"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	ebpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

// TestOpenErrors: each tells what to do, and leaves nothing behind.
func TestOpenErrors(t *testing.T) {
	p := newPair(t, 1500)
	p.A.Tool("ip", "link", "add", "bare0", "type", "veth", "peer", "name", "bare1")
	holder := linktest.ListenUDP(t, p.A, netip.AddrPortFrom(testbed.A4, wire.Port))
	for _, c := range []struct {
		name string
		cfg  Config
		is   error
		says []string
	}{
		{"no interface", Config{Interface: "nosuch0"}, hostnet.ErrNoInterface, []string{`"nosuch0"`, "lo, ", testbed.Iface}},
		{"no address", Config{Interface: "bare0"}, nil, []string{"ip addr add"}},
		{"foreign address", Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.B4}}, nil, []string{"192.0.2.2", "192.0.2.1"}},
		{"shards", Config{Interface: testbed.Iface, Shards: 17}, nil, []string{"1 to 16"}},
		{"negative shards", Config{Interface: testbed.Iface, Shards: -1}, nil, []string{"1 to 16"}},
		{"few queues", Config{Interface: testbed.Iface, Shards: 2}, nil, []string{"veth0 has 1", "ethtool -L veth0", "rx 2 tx 2"}},
		{"chunks", Config{Interface: testbed.Iface, RxChunks: 100}, nil, []string{"power of two from 64"}},
		{"taken", Config{Interface: testbed.Iface}, syscall.EADDRINUSE, []string{"4791", "192.0.2.1", strconv.Itoa(os.Getpid())}},
	} {
		p.A.Do(func() {
			ls, err := Open(c.cfg)
			if err == nil || ls != nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%s: %v", c.name, err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%s: %q does not say %q", c.name, err, s)
				}
			}
		})
		if id := programOn(t, p.A); id != 0 {
			t.Fatalf("%s: a failed Open left program %d", c.name, id)
		}
	}
	holder.Close()
	openOne(t, p.A, modes[0])
}

// TestOccupied: an interface with somebody else's program, or our own, is
// refused with who has it, and that program stays.
func TestOccupied(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			first := openOn(t, p.A, Config{Interface: testbed.Iface, Generic: m.generic, Addrs: []netip.Addr{testbed.A4}})[0]
			id := programOn(t, p.A)
			if id == 0 {
				t.Fatal("no program is attached")
			}
			for _, generic := range []bool{false, true} {
				p.A.Do(func() {
					_, err := Open(Config{Interface: testbed.Iface, Generic: generic, Addrs: []netip.Addr{testbed.A6}})
					if !errors.Is(err, ErrOccupied) {
						t.Fatalf("%v", err)
					}
					for _, s := range []string{strconv.Itoa(int(id)), "gorxe_rocev2", "xdp off", "--link udp"} {
						if !strings.Contains(err.Error(), s) {
							t.Errorf("%q does not say %q", err, s)
						}
					}
				})
			}
			// The race that the look before it does not see.
			p.A.Do(func() {
				ifc, err := hostnet.Interface(testbed.Iface)
				if err != nil {
					t.Fatal(err)
				}
				second, err := loadProgram(1, 1)
				if err != nil {
					t.Fatal(err)
				}
				defer second.close()
				for _, generic := range []bool{false, true} {
					if _, _, err := second.attach(&ifc, generic); !errors.Is(err, ErrOccupied) {
						t.Errorf("attached beside another: %v", err)
					}
				}
			})
			if now := programOn(t, p.A); now != id {
				t.Errorf("program %d instead of %d", now, id)
			}
			first.Close()
			if now := programOn(t, p.A); now != 0 {
				t.Errorf("program %d after Close", now)
			}
		})
	}
}

// TestCrash: a process that is killed leaves nothing attached, and the next one
// opens at once, again and again, while packets arrive.
func TestCrash(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 1500)
			b := openUDP(t, p.B, testbed.B4)
			bu := burst(b, flow(t, b, testbed.B4, testbed.A4), 0x11, 8, 64)
			for range 5 {
				cmd := p.A.Helper(testbed.AsTest, "hold", testbed.Iface, m.name)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				p.A.Start(cmd)
				if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
					t.Fatalf("%q %v", line, err)
				}
				id := programOn(t, p.A)
				if id == 0 {
					t.Fatal("no program is attached")
				}
				linktest.Send(t, b, bu)
				if n := len(boundLinks(t, id)); n != 1 {
					t.Fatalf("%d BPF links hold program %d", n, id)
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if now := programOn(t, p.A); now != 0 {
					t.Fatalf("program %d is attached after its process was killed", now)
				}
				if left := boundLinks(t, id); left != nil {
					t.Fatalf("BPF links %v are left", left)
				}
			}
			a := openOne(t, p.A, m)
			linktest.Send(t, b, bu)
			linktest.Match(t, linktest.Receive(t, a, 8), bu)
		})
	}
}

// boundLinks returns the BPF links of this machine that hold a program.
func boundLinks(t *testing.T, program uint32) (ids []ebpflink.ID) {
	t.Helper()
	it := new(ebpflink.Iterator)
	defer it.Close()
	for it.Next() {
		if i, err := it.Link.Info(); err == nil && uint32(i.Program) == program {
			ids = append(ids, i.ID)
		}
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestDrivers: how sockets are bound and what is said to be missing, for what
// drivers there are. Only veth and lo are at hand; virtio_net, on Linux 7.3, was.
func TestDrivers(t *testing.T) {
	const (
		wake = unix.XDP_USE_NEED_WAKEUP
		sg   = unix.XDP_USE_SG
		zc   = unix.XDP_ZEROCOPY
		cp   = unix.XDP_COPY
	)
	known := func(native, pieces, zeroCopy bool, zcPieces int) hostnet.XDPFeatures {
		return hostnet.XDPFeatures{Known: true, Native: native, Pieces: pieces, ZeroCopy: zeroCopy, ZCPieces: zcPieces}
	}
	refusal := os.NewSyscallError("bind", syscall.ENOMEM)
	for _, c := range []struct {
		name     string
		driver   hostnet.XDPFeatures
		native   bool
		mtu      int
		ways     []uint16
		bound    uint16 // the one of them that worked
		zeroCopy bool
		refused  error
		generic  error
		says     []string // how each sentence begins
	}{
		{"zero copy", known(true, true, true, 1), true, 1500, []uint16{zc, cp}, zc, true, nil, nil, nil},
		{"zero copy in pieces", known(true, true, true, 8), true, 9000, []uint16{sg | zc, sg | cp, zc, cp}, sg | zc, true, nil, nil, nil},
		{"zero copy, but not in pieces", known(true, true, true, 1), true, 4200, []uint16{sg | cp, zc, cp}, sg | cp, false, nil, nil, []string{
			"the driver of eth9 has zero copy for AF_XDP only for packets in one piece, so with an MTU of 4200 the kernel copies each; 'ip link set eth9 mtu 2200', ",
		}},
		{"zero copy refused", known(true, true, true, 1), true, 1500, []uint16{zc, cp}, cp, false, refusal, nil, []string{
			"the driver of eth9 has zero copy for AF_XDP but refuses it (bind: cannot allocate memory), so the kernel copies each packet, which is slower; ",
		}},
		{"no zero copy", known(true, true, false, 1), true, 1500, []uint16{cp}, cp, false, nil, nil, []string{"the driver of eth9 has no zero copy for AF_XDP, so the kernel copies each packet; "}},
		{"no pieces", known(true, false, true, 1), true, 9000, []uint16{zc, cp}, zc, true, nil, nil, []string{
			"packets longer than 3822 octets cannot be received, although eth9 has an MTU of 9000: its driver gives XDP no packets in several pieces; 'ip link set eth9 mtu 3822' ",
		}},
		{"old kernel", hostnet.XDPFeatures{}, true, 9000, []uint16{sg, sg | cp, 0, cp}, 0, true, nil, nil, []string{
			"packets longer than 3822 octets cannot be received, although eth9 has an MTU of 9000: AF_XDP takes packets in several pieces since Linux 6.6; ",
		}},
		{"no XDP", known(false, false, false, 0), false, 1500, []uint16{sg | cp, cp}, sg | cp, false, nil, syscall.EOPNOTSUPP, []string{
			"the driver of eth9 has no XDP, so the program runs behind it (generic mode), ",
		}},
		{"XDP refused", known(true, false, true, 1), false, 9000, []uint16{sg | cp, cp}, sg | cp, false, nil, syscall.EINVAL, []string{
			"the driver of eth9 refuses the XDP program (invalid argument; 'dmesg' may tell why: ",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &device{ifc: hostnet.Iface{Name: "eth9", MTU: c.mtu}, prog: &program{frags: true}, native: c.native, driver: c.driver}
			want := slices.Clone(c.ways)
			for i := range want {
				want[i] |= wake
			}
			if got := d.ways(); !slices.Equal(got, want) {
				t.Errorf("bound by %#x, not %#x", got, want)
			}
			d.bound(c.bound)
			d.refused = c.refused
			got := d.missing(c.generic, c.zeroCopy)
			if len(got) != len(c.says) {
				t.Fatalf("%q", got)
			}
			for i, s := range c.says {
				if !strings.HasPrefix(got[i], s) {
					t.Errorf("%q begins otherwise than %q", got[i], s)
				}
			}
		})
	}
}

// TestPrivilege: who lacks a capability is told which, and what to do.
func TestPrivilege(t *testing.T) {
	h := testbed.NewHost(t)
	requireXDP(t)
	for _, c := range []struct {
		has  []uintptr
		says []string
		not  string
	}{
		{nil, []string{"CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW:", "setcap cap_bpf,cap_net_admin,cap_net_raw,cap_ipc_lock+ep ", "root", "--link udp"}, "open"},
		{[]uintptr{12, 13}, []string{"needs CAP_BPF:", "setcap"}, "open"}, // NET_ADMIN, NET_RAW
		{[]uintptr{12, 13, 39, 14}, []string{"open"}, "CAP_"},             // and BPF, IPC_LOCK
	} {
		cmd := h.Helper(testbed.AsNobody, "open", "lo")
		cmd.SysProcAttr.AmbientCaps = c.has
		out, err := h.Run(cmd)
		if (err == nil) != (len(c.has) == 4) {
			t.Errorf("%v: %v: %s", c.has, err, out)
		}
		for _, s := range c.says {
			if !strings.Contains(out, s) {
				t.Errorf("%q does not say %q", out, s)
			}
		}
		if strings.Contains(out, c.not) {
			t.Errorf("%q says %q", out, c.not)
		}
	}
	if limit, err := lockable(); err == nil && limit <= 8<<20 {
		cmd := h.Helper(testbed.AsNobody, "open", "lo")
		cmd.SysProcAttr.AmbientCaps = []uintptr{12, 13, 39}
		if out, err := h.Run(cmd); err == nil || !strings.Contains(out, "ulimit -l ") || !strings.Contains(out, "CAP_IPC_LOCK") {
			t.Errorf("with %d octets to lock: %s %v", limit, out, err)
		}
	}
	err := explain(&os.SyscallError{Syscall: "bpf", Err: syscall.EPERM})
	if !errors.Is(err, ErrPrivilege) || !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "--privileged") {
		t.Error(err)
	}
}

// lockable returns how many octets this process may lock.
func lockable() (uint64, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l)
	return l.Cur, err
}

// TestInfo: what a link says of itself, and a probe of it, which touches
// nothing.
func TestInfo(t *testing.T) {
	p := newPair(t, 4200)
	probe := func() (err error) {
		p.A.Do(func() {
			i, e := Probe(Config{Interface: testbed.Iface})
			if err = e; e == nil && (i.Name != "xdp" || !i.Exact4 || !i.Exact6 || i.MTU != 4200 || i.Window != 512 || i.IDs != wire.IDCount) {
				t.Errorf("%+v", i)
			}
		})
		return err
	}
	if err := probe(); err != nil {
		t.Fatal(err)
	}
	if id := programOn(t, p.A); id != 0 {
		t.Errorf("a probe left program %d", id)
	}
	for _, m := range modes {
		l := openOne(t, p.A, m)
		i := l.Info()
		if i.Name != "xdp" || !i.Exact4 || !i.Exact6 || i.MTU != 4200 || i.Window != 512 || i.IDs != wire.IDCount || i.MaxSegments < 64 || i.MaxBytes == 0 {
			t.Errorf("%+v", i)
		}
		want := "no zero copy"
		if m.generic {
			want = "generic mode"
		}
		if !slices.ContainsFunc(i.Missing, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%s: %q", m.name, i.Missing)
		}
		if err := probe(); !errors.Is(err, ErrOccupied) {
			t.Errorf("a probe beside a link: %v", err)
		}
		l.Close()
	}
	// Without a native mode the link says why it is generic.
	lo := openOn(t, p.A, Config{Interface: "lo"})[0].Info()
	if !slices.ContainsFunc(lo.Missing, func(s string) bool { return strings.Contains(s, "the driver of lo has no XDP") }) {
		t.Errorf("%q", lo.Missing)
	}
}

// TestClose: it ends a Wait, is final, keeps the counters, and frees the port
// and the interface with the last link.
func TestClose(t *testing.T) {
	p := newPair(t, 1500)
	p.A.Tool("ethtool", "-L", testbed.Iface, "rx", "2", "tx", "2")
	ls := openOn(t, p.A, Config{Interface: testbed.Iface, Shards: 2})
	b := openOne(t, p.B, modes[0])
	resolve(t, ls[0], testbed.A4, testbed.B4)
	bu := burst(ls[0], flow(t, ls[0], testbed.A4, testbed.B4), 0x11, 5, 64)
	linktest.Send(t, ls[0], bu)
	linktest.Receive(t, b, 5)
	done := make(chan error, 1)
	go func() {
		for {
			if err := ls[0].Wait(-1); err != nil {
				done <- err
				return
			}
		}
	}()
	ls[0].Wake()
	ls[0].Close()
	<-done
	linktest.MustClosed(t, ls[0])
	if s := ls[0].Stats(); s.TxPackets != 5 {
		t.Errorf("%+v", s)
	}
	p.A.Do(func() {
		if _, err := Open(Config{Interface: testbed.Iface}); !errors.Is(err, ErrOccupied) {
			t.Errorf("one shard is still open: %v", err)
		}
	})
	ls[1].Close()
	for range 5 { // the kernel gives the queues back a little later
		for _, l := range openOn(t, p.A, Config{Interface: testbed.Iface, Shards: 2}) {
			l.Close()
		}
	}
}
