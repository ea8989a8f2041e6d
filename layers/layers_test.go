package layers_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/layers"
	"github.com/gorxe/gorxe/trace"
	"github.com/gorxe/gorxe/wire"
)

// fieldsOf are the exported fields of a layer.
func fieldsOf(l any) map[string]any {
	v := reflect.Indirect(reflect.ValueOf(l))
	if v.Kind() != reflect.Struct {
		return map[string]any{"octets": v.Bytes()}
	}
	m := map[string]any{}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Name != "BaseLayer" {
			m[f.Name] = v.Field(i).Interface()
		}
	}
	return m
}

// from is the packet after the layers below the BTH.
func from(p gopacket.Packet, t gopacket.LayerType) []gopacket.Layer {
	for i, l := range p.Layers() {
		if l.LayerType() == t {
			return p.Layers()[i:]
		}
	}
	return nil
}

// What was built of layers decodes to the same layers with the same fields, on
// every carrier, for every opcode and message, and the packet's ICRC is right.
func TestEveryOpcode(t *testing.T) {
	seen := map[gopacket.LayerType]bool{}
	for _, s := range samples(t) {
		p := gopacket.NewPacket(s.frame, s.on.first(), gopacket.DecodeOptions{SkipDecodeRecovery: true})
		require.Nil(t, p.ErrorLayer(), "%s: %v", s.name, p)
		require.NoError(t, layers.VerifyICRC(p), s.name)
		got := from(p, layers.LayerTypeBTH)
		require.Len(t, got, len(s.layers)+1, "%s: %v", s.name, p)
		for i, want := range s.layers {
			require.Equal(t, want.LayerType(), got[i].LayerType(), s.name)
			require.Equal(t, fieldsOf(want), fieldsOf(got[i]), s.name)
			seen[want.LayerType()] = true
		}
		require.Equal(t, layers.LayerTypeICRC, got[len(got)-1].LayerType())
		if s.on == overLRH || s.on == overLRHGRH {
			require.Equal(t, layers.LayerTypeLRH, p.LinkLayer().LayerType())
		}
		for _, l := range p.Layers() {
			seen[l.LayerType()] = true
		}
	}
	for lt := range gopacket.LayerType(27) {
		require.True(t, seen[layers.FirstLayerType+lt], "%v", layers.FirstLayerType+lt)
		require.NotContains(t, (layers.FirstLayerType + lt).String(), "17", "a layer type without a name")
	}
}

// The data path, which shares no code with the layers but the opcode table,
// says the same of every packet.
func TestAgreesWithDataPath(t *testing.T) {
	n := 0
	for _, s := range samples(t) {
		op := s.layers[0].(*layers.BTH).Opcode
		if s.on > overIPv6 || !op.Valid() {
			continue
		}
		n++
		var d wire.Datagram
		require.Equal(t, trace.None, wire.ParseFrame(s.frame, &d), s.name)
		require.Equal(t, trace.None, wire.NewVerifier().Check(0, &d, 0), s.name)
		var q bth.Packet
		require.Equal(t, trace.None, bth.Parse(d.Segment(0), &q), s.name)
		p := gopacket.NewPacket(s.frame, s.on.first(), gopacket.Default)
		for _, l := range from(p, layers.LayerTypeBTH) {
			switch l := l.(type) {
			case *layers.BTH:
				require.Equal(t, []any{q.Opcode, q.SE, q.MigReq, q.AckReq, q.FECN, q.BECN, q.Pad, q.TVer, q.PKey, q.DestQP, q.PSN},
					[]any{l.Opcode, l.SE, l.MigReq, l.AckReq, l.FECN, l.BECN, l.PadCount, l.TVer, l.PKey, l.DestQP, l.PSN}, s.name)
			case *layers.RETH:
				require.Equal(t, []any{q.VA, q.RKey, q.DMALen}, []any{l.VA, l.RKey, l.DMALen}, s.name)
			case *layers.AtomicETH:
				require.Equal(t, []any{q.VA, q.RKey, q.SwapAdd, q.Compare}, []any{l.VA, l.RKey, l.SwapAdd, l.Compare}, s.name)
			case *layers.AETH:
				require.Equal(t, []any{q.Syndrome, q.MSN}, []any{l.Syndrome, l.MSN}, s.name)
			case *layers.AtomicAckETH:
				require.Equal(t, q.Orig, l.Orig, s.name)
			case *layers.ImmDt:
				require.Equal(t, q.Imm, l.Imm, s.name)
			case *layers.IETH:
				require.Equal(t, q.Inv, l.RKey, s.name)
			case *layers.DETH:
				require.Equal(t, []any{q.QKey, q.SrcQP}, []any{l.QKey, l.SrcQP}, s.name)
			case *layers.RDETH:
				require.Equal(t, q.EECtx, l.EEContext, s.name)
			case *layers.XRCETH:
				require.Equal(t, q.XRCSRQ, l.SRQ, s.name)
			case *layers.FETH:
				require.Equal(t, []any{q.FlushPlacement, q.FlushSelectivity}, []any{l.Placement, l.Selectivity}, s.name)
			case *gopacket.Payload:
				require.Equal(t, q.Payload, l.LayerContents(), s.name)
			}
		}
	}
	require.Greater(t, n, 150)
}

