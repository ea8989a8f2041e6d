package packet

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// message is what the packet socket gives for a valid frame with n octets of
// UDP payload.
func message(gsoType byte, gsoSize uint16, n int) []byte {
	p := v4(0x45, 17, 0x4000, wire.Port)[:28]
	ip := wire.IPv4(p)
	ip.SetTotalLen(28 + n)
	ip.SetID(0x1234)
	ip.SetSrc([4]byte{192, 0, 2, 1})
	ip.SetDst([4]byte{192, 0, 2, 2})
	ip.SetChecksum()
	wire.UDP(p[20:]).SetLength(8 + n)
	vnet := make([]byte, vnetLen)
	vnet[vnetGSOType] = gsoType
	binary.NativeEndian.PutUint16(vnet[vnetGSOSize:], gsoSize)
	return slices.Concat(vnet, eth(wire.EtherTypeIPv4), p, make([]byte, n))
}

func TestParseMessage(t *testing.T) {
	for _, c := range []struct {
		name   string
		msg    []byte
		want   trace.Reason
		segLen int
	}{
		{"single", message(0, 0, 100), trace.None, 0},
		{"run", message(5, 40, 100), trace.None, 40},
		{"run with ECN flag", message(0x85, 40, 100), trace.None, 40},
		{"run of one", message(5, 100, 100), trace.None, 0},
		{"run without a size", message(5, 0, 100), trace.DropUDPLen, 0},
		{"datagram in fragments", message(3, 40, 100), trace.DropFragment, 0},
		{"padded by Ethernet", append(message(0, 0, 100), 0, 0, 0), trace.None, 0},
		{"cut", message(0, 0, 100)[:140], trace.DropShort, 0},
		{"no header", make([]byte, vnetLen-1), trace.DropShort, 0},
		{"no frame", make([]byte, vnetLen), trace.DropShort, 0},
	} {
		var d wire.Datagram
		if r := parseMessage(c.msg, &d); r != c.want {
			t.Errorf("%s: %v, want %v", c.name, r, c.want)
			continue
		}
		if c.want != trace.None {
			continue
		}
		if d.SegLen != c.segLen || len(d.Payload) != 100 || d.ID != 0x1234 || !d.IDKnown || d.Flags != wire.FlagDF ||
			d.Src != netip.MustParseAddr("192.0.2.1") || d.Dst != netip.MustParseAddr("192.0.2.2") || len(d.L2) != 14 {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}
