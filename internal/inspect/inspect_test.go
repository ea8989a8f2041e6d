package inspect_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/control/admin"
	"github.com/gorxe/gorxe/internal/inspect"
	"github.com/gorxe/gorxe/internal/inspect/inspecttest"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a daemon with two devices.
type source []admin.Device

func (s source) Daemon() admin.Daemon {
	return admin.Daemon{Program: "test", Version: "0", PID: 1}
}
func (s source) Devices() []admin.Device { return s }
func (s source) Reload(context.Context) (admin.ReloadResult, error) {
	return admin.ReloadResult{}, admin.ErrNotSupported
}

// serve has the devices served on a socket, and returns a client of it and the
// path.
func serve(t *testing.T, devs ...admin.Device) (*admin.Client, string) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := admin.NewServer(source(devs))
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	c := admin.NewClient(path)
	t.Cleanup(func() {
		c.Close()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return c, path
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestDevices(t *testing.T) {
	a, b := inspecttest.Pair(t, "", nil)
	inspecttest.Connect(t, a, b, verbs.ConnectOptions{})
	c, _ := serve(t, a.Device, b.Device)
	ctx := short(t)
	d, err := c.Daemon(ctx)
	require.NoError(t, err)
	require.Equal(t, admin.Daemon{API: "v1", Program: "test", Version: "0", PID: 1, Devices: []string{"rxe0", "rxe1"}}, d)
	all, err := c.Devices(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	one, err := c.Device(ctx, "rxe1")
	require.NoError(t, err)
	require.Equal(t, all[1], one)
	require.Equal(t, "mem", one.NetDev)
	require.Equal(t, "mem", one.Link)
	require.Equal(t, 1, one.QPs)
	require.Equal(t, 4096, one.ActiveMTU)
	require.True(t, one.Active)
	require.Len(t, one.GIDs, 1)
	require.Equal(t, b.Addr, one.GIDs[0].Address)

	require.NoError(t, a.NIC.Close())
	one, err = c.Device(ctx, "rxe0")
	require.NoError(t, err, "a device that has ended is still listed")
	require.False(t, one.Active)
	require.Contains(t, one.Error, "closed")
	_, err = c.Counters(ctx, "rxe0", false)
	require.ErrorContains(t, err, "closed")
}

// What was sent is what is counted, at both ends: a WRITE of 10000 octets in
// packets of 1024 and its ACK.
func TestCounters(t *testing.T) {
	a, b := inspecttest.Pair(t, "", nil)
	q, _ := inspecttest.Connect(t, a, b, verbs.ConnectOptions{PathMTU: 1024})
	wc := inspecttest.Write(t, a, b, q, 10000)
	require.NoError(t, wc.Err())
	c, _ := serve(t, a.Device, b.Device)
	ca, err := c.Counters(short(t), "rxe0", true)
	require.NoError(t, err)
	cb, err := c.Counters(short(t), "rxe1", false)
	require.NoError(t, err)
	const wire, ack = 10000 + 10*(12+4) + 16, 12 + 4 + 4
	for _, x := range []struct {
		name string
		a, b uint64
	}{
		{"port_xmit_data", wire / 4, ack / 4},
		{"port_rcv_data", ack / 4, wire / 4},
		{"port_xmit_packets", 10, 1},
		{"port_rcv_packets", 1, 10},
		{"port_rcv_errors", 0, 0},
		{"port_xmit_discards", 0, 0},
		{"link_downed", 0, 0},
		{"out_of_sequence", 0, 0},
		{"sent_payload", 10000, 0},
		{"icrc_error", 0, 0},
	} {
		require.Contains(t, ca.Values, x.name)
		require.Equal(t, x.a, ca.Values[x.name], "rxe0 %s", x.name)
		require.Equal(t, x.b, cb.Values[x.name], "rxe1 %s", x.name)
	}
	require.Equal(t, "words", ca.About["port_xmit_data"].Unit)
	require.Equal(t, trace.DropICRC.Explain(), ca.About["icrc_error"].Text)
	require.Len(t, ca.About, len(ca.Values))
	require.Nil(t, cb.About)
	for name, i := range ca.About {
		require.NotEmpty(t, i.Unit, name)
	}

	qps, err := c.QPs(short(t), "rxe0")
	require.NoError(t, err)
	require.Len(t, qps, 1)
	p := qps[0]
	require.Equal(t, []uint64{10, 1, 10000, 0}, []uint64{p.SentPackets, p.RcvdPackets, p.SentPayload, p.RepeatedPackets})
	require.Equal(t, []any{"RC", "RTS", a.Addr, b.Addr, q.QPN()}, []any{p.Type, p.State, p.Local, p.Peer, p.QPN})
}

// A queue pair whose peer does not answer: what keeps it, and how it ends.
func TestQueuePair(t *testing.T) {
	a, b := inspecttest.Pair(t, "tx drop 100%", func(c *inspect.Config) {
		c.Clients = func() []admin.ClientInfo { return []admin.ClientInfo{{ID: 1, PID: 7, Command: "perf"}} }
	})
	qa, qb := inspecttest.Connect(t, a, b, verbs.ConnectOptions{PathMTU: 1024, Timeout: 14, RetryCnt: 1})
	c, _ := serve(t, a.Device, b.Device)
	ctx := short(t)
	_, err := qa.PostSend([]verbs.SendWR{{Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.MR.SGE(0, 3000)}, RemoteAddr: b.MR.Addr(), RKey: b.MR.RKey()}})
	require.NoError(t, err)
	q, err := c.QP(ctx, "rxe0", qa.QPN())
	require.NoError(t, err)
	require.Equal(t, "RTS", q.State)
	require.Equal(t, qb.QPN(), q.DestQPN)
	require.Equal(t, 1024, q.PathMTU)
	require.Equal(t, 1, q.Requests)
	require.Equal(t, 3, q.InFlight)
	require.Equal(t, (q.UnackedPSN+3)&0xffffff, q.NextPSN)
	require.Equal(t, q.NextPSN, q.HighestPSN)
	require.Positive(t, q.Window)
	require.Equal(t, int64(4096<<14), q.TimeoutNanos)
	require.Positive(t, q.TimerNanos)
	require.Less(t, q.TimerNanos, q.TimeoutNanos*2)
	require.Nil(t, q.Ended)
	require.Equal(t, uint64(3000), q.Counters["sent_payload"]%3000+3000)

	wc := inspecttest.Wait(t, a.CQ)
	require.Error(t, wc.Err())
	q, err = c.QP(ctx, "rxe0", qa.QPN())
	require.NoError(t, err)
	require.Equal(t, "ERR", q.State)
	require.Equal(t, "retry_exceeded_err", q.Ended.Name)
	require.Equal(t, trace.FailRetryExceeded.Explain(), q.Ended.Text)
	require.NotNil(t, q.Last)
	require.Equal(t, "retry_exceeded_err", q.Last.Reason)
	require.WithinDuration(t, time.Now(), q.Last.Time, 10*time.Second)
	require.Equal(t, int64(-1), q.TimerNanos)

	events, err := c.Trace(ctx, "rxe0", qa.QPN(), 0)
	require.NoError(t, err)
	var names []string
	for _, e := range events {
		require.Equal(t, qa.QPN(), e.QPN)
		names = append(names, e.Reason+e.State)
	}
	require.Equal(t, []string{"qp_state_changeINIT", "qp_state_changeRTR", "qp_state_changeRTS", "local_ack_timeout_err", "local_ack_timeout_err", "retry_exceeded_err", "qp_state_changeERR"}, names)
	last, err := c.Trace(ctx, "rxe0", qa.QPN(), 2)
	require.NoError(t, err)
	require.Equal(t, names[5:], []string{last[0].Reason + last[0].State, last[1].Reason + last[1].State})
	every, err := c.Trace(ctx, "rxe0", 0, 0)
	require.NoError(t, err)
	require.Len(t, every, len(events))

	require.NoError(t, qa.Destroy())
	_, err = c.QP(ctx, "rxe0", qa.QPN())
	require.ErrorIs(t, err, admin.ErrNotFound)
	_, err = c.Trace(ctx, "rxe0", qa.QPN(), 0)
	require.NoError(t, err, "its end is still in the recorder")
	_, err = c.Trace(ctx, "rxe0", 12345, 0)
	require.ErrorIs(t, err, admin.ErrNotFound)
	_, err = c.QP(ctx, "rxe7", 1)
	require.ErrorIs(t, err, admin.ErrNotFound)
	require.ErrorContains(t, err, `["rxe0" "rxe1"]`)
}

// tail collects what is written and tells.
type tail struct {
	buf  bytes.Buffer
	more chan int
}

func (w *tail) Write(b []byte) (int, error) {
	n, err := w.buf.Write(b)
	w.more <- w.buf.Len()
	return n, err
}

func frames(t *testing.T, b []byte) (all []pcap.Frame) {
	r, err := pcap.NewReader(bytes.NewReader(b), "capture")
	require.NoError(t, err)
	for {
		f, err := r.Next()
		if err != nil {
			require.Equal(t, "EOF", err.Error())
			return all
		}
		all = append(all, f)
	}
}

// A capture has what passes while it is on, and only that; it ends when its
// reader wants, with counts.
func TestCapture(t *testing.T) {
	a, b := inspecttest.Pair(t, "", nil)
	q, _ := inspecttest.Connect(t, a, b, verbs.ConnectOptions{PathMTU: 1024})
	c, _ := serve(t, a.Device, b.Device)
	write := func() {
		wc := inspecttest.Write(t, a, b, q, 4000)
		require.NoError(t, wc.Err())
	}
	write() // before
	ctx, stop := context.WithCancel(short(t))
	out := &tail{more: make(chan int, 1000)}
	type result struct {
		sum admin.CaptureSummary
		err error
	}
	done := make(chan result)
	go func() {
		s, err := c.Capture(ctx, "rxe0", out, admin.CaptureOptions{})
		done <- result{s, err}
	}()
	for began := false; !began; {
		select {
		case <-out.more:
			began = true
		case r := <-done:
			t.Fatal(r.err)
		}
	}
	i, err := c.Device(ctx, "rxe0")
	require.NoError(t, err)
	require.Equal(t, 1, i.Captures)
	write()
	wait := time.After(10 * time.Second)
	for n := 0; n < 4000; {
		select {
		case n = <-out.more:
		case <-wait:
			t.Fatal("packets do not come")
		}
	}
	stop() // what came last is in it all the same
	r := <-done
	require.NoError(t, r.err)
	require.Equal(t, admin.CaptureSummary{Captured: 5}, r.sum)
	write() // after
	i, err = c.Device(short(t), "rxe0")
	require.NoError(t, err)
	require.Zero(t, i.Captures)
	got := frames(t, out.buf.Bytes())
	require.Len(t, got, 5)
	for _, f := range got[:4] {
		require.Empty(t, f.Comment)
		require.Equal(t, len(f.Data), f.Len)
	}
	require.Equal(t, "ICRC ok; taken", got[4].Comment)
	require.Len(t, got[4].Data, 14+20+8+20)
}

func TestCaptureCount(t *testing.T) {
	a, b := inspecttest.Pair(t, "", nil)
	q, _ := inspecttest.Connect(t, a, b, verbs.ConnectOptions{PathMTU: 1024})
	c, _ := serve(t, a.Device)
	out := &tail{more: make(chan int, 1000)}
	done := make(chan error)
	go func() {
		s, err := c.Capture(short(t), "rxe0", out, admin.CaptureOptions{Count: 3, SnapLen: 60})
		if err == nil && s.Captured != 3 {
			err = errors.New("the wrong count")
		}
		done <- err
	}()
	<-out.more
	wc := inspecttest.Write(t, a, b, q, 4000)
	require.NoError(t, wc.Err())
	require.NoError(t, <-done)
	got := frames(t, out.buf.Bytes())
	require.Len(t, got, 3)
	for i, f := range got {
		require.Len(t, f.Data, 60, i)
		require.Greater(t, f.Len, 1000)
	}
}

// A capture ends with its device, and says so.
func TestCaptureEnds(t *testing.T) {
	a, _ := inspecttest.Pair(t, "", nil)
	c, _ := serve(t, a.Device)
	out := &tail{more: make(chan int, 1000)}
	done := make(chan error)
	go func() {
		_, err := c.Capture(short(t), "rxe0", out, admin.CaptureOptions{})
		done <- err
	}()
	<-out.more
	require.NoError(t, a.NIC.Close())
	require.ErrorContains(t, <-done, "closed")
	frames(t, out.buf.Bytes())
}

func TestTshark(t *testing.T) {
	tool, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	a, b := inspecttest.Pair(t, "tx corrupt limit=1", nil)
	q, _ := inspecttest.Connect(t, a, b, verbs.ConnectOptions{PathMTU: 1024})
	c, _ := serve(t, b.Device)
	out := &tail{more: make(chan int, 1000)}
	done := make(chan error)
	ctx, stop := context.WithCancel(short(t))
	go func() {
		_, err := c.Capture(ctx, "rxe1", out, admin.CaptureOptions{})
		done <- err
	}()
	<-out.more
	wc := inspecttest.Write(t, a, b, q, 4000)
	require.NoError(t, wc.Err())
	stop()
	require.NoError(t, <-done)
	cmd := exec.Command(tool, "-r", "-", "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "frame.comment")
	cmd.Stdin = bytes.NewReader(out.buf.Bytes())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.Contains(t, string(text), "6\t")  // WRITE first
	require.Contains(t, string(text), "17\t") // acknowledge
	require.Contains(t, string(text), "dropped, icrc_error")
	require.NotContains(t, stderr.String(), "cut short")
}

func TestCurl(t *testing.T) {
	tool, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	a, _ := inspecttest.Pair(t, "", nil)
	_, path := serve(t, a.Device)
	out, err := exec.Command(tool, "-sS", "--fail", "--max-time", "20", "--unix-socket", path, "http://rxed/v1/devices/rxe0/counters").Output()
	require.NoError(t, err)
	var v admin.Counters
	require.NoError(t, json.Unmarshal(out, &v))
	require.Contains(t, v.Values, "port_xmit_data")
}

// TestCC: the NIC's parameters are shown with what they may be, and changed all or
// none, a profile before the others.
func TestCC(t *testing.T) {
	a, b := inspecttest.Pair(t, "", nil)
	c, _ := serve(t, a.Device, b.Device)
	v, err := c.CC(t.Context(), "rxe0")
	require.NoError(t, err)
	require.Equal(t, "rxe0", v.Device)
	require.Equal(t, cc.Profiles, v.Profiles)
	require.Len(t, v.Parameters, len(cc.Fields()))
	by := map[string]admin.CCParameter{}
	for _, p := range v.Parameters {
		require.Equal(t, p.Default, p.Value, p.Name)
		by[p.Name] = p
	}
	require.Equal(t, admin.CCParameter{Name: "rp_ai_rate", Value: "5", Default: "5", Unit: "Mb/s", Low: 1, High: 1_600_000, Help: by["rp_ai_rate"].Help}, by["rp_ai_rate"])
	require.Equal(t, []string{"qp", "destination", "port"}, by["np_cnp_pacing"].Of)
	require.Equal(t, 1, by["rp_enable"].High)

	v, err = c.SetCC(t.Context(), "rxe0", map[string]string{"profile": "paper", "algorithm": "none", "rp_ai_rate": "9", "window": "77"})
	require.NoError(t, err)
	require.Equal(t, []string{"none", "9", "77", "400"}, []string{v.Get("algorithm"), v.Get("rp_ai_rate"), v.Get("window"), v.Get("rp_hai_rate")})
	require.Equal(t, "none", a.NIC.CC().Algorithm)
	require.Equal(t, "dcqcn", b.NIC.CC().Algorithm)
	_, err = c.SetCC(t.Context(), "rxe0", map[string]string{"window": "78", "rp_max_rate": "1", "rp_min_rate": "2"})
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "rp_min_rate of 2 Mb/s is above rp_max_rate of 1 Mb/s")
	_, err = c.SetCC(t.Context(), "rxe0", map[string]string{"profile": "best"})
	require.ErrorContains(t, err, `profile "best": there are mlx5`)
	require.Equal(t, 77, a.NIC.CC().Window)
	require.NoError(t, a.NIC.Close())
	_, err = c.CC(t.Context(), "rxe0")
	require.Error(t, err)
}

// TestRates: a queue pair tells the rate that it is bound to, and by what.
func TestRates(t *testing.T) {
	a, b := inspecttest.Pair(t, "", nil)
	c, _ := serve(t, a.Device, b.Device)
	q, _ := inspecttest.Connect(t, a, b, verbs.ConnectOptions{RateLimit: 2000})
	list, err := c.QPs(t.Context(), "rxe0")
	require.NoError(t, err)
	require.EqualValues(t, 2_000_000, list[0].Rate)
	d, err := c.QP(t.Context(), "rxe0", q.QPN())
	require.NoError(t, err)
	require.EqualValues(t, 2_000_000, d.RateLimit)
	require.EqualValues(t, 2_000_000, d.Rate)
	require.Equal(t, "dcqcn", d.Algorithm)
	require.Zero(t, d.CCRate)
	require.False(t, d.Limited)
	_, err = c.SetCC(t.Context(), "rxe0", map[string]string{"rp_max_rate": "1"})
	require.NoError(t, err)
	require.NoError(t, q.SetRateLimit(0))
	d, err = c.QP(t.Context(), "rxe0", q.QPN())
	require.NoError(t, err)
	require.EqualValues(t, 0, d.RateLimit)
	require.EqualValues(t, 1_000_000, d.Rate)
	require.EqualValues(t, 1_000_000, d.CCRate)
}