// A packet that ends early, at any octet, is Truncated and an error or has no
// trailer, whether a layer below says so or the BTH finds out. Nothing panics.
func TestTruncated(t *testing.T) {
	for _, s := range samples(t) {
		whole := gopacket.NewPacket(s.frame, s.on.first(), gopacket.Default)
		end := len(s.frame)
		if v, ok := whole.Layer(layers.LayerTypeLRH).(*layers.LRH); ok {
			end -= len(v.Trailer)
		}
		for n := range end {
			p := gopacket.NewPacket(s.frame[:n], s.on.first(), gopacket.DecodeOptions{SkipDecodeRecovery: true})
			short := p.Metadata().Truncated
			if s.on < overLRH && n < 14 {
				short = p.ErrorLayer() != nil // gopacket's Ethernet says no more
			}
			if n > 14 || s.on >= overLRH && n > 0 {
				require.True(t, short, "%s cut to %d: %v", s.name, n, p)
			}
			require.Nil(t, p.Layer(layers.LayerTypeICRC), "%s cut to %d", s.name, n)
			require.ErrorIs(t, layers.VerifyICRC(p), layers.ErrNoICRC)
		}
		// The octets from the BTH on, by themselves: what lies there is taken
		// for the ICRC, unless there is no room for it.
		b := whole.Layer(layers.LayerTypeBTH).(*layers.BTH)
		pkt := append(append(append([]byte(nil), b.Contents...), b.Payload...), b.Trailer().Contents...)
		need := b.Opcode.Info().HdrLen
		if need == 0 {
			need = bth.BTHLen
		}
		if whole.Layer(layers.LayerTypeMAD) != nil {
			need += 256
		}
		need += int(b.PadCount) + bth.ICRCLen
		for n := range pkt {
			p := gopacket.NewPacket(pkt[:n], layers.LayerTypeBTH, gopacket.DecodeOptions{SkipDecodeRecovery: true})
			require.Equal(t, n < need, p.ErrorLayer() != nil, "%s at %d: %v", s.name, n, p)
			require.Equal(t, n < need, p.Metadata().Truncated, "%s at %d", s.name, n)
		}
	}
}

