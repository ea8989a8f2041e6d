package bth

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorxe/gorxe/trace"
)

// expect is the verdict on a packet of n octets with an opcode, a pad count
// and a transport version, written down a second time.
func expect(op Opcode, n, pad int, tver uint8) trace.Reason {
	switch {
	case n < BTHLen+ICRCLen:
		return trace.DropShort
	case !op.Valid():
		return trace.DropOpcode
	case n < op.Info().HdrLen+pad+ICRCLen:
		return trace.DropShort
	case tver != 0:
		return trace.DropTVer
	}
	return trace.None
}

// Reports B01 to B03: every opcode at lengths 0 to 64, with every pad, and
// around the size its headers call for, gets the right verdict and no panic.
// The header table is checked elsewhere.
func TestEveryOpcodeAtEveryLength(t *testing.T) {
	for o := range 256 {
		op := Opcode(o)
		size := op.Info().HdrLen + ICRCLen
		for n := range size + 64 {
			for pad := range 4 {
				for _, tver := range []uint8{0, 1, 15} {
					b := make([]byte, n)
					if n >= BTHLen {
						h := BTH(b)
						h.SetOpcode(op)
						h.SetPadCount(pad)
						h.SetTVer(tver)
					} else if n > 0 {
						b[0] = byte(o)
					}
					var p Packet
					want := expect(op, n, pad, tver)
					if got := Parse(b, &p); got != want {
						t.Fatalf("opcode %#02x length %d pad %d tver %d: %v, want %v", o, n, pad, tver, got, want)
					}
					if want == trace.None && len(p.Payload) != n-size-pad {
						t.Fatalf("opcode %#02x length %d pad %d: payload %d", o, n, pad, len(p.Payload))
					}
				}
			}
		}
	}
}

// Every octet of ones: all reserved bits, all pads, all versions.
func TestParseOnes(t *testing.T) {
	for n := range 128 {
		var p Packet
		b := bytes.Repeat([]byte{0xff}, n)
		require.Equal(t, expect(0xff, n, 3, 15), Parse(b, &p))
	}
}

// drawPacket returns a packet that PutHeaders can say: fields that the
// opcode's headers hold, and no others.
func drawPacket(t *rapid.T) Packet {
	var ops []Opcode
	for o := range 256 {
		if Opcode(o).Valid() {
			ops = append(ops, Opcode(o))
		}
	}
	u24 := rapid.Uint32Range(0, 1<<24-1)
	p := Packet{
		Opcode: rapid.SampledFrom(ops).Draw(t, "opcode"), SE: rapid.Bool().Draw(t, "se"), MigReq: rapid.Bool().Draw(t, "migreq"),
		AckReq: rapid.Bool().Draw(t, "ackreq"), FECN: rapid.Bool().Draw(t, "fecn"), BECN: rapid.Bool().Draw(t, "becn"),
		Pad: rapid.Uint8Range(0, 3).Draw(t, "pad"), PKey: rapid.Uint16().Draw(t, "pkey"), DestQP: QPN(u24.Draw(t, "destqp")),
		PSN: MakePSN(u24.Draw(t, "psn")), Payload: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload"),
	}
	ext := p.Info().Ext
	if ext&(ExtRETH|ExtAtomicETH) != 0 {
		p.VA, p.RKey = rapid.Uint64().Draw(t, "va"), rapid.Uint32().Draw(t, "rkey")
	}
	if ext&ExtRETH != 0 {
		p.DMALen = rapid.Uint32().Draw(t, "dmalen")
	}
	if ext&ExtAtomicETH != 0 {
		p.SwapAdd, p.Compare = rapid.Uint64().Draw(t, "swapadd"), rapid.Uint64().Draw(t, "compare")
	}
	if ext&ExtAETH != 0 {
		p.Syndrome, p.MSN = Syndrome(rapid.Uint8().Draw(t, "syndrome")), u24.Draw(t, "msn")
	}
	if ext&ExtAtomicAckETH != 0 {
		p.Orig = rapid.Uint64().Draw(t, "orig")
	}
	if ext&ExtImmDt != 0 {
		p.Imm = rapid.Uint32().Draw(t, "imm")
	}
	if ext&ExtIETH != 0 {
		p.Inv = rapid.Uint32().Draw(t, "inv")
	}
	if ext&ExtDETH != 0 {
		p.QKey, p.SrcQP = rapid.Uint32().Draw(t, "qkey"), QPN(u24.Draw(t, "srcqp"))
	}
	if ext&ExtXRCETH != 0 {
		p.XRCSRQ = u24.Draw(t, "srq")
	}
	if ext&ExtRDETH != 0 {
		p.EECtx = u24.Draw(t, "ee")
	}
	if ext&ExtFETH != 0 {
		p.FlushPlacement, p.FlushSelectivity = rapid.Uint8Range(0, 15).Draw(t, "placement"), rapid.Uint8Range(0, 3).Draw(t, "selectivity")
	}
	return p
}

