package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
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

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/cc"
	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/wire"
)

// endOfCapture is the payload of the last datagram of a capture.
var endOfCapture = []byte("end of capture")

// record has tcpdump write what passes a host's interface. stop returns when all that
// passed before it is in the file.
func record(t *testing.T, h *testbed.Host) (file string, stop func()) {
	file = filepath.Join(t.TempDir(), "wire.pcap")
	cmd := h.Command(testbed.AsTest, "tcpdump", "-i", testbed.Iface, "-w", file, "-Z", "root", "--immediate-mode", "-U", "-B", "65536", "-s", "128",
		"--time-stamp-precision=nano", "udp port 4791")
	pipe, err := cmd.StderrPipe()
	require.NoError(t, err)
	h.Start(cmd)
	s := bufio.NewScanner(pipe)
	for s.Scan() && !strings.Contains(s.Text(), "listening on") {
	}
	return file, func() {
		h.Do(func() {
			s, err := net.Dial("udp", netip.AddrPortFrom(testbed.A4, wire.Port).String())
			require.NoError(t, err)
			defer s.Close()
			_, err = s.Write(endOfCapture)
			require.NoError(t, err)
		})
		require.Eventually(t, func() bool {
			b, err := os.ReadFile(file)
			return err == nil && bytes.HasSuffix(b, endOfCapture)
		}, 30*time.Second, 5*time.Millisecond, "tcpdump has written everything")
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		rest, _ := io.ReadAll(pipe)
		require.NoError(t, cmd.Wait(), string(rest))
		require.Contains(t, string(rest), "0 packets dropped by kernel")
	}
}

// framed is a RoCEv2 packet of a capture, as tshark decoded it.
type framed struct {
	at         time.Duration // since 1970
	src, dst   netip.Addr
	dscp, ecn  int
	from, port int // UDP
	length     int // of UDP
	opcode     uint8
	to, psn    uint32
	se, migReq string // flags, as tshark prints them
	pad, tver  int
	pkey       int
	ackReq     string
	bth        []byte // from BTH on, as far as it was captured
}

var frameFields = []string{
	"frame.time_epoch", "ip.src", "ipv6.src", "ip.dst", "ipv6.dst", "ip.dsfield.dscp", "ipv6.tclass.dscp", "ip.dsfield.ecn", "ipv6.tclass.ecn",
	"udp.srcport", "udp.dstport", "udp.length", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.se",
	"infiniband.bth.m", "infiniband.bth.padcnt", "infiniband.bth.tver", "infiniband.bth.p_key", "infiniband.bth.a", "udp.payload",
}

// readFrames has tshark decode a capture. It has nothing of ours in it.
func readFrames(t *testing.T, file string) []framed {
	t.Helper()
	args := []string{"-r", file, "-n", "-T", "fields", "-E", "separator=;", "-E", "occurrence=f"}
	for _, f := range frameFields {
		args = append(args, "-e", f)
	}
	var msg bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &msg
	out, err := cmd.Output()
	require.NoError(t, err, msg.String())
	var fs []framed
	for line := range strings.Lines(string(out)) {
		v := strings.Split(strings.TrimSuffix(line, "\n"), ";")
		require.Len(t, v, len(frameFields), line)
		raw, err := hex.DecodeString(strings.ReplaceAll(v[21], ":", ""))
		require.NoError(t, err, line)
		if bytes.HasPrefix(raw, endOfCapture) {
			continue
		}
		num := func(i ...int) int {
			s := ""
			for _, i := range i {
				s = cmp.Or(s, v[i])
			}
			n, err := strconv.ParseUint(s, 0, 32)
			require.NoError(t, err, "%s of %q", frameFields[i[0]], line)
			return int(n)
		}
		sec, frac, _ := strings.Cut(v[0], ".")
		ns, err := strconv.ParseInt(sec+(frac + "000000000")[:9], 10, 64)
		require.NoError(t, err, line)
		fs = append(fs, framed{
			at: time.Duration(ns), src: netip.MustParseAddr(cmp.Or(v[1], v[2])), dst: netip.MustParseAddr(cmp.Or(v[3], v[4])),
			dscp: num(5, 6), ecn: num(7, 8), from: num(9), port: num(10), length: num(11), opcode: uint8(num(12)), to: uint32(num(13)), psn: uint32(num(14)),
			se: v[15], migReq: v[16], pad: num(17), tver: num(18), pkey: num(19), ackReq: v[20], bth: raw,
		})
	}
	return fs
}

