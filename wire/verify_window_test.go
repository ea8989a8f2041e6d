package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gorxe/gorxe/trace"
)

var (
	hiddenSrc = netip.MustParseAddr("192.0.2.1")
	hiddenDst = netip.MustParseAddr("192.0.2.2")
)

// hidden returns a packet as a UDP socket shows it, sealed for an
// identification that it does not show.
func hidden(src netip.Addr, id uint16, df bool) *Datagram {
	pkt := make([]byte, 64)
	pkt[0], pkt[7], pkt[20] = 4, 0x11, byte(id)
	const sport = 0xc0de
	v := ICRC(pkt[:60], netip.AddrPortFrom(src, sport), netip.AddrPortFrom(hiddenDst, Port), id, df)
	binary.LittleEndian.PutUint32(pkt[60:], v)
	return &Datagram{Src: src, Dst: hiddenDst, SrcPort: sport, Payload: pkt}
}

// TestCountersOfDestinations: Linux numbers what it sends to a group, or to another
// address of ours, by another counter. None of them is taken for a jump of the other.
func TestCountersOfDestinations(t *testing.T) {
	to := func(dst netip.Addr, id uint16) *Datagram {
		d := hidden(hiddenSrc, id, true)
		d.Dst = dst
		binary.LittleEndian.PutUint32(d.Payload[60:], ICRC(d.Payload[:60], netip.AddrPortFrom(d.Src, d.SrcPort), netip.AddrPortFrom(dst, Port), id, true))
		return d
	}
	v := NewVerifier()
	for i := range uint16(100) {
		for n, dst := range []string{"192.0.2.2", "192.0.2.3", "239.1.2.3"} {
			if r := v.Check(int64(i), to(netip.MustParseAddr(dst), uint16(n+1)*20000+i), 0); r != trace.None {
				t.Fatalf("datagram %d to %s: %v", i, dst, r)
			}
		}
	}
	if v.Learned != 3 {
		t.Errorf("%d were learned", v.Learned)
	}
}

// TestWindow walks the window of one peer's hidden identifications.
func TestWindow(t *testing.T) {
	const ok, out = trace.None, trace.DropICRCWindow
	type step struct {
		ms   int64 // time
		id   uint16
		want trace.Reason
	}
	far := func(ms int64) uint16 { return uint16(idAhead + ms) }
	for _, c := range []struct {
		name    string
		steps   []step
		learned uint64
	}{
		{"counted bursts are always taken and teach nothing", []step{{0, 0, ok}, {0, 127, ok}, {0, 5, ok}}, 0},
		{"the first other one is learned", []step{{0, 5000, ok}, {0, 5001, ok}, {0, 5002, ok}}, 1},
		{"the first beyond the counted ones is learned", []step{{0, 128, ok}, {0, 192, ok}}, 1},
		{"counted ones do not move the window", []step{{0, 5000, ok}, {0, 3, ok}, {0, 5001, ok}}, 1},
		{"ahead, the last inside", []step{{0, 5000, ok}, {0, 5000 + far(0), ok}, {0, 5000 + 2*far(0), ok}}, 1},
		{"ahead, the first outside", []step{{0, 5000, ok}, {0, 5001 + far(0), out}, {0, 5001, ok}}, 1},
		{"behind, the last inside", []step{{0, 5000, ok}, {0, 5000 - idBehind, ok}}, 1},
		{"behind, the first outside", []step{{0, 5000, ok}, {0, 4999 - idBehind, out}, {0, 5001, ok}}, 1},
		{"behind does not move the window", []step{{0, 5000, ok}, {0, 4940, ok}, {0, 5000 + far(0), ok}}, 1},
		{"behind, not twice as far", []step{{0, 5000, ok}, {0, 5000 - idBehind, ok}, {0, 5000 - 2*idBehind, out}}, 1},
		{"repeated", []step{{0, 5000, ok}, {0, 5000, ok}}, 1},
		{"idle: one more each millisecond", []step{{0, 5000, ok}, {100, 5000 + far(100), ok}}, 1},
		{"idle: no more than that", []step{{0, 5000, ok}, {100, 5001 + far(100), out}}, 1},
		{"idle: counted from the last that moved the window", []step{{0, 5000, ok}, {100, 5010, ok}, {150, 5010 + far(50), ok}}, 1},
		{"idle: a repeated one is no news", []step{{0, 5000, ok}, {100, 5000, ok}, {100, 5000 + far(100), ok}}, 1},
		{"idle: at last everything is near", []step{{0, 5000, ok}, {1 << 40, 4999 - idBehind, ok}}, 1},
		{"time going backwards", []step{{100, 5000, ok}, {0, 5064, ok}, {0, 5065 + far(0), out}}, 1},
		{"gap: the second near one is taken", []step{{0, 5000, ok}, {0, 20000, out}, {0, 20001, ok}, {0, 20002, ok}, {0, 5001, out}}, 1},
		{"gap: the second may be as far ahead as any", []step{{0, 5000, ok}, {0, 20000, out}, {0, 20000 + far(0), ok}}, 1},
		{"gap: but no farther", []step{{0, 5000, ok}, {0, 20000, out}, {0, 20001 + far(0), out}, {0, 20002 + far(0), ok}}, 1},
		{"gap: not by the same one again", []step{{0, 5000, ok}, {0, 20000, out}, {0, 20000, out}}, 1},
		{"gap: the old window stays until then", []step{{0, 5000, ok}, {0, 20000, out}, {0, 5001, ok}, {0, 20001, out}}, 1},
		{"wraparound of the window ahead", []step{{0, 65500, ok}, {0, 65535, ok}}, 1},
		{"wraparound of the window behind", []step{{0, 128, ok}, {0, 65535, ok}, {0, 65536 + 128 - idBehind, ok}, {0, 65535 + 128 - idBehind, out}}, 1},
		{"wraparound through the counted ones", []step{{0, 65535, ok}, {0, 0, ok}, {0, 1, ok}, {0, 64, ok}, {0, 127, ok}, {0, 128, ok}, {0, 65535 + 128 - idBehind, out}}, 1},
		{"counted ones far from the window do not move it", []step{{0, 65000, ok}, {0, 100, ok}, {0, 140, out}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := NewVerifier()
			for i, s := range c.steps {
				if r := v.Check(s.ms*int64(time.Millisecond), hidden(hiddenSrc, s.id, true), 0); r != s.want {
					t.Fatalf("step %d, identification %d at %d ms: %v, want %v", i, s.id, s.ms, r, s.want)
				}
			}
			if v.Learned != c.learned {
				t.Errorf("learned %d, want %d", v.Learned, c.learned)
			}
		})
	}
}

