package gorxe

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/control/server"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/verbs"
)

// serve has a daemon's device on a loopback address, and returns its socket.
func serve(t *testing.T, addr string, access server.Access) string {
	t.Helper()
	n, err := OpenNIC(Config{Addr: addr, Serve: true, Name: "rxe7"})
	require.NoError(t, err)
	s, err := server.New(server.Config{NIC: n, NetnsCookie: sys.NetnsCookieHere(), Access: access})
	require.NoError(t, err)
	h := server.NewHub(nil, s)
	path := filepath.Join(t.TempDir(), "verbs.sock")
	ln, err := server.Listen(path, 0o600, -1)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- h.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(t, h.Close(ctx))
		assert.NoError(t, <-done)
		assert.NoError(t, n.Close())
	})
	return path
}

// whose opens a device and says whose it is.
func whose(t *testing.T, cfg Config) (a verbs.DeviceAttr, err error) {
	t.Helper()
	c, err := Open(cfg)
	if err != nil {
		return a, err
	}
	a, err = c.Device()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	return a, nil
}

// Open attaches where a daemon serves what is wanted, embeds a NIC elsewhere, and
// says which.
func TestOpenAttaches(t *testing.T) {
	const served, free = "127.0.60.1", "127.0.60.2"
	path := serve(t, served, server.Access{})
	t.Setenv(control.SocketEnv, path)
	for _, c := range []struct {
		name     string
		cfg      Config
		attached bool
	}{
		{"the daemon has the address", Config{Addr: served}, true},
		{"it has another", Config{Addr: free}, false},
		{"it has a device of that name", Config{Addr: free, Name: "rxe7"}, true},
		{"a link of the program's choice", Config{Addr: free, Link: LinkUDP}, false},
		{"congestion control of its choice", Config{Addr: free, CC: "none"}, false},
		{"its socket is named", Config{Daemon: path}, true},
		{"and the device", Config{Daemon: path, Interface: "rxe7"}, true},
		{"never", Config{Addr: free, Daemon: DaemonNever}, false},
	} {
		a, err := whose(t, c.cfg)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.attached, a.Daemon != "", "%s: %q", c.name, a.Daemon)
		if c.attached {
			assert.Contains(t, a.Daemon, path, c.name)
			assert.Equal(t, "rxe7", a.Name, c.name)
		}
	}

	for _, c := range []struct {
		name string
		cfg  Config
		is   error
		text string
	}{
		{"the daemon's port", Config{Addr: served, Daemon: DaemonNever}, syscall.EADDRINUSE, "taken by"},
		{"the same, by another link", Config{Addr: served, Link: LinkUDP}, syscall.EADDRINUSE, "taken by"},
		{"no such device", Config{Daemon: path, Interface: "eth77"}, control.ErrNoDevice, "rxe7 (on lo)"},
		{"faults of the daemon's", Config{Daemon: path, Faults: "tx drop 1%"}, nil, "Config.Faults is for a NIC of this program's own"},
		{"congestion control of the daemon's", Config{Daemon: path, CC: "none"}, nil, "rxe cc set changes"},
		{"the same, without its socket", Config{Addr: served, CC: "none"}, syscall.EADDRINUSE, "rxe cc set changes"},
		{"no congestion control", Config{Daemon: path, CC: "cubic"}, nil, `gorxe: congestion control: algorithm of "cubic": it takes dcqcn, none, window, swift`},
		{"a parameter out of range", Config{Addr: free, CC: "dcqcn,rp_ai_rate=0"}, nil, `rp_ai_rate of "0": it takes 1 to 1600000 Mb/s`},
		{"no daemon there", Config{Daemon: path + "x"}, control.ErrNoDaemon, "start rxed"},
	} {
		_, err := whose(t, c.cfg)
		require.Error(t, err, c.name)
		assert.ErrorContains(t, err, c.text, c.name)
		if c.is != nil {
			assert.ErrorIs(t, err, c.is, c.name)
		}
	}

	t.Setenv(control.SocketEnv, path+"x")
	a, err := whose(t, Config{Addr: free})
	require.NoError(t, err, "no daemon at all")
	assert.Empty(t, a.Daemon)
}

// A device of another network namespace is not meant by an interface's name.
func TestOpenOtherNamespace(t *testing.T) {
	w := wanted(&Config{Interface: "eth0"}, false)
	require.Equal(t, []control.Want{{Interface: "eth0", SameNetns: true}}, w)
	w = wanted(&Config{Interface: "eth0"}, true)
	require.Equal(t, []control.Want{{Interface: "eth0"}, {Name: "eth0"}}, w)
}

// TestOpenCC: the congestion control that was asked for is the device's.
func TestOpenCC(t *testing.T) {
	n, err := OpenNIC(Config{Addr: "127.0.60.3", CC: "swift,swift_base_target=99"})
	require.NoError(t, err)
	defer n.Close()
	c := n.CC()
	require.Equal(t, "swift", c.Algorithm)
	require.Equal(t, 99, c.SwiftBaseTarget)
	_, err = OpenNIC(Config{Addr: "127.0.60.4", CC: "rp_min_rate=500,rp_max_rate=400"})
	require.ErrorContains(t, err, "rp_min_rate of 500 Mb/s is above rp_max_rate of 400 Mb/s")
}
