package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/interop/peer"
	"github.com/gorxe/gorxe/verbs"
)

// Congestion: a bottleneck between the guest and our side, made by rxe relay,
//
//	guest --- tapN -- rxe relay -- relN ... portN -- bridge --- our side
//
// and what both make of it. Soft-RoCE sends the ECN field that its program asks for,
// looks at none, and neither sends nor takes CNPs.

// jam is a kind of case of this group.
type jam struct {
	kind string
	// relay is what rxe relay is told, beside its interfaces: the guest's is A.
	relay string
	// rules break our link.
	rules string
	// ect has the guest's queue pairs send ECT(0).
	ect bool
	// ours says that our side sends, otherwise the guest does.
	ours bool

	// judge looks at what the relay, the capture and both sides' counters say.
	judge func(*traffic) error
}

// A guest sends some 10 Mb/s, less on a busy machine. Nothing that it has under way is
// lost, 128 packets; of ours, which may be 512, some is.
const (
	slowMarks  = "--rate 4M --buffer 512K --kmin 1K --kmax 3K --direction ab"
	slowLosses = "--rate 8M --buffer 32K --kmin 8K --kmax 16K --direction ba"
)

var jams = []jam{
	{kind: "marks", relay: slowMarks, ect: true, judge: (*traffic).marked},
	{kind: "marks-of-ours", rules: "rx ce 20%", ect: true, judge: (*traffic).notified},
	{kind: "not-ect", relay: slowMarks, judge: (*traffic).notMarked},
	{kind: "no-marks", ect: true, judge: (*traffic).quiet},
	{kind: "slow-line", relay: slowLosses, ours: true, judge: (*traffic).lossy},
	{kind: "forged-cnps", judge: (*traffic).forged},
}

// jamOf returns the kind of a case of this group, or nil.
func jamOf(kind string) *jam {
	for i := range jams {
		if jams[i].kind == kind {
			return &jams[i]
		}
	}
	return nil
}

// congestionCases are those of this group: every pair of role, link, family and suite
// for each kind.
func congestionCases() []Case {
	var out []Case
	for seed, k := range jams {
		possible := func(r []int) bool {
			// Nobody who does not know the guest's IPv4 identifications can make one that
			// link udp takes.
			return k.kind != "forged-cnps" || links[r[1]] != linkUDP || families[r[2]] == 6
		}
		for _, r := range cover([]int{len(roles), len(links), len(families), len(suites)}, possible, uint64(seed)) {
			out = append(out, Case{Group: groupCongestion, Kind: k.kind, Role: roles[r[0]], Link: links[r[1]], Family: families[r[2]], Suite: suites[r[3]], MTU: 1024})
		}
	}
	return out
}

// jammed moves messages by every operation in the direction of the case, and compares
// every octet.
func (w *world) jammed() error {
	guest, _ := w.sides()
	w.tune = func(e *end, o *verbs.ConnectOptions) {
		if e == guest && w.jam.ect {
			o.TrafficClass = ect0
		}
	}
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	// Requests carry data one way, READs fetch it the other.
	ops := []verbs.WROpcode{verbs.WRRead}
	if (w.req == guest) != w.jam.ours {
		ops = []verbs.WROpcode{verbs.WRWrite, verbs.WRSend}
	}
	for i := range 6 {
		t := transfer{id: uint64(i), op: ops[i%len(ops)], len: 100_000 + i, reqOff: i << 17, rspOff: (6 - i) << 17}
		if err := w.move(m, []transfer{t}); err != nil {
			return err
		}
	}
	if err := w.req.check(m.req, 0, regionSize); err != nil {
		return err
	}
	return w.rsp.check(m.rsp, 0, regionSize)
}

// sides are the guest's end, and ours.
func (w *world) sides() (guest, us *end) {
	if _, rxe := w.req.side.(kernel); rxe {
		return w.req, w.rsp
	}
	return w.rsp, w.req
}

