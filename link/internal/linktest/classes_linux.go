package linktest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link"
	"github.com/gorxe/gorxe/wire"
)

// classes are the traffic classes to send: each DSCP with ECT(0).
const classes = 64

// CNPs go out with DSCP 48 and ECT(0), and a priority of their own.
const (
	cnpClass    = 48<<2 | wire.ECNECT0
	cnpPriority = 6
)

// Classes sends, from one source port of host A, packets of each DSCP with ECT(0),
// single and in super-packets, each followed by a single one of DSCP 48 with a
// priority, as CNPs go between data: all in one call, and each in a call. tcpdump on
// host B records them and tshark reads the traffic class of each. prepare, if not
// nil, is called for each family before.
func Classes(t *testing.T, p *testbed.Pair, a Sender, prepare func(Family)) {
	RequireTools(t, "tcpdump", "tshark")
	p.A.Tool("ethtool", "-K", p.A.Iface, "tx-udp-segmentation", "off") // so that each segment is a frame
	for _, f := range Families {
		t.Run(f.Name, func(t *testing.T) {
			if prepare != nil {
				prepare(f)
			}
			cnp := Flow(t, p.A, a, f.A, f.B)
			cnp.TOS, cnp.Priority = cnpClass, cnpPriority
			var bs []*wire.Burst
			var want []string
			for i := range classes {
				for _, n := range []int{1, 3} {
					data := *cnp
					data.TOS, data.Priority = uint8(i)<<2|wire.ECNECT0, 0
					bs = append(bs, Burst(a.Info(), &data, uint32(i), n, 512), Burst(a.Info(), cnp, uint32(i), 1, 16))
					for k := range n {
						want = append(want, classText(data.TOS, i, k))
					}
					want = append(want, classText(cnpClass, i, 0))
				}
			}
			file := filepath.Join(t.TempDir(), "x.pcap")
			stop := Record(t, p.B, file, 2*len(want))
			sendAll(t, a, bs)
			for i := range bs {
				sendAll(t, a, bs[i:i+1])
			}
			stop()
			got := classesByTshark(t, file)
			for i, w := range append(want, want...) {
				if i >= len(got) || got[i] != w {
					t.Fatalf("packet %d: tshark reads %q, want %q", i, got[i:min(i+1, len(got))], w)
				}
			}
		})
	}
}

// Sender is the sending half of a link.
type Sender interface {
	link.PortResolver
	Info() link.Info
	Send(bs []*wire.Burst) (int, error)
}

// sendAll sends bursts, also where there is not room for all at once.
func sendAll(t *testing.T, a Sender, bs []*wire.Burst) {
	t.Helper()
	for end := time.Now().Add(Patience); len(bs) > 0; {
		n, err := a.Send(bs)
		if err != nil {
			t.Fatal(err)
		}
		for len(bs) > 0 && n >= bs[0].Len() {
			n -= bs[0].Len()
			bs = bs[1:]
		}
		if n > 0 || time.Now().After(end) {
			t.Fatalf("%d packets of a burst were sent; %d bursts are left", n, len(bs))
		}
	}
}

func classText(tos uint8, qpn, psn int) string {
	return fmt.Sprintf("dscp %d ecn %d qpn %d psn %d", tos>>2, tos&3, qpn, psn)
}

// classesByTshark reads a capture.
func classesByTshark(t testing.TB, file string) (out []string) {
	t.Helper()
	text, err := exec.Command("tshark", "-r", file, "-T", "fields", "-E", "separator= ",
		"-e", "ip.dsfield.dscp", "-e", "ip.dsfield.ecn", "-e", "ipv6.tclass.dscp", "-e", "ipv6.tclass.ecn",
		"-e", "infiniband.bth.destqp", "-e", "infiniband.bth.psn").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("tshark reads %q", line)
		}
		qpn, err := strconv.ParseUint(f[2], 0, 24)
		if err != nil {
			t.Fatalf("tshark reads %q", line)
		}
		out = append(out, fmt.Sprintf("dscp %s ecn %s qpn %d psn %s", f[0], f[1], qpn, f[3]))
	}
	return out
}

// RequireTools skips the test unless the programs are installed.
func RequireTools(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, which is not installed", tool)
		}
	}
}

// Record starts tcpdump on what a host's interface receives, the headers of it: its
// buffer has room for so few whole packets of the longest kind that it loses some.
// stop waits until it has written n packets.
func Record(t testing.TB, h *testbed.Host, file string, n int) (stop func()) {
	t.Helper()
	cmd := h.Command(testbed.AsTest, "tcpdump", "-i", h.Iface, "-Q", "in", "-s", "256", "-w", file, "-Z", "root", "--immediate-mode", "-c", strconv.Itoa(n), "udp port 4791")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.Start(cmd)
	r := bufio.NewReader(stderr)
	for line := ""; !strings.Contains(line, "listening on"); {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatalf("tcpdump: %s %v", line, err)
		}
	}
	return func() {
		t.Helper()
		late := time.AfterFunc(Patience, func() { _ = cmd.Process.Signal(os.Interrupt) })
		defer late.Stop()
		var rest strings.Builder
		_, _ = r.WriteTo(&rest)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("tcpdump: %v\n%s", err, rest.String())
		}
	}
}