// TestQueuePairsInTurn is a peer whose queueing discipline serves eight queue pairs in
// turn, each with 64 packets waiting that were numbered one after the other: none of
// them is lost.
func TestQueuePairsInTurn(t *testing.T) {
	const qps, waiting = 8, 64
	for seed := range uint64(20) {
		v, r := NewVerifier(), rand.New(rand.NewPCG(seed, 0))
		first := 5000
		for range 10 {
			var flows [qps][]int // identifications, in order within each
			for i := range qps * waiting {
				flows[i/waiting] = append(flows[i/waiting], first+i)
			}
			first += qps * waiting
			for n := qps * waiting; n > 0; {
				f := r.IntN(qps)
				if len(flows[f]) == 0 {
					continue
				}
				id := flows[f][0]
				flows[f], n = flows[f][1:], n-1
				if why := v.Check(0, hidden(hiddenSrc, uint16(id), true), 0); why != trace.None {
					t.Fatalf("seed %d: identification %d: %v", seed, id, why)
				}
			}
		}
	}
}

// TestBusyCounter is a peer whose counter also numbers its traffic to others, as
// a ConnectX's does: after the packets that teach its rate, all are taken.
func TestBusyCounter(t *testing.T) {
	for _, c := range []struct {
		gap  time.Duration // between packets to us
		jump int           // identifications between them
		most int           // packets lost until the rate is known
	}{
		{time.Millisecond, 1000, 1},
		{50 * time.Microsecond, 200, 1},
		{10 * time.Millisecond, 30_000, 2},
		{10 * time.Millisecond, 200_000, 40}, // wraps several times in between: the rate is found by doubling
		{100 * time.Millisecond, 70, 0},
	} {
		for seed := range uint64(20) {
			v := NewVerifier()
			r := rand.New(rand.NewPCG(seed, uint64(c.jump)))
			id, lost := 5000, 0
			for i := range 500 {
				// The other traffic varies by a quarter.
				id += c.jump*3/4 + r.IntN(c.jump/2)
				if v.Check(int64(i)*int64(c.gap), hidden(hiddenSrc, uint16(id), true), 0) != trace.None {
					lost++
				}
			}
			if lost > c.most {
				t.Errorf("%d identifications every %v, seed %d: %d of 500 packets lost", c.jump, c.gap, seed, lost)
			}
		}
	}
}

// TestWindowPerPeer checks that peers do not share a window.
func TestWindowPerPeer(t *testing.T) {
	v := NewVerifier()
	other := netip.MustParseAddr("192.0.2.3")
	for i, s := range []struct {
		src  netip.Addr
		id   uint16
		want trace.Reason
	}{
		{hiddenSrc, 5000, trace.None},
		{other, 40000, trace.None},
		{hiddenSrc, 5001, trace.None},
		{hiddenSrc, 40001, trace.DropICRCWindow},
		{other, 40001, trace.None},
		{other, 5002, trace.DropICRCWindow},
	} {
		if r := v.Check(0, hidden(s.src, s.id, true), 0); r != s.want {
			t.Errorf("step %d: %v, want %v", i, r, s.want)
		}
	}
	if v.Learned != 2 {
		t.Errorf("learned %d", v.Learned)
	}
}

