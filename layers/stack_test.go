package layers_test

import (
	"testing"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/layers"
)

// parser decodes frames without allocating.
type parser struct {
	eth   inet.Ethernet
	tag   inet.Dot1Q
	ip4   inet.IPv4
	ip6   inet.IPv6
	udp   inet.UDP
	stack layers.Stack

	ethernet, ipv4, infiniband *gopacket.DecodingLayerParser
	decoded                    []gopacket.LayerType
}

func newParser() *parser {
	p := &parser{}
	for first, to := range map[gopacket.LayerType]**gopacket.DecodingLayerParser{
		inet.LayerTypeEthernet: &p.ethernet, inet.LayerTypeIPv4: &p.ipv4, layers.LayerTypeLRH: &p.infiniband,
	} {
		*to = gopacket.NewDecodingLayerParser(first, &p.eth, &p.tag, &p.ip4, &p.ip6, &p.udp)
		p.stack.AddTo(*to)
		(*to).IgnorePanic = true // let it out
	}
	return p
}

func (p *parser) of(first gopacket.Decoder) *gopacket.DecodingLayerParser {
	switch first {
	case inet.LayerTypeIPv4:
		return p.ipv4
	case layers.LinkTypeInfiniBand:
		return p.infiniband
	}
	return p.ethernet
}

// layer returns the layer of a type.
func (p *parser) layer(t gopacket.LayerType) any {
	s := &p.stack
	return map[gopacket.LayerType]any{
		layers.LayerTypeLRH: &s.LRH, layers.LayerTypeGRH: &s.GRH, layers.LayerTypeBTH: &s.BTH, layers.LayerTypeRDETH: &s.RDETH,
		layers.LayerTypeXRCETH: &s.XRCETH, layers.LayerTypeDETH: &s.DETH, layers.LayerTypeFETH: &s.FETH, layers.LayerTypeRETH: &s.RETH,
		layers.LayerTypeAtomicETH: &s.AtomicETH, layers.LayerTypeAETH: &s.AETH, layers.LayerTypeAtomicAckETH: &s.AtomicAckETH,
		layers.LayerTypeImmDt: &s.ImmDt, layers.LayerTypeIETH: &s.IETH, layers.LayerTypeCNP: &s.CNP, layers.LayerTypeMAD: &s.MAD,
		layers.LayerTypeCMReq: &s.CMReq, layers.LayerTypeCMMRA: &s.CMMRA, layers.LayerTypeCMRej: &s.CMRej, layers.LayerTypeCMRep: &s.CMRep,
		layers.LayerTypeCMRTU: &s.CMRTU, layers.LayerTypeCMDReq: &s.CMDReq, layers.LayerTypeCMDRep: &s.CMDRep,
		layers.LayerTypeCMSIDRReq: &s.CMSIDRReq, layers.LayerTypeCMSIDRRep: &s.CMSIDRRep, layers.LayerTypeCMLAP: &s.CMLAP,
		layers.LayerTypeCMAPR: &s.CMAPR, gopacket.LayerTypePayload: &s.Payload,
	}[t]
}

// sameAsPacket holds a parser's layers to those of a Packet.
func (p *parser) sameAsPacket(t testing.TB, first gopacket.Decoder, data []byte, name string) {
	t.Helper()
	d := p.of(first)
	require.NoError(t, d.DecodeLayers(data, &p.decoded), name)
	require.False(t, d.Truncated, name)
	pkt := gopacket.NewPacket(data, first, gopacket.Default)
	var want []gopacket.LayerType
	for _, l := range pkt.Layers() {
		if l.LayerType() == layers.LayerTypeICRC {
			require.Equal(t, fieldsOf(l), fieldsOf(p.stack.BTH.Trailer()), name)
			continue
		}
		want = append(want, l.LayerType())
		if ours := p.layer(l.LayerType()); ours != nil {
			require.Equal(t, fieldsOf(l), fieldsOf(ours), name)
		}
	}
	require.Equal(t, want, p.decoded, name)
}

// One Stack, used again and again, gives what a fresh Packet gives.
func TestParserAgreesWithPacket(t *testing.T) {
	p := newParser()
	for _, s := range samples(t) {
		p.sameAsPacket(t, s.on.first(), s.frame, s.name)
	}
	files := ownCaptures(t)
	t.Run("captures", func(t *testing.T) {
		dir := captureDir(t)
		files = append(files, glob(t, dir+"/*.pcap", dir+"/*.hex", dir+"/rxe/*.pcap")...)
	})
	for _, name := range files {
		for _, f := range readFrames(t, name) {
			first, data := firstLayer(t, f)
			p.sameAsPacket(t, first, data, name)
		}
	}
}

