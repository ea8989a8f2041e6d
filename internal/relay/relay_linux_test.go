package relay

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/internal/sys"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/fault"
	"github.com/gorxe/gorxe/verbs"
	"github.com/gorxe/gorxe/wire"
)

func TestMain(m *testing.M) { testbed.Main(m, nil) }

// rig is two hosts with a third between them that relays.
//
//	a.wa == wa.m.wb == wb.b
type rig struct {
	t       testing.TB
	a, m, b *testbed.Host
}

func newRig(t testing.TB, mtu, mtuB int) *rig {
	r := &rig{t, testbed.NewHost(t), testbed.NewHost(t), testbed.NewHost(t)}
	r.a.Iface, r.b.Iface = "wa", "wb"
	pre := func(s ...string) (out []netip.Prefix) {
		for _, s := range s {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	(&testbed.Pair{A: r.a, B: r.m}).AddWire("wa", mtu, pre("192.0.2.1/24", "fd00:2::1/64"), nil)
	(&testbed.Pair{A: r.b, B: r.m}).AddWire("wb", mtuB, pre("192.0.2.2/24", "fd00:2::2/64"), nil)
	return r
}

// relay runs a relay until stop is called or the test ends.
func (r *rig) relay(cfg Config) (stop func() *Report) {
	r.t.Helper()
	cfg.A, cfg.B, cfg.Seed = "wa", "wb", 1
	var last *Report
	cfg.Report = func(n *Report) { last = n }
	cfg.Log = func(s string) { r.t.Log(s) }
	ctx, cancel := context.WithCancel(context.Background())
	opened, ended := make(chan error), make(chan error, 1)
	go r.m.Do(func() {
		l, err := Open(cfg)
		opened <- err
		if err != nil {
			return
		}
		defer l.Close()
		ended <- l.Run(ctx)
	})
	require.NoError(r.t, <-opened)
	once := false
	stop = func() *Report {
		if !once {
			once = true
			cancel()
			require.NoError(r.t, <-ended)
		}
		return last
	}
	r.t.Cleanup(func() { stop() })
	return stop
}

// end is one end of an RC connection.
type end struct {
	t   testing.TB
	dev *verbs.Context
	cq  *verbs.CQ
	mr  *verbs.MR
	qp  *verbs.QP
}

func (r *rig) open(h *testbed.Host, link string) *end {
	r.t.Helper()
	e := &end{t: r.t}
	h.Do(func() {
		var err error
		e.dev, err = gorxe.Open(gorxe.Config{Interface: h.Iface, Link: link, Daemon: gorxe.DaemonNever})
		require.NoError(r.t, err)
	})
	r.t.Cleanup(func() { e.dev.Close() })
	pd := must(e.dev.AllocPD())
	e.mr = must(pd.RegMR(make([]byte, 2<<20), verbs.AccessAll))
	e.cq = must(e.dev.CreateCQ(verbs.CQConfig{Depth: 256}))
	e.qp = must(pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq}))
	return e
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func connect(t *testing.T, a, b *end, at, bt string) {
	la, lb := must(a.qp.Endpoint(netip.MustParseAddr(bt))), must(b.qp.Endpoint(netip.MustParseAddr(at)))
	require.NoError(t, a.qp.Connect(la, lb, verbs.ConnectOptions{}))
	require.NoError(t, b.qp.Connect(lb, la, verbs.ConnectOptions{}))
}

// moves has a write n octets to b and read them back, and compares.
func (e *end) moves(b *end, n int) {
	e.t.Helper()
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	m := e.mr.Bytes()
	for i := range m {
		m[i] = byte(rng.Uint32())
	}
	for _, wr := range []verbs.SendWR{
		{Opcode: verbs.WRWrite, SGL: []verbs.SGE{e.mr.SGE(0, n)}},
		{Opcode: verbs.WRRead, SGL: []verbs.SGE{e.mr.SGE(len(m)/2, n)}},
	} {
		wr.RemoteAddr, wr.RKey, wr.Flags = b.mr.Addr(), b.mr.RKey(), verbs.SendSignaled
		must(e.qp.PostSend([]verbs.SendWR{wr}))
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		var wc [1]verbs.WC
		_, err := e.cq.Wait(ctx, wc[:])
		cancel()
		require.NoError(e.t, err)
		require.NoError(e.t, wc[0].Err())
	}
	must(b.dev.Counters()) // after this what its device wrote is there, by Go's rules too
	require.Equal(e.t, m[:n], b.mr.Bytes()[:n])
	require.Equal(e.t, m[:n], m[len(m)/2:len(m)/2+n])
}

// What is not RoCEv2 passes: ARP and neighbour discovery, echo of both families, TCP
// with its super-packets.
func TestOtherTraffic(t *testing.T) {
	for _, mtu := range []int{1500, 4200} {
		r := newRig(t, mtu, mtu)
		stop := r.relay(Config{AB: Line{Rate: 1e6, Buffer: 1000}, BA: Line{Rate: 1e6, Delay: time.Hour / 1000}, Rules: must(fault.Parse("drop"))})
		for _, to := range []string{"192.0.2.2", "fd00:2::2"} {
			r.ping(to)
			r.tcp(to, 8<<20)
		}
		n := stop()
		require.Zero(t, n.Ways[0].Packets)
		require.Zero(t, n.Ways[0].TooLong+n.Ways[0].Refused+n.Ways[0].Missed)
		require.Greater(t, n.Ways[0].OtherOctets, uint64(16<<20))
	}
}

// A tagged frame, which the kernel takes the tag out of, comes out with it: of RoCEv2
// and not, by itself and in a super-packet, passed and treated.
func TestTagged(t *testing.T) {
	r := newRig(t, 1500, 1500)
	var from, to int
	r.a.Do(func() { from = must(sys.FrameSocket(r.a.Index("wa"), 1<<20)) })
	defer sys.Close(from)
	r.b.Do(func() { to = must(sys.FrameSocket(r.b.Index("wb"), 1<<20)) })
	defer sys.Close(to)
	single, several := superOf{sizes: []int{272}, tags: []uint16{0x6005}}, superOf{sizes: []int{272, 272, 16}, tags: []uint16{0x6005}, v6: true}
	arp := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x81, 0, 0x60, 5, 8, 6}, make([]byte, 46)...)
	for _, line := range []Line{{}, {Rate: 1e9, Buffer: 1 << 20}} {
		stop := r.relay(Config{AB: line})
		rx, tx := sys.NewFrameRx(8, 1<<16), sys.NewFrameTx(8)
		var want [][]byte
		for _, s := range []superPacket{super(&single), super(&several), {plain, arp}} {
			tx.Add(s.vnet, s.frame)
			var one run
			if !one.parse(s.vnet, s.frame) {
				want = append(want, s.frame)
			}
			for i := 0; len(s.frame) != len(arp) && i < one.Segments(); i++ {
				var p packet
				one.cut(&p, i)
				want = append(want, p.frame)
			}
		}
		require.Equal(t, 3, first(tx.Send(from, 0)))
		var got [][]byte
		require.Eventually(t, func() bool {
			n, _ := rx.Recv(to)
			for i := range n {
				var f sys.Frame
				rx.Take(i, &f)
				if !f.Tagged {
					continue // the kernels' own
				}
				frame := retag(f.Vnet, f.Octets, f.TPID, f.TCI)
				var one run
				if !one.parse(f.Vnet, frame) {
					got = append(got, bytes.Clone(frame))
					continue
				}
				for k := range one.Segments() {
					var p packet
					one.cut(&p, k)
					got = append(got, p.frame)
				}
			}
			return len(got) == len(want)
		}, 20*time.Second, time.Millisecond)
		require.ElementsMatch(t, want, got)
		require.EqualValues(t, 4, stop().Ways[0].Packets)
	}
}

