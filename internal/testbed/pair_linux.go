package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Iface is the name of both ends of a pair.
const Iface = "veth0"

// Addresses of every pair.
var (
	A4   = netip.MustParseAddr("192.0.2.1")
	B4   = netip.MustParseAddr("192.0.2.2")
	A6   = netip.MustParseAddr("fd00:2::1")
	B6   = netip.MustParseAddr("fd00:2::2")
	MACA = [6]byte{2, 0, 0, 0, 0, 0x0a}
	MACB = [6]byte{2, 0, 0, 0, 0, 0x0b}
)

const bits4, bits6 = 24, 64

// Pair is two joined namespaces.
type Pair struct{ A, B *Host }

// Host is one network namespace.
type Host struct {
	Iface  string
	MAC    [6]byte
	V4, V6 netip.Addr

	t  testing.TB
	ns int // descriptor of the namespace
}

// NewPair makes two namespaces joined by a veth pair with the given MTU, with
// the addresses above, all up and usable at once (no duplicate address
// detection). They go when the test ends. It skips the test when namespaces
// cannot be made.
func NewPair(t testing.TB, mtu int) *Pair {
	t.Helper()
	p := &Pair{A: NewHost(t), B: NewHost(t)}
	p.A.V4, p.A.V6, p.A.MAC = A4, A6, MACA
	p.B.V4, p.B.V6, p.B.MAC = B4, B6, MACB
	p.A.Iface, p.B.Iface = Iface, Iface
	p.join(Iface, mtu, MACA, MACB)
	for _, h := range [...]*Host{p.A, p.B} {
		h.Do(func() {
			h.configure(h.Iface, netip.PrefixFrom(h.V4, bits4), netip.PrefixFrom(h.V6, bits6))
		})
	}
	for _, h := range [...]*Host{p.A, p.B} {
		h.Do(func() { h.settle(h.Iface) })
	}
	return p
}

// settle waits until an interface's addresses can be used: a link-local one is
// tentative until the kernel has seen that both ends are up, even without
// duplicate address detection. Call it inside Do.
func (h *Host) settle(iface string) {
	l := h.link(iface)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		all, err := netlink.AddrList(l, netlink.FAMILY_V6)
		h.must("read addresses", err)
		if len(all) >= 2 && !slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 }) {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("testbed: the addresses of %s are still tentative: %v", iface, all)
		}
	}
}

// AddWire joins the hosts of a pair by another veth pair of the given name,
// with addresses for either end, up and usable at once.
func (p *Pair) AddWire(name string, mtu int, a, b []netip.Prefix) {
	p.A.t.Helper()
	macA, macB := MACA, MACB
	macA[4], macB[4] = name[len(name)-1], name[len(name)-1]
	p.join(name, mtu, macA, macB)
	p.A.Do(func() { p.A.configure(name, a...) })
	p.B.Do(func() { p.B.configure(name, b...) })
}

func (p *Pair) join(name string, mtu int, macA, macB [6]byte) {
	p.A.t.Helper()
	p.A.Do(func() {
		a := netlink.NewLinkAttrs()
		a.Name, a.MTU, a.HardwareAddr = name, mtu, net.HardwareAddr(macA[:])
		v := netlink.NewVeth(a)
		v.PeerName, v.PeerMTU, v.PeerHardwareAddr = name, uint32(mtu), net.HardwareAddr(macB[:])
		v.PeerNamespace = netlink.NsFd(p.B.ns)
		p.A.must("make a veth pair", netlink.LinkAdd(v))
	})
}

// configure raises an interface and gives it addresses; call it inside Do.
func (h *Host) configure(iface string, addrs ...netip.Prefix) {
	l := h.link(iface)
	h.must("raise "+iface, netlink.LinkSetUp(l))
	for _, a := range addrs {
		h.must("set an address", addAddr(l, a))
	}
}

