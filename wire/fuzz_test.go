package wire

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
)

// seedFrames builds frames of every kind that the parser tells apart.
func seedFrames() (frames [][]byte) {
	for _, a := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"2001:db8::1", "2001:db8::2"}} {
		src, dst := netip.MustParseAddr(a[0]), netip.MustParseAddr(a[1])
		for _, pay := range []int{0, 3, 100} {
			b := NewBurst()
			b.Reset(&Flow{Src: src, Dst: dst, SrcPort: 0xc001}, 0, 0)
			h := b.Begin(bth.MakePSN(1), 4, bth.BTHLen, pay)
			clear(h)
			h[0] = 4
			clear(b.Copy(pay))
			b.End()
			b.Seal(IDCount)
			ip := buildIP(src, dst, b.AppendSegment(nil, 0))
			frames = append(frames, ip)
			for _, tags := range []int{0, 1, 2} {
				frames = append(frames, buildFrame(ip, tags))
			}
			frames = append(frames, append(buildFrame(ip, 0), make([]byte, 22)...)) // Ethernet pads
		}
	}
	return frames
}

func buildIP(src, dst netip.Addr, pay []byte) []byte {
	n := IPv6Len
	if src.Is4() {
		n = IPv4Len
	}
	p := append(make([]byte, n+UDPLen), pay...)
	u := UDP(p[n:])
	u.SetSrcPort(0xc001)
	u.SetDstPort(Port)
	u.SetLength(len(u))
	if src.Is4() {
		h := IPv4(p)
		h[0] = 0x45
		h.SetTOS(0x6a)
		h.SetTotalLen(len(p))
		h.SetFlagsOffset(FlagDF)
		h.SetTTL(64)
		h.SetProtocol(ProtoUDP)
		h.SetSrc(src.As4())
		h.SetDst(dst.As4())
		h.SetChecksum()
		return p
	}
	h := IPv6(p)
	h.SetClassFlow(0x6a, 0x12345)
	h.SetPayloadLen(len(u))
	h.SetNextHeader(ProtoUDP)
	h[7] = 64
	h.SetSrc(src.As16())
	h.SetDst(dst.As16())
	return p
}

func buildFrame(ip []byte, tags int) []byte {
	et := uint16(EtherTypeIPv4)
	if ip[0]>>4 == 6 {
		et = EtherTypeIPv6
	}
	f := make([]byte, EthernetLen+tags*VLANLen)
	e := Ethernet(f)
	e.SetDst([6]byte{2, 0, 0, 0, 0, 1})
	e.SetSrc([6]byte{2, 0, 0, 0, 0, 2})
	next := func(i int) uint16 {
		switch {
		case i == tags:
			return et
		case i == 0 && tags == 2:
			return EtherTypeQinQ
		}
		return EtherTypeVLAN
	}
	e.SetEtherType(next(0))
	for i := range tags {
		v := VLAN(f[EthernetLen+i*VLANLen:])
		v.SetTCI(0x6000 | uint16(100+i))
		v.SetEtherType(next(i + 1))
	}
	return append(f, ip...)
}

// TestSeedsParse keeps the fuzz targets' seeds valid.
func TestSeedsParse(t *testing.T) {
	for i, f := range seedFrames() {
		var d Datagram
		parse := ParseFrame
		if i%5 == 0 {
			parse = ParseIP
		}
		if r := parse(f, &d); r != trace.None {
			t.Fatalf("seed %d: %v", i, r)
		}
		if r := NewVerifier().Check(0, &d, 0); r != trace.None {
			t.Errorf("seed %d: %v", i, r)
		}
		if d.TOS != 0x6a || d.TTL != 64 || d.SrcPort != 0xc001 {
			t.Errorf("seed %d: %+v", i, d)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, s := range seedFrames() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Datagram
		if ParseFrame(b, &d) != trace.None {
			return
		}
		e := Ethernet(d.L2)
		tags := (len(d.L2) - EthernetLen) / VLANLen
		if len(d.L2) != EthernetLen+tags*VLANLen || tags > 2 || !bytes.Equal(d.L2, b[:len(d.L2)]) {
			t.Fatalf("L2 %x", d.L2)
		}
		et := e.EtherType()
		for i := range tags {
			v := VLAN(d.L2[EthernetLen+i*VLANLen:])
			if et != EtherTypeVLAN && et != EtherTypeQinQ || v.VID() != v.TCI()&0xfff || uint16(v.PCP()) != v.TCI()>>13 {
				t.Fatalf("tag %d of %x", i, d.L2)
			}
			et = v.EtherType()
		}
		if want := map[bool]uint16{true: EtherTypeIPv4, false: EtherTypeIPv6}[d.Src.Is4()]; et != want {
			t.Fatalf("EtherType %#x, addresses %v", et, d.Src)
		}
		if !bytes.Equal(e.Dst(), b[:6]) || !bytes.Equal(e.Src(), b[6:12]) {
			t.Fatal("MAC addresses")
		}
		checkParsed(t, b[len(d.L2):], &d)
	})
}