func first[T, U any](v T, _ U) T { return v }

// ping has the kernel of b answer an echo request of a.
func (r *rig) ping(to string) {
	r.t.Helper()
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if netip.MustParseAddr(to).Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	var c net.Conn
	r.a.Do(func() {
		var err error
		c, err = net.Dial(network, to)
		require.NoError(r.t, err)
	})
	defer c.Close()
	m := []byte{request, 0, 0, 0, 'r', 'x', 0, 1}
	m[2], m[3] = ^(request + 'r'), ^byte('x'+1) // RFC 792; with IPv6 the kernel does it
	buf := make([]byte, 1500)
	for range 20 { // of which some may be lost until the neighbour is known
		_, err := c.Write(m)
		require.NoError(r.t, err)
		require.NoError(r.t, c.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		for {
			n, err := c.Read(buf)
			if err != nil {
				break
			}
			// IPv4 comes with its header.
			if got := buf[max(0, n-len(m)):n]; len(got) == len(m) && got[0] == reply && bytes.Equal(got[4:], m[4:]) {
				return
			}
		}
	}
	r.t.Fatal("no echo")
}

// tcp sends n octets from a to b by the kernels.
func (r *rig) tcp(to string, n int) {
	r.t.Helper()
	var l net.Listener
	var c net.Conn
	r.b.Do(func() { l = must(net.Listen("tcp", net.JoinHostPort(to, "0"))) })
	defer l.Close()
	got := make(chan [32]byte)
	go func() {
		h := sha256.New()
		if s, err := l.Accept(); err == nil {
			_, _ = io.Copy(h, s)
			s.Close()
		}
		got <- [32]byte(h.Sum(nil))
	}()
	r.a.Do(func() { c = must(net.DialTimeout("tcp", l.Addr().String(), 20*time.Second)) })
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(data)
	require.NoError(r.t, c.SetDeadline(time.Now().Add(60*time.Second)))
	must(c.Write(data))
	require.NoError(r.t, c.Close())
	require.Equal(r.t, sha256.Sum256(data), <-got)
}

// RoCEv2 between two devices that send super-packets: whatever is done to it, each
// packet that arrives has a right ICRC, and the data are whole.
func TestRoCE(t *testing.T) {
	red := Line{Rate: 200e6, Buffer: 4 << 20, Marks: true, RED: cc.RED{Kmin: 0, Kmax: 100 << 10, Pmax: 0.5}, Delay: 100 * time.Microsecond}
	for _, c := range []struct {
		name string
		mtu  int
		link string
		cfg  Config
		see  func(t *testing.T, n *Report)
	}{
		{"as it comes", 4200, gorxe.LinkUDP, Config{}, nil},
		{"as it comes, to a ring", 1500, gorxe.LinkPacket, Config{}, nil},
		{"bottleneck", 4200, gorxe.LinkPacket, Config{AB: red, BA: red}, func(t *testing.T, n *Report) {
			require.Positive(t, n.Ways[0].Marked)
			require.Positive(t, n.Ways[1].Marked)
		}},
		{"bottleneck of small packets", 1500, gorxe.LinkUDP, Config{AB: red, BA: red}, nil},
		{"faults", 4200, gorxe.LinkPacket, Config{Rules: must(fault.Parse("drop 0.5%; dup 1%; reorder 1%; delay 10us..300us 1%; ce 5%"))}, func(t *testing.T, n *Report) {
			require.Positive(t, n.Ways[0].FaultLost+n.Ways[1].FaultLost)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.mtu, c.mtu)
			stop := r.relay(c.cfg)
			for _, at := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"fd00:2::1", "fd00:2::2"}} {
				a, b := r.open(r.a, c.link), r.open(r.b, c.link)
				connect(t, a, b, at[0], at[1])
				for _, n := range []int{1, 4096, 5001, 1 << 20} {
					a.moves(b, n)
				}
				for _, e := range []*end{a, b} {
					require.Zero(t, must(e.dev.Counters())["rx_icrc_encapsulated"])
					require.NoError(t, e.dev.Close())
				}
			}
			n := stop()
			require.Zero(t, n.Ways[0].TooLong+n.Ways[0].Refused+n.Ways[0].Missed+n.Ways[0].NoRoom+n.Ways[0].Dropped)
			require.Greater(t, n.Ways[0].Octets, uint64(2<<20))
			require.Greater(t, n.Ways[1].Octets, uint64(2<<20))
			if c.see != nil {
				c.see(t, n)
			}
		})
	}
}