// encode returns the packet's octets; pad octets and ICRC are 0x5a.
func encode(p *Packet) []byte {
	n := p.Info().HdrLen
	b := bytes.Repeat([]byte{0x5a}, n+len(p.Payload)+int(p.Pad)+ICRCLen)
	p.PutHeaders(b)
	copy(b[n:], p.Payload)
	return b
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawPacket(t)
		b := encode(&want)
		var got Packet
		if r := Parse(b, &got); r != trace.None {
			t.Fatalf("%+v: %v", want, r)
		}
		if !bytes.Equal(got.Payload, want.Payload) {
			t.Fatalf("payload % x, want % x", got.Payload, want.Payload)
		}
		bare, bareWant := got, want
		bare.Payload, bareWant.Payload = nil, nil
		require.Equal(t, bareWant, bare)
		if again := encode(&got); !bytes.Equal(again, b) {
			t.Fatalf("% x became % x", b, again)
		}
	})
}

// A parse into a used Packet leaves nothing of the last one.
func TestParseForgets(t *testing.T) {
	var p Packet
	for _, g := range golden {
		hdr := unhex(t, g.hex)
		require.Equal(t, trace.None, Parse(append(hdr, make([]byte, 3+ICRCLen)...), &p))
	}
	last := golden[0]
	require.Equal(t, trace.None, Parse(append(unhex(t, last.hex), make([]byte, ICRCLen)...), &p))
	p.Payload = nil
	require.Equal(t, last.want, p)
}

func TestAllocations(t *testing.T) {
	var packets [][]byte
	for o := range 256 {
		if p := (Packet{Opcode: Opcode(o)}); p.Info().Valid() {
			packets = append(packets, encode(&p))
		}
	}
	var p Packet
	out := make([]byte, MaxHeaderLen)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, b := range packets {
			if Parse(b, &p) != trace.None {
				t.Fatal("parse")
			}
			p.PutHeaders(out)
		}
	}))
}

// FuzzParse: no panic; the payload lies inside the packet; what parses is
// encoded to the same octets but for reserved bits, and parses to the same
// again.
func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(append(unhex(f, g.hex), 1, 2, 3, 4, 5, 6, 7))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		if Parse(b, &p) != trace.None {
			return
		}
		n := p.Info().HdrLen
		if n+len(p.Payload)+int(p.Pad)+ICRCLen != len(b) {
			t.Fatalf("%d + %d + %d + 4 is not %d", n, len(p.Payload), p.Pad, len(b))
		}
		out := make([]byte, len(b))
		if p.PutHeaders(out) != n {
			t.Fatal("header length")
		}
		copy(out[n:], b[n:])
		var q Packet
		if r := Parse(out, &q); r != trace.None {
			t.Fatal(r)
		}
		require.Equal(t, p, q)
	})
}

func BenchmarkParse(b *testing.B) {
	p := Packet{Opcode: RCWriteFirst, Payload: make([]byte, 4096)}
	pkt := encode(&p)
	b.SetBytes(int64(len(pkt)))
	b.ReportAllocs()
	for b.Loop() {
		if Parse(pkt, &p) != trace.None {
			b.Fatal("parse")
		}
	}
}

func BenchmarkPutHeaders(b *testing.B) {
	p := Packet{Opcode: RCWriteFirst}
	out := make([]byte, MaxHeaderLen)
	b.ReportAllocs()
	for b.Loop() {
		p.PutHeaders(out)
	}
}

// TestPutBTH: the short form is the long one's.
func TestPutBTH(t *testing.T) {
	for _, op := range []Opcode{RCSendOnly, RCSendMiddle, RCWriteLast, 0x01} {
		for pad := range uint8(4) {
			for _, se := range []bool{false, true} {
				for _, ack := range []bool{false, true} {
					p := Packet{Opcode: op, MigReq: true, PKey: 0xffff, Pad: pad, SE: se, AckReq: ack, DestQP: 0xabcdef, PSN: MakePSN(0x123456)}
					want, got := bytes.Repeat([]byte{0xa5}, BTHLen), bytes.Repeat([]byte{0x5a}, BTHLen)
					p.PutHeaders(want)
					PutBTH(got, op, pad, se, ack, p.DestQP, p.PSN)
					if !bytes.Equal(got, want) {
						t.Errorf("%v: %x, want %x", p, got, want)
					}
				}
			}
		}
	}
}