// forgedCNPs has the guest send CNPs that Soft-RoCE never would: such as come from
// where our peer is slow our queue pair down, those from elsewhere do nothing, and the
// conversation goes on.
func (w *world) forgedCNPs() error {
	if err := w.ready(regionSize); err != nil {
		return err
	}
	m, err := w.filled()
	if err != nil {
		return err
	}
	guest, us := w.sides()
	other, err := w.another()
	if err != nil {
		return err
	}
	defer other.Close()
	count := func() (handled, ignored, waited uint64, err error) {
		c, err := us.side.counters()
		if err != nil {
			return 0, 0, 0, err
		}
		s, err := us.qp.(ourQP).Stats()
		return s["rp_cnp_handled"], c["rp_cnp_ignored"], s["pacing_wait"], err
	}
	const n = forgeries
	for _, c := range []struct {
		what string
		src  netip.Addr
		ours bool
	}{
		{"from an address that no peer has", addrOfNobody(guest.addr), false},
		{"from the peer", guest.addr, true},
	} {
		handled, ignored, waited, err := count()
		if err != nil {
			return err
		}
		if err := w.whileMoving(m, func() error {
			return other.CNP(peer.CNP{To: us.self.QPN, Src: c.src, Dst: us.addr, MAC: macOf(w.host), Count: n})
		}); err != nil {
			return fmt.Errorf("CNPs %s: %w", c.what, err)
		}
		now, ignore, wait, err := count()
		if err != nil {
			return err
		}
		switch {
		case c.ours && (now-handled != n || wait == waited):
			return fmt.Errorf("CNPs %s: %d of %d handled, and the queue pair has waited for its rate for %v", c.what, now-handled, n, time.Duration(wait-waited))
		case !c.ours && (now != handled || ignore-ignored != n || wait != waited):
			return fmt.Errorf("CNPs %s: %d handled, %d of %d ignored, and the queue pair has waited for its rate for %v", c.what, now-handled, ignore-ignored, n, time.Duration(wait-waited))
		}
		if c.ours {
			w.note = fmt.Sprintf("%d CNPs of %d handled; waited %v for the rate", now-handled, n, time.Duration(wait-waited).Round(time.Microsecond))
		}
	}
	return nil
}

// whileMoving moves data that our side sends, message by message, until something
// else is done, and compares it.
func (w *world) whileMoving(m *models, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	op := verbs.WRWrite
	if guest, _ := w.sides(); guest == w.req {
		op = verbs.WRRead
	}
	for id := uint64(1); ; id++ {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			return w.move(m, []transfer{{id: 0, op: op, len: maxMessage, reqOff: 1000, rspOff: 2000}})
		default:
		}
		if err := w.post(work{id: id, op: op, off: 1000, len: 1 << 18, remote: w.rsp.mem.Addr() + 2000, rkey: w.rsp.mem.RKey()}); err != nil {
			return errors.Join(err, <-done)
		}
		if _, err := w.req.done(id); err != nil {
			return errors.Join(err, <-done)
		}
	}
}

// forgeries is how many CNPs are sent at a time.
const forgeries = 40

// addrOfNobody is one on the same network.
func addrOfNobody(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.MustParseAddr("192.0.2.77")
	}
	return netip.MustParseAddr("fd00::77")
}

func macOf(host int) string { return fmt.Sprintf("02:00:00:00:00:%02x", host) }

// traffic is what was seen of a case.
type traffic struct {
	of    *Case
	relay struct{ AB, BA relayed }
	guest map[string]uint64 // what its counters moved by
	ours  map[string]uint64
	sent  [4]int // packets of the guest's, but ACKs, by ECN
	came  int    // packets to the guest
	cnps  int    // CNPs among them
	odd   string // a CNP that is not as it should be
	back  int    // CNPs that the guest sent
}

// relayed is what rxe relay reports of a direction.
type relayed struct {
	Packets, Marked, Dropped, Missed, Refused uint64
	Queue                                     struct{ Max int }
}

// notified: each CNP of ours came to the guest, in form, which counts none of them.
func (x *traffic) notified() error {
	marked, sent := x.ours["np_ecn_marked_roce_packets"], x.ours["np_cnp_sent"]
	switch {
	case x.sent[ect0] == 0 || x.sent[0]+x.sent[1]+x.sent[3] > 0:
		return fmt.Errorf("the guest was to send ECT(0) alone: %v packets by ECN", x.sent)
	case marked == 0 || sent == 0:
		return fmt.Errorf("%d marked packets came, %d CNPs were sent", marked, sent)
	case sent > marked:
		return fmt.Errorf("%d CNPs for %d marked packets", sent, marked)
	case uint64(x.cnps) != sent:
		return fmt.Errorf("%d CNPs were sent, %d are in the capture", sent, x.cnps)
	case x.odd != "":
		return errors.New(x.odd)
	}
	return x.uncounted()
}

