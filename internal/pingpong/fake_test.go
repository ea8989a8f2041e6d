package pingpong

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/verbs"
)

// fake is a peer that does by hand, in its own words, what rdma-core's program
// does: 52 octets each way, "done\0", and the connection closed at once. What
// it gets wrong is up to the test.
type fake struct {
	t    *testing.T
	svc  Service // all but SRQ
	grh  int     // octets before a message in its buffer
	size int
	mtu  verbs.MTU
	wait uint8 // transport timeout, 14 if 0
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	me   verbs.Endpoint
	pd   *verbs.PD
	to   verbs.SendWR // of UD, its destination

	got, sent int // messages
}

func newFake(t *testing.T, size int) *fake { return newLossyFake(t, size, "") }

// newLossyFake is a fake that loses packets by fault rules.
func newLossyFake(t *testing.T, size int, faults string) *fake {
	return newFakeOf(t, RC, size, faults)
}

// newFakeOf is a fake of a service.
func newFakeOf(t *testing.T, svc Service, size int, faults string) *fake {
	t.Helper()
	dev, err := gorxe.Open(gorxe.Config{Addr: addr().String(), Link: gorxe.LinkUDP, Faults: faults})
	require.NoError(t, err)
	t.Cleanup(func() { dev.Close() })
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	f := &fake{t: t, svc: svc, size: size, mtu: 1024, pd: pd}
	typ := map[Service]verbs.QPType{RC: verbs.RC, UC: verbs.UC, UD: verbs.UD}[svc]
	if svc == UD {
		f.grh = 40
	}
	f.mr, err = pd.AllocMR(size+f.grh, verbs.AccessLocalWrite)
	require.NoError(t, err)
	f.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: 64})
	require.NoError(t, err)
	f.qp, err = pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: f.cq, RecvCQ: f.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
	require.NoError(t, err)
	f.me, err = f.qp.Endpoint(netip.MustParseAddr("127.0.0.1"))
	require.NoError(t, err)
	return f
}

// address is what the original writes: printf's %04x:%06x:%06x:%s.
func (f *fake) address() string {
	const digits = "0123456789abcdef"
	hexed := func(v uint32, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[n-1-i] = digits[v>>(4*i)&15]
		}
		return string(b)
	}
	s := "0000:" + hexed(f.me.QPN, 6) + ":" + hexed(f.me.PSN, 6) + ":"
	for _, b := range f.me.GID {
		s += hexed(uint32(b), 2)
	}
	return s + "\x00"
}

// up connects the queue pair to what the other side wrote, and posts receives.
func (f *fake) up(msg string, receives int) {
	f.t.Helper()
	peer, err := decodeDest([]byte(msg))
	require.NoError(f.t, err)
	if f.svc == UD {
		f.upDatagram(peer)
	} else {
		f.upConnected(peer)
	}
	for range receives {
		f.recv()
	}
}

func (f *fake) upDatagram(peer verbs.Endpoint) {
	f.t.Helper()
	require.NoError(f.t, f.qp.Activate(verbs.DatagramOptions{QKey: 0x11111111, PSN: f.me.PSN}))
	ah, err := f.pd.CreateAH(verbs.AV{DGID: peer.GID, SGIDIndex: f.me.GIDIndex, HopLimit: 1})
	require.NoError(f.t, err)
	f.to = verbs.SendWR{AH: ah.Handle(), RemoteQPN: peer.QPN, RemoteQKey: 0x11111111}
}

func (f *fake) upConnected(peer verbs.Endpoint) {
	f.t.Helper()
	require.NoError(f.t, f.qp.Connect(f.me, peer, verbs.ConnectOptions{
		PathMTU: f.mtu, MaxRdAtomic: 1, MaxDestRdAtomic: 1, MinRNRTimer: 12, Timeout: max(f.wait, 14), RetryCnt: 7, RNRRetry: 7, HopLimit: 1,
	}))
}

// dial is the client's exchange with a server of ours.
func (f *fake) dial(port, receives int) {
	f.t.Helper()
	c := connect(f.t, port)
	defer c.Close()
	write(f.t, c, f.address())
	msg := read(f.t, c, 52)
	write(f.t, c, "done\x00")
	f.up(msg, receives)
}

// serve is the server's exchange with a client of ours.
func (f *fake) serve(c net.Conn, receives int) {
	f.t.Helper()
	defer c.Close()
	f.up(read(f.t, c, 52), receives)
	write(f.t, c, f.address())
	require.Equal(f.t, "done\x00", read(f.t, c, 5))
}

func (f *fake) recv() {
	_, err := f.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{f.mr.SGE(0, f.grh+f.size)}}})
	require.NoError(f.t, err)
}

// data is the one buffer for messages of both ways.
func (f *fake) data() []byte { return f.mr.Bytes()[f.grh:] }

// until waits until so many messages came in all and so many were acknowledged,
// with a new receive for each that came.
func (f *fake) until(got, sent int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), soon)
	defer cancel()
	for f.got < got || f.sent < sent {
		var wc [1]verbs.WC
		_, err := f.cq.Wait(ctx, wc[:])
		require.NoError(f.t, err)
		require.NoError(f.t, wc[0].Err())
		if wc[0].ID == 2 {
			f.sent++
			continue
		}
		f.got++
		f.recv()
	}
}

// send sends the buffer.
func (f *fake) send() {
	f.t.Helper()
	wr := f.to
	wr.ID, wr.Opcode, wr.Flags, wr.SGL = 2, verbs.WRSend, verbs.SendSignaled, []verbs.SGE{f.mr.SGE(f.grh, f.size)}
	_, err := f.qp.PostSend([]verbs.SendWR{wr})
	require.NoError(f.t, err)
}

// ours starts a run of ours in the given role against the fake, which has the
// connection when it returns.
func (f *fake) ours(cfg Config, client bool, receives int) *end {
	f.t.Helper()
	cfg.Device = device(f.t, addr())
	if !client {
		e := start(f.t, f.t.Context(), cfg)
		f.dial(e.port, receives)
		return e
	}
	l := listen(f.t)
	cfg.Peer, cfg.Port = "127.0.0.1", portOf(l)
	e := start(f.t, f.t.Context(), cfg)
	f.serve(accept(f.t, l), receives)
	return e
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func accept(t *testing.T, l net.Listener) net.Conn {
	l.(*net.TCPListener).SetDeadline(time.Now().Add(soon))
	c, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func connect(t *testing.T, port int) net.Conn {
	c, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port)).String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	_, err := io.WriteString(c, s)
	require.NoError(t, err)
}

func read(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(soon))
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	return string(b)
}