// Corrupt packets arrive, and the ICRC finds them; those of the other direction are whole.
func TestCorrupt(t *testing.T) {
	r := newRig(t, 4200, 4200)
	r.relay(Config{Rules: must(fault.Parse("tx corrupt every=20 limit=10"))})
	a, b := r.open(r.a, gorxe.LinkPacket), r.open(r.b, gorxe.LinkPacket)
	connect(t, a, b, "192.0.2.1", "192.0.2.2")
	a.moves(b, 1<<20)
	require.EqualValues(t, 10, must(b.dev.Counters())["rx_icrc_encapsulated"])
	require.Zero(t, must(a.dev.Counters())["rx_icrc_encapsulated"])
}

// Beyond the relay tcpdump sees single packets, which tshark finds nothing wrong with,
// and whose ICRCs are right.
func TestCaptureBeyond(t *testing.T) {
	for _, tool := range []string{"tcpdump", "tshark"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, which is not installed", tool)
		}
	}
	r := newRig(t, 4200, 4200)
	ours := filepath.Join(t.TempDir(), "own.pcap")
	capture := NewCaptureFile(must(os.Create(ours)))
	stop := r.relay(Config{Rules: must(fault.Parse("tx ce every=3; tx delay 5us")), Capture: capture})
	file, done := r.record()
	for _, at := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"fd00:2::1", "fd00:2::2"}} {
		a, b := r.open(r.a, gorxe.LinkUDP), r.open(r.b, gorxe.LinkPacket)
		connect(t, a, b, at[0], at[1])
		a.moves(b, 300_000)
		require.NoError(t, a.dev.Close())
		require.NoError(t, b.dev.Close())
	}
	done()
	sent := int(stop().Ways[0].Packets)
	require.Greater(t, sent, 100)
	require.NoError(t, capture.Close())

	p := must(pcap.Open(file))
	defer p.Close()
	n := 0
	for f, err := p.Next(); err != io.EOF; f, err = p.Next() {
		require.NoError(t, err)
		requireRight(t, f.Data)
		n++
	}
	require.Equal(t, sent, n)
	marked := 0
	for _, f := range r.tshark(file) {
		if f["ip.dsfield.ecn"] == "3" || f["ipv6.tclass.ecn"] == "3" {
			marked++
		}
		require.NotEmpty(t, f["infiniband.bth.opcode"])
		require.Empty(t, f["_ws.malformed"])
		if f["ipv6.tclass.ecn"] == "" {
			require.Equal(t, good, f["ip.checksum.status"])
		}
		require.NotEqual(t, "0", f["udp.checksum.status"], "bad")
		require.LessOrEqual(t, must(strconv.Atoi(f["udp.length"])), 4096+64, "a super-packet")
	}
	require.Equal(t, sent/3, marked)
	own := 0
	for _, f := range r.tshark(ours) {
		if f["infiniband.bth.opcode"] != "" && f["eth.dst"] == beyond {
			require.NotEqual(t, "0", f["udp.checksum.status"], "bad")
			own++
		}
	}
	require.Equal(t, sent, own, "the relay's own capture")
}

