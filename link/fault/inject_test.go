package fault

import (
	"math/bits"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// packet returns a packet of n octets.
func packet(op bth.Opcode, qpn bth.QPN, psn uint32, n int) []byte {
	b := make([]byte, n)
	p := bth.Packet{Opcode: op, DestQP: qpn, PSN: bth.MakePSN(psn)}
	var hdr [bth.MaxHeaderLen]byte
	p.PutHeaders(hdr[:])
	copy(b, hdr[:])
	return b
}

// lost returns the indexes of the packets that are lost.
func lost(in *Injector, dir trace.Dir, pkts ...[]byte) (out []int) {
	for i, p := range pkts {
		if d := in.Process(0, dir, p, len(p)); d.Lost {
			out = append(out, i)
		}
	}
	return out
}

func TestMatching(t *testing.T) {
	a := packet(bth.RCSendOnly, 0x12, 100, 64)
	ack := packet(bth.RCAck, 0x12, 100, 20)
	other := packet(bth.RCSendOnly, 0x13, 100, 64)
	last := packet(bth.RCWriteLast, 0x12, 0xffffff, 64)
	first := packet(bth.RCWriteFirst, 0x12, 5, 64)
	beyond := packet(bth.RCWriteFirst, 0x12, 6, 64)
	all := [][]byte{a, ack, other, last, first, beyond}
	for _, c := range []struct {
		rule string
		pkts [][]byte
		want []int
	}{
		{"tx drop", all, []int{0, 1, 2, 3, 4, 5}},
		{"drop", all, []int{0, 1, 2, 3, 4, 5}},
		{"rx drop", all, nil},
		{"tx drop 0%", all, nil},
		{"drop qpn=0x12", all, []int{0, 1, 3, 4, 5}},
		{"drop psn=100", all, []int{0, 1, 2}},
		{"drop psn=0xfffff0..5", all, []int{3, 4}},
		{"drop psn=5..0xfffff0", all, []int{0, 1, 2, 4, 5}},
		{"drop opcode=RC_ACK", all, []int{1}},
		{"drop opcode=RC_WRITE_*", all, []int{3, 4, 5}},
		{"drop first=2 opcode=RC_WRITE_*", all, []int{3, 4}},
		{"drop every=2", all, []int{1, 3, 5}},
		{"drop every=2 limit=2", all, []int{1, 3}},
		// A request and a response with one PSN are counted apart.
		{"drop qpn=0x12 psn=100 seen=1", [][]byte{a, ack, a, ack, other}, []int{0, 1}},
		{"drop qpn=0x12 psn=100 seen=2", [][]byte{a, ack, a, ack, a}, []int{2, 3}},
		{"drop psn=100 opcode=RC_SEND_* seen=3", [][]byte{a, a, other, a, other}, []int{3}},
		// Rules in order: what the first loses, the second does not see.
		{"drop opcode=RC_ACK; drop first=1", all, []int{0, 1}},
	} {
		if got := lost(NewInjector(1, 0, MustParse(c.rule)), trace.Tx, c.pkts...); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: lost %v, want %v", c.rule, got, c.want)
		}
	}
	// Directions do not share what they have seen.
	in := NewInjector(1, 0, MustParse("drop seen=2"))
	if got := lost(in, trace.Tx, a); got != nil {
		t.Error(got)
	}
	if got := lost(in, trace.Rx, a, a); !reflect.DeepEqual(got, []int{1}) {
		t.Error(got)
	}
	if d := in.Process(0, trace.Tx, a[:11], 11); d != (Decision{}) {
		t.Errorf("a packet without BTH: %+v", d)
	}
}

// The table of what was seen forgets, but not the last 32768 packets.
func TestSeenIsBounded(t *testing.T) {
	in := NewInjector(1, 0, MustParse("drop seen=2"))
	for psn := range uint32(200_000) {
		in.Process(0, trace.Tx, packet(bth.RCSendOnly, 1, psn, 16), 16)
		if n := len(in.seen[0].young) + len(in.seen[0].old); n > 2*seenKept {
			t.Fatalf("%d packets kept", n)
		}
	}
	if got := lost(in, trace.Tx, packet(bth.RCSendOnly, 1, 200_000-seenKept, 16)); got == nil {
		t.Error("a packet among the last 32768 was forgotten")
	}
}