// NewHost makes a lone namespace with its loopback interface up.
func NewHost(t testing.TB) *Host {
	t.Helper()
	requireNamespaces(t)
	h := &Host{t: t, ns: -1}
	done := make(chan error)
	go func() {
		// The thread is never unlocked: it ends with this goroutine, and no
		// other code runs on it.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		h.ns = fd
		done <- err
	}()
	h.must("make a network namespace", <-done)
	t.Cleanup(func() { unix.Close(h.ns) })
	h.Do(func() {
		for _, c := range [...]string{"all", "default"} {
			err := os.WriteFile("/proc/sys/net/ipv6/conf/"+c+"/accept_dad", []byte("0"), 0)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				h.t.Fatalf("testbed: disable duplicate address detection: %v", err)
			}
		}
		h.must("raise lo", netlink.LinkSetUp(h.link("lo")))
	})
	return h
}

// requireNamespaces skips the test when this process may not make network
// namespaces.
func requireNamespaces(t testing.TB) {
	t.Helper()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&hdr, &d[0]); err != nil {
		t.Fatalf("testbed: capget: %v", err)
	}
	for _, c := range [...]struct {
		bit  uint
		name string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_NET_RAW, "CAP_NET_RAW"}} {
		if d[0].Effective>>c.bit&1 == 0 {
			t.Skipf("needs network namespaces: %s is missing (run as root)", c.name)
		}
	}
}

// Do runs f inside the namespace, on a thread of its own, and waits for it. f
// may end the test as the test's own goroutine may.
func (h *Host) Do(f func()) {
	h.t.Helper()
	finished := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, see NewHost
		if err := unix.Setns(h.ns, unix.CLONE_NEWNET); err != nil {
			h.t.Errorf("testbed: enter the namespace: %v", err)
			return
		}
		f()
		finished = true
	}()
	<-done
	switch {
	case finished:
	case h.t.Skipped():
		h.t.SkipNow()
	default:
		h.t.FailNow()
	}
}

// AddVLAN adds an 802.1Q interface over the host's interface, with its own
// addresses, and returns its name. It skips the test where the kernel has no
// VLANs.
func (h *Host) AddVLAN(vid int, addrs ...netip.Prefix) string {
	h.t.Helper()
	name := fmt.Sprintf("%s.%d", h.Iface, vid)
	h.Do(func() {
		a := netlink.NewLinkAttrs()
		a.Name, a.ParentIndex = name, h.link(h.Iface).Attrs().Index
		err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: a, VlanId: vid, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
		if errors.Is(err, unix.EOPNOTSUPP) {
			h.t.Skip("needs VLAN interfaces: the kernel has no 802.1Q (CONFIG_VLAN_8021Q)")
		}
		h.must("add a VLAN", err)
		h.configure(name, addrs...)
	})
	return name
}

// AddAddr adds an address to the host's interface.
func (h *Host) AddAddr(p netip.Prefix) {
	h.t.Helper()
	h.Do(func() { h.must("set an address", addAddr(h.link(h.Iface), p)) })
}

// DelAddr takes an address away from the host's interface.
func (h *Host) DelAddr(p netip.Prefix) {
	h.t.Helper()
	h.Do(func() {
		h.must("remove an address", netlink.AddrDel(h.link(h.Iface), &netlink.Addr{IPNet: &net.IPNet{
			IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
		}}))
	})
}

// SetUp raises the host's interface or takes it down. Taking it down removes
// its IPv6 addresses; raising it puts the pair's own back.
func (h *Host) SetUp(up bool) {
	h.t.Helper()
	h.Do(func() {
		l := h.link(h.Iface)
		if !up {
			h.must("take the interface down", netlink.LinkSetDown(l))
			return
		}
		h.must("raise the interface", netlink.LinkSetUp(l))
		if h.V6.IsValid() {
			if err := addAddr(l, netip.PrefixFrom(h.V6, bits6)); !errors.Is(err, unix.EEXIST) {
				h.must("set an address", err)
			}
		}
	})
}

// Index returns the index of an interface of the host.
func (h *Host) Index(name string) (index int) {
	h.t.Helper()
	h.Do(func() { index = h.link(name).Attrs().Index })
	return index
}

// link finds an interface; call it inside Do.
func (h *Host) link(name string) netlink.Link {
	l, err := netlink.LinkByName(name)
	h.must("find interface "+name, err)
	return l
}

func (h *Host) must(what string, err error) {
	if err != nil {
		h.t.Helper()
		h.t.Fatalf("testbed: %s: %v", what, err)
	}
}

func addAddr(l netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: &net.IPNet{
		IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return netlink.AddrAdd(l, a)
}
