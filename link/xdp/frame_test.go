package xdp

import (
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// TestHeaders: every identification has its checksum, whatever was set before,
// and the parser reads what was written.
func TestHeaders(t *testing.T) {
	var h headers
	for _, f := range []*wire.Flow{
		{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), SrcPort: 0xc123, TOS: 0xb8, TTL: 3},
		{Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"), SrcPort: 0xffff, TOS: 0x6a},
		{Src: netip.MustParseAddr("255.255.255.255"), Dst: netip.MustParseAddr("255.255.255.254"), TOS: 0xff, TTL: 255},
	} {
		for _, n := range []int{16, 4112} {
			h.set(f, [6]byte{1, 2, 3, 4, 5, 6}, [6]byte{7, 8, 9, 10, 11, 12}, n)
			for id := range 1 << 16 {
				if f.Src.Is6() && id > 1 {
					break
				}
				h.number(uint16(id))
				var d wire.Datagram
				frame := append(h.b[:h.n:h.n], make([]byte, n)...)
				if r := wire.ParseFrame(frame, &d); r != trace.None {
					t.Fatalf("%v, identification %d: %v", f.Src, id, r)
				}
				ttl := f.TTL
				if ttl == 0 {
					ttl = defaultTTL
				}
				if d.Src != f.Src || d.Dst != f.Dst || d.SrcPort != f.SrcPort || d.TOS != f.TOS || d.TTL != ttl || len(d.Payload) != n ||
					f.Src.Is4() && (d.ID != uint16(id) || d.Flags != wire.FlagDF) || string(d.L2[:12]) != "\a\b\t\n\v\f\x01\x02\x03\x04\x05\x06" {
					t.Fatalf("%+v", d)
				}
			}
		}
	}
}