// requireForm: a CNP is what Annex A17.9.3 says, with a ConnectX's DSCP, from and to a
// pair of queue pairs that have to do with each other.
func (c *crowdOf) requireForm(f *framed) {
	t := c.t
	t.Helper()
	p := c.toSource(f)
	require.NotNil(t, p, "queue pair %#x at %v is nobody's", f.to, f.dst)
	require.Equal(t, []netip.Addr{c.np.addr, p.from.addr}, []netip.Addr{f.src, f.dst})
	require.Equal(t, []int{48, 2, 4791}, []int{f.dscp, f.ecn, f.port}, "DSCP, ECN, port")
	require.Equal(t, udpHeader+bth.BTHLen+16+bth.ICRCLen, f.length)
	require.EqualValues(t, 0x81, f.opcode)
	require.Zero(t, f.psn)
	require.Equal(t, 0xffff, f.pkey)
	require.Zero(t, f.pad+f.tver)
	require.Len(t, f.bth, f.length-udpHeader)
	require.EqualValues(t, 0x40, f.bth[4], "BECN alone") // tshark 4.0 has no name for it
	require.Equal(t, make([]byte, 16), f.bth[bth.BTHLen:][:16])
	require.Contains(t, []string{"0", "False"}, f.se)
	require.Contains(t, []string{"0", "False"}, f.ackReq)
}

const udpHeader = 8

// toSource is the connection whose sender a packet of the notification point is for.
func (c *crowdOf) toSource(f *framed) *pairing {
	for _, p := range c.pairs {
		if f.src == c.np.addr && f.dst == p.from.addr && f.to == p.src.QPN() {
			return p
		}
	}
	return nil
}

// toSink is the connection whose end at the notification point a packet is for.
func (c *crowdOf) toSink(f *framed) *pairing {
	for _, p := range c.pairs {
		if f.dst == c.np.addr && f.src == p.from.addr && f.to == p.dst.QPN() {
			return p
		}
	}
	return nil
}

// requireCauses: at any time a queue pair has been sent no more CNPs than marked
// packets have come from it; and the network has marked what it was to mark.
func (c *crowdOf) requireCauses(frames []framed) {
	t := c.t
	t.Helper()
	came, marks, cnps := map[*pairing]int{}, map[*pairing]int{}, map[*pairing]int{}
	for i := range frames {
		f := &frames[i]
		if p := c.toSink(f); p != nil {
			came[p]++
			if f.ecn == congested {
				marks[p]++
			} else {
				require.Equal(t, 2, f.ecn, "ECT(0): the sender heeds marks")
			}
		} else if p := c.toSource(f); p != nil && f.opcode == uint8(bth.CNP) {
			cnps[p]++
			require.LessOrEqual(t, cnps[p], marks[p], "CNPs to queue pair %#x, and marked packets of it, until %v", f.to, f.at)
		}
	}
	for _, p := range c.pairs {
		if !p.marked {
			require.Zero(t, marks[p])
			require.Positive(t, came[p])
			continue
		}
		require.InDelta(t, 0.2, float64(marks[p])/float64(came[p]), 0.2, "share that is marked")
		require.Positive(t, marks[p])
	}
}

const congested = 3

// key is a pacing key.
func (n *notice) key(p *pairing) string {
	switch n.pacing {
	case cc.PacingPort:
		return "port"
	case cc.PacingDestination:
		return p.from.addr.String()
	}
	return fmt.Sprintf("%v %#x", p.from.addr, p.src.QPN())
}