const (
	good   = "1"                 // status of a checksum in tshark
	beyond = "02:00:00:00:62:0a" // b
)

// record has tcpdump write what arrives at b.
func (r *rig) record() (file string, done func()) {
	file = filepath.Join(r.t.TempDir(), "beyond.pcap")
	cmd := r.b.Command(testbed.AsTest, "tcpdump", "-i", "wb", "-Q", "in", "-w", file, "-Z", "root", "--immediate-mode", "-U", "-B", "32768", "udp port 4791")
	pipe := must(cmd.StderrPipe())
	r.b.Start(cmd)
	s := bufio.NewScanner(pipe)
	for s.Scan() && !strings.Contains(s.Text(), "listening on") {
	}
	return file, func() {
		require.NoError(r.t, cmd.Process.Signal(syscall.SIGINT))
		rest, _ := io.ReadAll(pipe)
		require.NoError(r.t, cmd.Wait(), string(rest))
		require.Contains(r.t, string(rest), "0 packets dropped by kernel")
	}
}

// tshark reads fields of each packet of a capture.
func (r *rig) tshark(file string) (out []map[string]string) {
	r.t.Helper()
	fields := []string{
		"eth.dst", "ip.dsfield.ecn", "ipv6.tclass.ecn", "ip.checksum.status", "udp.checksum.status", "udp.length", "infiniband.bth.opcode", "_ws.malformed",
	}
	args := []string{"-r", file, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields", "-E", "separator=;"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	var text, msg bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stdout, cmd.Stderr = &text, &msg
	require.NoError(r.t, cmd.Run(), msg.String())
	for line := range strings.Lines(text.String()) {
		m := map[string]string{}
		for i, v := range strings.Split(strings.TrimSpace(line), ";") {
			m[fields[i]] = v
		}
		out = append(out, m)
	}
	return out
}

// A super-packet whose packets are longer than the other MTU is not sent, nor is a
// packet that is; who looks at the log sees why.
func TestTooLong(t *testing.T) {
	r := newRig(t, 4200, 1500)
	stop := r.relay(Config{})
	var c net.Conn
	r.ping("192.0.2.2") // it knows the neighbour
	r.b.Do(func() {
		l := must(net.ListenPacket("udp", "192.0.2.2:9"))
		t.Cleanup(func() { l.Close() })
	})
	r.a.Do(func() { c = must(net.Dial("udp", "192.0.2.2:9")) })
	must(c.Write(make([]byte, 1472)))
	must(c.Write(make([]byte, 1473)))
	sendRun(t, r, 1473)
	r.ping("192.0.2.2") // what was sent before has come
	require.EqualValues(t, 2, stop().Ways[0].TooLong)
}

// sendRun sends a super-packet of two datagrams of n octets from a.
func sendRun(t *testing.T, r *rig, n int) {
	r.a.Do(func() {
		fd := must(syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0))
		defer syscall.Close(fd)
		const udpSegment = 103
		require.NoError(t, syscall.SetsockoptInt(fd, syscall.IPPROTO_UDP, udpSegment, n))
		require.NoError(t, syscall.Sendto(fd, make([]byte, 2*n), 0, &syscall.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 2}}))
	})
}

