package relay

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// superOf says what a super-packet is made of.
type superOf struct {
	v6    bool
	tos   uint8
	psn   uint32
	sizes []int // UDP payload of each packet; one is a single packet
	id    uint16
	fixed bool // one identification for all
	sum   bool // the UDP checksum is unfinished, not 0
	tags  []uint16
}

type superPacket struct {
	vnet, frame []byte
}

// super makes a super-packet as veth delivers it, each packet with the ICRC that it
// must have on the wire.
func super(c *superOf) superPacket {
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	if c.v6 {
		src, dst = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	}
	var pay []byte
	for i, n := range c.sizes {
		h := bth.Packet{Opcode: bth.RCWriteMiddle, PKey: 0xffff, DestQP: 0x123456, PSN: bth.MakePSN(c.psn + uint32(i))}
		p := make([]byte, n)
		for k := range p {
			p[k] = byte(k*7 + i)
		}
		h.PutHeaders(p[:bth.BTHLen])
		id := c.id + uint16(i)
		if c.fixed {
			id = c.id
		}
		binary.LittleEndian.PutUint32(p[n-4:], wire.ICRC(p[:n-4], netip.AddrPortFrom(src, 0xc001), netip.AddrPortFrom(dst, wire.Port), id, true))
		pay = append(pay, p...)
	}
	f := append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, 0, 0)
	et := uint16(wire.EtherTypeIPv4)
	if c.v6 {
		et = wire.EtherTypeIPv6
	}
	for _, tci := range c.tags {
		binary.BigEndian.PutUint16(f[len(f)-2:], wire.EtherTypeVLAN)
		f = binary.BigEndian.AppendUint16(f, tci)
		f = append(f, 0, 0)
	}
	binary.BigEndian.PutUint16(f[len(f)-2:], et)
	ip := len(f)
	if c.v6 {
		f = append(f, make([]byte, wire.IPv6Len)...)
		h := wire.IPv6(f[ip:])
		h.SetClassFlow(c.tos, 0xabcde)
		h.SetPayloadLen(wire.UDPLen + len(pay))
		h.SetNextHeader(wire.ProtoUDP)
		h.SetHopLimit(64)
		h.SetSrc(src.As16())
		h.SetDst(dst.As16())
	} else {
		f = append(f, make([]byte, wire.IPv4Len)...)
		h := wire.IPv4(f[ip:])
		h[0] = 0x45
		h.SetTOS(c.tos)
		h.SetTotalLen(wire.IPv4Len + wire.UDPLen + len(pay))
		h.SetID(c.id)
		h.SetFlagsOffset(wire.FlagDF)
		h.SetTTL(64)
		h.SetProtocol(wire.ProtoUDP)
		h.SetSrc(src.As4())
		h.SetDst(dst.As4())
		h.SetChecksum()
	}
	at := len(f)
	f = append(f, make([]byte, wire.UDPLen)...)
	u := wire.UDP(f[at:])
	u.SetSrcPort(0xc001)
	u.SetDstPort(wire.Port)
	u.SetLength(wire.UDPLen + len(pay))
	v := make([]byte, vnetLen)
	ne := binary.NativeEndian
	if c.sum || len(c.sizes) > 1 {
		u.SetChecksum(0x1234) // of the pseudo header: whatever it is
		v[0] = flagNeedsChecksum
		ne.PutUint16(v[6:], uint16(at))
		ne.PutUint16(v[8:], 6)
	}
	if len(c.sizes) > 1 {
		v[1] = gsoUDPL4
		ne.PutUint16(v[2:], uint16(at+wire.UDPLen))
		ne.PutUint16(v[4:], uint16(c.sizes[0]))
	}
	return superPacket{v, append(f, pay...)}
}

// requireRight requires that a frame is one RoCEv2 packet with a right ICRC, and that
// gopacket makes the same headers of it: lengths and checksums.
func requireRight(t *testing.T, frame []byte) {
	t.Helper()
	var d wire.Datagram
	require.Equal(t, trace.None, wire.ParseFrame(frame, &d))
	body := d.Payload[:len(d.Payload)-4]
	require.Equal(t, wire.ICRC(body, netip.AddrPortFrom(d.Src, d.SrcPort), netip.AddrPortFrom(d.Dst, wire.Port), d.ID, true),
		binary.LittleEndian.Uint32(d.Payload[len(body):]), "ICRC")
	requireHeaders(t, frame)
}

