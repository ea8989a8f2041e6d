package layers_test

import (
	"bytes"
	"testing"

	"github.com/google/gopacket"
	inet "github.com/google/gopacket/layers"

	"github.com/gorxe/gorxe/layers"
)

// entries are where a fuzzed packet may begin: layers of ours, and Ethernet, so
// that what gopacket makes of the rest comes to us too.
var entries = []gopacket.Decoder{
	layers.LayerTypeBTH, layers.LayerTypeGRH, layers.LayerTypeLRH, layers.LayerTypeMAD, layers.LayerTypeICRC, inet.LayerTypeEthernet,
}

// FuzzDecode: no octets make a layer panic, however they are decoded, and what
// is decoded without an error serialises to the same octets.
func FuzzDecode(f *testing.F) {
	for _, s := range samples(f) {
		switch s.on {
		case overIPv4:
			f.Add(uint8(0), s.frame[14+20+8:])
			f.Add(uint8(5), s.frame)
		case overGRH:
			f.Add(uint8(1), s.frame[14:])
		case overLRH, overLRHGRH:
			f.Add(uint8(2), s.frame)
		}
	}
	f.Fuzz(func(t *testing.T, entry uint8, data []byte) {
		first := entries[int(entry)%len(entries)]
		ours := first != inet.LayerTypeEthernet
		// gopacket's own layers do panic; ours must not.
		opts := gopacket.DecodeOptions{SkipDecodeRecovery: ours}
		p := gopacket.NewPacket(data, first, opts)
		opts.Lazy = true
		if lazy := gopacket.NewPacket(data, first, opts); len(data) > 0 && lazy.String() != p.String() { // gopacket decodes no empty packet lazily
			t.Fatalf("lazily %v\nelse %v", lazy, p)
		}
		_ = p.Dump()
		_ = layers.VerifyICRC(p)

		var s layers.Stack
		parser := gopacket.NewDecodingLayerParser(first.(gopacket.LayerType), &inet.Ethernet{}, &inet.IPv4{}, &inet.IPv6{}, &inet.UDP{})
		s.AddTo(parser)
		parser.AddDecodingLayer(&layers.ICRC{})
		parser.IgnorePanic = ours
		var decoded []gopacket.LayerType
		err := parser.DecodeLayers(data, &decoded)

		if !ours || p.ErrorLayer() != nil {
			return
		}
		if len(data) > 0 && err != nil {
			t.Fatalf("a parser says %v of %v", err, p)
		}
		if p.Metadata().Truncated {
			return // the length in a GRH or LRH says that octets lack
		}
		want := data
		for i, l := range p.Layers() {
			g, ok := l.(*layers.GRH)
			switch {
			case ok && i == 0: // the frame may go on, like Ethernet's
				want = data[:40+int(g.PayLen)]
			case ok && len(p.Layers()[i-1].LayerPayload()) != 40+int(g.PayLen):
				return // what is between a GRH's end and its LRH's is in no layer
			}
		}
		forget(p)
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializePacket(buf, gopacket.SerializeOptions{}, p); err != nil {
			t.Fatalf("%v: %v", err, p)
		}
		if !bytes.Equal(buf.Bytes(), want) {
			t.Fatalf("%x\ncomes back as\n%x\n%v", want, buf.Bytes(), p)
		}
	})
}
