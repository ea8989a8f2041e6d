package wire

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// The CNP of a ConnectX-4 Lx and an RC-class UC packet from scapy's test
// suite: golden ICRCs nobody here computed.
var golden = []string{
	"45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000011800000000" + "00000000000000000000000000000000" + "82fd002a",
	"45010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3",
}

func TestGoldenICRC(t *testing.T) {
	for _, g := range golden {
		b, err := hex.DecodeString(g)
		if err != nil {
			t.Fatal(err)
		}
		var d Datagram
		if r := ParseIP(b, &d); r != trace.None {
			t.Fatalf("parse: %v", r)
		}
		v := NewVerifier()
		if r := v.Check(0, &d, 0); r != trace.None {
			t.Errorf("exact: %v", r)
		}
		id := d.ID
		d.IDKnown = false
		if r := v.Check(0, &d, 0); r != trace.None || v.peers[way{d.Src, d.Dst}].id != id {
			t.Errorf("solved: %v id %d want %d", r, v.peers[way{d.Src, d.Dst}].id, id)
		}
		d.Payload[13] ^= 0x10
		if r := NewVerifier().Check(0, &d, 0); r != trace.DropICRC {
			t.Errorf("corrupt: %v", r)
		}
	}
}

func TestSealVerify(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, a := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"fd00::1", "fd00::2"}} {
		f := &Flow{Src: netip.MustParseAddr(a[0]), Dst: netip.MustParseAddr(a[1]), SrcPort: 0xc123}
		for n := range 300 {
			b := NewBurst()
			b.Reset(f, 0, 0)
			pay := make([]byte, n)
			for range 3 {
				for i := range pay {
					pay[i] = byte(r.Uint32())
				}
				if !b.Fits(12+n+-n&3+4, 2) {
					t.Fatal("fits")
				}
				h := b.Begin(bth.MakePSN(7), 4, 12, n)
				for i := range h {
					h[i] = byte(r.Uint32())
				}
				k := r.IntN(n + 1)
				copy(b.Copy(k), pay[:k])
				b.Ref(append([]byte(nil), pay[k:]...))
				b.End()
			}
			b.Seal(IDCount)
			d := Datagram{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, SegLen: b.SegLen(), Flags: FlagDF, IDKnown: true}
			for _, p := range b.Vec() {
				d.Payload = append(d.Payload, p...)
			}
			if d.Segments() != 3 {
				t.Fatal(d.Segments())
			}
			for i := range 3 {
				if r := NewVerifier().Check(0, &d, i); r != trace.None {
					t.Fatalf("len %d seg %d: %v", n, i, r)
				}
				if string(b.AppendSegment(nil, i)) != string(d.Segment(i)) {
					t.Fatal("segment bytes")
				}
				ap := netip.AddrPortFrom(f.Src, f.SrcPort)
				s := d.Segment(i)
				if ICRC(s[:len(s)-4], ap, netip.AddrPortFrom(f.Dst, Port), uint16(i), true) != ^storedICRC(s) {
					t.Fatal("ICRC")
				}
			}
		}
	}
}

// TestMergedIdentifications: a run that the kernel merged has identifications
// that count up, or one and the same.
func TestMergedIdentifications(t *testing.T) {
	for _, c := range []struct {
		name string
		ids  [3]uint16
		want [3]trace.Reason
	}{
		{"counting", [3]uint16{7, 8, 9}, [3]trace.Reason{}},
		{"all alike", [3]uint16{7, 7, 7}, [3]trace.Reason{}},
		{"neither", [3]uint16{7, 9, 6}, [3]trace.Reason{0, trace.DropICRC, trace.DropICRC}},
	} {
		d := Datagram{Src: hiddenSrc, Dst: hiddenDst, SrcPort: 0xc0de, ID: c.ids[0], Flags: FlagDF, IDKnown: true, SegLen: 64}
		for _, id := range c.ids {
			d.Payload = append(d.Payload, hidden(hiddenSrc, id, true).Payload...)
		}
		v := NewVerifier()
		for i, want := range c.want {
			if r := v.Check(0, &d, i); r != want {
				t.Errorf("%s: segment %d: %v, want %v", c.name, i, r, want)
			}
		}
	}
}
