package linktest

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// queue is a queueing discipline that marks instead of losing, behind a line of
// 50 Mb/s.
type queue struct {
	name  string
	kind  string   // the one that marks
	line  []string // the one above it; nil if it is one itself
	args  []string
	count string // of packets marked, in what tc prints of it unless it is 0
	cuts  bool   // super-packets become single packets first
}

// The line passes a super-packet whole where its bucket holds one, or cuts it up
// (tbf_segment).
var (
	wholeLine = strings.Fields("tbf rate 50mbit burst 100k limit 10m")
	cutLine   = strings.Fields("tbf rate 50mbit burst 10k limit 10m")
)

// queues differ in what one mark is of: of a super-packet they pass whole, all
// packets are marked, as INET_ECN_set_ce marks its one header and the kernel cuts
// it up afterwards.
var queues = []queue{
	{"red whole", "red", wholeLine, redArgs, "marked", false},
	{"red cut", "red", cutLine, redArgs, "marked", true},
	{"codel whole", "codel", wholeLine, codelArgs, "ce_mark", false},
	{"codel cut", "codel", cutLine, codelArgs, "ce_mark", true},
	{"fq_codel whole", "fq_codel", wholeLine, codelArgs, "ce_mark", false},
	{"fq_codel cut", "fq_codel", cutLine, codelArgs, "ce_mark", true},
	{"netem whole", "netem", wholeLine, []string{"loss", "50%", "ecn"}, "drops", false},
	{"netem cut", "netem", cutLine, []string{"loss", "50%", "ecn"}, "drops", true},
	{"cake cut", "cake", nil, strings.Fields("bandwidth 50mbit besteffort rtt 1ms"), "ecn_mark", true},
	{"cake whole", "cake", nil, strings.Fields("bandwidth 50mbit besteffort rtt 1ms no-split-gso"), "ecn_mark", false},
}

var (
	redArgs   = strings.Fields("limit 4m min 6000 max 60000 avpkt 1500 burst 17 bandwidth 50mbit probability 0.5 ecn")
	codelArgs = strings.Fields("target 5s interval 10s ce_threshold 2ms") // it marks by the threshold alone
)

// install puts the discipline on an interface of a host, and returns what counts
// its marks.
func (q *queue) install(t testing.TB, h *testbed.Host, dev string) (marks func() int) {
	t.Helper()
	at := []string{"root"}
	if q.line != nil {
		addQdisc(t, h, dev, append([]string{"root", "handle", "1:"}, q.line...)...)
		at = []string{"parent", "1:1"}
	}
	addQdisc(t, h, dev, append(append(at, "handle", "10:", q.kind), q.args...)...)
	return func() int { return q.marks(t, h, dev) }
}

// require skips the test where the kernel does not have the discipline.
func (q *queue) require(t testing.TB, lone *testbed.Host) {
	t.Helper()
	requireQdisc(t, lone, append([]string{q.kind}, q.args...))
	if q.line != nil {
		requireQdisc(t, lone, q.line)
	}
}

func requireQdisc(t testing.TB, lone *testbed.Host, spec []string) {
	t.Helper()
	lone.Tool("tc", "-V")
	out, err := lone.Run(lone.Command(testbed.AsTest, "tc", append(strings.Fields("qdisc add dev lo root"), spec...)...))
	if strings.Contains(out, "kind is unknown") {
		t.Skipf("needs the queueing discipline %s, which the kernel does not have (sch_%[1]s)", spec[0])
	}
	if err != nil {
		t.Fatalf("tc qdisc add %v: %v\n%s", spec, err, out)
	}
	_, _ = lone.Run(lone.Command(testbed.AsTest, "tc", "qdisc", "del", "dev", "lo", "root"))
}

func addQdisc(t testing.TB, h *testbed.Host, dev string, args ...string) {
	t.Helper()
	h.Tool("tc", append([]string{"qdisc", "add", "dev", dev}, args...)...)
}

// marks returns how many packets the discipline has marked.
func (q *queue) marks(t testing.TB, h *testbed.Host, dev string) int {
	t.Helper()
	var all []map[string]any
	if out := h.Tool("tc", "-s", "-j", "qdisc", "show", "dev", dev); json.Unmarshal([]byte(out), &all) != nil {
		t.Fatalf("tc prints %s", out)
	}
	for _, d := range all {
		if d["kind"] != q.kind {
			continue
		}
		if tins, ok := d["tins"].([]any); ok { // of cake
			d = tins[0].(map[string]any)
		}
		n, _ := d[q.count].(float64)
		return int(n)
	}
	t.Fatalf("no %s on %s", q.kind, dev)
	return 0
}

const (
	queuedBursts = 30 // few enough for the slots of a packet ring
	queuedRun    = 15 // packets of a burst
)

// Queued sends super-packets from host A to host B through queueing disciplines
// that mark, on A's interface and on a bridge's port, and has each packet's mark
// compared with that of the packet that left the discipline, and their number with
// what the discipline counts. Between discipline and link, B's interface merges
// packets or does not. What stands in for a discipline where the kernel has none is
// a program on the bridge's other port.
func Queued(t *testing.T, send, receive Opener) {
	lone := testbed.NewHost(t)
	for i := range queues {
		q := &queues[i]
		t.Run(q.name+" on veth", func(t *testing.T) {
			q.require(t, lone)
			p := testbed.NewPair(t, 9000)
			running(t, p.A)
			x := exchange{p: p, host: p.A, dev: p.A.Iface, cuts: q.cuts, loses: q.kind == "netem"}
			x.run(t, send, receive, func() func() int { return q.install(t, x.host, x.dev) })
		})
		t.Run(q.name+" on bridge", func(t *testing.T) {
			q.require(t, lone)
			p, m := Bridge(t, "9000")
			x := exchange{p: p, host: m, dev: PortB, cuts: q.cuts, loses: q.kind == "netem"}
			x.run(t, send, receive, func() func() int { return q.install(t, x.host, x.dev) })
		})
	}
	for name, line := range map[string][]string{"program whole": wholeLine, "program cut": cutLine} {
		t.Run(name, func(t *testing.T) {
			requireQdisc(t, lone, line)
			p, m := Bridge(t, "9000")
			x := exchange{p: p, host: m, dev: PortB, cuts: name == "program cut"}
			x.run(t, send, receive, func() func() int {
				addQdisc(t, p.A, p.A.Iface, append([]string{"root"}, line...)...)
				return marker(t, m, PortA)
			})
		})
	}
}

