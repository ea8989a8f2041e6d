package linktest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/wire"
)

// Opener opens a link in a host's namespace, on all addresses of its interface.
type Opener func(t testing.TB, h *testbed.Host) Link

// GRO is how a host's interface merges what arrives.
type GRO struct {
	Name     string
	Features []string // for ethtool -K
	Merges   bool
}

// GROs are the ways there are: none at all, into one packet with its segment size,
// and into a list of packets.
var GROs = []GRO{
	{"off", []string{"gro", "off", "rx-gro-list", "off", "rx-udp-gro-forwarding", "off"}, false},
	{"on", []string{"gro", "on", "rx-gro-list", "off", "rx-udp-gro-forwarding", "on"}, true},
	{"list", []string{"gro", "on", "rx-gro-list", "on", "rx-udp-gro-forwarding", "off"}, true},
}

// groWait is how long an interface keeps a packet for others to be merged with
// it.
const groWait = 20 * time.Millisecond

// Set has a host's interface merge like that. It waits for packets to merge,
// where by itself a veth pair would hand on each as it is sent.
func (g GRO) Set(h *testbed.Host, dev string) {
	h.Tool("ethtool", append([]string{"-K", dev}, g.Features...)...)
	if g.Merges {
		h.Tool("ip", "netns", "exec", h.Name(), "sh", "-c",
			fmt.Sprintf("echo %d >/sys/class/net/%s/gro_flush_timeout", groWait.Nanoseconds(), dev))
	}
}

// markPatterns say which of a flow's packets are marked.
var markPatterns = []struct {
	name   string
	marked func(i int) bool
}{
	{"none", func(int) bool { return false }},
	{"all", func(int) bool { return true }},
	{"one", func(i int) bool { return i == 20 }},
	{"all but one", func(i int) bool { return i != 20 }},
	{"first", func(i int) bool { return i == 0 }},
	{"last", func(i int) bool { return i == markedPackets-1 }},
	{"every other", func(i int) bool { return i%2 == 1 }},
	{"sevens", func(i int) bool { return i/7%2 == 1 }},
}

const markedPackets = 40

// Marks sends packets of one flow, of which some are marked "congestion
// experienced" and the others ECT(0), from host A to host B. Where B's interface
// merges packets, none may lose its mark or get another's.
//
// The kernel merges packets of equal traffic class only: inet_gro_receive and
// ipv6_gro_receive set the flush bit, on which udp_gro_receive begins another
// packet (net/ipv4/af_inet.c, net/ipv6/ip6_offload.c, net/ipv4/udp_offload.c).
// merged names the GROs that let a link see merged packets.
func Marks(t *testing.T, p *testbed.Pair, send, receive Opener, merged ...string) {
	x := merging{p, p.B, p.B.Iface, merged, Families}
	x.marks(t, send, receive)
}

// MarksForwarded is Marks where a bridge merges packets before it hands them on to
// B, as to a guest or a container. Where families is not nil it is for those.
//
// Linux numbers the IPv4 packets that it cuts up again: of those that had all the
// same identification, the ICRC is wrong then, except that of the first. To a link
// that sees what was cut up it is as if the others had been lost.
func MarksForwarded(t *testing.T, send, receive Opener, families []Family, merged ...string) {
	p, m := Bridge(t, "9000")
	if families == nil {
		families = Families
	}
	x := merging{p, m, PortA, merged, families}
	x.marks(t, send, receive)
}

// merging is a way from A to B on which an interface merges packets.
type merging struct {
	p        *testbed.Pair
	host     *testbed.Host // has the interface
	dev      string
	merged   []string
	families []Family
}

func (x *merging) marks(t *testing.T, send, receive Opener) {
	for _, g := range GROs {
		t.Run("GRO "+g.Name, func(t *testing.T) {
			g.Set(x.host, x.dev)
			a, b := send(t, x.p.A), receive(t, x.p.B)
			defer a.Close()
			defer b.Close()
			for _, f := range x.families {
				for _, m := range markPatterns {
					got := sendMarked(t, x.p, a, b, f, m.marked)
					if m.name == "none" && (got < markedPackets) != slices.Contains(x.merged, g.Name) {
						t.Errorf("%s: %d packets came as %d datagrams", f.Name, markedPackets, got)
					}
				}
			}
		})
	}
}

// sendMarked sends packets of which some are marked, and returns in how many
// datagrams they came.
func sendMarked(t *testing.T, p *testbed.Pair, a, b Link, f Family, marked func(i int) bool) int {
	t.Helper()
	plain := Flow(t, p.A, a, f.A, f.B)
	plain.TOS = wire.ECNECT0
	ce := *plain
	ce.TOS = wire.ECNCE
	var bs []*wire.Burst
	for i := range markedPackets {
		fl := plain
		if marked(i) {
			fl = &ce
		}
		bs = append(bs, Burst(a.Info(), fl, uint32(i)<<4, 1, 1024)) // each a datagram by itself
	}
	Send(t, a, bs...)
	got := Receive(t, b, markedPackets)
	MatchPackets(t, got, bs...)
	return len(got)
}
