// Package memtest builds sealed bursts of real packets for tests of links and
// of what wraps them.
package memtest

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// Spec describes a burst: one packet for each length of payload, with
// consecutive PSNs.
type Spec struct {
	Flow *wire.Flow
	QPN  bth.QPN // destination
	PSN  uint32  // of the first packet
	Op   bth.Opcode
	Lens []int // octets of payload
	IDs  wire.IDPolicy
}

// Flow returns a flow between two addresses.
func Flow(src, dst string) *wire.Flow {
	return &wire.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), SrcPort: 0xc123, TOS: wire.ECNECT0, TTL: 64}
}

// Flow4 and Flow6 lead from the first to the second port of mem.Pair.
func Flow4() *wire.Flow { return Flow("192.0.2.1", "192.0.2.2") }

// Flow6 is Flow4 for IPv6.
func Flow6() *wire.Flow { return Flow("2001:db8::1", "2001:db8::2") }

// Equal returns n equal lengths.
func Equal(n, length int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = length
	}
	return s
}

// Burst builds and seals a burst. Each payload begins with the PSN and counts
// up after it; half of it is copied, half referenced.
func Burst(tb testing.TB, s Spec) *wire.Burst {
	tb.Helper()
	b := wire.NewBurst()
	b.Reset(s.Flow, 0, 0)
	b.QPN = 0x100 | s.QPN&0xf
	for i, n := range s.Lens {
		p := bth.Packet{
			Opcode: s.Op, MigReq: true, PKey: 0xffff, DestQP: s.QPN, PSN: bth.MakePSN(s.PSN).Add(i),
			Pad: uint8(-n & 3), DMALen: uint32(n), Syndrome: bth.AckUnlimited,
		}
		hdr := p.Info().HdrLen
		if !b.Fits(hdr+n+-n&3+bth.ICRCLen, 1) {
			tb.Fatalf("packet %d of %d octets does not fit the burst", i, n)
		}
		p.PutHeaders(b.Begin(p.PSN, s.Op, hdr, n))
		data := Payload(p.PSN.Uint32(), n)
		copy(b.Copy(n/2), data)
		b.Ref(data[n/2:])
		b.End()
	}
	b.Seal(s.IDs)
	return b
}

// Payload returns what the packet with a PSN carries.
func Payload(psn uint32, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(psn) + byte(i)
	}
	if n >= 4 {
		binary.BigEndian.PutUint32(data, psn)
	}
	return data
}

// Check verifies the ICRC and the payload of segment i of d, and returns its
// packet.
func Check(tb testing.TB, v *wire.Verifier, d *wire.Datagram, i int) bth.Packet {
	tb.Helper()
	if r := v.Check(0, d, i); r != trace.None {
		tb.Fatalf("segment %d of %d: %v", i, d.Segments(), r)
	}
	var p bth.Packet
	if r := bth.Parse(d.Segment(i), &p); r != trace.None {
		tb.Fatalf("segment %d: %v", i, r)
	}
	if want := Payload(p.PSN.Uint32(), len(p.Payload)); string(want) != string(p.Payload) {
		tb.Fatalf("PSN %v: payload differs", p.PSN)
	}
	return p
}