// Fields that do not fit are refused, not cut.
func TestSerializeErrors(t *testing.T) {
	buf := gopacket.NewSerializeBuffer()
	for want, l := range map[string]gopacket.SerializableLayer{
		"layers: BTH: 0x1000000 at bit 40 takes more than the 24 bits of its field": &layers.BTH{DestQP: 1 << 24},
		"layers: BTH: 0x10 at bit 12 takes more than the 4 bits of its field":       &layers.BTH{TVer: 16},
		"layers: AETH: 0x1000000 at bit 8 takes more than the 24 bits of its field": &layers.AETH{MSN: 1 << 24},
		"layers: CMRTU: 225 octets at offset 8, where there is room for 224":        &layers.CMRTU{PrivateData: make([]byte, 225)},
		"layers: CMReq: 0x40 at bit 730 takes more than the 6 bits of its field":    &layers.CMReq{Primary: layers.CMPath{PacketRate: 64}},
		"layers: LRH: 0x800 at bit 37 takes more than the 11 bits of its field":     &layers.LRH{PktLen: 0x800},
		"layers: GRH: 0x100000 at bit 12 takes more than the 20 bits of its field":  &layers.GRH{FlowLabel: 1 << 20},
		"layers: 4 octets of pad, where at most 3 can be":                           &layers.ICRC{Pad: make([]byte, 4)},
		"layers: CNP: 17 octets at offset 0, where there is room for 16":            &layers.CNP{Reserved: make([]byte, 17)},
	} {
		require.EqualError(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, l), want)
	}

	sum := gopacket.SerializeOptions{ComputeChecksums: true}
	ip, udp := &inet.IPv4{Version: 4, SrcIP: src4, DstIP: dst4}, &inet.UDP{}
	b := &layers.BTH{}
	require.ErrorContains(t, gopacket.SerializeLayers(buf, sum, b), "make an ICRC the last layer")
	require.ErrorContains(t, gopacket.SerializeLayers(buf, sum, b, &layers.ICRC{}), "SetLayersForChecksum")
	for _, below := range [][]gopacket.Layer{nil, {ip}, {udp}, {udp, ip}, {ip, udp, udp}, {&layers.GRH{}, udp}, {&inet.Ethernet{}, ip, udp}, {&layers.LRH{}, ip}} {
		require.ErrorContains(t, b.SetLayersForChecksum(below...), "the ICRC covers an IPv4 or IPv6 layer and a UDP layer")
	}
	require.NoError(t, b.SetLayersForChecksum(ip, udp))
	ip.Options = []inet.IPv4Option{{OptionType: 1}}
	require.ErrorContains(t, gopacket.SerializeLayers(buf, sum, b, &layers.ICRC{}), "no IPv4 options")
	ip.Options, ip.SrcIP = nil, nil
	require.Error(t, gopacket.SerializeLayers(buf, sum, b, &layers.ICRC{}), "gopacket's own")
	fix := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	for _, c := range []struct {
		below gopacket.Layer
		n     int
	}{{&layers.GRH{}, 65536 - 16}, {&layers.LRH{}, 8192 - 24}} {
		require.NoError(t, b.SetLayersForChecksum(c.below))
		require.ErrorContains(t, gopacket.SerializeLayers(buf, fix, b, gopacket.Payload(make([]byte, c.n)), &layers.ICRC{}), " fit")
		require.ErrorContains(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true},
			c.below.(gopacket.SerializableLayer), gopacket.Payload(make([]byte, c.n+16))), "do not fit behind")
	}
	require.NoError(t, b.SetLayersForChecksum(&inet.IPv4{Version: 4, SrcIP: src4, DstIP: dst4}, udp))
	require.NoError(t, gopacket.SerializeLayers(buf, fix, b, gopacket.Payload(make([]byte, 65535-20-8-12-4-3)), &layers.ICRC{}))
	require.ErrorContains(t, gopacket.SerializeLayers(buf, fix, b, gopacket.Payload(make([]byte, 65535-20-8-12-4+1)), &layers.ICRC{}), "fits in no datagram")
	require.NoError(t, b.SetLayersForChecksum(&inet.IPv6{HopByHop: &inet.IPv6HopByHop{}}, udp))
	require.ErrorContains(t, gopacket.SerializeLayers(buf, sum, b, &layers.ICRC{}), "no IPv6 extension headers")
}

// Malformed packets are errors.
func TestMalformed(t *testing.T) {
	for want, c := range map[string]struct {
		first gopacket.Decoder
		data  []byte
	}{
		"layers: BTH cut short: 11 octets where it takes 12":                          {layers.LayerTypeBTH, make([]byte, 11)},
		"layers: ICRC cut short: 3 octets where it takes 4":                           {layers.LayerTypeBTH, make([]byte, 15)},
		"layers: ICRC cut short: 6 octets where it takes 7":                           {layers.LayerTypeBTH, append([]byte{4, 0x30}, make([]byte, 16)...)},
		"layers: RETH cut short: 15 octets where it takes 16":                         {layers.LayerTypeBTH, append([]byte{0x0a}, make([]byte, 11+15+4)...)},
		"layers: CNP cut short: 12 octets where it takes 16":                          {layers.LayerTypeBTH, append([]byte{0x81}, make([]byte, 11+12+4)...)},
		"layers: 4 octets of pad before the ICRC, where at most 3 can be":             {layers.LayerTypeICRC, make([]byte, 8)},
		"layers: an LRH that says its packet has 4 octets, fewer than the LRH itself": {layers.LayerTypeLRH, []byte{0, 2, 0, 0, 0, 1, 0, 0}},
		"layers: GRH cut short: 39 octets where it takes 40":                          {layers.LayerTypeGRH, make([]byte, 39)},
	} {
		p := gopacket.NewPacket(c.data, c.first, gopacket.DecodeOptions{SkipDecodeRecovery: true})
		require.NotNil(t, p.ErrorLayer(), want)
		require.EqualError(t, p.ErrorLayer().Error(), want)
	}
}

