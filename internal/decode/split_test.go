package decode

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/wire"
)

// burst returns a frame that holds packets with n octets of payload each but
// for the last, which has 5, as a sender's capture does. step is what the IPv4
// identification grows by.
func burst(src, dst netip.Addr, ns []int, step uint16) pcap.Frame {
	var body, head []byte
	for k, n := range append(ns, 5) {
		pkt := transport(bth.Packet{Opcode: bth.RCSendMiddle, PSN: bth.MakePSN(uint32(k))}, n)
		c := wire.ICRC(pkt[:len(pkt)-4], netip.AddrPortFrom(src, 0xc000), netip.AddrPortFrom(dst, wire.Port), 77+uint16(k)*step, true)
		pkt = append(pkt[:len(pkt)-4], byte(c), byte(c>>8), byte(c>>16), byte(c>>24))
		body = append(body, pkt...)
	}
	whole := ipPacket(make([]byte, len(body)), src, dst)
	head = whole[:len(whole)-len(body)]
	ip, u := head[:len(head)-wire.UDPLen], wire.UDP(head[len(head)-wire.UDPLen:])
	u.SetChecksum(pseudoSum(ip, wire.UDPLen+len(body)))
	return frame(pcap.Raw, head, body)
}

// A run is told packet by packet, whatever the family, the length of its
// segments and the way its identifications go.
func TestPackets(t *testing.T) {
	for _, a := range [][2]netip.Addr{{src4, dst4}, {src6, dst6}} {
		for _, ns := range [][]int{{8}, {5}, {1000, 1000, 1000}, {4096, 4096}} {
			for step := range uint16(2) {
				f := burst(a[0], a[1], ns, step)
				ps := Packets(f)
				require.Len(t, ps, len(ns)+1)
				for k, p := range ps {
					require.False(t, p.Bad(), p.Why)
					require.Equal(t, "ok", p.ICRC)
					require.Equal(t, uint32(k), *p.PSN)
					require.Equal(t, append(ns, 5)[k], *p.PayloadLen)
					require.Equal(t, []int{1, k + 1, len(ns) + 1}, []int{p.Frame, p.Segment, p.Segments})
					require.Contains(t, p.Line(time.Time{}), fmt.Sprintf("(segment %d of %d of one captured frame)", k+1, len(ns)+1))
				}
			}
		}
	}
}

// One damaged packet of a run is bad, and it alone.
func TestPacketsDamaged(t *testing.T) {
	f := burst(src4, dst4, []int{64, 64, 64}, 1)
	f.Data[wire.IPv4Len+wire.UDPLen+2*(12+64+4)+20] ^= 1
	ps := Packets(f)
	require.Len(t, ps, 4)
	for k, p := range ps {
		require.Equal(t, k == 2, p.Bad())
	}
}

// A run that does not split is one bad frame, and the line says what it
// probably is; a frame that is only damaged is not suspected to be one.
func TestPacketsNot(t *testing.T) {
	f := burst(src4, dst4, []int{64, 64}, 1)
	f.Data[wire.IPv4Len+wire.UDPLen+20] ^= 1 // of the first packet, which decides
	ps := Packets(f)
	require.Len(t, ps, 1)
	require.True(t, ps[0].Bad())
	require.Contains(t, strings.Join(ps[0].Notes, "\n"), "no length at which it splits")

	f = frame(pcap.Raw, ipPacket(transport(writeImm, 64), src4, dst4))
	f.Data[60] ^= 1
	ps = Packets(f)
	require.Len(t, ps, 1)
	require.True(t, ps[0].Bad())
	require.Empty(t, ps[0].Notes)
}