func requireHeaders(t *testing.T, frame []byte) {
	t.Helper()
	pkt := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	require.Nil(t, pkt.ErrorLayer())
	u := pkt.Layer(layers.LayerTypeUDP).(*layers.UDP)
	fix := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: u.Checksum != 0}
	var out []gopacket.SerializableLayer
	for _, l := range pkt.Layers() {
		if l.LayerType() == layers.LayerTypeUDP {
			require.NoError(t, u.SetNetworkLayerForChecksum(pkt.NetworkLayer()))
			out = append(out, u, gopacket.Payload(u.Payload))
			break
		}
		out = append(out, l.(gopacket.SerializableLayer))
	}
	b := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(b, fix, out...))
	require.Equal(t, b.Bytes(), frame)
}

// Each packet of a super-packet is what its ICRC was computed for, over IPv4 and
// IPv6, with tags, counted and not.
func TestCut(t *testing.T) {
	for _, c := range []superOf{
		{sizes: []int{64}},
		{sizes: []int{64}, sum: true},
		{sizes: []int{67}, sum: true, v6: true},
		{sizes: []int{1040, 1040, 1040, 64}},
		{sizes: []int{1040, 1040, 1040, 1040}, id: 0xfffe},
		{sizes: []int{4112, 4112, 20}, id: 77, fixed: true},
		{sizes: []int{4112, 4112, 20}, v6: true, tos: 0x6a},
		{sizes: []int{272, 272}, tags: []uint16{0x6005}},
		{sizes: []int{272, 272, 16}, tags: []uint16{0x6005, 7}, v6: true},
	} {
		s := super(&c)
		var r run
		require.True(t, r.parse(s.vnet, s.frame))
		require.Equal(t, len(c.sizes), r.Segments())
		require.Equal(t, !c.fixed, r.whole())
		for i, n := range c.sizes {
			var p packet
			r.cut(&p, i)
			require.Len(t, p.roce(), n)
			require.Equal(t, len(p.frame)-p.ip, p.size)
			require.Equal(t, c.sum || len(c.sizes) > 1, summed(&p), "a checksum of 0 stays, others are finished")
			requireRight(t, p.frame)
			require.EqualValues(t, c.psn+uint32(i), bth.BTH(p.roce()).PSN().Uint32())
		}
	}
}

// A frame that is padded to Ethernet's least length stays so.
func TestPadding(t *testing.T) {
	s := super(&superOf{sizes: []int{16}})
	s.frame = append(s.frame, 0xa, 0xb)
	var r run
	var p packet
	require.True(t, r.parse(s.vnet, s.frame))
	r.cut(&p, 0)
	require.Equal(t, s.frame, p.frame)
	require.Equal(t, 44, p.size)
	require.Len(t, p.roce(), 16)
}

// What is not RoCEv2 as Annex A17 has it is not.
func TestNotRoCE(t *testing.T) {
	good := func() superPacket { return super(&superOf{sizes: []int{1040, 1040}}) }
	for what, spoil := range map[string]func(s *superPacket){
		"port":          func(s *superPacket) { s.frame[37]++ },
		"TCP":           func(s *superPacket) { s.frame[23] = 6; wire.IPv4(s.frame[14:]).SetChecksum() },
		"fragment":      func(s *superPacket) { s.frame[21] = 1; wire.IPv4(s.frame[14:]).SetChecksum() },
		"IP checksum":   func(s *superPacket) { s.frame[24]++ },
		"too long":      func(s *superPacket) { s.frame = s.frame[:1000] },
		"UFO":           func(s *superPacket) { s.vnet[1] = 3 },
		"segments of 0": func(s *superPacket) { s.vnet[4], s.vnet[5] = 0, 0 },
		"nothing":       func(s *superPacket) { s.frame = nil },
	} {
		s := good()
		spoil(&s)
		var r run
		require.False(t, r.parse(s.vnet, s.frame), what)
	}
	s := good()
	require.True(t, new(run).parse(s.vnet, s.frame))
}

// A tag that the kernel took out is put back, and what the header points to moves.
func TestRetag(t *testing.T) {
	want := super(&superOf{sizes: []int{1040, 1040}, tags: []uint16{0x6005}})
	got := super(&superOf{sizes: []int{1040, 1040}})
	buf := append(make([]byte, wire.VLANLen), got.frame...)
	require.Equal(t, want.frame, retag(got.vnet, buf, wire.EtherTypeVLAN, 0x6005))
	require.Equal(t, want.vnet, got.vnet)
}