// TestWindowTableBounded sends from more peers than are remembered.
func TestWindowTableBounded(t *testing.T) {
	v := NewVerifier()
	for i := range maxPeers + 10 {
		src := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		if r := v.Check(0, hidden(src, 5000, true), 0); r != trace.None {
			t.Fatal(i, r)
		}
	}
	if len(v.peers) > maxPeers {
		t.Errorf("%d peers remembered", len(v.peers))
	}
}

// TestForged: packets that nobody vouches for, with any source address,
// identification and DF bit, leave the Verifier as it was.
func TestForged(t *testing.T) {
	v := NewVerifier()
	forge := func() {
		for i := range uint16(200) {
			v.Examine(0, hidden(hiddenSrc, 20000+i, false), 0)
			v.Examine(0, hidden(hiddenSrc, 40000+i, true), 0)
			v.Examine(0, hidden(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7000, true), 0)
		}
	}
	forge()
	for id := range uint16(1000) {
		if r := v.Check(0, hidden(hiddenSrc, 30000+60*id, true), 0); r != trace.None {
			t.Fatalf("identification %d: %v", 30000+60*id, r)
		}
		if id%100 == 0 {
			forge()
		}
	}
	if len(v.peers) != 1 || v.Learned != 1 {
		t.Errorf("%d peers, %d learned", len(v.peers), v.Learned)
	}
	v.Confirm() // there is nothing to confirm
	v.Examine(0, hidden(hiddenDst, 7000, true), 0)
	v.Examine(0, hidden(hiddenDst, 0, true), 0)
	v.Confirm() // the last one taught that its sender counts
	if p := v.peers[way{hiddenDst, hiddenDst}]; p == nil || p.known || p.counted != 1 {
		t.Error("a packet was confirmed by another one's Confirm")
	}
}

// TestSure: who has sent counted identifications for a while is not believed
// another one at once, which a damaged packet has as easily as any; two that fit
// each other are its own, as of a host that has changed its network stack.
func TestSure(t *testing.T) {
	believed := func(before int, ids ...uint16) (got []bool) {
		v := NewVerifier()
		for i := range before {
			if r := v.Check(0, hidden(hiddenSrc, uint16(i%3), true), 0); r != trace.None {
				t.Fatal(i, r)
			}
		}
		for _, id := range ids {
			r := v.Check(0, hidden(hiddenSrc, id, true), 0)
			if r != trace.None && r != trace.DropICRCWindow {
				t.Fatal(id, r)
			}
			got = append(got, r == trace.None)
		}
		return got
	}
	for _, c := range []struct {
		before int
		ids    []uint16
		want   []bool
	}{
		{idSure - 1, []uint16{5000, 5001}, []bool{true, true}},
		{idSure, []uint16{5000}, []bool{false}},
		{1000, []uint16{5000, 0, 127, 5001, 5002, 4999, 0}, []bool{false, true, true, true, true, true, true}},
		{1000, []uint16{5000, 5000, 40000, 20000, 20001}, []bool{false, false, false, false, true}},
	} {
		if got := believed(c.before, c.ids...); !slices.Equal(got, c.want) {
			t.Errorf("%d counted, then %v: %v", c.before, c.ids, got)
		}
	}
	// Forged packets that nobody vouches for make nobody sure of anything.
	v := NewVerifier()
	for range 100 {
		v.Examine(0, hidden(hiddenSrc, 0, true), 0)
	}
	if r := v.Check(0, hidden(hiddenSrc, 5000, true), 0); r != trace.None {
		t.Error("unvouched:", r)
	}
}

// TestDFClear takes packets of a sender that does not set DF, in every part of
// the window. Once that is known, one with DF is outside it, and moves it like any
// other that is: by a second one.
func TestDFClear(t *testing.T) {
	v := NewVerifier()
	for i, s := range []struct {
		id   uint16
		df   bool
		want trace.Reason
	}{
		{5000, false, trace.None},
		{5001, true, trace.DropICRCWindow},
		{99, false, trace.None},
		{5002, false, trace.None},
		{9000, false, trace.DropICRCWindow},
		{9001, false, trace.None},
		{9002, true, trace.DropICRCWindow},
		{9003, false, trace.None},
		{9004, true, trace.DropICRCWindow},
		{9005, true, trace.None},
		{9006, true, trace.None},
		{9007, false, trace.DropICRCWindow},
	} {
		if r := v.Check(0, hidden(hiddenSrc, s.id, s.df), 0); r != s.want {
			t.Errorf("step %d: %v, want %v", i, r, s.want)
		}
	}
	d := hidden(hiddenSrc, 7, false)
	d.IDKnown, d.ID, d.Flags = true, 7, 0
	if r := v.Check(0, d, 0); r != trace.None {
		t.Errorf("visible, DF clear: %v", r)
	}
	d.Flags = FlagDF
	if r := v.Check(0, d, 0); r != trace.DropICRC {
		t.Errorf("visible, DF set on the way: %v", r)
	}
}