// requireSpacing: between CNPs to one key there is the configured time at least, and
// keys do not wait for each other.
func (c *crowdOf) requireSpacing(n *notice, frames []framed) {
	c.t.Helper()
	last := map[string]time.Duration{}
	var other time.Duration
	least := map[string]time.Duration{}
	closer := 0 // CNPs that follow one to another key sooner than that
	for i := range frames {
		f := &frames[i]
		if f.opcode != uint8(bth.CNP) {
			continue
		}
		k := n.key(c.toSource(f))
		if at, ok := last[k]; ok {
			require.GreaterOrEqual(c.t, f.at-at, n.gap, "between CNPs to %s", k)
			if d, ok := least[k]; !ok || f.at-at < d {
				least[k] = f.at - at
			}
		}
		if f.at-other < n.gap {
			closer++
		}
		last[k], other = f.at, f.at
	}
	keys := map[string]int{cc.PacingPort: 1, cc.PacingDestination: 2, cc.PacingQP: 6}
	require.Len(c.t, last, keys[n.pacing], "keys")
	if n.pacing != cc.PacingPort && n.gap == time.Millisecond {
		require.Positive(c.t, closer, "CNPs to different keys keep no distance")
	}
	c.t.Logf("least time between CNPs to a key: %v; %d CNPs closer to one of another key", least, closer)
}

// requireFirst: the first marked packet of a key is answered by a CNP before it is
// acknowledged.
func (c *crowdOf) requireFirst(n *notice, frames []framed) {
	c.t.Helper()
	type first struct {
		p   *pairing
		psn bth.PSN
	}
	open := map[string]*first{}
	answered := map[string]bool{}
	for i := range frames {
		f := &frames[i]
		if p := c.toSink(f); p != nil && f.ecn == congested {
			if k := n.key(p); open[k] == nil {
				open[k] = &first{p, bth.MakePSN(f.psn)}
			}
		} else if p := c.toSource(f); p != nil {
			k := n.key(p)
			switch o := open[k]; {
			case f.opcode == uint8(bth.CNP) && !answered[k]:
				require.Same(c.t, o.p, p, "the first CNP is for the first that was marked")
				answered[k] = true
			case f.opcode == uint8(bth.RCAck) && o != nil && o.p == p && !answered[k]:
				require.Negative(c.t, bth.MakePSN(f.psn).Diff(o.psn), "acknowledged before there was a CNP")
			}
		}
	}
	require.Len(c.t, answered, len(open))
}

// report logs how long CNPs took: from the first marked packet of the queue pair that
// may have made it, when the time between CNPs was over, or, where the packet had
// waited until then, from the newest.
func (c *crowdOf) report(n *notice, frames []framed) {
	last := map[string]time.Duration{}
	marks := map[*pairing][]time.Duration{}
	var took []time.Duration
	for i := range frames {
		f := &frames[i]
		if p := c.toSink(f); p != nil && f.ecn == congested {
			marks[p] = append(marks[p], f.at)
		} else if p := c.toSource(f); p != nil && f.opcode == uint8(bth.CNP) {
			k, m := n.key(p), marks[p]
			from := m[len(m)-1]
			for _, at := range m {
				if l, ok := last[k]; !ok || at >= l+n.gap {
					from = at
					break
				}
			}
			took = append(took, f.at-from)
			last[k], marks[p] = f.at, m[:0]
			if len(m) > 0 { // the newest may be that of the next
				marks[p] = m[len(m)-1:]
			}
		}
	}
	slices.Sort(took)
	c.t.Logf("%d packets, %d CNPs; from mark to CNP: median %v, 99%% %v, most %v; by the device's own clock %v on average", len(frames), len(took),
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1], time.Duration(c.np.counter("np_cnp_delay")/c.np.counter("np_cnp_sent")))
}