// An interface that goes ends it, with its name; a mistake is told at once.
func TestInterfaces(t *testing.T) {
	r := newRig(t, 1500, 1500)
	open := func(a, b string, log func(string)) (err error) {
		r.m.Do(func() {
			var l *Relay
			if l, err = Open(Config{A: a, B: b, Log: log}); err == nil {
				l.Close()
			}
		})
		return err
	}
	require.ErrorContains(t, open("wa", "nosuch0", nil), "wa, wb")
	require.ErrorContains(t, open("wa", "wa", nil), "one interface")
	require.ErrorContains(t, open("lo", "wa", nil), "loopback")
	require.NoError(t, open("wa", "wb", nil))

	ended := make(chan error)
	opened := make(chan struct{})
	go r.m.Do(func() {
		l := must(Open(Config{A: "wa", B: "wb"}))
		defer l.Close()
		close(opened)
		ended <- l.Run(context.Background())
	})
	<-opened
	r.a.Tool("ip", "link", "del", "wa") // and with it the other end
	require.ErrorContains(t, <-ended, "wa has gone")
}

// BenchmarkRate sends a train that the buffer takes, and tells how long the kernel of
// the other end saw it take, against what it should. Where other programs have the
// processors, the train comes slower than the line could take it.
func BenchmarkRate(b *testing.B) {
	for _, c := range []struct {
		name string
		rate int64
		size int
	}{{"10M-4K", 10e6, 4140}, {"100M-4K", 100e6, 4140}, {"500M-4K", 500e6, 4140}, {"500M-1K", 500e6, 1068}, {"1G-4K", 1e9, 4140}} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, 4200, 4200)
			r.relay(Config{AB: Line{Rate: c.rate, Buffer: 256 << 20}})
			var from, to int
			r.a.Do(func() { from = must(sys.FrameSocket(r.a.Index("wa"), 1<<20)) })
			defer sys.Close(from)
			r.b.Do(func() { to = must(sys.FrameSocket(r.b.Index("wb"), 256<<20)) })
			defer sys.Close(to)
			pay := c.size - wire.IPv4Len - wire.UDPLen
			train := super(&superOf{sizes: slices.Repeat([]int{pay}, 15)})
			n := int(c.rate / 8 / int64(c.size) / 15) // a second of runs
			rx, tx := sys.NewFrameRx(64, 1<<16), sys.NewFrameTx(1)
			tx.Add(train.vnet, train.frame)
			for b.Loop() {
				var begin, end int64
				got := 0
				go func() {
					for i := range n {
						_, _ = tx.Send(from, 0)
						if i%32 == 31 {
							time.Sleep(time.Millisecond) // or the relay's socket overflows
						}
					}
				}()
				for last := time.Now(); got < n*15 && time.Since(last) < 5*time.Second; {
					k, _ := rx.Recv(to)
					if k > 0 {
						last = time.Now()
					}
					for i := range k {
						var f sys.Frame
						var one run
						if rx.Take(i, &f); !one.parse(f.Vnet, f.Octets[sys.FrameRoom:]) {
							continue
						}
						if got++; begin == 0 {
							begin = f.At
						}
						end = f.At
					}
					if k == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				rate := float64(got-1) * float64(c.size) * 8e9 / float64(end-begin)
				b.ReportMetric(100*rate/float64(c.rate), "%ofrate")
			}
		})
	}
}