// What an MTU has to take of a frame.
func TestPacketLen(t *testing.T) {
	for _, c := range []struct {
		of   superOf
		want int
	}{
		{superOf{sizes: []int{1040}}, 1068},
		{superOf{sizes: []int{1040, 1040}}, 1068},
		{superOf{sizes: []int{1040, 1040}, v6: true}, 1088},
		{superOf{sizes: []int{1040, 1040}, tags: []uint16{5}}, 1068},
		{superOf{sizes: []int{1040}, tags: []uint16{5}}, 1068},
	} {
		s := super(&c.of)
		require.Equal(t, c.want, packetLen(s.vnet, s.frame))
	}
	tcp := make([]byte, 14+20+32+9000)
	tcp[14+20+12] = 8 << 4
	v := make(vnet, vnetLen)
	v[0], v[1] = flagNeedsChecksum, gsoTCP4|gsoECN
	binary.NativeEndian.PutUint16(v[4:], 1448)
	binary.NativeEndian.PutUint16(v[6:], 34)
	require.Equal(t, 1500, packetLen(v, tcp))
}

// FuzzCut: any frame with any virtio header is not RoCEv2, or is cut into packets with
// right headers that hold all octets.
func FuzzCut(f *testing.F) {
	for _, c := range []superOf{
		{sizes: []int{64}},
		{sizes: []int{64}, sum: true, v6: true},
		{sizes: []int{272, 272, 16}, tags: []uint16{1, 2}},
		{sizes: []int{1040, 1040, 20}, v6: true},
		{sizes: []int{64, 64}, fixed: true},
	} {
		s := super(&c)
		f.Add(s.vnet, s.frame)
	}
	f.Fuzz(func(t *testing.T, v, frame []byte) {
		if len(v) != vnetLen || len(frame) > 1<<17 {
			return
		}
		if n := packetLen(v, frame); n > len(frame) {
			t.Fatal("longer than the frame")
		}
		var r run
		if !r.parse(v, frame) {
			return
		}
		total := 0
		for i := range r.Segments() {
			var p packet
			r.cut(&p, i)
			total += len(p.roce())
			var d wire.Datagram
			if why := wire.ParseFrame(p.frame, &d); why != trace.None || d.SrcPort != r.SrcPort || d.Src != r.Src {
				t.Fatalf("packet %d: %v", i, why)
			}
			if r.complete && len(p.frame) == p.ip+p.size {
				requireHeadersOf(t, &p)
			}
			p.mark()
			if wire.ParseFrame(p.frame, &d) != trace.None || d.TOS&3 != wire.ECNCE {
				t.Fatal("not marked")
			}
		}
		if total != len(r.Payload) {
			t.Fatalf("%d octets of %d", total, len(r.Payload))
		}
	})
}

// requireHeadersOf checks a UDP checksum by adding everything up, word by word.
func requireHeadersOf(t *testing.T, p *packet) {
	udp := p.frame[p.bth-wire.UDPLen : p.ip+p.size]
	from, to := p.ip+8, p.ip+40
	if p.v4() {
		from, to = p.ip+12, p.ip+20
	}
	addrs := p.frame[from:to]
	sum := uint32(wire.ProtoUDP) + uint32(len(udp))
	for _, b := range [][]byte{addrs, udp} {
		for i, o := range b {
			sum += uint32(o) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum != 0xffff {
		t.Fatalf("UDP checksum: sum %#x", sum)
	}
}

// A checksum that comes out as 0 is sent as its complement, since 0 says that there is none.
func TestChecksumOfZero(t *testing.T) {
	s := super(&superOf{sizes: []int{64}, sum: true})
	var r run
	var p packet
	require.True(t, r.parse(s.vnet, s.frame))
	r.cut(&p, 0)
	// What is added to a word makes the checksum less by as much.
	at := p.bth + 20
	binary.BigEndian.PutUint16(p.frame[at:], 0)
	p.setChecksum()
	sum := wire.UDP(p.frame[p.bth-wire.UDPLen:]).Checksum()
	binary.BigEndian.PutUint16(p.frame[at:], sum)
	p.setChecksum()
	require.EqualValues(t, 0xffff, wire.UDP(p.frame[p.bth-wire.UDPLen:]).Checksum())
}
