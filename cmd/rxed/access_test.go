package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/verbs"
)

// asClient has the test binary attach to the socket that it names, and say what
// became of that.
const asClient = "RXED_TEST_CLIENT"

func runClient(socket string) int {
	c, err := control.Dial(context.Background(), socket, control.Want{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("attached")
	if c.Close() != nil {
		return 1
	}
	return 0
}

// TestAccess: who may attach, by user and group, and as a reload changes it.
func TestAccess(t *testing.T) {
	needsRoot(t)
	p := newPlace(t)
	require.NoError(t, os.Chmod(p.dir, 0o755))
	exe := copyOf(t, p)
	text := func(allow string) string {
		return "[control]\nmode = \"0666\"\n" + allow + "\n[[device]]\naddr = \"" + addr(13) + "\"\nlink = \"udp\"\n"
	}
	try := func(uid, gid uint32) string {
		c := p.command(exe)
		c.cmd.Env = []string{asClient + "=" + p.path("v.sock")}
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, NoSetGroups: true}}
		c.begin()
		c.exit()
		return c.text()
	}
	d := p.start(nil, "-c", p.file(text("")))
	require.Equal(t, "attached", try(65534, 65534))
	reload := func(allow string) {
		p.file(text(allow))
		_, err := d.admin.Reload(ctxFor(t))
		require.NoError(t, err)
	}
	reload("allow_uids = [4242]")
	require.Contains(t, try(65534, 65534), "permission denied")
	require.Contains(t, try(65534, 65534), "the daemon's configuration allows users [4242] and groups []")
	require.Equal(t, "attached", try(4242, 65534))
	reload("allow_groups = [4243]")
	require.Equal(t, "attached", try(65534, 4243))
	require.Contains(t, try(4242, 65534), "permission denied")
}

// TestClientLimits: who wants more than its limit is told which key bounds it.
func TestClientLimits(t *testing.T) {
	p := newPlace(t)
	p.start(nil, "-c", p.file("[[device]]\naddr = \""+addr(14)+"\"\n[device.per_client]\nqps = 1\n[device.total]\nclients = 2\n"))
	a := attach(t, p, "rxe0")
	pd, err := a.dev.AllocPD()
	require.NoError(t, err)
	_, err = pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: a.cq, RecvCQ: a.cq})
	require.ErrorIs(t, err, verbs.ErrLimit)
	require.ErrorContains(t, err, "per_client.qps in rxed's configuration")
	attach(t, p, "rxe0")
	_, err = control.Dial(ctxFor(t), p.path("v.sock"), control.Want{})
	require.ErrorIs(t, err, verbs.ErrLimit)
	require.ErrorContains(t, err, "total.clients in rxed's configuration")
}
