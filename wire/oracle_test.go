package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"slices"
	"testing"

	"github.com/gorxe/gorxe/bth"
)

// TestICRCOracle is report B70: payloads of 0 to 9 octets, and so every pad,
// over both families, sealed by a Burst and checked with hash/crc32 over a
// pseudo packet put together here from the figure in the specification (Annex
// A17.3.3): 64 bits of ones, the packet with its variant fields all ones.
func TestICRCOracle(t *testing.T) {
	for _, a := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"fd00::1", "fd00::2"}} {
		f := &Flow{Src: netip.MustParseAddr(a[0]), Dst: netip.MustParseAddr(a[1]), SrcPort: 0xc123, TOS: 0x6a, TTL: 7}
		for n := range 10 {
			b := NewBurst()
			b.Reset(f, 0, 0)
			for seg := range 3 {
				p := bth.Packet{Opcode: bth.RCSendOnly, PKey: 0xffff, DestQP: 0x123456, PSN: bth.MakePSN(uint32(seg)), Pad: uint8(-n & 3), BECN: true}
				p.PutHeaders(b.Begin(p.PSN, p.Opcode, bth.BTHLen, n))
				for i := range n {
					b.Copy(1)[0] = byte(0x11 * (i + seg + 1))
				}
				b.End()
			}
			b.Seal(IDCount)
			for i := range 3 {
				pkt := b.AppendSegment(nil, i)
				if want := bth.BTHLen + (n+3)&^3 + bth.ICRCLen; len(pkt) != want {
					t.Fatalf("%v, %d octets: %d on the wire, want %d", f.Src, n, len(pkt), want)
				}
				got := binary.LittleEndian.Uint32(pkt[len(pkt)-bth.ICRCLen:])
				if want := crc32.ChecksumIEEE(pseudo(f, i, pkt)); got != want {
					t.Errorf("%v, %d octets, segment %d: ICRC %#x, want %#x", f.Src, n, i, got, want)
				}
			}
		}
	}
}

// pseudo is what the ICRC of a packet with IPv4 identification id covers.
func pseudo(f *Flow, id int, pkt []byte) []byte {
	ones := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	u16 := func(v int) []byte { return []byte{byte(v >> 8), byte(v)} }
	udp := slices.Concat(u16(int(f.SrcPort)), u16(4791), u16(8+len(pkt)), ones[:2])
	transport := slices.Clone(pkt[:len(pkt)-4])
	transport[4] = 0xff
	src, dst := f.Src.AsSlice(), f.Dst.AsSlice()
	if f.Src.Is4() {
		ip := slices.Concat([]byte{0x45, 0xff}, u16(28+len(pkt)), u16(id), []byte{0x40, 0, 0xff, 17}, ones[:2], src, dst)
		return slices.Concat(ones, ip, udp, transport)
	}
	ip := slices.Concat([]byte{0x6f, 0xff, 0xff, 0xff}, u16(8+len(pkt)), []byte{17, 0xff}, src, dst)
	return slices.Concat(ones, ip, udp, transport)
}
