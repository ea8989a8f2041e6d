package wire

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
)

// TestFindRun: the length of a run's segments is found from its octets alone,
// with and without a hint, whatever the length and the identification; a single
// packet is one; and what is damaged, or longer than allowed, is neither.
func TestFindRun(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for _, f := range []*Flow{
		{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), SrcPort: 0xc123},
		{Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"), SrcPort: 0xc123},
	} {
		for _, c := range []struct{ segs, pay int }{{1, 0}, {1, 4096}, {2, 0}, {2, 4}, {3, 60}, {60, 1024}, {15, 4096}, {2, 4080}, {7, 21}} {
			b := NewBurst()
			b.Reset(f, 0, 0)
			for i := range c.segs {
				h := b.Begin(bth.MakePSN(uint32(i)), 4, bth.BTHLen, c.pay)
				for k := range h {
					h[k] = byte(rnd.Uint32())
				}
				p := b.Copy(c.pay)
				for k := range p {
					p[k] = byte(rnd.Uint32())
				}
				b.End()
			}
			b.Seal(IDCount)
			d := Datagram{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, Flags: FlagDF, IDKnown: f.Src.Is4()}
			for i := range c.segs {
				d.Payload = b.AppendSegment(d.Payload, i)
			}
			want := b.SegLen()
			if c.segs == 1 {
				want = 0
			}
			for name, hints := range map[string][]int{"none": nil, "right": {20, want}, "wrong": {20, 4112 * 3, -4, 1 << 20}} {
				if n, ok := FindRun(&d, hints, 4200); n != want || !ok {
					t.Errorf("%v, %d packets of %d octets, hints %s: %d %v, want %d", f.Src, c.segs, c.pay, name, n, ok, want)
				}
			}
			if n, ok := FindRun(&d, nil, b.SegLen()-1); ok != (c.segs == 1) || n != 0 {
				t.Errorf("%v, %d packets of %d octets: %d %v past the limit", f.Src, c.segs, c.pay, n, ok)
			}
			for range 20 {
				at := rnd.IntN(b.SegLen())
				if at == 4 {
					continue // not covered
				}
				d.Payload[at] ^= 0x10
				if n, ok := FindRun(&d, []int{want}, 4200); ok {
					t.Errorf("%v, %d packets of %d octets: octet %d is damaged, found %d", f.Src, c.segs, c.pay, at, n)
				}
				d.Payload[at] ^= 0x10
			}
			if f.Src.Is4() && c.segs > 1 {
				d.ID = 1
				if n, ok := FindRun(&d, []int{want}, 4200); ok {
					t.Errorf("the identification is another one, found %d", n)
				}
			}
		}
		for n := range 16 {
			d := Datagram{Src: f.Src, Dst: f.Dst, Payload: make([]byte, n)}
			if _, ok := FindRun(&d, []int{0, 4, 16}, 4200); ok {
				t.Errorf("%d octets are a packet", n)
			}
		}
	}
}

func BenchmarkFindRun(b *testing.B) {
	d := Datagram{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), IDKnown: true, Payload: make([]byte, 61680)}
	for b.Loop() {
		FindRun(&d, nil, 4200)
	}
}
