package xdp

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/internal/testbed"
	"github.com/gorxe/gorxe/link/internal/linktest"
	"github.com/gorxe/gorxe/link/packet"
	"github.com/gorxe/gorxe/wire"
)

// TestFramesByTshark: what leaves as frames, as tcpdump saw it and tshark reads
// it, header by header. The ICRC is the business of link/packet, which has the
// same frames.
func TestFramesByTshark(t *testing.T) {
	linktest.RequireTools(t, "tcpdump", "tshark")
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p := newPair(t, 9000)
			a := openOne(t, p.A, m)
			var b node
			p.B.Do(func() {
				ls, err := packet.Open(packet.Config{Interface: testbed.Iface})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { ls[0].Close() })
				b = node{ls[0].(*packet.Link), p.B}
			})
			for _, f := range linktest.Families {
				resolve(t, a, f.A, f.B)
			}
			file := filepath.Join(t.TempDir(), "x.pcap")
			stop := linktest.Record(t, p.B, file, 12)
			var want []string
			for _, f := range linktest.Families {
				fl := flow(t, a, f.A, f.B)
				fl.TTL = 0
				bs := []*wire.Burst{burst(a, fl, 0x11, 3, 1024), burst(a, fl, 0x12, 2, 4096), burst(a, fl, 0x13, 1, 0)}
				linktest.Send(t, a, bs...)
				fl.TTL = defaultTTL
				linktest.Match(t, linktest.Receive(t, b, 6), bs...)
				for _, b := range bs {
					for i := range b.Len() {
						want = append(want, frameText(a, b, i))
					}
				}
			}
			stop()
			out, err := exec.Command("tshark", "-r", file, "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator= ",
				"-e", "eth.src", "-e", "eth.dst", "-e", "ip.src", "-e", "ip.dst", "-e", "ip.len", "-e", "ip.id", "-e", "ip.flags.df", "-e", "ip.ttl", "-e", "ip.dsfield",
				"-e", "ip.checksum.status", "-e", "ipv6.src", "-e", "ipv6.dst", "-e", "ipv6.plen", "-e", "ipv6.hlim", "-e", "ipv6.tclass",
				"-e", "udp.srcport", "-e", "udp.dstport", "-e", "udp.length", "-e", "udp.checksum", "-e", "infiniband.bth.destqp", "-e", "infiniband.bth.psn").Output()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(string(out)) {
				got = append(got, strings.Join(strings.Fields(line), " "))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("tshark reads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// frameText is what tshark is to print of a segment.
func frameText(l node, b *wire.Burst, i int) string {
	f, n := b.Flow, b.Segs[i].Len+wire.UDPLen
	ip := fmt.Sprintf("%v %v %d 0x%04x 1 64 0x%02x 1", f.Src, f.Dst, wire.IPv4Len+n, i, f.TOS)
	if f.Src.Is6() {
		ip = fmt.Sprintf("%v %v %d 64 0x%08x", f.Src, f.Dst, n, f.TOS)
	}
	return fmt.Sprintf("02:00:00:00:00:0a 02:00:00:00:00:0b %s %d 4791 %d 0x0000 0x%06x %d", ip, f.SrcPort, n, b.AppendSegment(nil, i)[7], i)
}