func FuzzParseIP(f *testing.F) {
	for _, s := range seedFrames() {
		f.Add(s)
		f.Add(s[min(len(s), EthernetLen):])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Datagram
		if ParseIP(b, &d) != trace.None {
			return
		}
		if d.L2 != nil {
			t.Fatal("L2 without a frame")
		}
		checkParsed(t, b, &d)
	})
}

// checkParsed checks a datagram that was parsed from the IP packet b: every
// accessor works, nothing lies outside the packet, and what was understood,
// written out again, is the packet.
func checkParsed(t *testing.T, b []byte, d *Datagram) {
	t.Helper()
	n := IPv6Len
	if d.Src.Is4() {
		n = IPv4Len
	}
	end := n + UDPLen + len(d.Payload)
	if end > len(b) || cap(d.Payload) != len(d.Payload) || d.Src.Is4() != d.Dst.Is4() || d.Src.Is4In6() && n == IPv4Len {
		t.Fatalf("%d octets, payload of %d with capacity %d, %v to %v", len(b), len(d.Payload), cap(d.Payload), d.Src, d.Dst)
	}
	if d.Segments() != 1 || !bytes.Equal(d.Segment(0), d.Payload) {
		t.Fatal("a parsed packet is one segment")
	}
	p := buildIP(d.Src, d.Dst, d.Payload)
	u := UDP(p[n:])
	u.SetSrcPort(d.SrcPort)
	u.SetChecksum(UDP(b[n:]).Checksum()) // not the parser's business
	if n == IPv4Len {
		h, in := IPv4(p), IPv4(b)
		h.SetTOS(d.TOS)
		h.SetTTL(d.TTL)
		h.SetID(d.ID)
		h.SetFlagsOffset(d.Flags)
		h.SetChecksum()
		if in.Checksum() != h.Checksum() { // 0 and 0xffff are the same sum
			if in.Checksum()^h.Checksum() != 0xffff {
				t.Fatalf("checksum %#x, parsed from %#x", h.Checksum(), in.Checksum())
			}
			copy(h[10:12], in[10:12])
		}
		if in.Version() != 4 || in.HeaderLen() != IPv4Len || in.Protocol() != ProtoUDP || in.TotalLen() != end || !d.IDKnown ||
			netip.AddrFrom4(in.Src()) != d.Src || netip.AddrFrom4(in.Dst()) != d.Dst {
			t.Fatalf("%x", b)
		}
	} else {
		h, in := IPv6(p), IPv6(b)
		h.SetClassFlow(d.TOS, in.FlowLabel())
		h[7] = d.TTL
		if in.Version() != 6 || in.NextHeader() != ProtoUDP || in.PayloadLen() != end-n || in.HopLimit() != d.TTL || d.IDKnown ||
			netip.AddrFrom16(in.Src()) != d.Src || netip.AddrFrom16(in.Dst()) != d.Dst {
			t.Fatalf("%x", b)
		}
	}
	if !bytes.Equal(p, b[:end]) {
		t.Fatalf("written again\n%x\nwas\n%x", p, b[:end])
	}
	// The verifier takes whatever was parsed; hidden or not.
	v := NewVerifier()
	r := v.Check(0, d, 0)
	hidden := *d
	hidden.IDKnown = false
	if h := v.Check(0, &hidden, 0); r == trace.None && d.Flags&^uint16(FlagDF) == 0 && h != trace.None {
		t.Fatalf("visible: %v, hidden: %v", r, h)
	}
}