// exchange is how packets go from A to B, and are marked in between.
type exchange struct {
	p     *testbed.Pair
	host  *testbed.Host // has the interface behind which marks are heard
	dev   string
	cuts  bool
	loses bool // packets of others, which count as marks
	marks func() int
}

// run installs what marks and exchanges bursts of both families.
func (x *exchange) run(t *testing.T, send, receive Opener, install func() (marks func() int)) {
	for _, g := range GROs {
		g.Set(x.p.B, x.p.B.Iface)
		a, b := send(t, x.p.A), receive(t, x.p.B)
		if x.marks == nil {
			for _, f := range Families { // so that no question for an address is in the queue
				one := Burst(a.Info(), Flow(t, x.p.A, a, f.A, f.B), 1, 1, 64)
				Send(t, a, one)
				MatchPackets(t, Receive(t, b, 1), one)
			}
			x.marks = install()
		}
		for _, f := range Families {
			x.bursts(t, a, b, f)
		}
		a.Close()
		b.Close()
	}
}

// id is a packet of an exchange.
type id struct{ qpn, psn int }

func idOf(pkt []byte) id { return id{int(pkt[6])<<8 | int(pkt[7]), int(pkt[11])} }

func (x *exchange) bursts(t *testing.T, a, b Link, f Family) {
	t.Helper()
	before := x.marks()
	fl := Flow(t, x.p.A, a, f.A, f.B)
	fl.TOS = 46<<2 | wire.ECNECT0
	var bs []*wire.Burst
	sent := make(map[id]string)
	for i := range queuedBursts {
		bs = append(bs, Burst(a.Info(), fl, uint32(i)<<4, queuedRun, 1024))
		for k := range queuedRun {
			pkt := bs[i].AppendSegment(nil, k)
			sent[idOf(pkt)] = string(pkt)
		}
	}
	out := listen(t, x.host, x.dev)
	defer out.close()
	Send(t, a, bs...)
	const total = queuedBursts * queuedRun
	left := out.marks(bs[0].SegLen(), total)

	v := wire.NewVerifier()
	marked, runs := 0, make(map[int]bool)
	ds := Receive(t, b, total)
	for i := range ds {
		d := &ds[i]
		for s := range d.Segments() {
			k := idOf(d.Segment(s))
			if string(d.Segment(s)) != sent[k] {
				t.Fatalf("%s: packet %v differs from what was sent, or came twice", f.Name, k)
			}
			delete(sent, k)
			if r := v.Check(0, d, s); r != trace.None {
				t.Fatalf("%s: packet %v: %v", f.Name, k, r)
			}
			if want := left[k]; d.TOS != want || d.TOS|wire.ECNCE != fl.TOS|wire.ECNCE {
				t.Fatalf("%s: packet %v came with traffic class %#x, left with %#x, was sent with %#x", f.Name, k, d.TOS, want, fl.TOS)
			}
			if d.TOS&wire.ECNCE == wire.ECNCE {
				marked++
				runs[k.qpn] = true
			}
		}
	}
	if !x.cuts { // each mark is of a run
		if marked != len(runs)*queuedRun {
			t.Errorf("%s: of %d runs that have marks, %d packets are marked", f.Name, len(runs), marked)
		}
		marked = len(runs)
	}
	counted := x.marks() - before
	if marked == 0 || marked > counted || marked < counted && !x.loses {
		t.Errorf("%s: %d marks came, %d were made", f.Name, marked, counted)
	}
}

// ear is a packet socket that hears what leaves by an interface, behind its
// queueing disciplines.
type ear struct {
	t       testing.TB
	fd, dev int
}

func listen(t testing.TB, h *testbed.Host, dev string) (e *ear) {
	t.Helper()
	e = &ear{t: t, dev: h.Index(dev)}
	h.Do(func() {
		var err error
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		if e.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			// Nowhere else: a packet that somebody hears is shared, and not marked.
			unix.Bind(e.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: e.dev}),
			unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.SetsockoptTimeval(e.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(Patience / time.Second)}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	return e
}

func (e *ear) close() { unix.Close(e.fd) }

// marks hears n packets, single or in runs of segments, and returns the traffic
// class of each.
func (e *ear) marks(segLen, n int) map[id]uint8 {
	e.t.Helper()
	seen := make(map[id]uint8)
	buf := make([]byte, 1<<17)
	for len(seen) < n {
		k, from, err := unix.Recvfrom(e.fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			e.t.Fatalf("%d of %d packets left: %v", len(seen), n, err)
		}
		sa, ok := from.(*unix.SockaddrLinklayer)
		var d wire.Datagram
		if !ok || sa.Pkttype != unix.PACKET_OUTGOING || wire.ParseFrame(buf[:k], &d) != trace.None {
			continue
		}
		d.SegLen = segLen
		for s := range d.Segments() {
			seen[idOf(d.Segment(s))] = d.TOS
		}
	}
	return seen
}
