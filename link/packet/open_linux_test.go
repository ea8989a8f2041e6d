package packet

import (
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/wire"
)

// TestOpenErrors: each tells what to do.
func TestOpenErrors(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	p.A.Tool("ip", "link", "add", "bare0", "type", "veth", "peer", "name", "bare1")
	held := openOn(t, p.A, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.A4}})[0]
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
		{"taken", Config{Interface: testbed.Iface, Shards: 2}, syscall.EADDRINUSE, []string{"4791", "192.0.2.1", strconv.Itoa(os.Getpid())}},
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
	}
	// The failed ones hold nothing: the other address is free, and the first
	// too once its link is closed.
	openOn(t, p.A, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.A6}, Shards: 2})
	held.Close()
	openOn(t, p.A, Config{Interface: testbed.Iface, Addrs: []netip.Addr{testbed.A4}})
}

func TestMissingPrivilege(t *testing.T) {
	caps, err := hostnet.Capabilities()
	if err != nil {
		t.Fatal(err)
	}
	var said string
	if !caps.NetRaw {
		_, err := Open(Config{Interface: "lo"})
		if !errors.Is(err, ErrPrivilege) {
			t.Fatalf("%v", err)
		}
		said = err.Error()
	} else {
		h := testbed.NewHost(t)
		out, err := h.Run(h.Helper(testbed.AsNobody, "open", "lo"))
		if err == nil {
			t.Fatalf("opened without privilege: %s", out)
		}
		if out, err := h.Run(h.Helper(testbed.AsTest, "open", "lo")); err != nil {
			t.Fatalf("with privilege: %v: %s", err, out)
		}
		said = out
	}
	for _, s := range []string{"CAP_NET_RAW", "setcap cap_net_raw+ep ", "root", "--link udp"} {
		if !strings.Contains(said, s) {
			t.Errorf("%q does not say %q", said, s)
		}
	}
}

// TestOnlyNetRaw: CAP_NET_RAW alone is enough, and the link says what it does
// without.
func TestOnlyNetRaw(t *testing.T) {
	h := testbed.NewHost(t)
	open := func(args ...string) string {
		cmd := h.Helper(testbed.AsNobody, "open", args...)
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_RAW}
		out, err := h.Run(cmd)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
	out := open("lo")
	if strings.Contains(out, "ring:") || strings.Contains(out, "rmem_max") {
		t.Errorf("the ring's memory needs no other capability: %s", out)
	}
	if !strings.Contains(out, "no tcx program on lo: ") || !strings.Contains(out, "CAP_BPF and CAP_NET_ADMIN") {
		t.Error(out)
	}
	out = open("lo", "without ring")
	if !strings.Contains(out, "no receive ring: the kernel refuses it") {
		t.Error(out)
	}
	b, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		t.Skipf("needs net.core.rmem_max: %v", err)
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Contains(out, "rmem_max="), limit < defaultRcvBuf; got != want {
		t.Errorf("limit %d: %s", limit, out)
	}
}

// TestClose: it ends a Wait, is final, and frees the port with the last link.
func TestClose(t *testing.T) {
	p := testbed.NewPair(t, 1500)
	ls := openOn(t, p.A, Config{Interface: testbed.Iface, Shards: 2})
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
	p.A.Do(func() {
		if _, err := Open(Config{Interface: testbed.Iface}); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("one shard is still open: %v", err)
		}
	})
	ls[1].Close()
	openOne(t, p.A, testbed.Iface)
}

func TestInfo(t *testing.T) {
	p := testbed.NewPair(t, 4200)
	i := openOne(t, p.A, testbed.Iface).Info()
	if i.Name != "packet" || !i.Exact4 || !i.Exact6 || i.MTU != 4200 || i.Window != 405 || i.IDs != wire.IDCount || i.MaxSegments < 64 || i.MaxBytes == 0 {
		t.Errorf("%+v", i)
	}
}

// TestProbe: the same as an open link's description, while another has the
// port, and nothing stays.
func TestProbe(t *testing.T) {
	p := testbed.NewPair(t, 4200)
	want := openOne(t, p.A, testbed.Iface).Info()
	p.A.Do(func() {
		got, err := Probe(Config{Interface: testbed.Iface, Shards: 4})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
		if _, err := Probe(Config{Interface: "nosuch0"}); !errors.Is(err, hostnet.ErrNoInterface) {
			t.Error(err)
		}
	})
	p.B.Do(func() {
		if _, err := Probe(Config{Interface: testbed.Iface}); err != nil {
			t.Fatal(err)
		}
		if n := attached(t, p.B, testbed.Iface); n != 0 {
			t.Errorf("a probe left %d programs", n)
		}
		if o, err := hostnet.PortOwners(wire.Port); err != nil || len(o) != 0 {
			t.Errorf("a probe left %v %v", o, err)
		}
	})
}
