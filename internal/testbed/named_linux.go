package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var namedHosts atomic.Int32

// Name gives the host's namespace a name, as ip-netns(8) does, until the test
// ends. It skips the test where nothing can be mounted.
func (h *Host) Name() string {
	h.t.Helper()
	const dir = "/run/netns"
	h.must("make "+dir, os.MkdirAll(dir, 0o755))
	name := fmt.Sprintf("gorxe-test-%d-%d", os.Getpid(), namedHosts.Add(1))
	path := filepath.Join(dir, name)
	h.must("name a namespace", os.WriteFile(path, nil, 0o444))
	h.t.Cleanup(func() { os.Remove(path) })
	h.Do(func() {
		err := unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			h.t.Skipf("needs named namespaces: mount: %v", err)
		}
		h.must("name a namespace", err)
	})
	h.t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return name
}