// A parser says that a packet is cut short, whatever it is cut to, and keeps
// nothing of the packet before.
func TestParserTruncated(t *testing.T) {
	p := newParser()
	r := newBuilder(t, 5)
	frame := r.frame(overIPv6, r.bth(bth.RCWriteOnlyImm), append(r.extensions(bth.RCWriteOnlyImm), gopacket.Payload("abc"))...)
	require.NoError(t, p.ethernet.DecodeLayers(frame, &p.decoded))
	require.NotNil(t, p.stack.BTH.Trailer())
	for n := 14 + 40 + 8 + 12; n < len(frame); n++ {
		err := p.ethernet.DecodeLayers(frame[:n], &p.decoded)
		require.True(t, p.ethernet.Truncated, n)
		require.Nil(t, p.stack.BTH.Trailer())
		if err != nil {
			require.ErrorContains(t, err, "cut short")
		}
	}
	// No layer below knows: the BTH sees that its opcode calls for more.
	alone := gopacket.NewDecodingLayerParser(layers.LayerTypeBTH)
	p.stack.AddTo(alone)
	require.NoError(t, alone.DecodeLayers(append([]byte{byte(bth.RCWriteOnly)}, make([]byte, 15)...), &p.decoded))
	require.True(t, alone.Truncated)
}

// On its own an extension header is followed by payload.
func TestLayersAlone(t *testing.T) {
	p := gopacket.NewPacket(append(make([]byte, 16), "rest"...), layers.LayerTypeRETH, gopacket.Default)
	require.Nil(t, p.ErrorLayer())
	require.Equal(t, "rest", string(p.ApplicationLayer().Payload()))
	for lt := layers.LayerTypeBTH; lt <= layers.LayerTypeLRH; lt++ {
		for _, opts := range []gopacket.DecodeOptions{gopacket.Default, gopacket.Lazy} {
			opts.SkipDecodeRecovery = true
			b := make([]byte, 300)
			b[4], b[5] = 0, 75 // an LRH's length
			if lt == layers.LayerTypeICRC {
				b = b[:7]
			}
			p := gopacket.NewPacket(b, lt, opts)
			require.Equal(t, lt, p.Layers()[0].LayerType())
			require.NotContains(t, p.String(), "DecodeFailure")
		}
	}
}

// allocFrames are those of the samples that differ in what they hold.
func allocFrames(t testing.TB) (frames [][]byte) {
	for _, s := range samples(t) {
		if s.on < overLRH {
			frames = append(frames, s.frame)
		}
	}
	return frames
}

func TestParserAllocatesNothing(t *testing.T) {
	p := newParser()
	frames := allocFrames(t)
	require.Greater(t, len(frames), 700)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		for _, f := range frames {
			if err := p.ethernet.DecodeLayers(f, &p.decoded); err != nil || p.stack.BTH.Trailer() == nil {
				t.Fatal(err)
			}
		}
	}))
}

// BenchmarkDecode decodes an Ethernet frame of RC_WRITE_ONLY with 1024 octets of
// payload.
func BenchmarkDecode(b *testing.B) {
	r := newBuilder(b, 6)
	frame := r.frame(overIPv4, r.bth(bth.RCWriteOnly), append(r.extensions(bth.RCWriteOnly), gopacket.Payload(r.octets(1024)))...)
	b.Run("parser", func(b *testing.B) {
		p := newParser()
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		for b.Loop() {
			if err := p.ethernet.DecodeLayers(frame, &p.decoded); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("packet", func(b *testing.B) {
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		for b.Loop() {
			if gopacket.NewPacket(frame, inet.LayerTypeEthernet, gopacket.NoCopy).ErrorLayer() != nil {
				b.Fatal("not decoded")
			}
		}
	})
	b.Run("cm", func(b *testing.B) {
		head, rest := r.datagram(0, r.messages()[0])
		frame := r.frame(overIPv4, head, rest...)
		p := newParser()
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		for b.Loop() {
			if err := p.ethernet.DecodeLayers(frame, &p.decoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}