func decisions(seed uint64, rules string, n int) (out []Decision) {
	in := NewInjector(seed, 0, MustParse(rules))
	for i := range n {
		dir := trace.Tx
		if i%3 == 0 {
			dir = trace.Rx
		}
		out = append(out, in.Process(int64(i)*1000, dir, packet(bth.RCSendMiddle, 7, uint32(i), 1040), 1040))
	}
	return out
}

func TestDeterminism(t *testing.T) {
	const rules = "drop 3%; dup 2%; reorder 5%; delay 1us..9ms 20%; corrupt 1%; ce 10%; rate 1Gbit; cut 4ms..5ms"
	a, b := decisions(42, rules, 9000), decisions(42, rules, 9000)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed, packets and times gave other faults")
	}
	if reflect.DeepEqual(a, decisions(43, rules, 9000)) {
		t.Error("another seed gave the same faults")
	}
	// A rule's chances do not depend on other rules, nor one way's on the
	// traffic of the other.
	hits := func(ds []Decision, e Effect) (at []int) {
		for i := range ds {
			if ds[i].Effects.Has(e) {
				at = append(at, i)
			}
		}
		return at
	}
	if x, y := hits(decisions(42, "dup 2%; drop 0%", 9000), Dup), hits(decisions(42, "dup 2%; ce 50%", 9000), Dup); !reflect.DeepEqual(x, y) {
		t.Error("a rule changed the chances of the one before it")
	}
	in := NewInjector(42, 0, MustParse("dup 2%"))
	var tx []int
	for i := range 9000 {
		if i%3 != 0 && in.Process(0, trace.Tx, packet(bth.RCAck, 1, 0, 20), 20).Effects.Has(Dup) {
			tx = append(tx, i)
		}
	}
	var both []int
	for _, i := range hits(decisions(42, "dup 2%", 9000), Dup) {
		if i%3 != 0 {
			both = append(both, i)
		}
	}
	if !reflect.DeepEqual(tx, both) {
		t.Error("receiving changed the chances of sending")
	}
}

func TestChance(t *testing.T) {
	for _, c := range []struct {
		rule     string
		min, max int // of 100000: six standard deviations around the mean
	}{
		{"tx drop 2%", 1734, 2266}, {"tx drop 50%", 49051, 50949}, {"tx drop 0.1%", 40, 160},
	} {
		in := NewInjector(7, 0, MustParse(c.rule))
		p := packet(bth.RCSendOnly, 1, 1, 16)
		n := 0
		for range 100_000 {
			if in.Process(0, trace.Tx, p, 16).Lost {
				n++
			}
		}
		if n < c.min || n > c.max {
			t.Errorf("%s: %d of 100000", c.rule, n)
		}
		if s := in.Stats()[0]; s.Rule != c.rule || s.Matched != 100_000 || s.Hit != uint64(n) || s.Lost != uint64(n) {
			t.Errorf("stats %+v", s)
		}
	}
}

func TestTimes(t *testing.T) {
	p := packet(bth.RCSendOnly, 1, 1, 1000)
	cut := NewInjector(1, 5e9, MustParse("cut 100ms..200ms"))
	for _, c := range []struct {
		at   time.Duration
		lost bool
	}{{0, false}, {100*time.Millisecond - 1, false}, {100 * time.Millisecond, true}, {200*time.Millisecond - 1, true}, {200 * time.Millisecond, false}} {
		if d := cut.Process(5e9+int64(c.at), trace.Rx, p, 1000); d.Lost != c.lost {
			t.Errorf("cut at %v: %+v", c.at, d)
		}
	}
	delay := NewInjector(1, 0, MustParse("delay 1ms..5ms"))
	lo, hi := int64(1e18), int64(0)
	for range 10_000 {
		d := delay.Process(77, trace.Tx, p, 1000)
		lo, hi = min(lo, d.Release-77), max(hi, d.Release-77)
		if !d.Held() {
			t.Fatalf("%+v", d)
		}
	}
	if lo < 1e6 || lo > 1.01e6 || hi > 5e6 || hi < 4.99e6 {
		t.Errorf("delays from %d to %d ns", lo, hi)
	}
	// 8 Mbit/s: 1000 octets take 1 ms. A queue of 2500 octets holds two more.
	line := NewInjector(1, 0, MustParse("rate 8Mbit buf=2500"))
	for i, want := range []int64{1e6, 2e6, -1, -1} {
		d := line.Process(0, trace.Tx, p, 1000)
		if d.Lost != (want < 0) || want > 0 && d.Release != want {
			t.Errorf("packet %d: %+v", i, d)
		}
	}
	if d := line.Process(0, trace.Rx, p, 1000); d.Lost || d.Release != 1e6 {
		t.Errorf("the other way: %+v", d)
	}
	if d := line.Process(1.5e6, trace.Tx, p, 1000); d.Lost || d.Release != 3e6 {
		t.Errorf("half sent: %+v", d)
	}
	if d := line.Process(9e6, trace.Tx, p, 1000); d.Lost || d.Release != 10e6 {
		t.Errorf("idle line: %+v", d)
	}
	slow := NewInjector(1, 0, MustParse("rate 1bit buf=64M"))
	if d := slow.Process(1.8e18, trace.Tx, p, 1000); d.Release != 1.8e18+8e12 {
		t.Errorf("slow line: %+v", d)
	}
	if d := slow.Process(1.8e18, trace.Tx, p, 1000); d.Lost || d.Release != 1.8e18+16e12 {
		t.Errorf("slow line: %+v", d)
	}
}