// TestHiddenSegments verifies the segments of a merged run, which carry
// identifications counted up from a hidden first one of 0.
func TestHiddenSegments(t *testing.T) {
	d := hidden(hiddenSrc, 0, true)
	d.SegLen = len(d.Payload)
	for i := 1; i < MaxSegments; i++ {
		d.Payload = append(d.Payload, hidden(hiddenSrc, uint16(i), true).Payload...)
	}
	v := NewVerifier()
	for i := range d.Segments() {
		if r := v.Check(0, d, i); r != trace.None {
			t.Fatalf("segment %d: %v", i, r)
		}
	}
	if p := v.peers[way{hiddenSrc, hiddenDst}]; v.Learned != 0 || p.known || p.counted != 1 {
		t.Error("a counted burst taught more than that its sender counts")
	}
}

// TestWindowSize counts the identifications that a known peer may use: the
// share of random errors that get past the solver and the window.
func TestWindowSize(t *testing.T) {
	n := 0
	for id := range 1 << 16 {
		var p idPeer
		if p.admit(0, 30000, false) != trace.None {
			t.Fatal("not learned")
		}
		if p.admit(0, uint16(id), false) == trace.None {
			n++
		}
	}
	if want := idCounted + idAhead + idBehind + 1; n != want {
		t.Errorf("%d identifications taken, want %d", n, want)
	}
}

// TestRandomErrors measures the strength of the bounded check on packets with
// a random ICRC. Each of DF set and clear leaves 2^16 of 2^32 ICRCs that some
// identification explains.
func TestRandomErrors(t *testing.T) {
	const trials = 1 << 20
	const expect = trials >> 15 // 32
	r := rand.New(rand.NewPCG(4791, 16))
	d := hidden(hiddenSrc, 5000, true)
	random := func() {
		for i := 12; i < 64; i += 4 {
			binary.LittleEndian.PutUint32(d.Payload[i:], r.Uint32())
		}
	}
	unknown := 0
	v := NewVerifier()
	for range trials {
		random()
		switch v.Check(0, d, 0) {
		case trace.None:
			unknown++
			v = NewVerifier() // as before the peer was known
		case trace.DropICRC:
		default:
			t.Fatal("a peer that is not known has no window")
		}
	}
	if unknown < expect/2 || unknown > expect*2 {
		t.Errorf("peer not known: %d of %d random errors passed, expected about %d", unknown, trials, expect)
	}

	v = NewVerifier()
	v.Check(0, hidden(hiddenSrc, 30000, true), 0)
	known, window := 0, 0
	for range trials {
		random()
		switch v.Check(0, d, 0) {
		case trace.None:
			known++
		case trace.DropICRCWindow:
			window++
		}
	}
	if window < expect/2 || window > expect*2 {
		t.Errorf("known peer: %d of %d fell to the window, expected about %d", window, trials, expect)
	}
	if known > 2 { // 0.1 expected
		t.Errorf("known peer: %d of %d random errors passed", known, trials)
	}
	t.Logf("%d trials: peer not known %d passed, known %d passed (%d more fell to the window)", trials, unknown, known, window)
}

// TestSmallErrors flips single bits of a packet: none passes, except in the
// octet of the BTH that the ICRC leaves out, and a single flip is never taken
// for an identification that the peer may use.
func TestSmallErrors(t *testing.T) {
	d := hidden(hiddenSrc, 0, true)
	v := NewVerifier()
	v.Check(0, hidden(hiddenSrc, 30000, true), 0)
	for bit := range len(d.Payload) * 8 {
		if bit/8 == 4 { // FECN, BECN and reserved bits may change on the way
			continue
		}
		d.Payload[bit/8] ^= 1 << (bit % 8)
		if r := v.Check(0, d, 0); r != trace.DropICRC && r != trace.DropICRCWindow {
			t.Errorf("bit %d flipped: %v", bit, r)
		}
		d.Payload[bit/8] ^= 1 << (bit % 8)
	}
	for bit := 32; bit < 40; bit++ {
		d.Payload[bit/8] ^= 1 << (bit % 8)
		if r := v.Check(0, d, 0); r != trace.None {
			t.Errorf("bit %d of the masked octet: %v", bit, r)
		}
		d.Payload[bit/8] ^= 1 << (bit % 8)
	}
}