// An opcode that is not in the specification: BTH, payload, ICRC.
func TestUnknownOpcode(t *testing.T) {
	r := newBuilder(t, 2)
	p := gopacket.NewPacket(r.frame(overIPv6, r.bth(0xc5), gopacket.Payload("manufacturer's own")), inet.LayerTypeEthernet, gopacket.Default)
	got := from(p, layers.LayerTypeBTH)
	require.Len(t, got, 3)
	require.Equal(t, "UNKNOWN_0xc5", got[0].(*layers.BTH).Opcode.String())
	require.Equal(t, "manufacturer's own", string(p.ApplicationLayer().Payload()))
	require.NoError(t, layers.VerifyICRC(p))
}

// A tag and a tunnel do not hide the packet, nor which headers its ICRC covers.
func TestTunnel(t *testing.T) {
	r := newBuilder(t, 3)
	inner := r.frame(overIPv4, r.bth(bth.RCSendOnly), gopacket.Payload("hello"))
	outer := &inet.IPv6{Version: 6, NextHeader: inet.IPProtocolUDP, SrcIP: src6.AsSlice(), DstIP: dst6.AsSlice(), HopLimit: 3}
	buf := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true},
		&inet.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: inet.EthernetTypeDot1Q},
		&inet.Dot1Q{VLANIdentifier: 7, Type: inet.EthernetTypeIPv6},
		outer, &inet.UDP{SrcPort: 1, DstPort: 4789}, &inet.VXLAN{ValidIDFlag: true, VNI: 9}, gopacket.Payload(inner)))
	p := gopacket.NewPacket(buf.Bytes(), inet.LayerTypeEthernet, gopacket.Default)
	require.Nil(t, p.ErrorLayer())
	require.NoError(t, layers.VerifyICRC(p))

	// What a router changes does not matter; anything else does.
	at := bytes.Index(buf.Bytes(), inner) + 14
	for off, want := range map[int]bool{1: true, 8: true, 10: true, 26: true, 32: true, 12: false, 16: false, 20: false, 29: false, 33: false, 41: false} {
		b := bytes.Clone(buf.Bytes())
		b[at+off] ^= 0x40
		err := layers.VerifyICRC(gopacket.NewPacket(b, inet.LayerTypeEthernet, gopacket.Default))
		require.Equal(t, want, err == nil, "octet %d: %v", off, err)
		var wrong *layers.ICRCError
		if !want {
			require.ErrorAs(t, err, &wrong)
			require.NotEqual(t, wrong.Value, wrong.Computed)
			require.ErrorContains(t, err, "is right")
		}
	}
	require.ErrorIs(t, layers.VerifyICRC(gopacket.NewPacket(inner[:40], inet.LayerTypeEthernet, gopacket.Default)), layers.ErrNoICRC)
	require.ErrorIs(t, (&layers.ICRC{}).Verify(), layers.ErrNoICRC)
	icrc := p.Layer(layers.LayerTypeICRC).(*layers.ICRC)
	require.ErrorContains(t, icrc.Verify(&inet.IPv4{}, &inet.UDP{}), "was it decoded?")
	require.ErrorContains(t, icrc.Verify(), "the ICRC covers")
}

// Ethernet pads a short frame; the pad is no part of the packet.
func TestFramePad(t *testing.T) {
	r := newBuilder(t, 4)
	head := r.bth(bth.RCSendOnly)
	frame := append(r.frame(overGRH, head, gopacket.Payload("x")), 0, 0, 0, 0)
	p := gopacket.NewPacket(frame, inet.LayerTypeEthernet, gopacket.Default)
	require.NoError(t, layers.VerifyICRC(p))
	require.Equal(t, "x", string(p.ApplicationLayer().Payload()))
	require.Equal(t, src6.String()+"->"+dst6.String(), p.NetworkLayer().NetworkFlow().String())
}