// uncounted: Soft-RoCE drops CNPs before it counts packets.
func (x *traffic) uncounted() error {
	if got := x.guest["rcvd_pkts"]; got != uint64(x.came-x.cnps) {
		return fmt.Errorf("the guest has counted %d packets; %d came, and %d of those were CNPs", got, x.came, x.cnps)
	}
	return nil
}

func (x *traffic) marked() error {
	if x.relay.AB.Marked == 0 {
		return fmt.Errorf("the relay marked nothing: it let %d packets pass, and its queue held %d octets at most", x.relay.AB.Packets, x.relay.AB.Queue.Max)
	}
	if n := x.ours["np_ecn_marked_roce_packets"]; n != x.relay.AB.Marked {
		return fmt.Errorf("the relay marked %d packets, %d came marked", x.relay.AB.Marked, n)
	}
	return x.notified()
}

// none: nobody made a CNP but those that were made by hand.
func (x *traffic) none() error {
	if n, m := x.ours["np_cnp_sent"], x.ours["np_ecn_marked_roce_packets"]; n+m != 0 || x.cnps != 0 {
		return fmt.Errorf("%d marked packets came, %d CNPs were sent, %d are in the capture", m, n, x.cnps)
	}
	return nil
}

// forged: the guest sent those that were made by hand.
func (x *traffic) forged() error {
	if x.back != 2*forgeries {
		return fmt.Errorf("%d CNPs of the guest's are in the capture, not %d", x.back, 2*forgeries)
	}
	return x.none()
}

func (x *traffic) quiet() error {
	if x.sent[ect0] == 0 || x.back != 0 || x.ours["rp_cnp_handled"] != 0 {
		return fmt.Errorf("the guest sent %v packets by ECN, and %d CNPs", x.sent, x.back)
	}
	return x.none()
}

// notMarked: the queue was long enough for marks.
func (x *traffic) notMarked() error {
	if x.relay.AB.Queue.Max <= 3<<10 || x.relay.AB.Marked != 0 || x.sent[0] == 0 || x.sent[1]+x.sent[2]+x.sent[3] != 0 {
		return fmt.Errorf("the guest sent %v packets by ECN; the relay held %d octets at most, and marked %d packets", x.sent, x.relay.AB.Queue.Max, x.relay.AB.Marked)
	}
	return x.none()
}

// lossy: what the guest got was marked and lost, and it said nothing of the marks.
func (x *traffic) lossy() error {
	if x.relay.BA.Dropped == 0 || x.relay.BA.Marked == 0 {
		return fmt.Errorf("the relay marked %d packets and lost %d", x.relay.BA.Marked, x.relay.BA.Dropped)
	}
	if x.back != 0 || x.ours["rp_cnp_handled"] != 0 {
		return fmt.Errorf("the guest sent %d CNPs, and %d were handled", x.back, x.ours["rp_cnp_handled"])
	}
	return nil
}

func (x *traffic) String() string {
	s := fmt.Sprintf("%d marked, %d CNPs", x.ours["np_ecn_marked_roce_packets"], x.cnps)
	for _, r := range []relayed{x.relay.AB, x.relay.BA} {
		if r.Marked+r.Dropped > 0 {
			s += fmt.Sprintf("; relay: %d packets, %d marked, %d lost, %d KiB queued at most", r.Packets, r.Marked, r.Dropped, r.Queue.Max>>10)
		}
	}
	if n := x.ours["packet_seq_err"]; n > 0 {
		s += fmt.Sprintf("; %d sequence NAKs", n)
	}
	return s
}

const ect0 = 2

// wireFields are what tshark is asked for.
var wireFields = []string{
	"eth.src", "ip.dsfield.dscp", "ipv6.tclass.dscp", "ip.dsfield.ecn", "ipv6.tclass.ecn", "udp.dstport", "udp.length",
	"infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.bth.p_key",
}

