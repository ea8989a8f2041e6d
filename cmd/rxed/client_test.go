package main

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/control"
	"github.com/gorxe/gorxe/verbs"
)

// user is a program that is attached to a device.
type user struct {
	dev *verbs.Context
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func attach(t *testing.T, p *place, device string) *user {
	t.Helper()
	c, err := control.Dial(ctxFor(t), p.path("v.sock"), control.Want{Name: device})
	require.NoError(t, err)
	u := &user{dev: verbs.NewContext(c)}
	t.Cleanup(func() { _ = u.dev.Close() })
	pd, err := u.dev.AllocPD()
	require.NoError(t, err)
	u.mr, err = pd.AllocMR(1<<20, verbs.AccessAll)
	require.NoError(t, err)
	u.cq, err = u.dev.CreateCQ(verbs.CQConfig{Depth: 64})
	require.NoError(t, err)
	u.qp, err = pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: u.cq, RecvCQ: u.cq})
	require.NoError(t, err)
	return u
}

// couple attaches to two devices and connects a queue pair of each with the other.
func couple(t *testing.T, p *place, deviceA, deviceB string) (a, b *user) {
	t.Helper()
	a, b = attach(t, p, deviceA), attach(t, p, deviceB)
	// Their IPv4 addresses: those of IPv6 are new when an interface was down.
	addr4 := func(u *user) netip.Addr {
		gids, err := u.dev.GIDs()
		require.NoError(t, err)
		for _, g := range gids {
			if a := g.GID.Addr(); a.Is4() {
				return a
			}
		}
		t.Fatalf("no IPv4 address: %v", gids)
		return netip.Addr{}
	}
	ea, err := a.qp.Endpoint(addr4(b))
	require.NoError(t, err)
	eb, err := b.qp.Endpoint(addr4(a))
	require.NoError(t, err)
	require.NoError(t, a.qp.Connect(ea, eb, verbs.ConnectOptions{}))
	require.NoError(t, b.qp.Connect(eb, ea, verbs.ConnectOptions{}))
	return a, b
}

// write writes n octets of a's memory to b's and waits for the end.
func write(ctx context.Context, a, b *user, n int) error {
	_, err := a.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	}})
	if err != nil {
		return err
	}
	var wc [1]verbs.WC
	k, err := a.cq.Wait(ctx, wc[:])
	if err != nil {
		return err
	}
	if k != 1 {
		return fmt.Errorf("%d completions", k)
	}
	return wc[0].Err()
}

// fatal waits until a program is told that its device is no more.
func (u *user) fatal(t *testing.T) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-u.dev.Events():
			require.True(t, ok, "the events end without telling why")
			if e.Type == verbs.EventDeviceFatal {
				return
			}
		case <-timeout:
			t.Fatal("the program was not told")
		}
	}
}
