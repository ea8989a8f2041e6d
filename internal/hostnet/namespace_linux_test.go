package hostnet_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/internal/hostnet"
	"github.com/gorxe/gorxe/internal/testbed"
)

// namespaceHelper enters a namespace, gives up all privileges, and reads the
// interfaces there.
func namespaceHelper(args []string) error {
	n, err := hostnet.OpenNamespace(args[0])
	if err != nil {
		return err
	}
	defer n.Close()
	if err := syscall.Setuid(testbed.Nobody); err != nil {
		return err
	}
	if c, err := hostnet.Capabilities(); err != nil || c.NetAdmin {
		return fmt.Errorf("capabilities %+v are left, %v", c, err)
	}
	return n.Do(func() error {
		ifc, err := hostnet.Interface(testbed.Iface)
		fmt.Println(ifc.Addrs)
		return err
	})
}

// TestNamespace: calls run in the namespace, by name and by path, also after the
// process has given its privileges up, and nothing of it stays.
func TestNamespace(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := testbed.NewPair(t, 1500).A
	name := h.Name()
	for _, n := range []string{name, "/run/netns/" + name} {
		ns, err := hostnet.OpenNamespace(n)
		if err != nil {
			t.Fatal(err)
		}
		failed := errors.New("as f does")
		err = ns.Do(func() error {
			_, err := hostnet.Interface(testbed.Iface)
			if err != nil {
				t.Error(err)
			}
			return ns.Do(func() error { return failed }) // from within
		})
		if err != failed {
			t.Error(err)
		}
		if _, err := hostnet.Interface(testbed.Iface); !errors.Is(err, hostnet.ErrNoInterface) {
			t.Errorf("outside: %v", err)
		}
		ns.Close()
		ns.Close()
		if err := ns.Do(func() error { return nil }); err != hostnet.ErrNamespaceClosed {
			t.Errorf("closed: %v", err)
		}
	}
	out, err := testbed.NewHost(t).Run(h.Helper(testbed.AsTest, "namespace", name))
	if err != nil || !strings.Contains(out, testbed.A4.String()) {
		t.Errorf("without privileges: %v, %s", err, out)
	}
}

// TestNamespaceEnds: f may end its goroutine, as a test that fails does. Then the
// thread is gone, and nobody waits for it.
func TestNamespaceEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns, err := hostnet.OpenNamespace("/proc/self/ns/net")
	if errors.Is(err, hostnet.ErrNamespacePrivilege) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for range 2 {
		if err := ns.Do(func() error { runtime.Goexit(); return nil }); err != hostnet.ErrNamespaceClosed {
			t.Error(err)
		}
	}
}

// TestNamespaceCloseWithin: Close may be called on the thread itself.
func TestNamespaceCloseWithin(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns, err := hostnet.OpenNamespace("/proc/self/ns/net")
	if errors.Is(err, hostnet.ErrNamespacePrivilege) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(func() error { ns.Close(); return nil }); err != nil {
		t.Error(err)
	}
	ns.Close()
	if err := ns.Do(func() error { return nil }); err != hostnet.ErrNamespaceClosed {
		t.Error(err)
	}
}

// TestNamespaceErrors: each says what to do.
func TestNamespaceErrors(t *testing.T) {
	h := testbed.NewHost(t)
	name := h.Name()
	for n, want := range map[string]error{"nosuch": hostnet.ErrNoNamespace, "/nosuch/net": hostnet.ErrNoNamespace, os.DevNull: hostnet.ErrNoNamespace} {
		if _, err := hostnet.OpenNamespace(n); !errors.Is(err, want) || !strings.Contains(err.Error(), "there are "+name) && !strings.Contains(err.Error(), ", "+name) {
			t.Errorf("%s: %v", n, err)
		}
	}
	out, err := h.Run(h.Helper(testbed.AsNobody, "namespace", name))
	if err == nil || !strings.Contains(out, "missing capability CAP_SYS_ADMIN") || !strings.Contains(out, "setcap") {
		t.Errorf("as nobody: %v, %s", err, out)
	}
}

// TestCallerNamespace: none for a thread of the process's own namespace.
func TestCallerNamespace(t *testing.T) {
	defer goleak.VerifyNone(t)
	if ns, err := hostnet.CallerNamespace(); ns != nil || err != nil {
		t.Errorf("%v, %v", ns, err)
	}
	var ns *hostnet.Namespace
	testbed.NewPair(t, 1500).A.Do(func() {
		var err error
		if ns, err = hostnet.CallerNamespace(); err != nil || ns == nil {
			t.Fatal(ns, err)
		}
	})
	defer ns.Close()
	if err := ns.Do(func() error { _, err := hostnet.Interface(testbed.Iface); return err }); err != nil {
		t.Error(err)
	}
}