// look has tshark read what passed at the guest's side.
func (x *traffic) look(ctx context.Context, file string, guest int) error {
	args := []string{"-r", file, "-n", "-T", "fields", "-E", "separator=;", "-E", "occurrence=f"}
	for _, f := range wireFields {
		args = append(args, "-e", f)
	}
	out, err := exec.CommandContext(ctx, "tshark", args...).Output()
	if err != nil {
		return fmt.Errorf("tshark: %w", err)
	}
	return x.parse(string(out), macOf(guest))
}

// parse reads what tshark printed.
func (x *traffic) parse(out, guest string) error {
	for line := range strings.Lines(out) {
		v := strings.Split(strings.TrimSpace(line), ";")
		if len(v) != len(wireFields) {
			return fmt.Errorf("tshark: no RoCE packet: %q", line)
		}
		opcode, err := strconv.ParseUint(v[7], 0, 8)
		if err != nil {
			return fmt.Errorf("tshark: no RoCE packet: %q", line)
		}
		ecn, err := strconv.ParseUint(v[3]+v[4], 0, 2) // one of them is empty
		if err != nil {
			return fmt.Errorf("tshark: %q: %w", line, err)
		}
		switch op, theirs := bth.Opcode(opcode), v[0] == guest; {
		case theirs && op == bth.CNP:
			x.back++
		case theirs && op != bth.RCAck:
			x.sent[ecn]++
		case !theirs:
			x.came++
			if op != bth.CNP {
				break
			}
			x.cnps++
			psn, perr := strconv.ParseUint(v[8], 0, 24)
			if v[1]+v[2] != "48" || ecn != ect0 || v[5] != "4791" || v[6] != "40" || psn != 0 || perr != nil || v[9] != "0xffff" && v[9] != "65535" {
				x.odd = fmt.Sprintf("a CNP is not of DSCP 48, ECT(0), to port 4791, of 40 octets, PSN 0 and P_Key 0xffff: %q", line)
			}
		}
	}
	return nil
}

// judgeTraffic looks at a case of this group when it is over.
func (r *runner) judgeTraffic(ctx context.Context, c *Case, res *Result, file string) error {
	x := traffic{of: c, guest: res.Guest, ours: res.Ours}
	if res.relayed != "" {
		if err := json.Unmarshal([]byte(res.relayed), &x.relay); err != nil {
			return fmt.Errorf("rxe relay: %w: %q", err, res.relayed)
		}
	}
	err := x.look(ctx, file, r.guest)
	if err == nil {
		err = jamOf(c.Kind).judge(&x)
	}
	res.Note = strings.TrimSpace(res.Note + " " + x.String())
	return err
}

// throughRelay puts rxe relay between the guest and the bridge. stop takes it away
// again and returns its report, as JSON.
func (r *runner) throughRelay(ctx context.Context, flags string) (stop func() (string, error), err error) {
	tap, near, far := fmt.Sprintf("tap%d", r.guest), fmt.Sprintf("rel%d", r.guest), fmt.Sprintf("port%d", r.guest)
	ip := func(args string) error {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	}
	back := func() error {
		return errors.Join(ip("link del "+near), ip("link set "+tap+" master br0"))
	}
	mtu, err := os.ReadFile("/sys/class/net/" + tap + "/mtu")
	if err != nil {
		return nil, err
	}
	if err := ip(fmt.Sprintf("link add %s mtu %s type veth peer name %s mtu %[2]s", near, strings.TrimSpace(string(mtu)), far)); err != nil {
		return nil, err
	}
	if err := errors.Join(ip("link set "+tap+" nomaster"), ip("link set "+far+" master br0 up"), ip("link set "+near+" up")); err != nil {
		return nil, errors.Join(err, back())
	}
	cmd := exec.CommandContext(ctx, r.rxe, append([]string{"relay", tap, near, "--json"}, strings.Fields(flags)...)...)
	var report strings.Builder
	cmd.Stdout = &report
	says, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, back())
	}
	begun := make([]byte, 256)
	n, err := says.Read(begun) // what it is, when its interfaces are open
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("rxe relay: %w: %s", err, begun[:n]), cmd.Wait(), back())
	}
	rest := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(says)
		rest <- string(b)
	}()
	return func() (string, error) {
		_ = cmd.Process.Signal(os.Interrupt)
		said := <-rest
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("rxe relay: %w: %s", err, said)
		}
		return report.String(), errors.Join(err, back())
	}, nil
}
