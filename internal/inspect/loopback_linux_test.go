package inspect_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/inspect"
	"github.com/gorxe/gorxe/internal/inspect/inspecttest"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/verbs"
)

// onLoopback opens a device as a daemon does.
func onLoopback(t *testing.T, i int) *inspecttest.Side {
	addr := testbed.Loopback(i)
	n, err := gorxe.OpenNIC(gorxe.Config{Addr: addr.String(), Name: "rxe" + string(rune('0'+i)), Link: gorxe.LinkUDP, Serve: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	s := &inspecttest.Side{NIC: n, Device: inspect.New(inspect.Config{Name: "rxe" + string(rune('0'+i)), NIC: n}), Ctx: verbs.NewContext(n), Addr: addr}
	s.PD, err = s.Ctx.AllocPD()
	require.NoError(t, err)
	s.CQ, err = s.Ctx.CreateCQ(verbs.CQConfig{Depth: 64})
	require.NoError(t, err)
	s.MR, err = s.PD.AllocMR(inspecttest.Room, verbs.AccessAll)
	require.NoError(t, err)
	return s
}

// Over real sockets, where packets travel merged: what one end has sent the other
// has received, to the word, and a capture of both has as many packets as were
// counted.
func TestLoopback(t *testing.T) {
	a, b := onLoopback(t, 0), onLoopback(t, 1)
	q, _ := inspecttest.Connect(t, a, b, verbs.ConnectOptions{PathMTU: 4096, Timeout: 18})
	c, _ := serve(t, a.Device, b.Device)
	ctx, stop := context.WithCancel(short(t))
	type result struct {
		sum admin.CaptureSummary
		err error
	}
	done := make(chan result, 2)
	var outs [2]*tail
	for i, name := range []string{"rxe0", "rxe1"} {
		outs[i] = &tail{more: make(chan int, 10000)}
		go func() {
			s, err := c.Capture(ctx, name, outs[i], admin.CaptureOptions{})
			done <- result{s, err}
		}()
		<-outs[i].more
	}
	const messages, size = 50, 100_000
	for range messages {
		wc := inspecttest.Write(t, a, b, q, size)
		require.NoError(t, wc.Err())
	}
	stop()
	var captured uint64
	for range 2 {
		r := <-done
		require.NoError(t, r.err)
		require.Zero(t, r.sum.Dropped)
		captured += r.sum.Captured
	}
	ca, err := a.Device.Counters()
	require.NoError(t, err)
	cb, err := b.Device.Counters()
	require.NoError(t, err)
	require.Zero(t, ca["repeated_requests"]+cb["out_of_sequence"], "a loss")
	for _, x := range []string{"data", "packets"} {
		require.Equal(t, ca["port_xmit_"+x], cb["port_rcv_"+x], x)
		require.Equal(t, cb["port_xmit_"+x], ca["port_rcv_"+x], x)
	}
	const packets = (size + 4095) / 4096
	require.Equal(t, uint64(messages*packets), ca["port_xmit_packets"])
	require.Equal(t, uint64(messages*(size+packets*16+16)/4), ca["port_xmit_data"])
	require.Equal(t, 2*(ca["port_xmit_packets"]+cb["port_xmit_packets"]), captured)
	for _, o := range outs {
		frames(t, o.buf.Bytes())
	}
	for name, m := range map[string]map[string]uint64{"rxe0": ca, "rxe1": cb} {
		require.Zero(t, m["port_rcv_errors"]+m["port_xmit_discards"]+m["link_downed"], name)
	}
}