// Whatever bit is flipped, the ICRC notices; every bit that it covers is
// flipped at some time.
func TestCorruptIsSeenByICRC(t *testing.T) {
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	const n = 48
	good := packet(bth.RCSendOnly, 5, 9, n)
	crc := wire.ICRC(good[:n-4], netip.AddrPortFrom(src, 1), netip.AddrPortFrom(dst, wire.Port), 3, true)
	for i := range 4 {
		good[n-4+i] = byte(crc >> (8 * i))
	}
	in := NewInjector(3, 0, MustParse("rx corrupt"))
	v := wire.NewVerifier()
	var flipped [n]byte
	for range 20_000 {
		d := wire.Datagram{Src: src, Dst: dst, SrcPort: 1, ID: 3, Flags: wire.FlagDF, IDKnown: true, Payload: append([]byte(nil), good...)}
		if r := v.Check(0, &d, 0); r != trace.None {
			t.Fatal(r)
		}
		f := in.Process(0, trace.Rx, d.Payload, n)
		f.Flip(d.Payload)
		if r := v.Check(0, &d, 0); r != trace.DropICRC {
			t.Fatalf("bit %d flipped: %v", f.Bit, r)
		}
		ones := 0
		for i := range good {
			x := good[i] ^ d.Payload[i]
			ones += bits.OnesCount8(x)
			flipped[i] |= x
		}
		if ones != 1 {
			t.Fatalf("%d bits flipped", ones)
		}
	}
	for i, x := range flipped {
		if want := byte(0xff); i != 4 && x != want || i == 4 && x != 0 {
			t.Errorf("octet %d: bits %08b were flipped", i, x)
		}
	}
}

func TestHold(t *testing.T) {
	h := NewHold[string](4)
	put := func(s string, release int64, behind int) {
		t.Helper()
		p := h.Put(&Decision{Release: release, Behind: behind})
		if p == nil {
			t.Fatalf("no room for %s", s)
		}
		p.Meta, p.Pkt = s, append(p.Pkt, s...)
	}
	pop := func(now int64) string {
		t.Helper()
		p := h.Pop(now)
		if p == nil {
			return ""
		}
		defer h.Free(p)
		if string(p.Pkt) != p.Meta {
			t.Errorf("%s has %q", p.Meta, p.Pkt)
		}
		return p.Meta
	}
	expect := func(now int64, want ...string) {
		t.Helper()
		for _, w := range append(want, "") {
			if got := pop(now); got != w {
				t.Fatalf("at %d: %q, want %q", now, got, w)
			}
		}
	}
	if h.Next() != Never || h.Pop(Never) != nil {
		t.Error("an empty hold has something")
	}
	put("b", 20, 0)
	put("a", 10, 0)
	put("c", 20, 0)
	put("long one", 15, 0)
	if h.Put(&Decision{}) != nil || h.Len() != 4 {
		t.Error("more than fits")
	}
	if h.Next() != 10 {
		t.Error(h.Next())
	}
	expect(9)
	expect(15, "a", "long one")
	expect(99, "b", "c")

	put("x", 100, 2)
	put("y", 50, 1)
	put("z", 60, 0)
	h.Passed()
	expect(0, "y")
	h.Passed()
	expect(0, "x")
	h.Passed()
	expect(60, "z")
	put("late", 5, 9) // released by time
	expect(5, "late")
	h.Passed()
	if h.Next() != Never {
		t.Error("something is left")
	}
}