// The IP connection manager's part of a REQ.
func TestIPCM(t *testing.T) {
	for _, want := range []layers.IPCM{
		{IPVersion: 4, PortSpace: 6, SrcPort: 40000, DstPort: 7471, Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2")},
		{IPVersion: 6, PortSpace: 0x11, SrcPort: 1, DstPort: 0xffff, Src: src6, Dst: dst6},
	} {
		var m layers.CMReq
		require.NoError(t, m.SetIPCM(want, []byte("private")))
		require.Equal(t, 1<<24|uint64(want.PortSpace)<<16|uint64(want.DstPort), m.ServiceID)
		got, private, ok := m.IPCM()
		require.True(t, ok)
		require.Equal(t, want, got)
		require.Equal(t, "private", string(private))
	}
	var m layers.CMReq
	require.ErrorContains(t, m.SetIPCM(layers.IPCM{Src: src6, Dst: netip.MustParseAddr("192.0.2.1")}, nil), "not of one family")
	require.ErrorContains(t, m.SetIPCM(layers.IPCM{}, nil), "not of one family")
	for _, m := range []layers.CMReq{
		{},
		{ServiceID: 1 << 24},
		{ServiceID: 1 << 24, PrivateData: make([]byte, 92)},
		{ServiceID: 2 << 24, PrivateData: append([]byte{0, 0x40}, make([]byte, 90)...)},
	} {
		_, _, ok := m.IPCM()
		require.False(t, ok)
	}
}

// FixLengths leaves the pad and its count to the payload, whatever they were.
func TestPad(t *testing.T) {
	for n := range 9 {
		b := &layers.BTH{Opcode: bth.RCSendOnly, PadCount: 2}
		buf := gopacket.NewSerializeBuffer()
		require.NoError(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true},
			b, gopacket.Payload(bytes.Repeat([]byte{0xee}, n)), &layers.ICRC{Pad: []byte{1, 2}, Value: 0x04030201}))
		pad := -n & 3
		require.Equal(t, uint8(pad), b.PadCount)
		require.Equal(t, append(append(bytes.Repeat([]byte{0xee}, n), make([]byte, pad)...), 1, 2, 3, 4), buf.Bytes()[bth.BTHLen:])
		// Without a place for the ICRC there is a pad all the same.
		require.NoError(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, b, gopacket.Payload(make([]byte, n))))
		require.Len(t, buf.Bytes(), bth.BTHLen+n+pad)
	}
}

// The octets of a few packets, by hand.
func TestGolden(t *testing.T) {
	pkt := []byte{
		0x0a, 0xb0, 0xff, 0xff, 0x80, 0x01, 0x02, 0x03, 0x80, 0x04, 0x05, 0x06, // RC_WRITE_ONLY, solicited, pad 3, FECN, AckReq
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 1, // RETH
		0xaa, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, // payload, pad, ICRC
	}
	p := gopacket.NewPacket(pkt, layers.LayerTypeBTH, gopacket.Default)
	require.Equal(t, map[string]any{
		"Opcode": bth.RCWriteOnly, "SE": true, "MigReq": false, "PadCount": uint8(3), "TVer": uint8(0), "PKey": uint16(0xffff), "FECN": true, "BECN": false,
		"Resv6": uint8(0), "DestQP": bth.QPN(0x010203), "AckReq": true, "Resv7": uint8(0), "PSN": bth.MakePSN(0x040506),
	}, fieldsOf(p.Layer(layers.LayerTypeBTH)))
	require.Equal(t, map[string]any{"VA": uint64(0x0102030405060708), "RKey": uint32(0x090a0b0c), "DMALen": uint32(1)}, fieldsOf(p.Layer(layers.LayerTypeRETH)))
	require.Equal(t, []byte{0xaa}, p.ApplicationLayer().Payload())
	require.Equal(t, map[string]any{"Pad": []byte{0, 0, 0}, "Value": uint32(0x44332211)}, fieldsOf(p.Layer(layers.LayerTypeICRC)))
	require.Equal(t, binary.LittleEndian.Uint32(pkt[32:]), p.Layer(layers.LayerTypeICRC).(*layers.ICRC).Value)
}
